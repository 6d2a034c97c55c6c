//! A client's file, before and after a change.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mgp_clients::{
    BlockedEntry, Client, ConnectedFile, DocumentForm, EntryLocation, UndoResult, is_kernel_entry,
    put_entry, remove_entry, undo,
};
use mgp_store::{atomic_file, explain_io_error, regular_file};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ENTRY_NAMES, client_user_file};
use crate::cli::client::CliContext;
use crate::cli::commands::servers::import::DuplicateServer;
use crate::cli::commands::servers::shown_secrets;
use crate::cli::failure::Failure;
use crate::trust;

/// The suffix of the copy of a file.
const COPY: &str = ".before-mgp";
const COPIES_MAX: usize = 100;
/// Context lines of a diff.
const CONTEXT_LINES: usize = 2;

/// The record for undoing; it is next to the client's file while that is connected.
#[derive(Serialize, Deserialize)]
struct ConnectRecord {
    /// The text to restore if the client changes nothing; none if there was no file.
    before: Option<String>,
    /// The text last written.
    after: String,
    /// The name of this kernel's entry; older records lack it.
    #[serde(default = "default_entry_name")]
    own: String,
    /// Entries that an earlier undo could not restore.
    #[serde(default)]
    blocked: Vec<BlockedEntry>,
    /// The copy of the original file; older records lack it.
    #[serde(default)]
    copy: Option<FileCopy>,
    /// Tokens created by connecting.
    #[serde(default)]
    tokens: Vec<ConnectToken>,
}

/// A token created by connecting, without the token itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ConnectToken {
    /// `agent.cursor`.
    pub(super) agent: String,
    /// Its creation by the kernel's clock: a later token is someone else's.
    pub(super) made_at: String,
    /// Whether the agent was created with it.
    pub(super) is_new_agent: bool,
}

/// A copy made by this kernel: another file of that name is the user's.
#[derive(Clone, Serialize, Deserialize)]
struct FileCopy {
    /// Its name, next to the client's file.
    name: String,
    /// The hash of its contents.
    blake3: String,
}

fn default_entry_name() -> String {
    ENTRY_NAMES[0].to_owned()
}

/// The current file of a client.
pub(in crate::cli::commands) struct ClientFileEdit {
    pub(in crate::cli::commands) client: Client,
    pub(in crate::cli::commands) path: PathBuf,
    /// `None` if the file does not exist.
    text: Option<String>,
}

impl ClientFileEdit {
    pub(in crate::cli::commands) fn open_user_file(
        context: &CliContext,
        client: Client,
    ) -> Result<Self, Failure> {
        Self::open(client, client_user_file(context, client)?)
    }

    /// A file in the form of this client.
    pub(in crate::cli::commands) fn open(client: Client, path: PathBuf) -> Result<Self, Failure> {
        // The target of a link is edited in place.
        let path = atomic_file::behind_links(&path);
        let text = read_if_exists(&path)?;
        Ok(Self { client, path, text })
    }

    pub(in crate::cli::commands) fn exists(&self) -> bool {
        self.text.is_some()
    }

    /// Whether the client is installed, as far as its files show.
    pub(super) fn is_client_installed(&self) -> bool {
        // The folder of Claude Code's file is the home, which always exists.
        let own_folder = self.client != Client::ClaudeCode;
        self.exists() || (own_folder && self.path.parent().is_some_and(std::path::Path::is_dir))
    }

    pub(in crate::cli::commands) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// The text with this entry, and without others.
    pub(super) fn with_entry(
        &self,
        name: &str,
        entry: &Value,
        without: &[DuplicateServer],
    ) -> Result<String, Failure> {
        let failed = |why: String| Failure::Other(format!("{}: {why}", self.path.display()));
        let mut text = set_entry(self.client, self.text(), name, entry).map_err(failed)?;
        let document = self.document()?;
        for removed_entries in without {
            // This kernel's entry replaces it.
            if removed_entries.project.is_none() && removed_entries.name == name {
                continue;
            }
            let table = match &removed_entries.project {
                None => self.client.table_path(&document),
                Some(folder) => ["projects", folder, self.client.table()]
                    .map(str::to_owned)
                    .into(),
            };
            let place = EntryLocation {
                table: &table,
                shape: self.client.table_form(),
                name: &removed_entries.name,
            };
            text = remove_entry(self.client.document_form(), &text, place)
                .map_err(|why| failed(why.to_string()))?;
        }
        Ok(text)
    }

