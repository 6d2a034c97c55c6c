//! The owner-only Unix socket: our own, and connections to other kernels' sockets.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use mgp_platform::files::{PinnedFile, SOCKET_PATH_MAX};
use mgp_platform::peer::{self, Peer};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::geteuid;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Longest path of a socket, in bytes.
pub(crate) const MAX_PATH: usize = SOCKET_PATH_MAX;

/// Connections that may wait to be accepted; the system applies its own bound.
const BACKLOG: i32 = 1024;

/// Permissions of a socket that only its user may connect to.
const OWN_MODE: u32 = 0o600;

/// Permissions of a socket that all users of the machine may connect to.
const SHARED_MODE: u32 = 0o666;

/// Permissions that let others change a folder's contents.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why the socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process accepts connections there.
    #[error("{} is in use: a kernel is already running", .0.display())]
    InUse(PathBuf),
    /// The path does not fit into an address.
    #[error("the socket's path {} has {} bytes, {MAX_PATH} are allowed", .0.display(), .0.as_os_str().len())]
    PathTooLong(PathBuf),
    /// Another kind of file is there; it is left unchanged.
    #[error("{} is there and is no socket", .0.display())]
    NotASocket(PathBuf),
    /// The folder belongs to another user, who could replace our socket.
    #[error("the folder {} belongs to user {owner}, not to this one", path.display())]
    ForeignFolder {
        /// The folder.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
    },
    /// Others may write to the folder.
    #[error("others may write to the folder {} (mode {mode:o}; `chmod 700` closes it)", path.display())]
    OpenFolder {
        /// The folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The system call failed.
    #[error("cannot open the socket {}: {why}", path.display())]
    System {
        /// The socket or its folder.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
}

/// The file of a bound socket, removed on drop unless another socket has replaced it, or its binder keeps it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Our file; `None` if it belongs to somebody else.
    handle: Option<PinnedFile>,
}

impl SocketFile {
    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if it is removed on drop.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.handle.is_some()
    }

    /// Leaves the file where it is, for the next listener.
    pub fn keep(&mut self) {
        self.handle = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self
            .handle
            .as_ref()
            .is_some_and(|ours| ours.is_at(&self.path))
        {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens a socket that only this user can reach: its folder is created with mode 0700 if it is missing, the socket has
/// 0600. With `everybody` it has 0666: whoever can enter its folder can connect, and has to be checked with
/// [`peer_credentials`]. A socket file without a listener is replaced. Needs a tokio runtime.
///
/// # Errors
/// [`BindError`]; nothing was changed, except that the folder may have been created.
pub fn bind(path: &Path, everybody: bool) -> Result<(UnixListener, SocketFile), BindError> {
    if path.as_os_str().len() > MAX_PATH {
        return Err(BindError::PathTooLong(path.to_owned()));
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = open_private_folder(folder.unwrap_or(Path::new(".")))?;
    // Two kernels that start at once must not each take the other's new socket for a stale one.
    let _lock = Flock::lock(folder, FlockArg::LockExclusive)
        .map_err(|(_, errno)| system_error(path)(errno.into()))?;
    remove_stale_socket(path)?;
    let bound = bind_listener(path).map_err(system_error(path))?;
    if everybody {
        // The folder is ours, so nobody else can have replaced the file.
        std::fs::set_permissions(path, Permissions::from_mode(SHARED_MODE))
            .map_err(system_error(path))?;
    }
    Ok(bound)
}

/// Adopts a socket that another process has bound and listens on. The system's service manager keeps its file, and
/// starts the next kernel on a connection; with `is_ours` the file is removed as after [`bind`]. Folder and permissions
/// must be as [`bind`] makes them. Needs a tokio runtime.
///
/// # Errors
/// [`BindError`].
pub fn adopt(
    listener: std::os::unix::net::UnixListener,
    path: &Path,
    everybody: bool,
    is_ours: bool,
) -> Result<(UnixListener, SocketFile), BindError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    open_private_folder(folder)?;
    if everybody {
        std::fs::set_permissions(path, Permissions::from_mode(SHARED_MODE))
            .map_err(system_error(path))?;
    }
    listener.set_nonblocking(true).map_err(system_error(path))?;
    let listener = UnixListener::from_std(listener).map_err(system_error(path))?;
    let handle = is_ours.then(|| PinnedFile::open(path)).transpose();
    let file = SocketFile {
        path: path.to_owned(),
        handle: handle.map_err(system_error(path))?,
    };
    Ok((listener, file))
}

fn system_error(path: &Path) -> impl FnOnce(io::Error) -> BindError + '_ {
    |why| BindError::System {
        path: path.to_owned(),
        why,
    }
}

fn open_private_folder(path: &Path) -> Result<File, BindError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(system_error(path))?;
    let folder = File::open(path).map_err(system_error(path))?;
    let metadata = folder.metadata().map_err(system_error(path))?;
    if metadata.uid() != geteuid().as_raw() {
        return Err(BindError::ForeignFolder {
            path: path.to_owned(),
            owner: metadata.uid(),
        });
    }
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(BindError::OpenFolder {
            path: path.to_owned(),
            mode: metadata.mode() & 0o7777,
        });
    }
    Ok(folder)
}

