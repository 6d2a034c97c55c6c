//! Compares configured servers with those of clients: servers are equal if their command, variables, address, headers
//! and folder are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mgp_clients::{PlannedConnection, PlannedValue, ToolLimits, UrlPiece};
use mgp_engine::env::{ResolveError, SECRET_PREFIX, resolve_secret};
use mgp_store::secrets::{Namespace, SecretStore};
use secrecy::ExposeSecret;
use toml::{Table, Value};

use super::super::config_file::is_manual;
use super::super::supplied_values;
use crate::cli::client::CliContext;

/// Resolves references, as far as possible here.
pub(super) struct LocalValues {
    store: Option<SecretStore>,
    /// Whether a command provides secrets that are not stored.
    has_command: bool,
}

impl LocalValues {
    pub(super) fn new(context: &CliContext) -> Self {
        Self {
            store: context.secret_store().ok(),
            has_command: context.has_secrets_command(),
        }
    }

    fn resolve(&self, text: &str, folder: &Path) -> Option<String> {
        self.try_resolve(text, "", folder).ok()
    }

    fn try_resolve(&self, text: &str, place: &str, folder: &Path) -> Result<String, ResolveError> {
        let read = |path: &str| {
            let read = std::fs::read_to_string(folder.join(path));
            read.map_err(|error| error.to_string())
        };
        let secret = |name: &str| {
            let store = self.store.as_ref();
            let kept = store.map(|store| store.get(Namespace::Named, name));
            let kept = kept.transpose().map_err(|error| error.to_string())?;
            let kept = kept.flatten().ok_or_else(|| {
                format!("there is no secret {name}; `mgp secrets set {name}` asks for it")
            })?;
            Ok(kept.expose_secret().to_owned())
        };
        let variable = |name: &str| std::env::var(name).ok();
        resolve_secret(text, place, variable, read, secret)
    }
}

/// A configured server.
pub(super) struct LocalServer {
    pub(super) id: String,
    pub(super) file: PathBuf,
    /// False if only the operator starts it.
    pub(super) starts: bool,
    /// The program and its arguments; empty for a server at a URL.
    command_words: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
    tools: ToolLimits,
}

impl LocalServer {
    /// The entries of a file.
    ///
    /// # Errors
    /// It is not TOML; the description repeats nothing of it.
    pub(super) fn read_all(text: &str, file: &Path) -> Result<Vec<Self>, String> {
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| format!("not TOML: {}", error.message()))?;
        let servers = table.get("servers").and_then(Value::as_array);
        let servers = servers.into_iter().flatten().filter_map(Value::as_table);
        let servers = servers.filter_map(|entry| Self::read(entry, file));
        Ok(servers.collect())
    }

    /// The first secret or file that cannot be resolved. Variables may be set where the kernel runs.
    pub(super) fn missing(&self, values: &LocalValues) -> Option<String> {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        let env = self
            .env
            .iter()
            .map(|(name, value)| (format!("env.{name}"), value));
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| (format!("headers.{name}"), value));
        let url = self.url.iter().map(|url| ("url".to_owned(), url));
        let mut all = env.chain(headers).chain(url);
        all.find_map(
            |(place, value)| match values.try_resolve(value, &place, folder) {
                Err(why @ (ResolveError::File { .. } | ResolveError::Keyring { .. })) => {
                    Some(why.to_string())
                }
                Err(why @ ResolveError::Secret { .. }) if !values.has_command => {
                    Some(why.to_string())
                }
                Ok(_) | Err(_) => None,
            },
        )
    }

    fn read(entry: &Table, file: &Path) -> Option<Self> {
        let text = |key: &str| Some(entry.get(key)?.as_str()?.to_owned());
        let list = |key: &str| -> Option<Vec<String>> {
            let items = entry.get(key)?.as_array()?.iter();
            Some(items.filter_map(Value::as_str).map(str::to_owned).collect())
        };
        let map = |key: &str| -> BTreeMap<String, String> {
            let table = entry.get(key).and_then(Value::as_table);
            let pairs = table.into_iter().flatten();
            pairs
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect()
        };
        let rules = entry.get("tools").and_then(Value::as_table);
        let rules = rules.into_iter().flatten();
        let is_hidden = |rule: &Value| rule.get("hidden").and_then(Value::as_bool) == Some(true);
        let hidden = rules.filter(|(_, rule)| is_hidden(rule));
        let mut words: Vec<_> = text("command").into_iter().collect();
        words.extend(list("args").unwrap_or_default());
        Some(Self {
            id: text("id")?,
            file: file.to_owned(),
            starts: !is_manual(entry),
            command_words: words,
            env: map("env"),
            cwd: text("cwd"),
            url: text("url"),
            headers: map("headers"),
            tools: ToolLimits {
                only: list("only_tools").map(|names| names.into_iter().collect()),
                hidden: hidden.map(|(name, _)| name.clone()).collect(),
                ..ToolLimits::default()
            },
        })
    }

    /// Tool limits of a client that this entry lacks.
    pub(super) fn missing_tool_limits(&self, theirs: &ToolLimits) -> ToolLimits {
        let mut both = self.tools.clone();
        both.restrict(theirs);
        let hidden = theirs.hidden.difference(&self.tools.hidden);
        ToolLimits {
            hidden: hidden.cloned().collect(),
            only: both
                .only
                .filter(|only| Some(only) != self.tools.only.as_ref()),
            keys: theirs.keys.clone(),
        }
    }

    /// Whether this server has the same transport.
    pub(super) fn has_reach(&self, reach: &PlannedConnection, values: &LocalValues) -> bool {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        match reach {
            PlannedConnection::Command {
                words,
                env,
                env_file,
                cwd,
            } => {
                let mut own = self.command_words.clone();
                if let Some(program) = own.first_mut().filter(|program| program.contains('/')) {
                    *program = folder.join(&program).to_string_lossy().into_owned();
                }
                let own_cwd = self.cwd.as_ref().map(|cwd| folder.join(cwd));
                let Some(env) = merge_env_file(env, env_file.as_deref()) else {
                    return false;
                };
                self.url.is_none()
                    && !own.is_empty()
                    && own == *words
                    && own_cwd == cwd.as_ref().map(PathBuf::from)
                    && are_same_values(&self.env, &env, values, folder)
            }
            PlannedConnection::Url { url, headers } => {
                let pieces = url.iter().map(|piece| match piece {
                    UrlPiece::Literal(text) => text.clone(),
                    UrlPiece::Secret { value, .. } => value.replace('$', "$$"),
                });
                let planned = PlannedValue::Literal(pieces.collect());
                let own = self.url.as_deref();
                own.is_some_and(|own| is_same_value("url", own, &planned, values, folder))
                    && are_same_values(&self.headers, headers, values, folder)
            }
        }
    }
}