    /// The parsed file.
    pub(in crate::cli::commands) fn document(&self) -> Result<Value, Failure> {
        let read = self.client.document_form().parse(self.text());
        read.map_err(|why| Failure::Other(format!("{}: {why}", self.path.display())))
    }

    /// The text after an undo.
    pub(super) fn plan_undo(&self, door: &str) -> Result<UndoResult, Failure> {
        let record = self.read_record()?;
        // Without a record the previous text is unknown: no file is removed, and nothing is restored.
        let before = match &record {
            Some(record) => record.before.as_deref(),
            None => Some(""),
        };
        let file = ConnectedFile {
            client: self.client,
            kernel_entry: record.as_ref().map_or(ENTRY_NAMES[0], |record| &record.own),
            before,
            after: record.as_ref().map(|record| record.after.as_str()),
            current: self.text(),
            endpoint: door,
            blocked: record.as_ref().map_or(&[], |record| &record.blocked),
        };
        let undone = undo(&file);
        let mut undone =
            undone.map_err(|why| Failure::Other(format!("{}: {why}", self.path.display())))?;
        // A missing file is not created if nothing is restored.
        if !self.exists() && undone.restored.is_empty() {
            undone.text = None;
        }
        Ok(undone)
    }

    /// Whether a text is the file before this kernel's first change.
    pub(super) fn matches_backup(&self, text: Option<&str>) -> Result<bool, Failure> {
        let copy = match self.read_record()?.and_then(|record| record.copy) {
            None => self.own_copy()?,
            copy => copy,
        };
        Ok(text.map(trust::hash) == copy.map(|copy| copy.blake3))
    }

    /// The copy of the original file, if it is unchanged.
    fn own_copy(&self) -> Result<Option<FileCopy>, Failure> {
        let named = self.read_record()?.and_then(|record| {
            let usual = || {
                let name = file_name(&self.sibling_path(COPY));
                let blake3 = trust::hash(record.before.as_ref()?);
                Some(FileCopy { name, blake3 })
            };
            // Older records name no copy; theirs contains the text to restore.
            record.copy.or_else(usual)
        });
        Ok(named.filter(|copy| {
            let text = read_if_exists(&self.path.with_file_name(&copy.name));
            text.is_ok_and(|text| text.is_some_and(|text| trust::hash(&text) == copy.blake3))
        }))
    }

    /// The path of the copy.
    fn own_copy_path(&self) -> Result<Option<PathBuf>, Failure> {
        let copy = self.own_copy()?;
        Ok(copy.map(|copy| self.path.with_file_name(copy.name)))
    }

    /// A file that has the usual name of the copy and is not this kernel's.
    pub(in crate::cli::commands) fn foreign_copy(&self) -> Result<Option<PathBuf>, Failure> {
        let (usual, own) = (self.sibling_path(COPY), self.own_copy_path()?);
        let is_foreign = own.as_ref() != Some(&usual) && usual.symlink_metadata().is_ok();
        Ok(is_foreign.then_some(usual))
    }

    /// Writes a copy of the text to a free name.
    fn make_copy(&self, text: &str) -> Result<FileCopy, Failure> {
        let numbered = (2..COPIES_MAX).map(|at| self.sibling_path(&format!("{COPY}-{at}")));
        let mut all = std::iter::once(self.sibling_path(COPY)).chain(numbered);
        let path = all.find(|path| path.symlink_metadata().is_err());
        let path = path.ok_or_else(|| {
            Failure::Other(format!(
                "there are {COPIES_MAX} copies beside {}, and nothing was changed: remove those you do not need",
                self.path.display()
            ))
        })?;
        let mode = self.mode();
        atomic_file::write_with_mode(&path, text.as_bytes(), mode)
            .map_err(|error| Failure::Other(explain_io_error(&path, &error)))?;
        Ok(FileCopy {
            name: file_name(&path),
            blake3: trust::hash(text),
        })
    }

    fn mode(&self) -> u32 {
        fs::metadata(&self.path).map_or(0o600, |m| m.permissions().mode() & 0o777)
    }

