//! One client's file, before and after.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mgp_clients::{
    BlockedEntry, Client, ConnectedFile, DocumentForm, EntryLocation, UndoResult, is_kernel_entry,
    put_entry, remove_entry, undo,
};
use mgp_store::atomic_file;
use mgp_store::health::explain_io_error;
use mgp_store::regular_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ENTRY_NAMES, client_user_file};
use crate::cli::client::CliContext;
use crate::cli::commands::servers::import::DuplicateServer;
use crate::cli::commands::servers::shown_secrets;
use crate::cli::failure::Failure;
use crate::trust;

/// What the copy of a file ends in, and most others of that name beside one file.
const COPY: &str = ".before-mgp";
const COPIES_MAX: usize = 100;
/// Lines shown around what changes.
const CONTEXT_LINES: usize = 2;

/// What undoing needs to know; it lies beside the client's file while that is connected.
#[derive(Serialize, Deserialize)]
struct ConnectRecord {
    /// The text that comes back where the client changes nothing; none where there was no file.
    before: Option<String>,
    /// The text as it was written last.
    after: String,
    /// What this kernel's entry is called; older records do not say.
    #[serde(default = "default_entry_name")]
    own: String,
    /// What did not come back when it was undone before.
    #[serde(default)]
    blocked: Vec<BlockedEntry>,
    /// The copy of the file as it was; older records do not say.
    #[serde(default)]
    copy: Option<FileCopy>,
    /// The tokens that connecting made.
    #[serde(default)]
    tokens: Vec<ConnectToken>,
}

/// A token that connecting made, as the record has it; without the token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ConnectToken {
    /// `agent.cursor`.
    pub(super) agent: String,
    /// When, as the kernel says: a later token is somebody else's.
    pub(super) made_at: String,
    /// The agent was made with it.
    pub(super) is_new_agent: bool,
}

/// A copy that this kernel made: another file of that name is its user's.
#[derive(Clone, Serialize, Deserialize)]
struct FileCopy {
    /// Its name, beside the client's file.
    name: String,
    /// What was written into it.
    blake3: String,
}

fn default_entry_name() -> String {
    ENTRY_NAMES[0].to_owned()
}

