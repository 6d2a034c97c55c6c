//! The other end of a socket: who it is, and whether it is there.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

pub use crate::Peer;

/// The peer's credentials when it connected (`SO_PEERCRED`).
///
/// # Errors
/// The socket option cannot be read.
pub fn credentials(stream: &impl AsFd) -> io::Result<Peer> {
    let peer = getsockopt(stream, PeerCredentials)?;
    Ok(Peer {
        uid: peer.uid(),
        gid: peer.gid(),
        // 0 for a process of another namespace.
        pid: Some(peer.pid()).filter(|pid| *pid > 0),
    })
}

/// Closes a TCP connection whose peer acknowledges nothing for so long.
///
/// # Errors
/// The socket option cannot be set.
pub fn limit_silence(stream: &impl AsFd, most: Duration) -> io::Result<()> {
    let millis = u32::try_from(most.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, millis)?)
}
