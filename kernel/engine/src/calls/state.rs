//! The state machine of one call. The relay drives it; the audit log, retries, other nodes and the caller's error read
//! it. Whether a call took effect follows from what was sent and answered, never from the error that ended it.

use mgp_protocol::refusal::{CallOutcome, Refusal};

use super::outcome::for_refusal;

/// The stage of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CallStage {
    /// The call has arrived.
    #[default]
    Received,
    /// Its checks have passed.
    Checked,
    /// It waits for its server or in the server's queue.
    Waiting,
    /// A request was sent to its server.
    Dispatched,
    /// Its server waits for the caller's answer to a callback.
    Suspended,
    /// Its server has answered the last request.
    Answered,
    /// Its caller cancelled it: nothing more is sent.
    Cancelled,
    /// A request was sent, and no answer will come.
    Lost,
}

/// The state of one call. A call has one or more attempts, each with one or more requests to a server: the server may
/// request more input, and a failed call may be retried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallState {
    stage: CallStage,
    /// An earlier request of this attempt, or of the call that it continues, was dispatched.
    reached_in_attempt: bool,
    /// A request of an earlier attempt was dispatched.
    reached_before: bool,
    /// The last request was answered before the caller cancelled the call.
    answered: bool,
    /// The caller may know that the tool exists.
    admitted: bool,
    /// A second call for the same request, or a call that had one.
    nested: bool,
    /// Unanswered callbacks to the caller.
    pending_callbacks: usize,
}

impl CallState {
    /// The current stage.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn stage(&self) -> CallStage {
        self.stage
    }

    /// Records that the caller may know that the tool exists.
    pub fn admit(&mut self) {
        self.admitted = true;
    }

    /// Whether the caller may know that the tool exists.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// Records that its checks have passed.
    pub fn pass_checks(&mut self) {
        if self.stage == CallStage::Received {
            self.stage = CallStage::Checked;
        }
    }

    /// An attempt begins. `continues`: an earlier part of the call has reached its server.
    pub fn start_attempt(&mut self, continues: bool) {
        self.reached_before |= self.has_reached_in_attempt();
        self.reached_in_attempt = continues;
        self.move_to(CallStage::Waiting);
    }

    /// A request is about to be written. False if the call was cancelled: then nothing may be written.
    #[must_use]
    pub fn dispatch(&mut self) -> bool {
        self.reached_in_attempt |= self.has_reached_in_attempt();
        self.move_to(CallStage::Dispatched)
    }

    /// The last request ended: it was certainly not read (`NotExecuted`), answered, or lost.
    pub fn end_request(&mut self, outcome: CallOutcome) {
        self.move_to(match outcome {
            CallOutcome::NotExecuted => CallStage::Waiting,
            CallOutcome::Done => CallStage::Answered,
            CallOutcome::Unknown => CallStage::Lost,
        });
    }

    /// The server sends a callback to the caller.
    pub fn suspend(&mut self) {
        self.pending_callbacks += 1;
        // A callback proves that the server has read the request.
        self.reached_in_attempt = true;
        self.move_to(CallStage::Suspended);
    }

    /// A callback is answered or obsolete; the call continues after the last one.
    pub fn resume(&mut self) {
        self.pending_callbacks = self.pending_callbacks.saturating_sub(1);
        if self.pending_callbacks == 0 && self.stage == CallStage::Suspended {
            self.stage = CallStage::Dispatched;
        }
    }

    /// Whether its server waits for the caller.
    #[must_use]
    pub fn has_question(&self) -> bool {
        self.pending_callbacks > 0
    }

    /// The caller cancels it.
    pub fn cancel(&mut self) {
        self.answered = self.stage == CallStage::Answered;
        self.reached_in_attempt |= self.has_reached_in_attempt();
        self.stage = CallStage::Cancelled;
    }

    /// A second call begins for the same request: the fallback of a tool. Returns the state of this one.
    #[must_use]
    pub fn start_nested(&mut self) -> Self {
        let nested = Self {
            stage: match self.stage {
                CallStage::Cancelled => CallStage::Cancelled,
                CallStage::Received
                | CallStage::Checked
                | CallStage::Waiting
                | CallStage::Dispatched
                | CallStage::Suspended
                | CallStage::Answered
                | CallStage::Lost => CallStage::Received,
            },
            nested: true,
            ..Self::default()
        };
        std::mem::replace(self, nested)
    }

    /// Whether the request has or had a second call.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        self.nested
    }

    /// The second call has ended; its dispatched requests count for this one.
    pub fn end_nested(&mut self, outer: &Self) {
        self.reached_before |= outer.has_reached();
        self.admitted = outer.admitted;
    }

    /// Whether a request of this attempt may have been read by a server.
    #[must_use]
    pub fn has_reached_in_attempt(&self) -> bool {
        let is_dispatched = matches!(
            self.stage,
            CallStage::Dispatched | CallStage::Answered | CallStage::Lost
        );
        self.reached_in_attempt || is_dispatched
    }

    /// Whether any request of the call may have been read by a server.
    #[must_use]
    pub fn has_reached(&self) -> bool {
        self.reached_before || self.has_reached_in_attempt()
    }

    /// Whether the call took effect, as far as is known now.
    #[must_use]
    pub(crate) fn outcome(&self) -> CallOutcome {
        let answered = self.stage == CallStage::Answered || self.answered;
        match (self.has_reached(), answered) {
            (false, _) => CallOutcome::NotExecuted,
            (true, true) => CallOutcome::Done,
            (true, false) => CallOutcome::Unknown,
        }
    }

    /// Whether a call that ended with this refusal took effect. A refusal may add information, such as that the answer is
    /// invalid; it never makes a dispatched call "not executed", nor an undispatched one "unknown".
    #[must_use]
    pub fn outcome_after(&self, refusal: &Refusal) -> CallOutcome {
        if let Refusal::Unanswered(call) = refusal {
            return call.outcome;
        }
        match (for_refusal(refusal), self.has_reached()) {
            (CallOutcome::NotExecuted, true) => self.outcome(),
            (CallOutcome::Unknown, false) => CallOutcome::NotExecuted,
            (known, _) => known,
        }
    }

    /// False if the call was cancelled, which is final.
    fn move_to(&mut self, stage: CallStage) -> bool {
        if self.stage != CallStage::Cancelled {
            self.stage = stage;
        }
        self.stage == stage
    }
}

#[cfg(test)]
mod tests;
