//! The order to hand a running kernel over to another program, and whether that program can take it.

use std::env;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use mgp_runtime::{run_bounded, task};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::version::Version;

/// The process id of the kernel that hands over, for the program after it; or [`CHECK`].
pub(crate) const VARIABLE: &str = "MGP_HANDOVER";
/// The program only says whether it could take over.
const CHECK: &str = "check";
/// How long a program may take to say so.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// Most of each of its outputs that is read.
const CHECK_OUTPUT_MAX: usize = 64 << 10;
/// Most of a program's messages that are repeated, in characters.
const QUOTED_CHARS_MAX: usize = 1000;
/// Permissions that let others change a file or a folder's contents, and the one that keeps the files of others.
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// The default and the longest time for calls under way.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(60);
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(600);

/// An order to hand over.
#[derive(Clone, Debug)]
pub(crate) struct HandoverOrder {
    /// The program.
    pub(crate) program: CheckedProgram,
    /// Time for calls under way.
    pub(crate) wait: Duration,
}

/// A program as it was when it was checked.
#[derive(Clone, Debug)]
pub(crate) struct CheckedProgram {
    /// Its path, without links.
    path: PathBuf,
    /// Device, inode and time of the last change.
    identity: (u64, u64, i64, i64),
}

impl CheckedProgram {
    /// Its path, as it was checked.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its path, if nobody has changed it since.
    ///
    /// # Errors
    /// It is another file now, or others may write to it.
    pub(crate) fn recheck(&self) -> Result<&Path, String> {
        let now = check_file(&self.path)?;
        if now.identity == self.identity && now.path == self.path {
            Ok(&self.path)
        } else {
            let shown = self.path.display();
            Err(format!("{shown} was changed after it was checked"))
        }
    }
}

/// Where the order is put.
#[derive(Debug)]
pub(crate) struct HandoverSlot {
    /// False for kernels that end with what started them.
    pub(crate) is_possible: bool,
    /// The address of HTTP that passes on.
    pub(crate) listen: Option<SocketAddr>,
    /// Why the program of the last order did not take over.
    pub(crate) last_failure: Option<String>,
    order: OnceLock<HandoverOrder>,
}

impl HandoverSlot {
    pub(crate) fn new(
        is_possible: bool,
        listen: Option<SocketAddr>,
        last_failure: Option<String>,
    ) -> Self {
        Self {
            is_possible,
            listen,
            last_failure,
            order: OnceLock::new(),
        }
    }

    /// Puts the first order.
    ///
    /// # Errors
    /// There is one.
    pub(crate) fn order(&self, order: HandoverOrder) -> Result<(), String> {
        let put = self.order.set(order);
        put.map_err(|_| "this kernel is being upgraded already".into())
    }

    /// The order, once there is one.
    pub(crate) fn get(&self) -> Option<&HandoverOrder> {
        self.order.get()
    }
}

/// What a program says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Readiness {
    version: String,
    /// The data folder that it would use.
    #[serde(default)]
    data_dir: Option<PathBuf>,
    /// Where it would listen for HTTP.
    #[serde(default)]
    listen: Option<SocketAddr>,
}

/// Whether this program was started only to say whether it could take over.
#[must_use]
pub(crate) fn is_check() -> bool {
    env::var_os(VARIABLE).is_some_and(|value| value == CHECK)
}

/// What a check prints, once the configuration was read.
#[must_use]
pub(crate) fn describe_readiness(data_dir: &Path, listen: Option<SocketAddr>) -> String {
    let readiness = Readiness {
        version: env!("CARGO_PKG_VERSION").into(),
        data_dir: Some(data_dir.to_owned()),
        listen,
    };
    serde_json::to_string(&readiness).expect("it is always JSON")
}

/// Checks whether a program may and can take over from a kernel that listens at `listen`, with the arguments of this
/// process; returns its version.
///
/// # Errors
/// Says why not, and what to do.
pub(crate) async fn check(
    program: &Path,
    data_dir: &Path,
    listen: Option<SocketAddr>,
) -> Result<(CheckedProgram, String), String> {
    let checked = check_file(program)?;
    let shown = program.display();
    let mut command = Command::new(&checked.path);
    command.args(env::args_os().skip(1)).env(VARIABLE, CHECK);
    // What it starts is killed with it.
    command.process_group(0);
    let running = move || run_bounded(&mut command, CHECK_TIMEOUT, CHECK_OUTPUT_MAX);
    let output = task::run_blocking("handover.check", running).await;
    let output = output.map_err(|broken| broken.to_string())?;
    let output = output.map_err(|e| format!("{shown} cannot be run: {e}"))?;
    let status = output.status;
    let status = status.ok_or_else(|| format!("{shown} did not say what it is within 30 s"))?;
    let readiness = serde_json::from_slice::<Readiness>(&output.stdout).ok();
    let Some(readiness) = readiness.filter(|_| status.success()) else {
        let told = String::from_utf8_lossy(&output.stderr);
        let told: String = told.trim().chars().take(QUOTED_CHARS_MAX).collect();
        return Err(format!(
            "{shown} cannot take over from this kernel, which goes on: it is no mgp of this version or later, or does not accept the configuration\n{told}"
        ));
    };
    let (current, next) = (env!("CARGO_PKG_VERSION"), &readiness.version);
    if Version::parse(next) < Version::parse(current) {
        return Err(format!(
            "{shown} is version {next}, and an older one may not read what {current} has stored: `mgp down`, then start it"
        ));
    }
    if let Some(other) = readiness.data_dir.filter(|other| other != data_dir) {
        return Err(format!(
            "the configuration names another data folder now, {}: `mgp down`, then `mgp up --detach`",
            other.display()
        ));
    }
    if let Some(other) = readiness.listen.filter(|_| readiness.listen != listen) {
        TcpListener::bind(other).map_err(|e| {
            format!("the configuration has another `listen` in [http] now, {other}, which cannot be used: {e}")
        })?;
    }
    checked.recheck()?;
    Ok((checked, readiness.version))
}

/// Others must not be able to change what this kernel becomes: not the file, and not the folders that it is in.
fn check_file(program: &Path) -> Result<CheckedProgram, String> {
    let shown = program.display();
    let explain = |e: std::io::Error| format!("{shown}: {e}");
    if !program.is_absolute() {
        return Err(format!("{shown} is no path from /"));
    }
    if !program.metadata().map_err(explain)?.is_file() {
        return Err(format!("{shown} is no file with a program"));
    }
    let path = program.canonicalize().map_err(explain)?;
    let file = path.metadata().map_err(explain)?;
    for place in path.ancestors() {
        let found = place.metadata().map_err(explain)?;
        let is_ours = [0, geteuid().as_raw()].contains(&found.uid());
        // In a folder such as /tmp only the owner of a file may replace it.
        let is_kept = found.is_dir() && found.mode() & STICKY != 0;
        let is_open = found.mode() & OTHERS_WRITE != 0 && !is_kept;
        let place = place.display();
        if !is_ours {
            return Err(format!(
                "{place} belongs to another user than this kernel and root"
            ));
        }
        if is_open {
            return Err(format!(
                "others may write to {place}: `chmod o-w` closes it"
            ));
        }
    }
    let identity = (file.dev(), file.ino(), file.ctime(), file.ctime_nsec());
    Ok(CheckedProgram { path, identity })
}
