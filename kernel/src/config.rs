//! Reads `mgp.toml` (MGP §15.2): servers and settings of the kernel.
//!
//! A broken entry does not affect the others: each server is read separately, and every problem is reported with its
//! file, line and column.

mod changes;
/// Edits of a file that preserve comments.
pub(crate) mod edit;
mod file;
mod kernel;
mod mentions;
pub(crate) mod named_secrets;
mod parsing;
mod references;
mod sections;
mod server;
mod start_order;

use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::path::Path;

use mgp_discovery::{ConfigFile, ConfigKind, ConfigLookup, ConfigLookupError, config_files};
use mgp_engine::doors::suggestions::nearest_name;
use mgp_engine::policy::access::ToolSets;
use mgp_engine::servers::spec::ServerSpec;
use mgp_protocol::ids::{AgentId, ServerId, SetName};
use mgp_store::regular_file;

pub(crate) use changes::{WrittenKeys, pending_restart};
pub(crate) use kernel::KernelConfig;
pub(crate) use mentions::Mention;
pub(crate) use mentions::mentions_of_set;
pub(crate) use parsing::NAME_PLACEHOLDER as NAME_IN_COMMAND;
pub(crate) use parsing::{Env, Lookup, Problem, SecretsConfig, Severity, VariableLookup};
pub(crate) use references::{
    ReadKind, ReadReference, SecretReference, read_references, secret_references,
};
pub use sections::cluster::ClusterConfig;
pub(crate) use sections::cluster::{ADVERTISED_MAX, check_host_port};
pub(crate) use sections::http::HttpAuth;
pub(crate) use sections::http::lite::LiteConfig;
pub(crate) use sections::http::telemetry::{OtlpProtocol, TelemetryConfig};
pub(crate) use sections::notify::NotifyConfig;
pub(crate) use sections::{LogFormat, RegistryConfig, UpdatesConfig};

use self::file::ParsedFile;
use crate::trust::{self, FILE_BYTES_MAX, ProjectFile, TrustStore};

/// The loaded configuration. Contains secrets: its `Debug` shows names only.
pub struct LoadedConfig {
    /// The kernel's own sections.
    pub kernel: KernelConfig,
    /// The keys of those sections, as written.
    pub(crate) written_keys: WrittenKeys,
    /// Every server, in the order of the files, the strongest file first.
    pub servers: Vec<Result<ServerSpec, BrokenServer>>,
    /// All problems, in the order of the files and lines.
    pub(crate) problems: Vec<Problem>,
    /// The files in force and the paths to watch.
    pub(crate) files: Vec<ConfigFile>,
    /// The result for the project's file.
    pub(crate) project: ProjectFile,
    /// Values that may be secrets.
    secrets: Vec<String>,
}

/// A server with an invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenServer {
    /// Its id, if valid.
    pub id: Option<ServerId>,
    /// Its first problem.
    pub(crate) problem: Problem,
}

impl LoadedConfig {
    /// A configuration without files.
    #[must_use]
    pub(crate) fn without_files(kernel: KernelConfig, servers: Vec<ServerSpec>) -> Self {
        Self {
            kernel,
            written_keys: WrittenKeys::default(),
            servers: servers.into_iter().map(Ok).collect(),
            problems: Vec::new(),
            files: Vec::new(),
            project: ProjectFile::default(),
            secrets: Vec::new(),
        }
    }

    /// Whether the kernel may start with, or apply, this configuration.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.problems.iter().all(|p| p.severity != Severity::Fatal)
    }

    /// The files in force: all that exist, except an untrusted project's.
    pub(crate) fn files_in_force(&self) -> impl Iterator<Item = &ConfigFile> {
        let holds = |f: &&ConfigFile| {
            f.kind != ConfigKind::Project || self.project.effective_text.is_some()
        };
        self.files.iter().filter(|f| f.exists).filter(holds)
    }

    /// Values that may be secrets, and so are masked.
    #[must_use]
    pub(crate) fn secrets(&self) -> Vec<String> {
        self.secrets.clone()
    }
}

impl fmt::Debug for LoadedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.servers.iter().map(|s| match s {
            Ok(spec) => Ok(&spec.id),
            Err(broken) => Err(&broken.problem),
        });
        f.debug_struct("LoadedConfig")
            .field("kernel", &self.kernel)
            .field("servers", &ids.collect::<Vec<_>>())
            .field("problems", &self.problems)
            .field("files", &self.files)
            .finish()
    }
}

