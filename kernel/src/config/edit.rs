//! Edits of a configuration file that preserve all other lines and comments.

mod comments;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use comments::preserve_comments;
use mgp_clients::{ToolLimits, keep_line_ends};
use mgp_protocol::ids::{BadServerId, ServerId};
use mgp_store::atomic_file;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, TomlError, Value, value};

/// A server to add. Values may be references like `${KEY}`, which are not resolved.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct NewServer {
    pub(crate) id: String,
    /// `command` and `args`; empty for a remote server.
    pub(crate) command: Vec<String>,
    /// `url` of a remote server.
    pub(crate) url: Option<String>,
    /// `transport` of a remote server, if it is not `http`.
    pub(crate) transport: Option<String>,
    /// `[servers.env]`.
    pub(crate) env: Vec<(String, String)>,
    /// `[servers.headers]`.
    pub(crate) headers: Vec<(String, String)>,
    /// `cwd`.
    pub(crate) cwd: Option<String>,
    /// `start`, if it is not the default.
    pub(crate) start: Option<&'static str>,
    /// `idle_stop_secs`, if it is not the default.
    pub(crate) idle_stop_secs: Option<u32>,
    /// `[servers.mgp] trust_level`.
    pub(crate) trust_level: Option<String>,
    /// `[servers.mgp] seal`.
    pub(crate) seal: Option<String>,
    /// `[servers.mgp] entry_point`.
    pub(crate) entry_point: Option<String>,
    /// `[servers.mgp] restart_policy`.
    pub(crate) restart_policy: Option<String>,
    /// The tools that it offers or hides.
    pub(crate) tools: ToolLimits,
}

/// Why an edit was rejected. The text is unchanged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
    /// The text must be fixed before it can be edited.
    #[error("the file is not TOML (line {line}: {message})")]
    NotToml {
        /// From 1.
        line: usize,
        /// The parser's message.
        message: String,
    },
    /// The id is invalid.
    #[error(transparent)]
    InvalidId(#[from] BadServerId),
    /// The id is taken.
    #[error("there is already a server `{0}`")]
    DuplicateId(String),
    /// The id is unknown.
    #[error("there is no server `{0}`")]
    UnknownId(String),
    /// The entries have an unsupported form.
    #[error("`servers` is not written as [[servers]] tables; edit the file by hand")]
    UnsupportedForm,
}

/// Appends an entry to the file, after all comments.
///
/// # Errors
/// [`EditError`]; nothing is changed then.
pub(crate) fn add_entry(text: &str, server: &NewServer) -> Result<String, EditError> {
    ServerId::parse(&server.id)?;
    let mut document = parse(text)?;
    if entry_position(entries(&mut document)?, &server.id).is_some() {
        return Err(EditError::DuplicateId(server.id.clone()));
    }
    let mut entry = DocumentMut::new();
    entries(&mut entry)?.push(server.to_table());
    let with = match text.trim_end() {
        "" => entry.to_string(),
        above => format!("{above}\n\n{entry}"),
    };
    Ok(keep_line_ends(text, with))
}

/// Whether the file has an entry of this id.
#[must_use]
pub(crate) fn has_entry(text: &str, id: &str) -> bool {
    let document = parse(text);
    document.is_ok_and(|mut document| {
        entries(&mut document).is_ok_and(|servers| entry_position(servers, id).is_some())
    })
}

/// The ids of the entries in the file.
#[must_use]
pub(crate) fn ids(text: &str) -> Vec<String> {
    let Ok(mut document) = parse(text) else {
        return Vec::new();
    };
    let ids = entries(&mut document).map(|servers| {
        let ids = servers.iter().filter_map(|s| s.get("id")?.as_str());
        ids.map(str::to_owned).collect()
    });
    ids.unwrap_or_default()
}

/// The command of an entry and its arguments; `None` if it has a URL.
///
/// # Errors
/// [`EditError`].
pub(crate) fn read_command(
    text: &str,
    id: &str,
) -> Result<Option<(String, Vec<String>)>, EditError> {
    let mut document = parse(text)?;
    let entry = find_entry(&mut document, id)?;
    let Some(command) = entry.get("command").and_then(Item::as_str) else {
        return Ok(None);
    };
    let args = entry.get("args").and_then(Item::as_array);
    let args = args.into_iter().flatten();
    let args = args.map(|arg| arg.as_str().unwrap_or_default().to_owned());
    Ok(Some((command.to_owned(), args.collect())))
}

/// Hides tools of an entry, as a client did.
///
/// # Errors
/// [`EditError`]; nothing is changed then.
pub(crate) fn set_tool_limits(
    text: &str,
    id: &str,
    tools: &ToolLimits,
) -> Result<String, EditError> {
    let mut document = parse(text)?;
    apply_tool_limits(find_entry(&mut document, id)?, tools);
    Ok(keep_line_ends(text, document.to_string()))
}

/// Changes one argument of an entry's command in place.
///
/// # Errors
/// [`EditError`]; nothing is changed then.
pub(crate) fn set_argument(
    text: &str,
    id: &str,
    index: usize,
    argument: &str,
) -> Result<String, EditError> {
    let mut document = parse(text)?;
    let args = find_entry(&mut document, id)?.get_mut("args");
    let args = args.and_then(Item::as_array_mut);
    let argument_value = args.and_then(|args| args.get_mut(index));
    let argument_value = argument_value.ok_or(EditError::UnsupportedForm)?;
    let around = argument_value.decor().clone();
    *argument_value = Value::from(argument);
    *argument_value.decor_mut() = around;
    Ok(keep_line_ends(text, document.to_string()))
}

