//! The thread that owns the view: it opens the database for queries and closes it when idle.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::index::BLOCK_RECORDS_MAX;
use mgp_runtime::time::monotonic_now;
use tokio::runtime::{self, Runtime};
use tokio::sync::{mpsc, oneshot, watch};

use super::database::{OpenSled, ViewDatabase, move_aside, open_sled};
use super::growing_view::GrowingView;
use super::search::{MatchedRecords, ViewQuery};
use crate::audit::{AuditHandle, LogFolder, state_damaged_event};
use crate::background::lower_priority;
use crate::health::explain_io_error;

/// How long a query waits for records written just before it.
pub(super) const CATCH_UP: Duration = Duration::from_secs(1);
/// How long records are gathered before they are read.
const GATHER: Duration = Duration::from_millis(20);
/// How long the view stays open after the last query. A closed view costs neither memory nor work per record.
const IDLE: Duration = Duration::from_secs(600);
/// A view that fails this often in one run of the kernel is disabled, because its disk is faulty.
const BUILDS_MAX: usize = 4;

/// Matching records, and the last record up to which they are complete.
pub(super) type ViewResult = Result<(MatchedRecords, u64), String>;

/// A pending query.
pub(super) struct ViewRequest {
    pub(super) query: ViewQuery,
    /// The last record written before the query.
    pub(super) newest: u64,
    pub(super) asked_at: MonotonicTime,
    pub(super) answer: oneshot::Sender<ViewResult>,
}

/// The progress of the view.
#[derive(Clone, Debug, Default)]
pub(super) struct ViewState {
    /// The sequence of the last record in it.
    pub(super) last_sequence: u64,
    /// Why there is no view.
    pub(super) failure: Option<Arc<str>>,
}

/// The parameters of a view.
#[derive(Clone, Copy)]
pub(super) struct ViewOptions {
    pub(super) open: OpenSled,
    pub(super) block_records: usize,
    pub(super) idle: Duration,
}

impl Default for ViewOptions {
    fn default() -> Self {
        Self {
            open: open_sled,
            block_records: BLOCK_RECORDS_MAX,
            idle: IDLE,
        }
    }
}

pub(super) fn set_failure(state: &watch::Sender<ViewState>, why: &str) {
    tracing::error!("there is no view of the audit log: {why}");
    state.send_modify(|state| state.failure = Some(why.into()));
}

pub(super) struct ViewOwner {
    pub(super) path: PathBuf,
    pub(super) audit: AuditHandle,
    pub(super) folder: LogFolder,
    pub(super) written: watch::Receiver<Head>,
    pub(super) requests: mpsc::Receiver<ViewRequest>,
    pub(super) state: watch::Sender<ViewState>,
    pub(super) options: ViewOptions,
    /// The next query.
    pub(super) next: Option<ViewRequest>,
    /// When the view was opened, and when it last answered.
    pub(super) opened: MonotonicTime,
    pub(super) answered: MonotonicTime,
}

/// Why the thread woke up.
enum Wake {
    Request(ViewRequest),
    Written,
    /// The view is idle.
    Idle,
    /// All handles are dropped.
    End,
}

impl ViewOwner {
    pub(super) fn run(mut self) {
        lower_priority("the view of the audit log");
        // A separate runtime: the kernel's may end before this thread does.
        let runtime = runtime::Builder::new_current_thread().enable_time().build();
        match runtime {
            Ok(runtime) => self.serve_all(&runtime),
            Err(error) => set_failure(&self.state, &error.to_string()),
        }
    }

    fn serve_all(&mut self, runtime: &Runtime) {
        let mut failed = 0;
        while failed < BUILDS_MAX {
            let Err(why) = self.serve(runtime) else {
                self.next = self.requests.blocking_recv();
                match self.next {
                    Some(_) => continue,
                    None => return,
                }
            };
            failed += 1;
            self.state.send_modify(|state| state.last_sequence = 0);
            let what = format!("{}: {why}", self.path.display());
            tracing::warn!("the view of the audit log is built again: {what}");
            if let Err(error) = move_aside(&self.path) {
                return set_failure(&self.state, &explain_io_error(&self.path, &error));
            }
            let message = format!("{what}; it is built again out of the audit log");
            self.audit.record(state_damaged_event(&message));
        }
        let path = self.path.display();
        set_failure(
            &self.state,
            &format!("{path} failed {BUILDS_MAX} times since the start of the kernel"),
        );
    }

    /// Indexes records and answers queries until the view is idle; an error if the database is unusable.
    fn serve(&mut self, runtime: &Runtime) -> Result<(), String> {
        let database = ViewDatabase::open(&self.path, &self.folder, self.options.open)?;
        let mut view = GrowingView::new(database, &self.folder, self.options.block_records);
        (self.opened, self.answered) = (monotonic_now(), monotonic_now());
        loop {
            let through = view.last_sequence();
            self.state
                .send_modify(|state| state.last_sequence = through);
            self.next = self.next.take().or_else(|| self.requests.try_recv().ok());
            self.answer_when_due(&view, false)?;
            let newest = self.written.borrow_and_update().sequence;
            if view.step()? {
                view.report_progress(newest);
                if self.requests.is_closed() {
                    return view.close();
                }
                continue;
            }
            view.finish_pass()?;
            // The view has all records of the log.
            self.answer_when_due(&view, true)?;
            match self.wait(runtime) {
                Wake::Request(request) => self.next = Some(request),
                Wake::Written => thread::sleep(GATHER),
                Wake::Idle | Wake::End => return view.close(),
            }
        }
    }

    /// Answers the next query once the view has all records written before it, or after a timeout.
    fn answer_when_due(&mut self, view: &GrowingView, is_whole: bool) -> Result<(), String> {
        let (through, opened) = (view.last_sequence(), self.opened);
        let is_due = |request: &mut ViewRequest| {
            let waited = monotonic_now().duration_since(request.asked_at.max(opened));
            is_whole || through >= request.newest || waited >= CATCH_UP
        };
        let Some(request) = self.next.take_if(is_due) else {
            return Ok(());
        };
        self.answered = monotonic_now();
        if request.answer.is_closed() {
            return Ok(());
        }
        let found = view.find(&request.query).map(|found| (found, through));
        let failed = found.as_ref().err().cloned();
        let _ = request.answer.send(found);
        failed.map_or(Ok(()), Err)
    }

    fn wait(&mut self, runtime: &Runtime) -> Wake {
        let (requests, written) = (&mut self.requests, &mut self.written);
        let idle = self
            .options
            .idle
            .checked_sub(monotonic_now().duration_since(self.answered));
        let Some(idle) = idle.filter(|idle| !idle.is_zero()) else {
            return Wake::Idle;
        };
        runtime.block_on(async {
            tokio::select! {
                biased;
                request = requests.recv() => request.map_or(Wake::End, Wake::Request),
                changed = written.changed() => changed.map_or(Wake::End, |()| Wake::Written),
                () = tokio::time::sleep(idle) => Wake::Idle,
            }
        })
    }
}
