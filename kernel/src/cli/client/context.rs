//! The context of all commands: the location of the kernel, and output options.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use mgp_discovery::{ConfigLookup, ConfigLookupError};
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::{KernelStatus, Reload, Status};
use mgp_store::secrets::SecretStore;
use mgp_transports::http::proxy::Outbound;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;

use super::connection::{ConnectOptions, KernelClient};
use super::name_resolution;
use super::observer::RequestObserver;
use super::response::parse_result;
use super::windows_host::WindowsHost;
use crate::cli::args::Options;
use crate::cli::failure::{Failure, KernelAbsence};
use crate::cli::print::{print_error, print_line};
use crate::cli::text_format::sanitize_line;
use crate::config::named_secrets::{KernelLookup, NamedSecrets};
use crate::config::{
    self, KernelConfig, LoadedConfig, RegistryConfig, SecretsConfig, Severity, UpdatesConfig,
};
use crate::kernel::lock;
use crate::kernel::running_kernel::RunningKernel;
use crate::paths::{BaseDirs, SOCKET_NAME, SOCKET_PATH_MAX};

/// The location of the kernel, and output options.
#[derive(Clone)]
pub(in crate::cli) struct CliContext {
    /// Print JSON.
    pub(in crate::cli) json: bool,
    /// Page long output on a terminal.
    pub(in crate::cli) use_pager: bool,
    /// The value of `--socket`, to be passed on.
    pub(in crate::cli) named_socket: Option<PathBuf>,
    /// The value of `--data-dir`, to be passed on.
    pub(in crate::cli) named_data_dir: Option<PathBuf>,
    /// How the configuration is looked up.
    pub(in crate::cli) look_up: ConfigLookup,
    /// The user's folders.
    pub(in crate::cli) base_dirs: BaseDirs,
    /// Why the explicitly named file cannot be read, if nothing else selects the kernel.
    unreadable_config: Option<String>,
    /// Describes the project's file, if it is not in force as it is on disk.
    untrusted_project: Option<String>,
    /// `[data] dir`.
    configured_data_dir: Option<PathBuf>,
    /// `[socket] path`.
    configured_socket: Option<PathBuf>,
    /// `[secrets]`.
    secrets: SecretsConfig,
    /// `[registry]`.
    pub(in crate::cli) registry: RegistryConfig,
    /// `[updates]`.
    pub(in crate::cli) updates: UpdatesConfig,
    /// Windows, once it was looked for.
    windows: Arc<OnceLock<Option<WindowsHost>>>,
}

/// Why the kernel's location cannot be read from these files.
fn unreadable_reason(loaded: &Result<LoadedConfig, ConfigLookupError>) -> Option<String> {
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return Some(error.to_string()),
    };
    let (data, socket) = (&loaded.kernel.data.dir, &loaded.kernel.socket.path);
    let mut problems = loaded.problems.iter();
    let fatal = problems.find(|problem| problem.severity == Severity::Fatal);
    let fatal = fatal.filter(|_| data.is_none() && socket.is_none());
    fatal.map(ToString::to_string)
}

impl CliContext {
    pub(in crate::cli) fn new(options: Options) -> Result<Self, Failure> {
        let (mut look_up, bases) = (
            ConfigLookup::from_env(options.config)?,
            BaseDirs::from_env(),
        );
        look_up.home.clone_from(&bases.home);
        look_up.config_home = look_up.config_home.or(bases.last_used.config_home.clone());
        let from_here = |path| look_up.current_dir.join::<PathBuf>(path);
        let named_socket = options.socket.map(from_here);
        let named_data_dir = options.data_dir.map(from_here);
        // The location of the kernel, as far as its configuration can be read; commands that need more report
        // problems.
        let loaded = config::load(&look_up, &|_| None, None);
        let is_placed = named_socket.is_some() || named_data_dir.is_some();
        let unread =
            unreadable_reason(&loaded).filter(|_| look_up.explicit_file().is_some() && !is_placed);
        let loaded = loaded.ok();
        let kernel = loaded.as_ref().map(|loaded| &loaded.kernel);
        let untrusted =
            |loaded: &LoadedConfig| Some(loaded.project.untrusted.as_ref()?.to_string());
        Ok(Self {
            json: options.json,
            use_pager: !options.json && !options.no_pager,
            named_socket,
            named_data_dir,
            configured_data_dir: kernel.and_then(|kernel| kernel.data.dir.clone()),
            configured_socket: kernel.and_then(|kernel| kernel.socket.path.clone()),
            secrets: kernel
                .map(|kernel| kernel.secrets.clone())
                .unwrap_or_default(),
            registry: kernel
                .map(|kernel| kernel.registry.clone())
                .unwrap_or_default(),
            updates: kernel
                .map(|kernel| kernel.updates.clone())
                .unwrap_or_default(),
            unreadable_config: unread,
            untrusted_project: loaded.as_ref().and_then(untrusted),
            look_up,
            base_dirs: bases,
            windows: Arc::default(),
        })
    }

