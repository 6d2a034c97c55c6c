//! The calls that were resumed with a continuation: a repeated continuation reads the state of its call,
//! and nothing is executed twice.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_protocol::lite::error::{LiteError, LiteErrorKind};
use tokio::sync::watch;
use tokio::time::Instant;

use super::answer::LiteOutcome;

/// The most stored calls, as many as may be suspended.
const CALLS_MAX: usize = 4096;
/// The most calls of one caller, so that one caller leaves capacity to the others.
const CALLER_CALLS_MAX: usize = 256;
/// The most bytes of results of one caller: several usual ones. The oldest are evicted first.
const CALLER_BYTES_MAX: usize = 1 << 20;

type OutcomeReceiver = watch::Receiver<Option<LiteOutcome>>;

/// The resumed calls, stored for the lifetime of a continuation.
#[derive(Debug)]
pub(super) struct Resumptions {
    state: Mutex<ResumptionState>,
    age: Duration,
}

#[derive(Debug, Default)]
struct ResumptionState {
    calls: HashMap<u64, Resumption>,
    /// The calls and their resumption counts, oldest first. A call that resumed again is at its last
    /// position.
    order: VecDeque<(u64, u64)>,
    last_sequence: u64,
}

#[derive(Debug)]
struct Resumption {
    principal: Arc<str>,
    tool: String,
    sequence: u64,
    started_at: Instant,
    bytes: usize,
    outcome: watch::Sender<Option<LiteOutcome>>,
}

/// The effect of a continuation.
#[derive(Debug)]
pub(super) enum Resume<'a> {
    /// The call resumes now.
    New(ResumedCall<'a>),
    /// It resumed the call before.
    Earlier(OutcomeReceiver),
}

/// A resumed call. If it is aborted, its outcome is unknown.
#[derive(Debug)]
pub(super) struct ResumedCall<'a> {
    table: &'a Resumptions,
    call: u64,
    sequence: u64,
}

impl Resumptions {
    /// An empty table; each call is stored for `age`.
    pub(super) fn new(age: Duration) -> Self {
        Self {
            state: Mutex::default(),
            age,
        }
    }

