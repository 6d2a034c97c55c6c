//! The entries of the files in force, in the client's form.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use mgp_clients::{Client, ConfiguredServer, ConfiguredText, ExportedServer, Exporter};
use mgp_engine::doors::suggestions::nearest;
use mgp_engine::env::resolve_secret;
use mgp_store::secrets::{Namespace, SecretStore};
use secrecy::ExposeSecret;
use serde_json::{Map, Value};
use toml::Table;

use crate::cli::args::Export;
use crate::cli::client::CliContext;
use crate::cli::commands::servers::config_file::{files_in_force, is_manual, read_if_exists};
use crate::cli::failure::Failure;

/// Longest secret in a file, in bytes: the kernel's limit.
const SECRET_MAX: u64 = 64 << 10;
/// Keys with an equivalent in clients' entries, or about the transport.
const TRANSLATED_KEYS: [&str; 12] = [
    "id",
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "inherit_env",
    "autostart",
    "idle_stop_secs",
    "start",
    "transport",
];

/// A server that is not exported, and why.
pub(super) struct SkippedServer {
    pub(super) id: String,
    pub(super) reason: String,
}

/// The exported and the skipped servers.
#[derive(Default)]
pub(super) struct ExportEntries {
    pub(super) servers: Vec<(String, ExportedServer)>,
    pub(super) skipped: Vec<SkippedServer>,
}

impl ExportEntries {
    /// The servers of the files in force; of two with one id that of the stronger file.
    pub(super) fn collect(
        context: &CliContext,
        typed: &Export,
        client: Client,
    ) -> Result<Self, Failure> {
        let home = context.base_dirs.home.clone().unwrap_or_default();
        let store = context.secret_store().ok();
        let (mut found, mut seen) = (Self::default(), BTreeSet::new());
        for file in files_in_force(context, context.status()?.as_ref())? {
            let folder = file.parent().unwrap_or(Path::new("/"));
            let text = read_if_exists(&file)?.unwrap_or_default();
            let table: Table = text.parse().map_err(|error: toml::de::Error| {
                Failure::Other(format!("{}: not TOML: {}", file.display(), error.message()))
            })?;
            let list = table.get("servers").and_then(toml::Value::as_array);
            for entry in list.into_iter().flatten().filter_map(toml::Value::as_table) {
                let Some(id) = entry.get("id").and_then(toml::Value::as_str) else {
                    continue;
                };
                if !seen.insert(id.to_owned()) {
                    continue;
                }
                if !typed.only.is_empty() && !typed.only.iter().any(|only| only == id) {
                    continue;
                }
                let reader = EntryTexts {
                    folder,
                    store: store.as_ref(),
                    with_values: typed.with_values,
                };
                let exporter = Exporter {
                    client,
                    home: &home,
                    folder,
                };
                let exported = reader.export_server(id, entry).and_then(|server| {
                    let exported = exporter.export(&server);
                    exported.map_err(|why| why.to_string())
                });
                match exported {
                    Ok(exported) => found.servers.push((id.to_owned(), exported)),
                    Err(why) => found.skip(id, why),
                }
            }
        }
        let unknown = typed.only.iter().find(|only| !seen.contains(*only));
        if let Some(only) = unknown {
            let near = nearest(only, seen.iter().map(String::as_str));
            let near = near.map_or(String::new(), |near| format!(" (did you mean {near}?)"));
            return Err(Failure::Usage(format!("there is no server {only}{near}")));
        }
        Ok(found)
    }

    pub(super) fn skip(&mut self, id: &str, why: String) {
        let id = id.to_owned();
        self.skipped.push(SkippedServer { id, reason: why });
    }

    pub(super) fn to_table(&self) -> Map<String, Value> {
        let entries = self.servers.iter();
        let entries = entries.map(|(id, server)| (id.clone(), server.entry.clone()));
        entries.collect()
    }
}

