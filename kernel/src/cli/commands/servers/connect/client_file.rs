//! One client's file, before and after.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mgp_clients::{
    BlockedEntry, Client, ConnectedFile, DocumentForm, EntryPlace, UndoneFile, leads_to_kernel,
    put, remove, undo,
};
use mgp_store::atomic_file;
use mgp_store::regular_file;
use mgp_store::trouble::explained;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ENTRIES, user_file};
use crate::cli::client::CliContext;
use crate::cli::commands::servers::import::DoubledServer;
use crate::cli::commands::servers::secrets;
use crate::cli::failure::Failure;

/// Lines shown around what changes.
const AROUND: usize = 2;

/// What undoing needs to know; it lies beside the client's file while that is connected.
#[derive(Serialize, Deserialize)]
struct ConnectRecord {
    /// The text that comes back where the client changes nothing; none where there was no file.
    before: Option<String>,
    /// The text as it was written last.
    after: String,
    /// What this kernel's entry is called; older records do not say.
    #[serde(default = "usual_name")]
    own: String,
    /// What did not come back when it was undone before.
    #[serde(default)]
    blocked: Vec<BlockedEntry>,
}

fn usual_name() -> String {
    ENTRIES[0].to_owned()
}

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
        let text = read_if_there(&path)?;
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
        entry: &Value,
        without: &[DoubledServer],
    ) -> Result<String, Failure> {
        let failed = |why: String| Failure::Other(format!("{}: {why}", self.path.display()));
        let mut text = edited(self.client, self.before(), name, entry).map_err(failed)?;
        let document = self.document()?;
        for taken in without {
            // This kernel's entry has its place already.
            if taken.project.is_none() && taken.name == name {
                continue;
            }
            let table = match &taken.project {
                None => self.client.table_in(&document),
                Some(folder) => ["projects", folder, self.client.table()]
                    .map(str::to_owned)
                    .into(),
            };
            let place = EntryPlace {
                table: &table,
                shape: self.client.shape(),
                name: &taken.name,
            };
            text =
                remove(self.client.form(), &text, place).map_err(|why| failed(why.to_string()))?;
        }
        Ok(text)
    }

    /// What the file says.
    pub(in crate::cli::commands) fn document(&self) -> Result<Value, Failure> {
        let read = self.client.form().read(self.before());
        read.map_err(|why| Failure::Other(format!("{}: {why}", self.path.display())))
    }

    /// What undoing would make of the file.
    pub(super) fn undone(&self, door: &str) -> Result<UndoneFile, Failure> {
        let record = self.record()?;
        let copy = self.copied()?;
        // Without a record only the copy says what was there.
        let before = match &record {
            Some(record) => record.before.as_deref(),
            None => copy.as_deref(),
        };
        let file = ConnectedFile {
            client: self.client,
            own: record.as_ref().map_or(ENTRIES[0], |record| &record.own),
            before,
            after: record.as_ref().map(|record| record.after.as_str()),
            now: self.before(),
            door,
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
    pub(super) fn is_as_before(&self, text: Option<&str>) -> Result<bool, Failure> {
        Ok(text == self.copied()?.as_deref())
    }

    /// The copy of the file as it was.
    fn copied(&self) -> Result<Option<String>, Failure> {
        read_if_there(&self.kept())
    }

    fn record(&self) -> Result<Option<ConnectRecord>, Failure> {
        let path = self.record_path();
        let Some(text) = read_if_there(&path)? else {
            return Ok(None);
        };
        let read = serde_json::from_str(&text);
        read.map(Some)
            .map_err(|error| Failure::Other(format!("{}: {error}", path.display())))
    }

    /// Writes it; answers where the file lies as it was.
    pub(in crate::cli::commands) fn write(
        &self,
        text: &str,
        private: bool,
    ) -> Result<Option<PathBuf>, Failure> {
        self.judge_unchanged()?;
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

    /// Writes it with this kernel's entry, and what undoing needs to know.
    pub(super) fn connect(
        &self,
        own: &str,
        text: &str,
        private: bool,
        door: &str,
    ) -> Result<Option<PathBuf>, Failure> {
        let record = self.record()?;
        let undone = || -> Result<_, Failure> {
            let undone = self.undone(door)?;
            Ok((undone.text, undone.blocked))
        };
        let is_connected = self.entry(own)?.is_some();
        let (before, blocked) = match record {
            Some(record) if self.text.as_deref() == Some(&record.after) => {
                (record.before, record.blocked)
            }
            // The client changed it since: what undoing would make of it is what comes back.
            Some(_) => undone()?,
            None if is_connected && self.kept().exists() => undone()?,
            None => (self.text.clone(), Vec::new()),
        };
        let record = ConnectRecord {
            before,
            after: text.to_owned(),
            own: own.to_owned(),
            blocked,
        };
        // First: a file that is written without it could not be undone.
        self.write_record(&record)?;
        self.write(text, private)
    }

    fn write_record(&self, record: &ConnectRecord) -> Result<(), Failure> {
        let bytes = serde_json::to_vec(record).expect("texts are JSON");
        let failed = |error: io::Error| Failure::Other(explained(&self.record_path(), &error));
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        atomic_file::write_with_mode(&self.record_path(), &bytes, 0o600).map_err(failed)
    }

    /// What this kernel's entry is called: as it is, or by a name that no other server has.
    pub(super) fn own_name(&self, entry: &Value, door: &str) -> Result<&'static str, Failure> {
        let mut free = None;
        for name in ENTRIES {
            match self.entry(name)? {
                Some(there) if leads_to_kernel(&there, door) || starts_same(&there, entry) => {
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
                ENTRIES.join(" and ")
            ))
        })
    }

    /// The entry of this name.
    fn entry(&self, name: &str) -> Result<Option<Value>, Failure> {
        let document = self.document()?;
        let table = self.client.table_in(&document);
        let table = table
            .iter()
            .try_fold(&document, |value, key| value.get(key));
        let mut entries = table.map(Client::entries).unwrap_or_default().into_iter();
        let named = entries.find(|(own, _)| *own == name);
        Ok(named.map(|(_, entry)| entry.clone()))
    }

    /// Writes what undoing makes of it. The copy stays until all that was taken out is back; answers where it is,
    /// where it stays.
    pub(super) fn restore(&self, undone: &UndoneFile) -> Result<Option<PathBuf>, Failure> {
        self.judge_unchanged()?;
        let failed = |error: io::Error| Failure::Other(explained(&self.path, &error));
        match &undone.text {
            Some(text) => {
                let mode =
                    fs::metadata(&self.path).map_or(0o600, |m| m.permissions().mode() & 0o777);
                atomic_file::write_with_mode(&self.path, text.as_bytes(), mode).map_err(failed)?;
            }
            None if self.exists() => fs::remove_file(&self.path).map_err(failed)?,
            None => {}
        }
        let exact = self.is_as_before(undone.text.as_deref())?;
        let is_back = undone.blocked.is_empty();
        let complete = is_back && undone.is_own_known && !self.loses_remarks(undone)?;
        let gone = undone.text.is_none();
        match (exact && is_back) || (complete && !gone) {
            true => {
                remove_if_there(&self.kept())?;
                remove_if_there(&self.record_path())?;
            }
            false if !is_back && undone.is_own_known => self.keep_blocked(undone)?,
            false if self.kept().exists() || !undone.is_own_known => {}
            false => remove_if_there(&self.record_path())?,
        }
        Ok(Some(self.kept()).filter(|kept| kept.exists()))
    }

    /// What did not come back stays in the record, with nothing else to undo.
    fn keep_blocked(&self, undone: &UndoneFile) -> Result<(), Failure> {
        let own = self.record()?.map_or_else(usual_name, |record| record.own);
        self.write_record(&ConnectRecord {
            before: undone.text.clone(),
            after: undone.text.clone().unwrap_or_default(),
            own,
            blocked: undone.blocked.clone(),
        })
    }

    /// Whether entries came back without the remarks that they may have had.
    fn loses_remarks(&self, undone: &UndoneFile) -> Result<bool, Failure> {
        let text = undone.text.as_deref();
        if undone.restored.is_empty() || self.is_as_before(text)? {
            return Ok(false);
        }
        let remarks = |text: &str| -> usize {
            let marks = match self.client.form() {
                DocumentForm::Json => &["//", "/*"][..],
                DocumentForm::Toml | DocumentForm::Yaml => &["#"],
            };
            // An address has slashes, too.
            let text = text.replace("://", "");
            marks.iter().map(|mark| text.matches(mark).count()).sum()
        };
        let copied = self.copied()?.unwrap_or_default();
        Ok(remarks(&copied) > remarks(text.unwrap_or_default()))
    }

    /// The client may write while a person reads what is shown.
    fn judge_unchanged(&self) -> Result<(), Failure> {
        match read_if_there(&self.path)? == self.text {
            true => Ok(()),
            false => Err(Failure::Other(format!(
                "{} was changed meanwhile, and was not written; type the command again",
                self.path.display()
            ))),
        }
    }

    /// Beside it, where its user finds it.
    fn kept(&self) -> PathBuf {
        self.beside(".before-mgp")
    }

    fn record_path(&self) -> PathBuf {
        self.beside(".mgp-undo")
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        self.path.with_file_name(name)
    }

    /// The whole text that holds only this table, as the client writes it.
    pub(super) fn in_form(&self, table: &Value) -> Result<String, Failure> {
        let name = self.client.table();
        let entries = table[name].as_object().into_iter().flatten();
        let mut text = String::new();
        for (entry, value) in entries {
            text = edited(self.client, &text, entry, value).map_err(Failure::Other)?;
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
        let read = |text| self.client.form().read(text).ok();
        let documents = [self.before(), after].map(read);
        let secrets = documents
            .into_iter()
            .flatten()
            .flat_map(|document| secrets::secret_lines(&document));
        let secrets = secrets.collect();
        let mut add = |mark: &str, part: &[&str]| {
            lines.extend(
                part.iter()
                    .map(|line| format!("{mark} {}", secrets::masked_of(line, &secrets))),
            );
        };
        add(" ", &old[head.saturating_sub(AROUND)..head]);
        add("-", &rest[..rest.len() - tail]);
        add("+", &more[..more.len() - tail]);
        let tail = &more[more.len() - tail..];
        add(" ", &tail[..tail.len().min(AROUND)]);
        lines.join("\n")
    }
}

/// Whether both start one program, whatever it is called.
fn starts_same(one: &Value, other: &Value) -> bool {
    let program = |entry: &Value| entry.get("command").or_else(|| entry.get("cmd")).cloned();
    program(one).is_some_and(|one| Some(one) == program(other))
}

fn edited(client: Client, text: &str, name: &str, entry: &Value) -> Result<String, String> {
    let form = client.form();
    let document = form.read(text).map_err(|why| why.to_string())?;
    let table = client.table_in(&document);
    let place = EntryPlace {
        table: &table,
        shape: client.shape(),
        name,
    };
    put(form, text, place, entry).map_err(|why| why.to_string())
}

fn read_if_there(path: &Path) -> Result<Option<String>, Failure> {
    match regular_file::open(path).and_then(io::read_to_string) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::Other(format!("{}: {error}", path.display()))),
    }
}

