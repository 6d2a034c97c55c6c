//! Who is at the other end of a Unix socket.

use std::io;
use std::os::fd::AsFd;

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
