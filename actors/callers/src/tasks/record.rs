//! A task on disk: one small file, written completely before its state is published.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mgp_engine::callers::tasks::{Task, TaskStatus, TaskStep};
use mgp_protocol::dialect::Version;
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{MAX_TASKS, POLL_MS, follow};
use mgp_store::atomic_file;
use mgp_store::regular_file;

/// The stored state of a task. Times are in milliseconds since 1970.
#[derive(Debug, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The run of the kernel that made it.
    pub(crate) boot: u64,
    /// Its number in that run.
    pub number: u64,
    /// The server of the tool.
    pub server: ServerId,
    /// The server's own name of the tool; missing in old records.
    #[serde(default)]
    pub tool: Box<str>,
    /// The principal of the caller.
    pub(crate) principal: String,
    /// When it began.
    pub(crate) created_ms: u64,
    /// When its state last changed.
    pub(crate) updated_ms: u64,
    /// How long it is stored after its start.
    pub(crate) ttl_ms: u64,
    /// `working`, or the final status.
    pub(crate) status: String,
    /// The call's result, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Box<RawValue>>,
    /// The call's JSON-RPC error, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Box<RawValue>>,
}

impl TaskRecord {
    /// Converts a task to its record; a task that has not ended is stored as `working`.
    pub(super) fn new(
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

    /// Restores the task of an earlier run: as it ended, or failed because the kernel stopped.
    pub(super) fn to_task(&self) -> Task {
        let text = |json: &Option<Box<RawValue>>| json.as_ref().map(|json| json.get().to_owned());
        let end = match TaskStatus::parse(&self.status) {
            Some(TaskStatus::Completed) => text(&self.result).map(TaskStep::Complete),
            Some(TaskStatus::Failed) => text(&self.error).map(TaskStep::Fail),
            Some(TaskStatus::Cancelled) => Some(TaskStep::Cancel),
            Some(TaskStatus::Working | TaskStatus::InputRequired) | None => None,
        };
        let end = end.unwrap_or_else(|| {
            let refusal = Refusal::ServerLost {
                server: self.server.clone(),
                reason: "the kernel was restarted while the task was under way".into(),
            };
            follow::failed_step(&refusal, Version::STATELESS.into())
        });
        let mut task = Task::new(self.created_ms, self.ttl_ms, POLL_MS);
        let ended = task.apply(self.updated_ms, end);
        debug_assert!(ended.is_ok(), "a new task has not ended");
        task
    }

    /// The path of its file in `folder`.
    fn file_path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{:016x}-{}.json", self.boot, self.number))
    }

    /// Writes the file so that it survives a crash of the machine: completely, or not at all.
    ///
    /// # Errors
    /// The disk's error.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        atomic_file::write(&self.file_path(folder), &serde_json::to_vec(self)?)
    }

    /// Removes the file.
    pub fn remove(&self, folder: &Path) {
        if let Err(error) = fs::remove_file(self.file_path(folder))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the record of an expired task could not be removed");
        }
    }
}

/// Loads the records of earlier runs; creates the folder if it is missing. Unreadable files are left alone,
/// unfinished ones are removed.
///
/// # Errors
/// The folder cannot be created or read.
pub fn load(folder: &Path) -> io::Result<Vec<TaskRecord>> {
    atomic_file::create_folder(folder)?;
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
    let record = regular_file::read(path)
        .and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::from));
    match record {
        Ok(record) => Some(record),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a file is no valid task record");
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
    fn stored_record_is_loaded_unchanged() {
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
        assert_eq!(found[0].to_task().status(), TaskStatus::Completed);
        assert!(!folder.join("half.new").exists());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&record(1).file_path(&folder)), 0o600);
    }
}
