//! Edits of a configuration file that leave every other line, and every comment, as it was.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mgp_protocol::ids::{BadServerId, ServerId};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, TomlError, Value, value};

/// A server to be written down. Values may be references like `${KEY}`; they are not looked into.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NewServer {
    /// Its id.
    pub id: String,
    /// `command` and `args`; empty for a remote server.
    pub command: Vec<String>,
    /// `url` of a remote server.
    pub url: Option<String>,
    /// `[servers.env]`.
    pub env: Vec<(String, String)>,
    /// `[servers.headers]`.
    pub headers: Vec<(String, String)>,
    /// `cwd`.
    pub cwd: Option<String>,
    /// `autostart`, when it is not the default.
    pub autostart: Option<bool>,
    /// `[servers.mgp] trust_level`.
    pub trust_level: Option<String>,
    /// `[servers.mgp] restart_policy`.
    pub restart_policy: Option<String>,
}

/// Why an edit was not made. The text is as it was.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The text cannot be edited before it is mended.
    #[error("the file is not TOML (line {line}: {message})")]
    NotToml {
        /// From 1.
        line: usize,
        /// The parser's words.
        message: String,
    },
    /// The id is none.
    #[error(transparent)]
    BadId(#[from] BadServerId),
    /// The id is taken.
    #[error("there is already a server `{0}`")]
    Taken(String),
    /// Nobody has the id.
    #[error("there is no server `{0}`")]
    Unknown(String),
    /// Entries are written in a way this does not edit.
    #[error("`servers` is not written as [[servers]] tables; edit the file by hand")]
    OtherForm,
}

/// Puts an entry below the last one.
///
/// # Errors
/// [`EditError`]; nothing is half done.
pub fn add(text: &str, server: &NewServer) -> Result<String, EditError> {
    ServerId::parse(&server.id)?;
    let mut document = parse(text)?;
    let servers = entries(&mut document)?;
    if position(servers, &server.id).is_some() {
        return Err(EditError::Taken(server.id.clone()));
    }
    let mut table = server.to_table();
    if !text.trim().is_empty() {
        table.decor_mut().set_prefix("\n");
    }
    servers.push(table);
    Ok(document.to_string())
}

/// Takes an entry out, with the comment right above it.
///
/// # Errors
/// [`EditError`]; nothing is half done.
pub fn remove(text: &str, id: &str) -> Result<String, EditError> {
    let mut document = parse(text)?;
    let servers = entries(&mut document)?;
    let at = position(servers, id).ok_or_else(|| EditError::Unknown(id.to_owned()))?;
    let removed = servers.get(at).expect("it was found there").clone();
    servers.remove(at);
    if servers.is_empty() {
        document.remove("servers");
    }
    keep_comments(&mut document, &removed);
    Ok(document.to_string())
}

/// Writes a file whole or not at all; its mode stays, a new one is the owner's alone. A link stays
/// a link: what it points to is written.
///
/// # Errors
/// The system's, with the file as it was.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mode = fs::metadata(&path).map_or(0o600, |m| m.permissions().mode());
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file()
        .set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
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
    servers.as_array_of_tables_mut().ok_or(EditError::OtherForm)
}

fn position(servers: &ArrayOfTables, id: &str) -> Option<usize> {
    servers
        .iter()
        .position(|s| s.get("id").and_then(Item::as_str) == Some(id))
}

/// What stands above an entry and is parted from it by a blank line is not about it: it goes to
/// what comes next.
fn keep_comments(document: &mut DocumentMut, removed: &Table) {
    let above = prefix(removed);
    let kept = above.rfind("\n\n").map_or("", |blank| &above[..=blank]);
    if kept.trim().is_empty() {
        return;
    }
    match next_table(
        document.as_table_mut(),
        removed.position().unwrap_or_default(),
    ) {
        Some(next) => {
            let joined = format!("{kept}{}", prefix(next));
            next.decor_mut().set_prefix(joined);
        }
        None => {
            let joined = format!("{kept}{}", document.trailing().as_str().unwrap_or_default());
            document.set_trailing(joined);
        }
    }
}

fn prefix(table: &Table) -> String {
    let prefix = table.decor().prefix().and_then(|p| p.as_str());
    prefix.unwrap_or_default().to_owned()
}

/// The first table below `position`, however deep it lies.
fn next_table(table: &mut Table, position: isize) -> Option<&mut Table> {
    let below = |t: &&mut Table| t.position().is_some_and(|p| p > position);
    let nested = table.iter_mut().flat_map(|(_, item)| -> Vec<&mut Table> {
        match item {
            Item::Table(inner) => vec![inner],
            Item::ArrayOfTables(list) => list.iter_mut().collect(),
            Item::None | Item::Value(_) => Vec::new(),
        }
    });
    let mut best: Option<&mut Table> = None;
    for inner in nested {
        let found = match below(&inner) && !inner.is_implicit() {
            true => Some(inner),
            false => next_table(inner, position),
        };
        let nearer = |b: &Table, f: &Table| f.position() < b.position();
        if let Some(found) = found
            && best.as_ref().is_none_or(|b| nearer(b, found))
        {
            best = Some(found);
        }
    }
    best
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
        set("transport", self.url.as_ref().map(|_| "http".into()));
        set("url", self.url.as_ref().map(Into::into));
        set("cwd", self.cwd.as_ref().map(Into::into));
        set("autostart", self.autostart.map(Into::into));
        let mgp = [
            ("trust_level", &self.trust_level),
            ("restart_policy", &self.restart_policy),
        ];
        let mgp = mgp
            .into_iter()
            .filter_map(|(key, v)| Some((key, v.as_deref()?)));
        put(&mut table, "mgp", mgp);
        put(&mut table, "headers", pairs(&self.headers));
        put(&mut table, "env", pairs(&self.env));
        table
    }
}

