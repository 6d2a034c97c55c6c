//! The process that becomes the server: applies the last restrictions, inside its namespaces if there are any,
//! and executes the program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{AccessFlags, access, setsid};
use rustix::process::Resource;

use super::{mount_view, nofollow, privileges, seccomp};
use crate::launch::{Policy, server_environment};

/// The maximum of message queues in the IPC namespace; each may hold 16 KiB.
const MESSAGE_QUEUES_MAX: &str = "16";
/// Limits of semaphores per set, in total, of operations at once, and of sets: some hundred bytes of kernel
/// memory each.
const SEMAPHORE_LIMITS: &str = "250 1024 32 32";
/// Bytes per page; System V shared memory is counted in pages.
const PAGE: u64 = 4096;
/// The processes in the server's user namespace that belong to the launcher: leader and init.
const LAUNCHER_PROCESSES: u64 = 2;

/// Executes the server and returns only on failure, with the reason. Without a program nothing is executed, and
/// the process exits with success.
pub(super) fn become_server(
    policy: &Policy,
    program: &OsStr,
    name: &OsStr,
    args: &[OsString],
) -> String {
    if let Err(why) = confine(policy) {
        return why;
    }
    if program.is_empty() {
        std::process::exit(0);
    }
    if let Err(why) = check_reachable(policy, Path::new(program)) {
        return why;
    }
    let mut server = Command::new(program);
    server
        .arg0(name)
        .args(args)
        .env_clear()
        .envs(server_environment());
    format!("{}: {}", PathBuf::from(program).display(), server.exec())
}

/// Applies all restrictions or fails, because they were already reported as applied.
fn confine(policy: &Policy) -> Result<(), String> {
    let describe_error = |e: nix::Error| e.to_string();
    SigSet::all().thread_unblock().map_err(describe_error)?;
    // Its own session prevents its processes from joining other process groups.
    setsid().map_err(describe_error)?;
    let processes = process_limit(policy);
    let namespaces = policy.machine.namespaces;
    let mut own_ipc = false;
    if namespaces {
        let cwd = env::current_dir().map_err(|e| format!("the working folder: {e}"))?;
        mount_view::finish(&cwd)?;
        own_ipc = limit_ipc(policy).is_ok();
    }
    set_limits(policy, processes)?;
    privileges::drop_privileges(policy.user)?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(describe_error)?;
    restrict_files(policy)?;
    if policy.machine.seccomp {
        let open = seccomp::AllowedCalls {
            programs: policy.programs,
            outbound: policy.outbound,
            listen: policy.listen,
            // In a mount namespace only its own files are reachable.
            modes: namespaces,
            other_processes: namespaces,
            ipc: own_ipc,
        };
        seccomp::confine(open)?;
    }
    Ok(())
}

/// Limits shared memory, semaphores and messages, which no other limits cover.
fn limit_ipc(policy: &Policy) -> std::io::Result<()> {
    let pages = (policy.limits.memory / PAGE).to_string();
    fs::write("/proc/sys/kernel/shmall", pages)?;
    fs::write("/proc/sys/kernel/sem", SEMAPHORE_LIMITS)?;
    fs::write("/proc/sys/kernel/msgmni", MESSAGE_QUEUES_MAX)
}

fn set_limits(policy: &Policy, processes: u64) -> Result<(), String> {
    let limits = &policy.limits;
    let all = [
        (Resource::Core, 0),
        (Resource::Data, limits.memory),
        (Resource::Nofile, limits.open_files),
        (Resource::Fsize, limits.file_size),
        (Resource::Nproc, processes),
    ];
    crate::launch::set_limits(&all)
}

/// The limit of processes and threads. The system counts all processes of the user; in a user namespace only
/// those inside, since Linux 5.14.
fn process_limit(policy: &Policy) -> u64 {
    let namespaces = policy.machine.namespaces;
    let used = if namespaces && policy.user.is_none() && is_counted_per_namespace() {
        LAUNCHER_PROCESSES + 1
    } else {
        let table = if namespaces {
            mount_view::outside_processes()
        } else {
            "/proc".into()
        };
        count_processes(
            &table,
            policy.user.unwrap_or(nix::unistd::getuid().as_raw()),
        )
    };
    used.saturating_add(policy.limits.processes)
}

