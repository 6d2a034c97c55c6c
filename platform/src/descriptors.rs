//! Descriptors that one process sends to another over a Unix socket (`SCM_RIGHTS`, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Received descriptors are never inherited; other systems can only say so afterwards.
#[cfg(target_os = "linux")]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::empty();
/// Most descriptors in one message.
pub const DESCRIPTORS_MAX: usize = 16;
/// Longest message, in bytes. One that is longer is not sent, so that none arrives in parts.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Sends a message and descriptors with it.
///
/// # Errors
/// `InvalidInput` if it is empty or exceeds a bound; otherwise the system's.
pub fn send(socket: impl AsFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let fits = (1..=MESSAGE_BYTES_MAX).contains(&message.len());
    if !fits || descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    let sent = sendmsg(
        socket,
        &[IoSlice::new(message)],
        &mut control,
        SendFlags::empty(),
    )?;
    if sent == message.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Receives a message and its descriptors, which no further program inherits.
///
/// # Errors
/// The system's.
pub fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut message = vec![0; MESSAGE_BYTES_MAX];
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut message)],
        &mut control,
        RECEIVE_FLAGS,
    )?;
    message.truncate(received.bytes);
    let descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    let descriptors: Vec<OwnedFd> = descriptors.collect();
    for descriptor in &descriptors {
        fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
    }
    Ok((message, descriptors))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn descriptors_arrive_with_their_message() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"text").unwrap();
        file.rewind().unwrap();
        send(&ours, b"two", &[file.as_fd(), ours.as_fd()]).unwrap();
        drop((file, ours));
        let (message, mut descriptors) = receive(&theirs).unwrap();
        assert_eq!((message.as_slice(), descriptors.len()), (&b"two"[..], 2));
        let mut text = String::new();
        let mut file = std::fs::File::from(descriptors.swap_remove(0));
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
    }

    #[test]
    fn message_beyond_a_bound_is_not_sent() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let many = [ours.as_fd(); DESCRIPTORS_MAX + 1];
        for (message, descriptors) in [
            (vec![], &many[..1]),
            (vec![0; MESSAGE_BYTES_MAX + 1], &many[..1]),
            (vec![0], &many[..]),
        ] {
            let refused = send(&ours, &message, descriptors).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
