//! The sandbox of a server with the lowest trust: turns its permissions, its configuration and the machine's
//! support into a [`SandboxPolicy`] for its process and a report for the operator.
//!
//! Everything not listed is denied. Paths arrive with symbolic links resolved; this module reads no files.

mod paths;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mgp_protocol::mgp::permission::{PermissionType, Standard};
use mgp_protocol::mgp::servers::Sandbox;
use serde::{Deserialize, Serialize};

use super::egress::EgressRule;

use paths::{DEVICES, KERNEL_FILES, LOADERS, READABLE_FILES, SHARED_MEMORY, SYSTEM_PATHS};

/// The first Landlock version that restricts truncation, and with it every way to change a file.
const LANDLOCK_TRUNCATE_VERSION: u32 = 3;
/// The first that restricts TCP.
const LANDLOCK_TCP_VERSION: u32 = 4;
/// The first that restricts signals and abstract Unix sockets.
const LANDLOCK_SCOPES_VERSION: u32 = 6;

/// The operator's settings for a server's sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Readable with `filesystem.read`.
    pub read: Vec<PathBuf>,
    /// Writable with `filesystem.write`.
    pub write: Vec<PathBuf>,
    /// The only destinations with `network.outbound`; `None` for all.
    pub egress: Option<Vec<EgressRule>>,
    /// Bounds on its processes.
    pub limits: SandboxLimits,
    /// Start it only if this machine enforces the whole policy.
    pub required: bool,
    /// A server without a seal has the lowest trust (MGP 0.6.3).
    pub is_seal_required: bool,
    /// The operator wrote the configuration, so its working folder and the files in its arguments are readable. Any
    /// other configuration could name private files.
    pub is_operator_written: bool,
    /// The operator named its program, or it is in the kernel's `PATH`: the files installed with it are readable.
    pub is_operator_chosen: bool,
    /// Its program, if that was registered as code.
    pub program: Option<SandboxProgram>,
    /// The approved program files; others are not started.
    pub pinned: Vec<PinnedProgram>,
}

/// A program file as the operator approved it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedProgram {
    /// Where it was found.
    pub path: PathBuf,
    /// BLAKE3 of its contents in hexadecimal, or why it could not be read.
    pub hash: String,
}

/// The digest of the file that a server is made of, as the operator wrote it (MGP 0.6.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The file, from the server's working folder; its program if not given.
    pub entry_point: Option<PathBuf>,
    /// SHA-256 of its contents in lowercase hexadecimal.
    pub sha256: String,
}

/// The text is no seal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a seal is `sha256:` and 64 digits of 0-9 and a-f, as `sha256sum FILE` prints them")]
pub struct SealError;

impl Seal {
    /// Parses `sha256:HEX` (MGP_CONNECTOR §3.2), and returns the digits.
    ///
    /// # Errors
    /// [`SealError`] for any other form.
    pub fn parse_digest(text: &str) -> Result<String, SealError> {
        let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        let digits = text.strip_prefix("sha256:").ok_or(SealError)?;
        if digits.len() == 64 && digits.bytes().all(is_digit) {
            Ok(digits.to_owned())
        } else {
            Err(SealError)
        }
    }
}

/// A program registered as code. It is written again before each start, so that exactly the approved code runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxProgram {
    /// The name of its file in a folder that the server may read.
    pub file: String,
    /// Its text.
    pub text: String,
    /// The index of its path among the arguments.
    pub at: usize,
}

impl SandboxProgram {
    /// Interpreter options that restrict module loading to the interpreter's installation, so that files written by
    /// the server and its variables cannot inject modules.
    #[must_use]
    pub fn isolation_options(&self, env: &BTreeMap<String, String>) -> &'static [&'static str] {
        let is_python = Path::new(&self.file).extension() == Some("py".as_ref());
        // `-I` ignores this harmless variable, without which unflushed output would never arrive.
        match (is_python, env.contains_key("PYTHONUNBUFFERED")) {
            (true, true) => &["-I", "-u"],
            (true, false) => &["-I"],
            (false, _) => &[],
        }
    }
}