/// The variables of an entry with those of its file, as written when it is added.
fn merge_env_file(
    env: &[(String, PlannedValue)],
    file: Option<&str>,
) -> Option<Vec<(String, PlannedValue)>> {
    let mut all = env.to_vec();
    let Some(file) = file else {
        return Some(all);
    };
    let more = supplied_values::read_env_file(Path::new(file), Path::new("/")).ok()?;
    for (name, value) in more {
        if env.iter().any(|(own, _)| *own == name) {
            continue;
        }
        let value = match value {
            Some(value) => PlannedValue::Secret(value),
            None => PlannedValue::Literal(format!("${{{name}}}")),
        };
        all.push((name, value));
    }
    Some(all)
}

fn are_same_values(
    own: &BTreeMap<String, String>,
    planned: &[(String, PlannedValue)],
    values: &LocalValues,
    folder: &Path,
) -> bool {
    own.len() == planned.len()
        && planned.iter().all(|(name, planned)| {
            let own = own.get(name);
            own.is_some_and(|own| is_same_value(name, own, planned, values, folder))
        })
}

/// An unresolvable value counts as different, so that no server is lost; except a variable that `mgp export` writes in
/// place of a secret, which is still unset.
fn is_same_value(
    name: &str,
    own: &str,
    planned: &PlannedValue,
    values: &LocalValues,
    folder: &Path,
) -> bool {
    let had = || values.resolve(own, folder);
    match planned {
        PlannedValue::Literal(text) if text == own => true,
        PlannedValue::Literal(text) => match values.resolve(text, folder) {
            Some(wanted) => had() == Some(wanted),
            None => is_exported_placeholder(name, own, text),
        },
        PlannedValue::Secret(value) => had().as_ref() == Some(value),
    }
}

