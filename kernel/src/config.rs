//! Reads `mgp.toml` (MGP §15.2): which servers there are and how the kernel behaves.
//!
//! One broken entry never stops the others: each server is read for itself, and everything that is
//! wrong is told with its file, line and column.

mod audit;
mod changes;
mod discovery;
/// Edits of a file that keep its comments.
pub mod edit;
mod file;
mod kernel;
mod ledger;
mod mentions;
mod nearest;
mod oauth;
mod permissions;
mod problem;
mod reach;
mod sandbox;
mod section;
mod server;
mod source;
mod tls;
mod tools;
mod values;

use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::path::Path;

use mgp_discovery::config::{ConfigFile, ConfigKind, LookUp, LookUpError, config_files};
use mgp_engine::servers::spec::{Reach, ServerSpec};
use mgp_protocol::ids::ServerId;

pub use audit::Audit;
pub use changes::{Written, waiting};
pub use discovery::Discovery;
pub use kernel::{
    Access, Auth, DataFolder, Http, KernelConfig, Lists, Log, Questions, Socket, Streams,
};
pub use mentions::Mention;
pub use oauth::OAuth;
pub use problem::{Place, Problem, Weight};

use crate::paths::open_file;
use crate::trust::{self, Book, Project};

/// How a variable of the kernel's environment is looked up.
pub type Env<'e> = dyn Fn(&str) -> Option<String> + 'e;

/// Largest configuration file, in bytes: a thousand servers fit, a wrong file does not.
pub const MAX_FILE: u64 = 1 << 20;

/// The configuration as it was read. Holds secrets: its `Debug` shows names only.
pub struct Loaded {
    /// The kernel's own sections.
    pub kernel: KernelConfig,
    /// What stands in those sections, key by key.
    pub written: Written,
    /// Every server, in the order of the files, the strongest file first.
    pub servers: Vec<Result<ServerSpec, BrokenServer>>,
    /// Everything that is wrong, in the order of the files and lines.
    pub problems: Vec<Problem>,
    /// The files in force and the places to watch.
    pub files: Vec<ConfigFile>,
    /// What became of the project's file.
    pub project: Project,
}

/// A server that cannot be started as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenServer {
    /// Its id, when it has a usable one.
    pub id: Option<ServerId>,
    /// The first thing that is wrong with it.
    pub problem: Problem,
}

impl Loaded {
    /// Whether the kernel may start, or take this over, with what was read.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.problems.iter().all(|p| p.weight != Weight::Fatal)
    }

    /// The files in force: all that are there but a project's that is left out.
    pub fn in_force(&self) -> impl Iterator<Item = &ConfigFile> {
        let holds = |f: &&ConfigFile| f.kind != ConfigKind::Project || self.project.held.is_some();
        self.files.iter().filter(|f| f.present).filter(holds)
    }

    /// Values of variables and headers: they may be secrets, and so are in no record.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        let servers = self.servers.iter().filter_map(|s| s.as_ref().ok());
        let of = |spec: &ServerSpec| match &spec.reach {
            Reach::Stdio { env, .. } => env.values().cloned().collect::<Vec<_>>(),
            Reach::Http { headers, .. } => {
                // Of `Bearer SECRET`, the secret may stand alone somewhere.
                let last = |value: &String| value.rsplit(' ').next().map(str::to_owned);
                let alone = headers.values().filter_map(last);
                headers.values().cloned().chain(alone).collect()
            }
        };
        let own = self.kernel.discovery.secret().map(str::to_owned);
        servers.flat_map(of).chain(own).collect()
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.servers.iter().map(|s| match s {
            Ok(spec) => Ok(&spec.id),
            Err(broken) => Err(&broken.problem),
        });
        f.debug_struct("Loaded")
            .field("kernel", &self.kernel)
            .field("servers", &ids.collect::<Vec<_>>())
            .field("problems", &self.problems)
            .field("files", &self.files)
            .finish()
    }
}

/// Looks the configuration up and reads it. A project's file is read as far as its user trusts it;
/// where that is its version before, `held` has to be that version's text.
///
/// # Errors
/// When a file that was asked for by name is missing. Everything else that is wrong is in
/// [`Loaded::problems`].
pub fn load(look_up: &LookUp, env: &Env<'_>, held: Option<&str>) -> Result<Loaded, LookUpError> {
    let files = config_files(look_up)?;
    let book = Book::open(look_up.trust_file().as_deref());
    Ok(read_trusting(files, env, &book, held))
}

