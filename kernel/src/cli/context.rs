//! What every command needs to know: where the kernel is and how to print.

use std::fs::{File, TryLockError};
use std::io::Read;
use std::path::PathBuf;

use mgp_discovery::config::LookUp;

use super::client::{Client, Opening};
use super::command::Options;
use super::failure::Failure;
use super::output::report;
use super::words::plain;
use crate::config::{self, KernelConfig, Loaded};
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
    /// The project's file, where it is not in force as it is; in words.
    untrusted: Option<String>,
    /// `[data] dir`.
    configured_data: Option<PathBuf>,
}

impl Context {
    pub(super) fn new(options: Options) -> Result<Self, Failure> {
        let (look_up, bases) = (LookUp::from_env(options.config)?, Bases::from_env());
        let from_here = |path| look_up.folder.join::<PathBuf>(path);
        let named_socket = options.socket.map(from_here);
        let named_data_dir = options.data_dir.map(from_here);
        // Where the kernel is, as far as its configuration can be read; what is wrong is told by who
        // needs it.
        let loaded = config::load(&look_up, &|_| None, None).ok();
        let kernel = loaded.as_ref().map(|loaded| &loaded.kernel);
        let socket = match &named_socket {
            Some(path) => path.clone(),
            None => bases.socket(kernel.and_then(|kernel| kernel.socket.path.as_deref())),
        };
        let untrusted = |loaded: &Loaded| Some(loaded.project.untrusted.as_ref()?.to_string());
        Ok(Self {
            json: options.json,
            socket,
            named_socket,
            named_data_dir,
            configured_data: kernel.and_then(|kernel| kernel.data.dir.clone()),
            untrusted: loaded.as_ref().and_then(untrusted),
            look_up,
            bases,
        })
    }

    /// Says on stderr that the project's file in this folder does not count, and what to type.
    pub(super) fn tell_untrusted(&self) {
        if let Some(untrusted) = &self.untrusted {
            report(format_args!("mgp: {}", plain(untrusted)));
        }
    }

    /// The process that holds the data folder, while one does.
    pub(super) fn holder(&self) -> Option<i32> {
        let folder = match &self.named_data_dir {
            Some(named) => named.clone(),
            None => self.bases.data_dir(self.configured_data.as_deref()).ok()?,
        };
        let mut lock = File::open(folder.join("kernel.lock")).ok()?;
        let mut pid = String::new();
        lock.read_to_string(&mut pid).ok()?;
        match lock.try_lock_shared() {
            Err(TryLockError::WouldBlock) => pid.trim().parse().ok(),
            Err(TryLockError::Error(_)) | Ok(()) => None,
        }
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
            let holder = || self.holder();
            let mut client = Client::connect(&self.socket, holder, opening).await?;
            work(&mut client).await
        });
        // A thread may still wait for a line from the terminal; nobody waits for it.
        runtime.shutdown_background();
        outcome
    }
}