fn remove_if_there(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::Other(explained(path, &error)))
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
            ClientFileEdit::at(Client::Cursor, self.path.clone()).unwrap()
        }

        fn text(&self) -> String {
            fs::read_to_string(&self.path).unwrap()
        }

        fn connect(&self, taken: &[&str]) {
            let file = self.open();
            let taken: Vec<_> = taken.iter().map(|name| doubled(name)).collect();
            let entry = json!({"command": "/bin/mgp", "args": ["stdio"]});
            let text = file.with("mgp", &entry, &taken).unwrap();
            file.connect("mgp", &text, false, DOOR).unwrap();
        }

        fn undo(&self) -> Option<PathBuf> {
            let file = self.open();
            file.restore(&file.undone(DOOR).unwrap()).unwrap()
        }
    }

    fn doubled(name: &str) -> DoubledServer {
        DoubledServer {
            project: None,
            name: name.to_owned(),
            id: name.to_owned(),
            file: PathBuf::new(),
            tools: mgp_clients::ToolLimits::default(),
            left_out: Vec::new(),
            only_off_there: false,
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
        assert!(edit.connect("mgp", "{}", false, DOOR).is_err());
        assert!(edit.restore(&edit.undone(DOOR).unwrap()).is_err());
        assert_eq!(file.text(), "{\"theme\": 1}");
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
            let undone = file.open().undone(DOOR).unwrap();
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
        let name = |text: &str| CursorFile::new(text).open().own_name(&entry, DOOR);
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
        let text = edit.with("mgp-kernel", &entry, &[doubled("mgp")]).unwrap();
        edit.connect("mgp-kernel", &text, false, DOOR).unwrap();
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
