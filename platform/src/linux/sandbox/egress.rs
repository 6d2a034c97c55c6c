//! The listener of the proxy of a server whose destinations are limited. The launcher makes it in the server's network
//! namespace, and sends it to the kernel through a socket that it opened before (unix(7), `SCM_RIGHTS`).

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

use crate::descriptors;
use crate::launch::PROXY_PORT;

/// In the kernel: the socket for the launcher, in a folder of any path.
///
/// # Errors
/// It cannot be opened there.
pub fn bind_socket(folder: &File, name: &str) -> io::Result<UnixListener> {
    UnixListener::bind(short_path(folder, name))
}

/// A path of at most 108 bytes (unix(7)), whatever the folder's. The folder must stay open while it is used.
fn short_path(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

/// The listener that the launcher sends.
///
/// # Errors
/// It sent something else.
pub fn receive_listener(stream: impl AsFd) -> io::Result<OwnedFd> {
    let received = descriptors::receive(stream)?.1.pop();
    received.ok_or_else(|| io::Error::other("the launcher sent no listener"))
}

/// In the launcher, before it enters the namespaces: the connection to the kernel.
pub(super) fn connect(socket: &Path) -> Result<UnixStream, String> {
    let name = socket.file_name().unwrap_or_default().to_string_lossy();
    let folder = File::open(socket.parent().unwrap_or(Path::new("/")));
    let connected = folder.and_then(|folder| UnixStream::connect(short_path(&folder, &name)));
    connected.map_err(|e| format!("the kernel's socket for its proxy: {e}"))
}

/// In the launcher, inside the network namespace: makes the listener and sends it to the kernel.
pub(super) fn send_listener(kernel: &UnixStream) -> Result<(), String> {
    raise_loopback().map_err(|e| format!("the loopback interface of its network: {e}"))?;
    let failed = |e: io::Error| format!("the proxy of its network: {e}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT)).map_err(failed)?;
    descriptors::send(kernel, &[0], &[listener.as_fd()]).map_err(failed)
}

/// `RTM_NEWLINK` with `IFF_UP` for the first interface (rtnetlink(7)): in a new namespace it is down.
fn raise_loopback() -> Result<(), Errno> {
    const MESSAGE_BYTES: u32 = 32;
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST_ACK: u16 = 1 | 4;
    const NLMSG_ERROR: u16 = 2;
    const LOOPBACK_INDEX: i32 = 1;
    const IFF_UP: u32 = 1;
    let mut message = Vec::new();
    message.extend(MESSAGE_BYTES.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    // Sequence number and sender.
    message.extend([0; 8]);
    // Family and type of the interface: any.
    message.extend([0; 4]);
    message.extend(LOOPBACK_INDEX.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    let route = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let kernel = NetlinkAddr::new(0, 0);
    sendto(route.as_raw_fd(), &message, &kernel, MsgFlags::empty())?;
    let mut answer = [0; 256];
    let length = recv(route.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let answer = &answer[..length];
    let kind = answer.get(4..6).and_then(|it| it.try_into().ok());
    let error = answer.get(16..20).and_then(|it| it.try_into().ok());
    match (kind.map(u16::from_ne_bytes), error.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(Errno::from_raw(-error)),
        _ => Err(Errno::EPROTO),
    }
}
