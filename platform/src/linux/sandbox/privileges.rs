//! Drops privileges in the steps of the launcher.

use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

fn describe_error(error: caps::errors::CapsError) -> String {
    format!("capabilities: {error}")
}

/// Switches to this user, if one is given, without root's rights and without a way to regain them.
pub(super) fn drop_privileges(user: Option<u32>) -> Result<(), String> {
    nix::sys::prctl::set_no_new_privs().map_err(|e| format!("no new privileges: {e}"))?;
    let may = caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP);
    if may.map_err(describe_error)? {
        caps::clear(None, CapSet::Bounding).map_err(describe_error)?;
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
        // Continues after an error: all sets must be cleared.
        caps::clear(None, set).map_err(describe_error)?;
    }
    Ok(())
}

/// Lets child processes inherit the capabilities within a user namespace; otherwise only root's would.
pub(super) fn inherit_capabilities() -> Result<(), String> {
    let own = caps::read(None, CapSet::Permitted).map_err(describe_error)?;
    caps::set(None, CapSet::Inheritable, &own).map_err(describe_error)?;
    caps::set(None, CapSet::Ambient, &own).map_err(describe_error)
}

/// Keeps only the capability to signal processes of other users; other processes cannot inspect this one.
pub(super) fn retain_kill_capability() -> Result<(), String> {
    let has = caps::read(None, CapSet::Permitted).map_err(describe_error)?;
    let allowed = CapsHashSet::from_iter([Capability::CAP_KILL]);
    caps::clear(None, CapSet::Ambient).map_err(describe_error)?;
    caps::clear(None, CapSet::Inheritable).map_err(describe_error)?;
    let retained: CapsHashSet = has.intersection(&allowed).copied().collect();
    caps::set(None, CapSet::Effective, &retained).map_err(describe_error)?;
    caps::set(None, CapSet::Permitted, &retained).map_err(describe_error)?;
    nix::sys::prctl::set_dumpable(false).map_err(|e| e.to_string())
}