    /// The Windows that this WSL runs on.
    pub(in crate::cli) fn windows_host(&self) -> Option<&WindowsHost> {
        self.windows.get_or_init(WindowsHost::detect).as_ref()
    }

    /// Settings of outgoing HTTP from the files in force.
    pub(in crate::cli) fn outbound(&self) -> Outbound {
        let loaded = config::load_with_env(
            &self.look_up,
            &KernelLookup::for_look_up(&self.look_up),
            None,
        );
        let network = loaded.map(|loaded| loaded.kernel.network);
        network.unwrap_or_default().outbound()
    }

    /// The current folder, without links.
    pub(in crate::cli) fn current_folder(&self) -> Option<PathBuf> {
        self.look_up.current_dir.canonicalize().ok()
    }

    /// The kernel's socket: as named, that of the running kernel, or where the next one listens.
    pub(in crate::cli) fn socket(&self) -> PathBuf {
        let running = || self.find_running().map(|running| running.socket);
        let named = self.named_socket.clone();
        // An explicitly named file with a socket selects no other kernel.
        let told = self.configured_socket.as_ref();
        let told =
            told.filter(|_| self.is_explicit() && self.configured_or_named_data_dir().is_none());
        let named = named.or_else(|| told.cloned());
        named
            .or_else(running)
            .unwrap_or_else(|| self.socket_for_new_kernel())
    }

    /// The socket for a request that changes the kernel.
    ///
    /// # Errors
    /// If the explicitly named file does not select a kernel: no other one may be used instead.
    pub(in crate::cli) fn running_socket(&self) -> Result<PathBuf, Failure> {
        match &self.unreadable_config {
            None => Ok(self.socket()),
            Some(why) => Err(Failure::Usage(format!(
                "{why}; which kernel is meant is not known without this file: mend it, or name the kernel with --data-dir or --socket"
            ))),
        }
    }

    /// The socket of a kernel started with these options: in its data folder, if that was named, so that two
    /// kernels never conflict.
    pub(in crate::cli) fn socket_for_new_kernel(&self) -> PathBuf {
        let socket_in_data_dir = || {
            self.configured_or_named_data_dir()
                .map(|folder| folder.join(SOCKET_NAME))
        };
        let fits = |path: &PathBuf| path.as_os_str().len() <= SOCKET_PATH_MAX;
        match self.configured_or_named_socket() {
            Some(path) => path.clone(),
            None => {
                (socket_in_data_dir().filter(fits)).unwrap_or_else(|| self.base_dirs.socket(None))
            }
        }
    }

    /// Why a kernel started with these options cannot use its usual socket.
    pub(in crate::cli) fn socket_path_problem(&self) -> Option<String> {
        let usual = self.socket_for_new_kernel() == self.base_dirs.socket(None);
        self.base_dirs.socket_path_problem().filter(|_| usual)
    }

    /// The running kernel that these options select.
    pub(in crate::cli) fn find_running(&self) -> Option<RunningKernel> {
        let folders = self.record_search_folders();
        folders
            .iter()
            .find_map(|folder| RunningKernel::find_live(folder))
    }

    /// Folders to search for the record of a running kernel: the data folder named by an option or by the explicit
    /// file, else the usual ones. The user's own files may name another folder than when the kernel was started.
    fn record_search_folders(&self) -> Vec<PathBuf> {
        let named = self.named_data_dir.as_ref();
        if let Some(named) = named.or(self
            .configured_data_dir
            .as_ref()
            .filter(|_| self.is_explicit()))
        {
            return vec![named.clone()];
        }
        let mut folders: Vec<PathBuf> = self.configured_data_dir.iter().cloned().collect();
        let usual = self.base_dirs.data_dir(None).ok();
        for folder in self.base_dirs.record_folders().into_iter().chain(usual) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        folders
    }

