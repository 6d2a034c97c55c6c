//! Views of the audit log: an index by agent, server, tool, trace and time.
//!
//! The log is authoritative. A view that is damaged or belongs to another log is moved aside and rebuilt. New
//! records appear in the view shortly after they are written: no writer waits for it. It is open only while there
//! are queries.

mod database;
mod growing_view;
mod keys;
mod lines;
mod owner;
mod search;

use std::path::Path;
use std::time::Duration;

use mgp_engine::store::audit::query::{RESULTS_DEFAULT, RecordFilter};
use mgp_protocol::mgp::audit::{Find, FindResult};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::task;
use mgp_runtime::time::monotonic_now;
use tokio::sync::{mpsc, oneshot, watch};

use self::keys::RecordPosition;
use self::owner::{CATCH_UP, ViewOptions, ViewOwner, ViewRequest, ViewState, set_failure};
use self::search::ViewQuery;
use crate::audit::AuditHandle;

/// Maximum number of waiting queries; more are refused.
const QUERIES_MAX: usize = 64;
/// How long a query waits for its answer, including the time to open the view.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Handle for querying the views.
#[derive(Clone, Debug)]
pub struct AuditViews {
    audit: AuditHandle,
    queries: mpsc::Sender<ViewRequest>,
    state: watch::Receiver<ViewState>,
}

impl AuditViews {
    /// Starts the views of this log below a data folder.
    #[must_use]
    pub fn start(data_dir: &Path, audit: &AuditHandle) -> Self {
        Self::start_with_options(data_dir, audit, ViewOptions::default())
    }

    fn start_with_options(data_dir: &Path, audit: &AuditHandle, options: ViewOptions) -> Self {
        let (queries, requests) = mpsc::channel(QUERIES_MAX);
        let (state_sender, state) = watch::channel(ViewState::default());
        if let Some((folder, written)) = audit.files() {
            let owner = ViewOwner {
                path: data_dir.join("views"),
                audit: audit.clone(),
                folder,
                written,
                requests,
                state: state_sender.clone(),
                options,
                next: None,
                opened: monotonic_now(),
                answered: monotonic_now(),
            };
            if let Err(error) = task::spawn_thread("views", move || owner.run()) {
                set_failure(&state_sender, &error.to_string());
            }
        }
        Self {
            audit: audit.clone(),
            queries,
            state,
        }
    }

    /// `mgp/audit/find`: records by who, what and when, newest first.
    ///
    /// # Errors
    /// When no log is written, for an invalid cursor, and when too many queries are waiting.
    pub async fn find(&self, asked: Find) -> Result<FindResult, Refusal> {
        if !self.audit.is_enabled() {
            let none = "no audit log is kept: `enabled` in [audit] is false";
            return Err(Refusal::BadRequest(none.into()));
        }
        let query = parse_query(asked)?;
        let newest = self.audit.newest_sequence();
        let mut found = FindResult {
            newest,
            ..FindResult::default()
        };
        let (answer, answered) = oneshot::channel();
        let request = ViewRequest {
            query,
            newest,
            asked_at: monotonic_now(),
            answer,
        };
        match self.queries.try_send(request) {
            Err(mpsc::error::TrySendError::Full(_)) => {
                let what = "the queue of questions about the audit log".into();
                return Err(Refusal::Overloaded { what });
            }
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
        if let Ok(Ok(Ok((records, through)))) =
            tokio::time::timeout(CATCH_UP + ANSWER_TIMEOUT, answered).await
        {
            found.events = records.events;
            found.next_cursor = records.next.map(RecordPosition::to_cursor);
            found.complete_through = through;
        } else if let Some(failure) = &self.state.borrow().failure {
            found.note = Some(format!("there is no view of the audit log: {failure}"));
            return Ok(found);
        }
        if found.complete_through < newest {
            found.note = Some(format!(
                "the view of the audit log is being built: it has the records up to {} of {newest}",
                found.complete_through
            ));
        }
        Ok(found)
    }
}

fn parse_query(asked: Find) -> Result<ViewQuery, Refusal> {
    let after = asked.cursor.as_deref().map(RecordPosition::parse_cursor);
    let limit = asked.limit.map(usize::try_from);
    Ok(ViewQuery {
        after: after
            .map(|after| after.ok_or(Refusal::BadCursor))
            .transpose()?,
        limit: limit.map_or(RESULTS_DEFAULT, |limit| limit.unwrap_or(usize::MAX).max(1)),
        filter: RecordFilter {
            agent: asked.agent,
            server: asked.server,
            tool: asked.tool,
            trace: asked.trace,
            result: asked.result,
            since_ms: asked.since_ms.unwrap_or(0),
            until_ms: asked.until_ms.unwrap_or(u64::MAX),
        },
    })
}

#[cfg(test)]
mod tests;
