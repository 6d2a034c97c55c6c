//! One configuration file: the kernel's sections first, then each server for itself.

use std::collections::BTreeMap;
use std::path::Path;

use mgp_engine::servers::spec::ServerSpec;
use mgp_protocol::ids::ServerId;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::kernel::KernelConfig;
use super::ledger::Ledger;
use super::problem::{Problem, Weight};
use super::section::Section;
use super::server::{Background, read_server};
use super::source::Source;
use super::{BrokenServer, Entries, Env};

/// An entry of `[[servers]]` as it stands in its file.
type Entry<'t> = Spanned<DeValue<'t>>;

/// Reads a file over what weaker files said.
pub(super) fn read(
    text: &str,
    path: &Path,
    env: &Env<'_>,
    kernel: &mut KernelConfig,
) -> (Entries, Vec<Problem>) {
    let mut ledger = Ledger::new(Source { path, text });
    let servers = match DeTable::parse(text) {
        Ok(table) => read_table(&mut ledger, table.get_ref(), env, kernel),
        Err(error) => {
            let message = format!("not TOML: {}", error.message());
            let span = error.span().unwrap_or_default();
            ledger.note(Weight::Fatal, span, message);
            Vec::new()
        }
    };
    let place = |p: &Problem| p.place.as_ref().map(|at| (at.line, at.column));
    ledger.problems.sort_by_key(place);
    (servers, ledger.problems)
}

fn read_table<'t>(
    ledger: &mut Ledger<'_>,
    table: &'t DeTable<'t>,
    env: &Env<'_>,
    kernel: &mut KernelConfig,
) -> Entries {
    let folder = ledger.source.path.parent().unwrap_or(Path::new(""));
    let mut root = Section::root(ledger, table);
    kernel.read(&mut root, folder, env);
    let entries = match root
        .take("servers")
        .map(|list| (list.span(), list.get_ref()))
    {
        Some((_, DeValue::Array(entries))) => entries.iter().collect(),
        Some((span, _)) => {
            root.refuse(
                span,
                "`servers` is a list: write [[servers]] above each server",
            );
            Vec::new()
        }
        None => Vec::new(),
    };
    root.finish();
    let KernelConfig {
        limits,
        tools,
        permissions,
        pin,
        sandbox,
        ..
    } = &*kernel;
    read_entries(
        ledger,
        &entries,
        &Background {
            folder,
            env,
            limits,
            tools,
            permissions,
            pin: *pin,
            sandbox,
        },
    )
}

fn read_entries<'t>(
    ledger: &mut Ledger<'_>,
    entries: &[&'t Entry<'t>],
    background: &Background<'_>,
) -> Entries {
    let mut lines: BTreeMap<ServerId, Vec<usize>> = BTreeMap::new();
    for entry in entries {
        if let Ok(id) = read_id(entry) {
            let line = ledger.source.line(entry.span().start);
            lines.entry(id).or_default().push(line);
        }
    }
    let mut read = |entry: &&'t Entry<'t>| {
        let id = match read_id(entry) {
            Ok(id) => id,
            Err(message) => return Err(broken(ledger, entry, None, message)),
        };
        match lines[&id].as_slice() {
            [_] => read_entry(ledger, entry, id, background),
            [first, others @ ..] => {
                let others: Vec<_> = others.iter().map(usize::to_string).collect();
                let others = others.join(", ");
                let message =
                    format!("more than one server is called `{id}`: lines {first} and {others}");
                Err(broken(ledger, entry, Some(id), message))
            }
            [] => unreachable!("every readable id has a line"),
        }
    };
    entries.iter().map(&mut read).collect()
}

fn read_id(entry: &Entry<'_>) -> Result<ServerId, String> {
    let id = entry.get_ref().get("id").ok_or("this server has no `id`")?;
    let text = id
        .get_ref()
        .as_str()
        .ok_or("the `id` of a server is a text")?;
    ServerId::parse(text).map_err(|e| e.to_string())
}

fn broken(
    ledger: &mut Ledger<'_>,
    entry: &Entry<'_>,
    id: Option<ServerId>,
    message: String,
) -> BrokenServer {
    let span = entry.get_ref().get("id").unwrap_or(entry).span();
    let problem = ledger.note(Weight::Entry, span, message).clone();
    BrokenServer { id, problem }
}

fn read_entry<'t>(
    ledger: &mut Ledger<'_>,
    entry: &'t Entry<'t>,
    id: ServerId,
    background: &Background<'_>,
) -> Result<ServerSpec, BrokenServer> {
    let table = entry
        .get_ref()
        .as_table()
        .expect("what has an id is a table");
    let before = ledger.problems.len();
    let section = Section::entry(ledger, table, format!("server `{id}`"));
    let spec = read_server(section, id.clone(), background);
    let wrong = |p: &&Problem| p.weight != Weight::Warning;
    let found = || ledger.problems[before..].iter().filter(wrong);
    // A misspelt key is the cause of the missing one.
    match (
        found()
            .find(|p| p.nearest.is_some())
            .or_else(|| found().next()),
        spec,
    ) {
        (None, Some(spec)) => Ok(spec),
        (Some(problem), _) => Err(BrokenServer {
            id: Some(id),
            problem: problem.clone(),
        }),
        (None, None) => unreachable!("an entry without a spec says why"),
    }
}

/// Every key there is, as `section.key`: what reading a file with one server asks for.
#[cfg(test)]
pub(super) fn known_keys() -> Vec<String> {
    let text = "[[servers]]\nid = \"x\"\ncommand = \"c\"\n";
    let path = Path::new("mgp.toml");
    let mut ledger = Ledger::new(Source { path, text });
    let table = DeTable::parse(text).expect("it is TOML");
    read_table(
        &mut ledger,
        table.get_ref(),
        &|_| None,
        &mut KernelConfig::default(),
    );
    ledger.known.into_iter().collect()
}
