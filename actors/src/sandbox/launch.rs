//! The launcher: a process that gives up what its policy does not leave it, and then becomes the
//! server. Plain code without a runtime: what one thread gives up, its other threads would keep.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use mgp_engine::sandbox::{Limits, Policy};
use mgp_transports::child::{FOR_SERVER, MARK_VARIABLE};
use nix::sys::resource::{Resource, setrlimit};

use super::{POLICY, calls};

/// Restricts this process and becomes `command`: the program's path, its name, its arguments. Comes
/// back only when that failed; in words, why.
#[must_use]
pub fn launch(command: &[OsString]) -> String {
    let [program, name, args @ ..] = command else {
        return "it wants a program, its name and its arguments".into();
    };
    let policy = env::var(POLICY).map_err(|_| "it has no policy".to_owned());
    let policy = policy.and_then(|text| {
        serde_json::from_str(&text).map_err(|e| format!("its policy cannot be read: {e}"))
    });
    if let Err(why) = policy.and_then(|policy| confine(&policy)) {
        return format!("the sandbox cannot be closed, so the server is not started: {why}");
    }
    let mut server = Command::new(program);
    server.arg0(name).args(args).env_clear().envs(environment());
    format!("{}: {}", PathBuf::from(program).display(), server.exec())
}

/// The server's variables, under their own names.
fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os().filter_map(|(name, value)| {
        let own = name.as_bytes().strip_prefix(FOR_SERVER.as_bytes());
        let kept = own.or_else(|| (name == MARK_VARIABLE).then_some(name.as_bytes()))?;
        Some((std::ffi::OsStr::from_bytes(kept).to_owned(), value))
    })
}

/// All of it, or an error: what was reported to hold does hold.
fn confine(policy: &Policy) -> Result<(), String> {
    nix::sys::prctl::set_no_new_privs().map_err(|e| format!("no new privileges: {e}"))?;
    give_up_capabilities()?;
    bound(&policy.limits)?;
    shut_files(policy)?;
    if policy.machine.seccomp {
        calls::confine(policy.programs, policy.outbound, policy.listen)?;
    }
    Ok(())
}

/// Root's rights, which a process of another user does not have.
fn give_up_capabilities() -> Result<(), String> {
    use caps::CapSet;
    let failed = |e: caps::errors::CapsError| format!("capabilities: {e}");
    let may = caps::has_cap(None, CapSet::Effective, caps::Capability::CAP_SETPCAP);
    if may.map_err(failed)? {
        caps::clear(None, CapSet::Bounding).map_err(failed)?;
    }
    for set in [
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ] {
        // Each is cleared though the one before took what it takes to grow.
        caps::clear(None, set).map_err(failed)?;
    }
    Ok(())
}

fn bound(limits: &Limits) -> Result<(), String> {
    let processes = in_use().saturating_add(limits.processes);
    let all = [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_DATA, limits.memory),
        (Resource::RLIMIT_NOFILE, limits.open_files),
        (Resource::RLIMIT_FSIZE, limits.file_size),
        (Resource::RLIMIT_NPROC, processes),
    ];
    for (resource, most) in all {
        // A limit that is lower already stays.
        let hard = nix::sys::resource::getrlimit(resource).map_or(most, |(_, hard)| hard);
        let most = most.min(hard);
        setrlimit(resource, most, most).map_err(|e| format!("{resource:?}: {e}"))?;
    }
    Ok(())
}

/// Processes and threads of this user: the system counts all of them, whoever started them.
fn in_use() -> u64 {
    let user = nix::unistd::getuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = processes.filter(|entry| entry.metadata().is_ok_and(|m| m.uid() == user));
    let threads =
        own.map(|entry| fs::read_dir(entry.path().join("task")).map_or(0, Iterator::count));
    threads.map(|count| count as u64).sum()
}

/// Files, TCP and signals, as far as the machine was found to do it; less is an error.
fn shut_files(policy: &Policy) -> Result<(), String> {
    if policy.machine.landlock == 0 {
        return Ok(());
    }
    let failed = |e: landlock::RulesetError| format!("Landlock: {e}");
    let abi = ABI::from(i32::try_from(policy.machine.landlock).unwrap_or(i32::MAX));
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = (AccessFs::from_write(abi) & !special()) | read;
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
    let held = ruleset
        .create()
        .and_then(|rules| rules.add_rules(path_beneath_rules(&policy.read, read)))
        .and_then(|rules| {
            rules.add_rules(path_beneath_rules(
                &policy.execute,
                read | AccessFs::Execute,
            ))
        })
        .and_then(|rules| rules.add_rules(path_beneath_rules(&policy.write, write)))
        .and_then(RulesetCreated::restrict_self)
        .map_err(failed)?;
    match held.ruleset {
        RulesetStatus::FullyEnforced if held.no_new_privs => Ok(()),
        RulesetStatus::FullyEnforced
        | RulesetStatus::PartiallyEnforced
        | RulesetStatus::NotEnforced => {
            Err("Landlock holds less than it did when it was tried".into())
        }
    }
}

/// What a folder is written with that is no file.
fn special() -> BitFlags<AccessFs> {
    AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::IoctlDev
}