    fn is_explicit(&self) -> bool {
        self.look_up.explicit_file().is_some()
    }

    /// Folders that record a kernel started with these options, besides its data folder. A kernel with explicit
    /// folder and socket is private: its clients name them, too.
    pub(in crate::cli) fn record_folders(&self) -> Vec<PathBuf> {
        match (
            self.configured_or_named_data_dir(),
            self.configured_or_named_socket(),
        ) {
            (Some(_), Some(_)) => Vec::new(),
            _ => self.base_dirs.record_folders(),
        }
    }

    /// The socket, if set explicitly.
    fn configured_or_named_socket(&self) -> Option<&PathBuf> {
        let named = self.named_socket.as_ref();
        named.or(self.configured_socket.as_ref())
    }

    /// The data folder, if set explicitly.
    pub(in crate::cli) fn configured_or_named_data_dir(&self) -> Option<&Path> {
        let told = self
            .named_data_dir
            .as_ref()
            .or(self.configured_data_dir.as_ref());
        told.map(PathBuf::as_path)
    }

    /// Adds what is known about the kernel to the failure to reach it.
    pub(in crate::cli) fn explain_absence(&self, failure: Failure) -> Failure {
        let Failure::NotRunning(KernelAbsence::NotListening(socket)) = failure else {
            return failure;
        };
        let folders = self.record_search_folders();
        let told = match (self.find_running(), self.data_dir_holder()) {
            (Some(running), _) => KernelAbsence::Unresponsive(running, socket),
            (None, Some(pid)) => {
                KernelAbsence::Unrecorded(pid, folders.last().cloned().unwrap_or_default())
            }
            (None, None) if self.named_socket.is_some() => KernelAbsence::NotListening(socket),
            (None, None) => KernelAbsence::NotFound(socket, folders),
        };
        Failure::NotRunning(told)
    }

    /// Prints on stderr that the project's file is not in force, and the remedy.
    pub(in crate::cli) fn warn_untrusted(&self) {
        if let Some(untrusted) = &self.untrusted_project {
            print_error(format_args!("mgp: {}", sanitize_line(untrusted)));
        }
    }

    /// The options that lead another process of this program to the same kernel.
    pub(in crate::cli) fn named_path_options(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let ConfigLookup {
            explicit, variable, ..
        } = &self.look_up;
        // A client passes on none of this process's variables.
        let config = if explicit.is_some() {
            explicit
        } else {
            variable
        };
        let named = [
            ("--config", config),
            ("--socket", &self.named_socket),
            ("--data-dir", &self.named_data_dir),
        ];
        let named = named.into_iter();
        named.filter_map(|(option, path)| Some((option, path.as_deref()?)))
    }

    /// The running kernel's look-up, unless a file was named: it may have been started in another folder, or with its
    /// own file.
    pub(in crate::cli) fn lookup_for(&self, status: Option<&KernelStatus>) -> ConfigLookup {
        let ours = self.look_up.clone();
        let status = status.filter(|_| ours.explicit_file().is_none());
        let files = status.map_or(&[][..], |status| &status.config_files);
        match files {
            [only] => ConfigLookup {
                explicit: Some(PathBuf::from(only)),
                ..ours
            },
            [project, _] => match Path::new(project).parent() {
                Some(folder) => ConfigLookup {
                    current_dir: folder.to_path_buf(),
                    ..ours
                },
                None => ours,
            },
            _ => ours,
        }
    }

    /// The store of named secrets.
    pub(in crate::cli) fn secret_store(&self) -> Result<SecretStore, Failure> {
        let store = NamedSecrets::for_look_up(&self.look_up).store(&self.secrets);
        store.ok_or_else(|| Failure::Usage("there is no home to keep secrets in; set HOME".into()))
    }

    /// Whether `[secrets] command` provides secrets that are not stored.
    pub(in crate::cli) fn has_secrets_command(&self) -> bool {
        !self.secrets.command.is_empty()
    }

    /// The process that holds the data folder, if any.
    pub(in crate::cli) fn data_dir_holder(&self) -> Option<i32> {
        let usual = self.base_dirs.data_dir(self.configured_or_named_data_dir());
        lock::find_holder(&usual.ok()?)
    }

