//! Converts the task object of the extension to that of 2025-11-25.
//!
//! They differ in the names of two members, in where the outcome is, and in the status of a tool's own failure:
//! `failed` in 2025-11-25, `completed` in the extension.

use std::borrow::Cow;

use mgp_json::{member, members, quote};
use serde_json::value::RawValue;

use super::TaskStatus;

/// Converts a task of the extension to 2025-11-25, under another id and without its outcome. `None` when it is no
/// task.
#[must_use]
pub fn to_legacy(task: &str, id: &str) -> Option<String> {
    let members = members(task)?;
    let result = find_member(&members, "result");
    let is_error = result.and_then(|result| member(result, "isError")) == Some("true");
    let mut status = status(&members)?;
    if status == TaskStatus::Completed && is_error {
        status = TaskStatus::Failed;
    }
    let mut out = ObjectWriter::new(id, status);
    let mut ttl = "null";
    for (name, value) in &members {
        match &**name {
            "ttlMs" => ttl = value.get(),
            "pollIntervalMs" => out.put("pollInterval", value.get()),
            name if !REPLACED.contains(&name) => out.put(name, value.get()),
            _ => {}
        }
    }
    out.put("ttl", ttl);
    Some(out.finish())
}

/// Members of either format that are not copied unchanged.
const REPLACED: [&str; 11] = [
    "taskId",
    "status",
    "ttl",
    "ttlMs",
    "pollInterval",
    "pollIntervalMs",
    "resultType",
    "requestState",
    "result",
    "error",
    "inputRequests",
];

type Members<'a> = [(Cow<'a, str>, &'a RawValue)];

fn find_member<'a>(members: &Members<'a>, name: &str) -> Option<&'a str> {
    let found = members.iter().find(|(n, _)| n == name);
    found.map(|(_, value)| value.get())
}

fn status(members: &Members<'_>) -> Option<TaskStatus> {
    let word: Cow<'_, str> = serde_json::from_str(find_member(members, "status")?).ok()?;
    TaskStatus::parse(&word)
}

/// A JSON object under construction.
struct ObjectWriter(String);

impl ObjectWriter {
    fn new(id: &str, status: TaskStatus) -> Self {
        let (id, status) = (quote(id), status.as_str());
        Self(format!(r#"{{"taskId":{id},"status":"{status}""#))
    }

    fn put(&mut self, name: &str, json: &str) {
        self.0.push(',');
        self.0.push_str(&quote(name));
        self.0.push(':');
        self.0.push_str(json);
    }

    fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