    /// The tokens created by connecting that a text no longer contains.
    pub(super) fn tokens_gone_from(&self, text: &str) -> Result<Vec<ConnectToken>, Failure> {
        let Some(record) = self.read_record()? else {
            return Ok(Vec::new());
        };
        let written = self.client.document_form().parse(&record.after).ok();
        let written = written.iter().flat_map(bearer_tokens);
        let is_there = written.into_iter().any(|token| text.contains(&token));
        Ok(if is_there { Vec::new() } else { record.tokens })
    }

    /// All tokens created by connecting.
    pub(super) fn tokens(&self) -> Result<Vec<ConnectToken>, Failure> {
        Ok(self
            .read_record()?
            .map_or(Vec::new(), |record| record.tokens))
    }

    fn read_record(&self) -> Result<Option<ConnectRecord>, Failure> {
        let path = self.record_path();
        let Some(text) = read_if_exists(&path)? else {
            return Ok(None);
        };
        let read = serde_json::from_str(&text);
        read.map(Some)
            .map_err(|error| Failure::Other(format!("{}: {error}", path.display())))
    }

    /// Writes the file and a copy of its previous contents; returns the copy's path.
    pub(in crate::cli::commands) fn write(
        &self,
        text: &str,
        private: bool,
    ) -> Result<Option<PathBuf>, Failure> {
        self.check_unchanged()?;
        let copy = self.text.as_ref().map(|before| self.make_copy(before));
        let copy = copy.transpose()?;
        self.replace(text, private)?;
        Ok(copy.map(|copy| self.path.with_file_name(copy.name)))
    }