fn find_entry<'d>(document: &'d mut DocumentMut, id: &str) -> Result<&'d mut Table, EditError> {
    let servers = entries(document)?;
    let index = entry_position(servers, id).ok_or_else(|| EditError::UnknownId(id.to_owned()))?;
    Ok(servers.get_mut(index).expect("it was found there"))
}

/// Removes an entry, with the comment directly above it.
///
/// # Errors
/// [`EditError`]; nothing is changed then.
pub(crate) fn remove_entry(text: &str, id: &str) -> Result<String, EditError> {
    let mut document = parse(text)?;
    let servers = entries(&mut document)?;
    let index = entry_position(servers, id).ok_or_else(|| EditError::UnknownId(id.to_owned()))?;
    let removed = servers.get(index).expect("it was found there").clone();
    servers.remove(index);
    if servers.is_empty() {
        document.remove("servers");
    }
    preserve_comments(&mut document, &removed);
    Ok(keep_line_ends(text, document.to_string()))
}

/// Writes a file atomically. Its mode is preserved; a new file is readable only by its owner. A link is followed:
/// its target is written.
///
/// # Errors
/// The system's error; the file is unchanged then.
pub(crate) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let path = atomic_file::behind_links(path);
    if let Some(folder) = path.parent() {
        atomic_file::create_folder(folder)?;
    }
    let mode = fs::metadata(&path).map_or(0o600, |m| m.permissions().mode());
    atomic_file::write_with_mode(&path, text.as_bytes(), mode)
}

fn parse(text: &str) -> Result<DocumentMut, EditError> {
    text.parse().map_err(|e: TomlError| EditError::NotToml {
        line: text[..e.span().map_or(0, |s| s.start)]
            .matches('\n')
            .count()
            + 1,
        message: e.message().lines().collect::<Vec<_>>().join(", "),
    })
}

fn entries(document: &mut DocumentMut) -> Result<&mut ArrayOfTables, EditError> {
    let servers = document
        .entry("servers")
        .or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    servers
        .as_array_of_tables_mut()
        .ok_or(EditError::UnsupportedForm)
}

fn entry_position(servers: &ArrayOfTables, id: &str) -> Option<usize> {
    servers
        .iter()
        .position(|s| s.get("id").and_then(Item::as_str) == Some(id))
}

impl NewServer {
    fn to_table(&self) -> Table {
        let mut table = Table::new();
        table["id"] = value(&self.id);
        if let Some((command, args)) = self.command.split_first() {
            table["command"] = value(command);
            table["args"] = value(args.iter().collect::<Array>());
        }
        let mut set = |key: &str, to: Option<Value>| {
            if let Some(to) = to {
                table[key] = Item::Value(to);
            }
        };
        let spoken = self.transport.as_deref().unwrap_or("http");
        set("transport", self.url.as_ref().map(|_| spoken.into()));
        set("url", self.url.as_ref().map(Into::into));
        set("cwd", self.cwd.as_ref().map(Into::into));
        set("start", self.start.map(Into::into));
        let idle_stop = self.idle_stop_secs.map(i64::from);
        set("idle_stop_secs", idle_stop.map(Into::into));
        let mgp = [
            ("trust_level", &self.trust_level),
            ("seal", &self.seal),
            ("entry_point", &self.entry_point),
            ("restart_policy", &self.restart_policy),
        ];
        let mgp = mgp
            .into_iter()
            .filter_map(|(key, v)| Some((key, v.as_deref()?)));
        insert_table(&mut table, "mgp", mgp);
        insert_table(&mut table, "headers", as_str_pairs(&self.headers));
        insert_table(&mut table, "env", as_str_pairs(&self.env));
        apply_tool_limits(&mut table, &self.tools);
        table
    }
}

/// Adds hidden tools to the existing limits.
fn apply_tool_limits(entry: &mut Table, tools: &ToolLimits) {
    if let Some(only) = &tools.only {
        let before = entry.get("only_tools").and_then(Item::as_array);
        let before = before.map(|names| names.iter().filter_map(Value::as_str).collect::<Vec<_>>());
        let allowed = |name: &&String| {
            let before = before.as_ref();
            before.is_none_or(|before| before.contains(&name.as_str()))
        };
        let only: Array = only.iter().filter(allowed).collect();
        entry["only_tools"] = value(only);
    }
    if tools.hidden.is_empty() {
        return;
    }
    let rules = entry.entry("tools").or_insert_with(|| {
        let mut rules = Table::new();
        rules.set_implicit(true);
        Item::Table(rules)
    });
    let Some(rules) = rules.as_table_like_mut() else {
        return;
    };
    for name in &tools.hidden {
        let rule = rules.entry(name).or_insert_with(|| {
            let mut rule = Table::new();
            rule.decor_mut().set_prefix("\n");
            Item::Table(rule)
        });
        if let Some(rule) = rule.as_table_like_mut() {
            rule.insert("hidden", value(true));
        }
    }
}

fn as_str_pairs(pairs: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    pairs
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
}

fn insert_table<'p>(table: &mut Table, key: &str, pairs: impl Iterator<Item = (&'p str, &'p str)>) {
    let mut inner = Table::new();
    for (name, text) in pairs {
        inner[name] = value(text);
    }
    if !inner.is_empty() {
        inner.decor_mut().set_prefix("\n");
        table[key] = Item::Table(inner);
    }
}

#[cfg(test)]
mod tests;