/// Removes a socket without a listener.
fn remove_stale_socket(path: &Path) -> Result<(), BindError> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system_error(path)(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match probe_socket(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(system_error(path))
        }
        // A full backlog proves a listener, too.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(system_error(path)(error)),
        Ok(()) | Err(_) => Err(BindError::InUse(path.to_owned())),
    }
}

fn probe_socket(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

fn bind_listener(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // Before the bind, so that the file never has any other permissions. Some systems only know the second way; the
    // folder is closed to others meanwhile.
    let _ = fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR);
    socket.bind(&SockAddr::unix(path)?)?;
    std::fs::set_permissions(path, Permissions::from_mode(OWN_MODE))?;
    let file = SocketFile {
        path: path.to_owned(),
        handle: Some(PinnedFile::open(path)?),
    };
    socket.listen(BACKLOG)?;
    Ok((UnixListener::from_std(socket.into())?, file))
}

/// The reading half of a connection, which takes nothing more once `drain` resolves: what the peer has written until then
/// is read, and its next write fails, so that it knows what was not.
#[derive(Debug)]
pub struct DrainingReader {
    half: OwnedReadHalf,
    drain: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl DrainingReader {
    /// Reads from this half.
    #[must_use]
    pub fn new(half: OwnedReadHalf, drain: &CancellationToken) -> Self {
        let drain = Some(Box::pin(drain.clone().cancelled_owned()));
        Self { half, drain }
    }
}

impl AsyncRead for DrainingReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let drain = self.drain.as_mut();
        if drain.is_some_and(|drain| drain.as_mut().poll(cx).is_ready()) {
            self.drain = None;
            // A peer that is gone needs no notice.
            let _ = SockRef::from(self.half.as_ref()).shutdown(Shutdown::Read);
        }
        Pin::new(&mut self.half).poll_read(cx, buf)
    }
}

/// Reads the peer's credentials from the system.
///
/// # Errors
/// The socket option cannot be read.
pub fn peer_credentials(stream: &UnixStream) -> io::Result<Peer> {
    peer::credentials(stream)
}

