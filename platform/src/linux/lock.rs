//! Locks on folders.

use std::fs::File;
use std::io;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// Locks a folder until all copies of this description are closed. A folder cannot be opened for writing, so the lock is
/// a shared one, which others see.
///
/// # Errors
/// Some network file systems do not support it.
pub fn lock_folder(folder: &File) -> io::Result<()> {
    fcntl(folder, FcntlArg::F_OFD_SETLK(&flock_request(libc::F_RDLCK)))?;
    Ok(())
}

/// Whether another open file description holds the folder.
#[must_use]
pub fn is_folder_locked(folder: &File) -> bool {
    let mut request = flock_request(libc::F_WRLCK);
    let answered = fcntl(folder, FcntlArg::F_OFD_GETLK(&mut request));
    answered.is_ok() && i32::from(request.l_type) != libc::F_UNLCK
}

fn flock_request(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind.try_into().expect("a small number"),
        l_whence: libc::SEEK_SET.try_into().expect("a small number"),
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    }
}