    fn replace(&self, text: &str, private: bool) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::Other(explain_io_error(&self.path, &error));
        let mode = self.mode();
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        // A token must be readable only by the owner.
        let mode = if private { mode & 0o700 } else { mode };
        atomic_file::write_with_mode(&self.path, text.as_bytes(), mode).map_err(failed)
    }

    /// Writes the file with this kernel's entry, and the record; returns the path of the copy.
    pub(super) fn write_connected(
        &self,
        own: &str,
        text: &str,
        token: Option<ConnectToken>,
        door: &str,
    ) -> Result<Option<PathBuf>, Failure> {
        self.check_unchanged()?;
        let record = self.read_record()?;
        let mut tokens = record.as_ref().map_or(Vec::new(), |it| it.tokens.clone());
        let undone = || -> Result<_, Failure> {
            let undone = self.plan_undo(door)?;
            Ok((undone.text, undone.blocked))
        };
        let (before, blocked) = match record {
            Some(record) if self.text.as_deref() == Some(&record.after) => {
                (record.before, record.blocked)
            }
            // The client changed it since: the result of an undo is restored.
            Some(_) => undone()?,
            None => (self.text.clone(), Vec::new()),
        };
        // The first copy stays.
        let copy = match (self.own_copy()?, &self.text) {
            (None, Some(text)) => Some(self.make_copy(text)?),
            (copy, _) => copy,
        };
        let path = copy
            .as_ref()
            .map(|copy| self.path.with_file_name(&copy.name));
        let private = token.is_some();
        tokens.retain(|known| token.as_ref().is_none_or(|new| new.agent != known.agent));
        tokens.extend(token);
        let record = ConnectRecord {
            before,
            after: text.to_owned(),
            own: own.to_owned(),
            blocked,
            copy,
            tokens,
        };
        // First: without it, the written file could not be restored.
        self.write_record(&record)?;
        self.replace(text, private)?;
        Ok(path)
    }

    fn write_record(&self, record: &ConnectRecord) -> Result<(), Failure> {
        let bytes = serde_json::to_vec(record).expect("texts are JSON");
        let failed =
            |error: io::Error| Failure::Other(explain_io_error(&self.record_path(), &error));
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        atomic_file::write_with_mode(&self.record_path(), &bytes, 0o600).map_err(failed)
    }

    /// The name of this kernel's entry: the existing one, or one that no other server has.
    pub(super) fn entry_name(&self, entry: &Value, door: &str) -> Result<&'static str, Failure> {
        let mut free = None;
        for name in ENTRY_NAMES {
            match self.find_entry(name)? {
                Some(there) if is_kernel_entry(&there, door) || has_same_command(&there, entry) => {
                    return Ok(name);
                }
                Some(_) => {}
                None => free = free.or(Some(name)),
            }
        }
        free.ok_or_else(|| {
            Failure::Other(format!(
                "{}: {} are other servers there, and this kernel's entry has no name; rename one of them",
                self.path.display(),
                ENTRY_NAMES.join(" and ")
            ))
        })
    }

    /// The entry of this name.
    fn find_entry(&self, name: &str) -> Result<Option<Value>, Failure> {
        let document = self.document()?;
        let table = self.client.table_path(&document);
        let table = table
            .iter()
            .try_fold(&document, |value, key| value.get(key));
        let mut entries = table.map(Client::entries).unwrap_or_default().into_iter();
        let named = entries.find(|(own, _)| *own == name);
        Ok(named.map(|(_, entry)| entry.clone()))
    }

    /// Writes the result of an undo. The copy stays until all removed entries are restored; returns its path if it
    /// stays.
    pub(super) fn restore(&self, undone: &UndoResult) -> Result<Option<PathBuf>, Failure> {
        self.check_unchanged()?;
        let failed = |error: io::Error| Failure::Other(explain_io_error(&self.path, &error));
        let copy = self.own_copy_path()?;
        match &undone.text {
            Some(text) => {
                atomic_file::write_with_mode(&self.path, text.as_bytes(), self.mode())
                    .map_err(failed)?;
            }
            None if self.exists() => fs::remove_file(&self.path).map_err(failed)?,
            None => {}
        }
        let exact = self.matches_backup(undone.text.as_deref())?;
        let is_back = undone.blocked.is_empty();
        let complete = is_back && undone.is_kernel_entry_known && !self.loses_comments(undone)?;
        let gone = undone.text.is_none();
        match (exact && is_back) || (complete && !gone) {
            true => {
                copy.as_deref().map_or(Ok(()), remove_if_exists)?;
                remove_if_exists(&self.record_path())?;
            }
            false if !is_back && undone.is_kernel_entry_known => self.save_blocked(undone)?,
            false if copy.is_some() || !undone.is_kernel_entry_known => {}
            false => remove_if_exists(&self.record_path())?,
        }
        Ok(copy.filter(|copy| copy.exists()))
    }

    /// Keeps only the entries that were not restored in the record.
    fn save_blocked(&self, undone: &UndoResult) -> Result<(), Failure> {
        let own = self
            .read_record()?
            .map_or_else(default_entry_name, |record| record.own);
        self.write_record(&ConnectRecord {
            before: undone.text.clone(),
            after: undone.text.clone().unwrap_or_default(),
            own,
            blocked: undone.blocked.clone(),
            copy: self.own_copy()?,
            tokens: Vec::new(),
        })
    }

    /// Whether entries were restored without comments that they may have had.
    fn loses_comments(&self, undone: &UndoResult) -> Result<bool, Failure> {
        let text = undone.text.as_deref();
        if undone.restored.is_empty() || self.matches_backup(text)? {
            return Ok(false);
        }
        let remarks = |text: &str| -> usize {
            let markers = match self.client.document_form() {
                DocumentForm::Json => &["//", "/*"][..],
                DocumentForm::Toml | DocumentForm::Yaml => &["#"],
            };
            // URLs contain slashes, too.
            let text = text.replace("://", "");
            markers
                .iter()
                .map(|marker| text.matches(marker).count())
                .sum()
        };
        let copy = self.own_copy_path()?;
        let copied = copy.map_or(Ok(None), |copy| read_if_exists(&copy))?;
        let copied = copied.unwrap_or_default();
        Ok(remarks(&copied) > remarks(text.unwrap_or_default()))
    }

    /// The client may write the file while the user reads the preview.
    fn check_unchanged(&self) -> Result<(), Failure> {
        if read_if_exists(&self.path)? == self.text {
            Ok(())
        } else {
            Err(Failure::Other(format!(
                "{} was changed meanwhile, and was not written; type the command again",
                self.path.display()
            )))
        }
    }

    fn record_path(&self) -> PathBuf {
        self.sibling_path(".mgp-undo")
    }

    fn sibling_path(&self, ending: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        self.path.with_file_name(name)
    }

    /// A file that contains only this table, as the client writes it.
    pub(super) fn render_table(&self, table: &Value) -> Result<String, Failure> {
        let name = self.client.table();
        let entries = table[name].as_object().into_iter().flatten();
        let mut text = String::new();
        for (entry, value) in entries {
            text = set_entry(self.client, &text, entry, value).map_err(Failure::Other)?;
        }
        Ok(text.trim_end().to_owned())
    }

    /// The changed lines with context.
    pub(in crate::cli::commands) fn render_diff(&self, after: &str) -> String {
        let (old, new): (Vec<&str>, Vec<&str>) =
            (self.text().lines().collect(), after.lines().collect());
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
        let read = |text| self.client.document_form().parse(text).ok();
        let documents = [self.text(), after].map(read);
        let secrets = documents
            .into_iter()
            .flatten()
            .flat_map(|document| shown_secrets::secret_lines(&document));
        let secrets = secrets.collect();
        let mut add = |marker: &str, part: &[&str]| {
            lines
                .extend(part.iter().map(|line| {
                    format!("{marker} {}", shown_secrets::mask_values(line, &secrets))
                }));
        };
        add(" ", &old[head.saturating_sub(CONTEXT_LINES)..head]);
        add("-", &rest[..rest.len() - tail]);
        add("+", &more[..more.len() - tail]);
        let tail = &more[more.len() - tail..];
        add(" ", &tail[..tail.len().min(CONTEXT_LINES)]);
        lines.join("\n")
    }
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The bearer tokens in a document.
fn bearer_tokens(document: &Value) -> Vec<String> {
    match document {
        Value::String(text) => text
            .strip_prefix("Bearer ")
            .map(str::to_owned)
            .into_iter()
            .collect(),
        Value::Array(items) => items.iter().flat_map(bearer_tokens).collect(),
        Value::Object(members) => members.values().flat_map(bearer_tokens).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Whether both start the same program.
fn has_same_command(one: &Value, other: &Value) -> bool {
    let program = |entry: &Value| entry.get("command").or_else(|| entry.get("cmd")).cloned();
    program(one).is_some_and(|one| Some(one) == program(other))
}

fn set_entry(client: Client, text: &str, name: &str, entry: &Value) -> Result<String, String> {
    let form = client.document_form();
    let document = form.parse(text).map_err(|why| why.to_string())?;
    let table = client.table_path(&document);
    let place = EntryLocation {
        table: &table,
        shape: client.table_form(),
        name,
    };
    put_entry(form, text, place, entry).map_err(|why| why.to_string())
}

fn read_if_exists(path: &Path) -> Result<Option<String>, Failure> {
    match regular_file::open(path).and_then(io::read_to_string) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::Other(format!("{}: {error}", path.display()))),
    }
}

