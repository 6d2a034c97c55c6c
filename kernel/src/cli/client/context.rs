//! What every command needs to know: where the kernel is and how to print.

use std::path::{Path, PathBuf};

use mgp_discovery::config::{ConfigLookup, ConfigLookupError};
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
use crate::cli::args::Options;
use crate::cli::failure::{Failure, KernelAbsence};
use crate::cli::print::{print_error, print_line};
use crate::cli::text_format::sanitize_line;
use crate::config::named_secrets::{KernelLookup, NamedSecrets};
use crate::config::{self, KernelConfig, LoadedConfig, RegistryConfig, SecretsConfig, Severity};
use crate::kernel::lock;
use crate::kernel::running_kernel::RunningKernel;
use crate::paths::{BaseDirs, SOCKET_NAME, SOCKET_PATH_MAX};

/// Where the kernel is and how to print.
#[derive(Clone)]
pub(in crate::cli) struct CliContext {
    /// Print JSON.
    pub(in crate::cli) json: bool,
    /// Show long output page by page, where a person reads it.
    pub(in crate::cli) use_pager: bool,
    /// As named with `--socket`, to be passed on.
    pub(in crate::cli) named_socket: Option<PathBuf>,
    /// As named with `--data-dir`, to be passed on.
    pub(in crate::cli) named_data_dir: Option<PathBuf>,
    /// How the configuration is looked up.
    pub(in crate::cli) look_up: ConfigLookup,
    /// The user's folders.
    pub(in crate::cli) base_dirs: BaseDirs,
    /// Why the file that was named cannot be read, where nothing else says which kernel is meant.
    unreadable_config: Option<String>,
    /// The project's file, where it is not in force as it is; in words.
    untrusted_project: Option<String>,
    /// `[data] dir`.
    configured_data_dir: Option<PathBuf>,
    /// `[socket] path`.
    configured_socket: Option<PathBuf>,
    /// `[secrets]`.
    secrets: SecretsConfig,
    /// `[registry]`.
    pub(in crate::cli) registry: RegistryConfig,
}

