//! What would be added to this kernel's servers, out of what was found in all files.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::client::Client;
use crate::found::{FoundReach, FoundServer, KeyLeftOut};
use crate::render::{Renderer, Unrendered};
use crate::secret_values::is_secret;
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
    /// Its servers.
    pub servers: Vec<FoundServer>,
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
        /// There.
        url: String,
        /// `[servers.headers]`.
        headers: Vec<(String, PlannedValue)>,
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
#[derive(Clone, Copy, Debug)]
pub struct Planner<'p> {
    /// `~`.
    pub home: &'p Path,
    /// What was answered, by the id of the input.
    pub answers: &'p BTreeMap<String, String>,
    /// Whether a command is this kernel's own program.
    pub own: fn(&[String]) -> bool,
    /// This kernel's own door.
    pub door: &'p str,
    /// The servers there are, by id: the words of a command, or one URL.
    pub here: &'p [(String, Vec<String>)],
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
        if let Some(id) = self.is_here(&reach) {
            let why = WhyLeft::Here(id.to_owned());
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
            return;
        }
        let id = free_id(&server.name, file.client, taken);
        taken.insert(id.clone());
        plan.servers.push(PlannedServer {
            id,
            origins: vec![origin],
            reach,
            disabled: server.disabled,
            left_out: server.left_out.clone(),
        });
    }

    fn reach(
        &self,
        file: &ClientFileRead,
        server: &FoundServer,
    ) -> Result<PlannedReach, Unrendered> {
        let project = server.project.as_deref().map(Path::new);
        let renderer = Renderer {
            home: self.home,
            project: project.or(file.project.as_deref()),
            answers: self.answers,
        };
        let rendered = |text: &Option<FoundText>| {
            let rendered = text.as_ref().map(|text| renderer.render(text));
            rendered.transpose()
        };
        Ok(match &server.reach {
            FoundReach::Command {
                command,
                args,
                env,
                env_file,
                cwd,
            } => {
                let words = std::iter::once(command).chain(args);
                PlannedReach::Command {
                    words: words
                        .map(|word| renderer.render(word))
                        .collect::<Result<_, _>>()?,
                    env: values(&renderer, env)?,
                    env_file: rendered(env_file)?,
                    // Clients start the servers of a project in its folder.
                    cwd: rendered(cwd)?.or_else(|| {
                        renderer
                            .project
                            .map(|folder| folder.to_string_lossy().into_owned())
                    }),
                }
            }
            FoundReach::Url { url, headers } => PlannedReach::Url {
                url: renderer.render(url)?,
                headers: values(&renderer, headers)?,
            },
        })
    }

    fn is_here(&self, reach: &PlannedReach) -> Option<&str> {
        let reached = match reach {
            PlannedReach::Command { words, .. } => words.as_slice(),
            PlannedReach::Url { url, .. } => std::slice::from_ref(url),
        };
        let here = self.here.iter().find(|(_, here)| here == reached);
        here.map(|(id, _)| id.as_str())
    }

    fn is_own(&self, reach: &PlannedReach) -> bool {
        match reach {
            PlannedReach::Command { words, .. } => (self.own)(words),
            PlannedReach::Url { url, .. } => {
                let rest = url.strip_prefix(self.door);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }
}

fn values(
    renderer: &Renderer<'_>,
    values: &[(String, FoundText)],
) -> Result<Vec<(String, PlannedValue)>, Unrendered> {
    let value = |name: &str, text: &FoundText| match renderer.value(text) {
        Some(value) if is_secret(name, &value) => Ok(PlannedValue::Secret(value)),
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
