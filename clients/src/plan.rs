//! What would be added to this kernel's servers, out of what was found in all files.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::client::Client;
use crate::client_servers::{ClientConnection, ClientServer, SkippedKey, ToolLimits};
use crate::render::{InputAnswer, RenderError, Renderer};
use crate::secret_values::{is_secret, url_secrets};
use crate::text::ClientText;

/// A file that was read, and what it holds.
#[derive(Clone, Debug)]
pub struct ParsedClientFile {
    /// Whose it is; `None` for a file that was named.
    pub client: Option<Client>,
    /// The file.
    pub path: PathBuf,
    /// The folder of the project it is of.
    pub project: Option<PathBuf>,
    /// Which of its servers start in that folder.
    pub project_starts: ProjectStarts,
    /// Its servers.
    pub servers: Vec<ClientServer>,
}

/// Which servers of a project's file start in its folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProjectStarts {
    /// All: the client that reads the file is started there.
    #[default]
    All,
    /// Those that name a relative path: nobody knows which client reads the file.
    Relative,
}

/// Where a server was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOrigin {
    /// Whose file.
    pub client: Option<Client>,
    /// The file.
    pub path: PathBuf,
    /// What the server is called there.
    pub name: String,
    /// The only project it is for.
    pub project: Option<String>,
}

/// A server to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedServer {
    /// Its id here.
    pub id: String,
    /// Everywhere it was found.
    pub origins: Vec<ServerOrigin>,
    /// How it is reached.
    pub connection: PlannedConnection,
    /// It stays off.
    pub disabled: bool,
    /// The setting outside of its entry that switches it off.
    pub disabled_by: Option<&'static str>,
    /// The tools that its clients keep back.
    pub tools: ToolLimits,
    /// Questions whose answers are secrets and stand on its command line.
    pub exposed_answers: Vec<String>,
    /// What its entries had that has no place here.
    pub skipped_keys: Vec<SkippedKey>,
}

/// How it is reached, in the words of `mgp.toml`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlannedConnection {
    /// It is started.
    Command {
        /// The program and its arguments.
        words: Vec<String>,
        /// `[servers.env]`.
        env: Vec<(String, PlannedValue)>,
        /// A file with more of them.
        env_file: Option<String>,
        /// `cwd`.
        cwd: Option<String>,
    },
    /// It is somewhere.
    Url {
        /// There, in pieces that follow each other.
        url: Vec<UrlPiece>,
        /// `[servers.headers]`.
        headers: Vec<(String, PlannedValue)>,
    },
}

/// A piece of an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UrlPiece {
    /// As it is written in `mgp.toml`.
    Literal(String),
    /// A secret, which is kept apart.
    Secret {
        /// What it is called in the address.
        name: String,
        /// Itself.
        value: String,
    },
}

/// A value of a variable or a header.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlannedValue {
    /// As it is written in `mgp.toml`.
    Literal(String),
    /// A secret, which is kept apart.
    Secret(String),
}

/// A server that is not added, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedServer {
    /// Where it was found.
    pub origin: ServerOrigin,
    /// Why.
    pub reason: SkipReason,
}

/// Why a server is not added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// It would start this kernel.
    #[error("it is this kernel's own entry")]
    KernelItself,
    /// This kernel has it, under this id.
    #[error("it is here already, as {0}")]
    AlreadyPresent(String),
    /// Some of its values mean nothing here.
    #[error(transparent)]
    RenderFailed(#[from] RenderError),
    /// Its entry would not be read.
    #[error("{0}")]
    InvalidEntry(String),
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// These are added.
    pub servers: Vec<PlannedServer>,
    /// These are not.
    pub skipped: Vec<SkippedServer>,
}

/// What a plan is made with.
#[derive(Clone, Copy)]
pub struct Planner<'p> {
    /// `~`.
    pub home: &'p Path,
    /// What was answered, by the file that asks and the id of the input.
    pub answers: &'p BTreeMap<PathBuf, BTreeMap<String, InputAnswer>>,
    /// Whether a command is this kernel's own program.
    pub is_kernel_command: fn(&[String]) -> bool,
    /// This kernel's own door.
    pub endpoint: &'p str,
    /// The id of the server that is reached so, with the same variables and headers, and in the same folder.
    pub find_existing: &'p dyn Fn(&PlannedConnection) -> Option<String>,
}

