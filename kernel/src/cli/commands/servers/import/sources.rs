//! The imported files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use mgp_clients::{
    Client, ClientFile, ClientInput, DocumentForm, FileScope, ParsedClientFile, Platform,
    ProjectStarts, UserFolders, client_files, read_document,
};
use mgp_platform::desktop::HAS_LIBRARY_FOLDER;
use mgp_store::regular_file;

use crate::cli::args::Import;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;

/// The files and their servers.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) files: Vec<ParsedClientFile>,
    /// Invalid entries: file, name, reason.
    pub(super) broken: Vec<(PathBuf, String, &'static str)>,
    /// Files that could not be read.
    pub(super) unreadable: Vec<(PathBuf, String)>,
    /// Files of the project in this folder, which are read only if they are named.
    pub(super) project_files: Vec<PathBuf>,
    /// The inputs of each file.
    pub(super) inputs: BTreeMap<PathBuf, Vec<ClientInput>>,
}

impl Sources {
    /// Reads the named files and those of the named clients; without names those of all clients.
    pub(super) fn read(context: &CliContext, typed: &Import) -> Result<Self, Failure> {
        let mut sources = Self::default();
        let here = &context.look_up.current_dir;
        let all = known_client_files(context, Some(here))?;
        let is_there = |file: &&ClientFile| file.path.exists();
        if typed.from.is_empty() {
            let own = |path: &Path| {
                let mut all = all.iter();
                all.any(|file| file.scope == FileScope::User && file.path == path)
            };
            for file in all.iter().filter(is_there) {
                match file.scope {
                    FileScope::User => {
                        sources.read_file(context, &file.path, Some(file.client), None);
                    }
                    FileScope::Project if own(&file.path) => {}
                    FileScope::Project => sources.project_files.push(file.path.clone()),
                }
            }
            return Ok(sources);
        }
        for word in &typed.from {
            let path = here.join(word);
            if path.is_file() || word.contains('/') {
                let known = all.iter().find(|file| file.path == path);
                let client = known
                    .map(|file| file.client)
                    .or_else(|| Client::from_path(&path));
                if !path.exists() {
                    return Err(Failure::Usage(format!(
                        "there is no file {}",
                        path.display()
                    )));
                }
                // A user's file belongs to no project, wherever the home is.
                let is_users = known.is_some_and(|file| file.scope == FileScope::User);
                let project = project_folder(&path, client).filter(|_| !is_users);
                sources.read_file(context, &path, client, project);
                continue;
            }
            let clients = Client::parse(word);
            let clients = clients.map_err(|unknown| Failure::Usage(unknown.to_string()))?;
            let theirs = all
                .iter()
                .filter(|file| clients.contains(&file.client) && file.scope == FileScope::User);
            let theirs: Vec<_> = theirs.collect();
            let there: Vec<_> = theirs.iter().copied().filter(is_there).collect();
            if there.is_empty() {
                let places: Vec<_> = theirs
                    .iter()
                    .map(|file| file.path.display().to_string())
                    .collect();
                return Err(Failure::Other(format!(
                    "{word} has no file here; looked for {}",
                    places.join(", ")
                )));
            }
            for file in there {
                sources.read_file(context, &file.path, Some(file.client), None);
            }
        }
        Ok(sources)
    }

    /// The servers of this file of the client.
    pub(super) fn from_file(context: &CliContext, path: &Path, client: Client) -> Self {
        let mut sources = Self::default();
        sources.read_file(context, path, Some(client), None);
        sources
    }

    fn read_file(
        &mut self,
        context: &CliContext,
        path: &Path,
        client: Option<Client>,
        project: Option<PathBuf>,
    ) {
        let text = regular_file::open(path).and_then(io::read_to_string);
        let document = match text {
            Ok(text) => DocumentForm::from_path(path)
                .parse(&text)
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let document = match document {
            Ok(document) => document,
            Err(why) => return self.unreadable.push((path.to_owned(), why)),
        };
        let starts = match client {
            Some(_) => ProjectStarts::All,
            None => ProjectStarts::Relative,
        };
        let mut found = read_document(&document, client);
        let windows = context.windows_host().filter(|host| host.has(path));
        if let Some(host) = windows {
            found = host.drives.translate(found);
        }
        let broken = found.invalid.into_iter();
        self.broken
            .extend(broken.map(|(name, why)| (path.to_owned(), name, why)));
        let inputs = self.inputs.entry(path.to_owned()).or_default();
        inputs.extend(found.inputs);
        self.files.push(ParsedClientFile {
            client,
            path: path.to_owned(),
            project,
            project_starts: starts,
            servers: found.servers,
        });
    }
}

/// The folder of the project that a file belongs to; an unknown file's own folder.
fn project_folder(path: &Path, client: Option<Client>) -> Option<PathBuf> {
    let desktop = client == Some(Client::ClaudeDesktop);
    Client::project_folder(path).filter(|_| !desktop)
}

/// The files of all clients, those of Windows last.
pub(in crate::cli::commands::servers) fn known_client_files(
    context: &CliContext,
    project: Option<&Path>,
) -> Result<Vec<ClientFile>, Failure> {
    let mut files = client_files(&client_folders(context)?, project);
    if let Some(host) = context.windows_host() {
        files.extend(client_files(&host.folders, None));
    }
    Ok(files)
}

/// The base folders of clients' files.
fn client_folders(context: &CliContext) -> Result<UserFolders, Failure> {
    let home = context.base_dirs.home.clone();
    let home = home.ok_or_else(|| Failure::Usage("there is no home; name a file".to_owned()))?;
    let config = context
        .look_up
        .config_home
        .clone()
        .filter(|path| path.is_absolute());
    let codex = std::env::var_os("CODEX_HOME").map(PathBuf::from);
    Ok(UserFolders {
        config: config.unwrap_or_else(|| home.join(".config")),
        codex: codex
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| home.join(".codex")),
        platform: if HAS_LIBRARY_FOLDER {
            Platform::Mac
        } else {
            Platform::Linux
        },
        home,
    })
}
