//! Keeps the process that runs the model: one for both embedding threads, while either needs it, and a new
//! one after it has died.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;

use super::EmbedError;
use super::frames::{EmbeddingLane, TEXTS_MAX};
use super::process::{Process, ProcessError, Program};
use mgp_runtime::time::monotonic_now;

/// Wait before the second start in a row; it doubles with each further one up to the most. A model that
/// cannot be run here must not keep the machine busy.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A process that lived this long counts as a success: the next failure begins a new row.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

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
    state: Mutex<ModelState>,
    running: Arc<AtomicU32>,
    failures: AtomicU32,
}

#[derive(Debug, Default)]
struct ModelState {
    process: Weak<Process>,
    started: MonotonicTime,
    failure_run: FailureRun,
}

/// Failures in a row; a long run resets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FailureRun {
    failures: u32,
    not_before: MonotonicTime,
}

impl FailureRun {
    /// Adds a failure of a process that was started at this time.
    fn record_failure(&mut self, started: MonotonicTime, now: MonotonicTime) {
        if now.duration_since(started) >= HEALTHY_AFTER {
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
            state: Mutex::default(),
            running: Arc::default(),
            failures: AtomicU32::new(0),
        }
    }

    pub(super) fn location(&self) -> ModelLocation {
        let pid = self.running.load(Ordering::Relaxed);
        ModelLocation {
            process: (pid > 0).then_some(pid),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// The process; starts it when there is none. Blocks.
    fn acquire(&self) -> Result<Arc<Process>, EmbedError> {
        let mut kept = self.lock_state();
        if let Some(process) = kept.process.upgrade() {
            return Ok(process);
        }
        if monotonic_now() < kept.failure_run.not_before {
            return Err(EmbedError::BackingOff(kept.failure_run.failures));
        }
        kept.started = monotonic_now();
        let (process, less) = match Process::start(&self.program, &self.running) {
            Ok(started) => started,
            Err(ended) => {
                self.record_failure(&mut kept);
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
    fn handle_end(&self, process: &Arc<Process>) {
        let mut kept = self.lock_state();
        if Weak::ptr_eq(&kept.process, &Arc::downgrade(process)) {
            kept.process = Weak::new();
            self.record_failure(&mut kept);
        }
    }

    fn record_failure(&self, kept: &mut ModelState) {
        kept.failure_run
            .record_failure(kept.started, monotonic_now());
        self.failures
            .store(kept.failure_run.failures, Ordering::Relaxed);
    }

    /// Releases a process that works; the last thread to do so ends it.
    fn release(&self, process: Arc<Process>) {
        let mut kept = self.lock_state();
        let works = Weak::ptr_eq(&kept.process, &Arc::downgrade(&process));
        if works && Arc::into_inner(process).is_some() {
            *kept = ModelState::default();
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, ModelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(super) fn has_process(&self) -> bool {
        self.process.is_some()
    }

    pub(super) fn release(&mut self) {
        if let Some(process) = self.process.take() {
            self.owner.release(process);
        }
    }

    /// The vectors of texts, in their order. Blocks.
    pub(super) fn embed(&mut self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut out = Vec::with_capacity(texts.len());
        for some in texts.chunks(TEXTS_MAX) {
            // A request in flight when the process ended is sent to the next one.
            let vectors = match self.request(some) {
                Err(EmbedError::Died(_)) => self.request(some),
                other => other,
            };
            out.extend(vectors?);
        }
        Ok(out)
    }

    fn request(&mut self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let process = match &self.process {
            Some(process) => process,
            None => self.process.insert(self.owner.acquire()?),
        };
        process.embed(self.lane, texts).map_err(|ended| {
            if let Some(process) = self.process.take() {
                self.owner.handle_end(&process);
            }
            ended.into()
        })
    }
}

impl From<ProcessError> for EmbedError {
    fn from(ended: ProcessError) -> Self {
        match ended {
            ProcessError::Died(why) => Self::Died(why),
            ProcessError::Unfit(why) => Self::Unfit(why),
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
        let begun = monotonic_now();
        let waits: Vec<u64> = (0..9)
            .map(|_| {
                row.record_failure(begun, begun);
                row.not_before.duration_since(begun).as_secs()
            })
            .collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        row.record_failure(begun, begun + HEALTHY_AFTER);
        assert_eq!(row.failures, 1, "it lived well");
        assert_eq!(row.not_before, begun + HEALTHY_AFTER);
    }

    /// A request that a dying process leaves behind is tried with one more, and not with the next.
    #[test]
    fn who_asked_a_dying_process_is_not_asked_to_wait() {
        let program = Program {
            exe: "/bin/false".into(),
            args: Vec::new(),
            timeout: Duration::from_secs(20),
        };
        let owner = Arc::new(ModelOwner::new(program));
        let mut builtin = Builtin::new(owner.clone(), EmbeddingLane::Requests);
        assert!(matches!(builtin.embed(&["x"]), Err(EmbedError::Died(_))));
        let failed = ModelLocation {
            process: None,
            failures: 2,
        };
        assert_eq!(owner.location(), failed);
        assert!(matches!(
            builtin.embed(&["x"]),
            Err(EmbedError::BackingOff(2))
        ));
        assert_eq!(owner.location(), failed, "none was started");
    }
}
