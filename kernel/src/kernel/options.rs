//! What a kernel is started with, and the doors it has once it is up.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use mgp_discovery::config::ConfigLookup;
use mgp_store::secrets::SecretStore;

use crate::config::LoadedConfig;
use crate::config::named_secrets::NamedSecrets;

/// What the kernel is started with.
pub struct KernelOptions {
    /// The configuration, usable and with its problems told.
    pub(crate) loaded: LoadedConfig,
    /// How to look it up again when a file changes; `None` when there are no files.
    pub(crate) look_up: Option<ConfigLookup>,
    /// Where the socket goes.
    pub(crate) socket: PathBuf,
    /// The socket there, where the system's service manager listens on it already.
    pub(crate) listener: Option<UnixListener>,
    /// The folder for what lasts; it may not exist yet.
    pub(crate) data_dir: PathBuf,
    /// Whether somebody told that folder.
    pub(crate) is_data_dir_named: bool,
    /// Where the running kernel is recorded beside that folder, in the order of looking; the last is
    /// below the home. Empty for a kernel that only those find who know where it is.
    pub(crate) record_folders: Vec<PathBuf>,
    /// Stdin is a pipe from the process that started this one, and the kernel ends when that ends, however it does.
    pub(crate) stop_on_stdin_close: bool,
    /// To be called once, when every door is open.
    pub(crate) on_ready: Box<dyn FnOnce(&OpenListeners) + Send>,
}

impl KernelOptions {
    /// Where the secrets of the user are kept; `None` without a home, or without files.
    #[must_use]
    pub(super) fn secret_store(&self) -> Option<SecretStore> {
        NamedSecrets::for_look_up(self.look_up.as_ref()?).store(&self.loaded.kernel.secrets)
    }
}

/// The doors of a kernel that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenListeners {
    /// The owner's socket.
    pub(crate) socket: PathBuf,
    /// The HTTP door, when there is one.
    pub http: Option<OpenHttpListener>,
}

/// The HTTP door.
#[derive(Clone, PartialEq, Eq)]
pub struct OpenHttpListener {
    /// Where it listens, with the port it really got.
    pub address: SocketAddr,
    /// Whether it speaks TLS.
    pub(crate) secure: bool,
    /// The operator's token, while the kernel knows it; never shown where a file holds it.
    pub token: Option<String>,
    /// The file that holds the token.
    pub(crate) token_file: Option<PathBuf>,
}

impl OpenHttpListener {
    /// The endpoint that shows everything.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}/mcp", self.address)
    }
}

impl std::fmt::Debug for OpenHttpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("OpenHttpListener")
            .field("url", &self.url())
            .field("token", &token)
            .field("token_file", &self.token_file)
            .finish()
    }
}
