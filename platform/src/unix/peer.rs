//! The other end of a socket: who it is, and whether it is there.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

pub use crate::Peer;

/// The peer's credentials when it connected (`getpeereid`); not its process.
///
/// # Errors
/// They cannot be read.
pub fn credentials(stream: &impl AsFd) -> io::Result<Peer> {
    let (uid, gid) = user_and_group(stream)?;
    Ok(Peer {
        uid,
        gid,
        pid: None,
    })
}

#[cfg(not(target_os = "linux"))]
fn user_and_group(stream: &impl AsFd) -> io::Result<(u32, u32)> {
    let (uid, gid) = nix::unistd::getpeereid(stream)?;
    Ok((uid.as_raw(), gid.as_raw()))
}

/// Linux, with the feature `portable`, has no `getpeereid`.
#[cfg(target_os = "linux")]
fn user_and_group(stream: &impl AsFd) -> io::Result<(u32, u32)> {
    let peer = nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerCredentials)?;
    Ok((peer.uid(), peer.gid()))
}

/// The system's own time counts.
///
/// # Errors
/// Never.
pub fn limit_silence(_stream: &impl AsFd, _most: Duration) -> io::Result<()> {
    Ok(())
}
