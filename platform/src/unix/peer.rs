//! Who is at the other end of a Unix socket.

use std::io;
use std::os::fd::AsFd;

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
