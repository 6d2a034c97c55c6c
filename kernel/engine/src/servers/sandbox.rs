//! The sandbox of a server with the lowest trust: turns its permissions, its configuration and the
//! abilities of this machine into a [`SandboxPolicy`] for its process and a report for the operator.
//!
//! What is not listed is closed. Paths arrive with symbolic links resolved; nothing is looked up here.

mod paths;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mgp_protocol::mgp::permission::{PermissionType, Standard};
use mgp_protocol::mgp::servers::Sandbox;
use serde::{Deserialize, Serialize};

use paths::{DEVICES, KERNEL_FILES, LOADERS, READABLE_FILES, SHARED_MEMORY, SYSTEM_PATHS};

/// The first Landlock version that bounds truncation, and with it every way to change a file.
const LANDLOCK_TRUNCATE_VERSION: u32 = 3;
/// The first that bounds TCP.
const LANDLOCK_TCP_VERSION: u32 = 4;
/// The first that bounds signals and abstract Unix sockets.
const LANDLOCK_SCOPES_VERSION: u32 = 6;

/// The operator's settings for a server's sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Opened for reading by `filesystem.read`.
    pub read: Vec<PathBuf>,
    /// Opened for writing by `filesystem.write`.
    pub write: Vec<PathBuf>,
    /// Bounds on its processes.
    pub limits: SandboxLimits,
    /// It is not started if this machine cannot enforce all of its policy.
    pub required: bool,
    /// A person wrote the configuration, so its working folder and the files its arguments name are open to
    /// it. A configuration from anybody else could name private files.
    pub is_operator_written: bool,
    /// The operator named its program, or it is found in the kernel's `PATH`: the files it was installed
    /// with are open to it.
    pub is_operator_chosen: bool,
    /// Its program, if that was registered as code.
    pub program: Option<SandboxProgram>,
    /// The approved files it is run from; others are not started.
    pub pinned: Vec<PinnedProgram>,
}

/// A file as a person approved it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedProgram {
    /// Where it was found.
    pub path: PathBuf,
    /// BLAKE3 of its contents in hexadecimal, or why it could not be read.
    pub hash: String,
}

