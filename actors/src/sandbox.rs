//! Starts servers in a sandbox: finds out what this machine can do, prepares the server's own folder
//! and has a launcher restrict itself before it becomes the server.
//! Asked by: server supervisors.
//!
//! Nothing that runs in the kernel restricts anything: between fork and exec there is no safe code.
//! The launcher is the kernel's own program, started again with a hidden argument.

mod calls;
mod launch;
mod probe;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use mgp_engine::sandbox::{Machine, Place, Policy, Rules};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::permission::Standard;
use mgp_protocol::mgp::servers::Sandbox;
use mgp_transports::child::{self, ChildSpec, Launcher};
use tokio::sync::OnceCell;

pub use launch::launch;
pub use probe::probe;

/// The variable that holds the policy; the launcher takes it away.
const POLICY: &str = "MGP_SANDBOX_POLICY";
/// What the launcher is told, before the program.
const LAUNCH: &str = "__sandbox";
/// The first line of a script is no longer than the system reads.
const FIRST_LINE: u64 = 256;
/// Scripts run by scripts run by scripts: the system follows as many.
const SCRIPTS: usize = 4;

/// What every sandbox is made with.
#[derive(Debug, Default)]
pub struct Sandboxes {
    /// This program.
    pub exe: PathBuf,
    /// Holds the own folder of each server.
    pub folder: PathBuf,
    /// The kernel's configuration, data and socket.
    pub kernels: Vec<PathBuf>,
    /// The home of the kernel's user.
    pub home: Option<PathBuf>,
    /// What this machine can do, once somebody asked.
    pub machine: OnceCell<Machine>,
}

/// A sandbox that is ready for one start of a server.
#[derive(Debug)]
pub(crate) struct Ready {
    /// The server, to be started by the launcher.
    pub(crate) spec: ChildSpec,
    /// What holds it.
    pub(crate) report: Sandbox,
}

impl Sandboxes {
    /// The folder that is a server's own; its home is below it.
    #[must_use]
    pub fn own_folder(&self, server: &ServerId) -> PathBuf {
        // An id may be two dots.
        let own = self.folder.join(format!("of-{server}"));
        // Its working folder is another one than the kernel's.
        std::path::absolute(&own).unwrap_or(own)
    }

    /// Prepares a start of a server with these permissions.
    ///
    /// # Errors
    /// In words, what is missing.
    pub(crate) async fn prepare(
        &self,
        spec: ChildSpec,
        rules: &Rules,
        granted: &BTreeSet<Standard>,
    ) -> Result<Ready, String> {
        let machine = self.machine.get_or_try_init(|| probe::ask(&self.exe)).await;
        let machine = *machine.map_err(|e| format!("the sandbox cannot be tried out: {e}"))?;
        let own = self.own_folder(&spec.id);
        let mut place = Place {
            own,
            kernels: self.kernels.clone(),
            home: self.home.clone(),
            ..Place::default()
        };
        let looked = spec.clone();
        let looking = tokio::task::spawn_blocking(move || {
            look(&looked, &mut place)?;
            furnish(&place.own).map_err(|e| format!("{}: {e}", place.own.display()))?;
            Ok::<_, String>(place)
        });
        let place = looking.await.map_err(|e| e.to_string())??;
        let policy = Policy::of(granted, rules, &place, machine);
        let report = policy.report(granted, rules, &place);
        Ok(Ready {
            spec: self.through_launcher(spec, &policy, &place.own),
            report,
        })
    }

    fn through_launcher(&self, mut spec: ChildSpec, policy: &Policy, own: &Path) -> ChildSpec {
        for (name, folder) in [("HOME", HOME), ("TMPDIR", TMP)] {
            let folder = own.join(folder).display().to_string();
            spec.env.entry(name.to_owned()).or_insert(folder);
        }
        let policy = serde_json::to_string(policy).expect("a policy is always JSON");
        spec.launcher = Some(Launcher {
            exe: self.exe.clone(),
            args: vec![LAUNCH.to_owned(), "--".to_owned()],
            env: BTreeMap::from([(POLICY.to_owned(), policy)]),
        });
        spec
    }
}