/// How texts of an entry are resolved.
struct EntryTexts<'e> {
    folder: &'e Path,
    store: Option<&'e SecretStore>,
    with_values: bool,
}

impl EntryTexts<'_> {
    fn export_server(&self, id: &str, entry: &Table) -> Result<ConfiguredServer, String> {
        let text = |key: &str| entry.get(key).and_then(toml::Value::as_str);
        if let Some("lite" | "grpc") = text("transport") {
            return Err(
                "it speaks MCP-lite, which clients do not: `mgp connect` lets them reach it through this kernel"
                    .to_owned(),
            );
        }
        let list = |key: &str| {
            let list = entry.get(key).and_then(toml::Value::as_array);
            let list = list.into_iter().flatten();
            list.filter_map(toml::Value::as_str).collect::<Vec<_>>()
        };
        let command: Vec<&str> = text("command").into_iter().chain(list("args")).collect();
        let command = match text("command") {
            Some(_) => command,
            None => Vec::new(),
        };
        let others = entry
            .keys()
            .filter(|key| !TRANSLATED_KEYS.contains(&key.as_str()));
        Ok(ConfiguredServer {
            id: id.to_owned(),
            command: command
                .into_iter()
                .map(|word| self.export_text("args", word, false))
                .collect::<Result<_, _>>()?,
            env: self.export_pairs(entry, "env")?,
            cwd: text("cwd")
                // Clients start their servers in the folder they work in.
                .filter(|cwd| *cwd != "caller")
                .map(|cwd| self.export_text("cwd", cwd, false))
                .transpose()?,
            url: text("url")
                .map(|url| self.export_text("url", url, false))
                .transpose()?,
            headers: self.export_pairs(entry, "headers")?,
            inherit_env: list("inherit_env").into_iter().map(str::to_owned).collect(),
            is_disabled: is_manual(entry),
            kernel_keys: others.cloned().collect(),
        })
    }

    fn export_pairs(
        &self,
        entry: &Table,
        key: &str,
    ) -> Result<Vec<(String, ConfiguredText)>, String> {
        let table = entry.get(key).and_then(toml::Value::as_table);
        let pair = |(name, value): (&String, &toml::Value)| {
            let text = value.as_str().unwrap_or_default();
            let text = self.export_text(&format!("{key}.{name}"), text, true)?;
            Ok((name.clone(), text))
        };
        table.into_iter().flatten().map(pair).collect()
    }

    /// The text as written, or its current value.
    fn export_text(&self, key: &str, text: &str, whole: bool) -> Result<ConfiguredText, String> {
        if !self.with_values {
            return Ok(ConfiguredText::parse(text, whole));
        }
        let variable = |name: &str| std::env::var(name).ok();
        let value = if whole {
            let read = |path: &str| self.read_file(path);
            resolve_secret(text, key, variable, read, |name| self.read_secret(name))
        } else {
            mgp_engine::env::interpolate(text, key, variable)
        };
        value
            .map(ConfiguredText::literal)
            .map_err(|unresolved| unresolved.to_string())
    }

    fn read_file(&self, path: &str) -> Result<String, String> {
        let file = File::open(self.folder.join(path)).map_err(|why| why.to_string())?;
        let mut text = String::new();
        let read = file.take(SECRET_MAX + 1).read_to_string(&mut text);
        read.map_err(|why| why.to_string())?;
        if text.len() as u64 > SECRET_MAX {
            Err(format!("more than {SECRET_MAX} bytes"))
        } else {
            Ok(text)
        }
    }

    fn read_secret(&self, name: &str) -> Result<String, String> {
        let store = self.store.ok_or("there is no home to keep secrets in")?;
        let kept = store.get(Namespace::Named, name);
        let kept = kept.map_err(|why| why.to_string())?;
        let kept = kept.ok_or_else(|| format!("no secret {name} is kept"))?;
        Ok(kept.expose_secret().to_owned())
    }
}
