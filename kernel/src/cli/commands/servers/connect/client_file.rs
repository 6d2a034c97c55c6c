//! One client's file, before and after.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use mgp_clients::{Client, EntryPlace, is_secret, put, remove};
use mgp_store::atomic_file;
use mgp_store::regular_file;
use mgp_store::trouble::explained;
use serde_json::{Map, Value};

use super::user_file;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;

/// Lines shown around what changes.
const AROUND: usize = 2;

/// The user's file of a client, as it is.
pub(in crate::cli::commands) struct ClientFileEdit {
    pub(in crate::cli::commands) client: Client,
    pub(in crate::cli::commands) path: PathBuf,
    /// `None` of a file that is not there.
    text: Option<String>,
}

impl ClientFileEdit {
    pub(in crate::cli::commands) fn of(
        context: &CliContext,
        client: Client,
    ) -> Result<Self, Failure> {
        Self::at(client, user_file(context, client)?)
    }

    /// A file in the form of this client.
    pub(in crate::cli::commands) fn at(client: Client, path: PathBuf) -> Result<Self, Failure> {
        // A link leads to the file that is meant, which stays where it is.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let text = match regular_file::open(&path).and_then(io::read_to_string) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::Other(format!("{}: {error}", path.display()))),
        };
        Ok(Self { client, path, text })
    }

    pub(in crate::cli::commands) fn exists(&self) -> bool {
        self.text.is_some()
    }

    /// Whether the client is on this machine, as far as its files tell.
    pub(super) fn is_here(&self) -> bool {
        // The folder of Claude Code's file is the home, which is there anyway.
        let own_folder = self.client != Client::ClaudeCode;
        self.exists() || (own_folder && self.path.parent().is_some_and(std::path::Path::is_dir))
    }

    pub(in crate::cli::commands) fn before(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// The text with this entry in place, and without others.
    pub(super) fn with(
        &self,
        name: &str,
        entry: Option<&Value>,
        without: &[String],
    ) -> Result<String, Failure> {
        edited(self.client, self.before(), name, entry, without)
            .map_err(|why| Failure::Other(format!("{}: {why}", self.path.display())))
    }

    /// What the file was before the entry came; `None` when there was none. A file that was changed since
    /// only loses the entry.
    pub(super) fn undone(&self, name: &str) -> Result<Option<String>, Failure> {
        let without = self.with(name, None, &[])?;
        let kept = match fs::read_to_string(self.kept()) {
            Ok(kept) => kept,
            Err(_) if self.holds_nothing(&without) => return Ok(None),
            Err(_) => return Ok(Some(without)),
        };
        Ok(Some(match self.is_what_is_left_of(&without, &kept) {
            true => kept,
            false => without,
        }))
    }

    fn holds_nothing(&self, text: &str) -> bool {
        let read = self.client.form().read(text);
        let table = read.ok().and_then(|read| read.as_object().cloned());
        let nothing = |value: &Value| value.as_object().is_some_and(Map::is_empty);
        table.is_some_and(|table| table.values().all(nothing))
    }

    /// Whether a text is another one with some of its servers taken out, and nothing else.
    fn is_what_is_left_of(&self, text: &str, kept: &str) -> bool {
        let (form, table) = (self.client.form(), self.client.table());
        let (Ok(mut text), Ok(mut kept)) = (form.read(text), form.read(kept)) else {
            return false;
        };
        let taken = |document: &mut Value| {
            let servers = document
                .as_object_mut()
                .and_then(|top| top.shift_remove(table));
            servers.and_then(|servers| servers.as_object().cloned())
        };
        let (left, whole) = (taken(&mut text), taken(&mut kept));
        let (left, whole) = (left.unwrap_or_default(), whole.unwrap_or_default());
        let is_null = |document: &Value| document.as_object().is_none_or(Map::is_empty);
        (text == kept || (is_null(&text) && is_null(&kept)))
            && left
                .iter()
                .all(|(name, server)| whole.get(name) == Some(server))
    }

    /// Writes it; answers where the file lies as it was.
    pub(in crate::cli::commands) fn write(
        &self,
        text: &str,
        private: bool,
    ) -> Result<Option<PathBuf>, Failure> {
        let failed = |error: io::Error| Failure::Other(explained(&self.path, &error));
        let mode = fs::metadata(&self.path).map_or(0o600, |m| m.permissions().mode() & 0o777);
        let kept = match &self.text {
            Some(before) if !self.kept().exists() => {
                atomic_file::write_with_mode(&self.kept(), before.as_bytes(), mode)
                    .map_err(failed)?;
                Some(self.kept())
            }
            Some(_) => Some(self.kept()),
            None => None,
        };
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        // A token is for its owner alone.
        let mode = if private { mode & 0o700 } else { mode };
        atomic_file::write_with_mode(&self.path, text.as_bytes(), mode).map_err(failed)?;
        Ok(kept)
    }

    /// Writes what was there before.
    pub(super) fn restore(&self, text: Option<&str>) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::Other(explained(&self.path, &error));
        match text {
            Some(text) => {
                let mode =
                    fs::metadata(&self.path).map_or(0o600, |m| m.permissions().mode() & 0o777);
                atomic_file::write_with_mode(&self.path, text.as_bytes(), mode).map_err(failed)?;
            }
            None => fs::remove_file(&self.path).map_err(failed)?,
        }
        match fs::remove_file(self.kept()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Beside it, where its user finds it.
    fn kept(&self) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".before-mgp");
        self.path.with_file_name(name)
    }

    /// The whole text that holds only this table, as the client writes it.
    pub(super) fn in_form(&self, table: &Value) -> Result<String, Failure> {
        let name = self.client.table();
        let entries = table[name].as_object().into_iter().flatten();
        let mut text = String::new();
        for (entry, value) in entries {
            text = edited(self.client, &text, entry, Some(value), &[]).map_err(Failure::Other)?;
        }
        Ok(text.trim_end().to_owned())
    }

    /// The lines that change, with those around them.
    pub(in crate::cli::commands) fn difference(&self, after: &str) -> String {
        let (old, new): (Vec<&str>, Vec<&str>) =
            (self.before().lines().collect(), after.lines().collect());
        let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
        let head = old.iter().zip(&new).take_while(same).count();
        let (rest, more) = (&old[head..], &new[head..]);
        let tail = rest
            .iter()
            .rev()
            .zip(more.iter().rev())
            .take_while(same)
            .count();
        let mut lines = vec![format!("{}:", self.path.display())];
        let mut add = |mark: &str, part: &[&str]| {
            lines.extend(part.iter().map(|line| format!("{mark} {}", masked(line))));
        };
        add(" ", &old[head.saturating_sub(AROUND)..head]);
        add("-", &rest[..rest.len() - tail]);
        add("+", &more[..more.len() - tail]);
        let tail = &more[more.len() - tail..];
        add(" ", &tail[..tail.len().min(AROUND)]);
        lines.join("\n")
    }
}

