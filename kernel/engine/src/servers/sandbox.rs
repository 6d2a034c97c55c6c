//! The walls around a server that is trusted least: from what it was permitted, what its entry says
//! and what this machine can do, to a [`SandboxPolicy`] for its process and a report for the operator.
//!
//! What is not opened here is closed. Paths arrive without symbolic links; nothing is looked up.

mod paths;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mgp_protocol::mgp::permission::{PermissionType, Standard};
use mgp_protocol::mgp::servers::Sandbox;
use serde::{Deserialize, Serialize};

use paths::{DEVICES, KERNEL_FILES, LOADERS, READABLE, SHARED_MEMORY, SYSTEM};

/// The first Landlock version that bounds truncation, and with it every way to change a file.
const WHOLE_FILES: u32 = 3;
/// The first that bounds TCP.
const TCP: u32 = 4;
/// The first that bounds signals and abstract Unix sockets.
const SCOPES: u32 = 6;

/// What the operator says of a server's sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxRules {
    /// Opened for reading by `filesystem.read`.
    pub read: Vec<PathBuf>,
    /// Opened for writing by `filesystem.write`.
    pub write: Vec<PathBuf>,
    /// Bounds on its processes.
    pub limits: SandboxLimits,
    /// It is not started where this machine cannot hold it to all of its policy.
    pub required: bool,
    /// A person wrote the entry: its working folder and the files its arguments name are its own. An
    /// entry that came from anybody else could name somebody's keys.
    pub vouched: bool,
    /// The operator named its program, or it is the one of that name in the kernel's `PATH`: what it
    /// was installed with is its own.
    pub chosen: bool,
    /// Its program, where that came with its registration.
    pub program: Option<SandboxProgram>,
    /// What it is run from, where a person looked at that: it is started from nothing else.
    pub pinned: Vec<PinnedProgram>,
}

/// A file as a person looked at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedProgram {
    /// Where it was found.
    pub path: PathBuf,
    /// BLAKE3 of what is in it, as hexadecimal digits; or why it could not be read.
    pub hash: String,
}

/// A program that came with its registration. It is written anew before each start, so that what runs
/// is what was judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxProgram {
    /// The name of its file in a folder that the server may read.
    pub file: String,
    /// All of it.
    pub text: String,
    /// Which of the arguments its path becomes.
    pub at: usize,
}

impl SandboxProgram {
    /// What its interpreter is told before it, so that it loads nothing the server has written or was
    /// given a variable for: modules come from where the interpreter was installed.
    #[must_use]
    pub fn isolation(&self, env: &BTreeMap<String, String>) -> &'static [&'static str] {
        let python = Path::new(&self.file).extension() == Some("py".as_ref());
        // The one harmless variable without which a server that does not flush is never heard.
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
    /// Private memory of one process, in bytes. What is shared between processes is not in it.
    pub memory: u64,
    /// Processes and threads beyond those its user has when it starts.
    pub processes: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// Size of a file it writes, in bytes.
    pub file_size: u64,
}

impl Default for SandboxLimits {
    /// A JavaScript server with a large heap fits twice; a runtime has a dozen threads, a build tool
    /// some dozens of processes; half of a user's usual files; a model's weights do not fit.
    fn default() -> Self {
        Self {
            memory: 2 << 30,
            processes: 256,
            open_files: 4096,
            file_size: 1 << 30,
        }
    }
}

/// What this machine can hold a process to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Version of Landlock, 0 without.
    pub landlock: u32,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
    /// Whether the kernel runs as root. Its sandboxed servers do not.
    pub root: bool,
    /// Whether a server can be given files, processes and messages of its own: mount, process and IPC
    /// namespaces, in a user namespace where the kernel is not root's.
    pub namespaces: bool,
}

/// Where the server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramPaths {
    /// Its program.
    pub program: PathBuf,
    /// What the program is run by when it is a script, and what that looks up.
    pub interpreters: Vec<PathBuf>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// Files that its arguments name.
    pub named: Vec<PathBuf>,
    /// The folders of its `PATH`.
    pub programs: Vec<PathBuf>,
    /// Its program was found by its name, and `PATH` is the kernel's: the entry names neither.
    pub usual: bool,
    /// The one folder that is its own: home and temporary files.
    pub own: PathBuf,
    /// The folder of the program that came with its registration: it reads that, and never writes it.
    pub code: Option<PathBuf>,
    /// The kernel's configuration, data and socket: never opened, but for `own` and `code`.
    pub kernels: Vec<PathBuf>,
    /// The home of the kernel's user: never opened as a whole.
    pub home: Option<PathBuf>,
}

/// What a server's process is held to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPolicy {
    /// May be read.
    pub read: Vec<PathBuf>,
    /// May be read and run.
    pub execute: Vec<PathBuf>,
    /// Files and folders that may be read and changed.
    pub write: Vec<PathBuf>,
    /// It may connect.
    pub outbound: bool,
    /// It may listen.
    pub listen: bool,
    /// It may start programs.
    pub programs: bool,
    /// Bounds.
    pub limits: SandboxLimits,
    /// What the machine is believed to do. A process that finds less is not started.
    pub machine: Machine,
    /// Links that were followed on the way to all of these, which hold none.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// The user it becomes, where it is started by root; its group has the same number.
    pub user: Option<u32>,
}