const HOME: &str = "home";
const TMP: &str = "tmp";

/// Makes the server's own folder; what it left in its temporary one is gone.
fn furnish(own: &Path) -> io::Result<()> {
    let private = |path: &Path| {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
    };
    private(&own.join(HOME))?;
    match fs::remove_dir_all(own.join(TMP)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    private(&own.join(TMP))
}

/// Finds what of a server lies where, without symbolic links.
fn look(spec: &ChildSpec, place: &mut Place) -> Result<(), String> {
    let (program, programs) = child::find(spec).map_err(|e| e.to_string())?;
    place.cwd = real(spec.cwd.as_deref().unwrap_or(Path::new("/")));
    place.own = std::path::absolute(&place.own).map_err(|e| e.to_string())?;
    place.interpreters = interpreters(&program, &programs);
    // A virtual environment is where the link to its interpreter is.
    if let (Some(folder), Some(name)) = (program.parent(), program.file_name()) {
        place.interpreters.push(real(folder).join(name));
    }
    place.usual = !spec.command.contains('/') && !spec.env.contains_key("PATH");
    place.programs = programs.iter().map(|folder| real(folder)).collect();
    place.program = real(&program);
    let named = spec.args.iter().map(|arg| place.cwd.join(arg));
    place.named = named
        .filter(|path| path.is_file())
        .map(|path| real(&path))
        .collect();
    for kernels in place.kernels.iter_mut().chain(&mut place.home) {
        *kernels = real(kernels);
    }
    Ok(())
}

/// A path without symbolic links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => real(folder).join(name),
        _ => path.to_owned(),
    }
}

/// What a script is run by: the program of its first line, and the one that `env` looks up for it.
fn interpreters(program: &Path, programs: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut next = Some(program.to_owned());
    while let Some(script) = next.take().filter(|_| found.len() < SCRIPTS) {
        let Some(line) = first_line(&script) else {
            break;
        };
        let mut words = line.split_ascii_whitespace();
        let Some(interpreter) = words.next().map(PathBuf::from) else {
            break;
        };
        if interpreter.ends_with("env") {
            let wanted = words.find(|word| !word.starts_with('-') && !word.contains('='));
            let looked_up = programs.iter().map(|f| f.join(wanted.unwrap_or_default()));
            next = looked_up.into_iter().find(|path| path.is_file());
        }
        found.push(real(&interpreter));
        match &next {
            Some(program) => found.push(real(program)),
            None => next = Some(interpreter),
        }
    }
    found
}

fn first_line(script: &Path) -> Option<String> {
    let mut start = Vec::new();
    File::open(script)
        .ok()?
        .take(FIRST_LINE)
        .read_to_end(&mut start)
        .ok()?;
    let rest = start.strip_prefix(b"#!")?;
    let line = rest.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_runs_a_script_is_found_through_env_and_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        let write = |name: &str, text: &str| {
            fs::write(at(name), text).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("node-22", "\u{7f}ELF");
        std::os::unix::fs::symlink(at("node-22"), at("node")).unwrap();
        write("serve", "#!/usr/bin/env -S node --quiet\n");
        let found = interpreters(&at("serve"), &[at("")]);
        assert_eq!(found, [real(Path::new("/usr/bin/env")), at("node-22")]);
        write("loop", &format!("#!{}\n", at("loop").display()));
        assert!(interpreters(&at("loop"), &[]).len() <= SCRIPTS + 1);
        assert!(interpreters(&at("node"), &[]).is_empty());
    }

    #[test]
    fn a_path_that_is_not_there_yet_is_known_by_the_folder_it_will_be_in() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, link) = (folder.path().join("whole"), folder.path().join("link"));
        fs::create_dir(&whole).unwrap();
        std::os::unix::fs::symlink(&whole, &link).unwrap();
        let real_folder = whole.canonicalize().unwrap();
        assert_eq!(real(&link.join("a/b")), real_folder.join("a/b"));
    }
}
