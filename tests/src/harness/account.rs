//! A user of this machine with shells and clients of many environments.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{DEADLINE, Program};

/// A user whom the password database knows, in namespaces where nobody else's runtime folder is seen.
/// Dropping it ends the kernels that run on its folders, by their process ids.
#[derive(Debug)]
pub struct Account(TempDir);

impl Account {
    /// A user with this `servers.toml`. `None`, and a word of it, where the machine lends no namespaces.
    ///
    /// # Panics
    /// When its folders cannot be made.
    pub async fn new(servers: &str) -> Option<Self> {
        let account = Self(TempDir::new().expect("a temporary folder"));
        account.file("home/.config/mgp/servers.toml", servers);
        fs::create_dir_all(account.at("run/user/0")).expect("a runtime folder");
        let home = account.home();
        account.file(
            "passwd",
            &format!("ada:x:0:0::{}:/bin/sh\n", home.display()),
        );
        let trial = account.runs(&Program::new("true", [""; 0]), &[]);
        let tried = trial.output(DEADLINE).await;
        if !tried.status.success() {
            let why = String::from_utf8_lossy(&tried.stderr);
            let _ = writeln!(std::io::stderr(), "SKIPPED: no user of our own here: {why}");
            return None;
        }
        Some(account)
    }

    /// A place in the folder of everything that is this user's.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The home that the password database has.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.at("home")
    }

    /// Writes a file of this user.
    ///
    /// # Panics
    /// When that fails.
    pub fn file(&self, name: &str, text: &str) {
        let path = self.at(name);
        let folder = path.parent().expect("it is in a folder");
        fs::create_dir_all(folder).expect("its folder is made");
        fs::write(path, text).expect("it is written");
    }

    /// A program as this user runs it, with `PATH` and these variables and no others.
    ///
    /// # Panics
    /// When this process has no `PATH`.
    #[must_use]
    pub fn runs(&self, program: &Program, variables: &[(&str, &Path)]) -> Program {
        let script = "mount --bind \"$0/passwd\" /etc/passwd && mount --bind \"$0/run\" /run && \
                      cd \"$0\" && exec env -i \"$@\"";
        let place = self.0.path().display().to_string();
        let path = std::env::var("PATH").expect("there is a PATH");
        let mut run = Program::new("unshare", ["-Urm", "sh", "-c", script, &place])
            .arg(format!("PATH={path}"));
        for (name, value) in variables {
            run = run.arg(format!("{name}={}", value.display()));
        }
        for (name, value) in &program.env {
            run = run.arg(format!("{name}={value}"));
        }
        run = run.arg(&program.command);
        run.args.extend(program.args.iter().cloned());
        run
    }

    /// `mgp` as this user types it.
    #[must_use]
    pub fn mgp(&self, args: &[&str], variables: &[(&str, &Path)]) -> Program {
        self.runs(&Program::ours("mgp", args.iter().copied()), variables)
    }

    /// What only a client gives its children: nothing but where the home is.
    #[must_use]
    pub fn home_only(&self) -> [(&'static str, PathBuf); 1] {
        [("HOME", self.home())]
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            for entry in entries {
                match entry.file_name() == "kernel.lock" {
                    true => end(&entry.path()),
                    false if entry.file_type().is_ok_and(|kind| kind.is_dir()) => {
                        folders.push(entry.path());
                    }
                    false => {}
                }
            }
        }
    }
}

/// Ends the kernel that holds a lock.
fn end(lock: &Path) {
    let pid = fs::read_to_string(lock).unwrap_or_default();
    let held = fs::File::open(lock).is_ok_and(|file| file.try_lock_shared().is_err());
    if let (true, Ok(pid)) = (held, pid.trim().parse()) {
        // It may end by itself meanwhile.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}
