//! Converts the task object of 2025-11-25 to that of the extension, and back.
//!
//! They differ in the names of two members, in where the outcome is, and in the status of a tool's own failure:
//! `failed` in 2025-11-25, `completed` in the extension.

use std::borrow::Cow;

use mgp_json::{member, members, quote};
use serde_json::value::RawValue;

use super::TaskStatus;

/// What 2025-11-25 reports apart from the task and the extension includes in it, as JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Unknown, or not needed.
    None,
    /// The result of `tasks/result`.
    Result(&'a str),
    /// The JSON-RPC error of `tasks/result`.
    Error(&'a str),
    /// The open input requests of the task.
    InputRequests(&'a str),
}

/// Converts a task of 2025-11-25 to the extension, under another id. `None` when it is no task.
///
/// `payload` decides between `completed` and `failed`. Without it, a failed task gets an error made from its message,
/// and a task that waits for input is reported as working, because its input requests are not known yet.
#[must_use]
pub fn to_extension(task: &str, id: &str, payload: Payload<'_>) -> Option<String> {
    let members = members(task)?;
    let status = match (status(&members)?, payload) {
        (TaskStatus::InputRequired, Payload::InputRequests(_)) => TaskStatus::InputRequired,
        (TaskStatus::InputRequired, _) => TaskStatus::Working,
        (TaskStatus::Failed, Payload::Result(_)) => TaskStatus::Completed,
        (TaskStatus::Completed, Payload::Error(_)) => TaskStatus::Failed,
        (status, _) => status,
    };
    let mut out = ObjectWriter::new(id, status);
    let mut ttl = "null";
    for (name, value) in &members {
        match &**name {
            "ttl" => ttl = value.get(),
            "pollInterval" => out.put("pollIntervalMs", value.get()),
            name if !REPLACED.contains(&name) => out.put(name, value.get()),
            _ => {}
        }
    }
    out.put("ttlMs", ttl);
    match (status, payload) {
        (TaskStatus::InputRequired, Payload::InputRequests(json)) => out.put("inputRequests", json),
        (TaskStatus::Completed, Payload::Result(json)) => out.put("result", json),
        (TaskStatus::Failed, Payload::Error(json)) => out.put("error", json),
        (TaskStatus::Failed, _) => out.put("error", &failure_error(&members)),
        (
            TaskStatus::Working
            | TaskStatus::InputRequired
            | TaskStatus::Completed
            | TaskStatus::Cancelled,
            _,
        ) => {}
    }
    Some(out.finish())
}

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

fn failure_error(members: &Members<'_>) -> String {
    let message = find_member(members, "statusMessage").filter(|json| json.starts_with('"'));
    let message = message.unwrap_or(r#""the task failed""#);
    format!(r#"{{"code":-32603,"message":{message}}}"#)
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