    /// Resumes the call of a continuation for this tool. `waits`: the call is still suspended. `None` for a
    /// call that is neither suspended nor resumed, or belongs to another caller.
    pub(super) fn resume(
        &self,
        call: u64,
        (principal, tool): (&str, &str),
        waits: bool,
    ) -> Option<Resume<'_>> {
        let now = Instant::now();
        let mut state = self.lock();
        state.expire(now, self.age);
        if let Some(known) = state.calls.get(&call) {
            if *known.principal != *principal {
                return None;
            }
            let runs = known.outcome.borrow().is_none();
            if known.tool == tool && (runs || !waits) {
                return Some(Resume::Earlier(known.outcome.subscribe()));
            }
        }
        if !waits {
            return None;
        }
        state.last_sequence += 1;
        let turn = state.last_sequence;
        let (receiver, _) = watch::channel(None);
        let resumption = Resumption {
            principal: principal.into(),
            tool: tool.to_owned(),
            sequence: turn,
            started_at: now,
            bytes: 0,
            outcome: receiver,
        };
        state.calls.insert(call, resumption);
        state.order.push_back((call, turn));
        state.evict_oldest(principal);
        Some(Resume::New(ResumedCall {
            table: self,
            call,
            sequence: turn,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, ResumptionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResumptionState {
    fn expire(&mut self, now: Instant, age: Duration) {
        while let Some((call, turn)) = self.order.front().copied() {
            let current = self.calls.get(&call).filter(|it| it.sequence == turn);
            let stays = current.map(|it| {
                let runs = it.outcome.borrow().is_none();
                runs || now.duration_since(it.started_at) < age
            });
            match stays {
                Some(true) => return,
                Some(false) => drop(self.calls.remove(&call)),
                None => {}
            }
            self.order.pop_front();
        }
    }

    /// Evicts the oldest finished calls, those of this caller at its own limits.
    fn evict_oldest(&mut self, principal: &str) {
        let own = self.calls.values().filter(|it| *it.principal == *principal);
        let (mut count, mut bytes) = own.fold((0, 0), |(n, sum), it| (n + 1, sum + it.bytes));
        let mut all = self.calls.len();
        let calls = &mut self.calls;
        self.order.retain(|(call, turn)| {
            let Some(it) = calls.get(call).filter(|it| it.sequence == *turn) else {
                return false;
            };
            let is_own = *it.principal == *principal;
            let own_full = is_own && (count > CALLER_CALLS_MAX || bytes > CALLER_BYTES_MAX);
            if it.outcome.borrow().is_none() || !(own_full || all > CALLS_MAX) {
                return true;
            }
            if is_own {
                count -= 1;
                bytes -= it.bytes;
            }
            all -= 1;
            calls.remove(call);
            false
        });
    }
}

impl ResumedCall<'_> {
    /// Sets the outcome of the resumed call.
    pub(super) fn finish(self, outcome: &LiteOutcome) {
        self.set_outcome(outcome.clone());
    }

    fn set_outcome(&self, outcome: LiteOutcome) {
        let mut state = self.table.lock();
        let Some(own) = state
            .calls
            .get_mut(&self.call)
            .filter(|it| it.sequence == self.sequence && it.outcome.borrow().is_none())
        else {
            return;
        };
        own.bytes = outcome.as_ref().map_or(0, |answer| answer.result.len());
        own.outcome.send_replace(Some(outcome));
        let principal = own.principal.clone();
        state.evict_oldest(&principal);
    }
}

impl Drop for ResumedCall<'_> {
    fn drop(&mut self) {
        let message = "the request that resumed the call broke off, and the call was cancelled; whether it took effect is not known";
        self.set_outcome(Err(LiteError::new(LiteErrorKind::Internal, message)));
    }
}

/// Waits until the call has its outcome.
pub(super) async fn wait_for_outcome(mut receiver: OutcomeReceiver) -> LiteOutcome {
    let settled = receiver.wait_for(Option::is_some).await;
    let known = settled.ok().and_then(|outcome| (*outcome).clone());
    known.unwrap_or_else(|| {
        let message = "the outcome of the call is no longer stored";
        Err(LiteError::new(LiteErrorKind::Internal, message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgp_protocol::lite::ResponseType;

    use super::super::answer::LiteAnswer;

    fn answer(text: &'static str) -> LiteOutcome {
        Ok(LiteAnswer {
            response_type: ResponseType::Answer,
            result: text.as_bytes().into(),
            promise: None,
            timestamp_ms: 0,
            processing_time_ms: 0,
        })
    }

    fn now(resumed: Option<Resume<'_>>) -> ResumedCall<'_> {
        match resumed {
            Some(Resume::New(call)) => call,
            other => panic!("{other:?}"),
        }
    }

    async fn before(resumed: Option<Resume<'_>>) -> LiteOutcome {
        match resumed {
            Some(Resume::Earlier(receiver)) => wait_for_outcome(receiver).await,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn repeated_continuation_returns_the_state_of_its_call() {
        let table = Resumptions::new(Duration::from_secs(600));
        let who = ("alice", "delete");
        let call = now(table.resume(7, who, true));
        // While it runs, whether the table of suspended calls contains it or not.
        let waiting = [table.resume(7, who, true), table.resume(7, who, false)];
        call.finish(&answer("deleted"));
        for receiver in waiting.into_iter().chain([table.resume(7, who, false)]) {
            assert_eq!(before(receiver).await.unwrap().result, "deleted");
        }
        for stranger in [("bob", "delete"), ("alice", "other")] {
            assert!(table.resume(7, stranger, false).is_none());
        }
        assert!(table.resume(8, who, false).is_none());
        // It sent a callback again, and resumes once more.
        now(table.resume(7, who, true)).finish(&answer("all"));
        assert_eq!(
            before(table.resume(7, who, false)).await.unwrap().result,
            "all"
        );
        drop(now(table.resume(9, who, true)));
        let broken = before(table.resume(9, who, false)).await.unwrap_err();
        assert!(broken.message.contains("not known"), "{broken}");
    }

    #[tokio::test(start_paused = true)]
    async fn stored_calls_are_bounded_in_number_size_and_age() {
        let table = Resumptions::new(Duration::from_secs(600));
        let large: &'static str = "x".repeat(CALLER_BYTES_MAX / 2).leak();
        for call in 0..4 {
            now(table.resume(call, ("alice", "t"), true)).finish(&answer(large));
        }
        assert_eq!(table.lock().calls.len(), 2);
        for call in 10..10 + 2 * CALLER_CALLS_MAX as u64 {
            now(table.resume(call, ("bob", "t"), true)).finish(&answer("x"));
        }
        assert_eq!(table.lock().calls.len(), 2 + CALLER_CALLS_MAX);
        let runs = now(table.resume(5000, ("bob", "t"), true));
        tokio::time::advance(Duration::from_secs(601)).await;
        assert!(table.resume(10, ("bob", "t"), false).is_none());
        runs.finish(&answer("late"));
        assert!(table.lock().calls.len() <= 1);
        assert!(table.lock().order.len() <= 1);
    }
}