/// Connects to the socket of a kernel of this user, or of root.
///
/// # Errors
/// `NotFound` or `ConnectionRefused` when no kernel runs, `PermissionDenied` when another user has
/// opened the socket, `InvalidInput` when the path is too long.
#[cfg(test)]
pub(crate) async fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path).await?;
    let owner = peer_credentials(&stream)?.uid;
    if owner != 0 && owner != geteuid().as_raw() {
        let why = format!("{} was opened by user {owner}", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    fn refusal(path: &Path) -> BindError {
        bind(path, false).map(|_| ()).unwrap_err()
    }

    #[tokio::test]
    async fn only_the_owner_can_reach_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("deep/er/kernel.sock");
        let (listener, file) = bind(&path, false).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        let near = connect(&path).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        let has_pids = mgp_platform::WEAKNESSES.iter().all(|it| it.area != "peers");
        let own = Peer {
            uid: geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            pid: has_pids.then(|| std::process::id().cast_signed()),
        };
        assert_eq!(peer_credentials(&far).unwrap(), own);
        assert_eq!(peer_credentials(&near).unwrap(), own);
        drop(file);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_of_the_service_manager_stays() {
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), Permissions::from_mode(0o700)).unwrap();
        let path = root.path().join("kernel.sock");
        let theirs = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (listener, file) = adopt(theirs.try_clone().unwrap(), &path, false, false).unwrap();
        let near = connect(&path).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        assert!(peer_credentials(&near).is_ok() && peer_credentials(&far).is_ok());
        drop((listener, file));
        assert!(path.exists());
        // New connections wait for the next kernel.
        connect(&path).await.unwrap();
        std::fs::set_permissions(root.path(), Permissions::from_mode(0o770)).unwrap();
        let refused = adopt(theirs, &path, false, false).map(|_| ());
        assert!(matches!(refused, Err(BindError::OpenFolder { .. })));
    }

    /// A peer learns from its failed write what was not read, and everything before that is.
    #[tokio::test]
    async fn draining_reader_reads_what_was_written_and_takes_no_more() {
        let (near, far) = UnixStream::pair().unwrap();
        let drain = CancellationToken::new();
        let (half, _writer) = far.into_split();
        let mut reader = DrainingReader::new(half, &drain);
        let (_, mut near) = near.into_split();
        near.write_all(b"before").await.unwrap();
        let mut text = [0; 3];
        reader.read_exact(&mut text).await.unwrap();
        drain.cancel();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).await.unwrap();
        assert_eq!((&text, rest.as_str()), (b"bef", "ore"));
        let refused = near.write_all(b"after").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    }

    /// PRJ-009: a second kernel at the same socket is rejected; the socket of a dead kernel is replaced.
    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("kernel.sock");
        let (listener, file) = bind(&path, false).unwrap();
        assert!(matches!(refusal(&path), BindError::InUse(_)));
        drop(listener);
        let (_listener, successor) = bind(&path, false).unwrap();
        drop(file);
        assert!(path.exists(), "the successor's socket must not be removed");
        drop(successor);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn unsafe_paths_are_rejected() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("precious");
        std::fs::write(&file, "text").unwrap();
        assert!(matches!(refusal(&file), BindError::NotASocket(_)));
        assert!(file.exists());

        let open = root.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o770)).unwrap();
        let error = refusal(&open.join("s"));
        assert!(
            matches!(error, BindError::OpenFolder { mode: 0o770, .. }),
            "{error}"
        );

        let long = root.path().join("x".repeat(MAX_PATH));
        assert!(
            refusal(&long)
                .to_string()
                .contains(&format!("{MAX_PATH} are allowed"))
        );
    }

    #[tokio::test]
    async fn a_folder_of_another_user_is_rejected() {
        let root = tempfile::tempdir().unwrap();
        let foreign = if geteuid().is_root() {
            let other = Some(nix::unistd::Uid::from_raw(4711));
            nix::unistd::chown(root.path(), other, None).unwrap();
            root.path()
        } else {
            Path::new("/usr")
        };
        let error = refusal(&foreign.join("s"));
        assert!(matches!(error, BindError::ForeignFolder { .. }), "{error}");
    }

    #[tokio::test]
    async fn the_longest_path_allowed_works() {
        let root = tempfile::tempdir().unwrap();
        let room = MAX_PATH - root.path().as_os_str().len() - 1;
        let path = root.path().join("x".repeat(room));
        assert!(bind(&path, false).is_ok());
    }
}
