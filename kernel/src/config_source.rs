//! The source of the configuration, and its current status.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use mgp_discovery::ConfigLookup;
use mgp_platform::watch::{Depth, Watcher};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::kernel::Untrusted;
use mgp_transports::http::listener_tls::ListenerTls;
use tokio::sync::mpsc;

use crate::config::named_secrets::KernelLookup;
use crate::config::{self, KernelConfig, LoadedConfig, Mention, WrittenKeys};

/// Editors write a file in several steps; these are applied together.
const DEBOUNCE: Duration = Duration::from_millis(150);

/// The configuration of a running kernel.
pub struct ConfigSource {
    look_up: Option<ConfigLookup>,
    /// The configuration of this start.
    started_with: (KernelConfig, WrittenKeys),
    server_ids: Mutex<BTreeSet<ServerId>>,
    /// The text of the project's file that is in force.
    project_text: Mutex<Option<String>>,
    status: RwLock<ConfigStatus>,
}

impl std::fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigSource").finish_non_exhaustive()
    }
}

/// The configuration in force, for display.
#[derive(Debug, Default, Clone)]
pub(crate) struct ConfigStatus {
    /// Files in force, the most important first.
    pub(crate) files: Vec<String>,
    /// Project files that are not in force as they are on disk.
    pub(crate) untrusted: Vec<Untrusted>,
    /// The file that receives new servers.
    pub(crate) servers_file: Option<String>,
    /// Problems of these files.
    pub(crate) problems: Vec<String>,
    /// The agents and servers that they name.
    pub(crate) mentions: Vec<Mention>,
    /// Where clients connect.
    pub(crate) endpoints: Vec<String>,
    /// Changes that apply at the next start.
    pub(crate) pending_restart: Vec<String>,
}

impl ConfigSource {
    /// The source of a kernel that was started with `loaded`; without a look-up it never changes.
    #[must_use]
    pub fn new(look_up: Option<ConfigLookup>, loaded: &LoadedConfig) -> Self {
        let source = Self {
            look_up,
            started_with: (loaded.kernel.clone(), loaded.written_keys.clone()),
            server_ids: Mutex::default(),
            project_text: Mutex::default(),
            // The start has already reported the problems.
            status: RwLock::new(ConfigStatus {
                untrusted: untrusted_project(loaded).into_iter().collect(),
                ..ConfigStatus::default()
            }),
        };
        source.apply(loaded);
        source
    }

    /// Reads the files again; `None` without files, or if a file named explicitly is gone.
    #[must_use]
    pub(crate) fn reload(&self) -> Option<LoadedConfig> {
        let look_up = self.look_up.as_ref()?;
        let project_text = self
            .project_text
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match config::load_with_env(
            look_up,
            &KernelLookup::for_look_up(look_up),
            project_text.as_deref(),
        ) {
            Ok(loaded) => Some(loaded),
            Err(error) => {
                tracing::error!(%error, "the configuration was not changed");
                None
            }
        }
    }

    /// Stores the status of what was read; returns its problems.
    pub(crate) fn apply(&self, loaded: &LoadedConfig) -> Vec<String> {
        let ids = loaded.servers.iter().filter_map(|server| match server {
            Ok(spec) => Some(spec.id.clone()),
            Err(broken) => broken.id.clone(),
        });
        *self
            .server_ids
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = ids.collect();
        let problems: Vec<_> = loaded.problems.iter().map(|p| p.render(false)).collect();
        for problem in &problems {
            tracing::warn!("{problem}");
        }
        let mut project_text = self
            .project_text
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        project_text.clone_from(&loaded.project.effective_text);
        let untrusted = untrusted_project(loaded);
        let mut status = self.status.write().unwrap_or_else(PoisonError::into_inner);
        for news in untrusted
            .iter()
            .filter(|entry| !status.untrusted.contains(entry))
        {
            tracing::warn!("{}", news.why);
        }
        let files = loaded.files_in_force();
        status.files = files.map(|f| f.path.display().to_string()).collect();
        status.untrusted = untrusted.into_iter().collect();
        status.servers_file = self.look_up.as_ref().and_then(file_for_new_servers);
        status.problems.clone_from(&problems);
        status.mentions = loaded.mentions();
        if loaded.is_usable() {
            let waiting = self.pending_restart(loaded);
            for news in waiting
                .iter()
                .filter(|entry| !status.pending_restart.contains(entry))
            {
                tracing::warn!("{news}");
            }
            status.pending_restart = waiting;
        }
        problems
    }