/// Bounds on a sandboxed server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLimits {
    /// Private memory of one process, in bytes, without shared memory.
    pub memory: u64,
    /// Processes and threads beyond those its user has at its start.
    pub processes: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// Size of a file it writes, in bytes.
    pub file_size: u64,
}

impl Default for SandboxLimits {
    /// Memory: twice the heap of a large JavaScript server. Processes: a runtime has a dozen threads, a build tool some
    /// dozens of processes. Open files: half of a user's usual limit. File size: too little for model weights.
    fn default() -> Self {
        Self {
            memory: 2 << 30,
            processes: 256,
            open_files: 4096,
            file_size: 1 << 30,
        }
    }
}

/// The restrictions that this machine can enforce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSupport {
    /// The Landlock version, or 0.
    pub landlock: u32,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
    /// Whether the kernel runs as root. Sandboxed servers never do.
    pub root: bool,
    /// Whether a server can have mount, process and IPC namespaces, inside a user namespace unless the
    /// kernel is root.
    pub namespaces: bool,
}

/// The paths of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramPaths {
    /// Its program.
    pub program: PathBuf,
    /// The interpreter of a script, and programs that it looks up.
    pub interpreters: Vec<PathBuf>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// Files that its arguments name.
    pub argument_files: Vec<PathBuf>,
    /// The folders of its `PATH`.
    pub path_dirs: Vec<PathBuf>,
    /// Its program was found by name in the kernel's `PATH`; the configuration sets neither.
    pub found_in_path: bool,
    /// Its own folder: home and temporary files.
    pub own_dir: PathBuf,
    /// The folder of its registered code: readable, never writable.
    pub code_dir: Option<PathBuf>,
    /// The socket through which it gives the kernel its network's only way out, if its destinations are limited.
    pub egress_socket: Option<PathBuf>,
    /// The kernel's configuration, data and socket: inaccessible, except `own_dir` and `code_dir`.
    pub kernel_paths: Vec<PathBuf>,
    /// The home of the kernel's user, which is never accessible as a whole.
    pub home: Option<PathBuf>,
}

/// The restrictions of a server's process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPolicy {
    /// Readable paths.
    pub read: Vec<PathBuf>,
    /// Readable and executable paths.
    pub execute: Vec<PathBuf>,
    /// Readable and writable paths.
    pub write: Vec<PathBuf>,
    /// It may connect.
    pub outbound: bool,
    /// It may connect to a proxy of the kernel alone, whose listener is sent through this socket.
    pub egress_socket: Option<PathBuf>,
    /// It may listen.
    pub listen: bool,
    /// It may start programs.
    pub programs: bool,
    /// Bounds.
    pub limits: SandboxLimits,
    /// What the machine must enforce. The process is not started with less.
    pub machine: SandboxSupport,
    /// The symbolic links on these paths.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// The user it runs as when root starts it; its group has the same number.
    pub user: Option<u32>,
}

/// True for the system's paths, which every server may read.
#[must_use]
pub fn is_system_path(path: &Path) -> bool {
    SYSTEM_PATHS.iter().any(|folder| path.starts_with(folder))
}

/// Permissions that affect the sandbox.
#[must_use]
pub fn sandbox_permissions(granted: &BTreeSet<PermissionType>) -> BTreeSet<Standard> {
    let standard = granted.iter().filter_map(|permission| match permission {
        PermissionType::Standard(standard) => Some(*standard),
        PermissionType::Custom(_) => None,
    });
    standard
        .filter(|permission| match permission {
            Standard::FilesystemRead
            | Standard::FilesystemWrite
            | Standard::NetworkOutbound
            | Standard::NetworkListen
            | Standard::ShellExecute
            | Standard::CodeExecution => true,
            Standard::MemoryRead
            | Standard::MemoryWrite
            | Standard::SystemInformation
            | Standard::Camera
            | Standard::Notification => false,
        })
        .collect()
}