fn remove_if_exists(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::Other(explain_io_error(path, &error)))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DOOR: &str = "http://127.0.0.1:7332/mcp";
    const BEFORE: &str =
        "{\"mcpServers\": {\"fs\": {\"command\": \"files\"}, \"db\": {\"command\": \"db\"}}}\n";

    struct CursorFile {
        _folder: tempfile::TempDir,
        path: PathBuf,
    }

    impl CursorFile {
        fn new(text: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("mcp.json");
            fs::write(&path, text).unwrap();
            Self {
                _folder: folder,
                path,
            }
        }

        fn open(&self) -> ClientFileEdit {
            ClientFileEdit::open(Client::Cursor, self.path.clone()).unwrap()
        }

        fn text(&self) -> String {
            fs::read_to_string(&self.path).unwrap()
        }

        fn connect(&self, removed_entries: &[&str]) {
            let file = self.open();
            let removed_entries: Vec<_> =
                removed_entries.iter().map(|name| doubled(name)).collect();
            let entry = json!({"command": "/bin/mgp", "args": ["stdio"]});
            let text = file.with_entry("mgp", &entry, &removed_entries).unwrap();
            file.write_connected("mgp", &text, None, DOOR).unwrap();
        }

        fn beside(&self, ending: &str) -> PathBuf {
            self.path.with_file_name(format!("mcp.json{ending}"))
        }

        fn undo(&self) -> Option<PathBuf> {
            let file = self.open();
            file.restore(&file.plan_undo(DOOR).unwrap()).unwrap()
        }
    }

    fn doubled(name: &str) -> DuplicateServer {
        DuplicateServer {
            project: None,
            name: name.to_owned(),
            id: name.to_owned(),
            file: PathBuf::new(),
            tools: mgp_clients::ToolLimits::default(),
            dropped_keys: Vec::new(),
            is_disabled_only_in_client: false,
            not_starting: Vec::new(),
        }
    }

    /// More entries were removed each time, with changes of the client in between.
    #[test]
    fn entries_removed_at_several_times_are_restored() {
        let file = CursorFile::new(BEFORE);
        file.connect(&["fs"]);
        file.connect(&["db"]);
        assert_eq!(file.undo(), None);
        assert_eq!(file.text(), BEFORE);

        file.connect(&["fs"]);
        let written = file
            .text()
            .replace("\"db\": {", "\"new\": {\"command\": \"n\"}, \"db\": {");
        fs::write(&file.path, written).unwrap();
        file.connect(&["db", "new"]);
        assert!(!file.text().contains("\"n\""), "{}", file.text());
        file.undo();
        let read = file.open().document().unwrap();
        let names: Vec<_> = Client::entries(&read["mcpServers"])
            .iter()
            .map(|(n, _)| *n)
            .collect();
        let names: std::collections::BTreeSet<_> = names.into_iter().collect();
        assert_eq!(names, std::collections::BTreeSet::from(["db", "fs", "new"]));
    }

    /// A file that the client writes meanwhile is not overwritten.
    #[test]
    fn a_file_that_changed_meanwhile_is_not_overwritten() {
        let file = CursorFile::new(BEFORE);
        let edit = file.open();
        fs::write(&file.path, "{\"theme\": 1}").unwrap();
        assert!(edit.write_connected("mgp", "{}", None, DOOR).is_err());
        assert!(edit.restore(&edit.plan_undo(DOOR).unwrap()).is_err());
        assert_eq!(file.text(), "{\"theme\": 1}");
    }

    /// A file of the user with the usual name of the copy.
    #[test]
    fn a_foreign_copy_is_not_touched() {
        let file = CursorFile::new(BEFORE);
        let foreign = file.beside(".before-mgp");
        fs::write(&foreign, "{\"mine\": 1}").unwrap();
        let is_foreign = || {
            assert_eq!(fs::read_to_string(&foreign).unwrap(), "{\"mine\": 1}");
            assert_eq!(file.open().foreign_copy().unwrap().as_ref(), Some(&foreign));
        };
        let undone = file.open().plan_undo(DOOR).unwrap();
        assert_eq!(undone.text.as_deref(), Some(BEFORE));
        is_foreign();
        file.connect(&["fs"]);
        is_foreign();
        let own = file.beside(".before-mgp-2");
        assert_eq!(fs::read_to_string(&own).unwrap(), BEFORE);
        assert_eq!(file.undo(), None);
        assert_eq!((file.text().as_str(), own.exists()), (BEFORE, false));
        is_foreign();
        // The copy of an export is the user's, too.
        let backup = file.open().write("{}", false).unwrap().unwrap();
        file.connect(&[]);
        assert_eq!(file.undo(), None);
        assert_eq!(fs::read_to_string(&backup).unwrap(), BEFORE);
        is_foreign();
    }

    /// Older records did not name the copy.
    #[test]
    fn the_copy_of_an_older_record_is_removed_with_it() {
        let file = CursorFile::new(BEFORE);
        file.connect(&["fs"]);
        let record = fs::read_to_string(file.open().record_path()).unwrap();
        let mut record: Value = serde_json::from_str(&record).unwrap();
        for key in ["copy", "tokens"] {
            assert!(record.as_object_mut().unwrap().shift_remove(key).is_some());
        }
        fs::write(file.open().record_path(), record.to_string()).unwrap();
        assert!(file.open().matches_backup(Some(BEFORE)).unwrap());
        assert_eq!(file.undo(), None);
        assert_eq!(file.text(), BEFORE);
        assert!(!file.beside(".before-mgp").exists());
    }

    /// Its target may be on a disk that is not mounted.
    #[test]
    fn a_dangling_link_stays_a_link() {
        let file = CursorFile::new(BEFORE);
        let target = file.path.with_file_name("real.json");
        fs::remove_file(&file.path).unwrap();
        std::os::unix::fs::symlink("real.json", &file.path).unwrap();
        file.connect(&[]);
        assert_eq!(fs::read_link(&file.path).unwrap(), Path::new("real.json"));
        assert!(fs::read_to_string(&target).unwrap().contains("/bin/mgp"));
        file.undo();
        assert!(!target.exists());
    }

    /// Comments in removed entries are only in the copy.
    #[test]
    fn the_copy_stays_while_it_contains_more() {
        let remark = BEFORE.replace("\"files\"", "\"files\" /* mine */");
        let file = CursorFile::new(&remark);
        file.connect(&["fs"]);
        let written = file.text().replace("/bin/mgp\"", "/bin/mgp\", \"x\": 1");
        fs::write(&file.path, written).unwrap();
        let copy = file.undo().unwrap();
        assert_eq!(fs::read_to_string(copy).unwrap(), remark);
        assert!(file.text().contains("files") && !file.text().contains("mgp"));
    }

    /// It stays in the record, however often the client is connected and disconnected, until its name is free.
    #[test]
    fn an_unrestored_entry_survives_a_reconnect() {
        let file = CursorFile::new(BEFORE);
        file.connect(&["fs"]);
        let other = file
            .text()
            .replace("\"db\": {", "\"fs\": {\"command\": \"other\"}, \"db\": {");
        fs::write(&file.path, other).unwrap();
        assert!(file.undo().is_some());
        for _ in 0..2 {
            file.connect(&[]);
            let undone = file.open().plan_undo(DOOR).unwrap();
            assert_eq!(undone.blocked[0].name, "fs");
            assert!(file.undo().is_some());
            assert!(file.text().contains("other") && !file.text().contains("/bin/mgp"));
            assert!(file.open().record_path().exists());
        }
        let freed = file.text().replace("\"fs\"", "\"other\"");
        fs::write(&file.path, freed).unwrap();
        file.connect(&[]);
        assert_eq!(file.undo(), None);
        let servers = file.open().document().unwrap()["mcpServers"].clone();
        assert_eq!(servers["fs"]["command"], "files");
        assert_eq!(servers["other"]["command"], "other");
        assert!(!file.open().record_path().exists());
    }

    /// A server of the user with the usual name of this kernel's entry.
    #[test]
    fn the_entry_never_replaces_another_server() {
        let entry = json!({"command": "/bin/mgp", "args": ["stdio"]});
        let name = |text: &str| CursorFile::new(text).open().entry_name(&entry, DOOR);
        let removed_entries = "{\"mcpServers\": {\"mgp\": {\"command\": \"mgp-fixture\"}}}\n";
        assert_eq!(name("{}").unwrap(), "mgp");
        assert_eq!(name(removed_entries).unwrap(), "mgp-kernel");
        let own = removed_entries.replace("mgp-fixture\"", "/old/mgp\", \"args\": [\"stdio\"]");
        assert_eq!(name(&own).unwrap(), "mgp");
        let ours = own.replace("\"mgp\"", "\"mgp-kernel\"");
        assert_eq!(name(&ours).unwrap(), "mgp-kernel");
        let both = removed_entries.replace("}}}", "}, \"mgp-kernel\": {\"command\": \"x\"}}}");
        assert!(name(&both).unwrap_err().to_string().contains("rename one"));

        let file = CursorFile::new(removed_entries);
        let edit = file.open();
        let text = edit
            .with_entry("mgp-kernel", &entry, &[doubled("mgp")])
            .unwrap();
        edit.write_connected("mgp-kernel", &text, None, DOOR)
            .unwrap();
        let servers = file.open().document().unwrap()["mcpServers"].clone();
        assert_eq!(servers, json!({"mgp-kernel": entry}));
        fs::write(
            &file.path,
            file.text().replace("\"args\"", "\"x\": 1, \"args\""),
        )
        .unwrap();
        assert_eq!(file.undo(), None);
        let servers = file.open().document().unwrap()["mcpServers"].clone();
        assert_eq!(servers, json!({"mgp": {"command": "mgp-fixture"}}));
    }

    /// The entry may have been renamed: the record stays.
    #[test]
    fn the_copies_stay_if_the_entry_is_not_found() {
        let file = CursorFile::new(BEFORE);
        file.connect(&["fs"]);
        let written = file.text().replace("\"mgp\"", "\"kernel\"");
        let unknown = written.replace("/bin/mgp", "/bin/wrapper");
        fs::write(&file.path, unknown).unwrap();
        assert!(file.undo().is_some() && file.open().record_path().exists());
        fs::write(
            &file.path,
            written.replace("\"stdio\"", "\"stdio\", \"--agent\", \"zed\""),
        )
        .unwrap();
        assert_eq!(file.undo(), None);
        assert!(!file.text().contains("mgp") && file.text().contains("files"));
        assert!(!file.open().record_path().exists());
    }
}
