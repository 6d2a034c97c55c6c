//! Tasks of the extension `io.modelcontextprotocol/tasks` (SEP-2663): those the kernel creates from calls, and the
//! ids and formats of tasks created by servers.

mod versions;

use mgp_json::quote;
use mgp_protocol::ids::ServerId;
use serde::{Deserialize, Serialize};

use crate::timestamps::render_rfc3339_ms;

pub use versions::to_legacy;

/// The origin of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRef {
    /// The server that works on it.
    pub server: ServerId,
    /// Who created it, and under which id.
    pub maker: Maker,
}

/// The sealed contents of a client's id for a task: which task it is, and for which tool. A caller that loses access
/// to the tool loses access to its tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskHandle {
    /// Its origin.
    pub task: TaskRef,
    /// The server's own name of the tool.
    #[serde(default)]
    pub tool: Box<str>,
}

/// Who created a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Maker {
    /// A server that supports the extension.
    Modern {
        /// Its own id for it.
        task: String,
    },
    /// A server of 2025-11-25.
    Legacy {
        /// Its own id for it.
        task: String,
    },
    /// The kernel, from a call to a server without tasks.
    Kernel {
        /// The run of the kernel: its tasks end with it.
        boot: u64,
        /// The number of the task in that run.
        number: u64,
    },
}

/// The status of a task; the words are the same in both protocol versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// Working.
    Working,
    /// Waits for input from the client.
    InputRequired,
    /// Completed: there is a result, even if it says that the tool failed.
    Completed,
    /// Ended by a JSON-RPC error.
    Failed,
    /// Cancelled.
    Cancelled,
}

impl TaskStatus {
    const ALL: [Self; 5] = [
        Self::Working,
        Self::InputRequired,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Parses the word on the wire.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// True if no other status can follow.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Working | Self::InputRequired => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }
}

/// A transition of a task. Texts are JSON as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStep {
    /// All input requests so far were answered.
    Resume,
    /// The server requests input: the whole `inputRequests` with all open entries.
    RequireInput(String),
    /// The call has a result, with or without `isError`.
    Complete(String),
    /// The call has a JSON-RPC error.
    Fail(String),
    /// The client cancelled it.
    Cancel,
}

/// The task has ended and cannot change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task is already {}", .0.as_str())]
pub struct TaskEndedError(pub TaskStatus);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TaskState {
    Working,
    InputRequired(String),
    Completed(String),
    Failed(String),
    Cancelled,
}

/// A task created by the kernel. Times are in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    created_ms: u64,
    updated_ms: u64,
    ttl_ms: u64,
    poll_ms: u64,
    state: TaskState,
}

impl Task {
    /// Creates a working task that is stored for `ttl_ms` from now and should be polled every `poll_ms`.
    #[must_use]
    pub fn new(now_ms: u64, ttl_ms: u64, poll_ms: u64) -> Self {
        Self {
            created_ms: now_ms,
            updated_ms: now_ms,
            ttl_ms,
            poll_ms,
            state: TaskState::Working,
        }
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> TaskStatus {
        match self.state {
            TaskState::Working => TaskStatus::Working,
            TaskState::InputRequired(_) => TaskStatus::InputRequired,
            TaskState::Completed(_) => TaskStatus::Completed,
            TaskState::Failed(_) => TaskStatus::Failed,
            TaskState::Cancelled => TaskStatus::Cancelled,
        }
    }

    /// When it began.
    #[must_use]
    pub fn created_ms(&self) -> u64 {
        self.created_ms
    }

    /// When its status last changed.
    #[must_use]
    pub fn updated_ms(&self) -> u64 {
        self.updated_ms
    }

    /// How long it is stored.
    #[must_use]
    pub fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    /// The call's result as JSON text, when it has one.
    #[must_use]
    pub fn result(&self) -> Option<&str> {
        match &self.state {
            TaskState::Completed(result) => Some(result),
            TaskState::Working
            | TaskState::InputRequired(_)
            | TaskState::Failed(_)
            | TaskState::Cancelled => None,
        }
    }

    /// The call's JSON-RPC error as JSON text, when it has one.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match &self.state {
            TaskState::Failed(error) => Some(error),
            TaskState::Working
            | TaskState::InputRequired(_)
            | TaskState::Completed(_)
            | TaskState::Cancelled => None,
        }
    }

    /// When it expires.
    #[must_use]
    pub fn expires_ms(&self) -> u64 {
        self.created_ms.saturating_add(self.ttl_ms)
    }

    /// Applies a transition.
    ///
    /// # Errors
    /// [`TaskEndedError`] when it ended before; nothing changes then.
    pub fn apply(&mut self, now_ms: u64, step: TaskStep) -> Result<(), TaskEndedError> {
        if self.status().is_final() {
            return Err(TaskEndedError(self.status()));
        }
        let state = match step {
            TaskStep::Resume => TaskState::Working,
            TaskStep::RequireInput(input_requests) => TaskState::InputRequired(input_requests),
            TaskStep::Complete(result) => TaskState::Completed(result),
            TaskStep::Fail(error) => TaskState::Failed(error),
            TaskStep::Cancel => TaskState::Cancelled,
        };
        if state != self.state {
            self.state = state;
            self.touch(now_ms);
        }
        Ok(())
    }

    fn touch(&mut self, now_ms: u64) {
        self.updated_ms = self.updated_ms.max(now_ms);
    }

    /// The params of `notifications/tasks`: the task with its result, error or open input requests.
    #[must_use]
    pub fn render_notification(&self, id: &str) -> String {
        self.render_object("", id, true)
    }

    /// The result of `tasks/get`.
    #[must_use]
    pub fn render_get_result(&self, id: &str) -> String {
        self.render_object(r#""resultType":"complete","#, id, true)
    }

    /// The result of the call that became this task.
    #[must_use]
    pub fn render_create_result(&self, id: &str) -> String {
        self.render_object(r#""resultType":"task","#, id, false)
    }

    fn render_object(&self, opening: &str, id: &str, whole: bool) -> String {
        let mut out = format!(
            r#"{{{opening}"taskId":{},"status":"{}","createdAt":"{}","lastUpdatedAt":"{}","ttlMs":{},"pollIntervalMs":{}"#,
            quote(id),
            self.status().as_str(),
            render_rfc3339_ms(self.created_ms),
            render_rfc3339_ms(self.updated_ms),
            self.ttl_ms,
            self.poll_ms,
        );
        let payload = match &self.state {
            TaskState::InputRequired(requests) => Some(("inputRequests", requests)),
            TaskState::Completed(result) => Some(("result", result)),
            TaskState::Failed(error) => Some(("error", error)),
            TaskState::Working | TaskState::Cancelled => None,
        };
        if let Some((name, json)) = payload.filter(|_| whole) {
            out.push_str(&format!(r#","{name}":{json}"#));
        }
        out.push('}');
        out
    }
}

#[cfg(test)]
mod tests;