impl SandboxPolicy {
    /// The policy of a server with these permissions.
    #[must_use]
    pub fn for_server(
        granted: &BTreeSet<Standard>,
        config: &SandboxConfig,
        paths: &ProgramPaths,
        machine: SandboxSupport,
    ) -> Self {
        let has = |permission| granted.contains(&permission);
        let programs = has(Standard::ShellExecute) || has(Standard::CodeExecution);
        let mut policy = Self {
            read: [SYSTEM_PATHS, READABLE_FILES, KERNEL_FILES]
                .concat()
                .iter()
                .map(PathBuf::from)
                .collect(),
            execute: LOADERS.iter().map(PathBuf::from).collect(),
            write: DEVICES.iter().map(PathBuf::from).collect(),
            outbound: has(Standard::NetworkOutbound)
                && (config.egress.is_none() || machine.namespaces),
            egress_socket: paths
                .egress_socket
                .clone()
                .filter(|_| has(Standard::NetworkOutbound) && machine.namespaces),
            listen: has(Standard::NetworkListen),
            programs,
            limits: config.limits,
            machine,
            links: BTreeMap::new(),
            user: None,
        };
        if machine.namespaces {
            policy.write.push(SHARED_MEMORY.into());
        }
        policy.execute.push(paths.program.clone());
        policy.execute.extend(paths.interpreters.iter().cloned());
        policy.write.push(paths.own_dir.clone());
        policy.read.extend(paths.code_dir.clone());
        // Otherwise a program path could make any folder readable.
        let is_trusted =
            config.is_operator_written || config.is_operator_chosen || paths.found_in_path;
        if is_trusted {
            policy.read.extend(paths.installation_dirs());
        }
        if config.is_operator_written {
            policy.read.extend(paths.working_files());
        }
        if has(Standard::FilesystemRead) {
            policy.read.extend(paths.unprotected(&config.read));
        }
        if has(Standard::FilesystemWrite) {
            policy.write.extend(paths.unprotected(&config.write));
        }
        if programs {
            policy
                .execute
                .extend(SYSTEM_PATHS.iter().map(PathBuf::from));
        }
        if programs && is_trusted {
            policy.execute.extend(paths.unprotected(&paths.path_dirs));
            policy.execute.extend(paths.installation_dirs());
        }
        policy
    }

    /// Describes which restrictions this machine enforces and which it does not.
    #[must_use]
    pub fn report(
        &self,
        granted: &BTreeSet<Standard>,
        config: &SandboxConfig,
        paths: &ProgramPaths,
    ) -> Sandbox {
        let mut report = Sandbox::default();
        self.report_files(&mut report, paths);
        self.report_network(&mut report, granted, config);
        self.report_processes(&mut report);
        let SandboxLimits {
            memory,
            open_files,
            file_size,
            ..
        } = self.limits;
        report.enforced.push(format!(
            "limits: {} of private memory and {open_files} open files for each process, {} for a file",
            render_size(memory), render_size(file_size)
        ));
        report
            .notes
            .extend(describe_exceptions(granted, config, paths));
        report
    }

    fn report_files(&self, report: &mut Sandbox, paths: &ProgramPaths) {
        let SandboxSupport {
            landlock,
            namespaces,
            seccomp,
            ..
        } = self.machine;
        if landlock == 0 && !namespaces {
            let missing =
                "files: this kernel has no Landlock, so it reads and writes what its user may";
            report.missing.push(missing.into());
        } else {
            self.report_paths(report, paths);
        }
        match (namespaces, seccomp) {
            (true, true) => report.enforced.push(
                "files: nothing else is there, what it reads never changes, and what it writes gives nobody its rights"
                    .into(),
            ),
            (false, true) => {
                report.enforced.push(
                    "files: changes no mode, owner, time or attribute, not of its own either".into(),
                );
                report.notes.push(
                    "package managers do not work in it: without namespaces modes and times of its own files cannot \
                     be told from those of others"
                        .into(),
                );
            }
            (_, false) => report.missing.push(
                "files: modes that give others its rights, for want of seccomp".into(),
            ),
        }
        if !namespaces && landlock > 0 {
            report.notes.push(
                "it sees which files and processes are there, your home's too, with their sizes, owners and times, \
                 and when they change (stat, inotify), but not what is in them: only namespaces hide that"
                    .into(),
            );
        }
        if (1..LANDLOCK_TRUNCATE_VERSION).contains(&landlock) && !namespaces {
            let missing = "files: this kernel's Landlock does not keep files from being cut short";
            report.missing.push(missing.into());
        }
    }

