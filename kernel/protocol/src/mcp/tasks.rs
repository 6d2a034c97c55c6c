//! `tasks/*`: both the extension `io.modelcontextprotocol/tasks` and the experiment of 2025-11-25.

use mgp_json::lookalike::AnyMember;
use serde::Deserialize;
use serde_json::value::RawValue;

super::methods! {
    "tasks/get" => Get<'_>,
    "tasks/update" => Update<'_>,
    "tasks/cancel" => Cancel<'_>,
    "tasks/result" => Result<'_>,
    "tasks/list" => List,
    "notifications/tasks/status" => Status<'_>,
}

/// A message about one task; the raw id marks its position in the frame.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskParams<'a> {
    /// The task.
    #[serde(borrow)]
    pub task_id: &'a RawValue,
    /// Listed so that look-alikes are rejected; relayed verbatim.
    #[serde(default, rename = "_meta")]
    pub meta: Option<AnyMember>,
}

/// `tasks/get`: the status of a task.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Get<'a>(#[serde(borrow)] pub TaskParams<'a>);

/// `tasks/update`: answers to a task's input requests (extension only).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Update<'a> {
    /// The task.
    #[serde(borrow)]
    pub task_id: &'a RawValue,
    /// Results by the key of the task's input request; relayed verbatim.
    #[serde(borrow, default)]
    pub input_responses: Option<&'a RawValue>,
    /// Relayed verbatim.
    #[serde(default, rename = "_meta")]
    pub meta: Option<AnyMember>,
}

/// `tasks/cancel`: cancels a task.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Cancel<'a>(#[serde(borrow)] pub TaskParams<'a>);

/// `tasks/result`: waits for the task and returns the result of its call (2025-11-25 only).
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Result<'a>(#[serde(borrow)] pub TaskParams<'a>);

/// `tasks/list` (2025-11-25 only).
#[derive(Debug)]
pub struct List;

/// `notifications/tasks/status`: a status change of a task (2025-11-25 only).
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Status<'a>(#[serde(borrow)] pub TaskParams<'a>);
