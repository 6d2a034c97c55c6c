//! The secrets, variables and files that entries of a file refer to.

use mgp_engine::env::{find_secrets, find_variables};
use toml::{Table, Value};

/// A reference to a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SecretReference {
    /// The name of the secret.
    pub(crate) name: String,
    /// The server of the entry; `None` for the kernel's own sections.
    pub(crate) server: Option<String>,
    /// The key of the value, such as `env.TOKEN`.
    pub(crate) key: String,
}

/// All secret references in a file, sorted by name; none if it is not TOML.
#[must_use]
pub(crate) fn secret_references(text: &str) -> Vec<SecretReference> {
    let table: Table = text.parse().unwrap_or_default();
    let servers = table.get("servers").and_then(Value::as_array);
    let id = |at: usize| {
        let entry = servers.and_then(|servers| servers.get(at));
        let id = entry
            .and_then(|entry| entry.get("id"))
            .and_then(Value::as_str);
        id.unwrap_or("(without an id)").to_owned()
    };
    let mut found = Vec::new();
    walk_file(&table, &mut |place| {
        if place.is_resolved {
            let names = find_secrets(place.text).into_iter();
            found.extend(names.map(|name| SecretReference {
                name: name.to_owned(),
                server: place.server.map(id),
                key: place.key.to_owned(),
            }));
        }
    });
    found.sort();
    found.dedup();
    found
}

/// What a file reads from the machine besides secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReadKind {
    /// `file:PATH`, after substitution of variables.
    File,
    /// A key whose value is a path.
    Path,
    /// `${NAME}`, or a name in `inherit_env`.
    Variable,
}

/// A reference to a file or variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadReference {
    /// The kind.
    pub(crate) kind: ReadKind,
    /// The path as written, or the name of the variable.
    pub(crate) name: String,
    /// The index of the server in the file; `None` for the kernel's own sections.
    pub(crate) server: Option<usize>,
    /// The key of the value.
    pub(crate) key: String,
}

/// The sections of a server whose values may contain `file:PATH` and `secret:NAME`.
const RESOLVED_SECTIONS: [&str; 4] = ["env", "headers", "login", "url"];

/// Keys of the kernel whose values are paths of files that it reads.
const PATH_KEYS: [&str; 5] = [
    "http.tls.cert",
    "http.tls.client_ca",
    "http.tls.key",
    "network.ca_file",
    "oauth.jwks_file",
];

/// All files and variables that a file reads; none if it is not TOML.
#[must_use]
pub(crate) fn read_references(text: &str) -> Vec<ReadReference> {
    let table: Table = text.parse().unwrap_or_default();
    let mut found = Vec::new();
    walk_file(&table, &mut |place| {
        let mut read = |kind, name: &str| {
            found.push(ReadReference {
                kind,
                name: name.to_owned(),
                server: place.server,
                key: place.key.to_owned(),
            });
        };
        let is_path = place.server.is_none() && PATH_KEYS.contains(&place.key);
        let file = place
            .text
            .strip_prefix("file:")
            .filter(|_| place.is_resolved);
        if is_path {
            read(ReadKind::Path, place.text);
        } else if let Some(path) = file {
            read(ReadKind::File, path);
        }
        let variables = find_variables(place.text).into_iter();
        variables.for_each(|name| read(ReadKind::Variable, name));
        if place.server.is_some() && place.key == "inherit_env" {
            read(ReadKind::Variable, place.text);
        }
    });
    found.sort();
    found.dedup();
    found
}

/// A text value of a file.
struct TextValue<'t> {
    /// The index of the server in the file; `None` for the kernel's own sections.
    server: Option<usize>,
    /// Its key, such as `env.TOKEN`.
    key: &'t str,
    text: &'t str,
    /// Whether `file:PATH` and `secret:NAME` are references here.
    is_resolved: bool,
}

/// Visits all texts of a file, whatever their keys, so that new sections are included.
fn walk_file(table: &Table, visit: &mut dyn FnMut(&TextValue<'_>)) {
    for (key, value) in table.iter().filter(|(key, _)| *key != "servers") {
        walk(value, None, key, true, visit);
    }
    let servers = table.get("servers").and_then(Value::as_array);
    let servers = servers.into_iter().flatten().map(Value::as_table);
    for (at, entry) in servers.enumerate() {
        for (key, value) in entry.into_iter().flatten() {
            let is_resolved = RESOLVED_SECTIONS.contains(&key.as_str());
            walk(value, Some(at), key, is_resolved, visit);
        }
    }
}

fn walk(
    value: &Value,
    server: Option<usize>,
    key: &str,
    is_resolved: bool,
    visit: &mut dyn FnMut(&TextValue<'_>),
) {
    match value {
        Value::Table(table) => {
            for (name, inner) in table {
                walk(inner, server, &format!("{key}.{name}"), is_resolved, visit);
            }
        }
        Value::Array(all) => {
            all.iter()
                .for_each(|inner| walk(inner, server, key, is_resolved, visit));
        }
        Value::String(text) => visit(&TextValue {
            server,
            key,
            text,
            is_resolved,
        }),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_a_file_is_found() {
        let text = r#"
[discovery.provider]
key = "secret:openai"
[mcpl.providers.small]
key = "secret:small"
[network]
proxy = "http://${secret:proxy}@proxy.test:3128"
[telemetry]
headers = { X-A = "secret:otel", X-B = "pre${secret:otel}" }
[[servers]]
id = "a"
command = "x"
args = ["secret:not-here"]
env = { TOKEN = "secret:github", URL = "p://${secret:pw}@h", PLAIN = "$${secret:no}" }
[[servers]]
id = "b"
url = "https://h/mcp?key=${secret:address}"
headers = { Authorization = "Bearer ${secret:github}" }
login = { client_secret = "secret:client" }
"#;
        let found = secret_references(text);
        let listed: Vec<_> = found
            .iter()
            .map(|found| {
                let server = found.server.as_deref().unwrap_or("-");
                format!("{} {server} {}", found.name, found.key)
            })
            .collect();
        assert_eq!(
            listed,
            [
                "address b url",
                "client b login.client_secret",
                "github a env.TOKEN",
                "github b headers.Authorization",
                "openai - discovery.provider.key",
                "otel - telemetry.headers.X-A",
                "otel - telemetry.headers.X-B",
                "proxy - network.proxy",
                "pw a env.URL",
                "small - mcpl.providers.small.key"
            ]
        );
        assert!(secret_references("[x").is_empty());
    }

    /// A new key that names a file is shown before a project is trusted.
    #[test]
    fn every_key_with_a_file_path_is_listed_as_read() {
        let known = crate::config::file::known_keys();
        let is_path = |key: &&String| {
            key.ends_with("_file")
                || (key.starts_with("http.tls.") && !key.ends_with("client_auth"))
        };
        let named: Vec<&String> = known.iter().filter(is_path).collect();
        assert_eq!(named, PATH_KEYS);
    }
}
