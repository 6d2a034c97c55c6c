//! Which entries of a file refer to which secrets, variables and files.

use mgp_engine::env::{find_secrets, find_variables};
use toml::{Table, Value};

/// One reference, as it stands in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretReference {
    /// The name of the secret.
    pub name: String,
    /// The server whose entry it is; `None` for the kernel's own sections.
    pub server: Option<String>,
    /// The key whose value it is in, as `env.TOKEN`.
    pub key: String,
}

/// Every reference in a file, in order of names; none in what is not TOML.
#[must_use]
pub fn secret_references(text: &str) -> Vec<SecretReference> {
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

/// What a file reads of the machine besides secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadKind {
    /// `file:PATH`, in which variables are put in.
    File,
    /// A key that is a path as it stands there.
    Path,
    /// `${NAME}`, or a name in `inherit_env`.
    Variable,
}

/// One thing that is read, and for what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadReference {
    /// What it is.
    pub kind: ReadKind,
    /// The path as it stands there, or the name of the variable.
    pub name: String,
    /// Which of the servers gets it, in the order of the file; `None` for the kernel's own sections.
    pub server: Option<usize>,
    /// The key whose value it is in.
    pub key: String,
}

/// The sections of a server in whose values `file:PATH` and `secret:NAME` are read.
const RESOLVED_SECTIONS: [&str; 4] = ["env", "headers", "login", "url"];

/// Keys of the kernel that are paths of files it reads.
const PATH_KEYS: [&str; 5] = [
    "http.tls.cert",
    "http.tls.client_ca",
    "http.tls.key",
    "network.ca_file",
    "oauth.jwks_file",
];

/// Every file and variable that a file reads; none in what is not TOML.
#[must_use]
pub fn read_references(text: &str) -> Vec<ReadReference> {
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

/// One text of a file.
struct TextValue<'t> {
    /// Which of the servers has it, in the order of the file; `None` for the kernel's own sections.
    server: Option<usize>,
    /// Its key, as `env.TOKEN`.
    key: &'t str,
    text: &'t str,
    /// `file:PATH` and `secret:NAME` are references here.
    is_resolved: bool,
}

/// Shows `visit` every text of a file, whatever its key: a section that is new is not forgotten.
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
        let told: Vec<_> = found
            .iter()
            .map(|found| {
                let server = found.server.as_deref().unwrap_or("-");
                format!("{} {server} {}", found.name, found.key)
            })
            .collect();
        assert_eq!(
            told,
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

    /// A key that is new and names a file is shown before a project is trusted.
    #[test]
    fn every_key_that_is_a_path_of_a_file_is_among_what_is_read() {
        let known = crate::config::file::known_keys();
        let is_path = |key: &&String| {
            key.ends_with("_file")
                || (key.starts_with("http.tls.") && !key.ends_with("client_auth"))
        };
        let named: Vec<&String> = known.iter().filter(is_path).collect();
        assert_eq!(named, PATH_KEYS);
    }
}