    fn report_paths(&self, report: &mut Sandbox, paths: &ProgramPaths) {
        let specific = |all: &[PathBuf], system: &[&str]| {
            let paths = all
                .iter()
                .filter(|path| !system.iter().any(|s| Path::new(s) == *path));
            paths
                .map(|path| path.display().to_string())
                .collect::<BTreeSet<_>>()
        };
        let mut read = specific(
            &self.read,
            &[SYSTEM_PATHS, READABLE_FILES, KERNEL_FILES].concat(),
        );
        read.extend(
            paths
                .interpreters
                .iter()
                .chain([&paths.program])
                .map(|p| p.display().to_string()),
        );
        let list = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join(", ");
        report
            .enforced
            .push(format!("files: reads the system's and {}", list(read)));
        let written = specific(&self.write, &[DEVICES, &[SHARED_MEMORY]].concat());
        report
            .enforced
            .push(format!("files: writes {}", list(written)));
    }

    fn report_network(
        &self,
        report: &mut Sandbox,
        granted: &BTreeSet<Standard>,
        config: &SandboxConfig,
    ) {
        let SandboxSupport {
            landlock,
            seccomp,
            namespaces,
            ..
        } = self.machine;
        let restriction = match (self.outbound, self.listen) {
            (false, false) => "network: none, no sockets of other programs either",
            (true, false) if self.egress_socket.is_some() => "network: does not listen",
            (true, true) if self.egress_socket.is_some() => {
                "network: listens where nobody else connects; no sockets of other programs"
            }
            (true, false) => "network: connects, does not listen",
            (false, true) => "network: listens for TCP, does not connect",
            (true, true) => "network: connects and listens; no sockets of other programs",
        };
        let limits = config.egress.as_ref();
        let limits = limits.filter(|_| granted.contains(&Standard::NetworkOutbound));
        if limits.is_some() && self.egress_socket.is_none() {
            report
                .missing
                .push("network: `egress` needs namespaces, so it connects to nothing".into());
        } else if let Some(rules) = limits {
            let rules = rules.iter().map(ToString::to_string);
            report.enforced.push(format!(
                "network: connects through the kernel's proxy alone, to {}; no UDP, no DNS",
                rules.collect::<Vec<_>>().join(", ")
            ));
        }
        match (seccomp, landlock >= LANDLOCK_TCP_VERSION) {
            (true, _) => report.enforced.push(restriction.into()),
            (false, true) => {
                report.enforced.push(format!("{restriction} (TCP only)"));
                report
                    .missing
                    .push("network: UDP and Unix sockets, for want of seccomp".into());
            }
            (false, false) => {
                report
                    .missing
                    .push("network: all of it, for want of seccomp and of Landlock 4".into());
            }
        }
        if landlock < LANDLOCK_SCOPES_VERSION && !namespaces {
            report
                .missing
                .push("signals to other processes of its user, for want of Landlock 6".into());
        }
    }

