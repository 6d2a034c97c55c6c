//! Views of the audit log: what is found in it by agent, server, tool, trace and time without reading it.
//!
//! The log is the truth. A view that is damaged, foreign or of another log is moved aside and built again,
//! and what is written is in the view a moment later: nobody who writes waits for it. It is open while somebody
//! asks.

mod building;
mod database;
mod finding;
mod keys;
mod lines;
mod owner;

use std::path::Path;
use std::time::Duration;

use mgp_engine::store::audit::query::{FOUND_USUAL, RecordFilter};
use mgp_protocol::mgp::audit::{Find, Found};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::task;
use mgp_runtime::time::moment;
use tokio::sync::{mpsc, oneshot, watch};

use self::finding::ViewQuery;
use self::keys::RecordPlace;
use self::owner::{CATCH_UP, ViewOptions, ViewOwner, ViewQuestion, ViewState, fail};
use crate::audit::AuditHandle;

/// Questions that wait: people ask them. A further one is refused.
const ASKED_MAX: usize = 64;
/// How long a question waits for its answer: a view may be opened meanwhile.
const ANSWER: Duration = Duration::from_secs(10);

/// Asks the views.
#[derive(Clone, Debug)]
pub struct AuditViews {
    audit: AuditHandle,
    asked: mpsc::Sender<ViewQuestion>,
    state: watch::Receiver<ViewState>,
}

impl AuditViews {
    /// Views below a data folder, of this log.
    #[must_use]
    pub fn start(data_dir: &Path, audit: &AuditHandle) -> Self {
        Self::start_with(data_dir, audit, ViewOptions::default())
    }

    fn start_with(data_dir: &Path, audit: &AuditHandle, options: ViewOptions) -> Self {
        let (asked, questions) = mpsc::channel(ASKED_MAX);
        let (told, state) = watch::channel(ViewState::default());
        if let Some((folder, written)) = audit.files() {
            let owner = ViewOwner {
                path: data_dir.join("views"),
                audit: audit.clone(),
                folder,
                written,
                questions,
                state: told.clone(),
                options,
                next: None,
                opened: moment(),
                answered: moment(),
            };
            if let Err(error) = task::thread("views", move || owner.run()) {
                fail(&told, &error.to_string());
            }
        }
        Self {
            audit: audit.clone(),
            asked,
            state,
        }
    }

    /// `mgp/audit/find`: records by who, what and when, newest first.
    ///
    /// # Errors
    /// When no log is kept, for a cursor that is none, and when too many ask.
    pub async fn find(&self, asked: Find) -> Result<Found, Refusal> {
        if !self.audit.is_on() {
            let none = "no audit log is kept: `enabled` in [audit] is false";
            return Err(Refusal::BadRequest(none.into()));
        }
        let query = query(asked)?;
        let newest = self.audit.newest();
        let mut found = Found {
            newest,
            ..Found::default()
        };
        let (answer, answered) = oneshot::channel();
        let question = ViewQuestion {
            query,
            newest,
            asked: moment(),
            answer,
        };
        match self.asked.try_send(question) {
            Err(mpsc::error::TrySendError::Full(_)) => {
                let what = "the queue of questions about the audit log".into();
                return Err(Refusal::Overloaded { what });
            }
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
        if let Ok(Ok(Ok((records, through)))) =
            tokio::time::timeout(CATCH_UP + ANSWER, answered).await
        {
            found.events = records.events;
            found.next_cursor = records.more.map(RecordPlace::cursor);
            found.complete_through = through;
        } else if let Some(trouble) = &self.state.borrow().trouble {
            found.note = Some(format!("there is no view of the audit log: {trouble}"));
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

fn query(asked: Find) -> Result<ViewQuery, Refusal> {
    let after = asked.cursor.as_deref().map(RecordPlace::of_cursor);
    let limit = asked.limit.map(usize::try_from);
    Ok(ViewQuery {
        after: after
            .map(|after| after.ok_or(Refusal::BadCursor))
            .transpose()?,
        limit: limit.map_or(FOUND_USUAL, |limit| limit.unwrap_or(usize::MAX).max(1)),
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