impl Planner<'_> {
    /// One server for each way a server is reached, whatever it is called and wherever it was found; `taken`
    /// are the ids there are.
    #[must_use]
    pub fn plan(&self, files: &[ParsedClientFile], taken: &BTreeSet<String>) -> Plan {
        let mut plan = Plan::default();
        let mut taken = taken.clone();
        for file in files {
            for server in &file.servers {
                self.add(&mut plan, &mut taken, file, server);
            }
        }
        plan
    }

    fn add(
        &self,
        plan: &mut Plan,
        taken: &mut BTreeSet<String>,
        file: &ParsedClientFile,
        server: &ClientServer,
    ) {
        let origin = ServerOrigin {
            client: file.client,
            path: file.path.clone(),
            name: server.name.clone(),
            project: server.project.clone(),
        };
        let reach = match self.plan_connection(file, server) {
            Ok(reach) => reach,
            Err(unrendered) => {
                let why = unrendered.into();
                return plan.skipped.push(SkippedServer {
                    origin,
                    reason: why,
                });
            }
        };
        if self.is_kernel(&reach) {
            let why = SkipReason::KernelItself;
            return plan.skipped.push(SkippedServer {
                origin,
                reason: why,
            });
        }
        if let Some(id) = (self.find_existing)(&reach) {
            let why = SkipReason::AlreadyPresent(id);
            return plan.skipped.push(SkippedServer {
                origin,
                reason: why,
            });
        }
        let same = plan
            .servers
            .iter_mut()
            .find(|planned| planned.connection == reach);
        if let Some(planned) = same {
            planned.origins.push(origin);
            // A server that one client uses is wanted.
            planned.disabled &= server.disabled;
            // What one client keeps back stays kept back.
            planned.tools.restrict(&server.tools);
            for left in &server.skipped_keys {
                if !planned.skipped_keys.contains(left) {
                    planned.skipped_keys.push(left.clone());
                }
            }
            return;
        }
        let id = free_id(&server.name, file.client, taken);
        taken.insert(id.clone());
        plan.servers.push(PlannedServer {
            id,
            origins: vec![origin],
            connection: reach,
            disabled: server.disabled,
            disabled_by: server.disabled_by,
            tools: server.tools.clone(),
            exposed_answers: self.exposed_answers(file, server),
            skipped_keys: server.skipped_keys.clone(),
        });
    }

    fn renderer<'r>(
        &'r self,
        file: &'r ParsedClientFile,
        server: &'r ClientServer,
    ) -> Renderer<'r> {
        let project = server.project.as_deref().map(Path::new);
        Renderer {
            home: self.home,
            project: project.or(file.project.as_deref()),
            answers: self.answers.get(&file.path),
        }
    }

    fn exposed_answers(&self, file: &ParsedClientFile, server: &ClientServer) -> Vec<String> {
        let ClientConnection::Command { command, args, .. } = &server.connection else {
            return Vec::new();
        };
        let renderer = self.renderer(file, server);
        let words = std::iter::once(command).chain(args);
        let open = words.filter(|word| renderer.has_secret_answer(word));
        open.flat_map(ClientText::input_ids)
            .map(str::to_owned)
            .collect()
    }

    fn plan_connection(
        &self,
        file: &ParsedClientFile,
        server: &ClientServer,
    ) -> Result<PlannedConnection, RenderError> {
        let renderer = self.renderer(file, server);
        match &server.connection {
            ClientConnection::Command { .. } => plan_command(&renderer, file, server),
            ClientConnection::Url { url, headers } => Ok(PlannedConnection::Url {
                url: plan_url(&renderer, url)?,
                headers: plan_values(&renderer, headers)?,
            }),
        }
    }

    fn is_kernel(&self, reach: &PlannedConnection) -> bool {
        match reach {
            PlannedConnection::Command { words, .. } => (self.is_kernel_command)(words),
            PlannedConnection::Url { url, .. } => {
                let Some(UrlPiece::Literal(url)) = url.first() else {
                    return false;
                };
                let rest = url.strip_prefix(self.endpoint);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }
}

fn plan_command(
    renderer: &Renderer<'_>,
    file: &ParsedClientFile,
    server: &ClientServer,
) -> Result<PlannedConnection, RenderError> {
    let ClientConnection::Command {
        command,
        args,
        env,
        env_file,
        cwd,
    } = &server.connection
    else {
        return Err(RenderError::NoFolder);
    };
    let folder = renderer.project.map(Path::to_owned);
    let rendered = |text: &Option<ClientText>| {
        let rendered = text.as_ref().map(|text| renderer.render(text));
        rendered.transpose()
    };
    let mut words = std::iter::once(command)
        .chain(args)
        .map(|word| renderer.render(word))
        .collect::<Result<Vec<_>, _>>()?;
    let mut relative = words.iter().any(|word| is_relative(word));
    if let Some(program) = words
        .first_mut()
        .filter(|program| is_relative_program(program))
    {
        relative = true;
        let folder = folder.as_deref().ok_or(RenderError::RelativeCommand)?;
        *program = resolve_in_folder(folder, program);
    }
    let starts_there =
        server.project.is_some() || file.project_starts == ProjectStarts::All || relative;
    // A path that is relative starts at the folder of the project, as for the client.
    let from_folder = |path: String| match &folder {
        Some(folder) if !path.starts_with(['/', '~', '$']) => resolve_in_folder(folder, &path),
        Some(_) | None => path,
    };
    let cwd = rendered(cwd)?.map(from_folder);
    let there = folder.as_ref().filter(|_| starts_there);
    Ok(PlannedConnection::Command {
        words,
        env: plan_values(renderer, env)?,
        env_file: rendered(env_file)?.map(from_folder),
        // Clients start the servers of a project in its folder.
        cwd: cwd.or_else(|| there.map(|folder| folder.to_string_lossy().into_owned())),
    })
}

/// Whether a word names a place from the working folder on.
fn is_relative(word: &str) -> bool {
    word == "." || word == ".." || word.starts_with("./") || word.starts_with("../")
}

/// A program with a slash is a path; another one is looked up in PATH.
fn is_relative_program(program: &str) -> bool {
    program.contains('/') && !program.starts_with(['/', '~', '$'])
}

fn resolve_in_folder(folder: &Path, path: &str) -> String {
    let mut path = path;
    while let Some(rest) = path.strip_prefix("./") {
        path = rest;
    }
    match path {
        "." | "" => folder.to_string_lossy().into_owned(),
        path => folder.join(path).to_string_lossy().into_owned(),
    }
}

/// The address, with its secrets apart.
fn plan_url(renderer: &Renderer<'_>, url: &ClientText) -> Result<Vec<UrlPiece>, RenderError> {
    let text = renderer.render(url)?;
    let mut pieces = Vec::new();
    let (mut rest, mut names) = (text.as_str(), BTreeSet::new());
    for secret in url_secrets(&text) {
        let lead = secret.prefix();
        let Some(at) = rest.find(&format!("{lead}{}", secret.value)) else {
            continue;
        };
        let (before, behind) = rest.split_at(at + lead.len());
        pieces.push(UrlPiece::Literal(before.to_owned()));
        rest = &behind[secret.value.len()..];
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = secret.name.chars().map(plain).collect();
        let numbered = (2..).map(|n: u32| format!("{name}_{n}"));
        let mut all = std::iter::once(name.clone()).chain(numbered);
        let name = all.find(|name| names.insert(name.clone())).unwrap_or(name);
        pieces.push(UrlPiece::Secret {
            name: format!("url.{name}"),
            value: secret.value.replace("$$", "$"),
        });
    }
    pieces.push(UrlPiece::Literal(rest.to_owned()));
    pieces.retain(|piece| !matches!(piece, UrlPiece::Literal(text) if text.is_empty()));
    Ok(pieces)
}

fn plan_values(
    renderer: &Renderer<'_>,
    values: &[(String, ClientText)],
) -> Result<Vec<(String, PlannedValue)>, RenderError> {
    let value = |name: &str, text: &ClientText| match renderer.literal_value(text) {
        Some(value) if is_secret(name, &value) || renderer.has_secret_answer(text) => {
            Ok(PlannedValue::Secret(value))
        }
        _ => renderer.render(text).map(PlannedValue::Literal),
    };
    let mut values = values
        .iter()
        .map(|(name, text)| Ok((name.clone(), value(name, text)?)))
        .collect::<Result<Vec<_>, _>>()?;
    // The order says nothing, and differs between clients.
    values.sort();
    Ok(values)
}

/// Longest id, in bytes.
const ID_MAX: usize = 48;

/// An id that the server may have and nobody has: its name, then with the client's, then with a number.
fn free_id(name: &str, client: Option<Client>, taken: &BTreeSet<String>) -> String {
    let name = sanitize_id(name);
    let of_client = client.map(|client| join_id(&name, client.cli_name()));
    let numbered = (2..).map(|n: u32| join_id(&name, &n.to_string()));
    let mut ids = std::iter::once(name.clone())
        .chain(of_client)
        .chain(numbered);
    ids.find(|id| !taken.contains(id)).unwrap_or(name)
}

fn join_id(name: &str, end: &str) -> String {
    let room = ID_MAX - end.len() - 1;
    format!("{}-{end}", &name[..name.len().min(room)])
}

/// The letters, digits, dots, dashes and underscores of a name; dashes for runs of anything else.
fn sanitize_id(name: &str) -> String {
    let mut id = String::new();
    for c in name.chars() {
        match c {
            c if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') => id.push(c),
            _ if id.ends_with('-') => {}
            _ => id.push('-'),
        }
    }
    let id = id.trim_matches('-');
    let id = &id[..id.len().min(ID_MAX)];
    if id.is_empty() {
        "server".to_owned()
    } else {
        id.to_owned()
    }
}