    fn report_processes(&self, report: &mut Sandbox) {
        report
            .enforced
            .push("privileges: never more than it started with, and none of root's".into());
        if let Some(user) = self.user {
            report.enforced.push(format!(
                "user: {user}, which is no other server's, instead of root"
            ));
        }
        let SandboxSupport {
            seccomp,
            namespaces,
            ..
        } = self.machine;
        match (seccomp, self.programs) {
            (true, false) => report.enforced.push(
                "processes: starts none; code that it loads into its own process is in the same sandbox".into(),
            ),
            (true, true) => report
                .enforced
                .push("processes: may start programs, in the same sandbox".into()),
            (false, _) => report.missing.push(
                "processes and the system calls that are root's business, for want of seccomp"
                    .into(),
            ),
        }
        match (namespaces, seccomp) {
            (true, _) => report.enforced.push(
                "processes: sees no others, and all it starts ends with it; messages and shared memory are its own"
                    .into(),
            ),
            (false, true) => {
                report.enforced.push(
                    "processes: changes no limits or priorities of others, has no System V IPC; a process above it \
                     ends all it starts"
                        .into(),
                );
                report.notes.push(
                    "threads are pinned to processors only by themselves: without namespaces a thread of its own \
                     cannot be told from those of others"
                        .into(),
                );
            }
            (false, false) => report.missing.push(
                "limits, priorities and System V IPC of others, for want of namespaces and seccomp"
                    .into(),
            ),
        }
        report.enforced.push(format!(
            "limits: {} processes and threads more than its user has",
            self.limits.processes
        ));
    }
}

impl ProgramPaths {
    /// True if access to the path would expose the kernel's files or a whole home.
    #[must_use]
    pub fn is_protected(&self, path: &Path) -> bool {
        let mut protected = self.kernel_paths.iter().chain(&self.home);
        protected.any(|protected| protected.starts_with(path))
            || self
                .kernel_paths
                .iter()
                .any(|protected| path.starts_with(protected))
    }

    fn unprotected<'p>(&'p self, paths: &'p [PathBuf]) -> impl Iterator<Item = PathBuf> + 'p {
        paths
            .iter()
            .filter(|path| !self.is_protected(path))
            .cloned()
    }

    /// The installation folder of a program in a `bin` folder.
    fn installation_dirs(&self) -> BTreeSet<PathBuf> {
        let programs = self.interpreters.iter().chain([&self.program]);
        let dirs = programs.filter_map(|program| {
            let bin = program.parent().filter(|folder| folder.ends_with("bin"))?;
            let installation = bin.parent()?;
            // ~/.local holds data besides programs.
            let is_shared = installation.ends_with(".local") || self.is_protected(installation);
            (!is_shared).then(|| installation.to_owned())
        });
        dirs.collect()
    }

    /// The files that its arguments name, and its working folder unless that is protected.
    fn working_files(&self) -> impl Iterator<Item = PathBuf> {
        self.unprotected(&self.argument_files)
            .chain(self.unprotected(std::slice::from_ref(&self.cwd)))
    }
}

fn describe_exceptions(
    granted: &BTreeSet<Standard>,
    config: &SandboxConfig,
    paths: &ProgramPaths,
) -> Vec<String> {
    let mut notes = Vec::new();
    let is_protected = |path: &PathBuf| paths.is_protected(path);
    if config.is_operator_written && is_protected(&paths.cwd) {
        notes.push(format!(
            "its working folder {} is not opened, for the kernel's own files or a home are there: give \
             it a `cwd` of its own",
            paths.cwd.display()
        ));
    }
    for path in config
        .read
        .iter()
        .chain(&config.write)
        .filter(|path| is_protected(path))
    {
        let path = path.display();
        notes.push(format!(
            "{path} is not opened, for the kernel's own files or a home are there"
        ));
    }
    let listed = [
        (Standard::FilesystemRead, config.read.is_empty(), "read"),
        (Standard::FilesystemWrite, config.write.is_empty(), "write"),
    ];
    // All registered servers share one section.
    let section = if config.is_operator_written {
        "[servers.sandbox]"
    } else {
        "[discovery.registered]"
    };
    for (permission, is_empty, key) in listed {
        match (granted.contains(&permission), is_empty) {
            (true, true) => notes.push(format!(
                "{} opens nothing yet: list paths under `{key}` in {section}",
                permission.as_str()
            )),
            (false, false) if config.is_operator_written => notes.push(format!(
                "`{key}` in {section} opens nothing without the permission {}",
                permission.as_str()
            )),
            (false, _) | (true, false) => {}
        }
    }
    notes
}

fn render_size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 && b % (1 << 30) == 0 => format!("{} GiB", b >> 30),
        b => format!("{} MiB", b >> 20),
    }
}
