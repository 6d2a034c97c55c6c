//! One configuration file: first the kernel's sections, then each server.

use std::collections::BTreeMap;
use std::path::Path;

use mgp_engine::servers::spec::ServerSpec;
use mgp_protocol::ids::ServerId;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::kernel::KernelConfig;
use super::parsing::{Env, FileContext, Problem, Section, Severity, SourceFile, StartOrder};
use super::server::read_server;
use super::{BrokenServer, ServerResults};

/// The contents of one file.
#[derive(Default)]
pub(super) struct ParsedFile {
    pub(super) servers: ServerResults,
    pub(super) problems: Vec<Problem>,
    pub(super) start_orders: Vec<StartOrder>,
    /// Values that may be secrets.
    pub(super) masked: Vec<String>,
}

/// Reads a file, over the values of weaker files.
pub(super) fn read_file(
    text: &str,
    path: &Path,
    env: &Env<'_>,
    kernel: &mut KernelConfig,
) -> ParsedFile {
    let mut context = FileContext::new(SourceFile { path, text }, env);
    let servers = match DeTable::parse(text) {
        Ok(table) => read_table(&mut context, table.get_ref(), kernel),
        Err(error) => {
            let message = if text.trim_start().starts_with('{') {
                format!(
                    "not TOML but JSON, as clients write their servers down: `mgp import {}` takes these over",
                    path.display()
                )
            } else {
                format!("not TOML: {}", error.message())
            };
            context.add(Severity::Fatal, error.span().unwrap_or_default(), message);
            Vec::new()
        }
    };
    let location = |p: &Problem| p.location.as_ref().map(|at| (at.line, at.column));
    context.problems.sort_by_key(location);
    ParsedFile {
        servers,
        problems: context.problems,
        start_orders: context.start_orders,
        masked: context.masked,
    }
}

fn read_table<'t>(
    context: &mut FileContext<'_>,
    table: &'t DeTable<'t>,
    kernel: &mut KernelConfig,
) -> ServerResults {
    let entries = Section::read_root(context, table, |root| {
        kernel.read(root);
        let list = root.value("servers");
        let entries = list.and_then(|list| list.get_ref().as_array());
        if let (Some(other), None) = (list, entries) {
            let message = "`servers` is a list: write [[servers]] above each server";
            root.reject(other.span(), message);
        }
        entries
    });
    let entries: Vec<_> = entries.into_iter().flatten().collect();
    read_servers(context, &entries, kernel)
}

fn read_servers<'t>(
    context: &mut FileContext<'_>,
    entries: &[&'t Spanned<DeValue<'t>>],
    kernel: &KernelConfig,
) -> ServerResults {
    let mut lines: BTreeMap<ServerId, Vec<String>> = BTreeMap::new();
    for entry in entries {
        if let Ok(id) = read_id(entry) {
            let line = context.file.line_at(entry.span().start);
            lines.entry(id).or_default().push(line.to_string());
        }
    }
    let read = |entry: &&'t Spanned<DeValue<'t>>| {
        let id = match read_id(entry) {
            Ok(id) => id,
            Err(message) => return Err(broken_server(context, entry, None, message)),
        };
        match lines[&id].as_slice() {
            [first, others @ ..] if !others.is_empty() => {
                let others = others.join(", ");
                let message =
                    format!("more than one server is called `{id}`: lines {first} and {others}");
                Err(broken_server(context, entry, Some(id), message))
            }
            _ => read_entry(context, entry, id, kernel),
        }
    };
    entries.iter().map(read).collect()
}

fn broken_server(
    context: &mut FileContext<'_>,
    entry: &Spanned<DeValue<'_>>,
    id: Option<ServerId>,
    message: String,
) -> BrokenServer {
    let span = entry.get_ref().get("id").unwrap_or(entry).span();
    let problem = context.add(Severity::Server, span, message).clone();
    BrokenServer { id, problem }
}

fn read_id(entry: &Spanned<DeValue<'_>>) -> Result<ServerId, String> {
    let id = entry.get_ref().get("id").ok_or("this server has no `id`")?;
    let text = id.get_ref().as_str();
    ServerId::parse(text.ok_or("the `id` of a server is a text")?).map_err(|e| e.to_string())
}

fn read_entry<'t>(
    context: &mut FileContext<'_>,
    entry: &'t Spanned<DeValue<'t>>,
    id: ServerId,
    kernel: &KernelConfig,
) -> Result<ServerSpec, BrokenServer> {
    let table = entry.get_ref().as_table();
    let table = table.expect("what has an id is a table");
    let before = context.problems.len();
    let spec = Section::read_entry(context, table, format!("server `{id}`"), |entry| {
        read_server(entry, id.clone(), kernel)
    });
    let wrong = |p: &&Problem| p.severity != Severity::Warning;
    let found = || context.problems[before..].iter().filter(wrong);
    // A misspelled key is the cause of the missing one.
    let misspelt = found().find(|p| p.nearest.is_some());
    match (misspelt.or_else(|| found().next()), spec) {
        (None, Some(spec)) => Ok(spec),
        (Some(problem), _) => Err(BrokenServer {
            id: Some(id),
            problem: problem.clone(),
        }),
        (None, None) => unreachable!("an entry without a spec says why"),
    }
}

/// All known keys as `section.key`: those requested while reading a file with one server.
#[cfg(test)]
pub(super) fn known_keys() -> Vec<String> {
    let text = "[[servers]]\nid = \"x\"\ncommand = \"c\"\n";
    let path = Path::new("mgp.toml");
    let env = |_: &str| None::<String>;
    let mut context = FileContext::new(SourceFile { path, text }, &env);
    let table = DeTable::parse(text).expect("it is TOML");
    let mut kernel = KernelConfig::default();
    read_table(&mut context, table.get_ref(), &mut kernel);
    // A section whose keys are all below `[tuning]` is known only there.
    let known = context.known_keys;
    let has_keys = |section: &str| {
        known
            .iter()
            .any(|key| key.starts_with(&format!("{section}.")))
    };
    let is_only_tuning = |key: &&String| !has_keys(key) && has_keys(&format!("tuning.{key}"));
    let all = known.iter().filter(|key| !is_only_tuning(key));
    all.cloned().collect()
}
