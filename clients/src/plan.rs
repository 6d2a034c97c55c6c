//! What would be added to this kernel's servers, out of what was found in all files.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::client::Client;
use crate::found::{FoundReach, FoundServer, KeyLeftOut, ToolLimits};
use crate::render::{InputAnswer, Renderer, Unrendered};
use crate::secret_values::{is_secret, url_secrets};
use crate::text::FoundText;

/// A file that was read, and what it holds.
#[derive(Clone, Debug)]
pub struct ClientFileRead {
    /// Whose it is; `None` for a file that was named.
    pub client: Option<Client>,
    /// The file.
    pub path: PathBuf,
    /// The folder of the project it is of.
    pub project: Option<PathBuf>,
    /// Which of its servers start in that folder.
    pub starts: ProjectStarts,
    /// Its servers.
    pub servers: Vec<FoundServer>,
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
    pub reach: PlannedReach,
    /// It stays off.
    pub disabled: bool,
    /// The setting outside of its entry that switches it off.
    pub disabled_by: Option<&'static str>,
    /// The tools that its clients keep back.
    pub tools: ToolLimits,
    /// Questions whose answers are secrets and stand on its command line.
    pub open_answers: Vec<String>,
    /// What its entries had that has no place here.
    pub left_out: Vec<KeyLeftOut>,
}

/// How it is reached, in the words of `mgp.toml`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlannedReach {
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
    Written(String),
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
    Written(String),
    /// A secret, which is kept apart.
    Secret(String),
}

/// A server that is not added, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unplanned {
    /// Where it was found.
    pub origin: ServerOrigin,
    /// Why.
    pub why: WhyLeft,
}

/// Why a server is not added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyLeft {
    /// It would start this kernel.
    #[error("it is this kernel's own entry")]
    Own,
    /// This kernel has it, under this id.
    #[error("it is here already, as {0}")]
    Here(String),
    /// Some of its values mean nothing here.
    #[error(transparent)]
    Unrendered(#[from] Unrendered),
    /// Its entry would not be read.
    #[error("{0}")]
    Refused(String),
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// These are added.
    pub servers: Vec<PlannedServer>,
    /// These are not.
    pub left: Vec<Unplanned>,
}

/// What a plan is made with.
#[derive(Clone, Copy)]
pub struct Planner<'p> {
    /// `~`.
    pub home: &'p Path,
    /// What was answered, by the file that asks and the id of the input.
    pub answers: &'p BTreeMap<PathBuf, BTreeMap<String, InputAnswer>>,
    /// Whether a command is this kernel's own program.
    pub own: fn(&[String]) -> bool,
    /// This kernel's own door.
    pub door: &'p str,
    /// The id of the server that is reached so, with the same variables and headers, and in the same folder.
    pub here: &'p dyn Fn(&PlannedReach) -> Option<String>,
}

