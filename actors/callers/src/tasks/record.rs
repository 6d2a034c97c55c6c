//! What lasts of a task: one small file, written whole before anybody is told of what it says.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mgp_engine::callers::tasks::{Task, TaskStatus, TaskStep};
use mgp_protocol::dialect::Version;
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{MAX_TASKS, POLL_MS, follow};

/// How a task stands, as it is kept. Times are in milliseconds since 1970.
#[derive(Debug, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The life of the kernel that made it.
    pub boot: u64,
    /// Which task of that life.
    pub number: u64,
    /// Whose tool was called.
    pub server: ServerId,
    /// The server's own name of the tool; records of before it was kept have none.
    #[serde(default)]
    pub tool: Box<str>,
    /// Who called.
    pub principal: String,
    /// When it began.
    pub created_ms: u64,
    /// When it came to stand as it does.
    pub updated_ms: u64,
    /// How long it is kept, from its beginning.
    pub ttl_ms: u64,
    /// The word for how it stands: `working`, or how it ended.
    pub status: String,
    /// The call's result, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// The call's JSON-RPC error, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<RawValue>>,
}

impl TaskRecord {
    /// What lasts of a task; one that has not ended is kept as `working`, whatever it waits for.
    pub(super) fn of(
        (boot, number): (u64, u64),
        (server, tool): (&ServerId, &str),
        principal: &str,
        task: &Task,
    ) -> Self {
        let json = |text: &str| RawValue::from_string(text.to_owned()).ok();
        let status = match task.status() {
            ended if ended.is_final() => ended,
            _ => TaskStatus::Working,
        };
        Self {
            boot,
            number,
            server: server.clone(),
            tool: tool.into(),
            principal: principal.to_owned(),
            created_ms: task.created_ms(),
            updated_ms: task.updated_ms(),
            ttl_ms: task.ttl_ms(),
            status: status.as_str().to_owned(),
            result: task.result().and_then(json),
            error: task.error().and_then(json),
        }
    }

    /// The task of an earlier life: as it ended, or failed because its kernel ended before.
    pub(super) fn task(&self) -> Task {
        let text = |json: &Option<Box<RawValue>>| json.as_ref().map(|json| json.get().to_owned());
        let end = match TaskStatus::parse(&self.status) {
            Some(TaskStatus::Completed) => text(&self.result).map(TaskStep::Complete),
            Some(TaskStatus::Failed) => text(&self.error).map(TaskStep::Fail),
            Some(TaskStatus::Cancelled) => Some(TaskStep::Cancel),
            Some(TaskStatus::Working | TaskStatus::InputRequired) | None => None,
        };
        let end = end.unwrap_or_else(|| {
            let lost = Refusal::Lost {
                server: self.server.clone(),
                reason: "the kernel was restarted while the task was under way".into(),
            };
            follow::failed(&lost, Version::MODERN.into())
        });
        let mut task = Task::new(self.created_ms, self.ttl_ms, POLL_MS);
        let ended = task.step(self.updated_ms, end);
        debug_assert!(ended.is_ok(), "a new task has not ended");
        task
    }

    /// Where it is kept in `folder`.
    fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{:016x}-{}.json", self.boot, self.number))
    }

    /// Writes it for good: after this it survives the end of the machine, whole or as it was before.
    ///
    /// # Errors
    /// The disk's own.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let path = self.path(folder);
        let draft = path.with_extension("new");
        let written = write_all(&draft, &serde_json::to_vec(self)?)
            .and_then(|()| fs::rename(&draft, &path))
            .and_then(|()| File::open(folder)?.sync_all());
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        written
    }

    /// Nobody wants to know any more.
    pub fn remove(&self, folder: &Path) {
        if let Err(error) = fs::remove_file(self.path(folder))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the record of a task that is over stays");
        }
    }
}

fn write_all(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true).mode(0o600);
    let mut file = open.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The records of an earlier life, and the folder made when it is not there. What cannot be read is
/// left where it is, and what was not finished is removed.
///
/// # Errors
/// The folder cannot be made or read.
pub fn load(folder: &Path) -> io::Result<Vec<TaskRecord>> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let mut records = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.extension().and_then(|e| e.to_str()) {
            Some("new") => drop(fs::remove_file(&path)),
            Some("json") if records.len() < MAX_TASKS => records.extend(read(&path)),
            _ => {}
        }
    }
    Ok(records)
}

fn read(path: &Path) -> Option<TaskRecord> {
    let record =
        fs::read(path).and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from));
    match record {
        Ok(record) => Some(record),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "no record of a task");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn record(number: u64) -> TaskRecord {
        TaskRecord {
            boot: u64::MAX,
            number,
            server: ServerId::new("files"),
            tool: "find".into(),
            principal: "ann@all".into(),
            created_ms: 1,
            updated_ms: 2,
            ttl_ms: 3,
            status: "completed".into(),
            result: RawValue::from_string(r#"{"n":12345678901234567890123}"#.into()).ok(),
            error: None,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_only_by_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("tasks");
        assert!(load(&folder).unwrap().is_empty());
        record(1).write(&folder).unwrap();
        record(2).write(&folder).unwrap();
        record(2).remove(&folder);
        fs::write(folder.join("half.new"), "{").unwrap();
        fs::write(folder.join("odd.json"), "{").unwrap();
        let found = load(&folder).unwrap();
        assert_eq!(found.len(), 1);
        let result = found[0].result.as_ref().unwrap();
        assert_eq!(result.get(), r#"{"n":12345678901234567890123}"#);
        assert_eq!(found[0].task().status(), TaskStatus::Completed);
        assert!(!folder.join("half.new").exists());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&record(1).path(&folder)), 0o600);
    }
}
