//! Rights that the steps of a launcher give up.

use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

fn failed(error: caps::errors::CapsError) -> String {
    format!("capabilities: {error}")
}

/// Becomes this user, where one is named, with none of root's rights and none to be had.
pub(super) fn give_up(user: Option<u32>) -> Result<(), String> {
    nix::sys::prctl::set_no_new_privs().map_err(|e| format!("no new privileges: {e}"))?;
    let may = caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP);
    if may.map_err(failed)? {
        caps::clear(None, CapSet::Bounding).map_err(failed)?;
    }
    if let Some(user) = user {
        let why = |e| format!("it cannot become the user {user} instead of root: {e}");
        let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
        setgroups(&[]).map_err(why)?;
        setresgid(gid, gid, gid).map_err(why)?;
        setresuid(uid, uid, uid).map_err(why)?;
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

/// Passes the rights within a user namespace on to the processes that this one starts: only root's
/// would be by themselves.
pub(super) fn pass_on() -> Result<(), String> {
    let own = caps::read(None, CapSet::Permitted).map_err(failed)?;
    caps::set(None, CapSet::Inheritable, &own).map_err(failed)?;
    caps::set(None, CapSet::Ambient, &own).map_err(failed)
}

/// Keeps of all rights only that to end processes of other users, which root has; nobody looks into
/// this process.
pub(super) fn keep_only_signals() -> Result<(), String> {
    let has = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let wanted = CapsHashSet::from_iter([Capability::CAP_KILL]);
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    let kept: CapsHashSet = has.intersection(&wanted).copied().collect();
    caps::set(None, CapSet::Effective, &kept).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(failed)?;
    nix::sys::prctl::set_dumpable(false).map_err(|e| e.to_string())
}