impl Planner<'_> {
    /// One server for each way a server is reached, whatever it is called and wherever it was found; `taken`
    /// are the ids there are.
    #[must_use]
    pub fn plan(&self, files: &[ClientFileRead], taken: &BTreeSet<String>) -> Plan {
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
        file: &ClientFileRead,
        server: &FoundServer,
    ) {
        let origin = ServerOrigin {
            client: file.client,
            path: file.path.clone(),
            name: server.name.clone(),
            project: server.project.clone(),
        };
        let reach = match self.reach(file, server) {
            Ok(reach) => reach,
            Err(unrendered) => {
                let why = unrendered.into();
                return plan.left.push(Unplanned { origin, why });
            }
        };
        if self.is_own(&reach) {
            let why = WhyLeft::Own;
            return plan.left.push(Unplanned { origin, why });
        }
        if let Some(id) = (self.here)(&reach) {
            let why = WhyLeft::Here(id);
            return plan.left.push(Unplanned { origin, why });
        }
        let same = plan
            .servers
            .iter_mut()
            .find(|planned| planned.reach == reach);
        if let Some(planned) = same {
            planned.origins.push(origin);
            // A server that one client uses is wanted.
            planned.disabled &= server.disabled;
            // What one client keeps back stays kept back.
            planned.tools.narrow(&server.tools);
            for left in &server.left_out {
                if !planned.left_out.contains(left) {
                    planned.left_out.push(left.clone());
                }
            }
            return;
        }
        let id = free_id(&server.name, file.client, taken);
        taken.insert(id.clone());
        plan.servers.push(PlannedServer {
            id,
            origins: vec![origin],
            reach,
            disabled: server.disabled,
            disabled_by: server.disabled_by,
            tools: server.tools.clone(),
            open_answers: self.open_answers(file, server),
            left_out: server.left_out.clone(),
        });
    }

    fn renderer<'r>(&'r self, file: &'r ClientFileRead, server: &'r FoundServer) -> Renderer<'r> {
        let project = server.project.as_deref().map(Path::new);
        Renderer {
            home: self.home,
            project: project.or(file.project.as_deref()),
            answers: self.answers.get(&file.path),
        }
    }

    fn open_answers(&self, file: &ClientFileRead, server: &FoundServer) -> Vec<String> {
        let FoundReach::Command { command, args, .. } = &server.reach else {
            return Vec::new();
        };
        let renderer = self.renderer(file, server);
        let words = std::iter::once(command).chain(args);
        let open = words.filter(|word| renderer.has_secret_answer(word));
        open.flat_map(FoundText::inputs)
            .map(str::to_owned)
            .collect()
    }

    fn reach(
        &self,
        file: &ClientFileRead,
        server: &FoundServer,
    ) -> Result<PlannedReach, Unrendered> {
        let renderer = self.renderer(file, server);
        match &server.reach {
            FoundReach::Command { .. } => started(&renderer, file, server),
            FoundReach::Url { url, headers } => Ok(PlannedReach::Url {
                url: url_pieces(&renderer, url)?,
                headers: values(&renderer, headers)?,
            }),
        }
    }

    fn is_own(&self, reach: &PlannedReach) -> bool {
        match reach {
            PlannedReach::Command { words, .. } => (self.own)(words),
            PlannedReach::Url { url, .. } => {
                let Some(UrlPiece::Written(url)) = url.first() else {
                    return false;
                };
                let rest = url.strip_prefix(self.door);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }
}

fn started(
    renderer: &Renderer<'_>,
    file: &ClientFileRead,
    server: &FoundServer,
) -> Result<PlannedReach, Unrendered> {
    let FoundReach::Command {
        command,
        args,
        env,
        env_file,
        cwd,
    } = &server.reach
    else {
        return Err(Unrendered::NoFolder);
    };
    let folder = renderer.project.map(Path::to_owned);
    let rendered = |text: &Option<FoundText>| {
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
        let folder = folder.as_deref().ok_or(Unrendered::RelativeCommand)?;
        *program = below(folder, program);
    }
    let starts_there = server.project.is_some() || file.starts == ProjectStarts::All || relative;
    // A path that is relative starts at the folder of the project, as for the client.
    let from_folder = |path: String| match &folder {
        Some(folder) if !path.starts_with(['/', '~', '$']) => below(folder, &path),
        Some(_) | None => path,
    };
    let cwd = rendered(cwd)?.map(from_folder);
    let there = folder.as_ref().filter(|_| starts_there);
    Ok(PlannedReach::Command {
        words,
        env: values(renderer, env)?,
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

fn below(folder: &Path, path: &str) -> String {
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
fn url_pieces(renderer: &Renderer<'_>, url: &FoundText) -> Result<Vec<UrlPiece>, Unrendered> {
    let text = renderer.render(url)?;
    let mut pieces = Vec::new();
    let (mut rest, mut names) = (text.as_str(), BTreeSet::new());
    for secret in url_secrets(&text) {
        let lead = secret.lead();
        let Some(at) = rest.find(&format!("{lead}{}", secret.value)) else {
            continue;
        };
        let (before, behind) = rest.split_at(at + lead.len());
        pieces.push(UrlPiece::Written(before.to_owned()));
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
    pieces.push(UrlPiece::Written(rest.to_owned()));
    pieces.retain(|piece| !matches!(piece, UrlPiece::Written(text) if text.is_empty()));
    Ok(pieces)
}

fn values(
    renderer: &Renderer<'_>,
    values: &[(String, FoundText)],
) -> Result<Vec<(String, PlannedValue)>, Unrendered> {
    let value = |name: &str, text: &FoundText| match renderer.value(text) {
        Some(value) if is_secret(name, &value) || renderer.has_secret_answer(text) => {
            Ok(PlannedValue::Secret(value))
        }
        _ => renderer.render(text).map(PlannedValue::Written),
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
    let name = id_of(name);
    let of_client = client.map(|client| joined(&name, client.word()));
    let numbered = (2..).map(|n: u32| joined(&name, &n.to_string()));
    let mut ids = std::iter::once(name.clone())
        .chain(of_client)
        .chain(numbered);
    ids.find(|id| !taken.contains(id)).unwrap_or(name)
}

fn joined(name: &str, end: &str) -> String {
    let room = ID_MAX - end.len() - 1;
    format!("{}-{end}", &name[..name.len().min(room)])
}

/// The letters, digits, dots, dashes and underscores of a name; dashes for runs of anything else.
fn id_of(name: &str) -> String {
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