/// Whether a text is the variable that an export wrote in place of a secret.
fn is_exported_placeholder(name: &str, own: &str, text: &str) -> bool {
    let secret = own
        .strip_prefix(SECRET_PREFIX)
        .map(|secret| secret.rsplit('/').next());
    let called = match secret {
        Some(last) => last.unwrap_or(name),
        None if own.starts_with("file:") => name,
        None => return false,
    };
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    let called: String = called.chars().map(plain).collect();
    text == format!("${{{called}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[[servers]]
id = "a"
command = "npx"
args = ["memory"]
only_tools = ["read", "write"]
[servers.env]
ACCOUNT = "one"
PRICE = "$$5"
[servers.tools.drop]
hidden = true

[[servers]]
id = "b"
url = "https://h/mcp?api_key=k$$1"
[servers.headers]
X-Team = "1"

[[servers]]
id = "c"
command = "./x"
cwd = "sub"
autostart = false
"#;

    fn command(
        words: &[&str],
        env: &[(&str, PlannedValue)],
        cwd: Option<&str>,
    ) -> PlannedConnection {
        let env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        PlannedConnection::Command {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            env: env.collect(),
            env_file: None,
            cwd: cwd.map(str::to_owned),
        }
    }

    fn written(text: &str) -> PlannedValue {
        PlannedValue::Literal(text.to_owned())
    }

    fn found(reach: &PlannedConnection) -> Option<String> {
        let values = LocalValues {
            store: None,
            has_command: false,
        };
        let all = LocalServer::read_all(FILE, Path::new("/etc/mgp/x.toml")).unwrap();
        let mut same = all
            .into_iter()
            .filter(|here| here.has_reach(reach, &values));
        same.next().map(|here| here.id)
    }

    #[test]
    fn servers_are_equal_if_their_transport_is_equal() {
        let env = [("ACCOUNT", written("one")), ("PRICE", written("$$5"))];
        let a = command(&["npx", "memory"], &env, None);
        assert_eq!(found(&a).as_deref(), Some("a"));
        let secret = PlannedValue::Secret("one".to_owned());
        let env = [("ACCOUNT", secret), ("PRICE", written("$$5"))];
        assert!(found(&command(&["npx", "memory"], &env, None)).is_some());
        let c = command(&["/etc/mgp/./x"], &[], Some("/etc/mgp/sub"));
        assert_eq!(found(&c).as_deref(), Some("c"));
        let url = |key: &str, team: &str| PlannedConnection::Url {
            url: vec![
                UrlPiece::Literal("https://h/mcp?api_key=".to_owned()),
                UrlPiece::Secret {
                    name: "url.api_key".to_owned(),
                    value: key.to_owned(),
                },
            ],
            headers: vec![("X-Team".to_owned(), written(team))],
        };
        assert_eq!(found(&url("k$1", "1")).as_deref(), Some("b"));
        for other in [url("k2", "1"), url("k$1", "2")] {
            assert_eq!(found(&other), None);
        }
    }

    #[test]
    fn any_difference_makes_servers_different() {
        let same = [("ACCOUNT", written("one")), ("PRICE", written("$$5"))];
        let account = [("ACCOUNT", written("two")), ("PRICE", written("$$5"))];
        let unset = [
            ("ACCOUNT", written("${NOBODY_HAS_THIS}")),
            ("PRICE", written("$$5")),
        ];
        for other in [
            command(&["npx", "memory"], &account, None),
            command(&["npx", "memory"], &unset, None),
            command(&["npx", "memory"], &same[..1], None),
            command(&["npx", "memory"], &same, Some("/home/me/proj")),
            command(&["npx", "memory", "-v"], &same, None),
            command(&["/etc/mgp/x"], &[], None),
        ] {
            assert_eq!(found(&other), None, "{other:?}");
        }
    }

    /// The variable is unset: the entry is the exported one.
    #[test]
    fn exported_entries_are_recognized() {
        for (name, own, text, same) in [
            ("TOKEN", "secret:gh/GITHUB_TOKEN", "${GITHUB_TOKEN}", true),
            ("A_KEY", "file:/run/key", "${A_KEY}", true),
            ("TOKEN", "secret:gh/GITHUB_TOKEN", "${OTHER_TOKEN}", false),
            ("TOKEN", "abc", "${TOKEN}", false),
        ] {
            assert_eq!(
                is_exported_placeholder(name, own, text),
                same,
                "{own} {text}"
            );
        }
    }

    #[test]
    fn a_missing_secret_is_reported() {
        let text = "[[servers]]\nid = \"a\"\ncommand = \"a\"\nenv = { A = \"secret:a/A\" }\n\
                    [[servers]]\nid = \"b\"\nurl = \"https://h/${secret:b}\"\n\
                    [[servers]]\nid = \"c\"\nurl = \"https://h\"\nheaders = { K = \"file:/none/k\" }\n\
                    [[servers]]\nid = \"d\"\ncommand = \"d\"\nenv = { D = \"${NOBODY_HAS_THIS}\" }\n";
        let all = LocalServer::read_all(text, Path::new("/etc/mgp/x.toml")).unwrap();
        let missing = |has_command| {
            let store = None;
            let values = LocalValues { store, has_command };
            let missing = all.iter().map(|server| server.missing(&values));
            missing.collect::<Vec<_>>()
        };
        let without = missing(false);
        let why = without[0].as_deref().unwrap();
        assert!(
            why.contains("env.A") && why.contains("mgp secrets set a/A"),
            "{why}"
        );
        assert!(without[1].is_some() && without[2].is_some() && without[3].is_none());
        let with = missing(true);
        assert!(with[0].is_none() && with[1].is_none() && with[2].is_some());
        let broken = LocalServer::read_all("[[servers]\n", Path::new("/x.toml")).err();
        assert!(broken.unwrap().contains("not TOML"));
    }

    #[test]
    fn tool_limits_of_clients_and_entries_are_compared() {
        let all = LocalServer::read_all(FILE, Path::new("/etc/mgp/x.toml")).unwrap();
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let theirs = ToolLimits {
            only: Some(set(&["read", "drop"])),
            hidden: set(&["drop", "move"]),
            ..ToolLimits::default()
        };
        let missing = all[0].missing_tool_limits(&theirs);
        assert_eq!(
            (missing.hidden, missing.only),
            (set(&["move"]), Some(set(&["read"])))
        );
        let same = ToolLimits {
            hidden: set(&["drop"]),
            ..ToolLimits::default()
        };
        assert!(all[0].missing_tool_limits(&same).is_unlimited());
    }
}