/// Finds and reads the configuration; the strongest file wins for each server id and each key. A project's file is read
/// as far as its user trusts it; if that is its previous version, `held` must be that version's text.
///
/// # Errors
/// If a file that was named explicitly is missing. All other problems are in [`LoadedConfig::problems`].
pub(crate) fn load_with_env(
    look_up: &ConfigLookup,
    env: &Env<'_>,
    held: Option<&str>,
) -> Result<LoadedConfig, ConfigLookupError> {
    let files = config_files(look_up)?;
    let store = TrustStore::open(look_up.trust_file().as_deref());
    let mut loaded = LoadedConfig::without_files(KernelConfig::default(), Vec::new());
    let mut parts = Vec::new();
    // The weakest first; stronger ones override its keys.
    for file in files.iter().rev().filter(|f| f.exists) {
        let text = match file.kind {
            ConfigKind::Project => {
                loaded.project = trust::evaluate(&file.path, &store, held);
                loaded.project.effective_text.clone().map(Ok)
            }
            ConfigKind::User | ConfigKind::Override => Some(read_text(file)),
        };
        let part = match text {
            Some(Ok(text)) => {
                loaded.written_keys.add_file(&text);
                file::read_file(&text, &file.path, env, &mut loaded.kernel)
            }
            Some(Err(problem)) => ParsedFile {
                problems: vec![problem],
                ..ParsedFile::default()
            },
            None => continue,
        };
        parts.push(part);
    }
    let (mut seen, mut orders) = (HashSet::new(), Vec::new());
    for part in parts.into_iter().rev() {
        let first = |entry: &_| server_id(entry).is_none_or(|id| seen.insert(id.clone()));
        loaded
            .servers
            .extend(part.servers.into_iter().filter(first));
        loaded.problems.extend(part.problems);
        orders.extend(part.start_orders);
        loaded.secrets.extend(part.masked);
    }
    // Secrets within longer texts may appear alone, too.
    loaded.secrets.extend(env.resolved_secrets());
    let wrong = start_order::check(&mut loaded.servers, &orders);
    loaded.problems.extend(wrong);
    loaded
        .problems
        .extend(agents_with_unknown_sets(&loaded.kernel.sets, &files));
    Ok(LoadedConfig { files, ..loaded })
}

/// Agents with an assigned set that no file defines: they see nothing.
fn agents_with_unknown_sets(sets: &ToolSets, files: &[ConfigFile]) -> Vec<Problem> {
    let lost = sets
        .by_agent
        .iter()
        .filter(|(_, set)| !sets.by_name.contains_key(set));
    let mut lost: Vec<_> = lost.collect();
    lost.sort();
    let file = files.iter().find(|file| file.exists);
    let file = file.map(|file| file.path.clone()).unwrap_or_default();
    let problem = |(agent, set): (&AgentId, &SetName)| Problem {
        severity: Severity::Warning,
        file: file.clone(),
        location: None,
        message: format!("{agent} is held to the set `{set}`, which there is not: it sees nothing"),
        nearest: nearest_name(set.as_str(), sets.by_name.keys().map(SetName::as_str))
            .map(str::to_owned),
    };
    lost.into_iter().map(problem).collect()
}

/// Like [`load_with_env`], if values of secrets do not matter: each is the variable of its name.
///
/// # Errors
/// As [`load_with_env`].
pub fn load(
    look_up: &ConfigLookup,
    variables: &VariableLookup<'_>,
    held: Option<&str>,
) -> Result<LoadedConfig, ConfigLookupError> {
    load_with_env(look_up, &variables, held)
}

/// The problem of one server if `path` contained `text`, with any variables.
#[must_use]
pub(crate) fn check_server(text: &str, path: &Path, id: &str) -> Option<Problem> {
    let ParsedFile {
        servers, problems, ..
    } = parse_file_alone(text, path);
    let broken = servers.into_iter().filter_map(Result::err);
    let mut its_own = broken.filter(|b| b.id.as_ref().is_none_or(|of| of.as_str() == id));
    let fatal = || problems.into_iter().find(|p| p.severity == Severity::Fatal);
    its_own.next().map(|b| b.problem).or_else(fatal)
}

/// All problems if `path` contained `text`, with any variables. Nothing it refers to is opened.
#[must_use]
pub(crate) fn check_text(text: &str, path: &Path) -> Vec<Problem> {
    parse_file_alone(text, path).problems
}

type ServerResults = Vec<Result<ServerSpec, BrokenServer>>;

fn parse_file_alone(text: &str, path: &Path) -> ParsedFile {
    file::read_file(
        text,
        path,
        &parsing::PlaceholderLookup,
        &mut KernelConfig::default(),
    )
}

fn server_id(entry: &Result<ServerSpec, BrokenServer>) -> Option<&ServerId> {
    match entry {
        Ok(spec) => Some(&spec.id),
        Err(broken) => broken.id.as_ref(),
    }
}

fn read_text(file: &ConfigFile) -> Result<String, Problem> {
    let problem = |message: String| Problem {
        severity: Severity::Fatal,
        file: file.path.clone(),
        location: None,
        message,
        nearest: None,
    };
    let opened = regular_file::open(&file.path).map_err(|e| problem(e.to_string()))?;
    let mut bytes = Vec::new();
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|e| problem(e.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(problem(format!(
            "more than {FILE_BYTES_MAX} bytes are too many for a configuration"
        )));
    }
    String::from_utf8(bytes).map_err(|_| problem("the file is not UTF-8".into()))
}

#[cfg(test)]
mod tests;
