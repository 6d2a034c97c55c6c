//! The options of a kernel, and its open listeners.

use std::net::SocketAddr;
use std::path::PathBuf;

use mgp_discovery::ConfigLookup;
use mgp_store::secrets::SecretStore;

use super::handover::Inheritance;
use crate::config::LoadedConfig;
use crate::config::named_secrets::NamedSecrets;

/// The options of a kernel.
pub(crate) struct KernelOptions {
    /// The configuration, valid, with its problems reported.
    pub(crate) loaded: LoadedConfig,
    /// Looks it up again when a file changes; `None` without files.
    pub(crate) look_up: Option<ConfigLookup>,
    /// The path of the socket.
    pub(crate) socket: PathBuf,
    /// What the system's service manager or the kernel before this one has bound already.
    pub(crate) inherited: Inheritance,
    /// The folder for persistent state; it may not exist yet.
    pub(crate) data_dir: PathBuf,
    /// Whether the folder was set explicitly.
    pub(crate) is_data_dir_named: bool,
    /// Folders that record the running kernel besides the data folder, in lookup order; the last is below the home.
    /// Empty for a kernel that is found only by its explicit location.
    pub(crate) record_folders: Vec<PathBuf>,
    /// Shut down when stdin, a pipe from the parent process, is closed.
    pub(crate) stop_on_stdin_close: bool,
    /// Called once, when all listeners are open.
    pub(crate) on_ready: Box<dyn FnOnce(&OpenListeners) + Send>,
}

impl KernelOptions {
    /// The configured address of HTTP, if it is enabled.
    #[must_use]
    pub(crate) fn http_address(&self) -> Option<SocketAddr> {
        let http = &self.loaded.kernel.http;
        http.enabled.then_some(http.listen)
    }

    /// The secret store of the user; `None` without a home, or without files.
    #[must_use]
    pub(super) fn secret_store(&self) -> Option<SecretStore> {
        NamedSecrets::for_look_up(self.look_up.as_ref()?).store(&self.loaded.kernel.secrets)
    }
}

/// The open listeners of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenListeners {
    /// The owner's socket.
    pub(crate) socket: PathBuf,
    /// The HTTP listener, if enabled.
    pub(crate) http: Option<OpenHttpListener>,
}

/// The HTTP listener.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct OpenHttpListener {
    /// The address, with the actual port.
    pub(crate) address: SocketAddr,
    /// Whether it uses TLS.
    pub(crate) secure: bool,
    /// The operator's token, if known; never displayed if a file holds it.
    pub(crate) token: Option<String>,
    /// The file that holds the token.
    pub(crate) token_file: Option<PathBuf>,
}

impl OpenHttpListener {
    /// The endpoint with all tools.
    #[must_use]
    pub(crate) fn url(&self) -> String {
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
