//! What every command needs to know: where the kernel is and how to print.

use std::path::PathBuf;

use mgp_discovery::config::LookUp;

use super::client::{Client, Opening};
use super::command::Options;
use super::failure::Failure;
use crate::config::{self, KernelConfig};
use crate::paths::Bases;

/// Where the kernel is and how to print.
#[derive(Clone)]
pub(super) struct Context {
    /// Print JSON.
    pub(super) json: bool,
    /// The kernel's socket.
    pub(super) socket: PathBuf,
    /// As named with `--socket`, to be passed on.
    pub(super) named_socket: Option<PathBuf>,
    /// As named with `--data-dir`, to be passed on.
    pub(super) named_data_dir: Option<PathBuf>,
    /// How the configuration is looked up.
    pub(super) look_up: LookUp,
    /// The user's folders.
    pub(super) bases: Bases,
}

impl Context {
    pub(super) fn new(options: Options) -> Result<Self, Failure> {
        let (look_up, bases) = (LookUp::from_env(options.config)?, Bases::from_env());
        let from_here = |path| look_up.folder.join::<PathBuf>(path);
        let named_socket = options.socket.map(from_here);
        let named_data_dir = options.data_dir.map(from_here);
        let socket = match &named_socket {
            Some(path) => path.clone(),
            None => bases.socket(config::socket_path(&look_up).as_deref()),
        };
        Ok(Self {
            json: options.json,
            socket,
            named_socket,
            named_data_dir,
            look_up,
            bases,
        })
    }

    /// The same for the kernel at another socket.
    pub(super) fn at(&self, socket: PathBuf) -> Self {
        Self {
            socket,
            ..self.clone()
        }
    }

    /// The folder for what lasts: as named on the command line, as configured, or the user's.
    pub(super) fn data_dir(&self, kernel: &KernelConfig) -> Result<PathBuf, Failure> {
        if let Some(named) = &self.named_data_dir {
            return Ok(named.clone());
        }
        let dir = self.bases.data_dir(kernel.data.dir.as_deref());
        dir.map_err(|e| Failure::Other(e.to_string()))
    }

    /// Does something with a connection to the running kernel.
    pub(super) fn with_kernel<T>(
        &self,
        opening: Opening,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(async {
            let mut client = Client::connect(&self.socket, opening).await?;
            work(&mut client).await
        });
        // A thread may still wait for a line from the terminal; nobody waits for it.
        runtime.shutdown_background();
        outcome
    }
}