fn edited(
    client: Client,
    text: &str,
    name: &str,
    entry: Option<&Value>,
    without: &[String],
) -> Result<String, String> {
    let (form, table) = (client.form(), client.table());
    let mut text = text.to_owned();
    for name in without {
        let place = EntryPlace { table, name };
        text = remove(form, &text, place).map_err(|why| why.to_string())?;
    }
    let place = EntryPlace { table, name };
    let edited = match entry {
        Some(entry) => put(form, &text, place, entry),
        None => remove(form, &text, place),
    };
    edited.map_err(|why| why.to_string())
}

/// A line without what looks like a secret: a screen may be shared.
fn masked(line: &str) -> String {
    let parts: Vec<&str> = line.split('"').collect();
    let mut shown = parts.clone();
    for at in (1..parts.len()).step_by(2) {
        let before = parts[at - 1].trim();
        let name = match before.strip_suffix('=').map(str::trim) {
            Some(name) => name.rsplit([' ', ',', '{']).next().unwrap_or_default(),
            None if before == ":" && at >= 2 => parts[at - 2],
            None => "",
        };
        if is_secret(name, parts[at]) {
            shown[at] = "…";
        }
    }
    shown.join("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        for (line, shown) in [
            (
                r#"  "env": { "API_KEY": "hush", "LEVEL": "5" }"#,
                r#"  "env": { "API_KEY": "…", "LEVEL": "5" }"#,
            ),
            (
                r#"env = { A_TOKEN = "hush" }"#,
                r#"env = { A_TOKEN = "…" }"#,
            ),
            (
                r#"  "args": ["ghp_0123456789abcdefghij"]"#,
                r#"  "args": ["…"]"#,
            ),
            (r#"  "command": "mgp""#, r#"  "command": "mgp""#),
        ] {
            assert_eq!(masked(line), shown);
        }
    }
}
