//! Plans an import: which servers of all files are added to this kernel.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::client::Client;
use crate::client_servers::{ClientConnection, ClientServer, SkippedKey, ToolLimits};
use crate::render::{InputAnswer, RenderError, Renderer};
use crate::secret_values::{is_secret, url_secrets};
use crate::text::ClientText;

/// A parsed file.
#[derive(Clone, Debug)]
pub struct ParsedClientFile {
    /// Its client; `None` for a file that was named.
    pub client: Option<Client>,
    /// The file.
    pub path: PathBuf,
    /// The folder of its project.
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
    /// Those with a relative path: the client of the file is unknown.
    Relative,
}

/// Where a server was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOrigin {
    /// The client of the file.
    pub client: Option<Client>,
    /// The file.
    pub path: PathBuf,
    /// The server's name there.
    pub name: String,
    /// The folder of its project, if any.
    pub project: Option<String>,
}

/// A server to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedServer {
    /// Its id here.
    pub id: String,
    /// All places where it was found.
    pub origins: Vec<ServerOrigin>,
    /// Its transport.
    pub connection: PlannedConnection,
    /// Whether it is added disabled.
    pub disabled: bool,
    /// The setting outside of its entry that disables it.
    pub disabled_by: Option<&'static str>,
    /// The tool limits of its clients.
    pub tools: ToolLimits,
    /// Inputs whose secret answers would be on its command line.
    pub exposed_answers: Vec<String>,
    /// Keys of its entries without an equivalent here.
    pub skipped_keys: Vec<SkippedKey>,
}

/// The transport in the form of `mgp.toml`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlannedConnection {
    /// A program.
    Command {
        /// The program and its arguments.
        words: Vec<String>,
        /// `[servers.env]`.
        env: Vec<(String, PlannedValue)>,
        /// A file with more variables.
        env_file: Option<String>,
        /// `cwd`.
        cwd: Option<String>,
    },
    /// A URL.
    Url {
        /// The pieces of the URL.
        url: Vec<UrlPiece>,
        /// `[servers.headers]`.
        headers: Vec<(String, PlannedValue)>,
    },
}

/// A piece of a URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UrlPiece {
    /// As written in `mgp.toml`.
    Literal(String),
    /// A secret, which is stored separately.
    Secret {
        /// Its label in the URL.
        name: String,
        /// Its value.
        value: String,
    },
}

/// A value of a variable or a header.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlannedValue {
    /// As written in `mgp.toml`.
    Literal(String),
    /// A secret, which is stored separately.
    Secret(String),
}

/// A server that is skipped, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedServer {
    /// Where it was found.
    pub origin: ServerOrigin,
    /// The reason.
    pub reason: SkipReason,
}

/// Why a server is skipped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// It would start this kernel.
    #[error("it is this kernel's own entry")]
    KernelItself,
    /// This kernel has it, under this id.
    #[error("it is here already, as {0}")]
    AlreadyPresent(String),
    /// Some of its values cannot be expressed here.
    #[error(transparent)]
    RenderFailed(#[from] RenderError),
    /// Its entry would be invalid.
    #[error("{0}")]
    InvalidEntry(String),
}

/// The planned changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Servers to add.
    pub servers: Vec<PlannedServer>,
    /// Skipped servers.
    pub skipped: Vec<SkippedServer>,
}

/// The inputs of a plan.
#[derive(Clone, Copy)]
pub struct Planner<'p> {
    /// `~`.
    pub home: &'p Path,
    /// The answers, by file and id of the input.
    pub answers: &'p BTreeMap<PathBuf, BTreeMap<String, InputAnswer>>,
    /// Whether a command is this kernel's own program.
    pub is_kernel_command: fn(&[String]) -> bool,
    /// This kernel's own endpoint.
    pub endpoint: &'p str,
    /// The id of an existing server with the same transport, variables, headers and folder.
    pub find_existing: &'p dyn Fn(&PlannedConnection) -> Option<String>,
}

impl Planner<'_> {
    /// Plans one server for each transport, under whatever names and in whatever files it was found; `taken` are the
    /// existing ids.
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
            // A server that one client enables is enabled.
            planned.disabled &= server.disabled;
            // A tool that one client hides is hidden.
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
    // Relative paths start at the folder of the project, as in the client.
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

/// Whether a word is a path relative to the working folder.
fn is_relative(word: &str) -> bool {
    word == "." || word == ".." || word.starts_with("./") || word.starts_with("../")
}

/// A program with a slash is a path; others are looked up in PATH.
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

/// The URL, with its secrets separated.
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
    // The order has no meaning, and differs between clients.
    values.sort();
    Ok(values)
}

/// Longest id, in bytes.
const ID_MAX: usize = 48;

/// A valid, free id: its name, then with the client's, then with a number.
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

/// A name with only letters, digits, dots, dashes and underscores; other runs become dashes.
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