    fn pending_restart(&self, loaded: &LoadedConfig) -> Vec<String> {
        let (kernel, written) = &self.started_with;
        config::pending_restart((kernel, written), (&loaded.kernel, &loaded.written_keys))
    }

    pub(crate) fn set_endpoints(&self, doors: Vec<String>) {
        self.status
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .endpoints = doors;
    }

    #[must_use]
    pub(crate) fn status(&self) -> ConfigStatus {
        self.status
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// All servers in the files, valid or not.
    #[must_use]
    pub(crate) fn server_ids(&self) -> BTreeSet<ServerId> {
        self.server_ids
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The project's file, if it is not in force as it is on disk.
fn untrusted_project(loaded: &LoadedConfig) -> Option<Untrusted> {
    let untrusted = loaded.project.untrusted.as_ref()?;
    Some(Untrusted {
        file: untrusted.file.display().to_string(),
        held: untrusted.trusted_version_in_force,
        why: untrusted.to_string(),
    })
}

/// New servers are written to the file that was named explicitly, else to the user's.
fn file_for_new_servers(look_up: &ConfigLookup) -> Option<String> {
    let named = look_up.explicit_file().map(|(_, path)| path);
    let file = named.or_else(|| look_up.user_file());
    file.map(|path| path.display().to_string())
}

/// Reloads when one of the files is changed, created or removed. Runs until dropped.
pub(crate) async fn watch_files<F, T, E>(files: Vec<PathBuf>, reload: impl Fn() -> F)
where
    F: Future<Output = Result<T, E>>,
    E: Display,
{
    let names: BTreeSet<PathBuf> = files.iter().cloned().collect();
    let is_watched = move |path: &PathBuf| names.contains(path);
    let Some((_watcher, mut changes)) = start_watcher(&files, is_watched) else {
        return;
    };
    while wait_for_settled_change(&mut changes).await {
        if let Err(error) = reload().await {
            tracing::error!(%error, "the configuration was not applied");
        }
    }
}

/// Reloads the certificates of the HTTP listener when they change; connections stay open. Runs until dropped.
pub(crate) async fn watch_certificates(tls: Option<ListenerTls>) {
    let Some(tls) = tls else { return };
    // Any change in their folders: the files may be links whose targets change.
    let Some((_watcher, mut changes)) = start_watcher(&tls.files().all_files(), |_| true) else {
        return;
    };
    while wait_for_settled_change(&mut changes).await {
        let again = tls.clone();
        match mgp_runtime::task::run_blocking("source.certificates", move || again.reload()).await {
            Ok(Ok(true)) => tracing::info!("the HTTP listener uses its new certificate"),
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => {
                tracing::error!("the HTTP listener keeps its previous certificates: {error}")
            }
        }
    }
}

/// Watches the folders of these files for paths that `is_watched` accepts. Logs a failure and returns `None`.
fn start_watcher(
    files: &[PathBuf],
    is_watched: impl Fn(&PathBuf) -> bool + Send + 'static,
) -> Option<(Watcher, mpsc::Receiver<()>)> {
    let (sender, changes) = mpsc::channel(1);
    let watcher = Watcher::new(move |changed: &[PathBuf]| {
        if changed.iter().any(&is_watched) {
            // One pending change covers any number of changes.
            let _ = sender.try_send(());
        }
    });
    let Ok(mut watcher) = watcher else {
        tracing::warn!(
            "the configuration files cannot be watched; use `mgp/kernel/reload` after a change"
        );
        return None;
    };
    // Folders are watched, not files: editors replace files.
    let folders: BTreeSet<_> = files.iter().filter_map(|f| f.parent()).collect();
    for folder in folders.into_iter().filter(|f| f.is_dir()) {
        if let Err(error) = watcher.add(folder, Depth::Folder) {
            tracing::warn!(folder = %folder.display(), %error, "this folder cannot be watched");
        }
    }
    Some((watcher, changes))
}

/// Waits for a change and until it settles; false when no more changes will come.
async fn wait_for_settled_change(changes: &mut mpsc::Receiver<()>) -> bool {
    if changes.recv().await.is_none() {
        return false;
    }
    tokio::time::sleep(DEBOUNCE).await;
    while changes.try_recv().is_ok() {}
    true
}
