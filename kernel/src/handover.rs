//! The order to hand a running kernel over to another program, and whether that program can take it.

use std::env;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::version::Version;

/// The process id of the kernel that hands over, for the program after it; or [`CHECK`].
pub(crate) const VARIABLE: &str = "MGP_HANDOVER";
/// The program only says whether it could take over.
const CHECK: &str = "check";
/// How long a program may take to say so.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// Most of a program's messages that are repeated, in characters.
const QUOTED_CHARS_MAX: usize = 1000;
/// The default and the longest time for calls under way.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(60);
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(600);

/// An order to hand over.
#[derive(Clone, Debug)]
pub(crate) struct HandoverOrder {
    /// The program.
    pub(crate) program: PathBuf,
    /// Time for calls under way.
    pub(crate) wait: Duration,
}

/// Where the order is put.
#[derive(Debug, Default)]
pub(crate) struct HandoverSlot {
    /// False for kernels that end with what started them.
    pub(crate) is_possible: bool,
    order: OnceLock<HandoverOrder>,
}

impl HandoverSlot {
    pub(crate) fn new(is_possible: bool) -> Self {
        Self {
            is_possible,
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
}

/// Whether this program was started only to say whether it could take over.
#[must_use]
pub(crate) fn is_check() -> bool {
    env::var_os(VARIABLE).is_some_and(|value| value == CHECK)
}

/// What a check prints, once the configuration was read.
#[must_use]
pub(crate) fn describe_readiness() -> String {
    let readiness = Readiness {
        version: env!("CARGO_PKG_VERSION").into(),
    };
    serde_json::to_string(&readiness).expect("it is always JSON")
}

/// Checks whether a program may and can take over, with the arguments of this process; returns its version.
///
/// # Errors
/// Says why not, and what to do.
pub(crate) async fn check(program: &Path) -> Result<String, String> {
    check_file(program)?;
    let shown = program.display();
    let mut command = tokio::process::Command::new(program);
    command.args(env::args_os().skip(1)).env(VARIABLE, CHECK);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(CHECK_TIMEOUT, command.output()).await;
    let output = output.map_err(|_| format!("{shown} did not say what it is within 30 s"))?;
    let output = output.map_err(|e| format!("{shown} cannot be run: {e}"))?;
    let readiness = serde_json::from_slice::<Readiness>(&output.stdout).ok();
    let Some(readiness) = readiness.filter(|_| output.status.success()) else {
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
    Ok(readiness.version)
}

/// Others must not be able to change what this kernel becomes.
fn check_file(program: &Path) -> Result<(), String> {
    let shown = program.display();
    let file = program.metadata().map_err(|e| format!("{shown}: {e}"))?;
    if !program.is_absolute() || !file.is_file() {
        return Err(format!("{shown} is no path of a program: name it from /"));
    }
    let is_ours = [0, geteuid().as_raw()].contains(&file.uid());
    if !is_ours || file.mode() & 0o002 != 0 {
        return Err(format!(
            "{shown} belongs to another user, or others may write to it: `chmod o-w` closes it"
        ));
    }
    Ok(())
}