/// Whether every server reads this path, for it is the system's.
#[must_use]
pub fn is_systems(path: &Path) -> bool {
    SYSTEM.iter().any(|folder| path.starts_with(folder))
}

/// Permissions that make a difference to the sandbox.
#[must_use]
pub fn widening(granted: &BTreeSet<PermissionType>) -> BTreeSet<Standard> {
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
    /// What a server with these permissions is held to.
    #[must_use]
    pub fn of(
        granted: &BTreeSet<Standard>,
        rules: &SandboxRules,
        place: &ProgramPaths,
        machine: Machine,
    ) -> Self {
        let has = |permission| granted.contains(&permission);
        let programs = has(Standard::ShellExecute) || has(Standard::CodeExecution);
        let mut policy = Self {
            read: [SYSTEM, READABLE, KERNEL_FILES]
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
        policy.write.push(place.own.clone());
        policy.read.extend(place.code.clone());
        // Else any folder could be opened by calling it a program's.
        let known = rules.vouched || rules.chosen || place.usual;
        if known {
            policy.read.extend(place.installation());
        }
        if rules.vouched {
            policy.read.extend(place.its_own_files());
        }
        if has(Standard::FilesystemRead) {
            policy.read.extend(place.open(&rules.read));
        }
        if has(Standard::FilesystemWrite) {
            policy.write.extend(place.open(&rules.write));
        }
        if programs {
            policy.execute.extend(SYSTEM.iter().map(PathBuf::from));
        }
        if programs && known {
            policy.execute.extend(place.open(&place.programs));
            policy.execute.extend(place.installation());
        }
        policy
    }

    /// What of it holds here, and what does not, in words.
    #[must_use]
    pub fn report(
        &self,
        granted: &BTreeSet<Standard>,
        rules: &SandboxRules,
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
            size(memory), size(file_size)
        ));
        report.notes.extend(notes(granted, rules, place));
        report
    }

    fn report_files(&self, report: &mut Sandbox, place: &ProgramPaths) {
        let Machine {
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
        if (1..WHOLE_FILES).contains(&landlock) && !namespaces {
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
        let mut read = given(&self.read, &[SYSTEM, READABLE, KERNEL_FILES].concat());
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
        let Machine {
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
        match (seccomp, landlock >= TCP) {
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
        if landlock < SCOPES && !namespaces {
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
        let Machine {
            seccomp,
            namespaces,
            ..
        } = self.machine;
        match (seccomp, self.programs) {
            (true, false) => report.enforced.push("processes: starts none".into()),
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
    /// Whether opening a path would open what is the kernel's, or a whole home.
    #[must_use]
    pub fn shuts(&self, path: &Path) -> bool {
        let above = self.kernels.iter().chain(&self.home);
        let mut above = above.filter(|guarded| guarded.starts_with(path));
        above.next().is_some() || self.kernels.iter().any(|guarded| path.starts_with(guarded))
    }

    fn open<'p>(&'p self, paths: &'p [PathBuf]) -> impl Iterator<Item = PathBuf> + 'p {
        paths.iter().filter(|path| !self.shuts(path)).cloned()
    }

    /// What a program in a `bin` of its own was installed with.
    fn installation(&self) -> BTreeSet<PathBuf> {
        let programs = self.interpreters.iter().chain([&self.program]);
        let around = programs.filter_map(|program| {
            let bin = program.parent().filter(|folder| folder.ends_with("bin"))?;
            let whole = bin.parent()?;
            // ~/.local holds everybody's data beside everybody's programs.
            let shared = whole.ends_with(".local") || self.shuts(whole);
            (!shared).then(|| whole.to_owned())
        });
        around.collect()
    }

    /// Its working folder, or only what its arguments name where that folder is not its alone.
    fn its_own_files(&self) -> impl Iterator<Item = PathBuf> {
        self.open(&self.named)
            .chain(self.open(std::slice::from_ref(&self.cwd)))
    }
}

fn notes(granted: &BTreeSet<Standard>, rules: &SandboxRules, place: &ProgramPaths) -> Vec<String> {
    let mut notes = Vec::new();
    let shut = |path: &PathBuf| place.shuts(path);
    if rules.vouched && shut(&place.cwd) {
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
    // What agents registered shares one section.
    let section = match rules.vouched {
        true => "[servers.sandbox]",
        false => "[discovery.registered]",
    };
    for (permission, none, key) in listed {
        match (granted.contains(&permission), none) {
            (true, true) => notes.push(format!(
                "{} opens nothing yet: list paths under `{key}` in {section}",
                permission.as_str()
            )),
            (false, false) if rules.vouched => notes.push(format!(
                "`{key}` in {section} opens nothing without the permission {}",
                permission.as_str()
            )),
            (false, false) => {}
            (true, false) | (false, true) => {}
        }
    }
    notes
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 && b % (1 << 30) == 0 => format!("{} GiB", b >> 30),
        b => format!("{} MiB", b >> 20),
    }
}
