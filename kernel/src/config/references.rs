//! Which entries of a file refer to which secrets, variables and files.

use mgp_engine::env::{secrets_in, variables_in};
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
    let mut found = Vec::new();
    let servers = table.get("servers").and_then(Value::as_array);
    for entry in servers.into_iter().flatten().filter_map(Value::as_table) {
        let id = entry.get("id").and_then(Value::as_str);
        let server = id.unwrap_or("(without an id)").to_owned();
        for key in ["env", "headers", "login"] {
            let values = entry.get(key).and_then(Value::as_table);
            for (name, value) in values.into_iter().flatten() {
                let key = format!("{key}.{name}");
                add(value, Some(&server), &key, &mut found);
            }
        }
    }
    let provider = table.get("discovery").and_then(|it| it.get("provider"));
    if let Some(value) = provider.and_then(|provider| provider.get("key")) {
        add(value, None, "discovery.provider.key", &mut found);
    }
    let providers = table.get("mcpl").and_then(|it| it.get("providers"));
    for (name, provider) in providers.and_then(Value::as_table).into_iter().flatten() {
        if let Some(value) = provider.get("key") {
            let key = format!("mcpl.providers.{name}.key");
            add(value, None, &key, &mut found);
        }
    }
    if let Some(value) = table.get("network").and_then(|it| it.get("proxy")) {
        add(value, None, "network.proxy", &mut found);
    }
    found.sort();
    found.dedup();
    found
}

fn add(value: &Value, server: Option<&String>, key: &str, found: &mut Vec<SecretReference>) {
    let names = secrets_in(value.as_str().unwrap_or_default());
    found.extend(names.into_iter().map(|name| SecretReference {
        name: name.to_owned(),
        server: server.cloned(),
        key: key.to_owned(),
    }));
}

/// What a file reads of the machine besides secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadKind {
    /// `file:PATH`.
    File,
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

/// The sections of a server in whose values `file:PATH` is read.
const FILES_READ: [&str; 3] = ["env", "headers", "login"];

/// Every file and variable that a file reads; none in what is not TOML.
#[must_use]
pub fn read_references(text: &str) -> Vec<ReadReference> {
    let table: Table = text.parse().unwrap_or_default();
    let mut found = Vec::new();
    for (key, value) in table.iter().filter(|(key, _)| *key != "servers") {
        walk(value, None, key, true, &mut found);
    }
    let servers = table.get("servers").and_then(Value::as_array);
    let servers = servers.into_iter().flatten().map(Value::as_table);
    for (at, entry) in servers.enumerate() {
        for (key, value) in entry.into_iter().flatten() {
            let reads_files = FILES_READ.contains(&key.as_str());
            walk(value, Some(at), key, reads_files, &mut found);
        }
        let inherited = entry.and_then(|entry| entry.get("inherit_env"));
        let inherited = inherited.and_then(Value::as_array).into_iter().flatten();
        found.extend(
            inherited
                .filter_map(Value::as_str)
                .map(|name| ReadReference {
                    kind: ReadKind::Variable,
                    name: name.to_owned(),
                    server: Some(at),
                    key: "inherit_env".to_owned(),
                }),
        );
    }
    found.sort();
    found.dedup();
    found
}

fn walk(
    value: &Value,
    server: Option<usize>,
    key: &str,
    reads_files: bool,
    found: &mut Vec<ReadReference>,
) {
    match value {
        Value::Table(table) => {
            for (name, inner) in table {
                walk(inner, server, &format!("{key}.{name}"), reads_files, found);
            }
        }
        Value::Array(all) => {
            all.iter()
                .for_each(|inner| walk(inner, server, key, reads_files, found));
        }
        Value::String(text) => {
            let mut read = |kind, name: &str| {
                found.push(ReadReference {
                    kind,
                    name: name.to_owned(),
                    server,
                    key: key.to_owned(),
                });
            };
            let file = text.strip_prefix("file:").filter(|_| reads_files);
            file.into_iter().for_each(|path| read(ReadKind::File, path));
            let variables = variables_in(text).into_iter();
            variables.for_each(|name| read(ReadKind::Variable, name));
        }
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
[[servers]]
id = "a"
command = "x"
args = ["secret:not-here"]
env = { TOKEN = "secret:github", URL = "p://${secret:pw}@h", PLAIN = "$${secret:no}" }
[[servers]]
id = "b"
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
                "client b login.client_secret",
                "github a env.TOKEN",
                "github b headers.Authorization",
                "openai - discovery.provider.key",
                "proxy - network.proxy",
                "pw a env.URL",
                "small - mcpl.providers.small.key"
            ]
        );
        assert!(secret_references("[x").is_empty());
    }
}