fn is_counted_per_namespace() -> bool {
    let release = nix::sys::utsname::uname();
    let release = release.map(|uname| uname.release().to_string_lossy().into_owned());
    let release = release.unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    (number(), number()) >= (Some(5), Some(14))
}

fn count_processes(table: &Path, user: u32) -> u64 {
    let processes = fs::read_dir(table).into_iter().flatten().flatten();
    let own = processes.filter(|entry| entry.metadata().is_ok_and(|m| m.uid() == user));
    let threads =
        own.map(|entry| fs::read_dir(entry.path().join("task")).map_or(0, Iterator::count));
    threads.map(|count| count as u64).sum()
}

/// Checks that a user other than root can start the program.
fn check_reachable(policy: &Policy, program: &Path) -> Result<(), String> {
    let Some(user) = policy.user else {
        return Ok(());
    };
    match access(program, AccessFlags::X_OK) {
        Ok(()) => Ok(()),
        Err(why) => Err(format!(
            "it is not run as root but as the user {user}, who may not run {} ({why}): make the file and \
             the folders above it open to others (`chmod o+rx`), or move it, for example to /usr/local/bin",
            program.display()
        )),
    }
}

/// Restricts files, TCP and signals as far as the machine was found to support it; less is an error.
fn restrict_files(policy: &Policy) -> Result<(), String> {
    if policy.machine.landlock == 0 {
        return Ok(());
    }
    let failed = |e: landlock::RulesetError| format!("Landlock: {e}");
    let abi = ABI::from(i32::try_from(policy.machine.landlock).unwrap_or(i32::MAX));
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = (AccessFs::from_write(abi) & !special_file_rights()) | read;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))
        .map_err(failed)?;
    let mut net = AccessNet::from_all(abi);
    if policy.outbound {
        net.remove(AccessNet::ConnectTcp);
    }
    if policy.listen {
        net.remove(AccessNet::BindTcp);
    }
    if !net.is_empty() {
        ruleset = ruleset.handle_access(net).map_err(failed)?;
    }
    let scopes = Scope::from_all(abi);
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes).map_err(failed)?;
    }
    let enforced = ruleset
        .create()
        .and_then(|rules| rules.add_rules(path_rules(&policy.read, read, abi)))
        .and_then(|rules| {
            rules.add_rules(path_rules(&policy.execute, read | AccessFs::Execute, abi))
        })
        .and_then(|rules| rules.add_rules(path_rules(&policy.write, write, abi)))
        .and_then(RulesetCreated::restrict_self)
        .map_err(failed)?;
    match enforced.ruleset {
        RulesetStatus::FullyEnforced if enforced.no_new_privs => Ok(()),
        RulesetStatus::FullyEnforced
        | RulesetStatus::PartiallyEnforced
        | RulesetStatus::NotEnforced => {
            Err("Landlock enforces fewer restrictions than when this machine was probed".into())
        }
    }
}

/// A rule for each existing path; files have fewer rights than folders.
fn path_rules(
    paths: &[PathBuf],
    access: BitFlags<AccessFs>,
    abi: ABI,
) -> impl Iterator<Item = Result<PathBeneath<OwnedFd>, RulesetError>> {
    paths.iter().filter_map(move |path| {
        let opened = if path.starts_with("/proc") {
            nofollow::open_proc(path)?
        } else {
            nofollow::open(path)?
        };
        let access = if nofollow::is_folder(&opened) {
            access
        } else {
            access & AccessFs::from_file(abi)
        };
        Some(Ok(PathBeneath::new(opened, access)))
    })
}

/// The rights to create anything but regular files in a folder.
fn special_file_rights() -> BitFlags<AccessFs> {
    AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::IoctlDev
}