/// The user's file of a client, as it is.
pub(in crate::cli::commands) struct ClientFileEdit {
    pub(in crate::cli::commands) client: Client,
    pub(in crate::cli::commands) path: PathBuf,
    /// `None` of a file that is not there.
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
        // A link leads to the file that is meant, which stays where it is.
        let path = atomic_file::behind_links(&path);
        let text = read_if_exists(&path)?;
        Ok(Self { client, path, text })
    }

    pub(in crate::cli::commands) fn exists(&self) -> bool {
        self.text.is_some()
    }

    /// Whether the client is on this machine, as far as its files tell.
    pub(super) fn is_client_installed(&self) -> bool {
        // The folder of Claude Code's file is the home, which is there anyway.
        let own_folder = self.client != Client::ClaudeCode;
        self.exists() || (own_folder && self.path.parent().is_some_and(std::path::Path::is_dir))
    }

    pub(in crate::cli::commands) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// The text with this entry in place, and without others.
    pub(super) fn with_entry(
        &self,
        name: &str,
        entry: &Value,
        without: &[DuplicateServer],
    ) -> Result<String, Failure> {
        let failed = |why: String| Failure::Other(format!("{}: {why}", self.path.display()));
        let mut text = set_entry(self.client, self.text(), name, entry).map_err(failed)?;
        let document = self.document()?;
        for taken in without {
            // This kernel's entry has its place already.
            if taken.project.is_none() && taken.name == name {
                continue;
            }
            let table = match &taken.project {
                None => self.client.table_path(&document),
                Some(folder) => ["projects", folder, self.client.table()]
                    .map(str::to_owned)
                    .into(),
            };
            let place = EntryLocation {
                table: &table,
                shape: self.client.table_form(),
                name: &taken.name,
            };
            text = remove_entry(self.client.document_form(), &text, place)
                .map_err(|why| failed(why.to_string()))?;
        }
        Ok(text)
    }

    /// What the file says.
    pub(in crate::cli::commands) fn document(&self) -> Result<Value, Failure> {
        let read = self.client.document_form().parse(self.text());
        read.map_err(|why| Failure::Other(format!("{}: {why}", self.path.display())))
    }

    /// What undoing would make of the file.
    pub(super) fn plan_undo(&self, door: &str) -> Result<UndoResult, Failure> {
        let record = self.read_record()?;
        // Without a record nobody knows what was there: no file goes, and nothing comes back.
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
        // A file that is not there, and that nothing comes back to, does not come back.
        if !self.exists() && undone.restored.is_empty() {
            undone.text = None;
        }
        Ok(undone)
    }

    /// Whether a text is the file as it was before this kernel wrote into it.
    pub(super) fn matches_backup(&self, text: Option<&str>) -> Result<bool, Failure> {
        let copy = match self.read_record()?.and_then(|record| record.copy) {
            None => self.own_copy()?,
            copy => copy,
        };
        Ok(text.map(trust::hash) == copy.map(|copy| copy.blake3))
    }

    /// The copy of the file as it was: the one that the record names, while it is what was written.
    fn own_copy(&self) -> Result<Option<FileCopy>, Failure> {
        let named = self.read_record()?.and_then(|record| {
            let usual = || {
                let name = file_name(&self.sibling_path(COPY));
                let blake3 = trust::hash(record.before.as_ref()?);
                Some(FileCopy { name, blake3 })
            };
            // Older records name none, and theirs has the text that comes back.
            record.copy.or_else(usual)
        });
        Ok(named.filter(|copy| {
            let text = read_if_exists(&self.path.with_file_name(&copy.name));
            text.is_ok_and(|text| text.is_some_and(|text| trust::hash(&text) == copy.blake3))
        }))
    }

    /// Where that is.
    fn own_copy_path(&self) -> Result<Option<PathBuf>, Failure> {
        let copy = self.own_copy()?;
        Ok(copy.map(|copy| self.path.with_file_name(copy.name)))
    }

    /// The file that has the usual name of the copy and is not this kernel's.
    pub(in crate::cli::commands) fn foreign_copy(&self) -> Result<Option<PathBuf>, Failure> {
        let (usual, own) = (self.sibling_path(COPY), self.own_copy_path()?);
        let is_foreign = own.as_ref() != Some(&usual) && usual.symlink_metadata().is_ok();
        Ok(is_foreign.then_some(usual))
    }

    /// Writes a copy of the text by a name that nothing has.
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

    /// The tokens that connecting made, but for those that a text still has.
    pub(super) fn tokens_gone_from(&self, text: &str) -> Result<Vec<ConnectToken>, Failure> {
        let Some(record) = self.read_record()? else {
            return Ok(Vec::new());
        };
        let written = self.client.document_form().parse(&record.after).ok();
        let written = written.iter().flat_map(bearer_tokens);
        let is_there = written.into_iter().any(|token| text.contains(&token));
        Ok(if is_there { Vec::new() } else { record.tokens })
    }

    /// All of them.
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

    /// Writes it beside a copy of what it was; answers where that lies.
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
        // A token is for its owner alone.
        let mode = if private { mode & 0o700 } else { mode };
        atomic_file::write_with_mode(&self.path, text.as_bytes(), mode).map_err(failed)
    }

    /// Writes it with this kernel's entry, and what undoing needs to know; answers where the file lies as it was.
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
            // The client changed it since: what undoing would make of it is what comes back.
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
        // First: a file that is written without it could not be undone.
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

    /// What this kernel's entry is called: as it is, or by a name that no other server has.
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

    /// Writes what undoing makes of it. The copy stays until all that was taken out is back; answers where it is,
    /// where it stays.
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

    /// What did not come back stays in the record, with nothing else to undo.
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

    /// Whether entries came back without the remarks that they may have had.
    fn loses_comments(&self, undone: &UndoResult) -> Result<bool, Failure> {
        let text = undone.text.as_deref();
        if undone.restored.is_empty() || self.matches_backup(text)? {
            return Ok(false);
        }
        let remarks = |text: &str| -> usize {
            let marks = match self.client.document_form() {
                DocumentForm::Json => &["//", "/*"][..],
                DocumentForm::Toml | DocumentForm::Yaml => &["#"],
            };
            // An address has slashes, too.
            let text = text.replace("://", "");
            marks.iter().map(|mark| text.matches(mark).count()).sum()
        };
        let copy = self.own_copy_path()?;
        let copied = copy.map_or(Ok(None), |copy| read_if_exists(&copy))?;
        let copied = copied.unwrap_or_default();
        Ok(remarks(&copied) > remarks(text.unwrap_or_default()))
    }

    /// The client may write while a person reads what is shown.
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

    /// The whole text that holds only this table, as the client writes it.
    pub(super) fn render_table(&self, table: &Value) -> Result<String, Failure> {
        let name = self.client.table();
        let entries = table[name].as_object().into_iter().flatten();
        let mut text = String::new();
        for (entry, value) in entries {
            text = set_entry(self.client, &text, entry, value).map_err(Failure::Other)?;
        }
        Ok(text.trim_end().to_owned())
    }

    /// The lines that change, with those around them.
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
        let mut add = |mark: &str, part: &[&str]| {
            lines.extend(
                part.iter()
                    .map(|line| format!("{mark} {}", shown_secrets::mask_values(line, &secrets))),
            );
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

/// What stands behind a `Bearer` in a document.
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

/// Whether both start one program, whatever it is called.
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

        fn connect(&self, taken: &[&str]) {
            let file = self.open();
            let taken: Vec<_> = taken.iter().map(|name| doubled(name)).collect();
            let entry = json!({"command": "/bin/mgp", "args": ["stdio"]});
            let text = file.with_entry("mgp", &entry, &taken).unwrap();
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

    /// Each time more was taken out, and the client wrote in between.
    #[test]
    fn what_was_taken_out_at_several_times_comes_back() {
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

    /// A file that the client writes while a person reads what is shown is not written over.
    #[test]
    fn a_file_that_changed_meanwhile_is_left_alone() {
        let file = CursorFile::new(BEFORE);
        let edit = file.open();
        fs::write(&file.path, "{\"theme\": 1}").unwrap();
        assert!(edit.write_connected("mgp", "{}", None, DOOR).is_err());
        assert!(edit.restore(&edit.plan_undo(DOOR).unwrap()).is_err());
        assert_eq!(file.text(), "{\"theme\": 1}");
    }

    /// A file of the user's that is called as the copy usually is.
    #[test]
    fn a_copy_that_is_not_this_kernels_is_left_alone() {
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
        // What an export leaves is its user's from then on, too.
        let kept = file.open().write("{}", false).unwrap().unwrap();
        file.connect(&[]);
        assert_eq!(file.undo(), None);
        assert_eq!(fs::read_to_string(&kept).unwrap(), BEFORE);
        is_foreign();
    }

    /// Older records did not name the copy.
    #[test]
    fn the_copy_of_an_older_record_goes_with_it() {
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

    /// What it points to may be on a disk that is not there yet.
    #[test]
    fn a_link_that_leads_to_no_file_stays_a_link() {
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

    /// Remarks that stood in what was taken out are only in the copy.
    #[test]
    fn the_copy_stays_while_it_has_more() {
        let remark = BEFORE.replace("\"files\"", "\"files\" /* mine */");
        let file = CursorFile::new(&remark);
        file.connect(&["fs"]);
        let written = file.text().replace("/bin/mgp\"", "/bin/mgp\", \"x\": 1");
        fs::write(&file.path, written).unwrap();
        let copy = file.undo().unwrap();
        assert_eq!(fs::read_to_string(copy).unwrap(), remark);
        assert!(file.text().contains("files") && !file.text().contains("mgp"));
    }

    /// It waits in the record, whatever is connected and undone in between, until its name is free.
    #[test]
    fn an_entry_that_did_not_come_back_outlives_a_reconnect() {
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

    /// A server of the user's that is called as this kernel's entry usually is.
    #[test]
    fn the_entry_takes_no_other_servers_name() {
        let entry = json!({"command": "/bin/mgp", "args": ["stdio"]});
        let name = |text: &str| CursorFile::new(text).open().entry_name(&entry, DOOR);
        let taken = "{\"mcpServers\": {\"mgp\": {\"command\": \"mgp-fixture\"}}}\n";
        assert_eq!(name("{}").unwrap(), "mgp");
        assert_eq!(name(taken).unwrap(), "mgp-kernel");
        let own = taken.replace("mgp-fixture\"", "/old/mgp\", \"args\": [\"stdio\"]");
        assert_eq!(name(&own).unwrap(), "mgp");
        let ours = own.replace("\"mgp\"", "\"mgp-kernel\"");
        assert_eq!(name(&ours).unwrap(), "mgp-kernel");
        let both = taken.replace("}}}", "}, \"mgp-kernel\": {\"command\": \"x\"}}}");
        assert!(name(&both).unwrap_err().to_string().contains("rename one"));

        let file = CursorFile::new(taken);
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

    /// It may be there in words that nobody knows: what undoing needs stays.
    #[test]
    fn the_copies_stay_while_the_entry_is_not_found() {
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
