//! Views of the audit log: what is found in it by agent, server, tool, trace and time without reading it.
//!
//! The log is the truth. A view that is damaged, foreign or of another log is moved aside and built again,
//! and what is written is in the view a moment later: nobody who writes waits for it.

mod database;
mod finding;
mod keys;
mod lines;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::query::{FOUND_USUAL, IndexedEvent, RecordFilter};
use mgp_engine::store::audit::record::AuditRecord;
use mgp_protocol::mgp::audit::{Find, Found};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::time::moment;
use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};

use self::database::{OpenSled, ViewDatabase, open_sled, put_aside};
use self::finding::{FoundRecords, ViewQuery};
use self::keys::{BuiltTo, RecordPlace};
use self::lines::IndexedLines;
use crate::audit::{AuditHandle, Folder, state_damaged};
use crate::trouble::explained;

/// Questions that wait: people ask them. A further one is refused.
const ASKED_MAX: usize = 64;
/// How long a question waits for what was written right before it.
const CATCH_UP: Duration = Duration::from_secs(1);
/// How long it waits for its answer: a view may be opened meanwhile.
const ANSWER: Duration = Duration::from_secs(10);
/// How long records are gathered before they are read.
const GATHER: Duration = Duration::from_millis(20);
/// How often it is said how far the view is while it is built.
const PROGRESS: Duration = Duration::from_secs(10);
/// A view that fails so often in the life of a kernel is done without: its disk is no good.
const BUILDS_MAX: usize = 4;
/// Records after which what is in memory is written.
const FLUSH: u64 = 10_000;
/// Calls come first.
const NICENESS: i32 = 10;

type ViewAnswer = oneshot::Sender<Result<FoundRecords, String>>;

/// Asks the views.
#[derive(Clone, Debug)]
pub struct AuditViews {
    audit: AuditHandle,
    asked: mpsc::Sender<(ViewQuery, ViewAnswer)>,
    state: watch::Receiver<ViewState>,
}

/// How far the view is.
#[derive(Clone, Debug, Default)]
struct ViewState {
    /// The last record in it.
    through: u64,
    /// Why there is none.
    trouble: Option<Arc<str>>,
}

impl AuditViews {
    /// Views below a data folder, of this log. Called within the runtime.
    #[must_use]
    pub fn start(data_dir: &Path, audit: &AuditHandle) -> Self {
        Self::start_with(data_dir, audit, open_sled)
    }

    fn start_with(data_dir: &Path, audit: &AuditHandle, open: OpenSled) -> Self {
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
                open,
                runtime: runtime::Handle::current(),
            };
            let thread = thread::Builder::new().name("views".into());
            if let Err(error) = thread.spawn(move || owner.run()) {
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
        let mut state = self.state.clone();
        let there = state.wait_for(|s| s.through >= newest || s.trouble.is_some());
        let _ = tokio::time::timeout(CATCH_UP, there).await;
        let (answer, answered) = oneshot::channel();
        // Before the question, so that no more is said to be complete than was looked through.
        let state = self.state.borrow().clone();
        let mut found = Found {
            complete_through: state.through,
            newest,
            ..Found::default()
        };
        if let Some(trouble) = state.trouble {
            found.note = Some(format!("there is no view of the audit log: {trouble}"));
            return Ok(found);
        }
        match self.asked.try_send((query, answer)) {
            Err(mpsc::error::TrySendError::Full(_)) => {
                let what = "the queue of questions about the audit log".into();
                return Err(Refusal::Overloaded { what });
            }
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
        match tokio::time::timeout(ANSWER, answered).await {
            Ok(Ok(Ok(records))) => {
                found.events = records.events;
                found.next_cursor = records.more.map(RecordPlace::cursor);
            }
            Ok(Ok(Err(_)) | Err(_)) | Err(_) => found.complete_through = 0,
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
            since_ms: asked.since_ms.unwrap_or(0),
            until_ms: asked.until_ms.unwrap_or(u64::MAX),
        },
    })
}

fn fail(state: &watch::Sender<ViewState>, why: &str) {
    tracing::error!("there is no view of the audit log: {why}");
    state.send_modify(|state| state.trouble = Some(why.into()));
}

/// The thread that owns the database.
struct ViewOwner {
    path: PathBuf,
    audit: AuditHandle,
    folder: Folder,
    written: watch::Receiver<Head>,
    questions: mpsc::Receiver<(ViewQuery, ViewAnswer)>,
    state: watch::Sender<ViewState>,
    open: OpenSled,
    runtime: runtime::Handle,
}

