//! Keeps the process that runs the model: one for both embedding threads, while either needs it, and a new
//! one after it has died.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;

use super::Failed;
use super::frames::{EmbeddingLane, TEXTS_MAX};
use super::process::{Ended, Process, Program};
use mgp_runtime::time::moment;

/// Wait before the second start in a row; it doubles with each further one up to the most. A model that
/// cannot be run here must not keep the machine busy.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A process that lived this long counts as a success: the next failure begins a new row.
const WELL: Duration = Duration::from_secs(10);

/// The state of the model's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelLocation {
    /// Its pid, while there is one.
    pub process: Option<u32>,
    /// How often in a row it failed.
    pub failures: u32,
}

/// Holds the process.
#[derive(Debug)]
pub(super) struct ModelOwner {
    program: Program,
    kept: Mutex<ModelState>,
    running: Arc<AtomicU32>,
    failures: AtomicU32,
}

#[derive(Debug, Default)]
struct ModelState {
    process: Weak<Process>,
    started: MonotonicTime,
    row: FailureRun,
}

/// Failures in a row; a long life resets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FailureRun {
    failures: u32,
    not_before: MonotonicTime,
}

impl FailureRun {
    /// Adds a failure of a process that was started at this time.
    fn failed(&mut self, started: MonotonicTime, now: MonotonicTime) {
        if now.since(started) >= WELL {
            self.failures = 0;
        }
        let doubled = self.failures.saturating_sub(1).min(16);
        let wait = match self.failures {
            0 => Duration::ZERO,
            _ => (PAUSE * (1 << doubled)).min(PAUSE_MAX),
        };
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + wait;
    }
}

impl ModelOwner {
    pub(super) fn new(program: Program) -> Self {
        Self {
            program,
            kept: Mutex::default(),
            running: Arc::default(),
            failures: AtomicU32::new(0),
        }
    }

    pub(super) fn running(&self) -> ModelLocation {
        let pid = self.running.load(Ordering::Relaxed);
        ModelLocation {
            process: (pid > 0).then_some(pid),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// The process; starts it when there is none. Blocks.
    fn take(&self) -> Result<Arc<Process>, Failed> {
        let mut kept = self.kept();
        if let Some(process) = kept.process.upgrade() {
            return Ok(process);
        }
        if moment() < kept.row.not_before {
            return Err(Failed::Resting(kept.row.failures));
        }
        kept.started = moment();
        let (process, less) = match Process::start(&self.program, &self.running) {
            Ok(started) => started,
            Err(ended) => {
                self.failed(&mut kept);
                return Err(ended.into());
            }
        };
        if !less.is_empty() {
            tracing::warn!("the model runs with less of a wall around it than it should: {less}");
        }
        let process = Arc::new(process);
        kept.process = Arc::downgrade(&process);
        Ok(process)
    }

    /// This process has ended. Only the first report of it counts.
    fn ended(&self, process: &Arc<Process>) {
        let mut kept = self.kept();
        if Weak::ptr_eq(&kept.process, &Arc::downgrade(process)) {
            kept.process = Weak::new();
            self.failed(&mut kept);
        }
    }

    fn failed(&self, kept: &mut ModelState) {
        kept.row.failed(kept.started, moment());
        self.failures.store(kept.row.failures, Ordering::Relaxed);
    }

    /// Releases a process that works; the last thread to do so ends it.
    fn leave(&self, process: Arc<Process>) {
        let mut kept = self.kept();
        let works = Weak::ptr_eq(&kept.process, &Arc::downgrade(&process));
        if works && Arc::into_inner(process).is_some() {
            *kept = ModelState::default();
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    fn kept(&self) -> MutexGuard<'_, ModelState> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread's use of the model.
#[derive(Debug)]
pub(in crate::search) struct Builtin {
    owner: Arc<ModelOwner>,
    lane: EmbeddingLane,
    process: Option<Arc<Process>>,
}

impl Builtin {
    pub(super) fn new(owner: Arc<ModelOwner>, lane: EmbeddingLane) -> Self {
        Self {
            owner,
            lane,
            process: None,
        }
    }

    /// Whether there is something to release.
    pub(super) fn holds(&self) -> bool {
        self.process.is_some()
    }

    pub(super) fn rest(&mut self) {
        if let Some(process) = self.process.take() {
            self.owner.leave(process);
        }
    }

    /// The vectors of texts, in their order. Blocks.
    pub(super) fn embed(&mut self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Failed> {
        let mut out = Vec::with_capacity(texts.len());
        for some in texts.chunks(TEXTS_MAX) {
            // A request under way when the process ended is sent to the next one.
            let vectors = match self.ask(some) {
                Err(Failed::Died(_)) => self.ask(some),
                other => other,
            };
            out.extend(vectors?);
        }
        Ok(out)
    }

    fn ask(&mut self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Failed> {
        let process = match &self.process {
            Some(process) => process,
            None => self.process.insert(self.owner.take()?),
        };
        process.embed(self.lane, texts).map_err(|ended| {
            if let Some(process) = self.process.take() {
                self.owner.ended(&process);
            }
            ended.into()
        })
    }
}

impl From<Ended> for Failed {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Died(why) => Self::Died(why),
            Ended::Unfit(why) => Self::Unfit(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next one is started at once, further ones less and less often.
    #[test]
    fn what_keeps_dying_is_started_less_and_less_often() {
        let mut row = FailureRun::default();
        let begun = moment();
        let waits: Vec<u64> = (0..9)
            .map(|_| {
                row.failed(begun, begun);
                row.not_before.since(begun).as_secs()
            })
            .collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        row.failed(begun, begun + WELL);
        assert_eq!(row.failures, 1, "it lived well");
        assert_eq!(row.not_before, begun + WELL);
    }

    /// A request that a dying process leaves behind is tried with one more, and not with the next.
    #[test]
    fn who_asked_a_dying_process_is_not_asked_to_wait() {
        let program = Program {
            exe: "/bin/false".into(),
            args: Vec::new(),
            patience: Duration::from_secs(20),
        };
        let owner = Arc::new(ModelOwner::new(program));
        let mut builtin = Builtin::new(owner.clone(), EmbeddingLane::Requests);
        assert!(matches!(builtin.embed(&["x"]), Err(Failed::Died(_))));
        let failed = ModelLocation {
            process: None,
            failures: 2,
        };
        assert_eq!(owner.running(), failed);
        assert!(matches!(builtin.embed(&["x"]), Err(Failed::Resting(2))));
        assert_eq!(owner.running(), failed, "none was started");
    }
}
