//! A home folder of its own, in which programs are run as from a bare environment.

use std::path::PathBuf;

use mgp_tests::harness::Program;
use tempfile::TempDir;

use crate::LONGEST;

/// The home folder. The kernel that was started in it ends with it.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("there is room for a folder");
        let settings = folder.path().join(".config/mgp");
        std::fs::create_dir_all(&settings).expect("the folder is writable");
        // Any free port: a kernel of this machine's user may have the usual one.
        let door = "[http]\nlisten = \"127.0.0.1:0\"\n";
        std::fs::write(settings.join("servers.toml"), door).expect("the folder is writable");
        Self { folder }
    }

    pub(crate) fn read(&self, file: &str) -> String {
        let path: PathBuf = self.folder.path().join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    pub(crate) async fn mgp(&self, args: &[&str]) -> String {
        self.run(&Program::ours("mgp", args.iter().copied())).await
    }

    /// Runs a program that finds HOME and PATH and nothing else; prints what was typed and what came of it.
    pub(crate) async fn run(&self, program: &Program) -> String {
        let mut bare = Program::new("env", ["-i"]);
        let path = std::env::var("PATH").unwrap_or_default();
        let home = self.folder.path().display().to_string();
        bare.args
            .extend([format!("HOME={home}"), format!("PATH={path}")]);
        let more = program.env.iter();
        bare.args
            .extend(more.map(|(name, value)| format!("{name}={value}")));
        bare.args.push(program.command.clone());
        bare.args.extend(program.args.iter().cloned());
        println!("$ {} {}", program.command, program.args.join(" "));
        let output = bare.output(LONGEST).await;
        let text = [&output.stdout[..], &output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        print!("{text}");
        assert!(output.status.success(), "it ended with {}", output.status);
        text
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let home = self.folder.path().display().to_string();
        let mgp = Program::ours("mgp", ["down"]).env("HOME", home);
        let _ended = mgp.to_command().output();
    }
}