    /// The same context for the kernel at another socket.
    pub(in crate::cli) fn with_socket(&self, socket: PathBuf) -> Self {
        Self {
            named_socket: Some(socket),
            ..self.clone()
        }
    }

    /// The folder for persistent state: as named on the command line, as configured, or the user's.
    pub(in crate::cli) fn data_dir(&self, kernel: &KernelConfig) -> Result<PathBuf, Failure> {
        if let Some(named) = &self.named_data_dir {
            return Ok(named.clone());
        }
        let dir = self.base_dirs.data_dir(kernel.data.dir.as_deref());
        dir.map_err(|e| Failure::Other(e.to_string()))
    }

    /// The same if a kernel may run: the named folder, else that of the running kernel.
    pub(in crate::cli) fn running_data_dir(
        &self,
        kernel: &KernelConfig,
        status: Option<&KernelStatus>,
    ) -> Result<PathBuf, Failure> {
        match status {
            Some(status) if self.named_data_dir.is_none() => Ok(PathBuf::from(&status.data_dir)),
            Some(_) | None => self.data_dir(kernel),
        }
    }

    /// The running kernel's status; `None` if none runs.
    pub(in crate::cli) fn status(&self) -> Result<Option<KernelStatus>, Failure> {
        let asked = self.with_kernel(async |client| {
            parse_result(&client.request(Status::METHOD, &json!({}), &mut ()).await?)
        });
        match asked {
            Ok(status) => Ok(Some(status)),
            Err(Failure::NotRunning(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Makes the running kernel reload its files; returns its status after that.
    pub(in crate::cli) fn reload_kernel(&self) -> Result<KernelStatus, Failure> {
        let doing = "reading the configuration";
        self.with_kernel(async |client| {
            client.call(Reload::METHOD, &json!({}), doing).await?;
            parse_result(&client.call(Status::METHOD, &json!({}), doing).await?)
        })
    }

    /// Sends one request to the running kernel; `doing` is shown if the answer takes long.
    pub(in crate::cli) fn call(
        &self,
        method: &str,
        params: &impl Serialize,
        doing: impl Into<String>,
    ) -> Result<Box<RawValue>, Failure> {
        self.call_at(None, method, params, doing)
    }

    /// The same at the endpoint of one server.
    pub(in crate::cli) fn call_at(
        &self,
        server: Option<&str>,
        method: &str,
        params: &impl Serialize,
        doing: impl Into<String>,
    ) -> Result<Box<RawValue>, Failure> {
        let options = ConnectOptions::for_server(server);
        self.with_kernel_at(options, async |client| {
            client.call(method, params, doing).await
        })
    }

    /// The same about an existing server.
    pub(in crate::cli) fn call_about_server(
        &self,
        server: &str,
        method: &str,
        params: &impl Serialize,
        observer: &mut dyn RequestObserver,
    ) -> Result<Box<RawValue>, Failure> {
        self.with_kernel(async |client| {
            name_resolution::resolve_server(client, server).await?;
            client.request(method, params, observer).await
        })
    }

    /// Runs `work` with a connection to the running kernel.
    pub(in crate::cli) fn with_kernel<T>(
        &self,
        work: impl AsyncFnOnce(&mut KernelClient) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with_kernel_at(ConnectOptions::default(), work)
    }

    /// The same with options of the connection.
    pub(in crate::cli) fn with_kernel_at<T>(
        &self,
        options: ConnectOptions,
        work: impl AsyncFnOnce(&mut KernelClient) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.block_on(async {
            let mut client = self.connect(options).await?;
            work(&mut client).await
        })
    }

    /// A connection to the running kernel with these options.
    pub(in crate::cli) async fn connect(
        &self,
        options: ConnectOptions,
    ) -> Result<KernelClient, Failure> {
        let holder = || self.data_dir_holder();
        KernelClient::connect(&self.running_socket()?, holder, options).await
    }

    /// Runs a future on a new runtime.
    pub(in crate::cli) fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(work);
        // A thread may still read from the terminal; it cannot be joined.
        runtime.shutdown_background();
        outcome
    }

    /// Prints an answer: unchanged for programs, else with `print_text`.
    pub(in crate::cli) fn print_answer<T: DeserializeOwned>(
        &self,
        answer: &RawValue,
        print_text: impl FnOnce(T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.json {
            print_line(answer.get())
        } else {
            print_text(parse_result(answer)?)
        }
    }
}