/// A program that was registered as code. It is written again before each start, so that the code that runs
/// is the code that was judged.
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
    /// Options of its interpreter before it, so that modules are loaded only from where the interpreter was
    /// installed, not from what the server wrote or from its variables.
    #[must_use]
    pub fn isolation_options(&self, env: &BTreeMap<String, String>) -> &'static [&'static str] {
        let python = Path::new(&self.file).extension() == Some("py".as_ref());
        // The one harmless variable that is set, because a server that does not flush its output would
        // never be read.
        match (python, env.contains_key("PYTHONUNBUFFERED")) {
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
    /// Twice the heap of a large JavaScript server; a runtime has a dozen threads, a build tool some dozens
    /// of processes; half of a user's usual files; too little for the weights of a model.
    fn default() -> Self {
        Self {
            memory: 2 << 30,
            processes: 256,
            open_files: 4096,
            file_size: 1 << 30,
        }
    }
}

/// What this machine can enforce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSupport {
    /// The version of Landlock; 0 without.
    pub landlock: u32,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
    /// Whether the kernel runs as root. Its sandboxed servers never do.
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
    /// The interpreter of a script, and the programs it looks up.
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
    /// The kernel's configuration, data and socket: closed, except `own` and `code`.
    pub kernel_paths: Vec<PathBuf>,
    /// The home of the kernel's user: never open as a whole.
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
    /// It may listen.
    pub listen: bool,
    /// It may start programs.
    pub programs: bool,
    /// Bounds.
    pub limits: SandboxLimits,
    /// What the machine is expected to enforce. A process that finds less is not started.
    pub machine: SandboxSupport,
    /// Symbolic links on the way to all of these; they contain nothing else.
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
        rules: &SandboxConfig,
        place: &ProgramPaths,
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
            outbound: has(Standard::NetworkOutbound),
            listen: has(Standard::NetworkListen),
            programs,
            limits: rules.limits,
            machine,
            links: BTreeMap::new(),
            user: None,
        };
        if machine.namespaces {
            policy.write.push(SHARED_MEMORY.into());
        }
        policy.execute.push(place.program.clone());
        policy.execute.extend(place.interpreters.iter().cloned());
        policy.write.push(place.own_dir.clone());
        policy.read.extend(place.code_dir.clone());
        // Otherwise any folder could be opened by calling it a program's.
        let known = rules.is_operator_written || rules.is_operator_chosen || place.found_in_path;
        if known {
            policy.read.extend(place.installation_dirs());
        }
        if rules.is_operator_written {
            policy.read.extend(place.working_files());
        }
        if has(Standard::FilesystemRead) {
            policy.read.extend(place.unprotected(&rules.read));
        }
        if has(Standard::FilesystemWrite) {
            policy.write.extend(place.unprotected(&rules.write));
        }
        if programs {
            policy
                .execute
                .extend(SYSTEM_PATHS.iter().map(PathBuf::from));
        }
        if programs && known {
            policy.execute.extend(place.unprotected(&place.path_dirs));
            policy.execute.extend(place.installation_dirs());
        }
        policy
    }

    /// Which restrictions apply on this machine and which do not, in words.
    #[must_use]
    pub fn report(
        &self,
        granted: &BTreeSet<Standard>,
        rules: &SandboxConfig,
        place: &ProgramPaths,
    ) -> Sandbox {
        let mut report = Sandbox::default();
        self.report_files(&mut report, place);
        self.report_network(&mut report);
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
            .extend(describe_exceptions(granted, rules, place));
        report
    }

    fn report_files(&self, report: &mut Sandbox, place: &ProgramPaths) {
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
            self.report_opened(report, place);
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

    fn report_opened(&self, report: &mut Sandbox, place: &ProgramPaths) {
        let given = |all: &[PathBuf], usual: &[&str]| {
            let own = all
                .iter()
                .filter(|path| !usual.iter().any(|u| Path::new(u) == *path));
            own.map(|path| path.display().to_string())
                .collect::<BTreeSet<_>>()
        };
        let mut read = given(
            &self.read,
            &[SYSTEM_PATHS, READABLE_FILES, KERNEL_FILES].concat(),
        );
        read.extend(
            place
                .interpreters
                .iter()
                .chain([&place.program])
                .map(|p| p.display().to_string()),
        );
        let list = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join(", ");
        report
            .enforced
            .push(format!("files: reads the system's and {}", list(read)));
        let written = given(&self.write, &[DEVICES, &[SHARED_MEMORY]].concat());
        report
            .enforced
            .push(format!("files: writes {}", list(written)));
    }

    fn report_network(&self, report: &mut Sandbox) {
        let SandboxSupport {
            landlock,
            seccomp,
            namespaces,
            ..
        } = self.machine;
        let words = match (self.outbound, self.listen) {
            (false, false) => "network: none, no sockets of other programs either",
            (true, false) => "network: connects, does not listen",
            (false, true) => "network: listens for TCP, does not connect",
            (true, true) => "network: connects and listens; no sockets of other programs",
        };
        match (seccomp, landlock >= LANDLOCK_TCP_VERSION) {
            (true, _) => report.enforced.push(words.into()),
            (false, true) => {
                report.enforced.push(format!("{words} (TCP only)"));
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
            let words = format!("user: {user}, which is no other server's, instead of root");
            report.enforced.push(words);
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
    /// True if opening a path would open the kernel's files or a whole home.
    #[must_use]
    pub fn is_protected(&self, path: &Path) -> bool {
        let above = self.kernel_paths.iter().chain(&self.home);
        let mut above = above.filter(|guarded| guarded.starts_with(path));
        above.next().is_some()
            || self
                .kernel_paths
                .iter()
                .any(|guarded| path.starts_with(guarded))
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
        let around = programs.filter_map(|program| {
            let bin = program.parent().filter(|folder| folder.ends_with("bin"))?;
            let whole = bin.parent()?;
            // ~/.local holds data beside programs.
            let shared = whole.ends_with(".local") || self.is_protected(whole);
            (!shared).then(|| whole.to_owned())
        });
        around.collect()
    }

    /// Its working folder, or, if that folder is shared, only the files its arguments name.
    fn working_files(&self) -> impl Iterator<Item = PathBuf> {
        self.unprotected(&self.argument_files)
            .chain(self.unprotected(std::slice::from_ref(&self.cwd)))
    }
}

fn describe_exceptions(
    granted: &BTreeSet<Standard>,
    rules: &SandboxConfig,
    place: &ProgramPaths,
) -> Vec<String> {
    let mut notes = Vec::new();
    let shut = |path: &PathBuf| place.is_protected(path);
    if rules.is_operator_written && shut(&place.cwd) {
        notes.push(format!(
            "its working folder {} is not opened, for the kernel's own files or a home are there: give \
             it a `cwd` of its own",
            place.cwd.display()
        ));
    }
    for path in rules
        .read
        .iter()
        .chain(&rules.write)
        .filter(|path| shut(path))
    {
        let path = path.display();
        notes.push(format!(
            "{path} is not opened, for the kernel's own files or a home are there"
        ));
    }
    let listed = [
        (Standard::FilesystemRead, rules.read.is_empty(), "read"),
        (Standard::FilesystemWrite, rules.write.is_empty(), "write"),
    ];
    // All registered servers share one section.
    let section = if rules.is_operator_written {
        "[servers.sandbox]"
    } else {
        "[discovery.registered]"
    };
    for (permission, none, key) in listed {
        match (granted.contains(&permission), none) {
            (true, true) => notes.push(format!(
                "{} opens nothing yet: list paths under `{key}` in {section}",
                permission.as_str()
            )),
            (false, false) if rules.is_operator_written => notes.push(format!(
                "`{key}` in {section} opens nothing without the permission {}",
                permission.as_str()
            )),
            (false, false) => {}
            (true, false) | (false, true) => {}
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