/// What keeps one from knowing where the kernel of these files is.
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
        // Where the kernel is, as far as its configuration can be read; what is wrong is told by who
        // needs it.
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
            unreadable_config: unread,
            untrusted_project: loaded.as_ref().and_then(untrusted),
            look_up,
            base_dirs: bases,
        })
    }

    /// How registries are reached, as the files say it that are in force.
    pub(in crate::cli) fn outbound(&self) -> Outbound {
        let loaded = config::load_with_env(
            &self.look_up,
            &KernelLookup::for_look_up(&self.look_up),
            None,
        );
        let network = loaded.map(|loaded| loaded.kernel.network);
        network.unwrap_or_default().outbound()
    }

    /// The folder that this program was started in, without links.
    pub(in crate::cli) fn current_folder(&self) -> Option<PathBuf> {
        self.look_up.current_dir.canonicalize().ok()
    }

    /// The kernel's socket: as named, or that of the kernel that runs, or where the next one listens.
    pub(in crate::cli) fn socket(&self) -> PathBuf {
        let running = || self.find_running().map(|running| running.socket);
        let named = self.named_socket.clone();
        // A file that was named and says where its kernel listens means no other one.
        let told = self.configured_socket.as_ref();
        let told =
            told.filter(|_| self.is_explicit() && self.configured_or_named_data_dir().is_none());
        let named = named.or_else(|| told.cloned());
        named
            .or_else(running)
            .unwrap_or_else(|| self.socket_for_new_kernel())
    }

    /// The socket, to have something done by its kernel.
    ///
    /// # Errors
    /// When the file that was named does not say which kernel is meant: another one must not be asked in its place.
    pub(in crate::cli) fn running_socket(&self) -> Result<PathBuf, Failure> {
        match &self.unreadable_config {
            None => Ok(self.socket()),
            Some(why) => Err(Failure::Usage(format!(
                "{why}; which kernel is meant is not known without this file: mend it, or name the kernel with --data-dir or --socket"
            ))),
        }
    }

    /// Where a kernel that is started with these names listens: in its data folder, where that was
    /// named, so that two of them are never in each other's way.
    pub(in crate::cli) fn socket_for_new_kernel(&self) -> PathBuf {
        let beside = || {
            self.configured_or_named_data_dir()
                .map(|folder| folder.join(SOCKET_NAME))
        };
        let fits = |path: &PathBuf| path.as_os_str().len() <= SOCKET_PATH_MAX;
        match self.configured_or_named_socket() {
            Some(path) => path.clone(),
            None => (beside().filter(fits)).unwrap_or_else(|| self.base_dirs.socket(None)),
        }
    }

    /// What keeps a kernel that is started with these names from its usual socket; in words.
    pub(in crate::cli) fn socket_path_problem(&self) -> Option<String> {
        let usual = self.socket_for_new_kernel() == self.base_dirs.socket(None);
        self.base_dirs.socket_path_problem().filter(|_| usual)
    }

    /// The kernel that runs for who names nothing more than this context does.
    pub(in crate::cli) fn find_running(&self) -> Option<RunningKernel> {
        let folders = self.record_search_folders();
        folders
            .iter()
            .find_map(|folder| RunningKernel::find_live(folder))
    }

    /// Where a running kernel is looked for: in the data folder that was named, by an option or in the
    /// file that one names; else where all look. The user's own files may say another folder than they did
    /// when the kernel that runs was started.
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

    /// Where a kernel that is started with these names is recorded beside its data folder. One whose
    /// folder and socket are both told is one's own: whoever wants it tells them, too.
    pub(in crate::cli) fn record_folders(&self) -> Vec<PathBuf> {
        match (
            self.configured_or_named_data_dir(),
            self.configured_or_named_socket(),
        ) {
            (Some(_), Some(_)) => Vec::new(),
            _ => self.base_dirs.record_folders(),
        }
    }

    /// The socket, where somebody told it.
    fn configured_or_named_socket(&self) -> Option<&PathBuf> {
        let named = self.named_socket.as_ref();
        named.or(self.configured_socket.as_ref())
    }

    /// The data folder, where somebody told it.
    pub(in crate::cli) fn configured_or_named_data_dir(&self) -> Option<&Path> {
        let told = self
            .named_data_dir
            .as_ref()
            .or(self.configured_data_dir.as_ref());
        told.map(PathBuf::as_path)
    }

    /// Tells of a kernel that is not there, or not to be reached, what is known of it.
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

    /// Says on stderr that the project's file in this folder does not count, and what to type.
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

    /// As the kernel that runs looks, unless a file was named: it may have been started in another folder, or with a file
    /// of its own.
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

    /// Where secrets are kept by their names.
    pub(in crate::cli) fn secret_store(&self) -> Result<SecretStore, Failure> {
        let store = NamedSecrets::for_look_up(&self.look_up).store(&self.secrets);
        store.ok_or_else(|| Failure::Usage("there is no home to keep secrets in; set HOME".into()))
    }

    /// Whether `[secrets] command` has those that are not kept here.
    pub(in crate::cli) fn has_secrets_command(&self) -> bool {
        !self.secrets.command.is_empty()
    }

    /// The process that holds the data folder, while one does.
    pub(in crate::cli) fn data_dir_holder(&self) -> Option<i32> {
        let usual = self.base_dirs.data_dir(self.configured_or_named_data_dir());
        lock::find_holder(&usual.ok()?)
    }

    /// The same for the kernel at another socket.
    pub(in crate::cli) fn with_socket(&self, socket: PathBuf) -> Self {
        Self {
            named_socket: Some(socket),
            ..self.clone()
        }
    }

    /// The folder for what lasts: as named on the command line, as configured, or the user's.
    pub(in crate::cli) fn data_dir(&self, kernel: &KernelConfig) -> Result<PathBuf, Failure> {
        if let Some(named) = &self.named_data_dir {
            return Ok(named.clone());
        }
        let dir = self.base_dirs.data_dir(kernel.data.dir.as_deref());
        dir.map_err(|e| Failure::Other(e.to_string()))
    }

    /// The same, where a kernel may run: a folder that was named counts, else the one of the kernel that runs.
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

    /// The running kernel's status; `None` when none runs.
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

    /// Has the running kernel read its files again; answers its status after that.
    pub(in crate::cli) fn reload_kernel(&self) -> Result<KernelStatus, Failure> {
        let doing = "reading the configuration";
        self.with_kernel(async |client| {
            client.call(Reload::METHOD, &json!({}), doing).await?;
            parse_result(&client.call(Status::METHOD, &json!({}), doing).await?)
        })
    }

    /// Asks the running kernel one thing; `doing` is shown when the answer takes its time.
    pub(in crate::cli) fn call(
        &self,
        method: &str,
        params: &impl Serialize,
        doing: impl Into<String>,
    ) -> Result<Box<RawValue>, Failure> {
        self.call_at(None, method, params, doing)
    }

    /// The same at the door of one server.
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

    /// The same about a server, which has to be there.
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

    /// Does something with a connection to the running kernel.
    pub(in crate::cli) fn with_kernel<T>(
        &self,
        work: impl AsyncFnOnce(&mut KernelClient) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with_kernel_at(ConnectOptions::default(), work)
    }

    /// The same with a connection that is opened so.
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

    /// A connection to the running kernel that is opened so.
    pub(in crate::cli) async fn connect(
        &self,
        options: ConnectOptions,
    ) -> Result<KernelClient, Failure> {
        let holder = || self.data_dir_holder();
        KernelClient::connect(&self.running_socket()?, holder, options).await
    }

    /// Does what waits for more than one thing.
    pub(in crate::cli) fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(work);
        // A thread may still wait for a line from the terminal; nobody waits for it.
        runtime.shutdown_background();
        outcome
    }

    /// Prints an answer: for a program as it came, else `in_words`.
    pub(in crate::cli) fn print_answer<T: DeserializeOwned>(
        &self,
        answer: &RawValue,
        in_words: impl FnOnce(T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.json {
            print_line(answer.get())
        } else {
            in_words(parse_result(answer)?)
        }
    }
}