fn pairs(pairs: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    pairs
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
}

fn put<'p>(table: &mut Table, key: &str, pairs: impl Iterator<Item = (&'p str, &'p str)>) {
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
mod tests {
    use super::*;

    const FILE: &str = r#"# My servers.

[http]
listen = "127.0.0.1:7332" # the usual

# Looks things up.
[[servers]]
id = "alpha"
command = "alpha"   # from the repository

[servers.env]
KEY = "${KEY}"

# General remark.

# Does sums.
[[servers]]
id = "beta"
command = "beta"

# The end.
"#;

    fn gamma() -> NewServer {
        NewServer {
            id: "gamma".into(),
            command: vec!["npx".into(), "-y".into(), "a \"b\"".into()],
            env: vec![("TOKEN".into(), "${TOKEN}".into())],
            trust_level: Some("trusted".into()),
            ..NewServer::default()
        }
    }

    #[test]
    fn an_added_entry_stands_last_and_nothing_else_moves() {
        let edited = add(FILE, &gamma()).unwrap();
        let added = r#"
[[servers]]
id = "gamma"
command = "npx"
args = ["-y", 'a "b"']

[servers.mgp]
trust_level = "trusted"

[servers.env]
TOKEN = "${TOKEN}"
"#;
        let end = "\n# The end.\n";
        let above = FILE.strip_suffix(end).unwrap();
        assert_eq!(edited, format!("{above}{added}{end}"));
        assert_eq!(remove(&edited, "gamma").unwrap(), FILE);
    }

    #[test]
    fn an_entry_goes_with_its_own_comment_only() {
        let edited = remove(FILE, "beta").unwrap();
        assert!(
            !edited.contains("beta") && !edited.contains("Does sums"),
            "{edited}"
        );
        for kept in [
            "# My servers.",
            "# General remark.",
            "# The end.",
            "# the usual",
            "KEY",
        ] {
            assert!(edited.contains(kept), "{kept} is gone from {edited}");
        }
        let edited = remove(FILE, "alpha").unwrap();
        assert!(
            !edited.contains("Looks things up") && !edited.contains("KEY"),
            "{edited}"
        );
        assert!(
            edited.contains("[http]") && edited.contains("beta"),
            "{edited}"
        );
    }

    #[test]
    fn the_first_entry_goes_and_the_head_of_the_file_stays() {
        let file = "# Head.\n\n# a\n[[servers]]\nid = \"a\"\n\n# b\n[[servers]]\nid = \"b\"\n";
        assert_eq!(
            remove(file, "a").unwrap(),
            "# Head.\n\n# b\n[[servers]]\nid = \"b\"\n"
        );
        let one = "# Head.\n\n[[servers]]\nid = \"a\"\n";
        assert_eq!(remove(one, "a").unwrap(), "# Head.\n");
    }

    #[test]
    fn ids_are_taken_once_and_removed_once() {
        let beta = NewServer {
            id: "beta".into(),
            ..gamma()
        };
        assert!(matches!(add(FILE, &beta), Err(EditError::Taken(id)) if id == "beta"));
        assert!(matches!(remove(FILE, "delta"), Err(EditError::Unknown(id)) if id == "delta"));
        assert!(matches!(
            add("servers = 1", &gamma()),
            Err(EditError::OtherForm)
        ));
        assert!(matches!(
            add("a = 1\nb =", &gamma()),
            Err(EditError::NotToml { line: 2, .. })
        ));
    }

    #[test]
    fn an_entry_goes_into_an_empty_file() {
        let remote = NewServer {
            id: "docs".into(),
            url: Some("https://example.org/mcp".into()),
            headers: vec![("Authorization".into(), "Bearer ${DOCS}".into())],
            ..NewServer::default()
        };
        let want = "[[servers]]\nid = \"docs\"\ntransport = \"http\"\n\
                    url = \"https://example.org/mcp\"\n\n[servers.headers]\n\
                    Authorization = \"Bearer ${DOCS}\"\n";
        assert_eq!(add("", &remote).unwrap(), want);
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_new_one_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (new, link) = (
            folder.path().join("deep/new.toml"),
            folder.path().join("link.toml"),
        );
        write(&new, "a = 1\n").unwrap();
        assert_eq!(mode(&new), 0o600);
        fs::set_permissions(&new, Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&new, &link).unwrap();
        write(&link, "a = 2\n").unwrap();
        assert_eq!(mode(&new), 0o644);
        assert_eq!(fs::read_to_string(&new).unwrap(), "a = 2\n");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