/// Reads the files, the strongest first; the strongest wins for each server id and each key. Of a
/// project nothing is read.
#[must_use]
pub fn read(files: Vec<ConfigFile>, env: &Env<'_>) -> Loaded {
    read_trusting(files, env, &Book::default(), None)
}

fn read_trusting(files: Vec<ConfigFile>, env: &Env<'_>, book: &Book, held: Option<&str>) -> Loaded {
    let mut project = Project::default();
    let mut texts = Vec::new();
    for file in files.iter().filter(|f| f.present) {
        let path = file.path.as_path();
        if file.kind != ConfigKind::Project {
            texts.push((path, text(file)));
            continue;
        }
        project = trust::judge(path, book, held);
        texts.extend(project.held.clone().map(|held| (path, Ok(held))));
    }
    let mut written = Written::default();
    for text in texts
        .iter()
        .rev()
        .filter_map(|(_, text)| text.as_ref().ok())
    {
        written.add(text);
    }
    let (kernel, servers, problems) = merge(texts, env);
    Loaded {
        kernel,
        written,
        servers,
        problems,
        files,
        project,
    }
}

/// What would be wrong with one server if `path` held `text`, wherever its variables come from.
#[must_use]
pub fn judge(text: &str, path: &Path, id: &str) -> Option<Problem> {
    let mut kernel = KernelConfig::default();
    let (servers, problems) = file::read(text, path, &|_| Some("https://set".into()), &mut kernel);
    let broken = servers.into_iter().filter_map(Result::err);
    let mut its_own = broken.filter(|b| b.id.as_ref().is_none_or(|of| of.as_str() == id));
    let fatal = || problems.into_iter().find(|p| p.weight == Weight::Fatal);
    its_own.next().map(|b| b.problem).or_else(fatal)
}

/// Everything that would be wrong if `path` held `text`, wherever its variables come from.
#[must_use]
pub fn problems(text: &str, path: &Path) -> Vec<Problem> {
    let mut kernel = KernelConfig::default();
    file::read(text, path, &|_| Some("https://set".into()), &mut kernel).1
}

type Entries = Vec<Result<ServerSpec, BrokenServer>>;

fn merge(
    texts: Vec<(&Path, Result<String, Problem>)>,
    env: &Env<'_>,
) -> (KernelConfig, Entries, Vec<Problem>) {
    let mut kernel = KernelConfig::default();
    let (mut parts, mut problems): (Vec<Entries>, Vec<Vec<Problem>>) = Default::default();
    for (path, text) in texts.into_iter().rev() {
        let (servers, found) = match text {
            Ok(text) => file::read(&text, path, env, &mut kernel),
            Err(problem) => (Vec::new(), vec![problem]),
        };
        parts.push(servers);
        problems.push(found);
    }
    let mut seen = HashSet::new();
    let mut servers = parts.into_iter().rev().flatten().collect::<Entries>();
    servers.retain(|entry| id_of(entry).is_none_or(|id| seen.insert(id.clone())));
    (
        kernel,
        servers,
        problems.into_iter().rev().flatten().collect(),
    )
}

fn id_of(entry: &Result<ServerSpec, BrokenServer>) -> Option<&ServerId> {
    match entry {
        Ok(spec) => Some(&spec.id),
        Err(broken) => broken.id.as_ref(),
    }
}

fn text(file: &ConfigFile) -> Result<String, Problem> {
    let problem = |message: String| Problem {
        weight: Weight::Fatal,
        file: file.path.clone(),
        place: None,
        message,
        nearest: None,
    };
    let opened = open_file(&file.path).map_err(|e| problem(e.to_string()))?;
    let mut bytes = Vec::new();
    let read = opened.take(MAX_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|e| problem(e.to_string()))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(problem(format!(
            "more than {MAX_FILE} bytes are too many for a configuration"
        )));
    }
    String::from_utf8(bytes).map_err(|_| problem("the file is not UTF-8".into()))
}

#[cfg(test)]
mod tests;