impl ViewOwner {
    fn run(mut self) {
        // The process that is none is this thread.
        if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
            tracing::debug!(%error, "the view of the audit log is as important as all else");
        }
        for _ in 0..BUILDS_MAX {
            let Err(why) = self.serve() else { return };
            self.state.send_modify(|state| state.through = 0);
            let what = format!("{}: {why}", self.path.display());
            tracing::warn!("the view of the audit log is built again: {what}");
            if let Err(error) = put_aside(&self.path) {
                return fail(&self.state, &explained(&self.path, &error));
            }
            let told = format!("{what}; it is built again out of the audit log");
            self.audit.tell(state_damaged(&told));
        }
        let path = self.path.display();
        fail(
            &self.state,
            &format!("{path} failed {BUILDS_MAX} times since the start of the kernel"),
        );
    }

    /// Answers and builds until nobody is left to ask; an error when the database is of no use.
    fn serve(&mut self) -> Result<(), String> {
        let (database, built) = ViewDatabase::open(&self.path, &self.folder, self.open)?;
        let mut building = Building {
            lines: IndexedLines::after(self.folder.clone(), built.as_ref()),
            through: built.map_or(0, |built| built.head.sequence),
            ..Building::new(self.folder.clone())
        };
        loop {
            self.state
                .send_modify(|state| state.through = building.through);
            match self.questions.try_recv() {
                Ok(question) => self.answer(&database, question)?,
                Err(mpsc::error::TryRecvError::Disconnected) => return database.flush(),
                Err(mpsc::error::TryRecvError::Empty) => {}
            }
            let newest = self.written.borrow_and_update().sequence;
            if building.step(&database)? {
                building.tell(newest);
                continue;
            }
            building.rest(&database)?;
            if !self.wait(&database)? {
                return database.flush();
            }
        }
    }

    fn answer(
        &self,
        database: &ViewDatabase,
        asked: (ViewQuery, ViewAnswer),
    ) -> Result<(), String> {
        let (query, answer) = asked;
        let found = query.find(database, &self.folder);
        let failed = found.as_ref().err().cloned();
        let _ = answer.send(found);
        failed.map_or(Ok(()), Err)
    }

    /// Waits for a question or a record; false when nobody is left to ask.
    fn wait(&mut self, database: &ViewDatabase) -> Result<bool, String> {
        let (questions, written) = (&mut self.questions, &mut self.written);
        let question = self.runtime.block_on(async {
            tokio::select! {
                biased;
                question = questions.recv() => Some(question),
                changed = written.changed() => changed.is_err().then_some(None),
            }
        });
        match question {
            Some(Some(question)) => self.answer(database, question).map(|()| true),
            Some(None) => Ok(false),
            None => {
                thread::sleep(GATHER);
                Ok(true)
            }
        }
    }
}

/// What is being done.
struct Building {
    lines: IndexedLines,
    /// The last record in the view.
    through: u64,
    /// Files before this one have no keys.
    cleared: u64,
    /// Records since what is in memory was written.
    unflushed: u64,
    told: MonotonicTime,
    /// It was said that the view is being built.
    is_told: bool,
}

impl Building {
    fn new(folder: Folder) -> Self {
        Self {
            lines: IndexedLines::after(folder, None),
            through: 0,
            cleared: 0,
            unflushed: 0,
            told: moment(),
            is_told: false,
        }
    }

    /// Adds a piece of the log, and removes some of what the log has removed; false when nothing is to be
    /// done.
    fn step(&mut self, database: &ViewDatabase) -> Result<bool, String> {
        let (mut keys, mut built, mut records) = (Vec::new(), None, 0);
        let read = self.lines.folder.numbers().and_then(|files| {
            let read = self.lines.piece(&files, |place, record| {
                add(&mut keys, place, record);
                (built, records) = (Some(place), records + 1);
            });
            Ok((read?, files))
        });
        let (read, files) = match read {
            Ok(read) => read,
            Err(error) => {
                // The view is none the worse for it: it is tried again with the next record.
                tracing::warn!(%error, "the audit log cannot be read for its view");
                return Ok(false);
            }
        };
        if let Some(built) = built {
            database.add(keys, &built)?;
            self.through = self.through.max(built.head.sequence);
            self.unflushed += records;
        }
        let oldest = files.first().copied().unwrap_or(0);
        if oldest > self.cleared && !database.remove_before(oldest)? {
            self.cleared = oldest;
        }
        Ok(read || oldest > self.cleared)
    }

    fn tell(&mut self, newest: u64) {
        let now = moment();
        if now.since(self.told) >= PROGRESS {
            (self.told, self.is_told) = (now, true);
            tracing::info!(
                "the view of the audit log is being built: {} of {newest} records",
                self.through
            );
        }
    }

    /// All is in the view.
    fn rest(&mut self, database: &ViewDatabase) -> Result<(), String> {
        if std::mem::take(&mut self.is_told) {
            tracing::info!("the view of the audit log has all {} records", self.through);
        }
        self.told = moment();
        if self.unflushed >= FLUSH {
            self.unflushed = 0;
            database.flush()?;
        }
        Ok(())
    }
}

fn add(keys: &mut Vec<(Vec<u8>, u32)>, place: BuiltTo, record: &AuditRecord<'_>) {
    let Some(event) = IndexedEvent::read(record.event) else {
        return;
    };
    let at = RecordPlace {
        number: place.number,
        at_ms: event.at_ms,
        offset: place.offset,
    };
    for (index, value) in event.values {
        let prefix = RecordPlace::prefix(place.number, index, &value);
        keys.push((at.key(prefix), place.len));
    }
}

#[cfg(test)]
mod tests;
