//! Owns the process that runs the model: one for both embedding threads while either needs it, and a new one after it
//! died.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;

use super::EmbedError;
use super::frames::{EmbeddingLane, TEXTS_MAX};
use super::process::{Process, ProcessError, Program};
use mgp_runtime::time::monotonic_now;

/// The backoff before the second start in a row; it doubles up to the maximum. A model that cannot run here must not
/// load the machine.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A process that lived this long counts as a success, which resets the failures.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// The state of the model's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelLocation {
    /// Its pid, while it runs.
    pub process: Option<u32>,
    /// Its consecutive failures.
    pub failures: u32,
}

/// Owns the process.
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

/// Consecutive failures; a long run resets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FailureRun {
    failures: u32,
    not_before: MonotonicTime,
}

impl FailureRun {
    /// Records the failure of a process that was started at this time.
    fn record_failure(&mut self, started: MonotonicTime, now: MonotonicTime) {
        if now.duration_since(started) >= HEALTHY_AFTER {
            self.failures = 0;
        }
        let exponent = self.failures.saturating_sub(1).min(16);
        let wait = match self.failures {
            0 => Duration::ZERO,
            _ => (PAUSE * (1 << exponent)).min(PAUSE_MAX),
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

    /// The process; starts one if there is none. Blocks.
    fn acquire(&self) -> Result<Arc<Process>, EmbedError> {
        let mut state = self.lock_state();
        if let Some(process) = state.process.upgrade() {
            return Ok(process);
        }
        if monotonic_now() < state.failure_run.not_before {
            return Err(EmbedError::BackingOff(state.failure_run.failures));
        }
        state.started = monotonic_now();
        let (process, unapplied) = match Process::start(&self.program, &self.running) {
            Ok(started) => started,
            Err(ended) => {
                self.record_failure(&mut state);
                return Err(ended.into());
            }
        };
        if !unapplied.is_empty() {
            tracing::warn!(
                "some restrictions of the model's process could not be applied: {unapplied}"
            );
        }
        let process = Arc::new(process);
        state.process = Arc::downgrade(&process);
        Ok(process)
    }

    /// Handles the end of a process. Only the first report of it counts.
    fn handle_end(&self, process: &Arc<Process>) {
        let mut state = self.lock_state();
        if Weak::ptr_eq(&state.process, &Arc::downgrade(process)) {
            state.process = Weak::new();
            self.record_failure(&mut state);
        }
    }

    fn record_failure(&self, state: &mut ModelState) {
        state
            .failure_run
            .record_failure(state.started, monotonic_now());
        self.failures
            .store(state.failure_run.failures, Ordering::Relaxed);
    }

    /// Releases a working process; the last thread to do so ends it.
    fn release(&self, process: Arc<Process>) {
        let mut state = self.lock_state();
        let is_current = Weak::ptr_eq(&state.process, &Arc::downgrade(&process));
        if is_current && Arc::into_inner(process).is_some() {
            *state = ModelState::default();
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

    /// Whether there is a process to release.
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
        for chunk in texts.chunks(TEXTS_MAX) {
            // A request in flight when the process ended is sent to the next one.
            let vectors = match self.request(chunk) {
                Err(EmbedError::Died(_)) => self.request(chunk),
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

    /// The first restart is immediate, further ones back off.
    #[test]
    fn restarts_back_off() {
        let mut run = FailureRun::default();
        let started = monotonic_now();
        let waits: Vec<u64> = (0..9)
            .map(|_| {
                run.record_failure(started, started);
                run.not_before.duration_since(started).as_secs()
            })
            .collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        run.record_failure(started, started + HEALTHY_AFTER);
        assert_eq!(run.failures, 1, "a long run resets the failures");
        assert_eq!(run.not_before, started + HEALTHY_AFTER);
    }

    /// A request of a dying process is sent to one more process, and not to a third.
    #[test]
    fn a_request_is_retried_with_one_more_process() {
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
        assert_eq!(owner.location(), failed, "no process was started");
    }
}
