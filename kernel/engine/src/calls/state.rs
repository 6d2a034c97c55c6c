//! Where one call stands: one machine that the relay drives, and that the audit log, retries, other nodes and the
//! caller's error ask. What a call did is known from what was sent and answered, never from the error that ended it.

use mgp_protocol::refusal::{CallOutcome, Refusal};

use super::outcome::for_refusal;

/// Where a call stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallStage {
    /// It has arrived.
    #[default]
    Received,
    /// Its checks have passed.
    Checked,
    /// It waits for its server, or for its turn there.
    Waiting,
    /// A request of it is at its server.
    Dispatched,
    /// Its server waits for the caller, who was asked something.
    Suspended,
    /// Its server has answered the last request of it.
    Answered,
    /// Its caller took it back: nothing more is sent for it.
    Cancelled,
    /// A request of it was sent, and no answer will come.
    Lost,
}

/// The state of one call. A call is made in attempts, each of one request to a server or more: its server may ask for
/// more input, and a call that failed may be made again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallState {
    stage: CallStage,
    /// An earlier request of this attempt, or of the call that it continues, reached a server.
    reached_in_attempt: bool,
    /// An earlier attempt did.
    reached_before: bool,
    /// The last request was answered before the caller took the call back.
    answered: bool,
    /// The caller may know that the tool exists.
    admitted: bool,
    /// It is made for the request of another call, or such a one was made for its own.
    nested: bool,
    /// Questions to the caller without an answer.
    questions: usize,
}

impl CallState {
    /// Where it stands.
    #[must_use]
    pub fn stage(&self) -> CallStage {
        self.stage
    }

    /// The caller may know that what is called exists.
    pub fn admit(&mut self) {
        self.admitted = true;
    }

    /// Whether the caller may know that what is called exists.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// Its checks have passed.
    pub fn pass_checks(&mut self) {
        if self.stage == CallStage::Received {
            self.stage = CallStage::Checked;
        }
    }

    /// An attempt begins. `continues`: it goes on with a call whose first part had reached its server.
    pub fn start_attempt(&mut self, continues: bool) {
        self.reached_before |= self.has_reached_in_attempt();
        self.reached_in_attempt = continues;
        self.move_to(CallStage::Waiting);
    }

    /// A request is about to be written. False, and nothing may be written, when the call was taken back.
    #[must_use]
    pub fn dispatch(&mut self) -> bool {
        self.reached_in_attempt |= self.has_reached_in_attempt();
        self.move_to(CallStage::Dispatched)
    }

    /// The request that was written last ended: it is known not to have been read (`NotExecuted`), was answered, or is
    /// lost.
    pub fn end_request(&mut self, outcome: CallOutcome) {
        self.move_to(match outcome {
            CallOutcome::NotExecuted => CallStage::Waiting,
            CallOutcome::Done => CallStage::Answered,
            CallOutcome::Unknown => CallStage::Lost,
        });
    }

    /// The server asks the caller something.
    pub fn suspend(&mut self) {
        self.questions += 1;
        // Who asks has read the request.
        self.reached_in_attempt = true;
        self.move_to(CallStage::Suspended);
    }

    /// A question has its answer, or needs none any more; the call goes on with the last one.
    pub fn resume(&mut self) {
        self.questions = self.questions.saturating_sub(1);
        if self.questions == 0 && self.stage == CallStage::Suspended {
            self.stage = CallStage::Dispatched;
        }
    }

    /// Whether its server waits for the caller.
    #[must_use]
    pub fn has_question(&self) -> bool {
        self.questions > 0
    }

    /// The caller took it back.
    pub fn cancel(&mut self) {
        self.answered = self.stage == CallStage::Answered;
        self.reached_in_attempt |= self.has_reached_in_attempt();
        self.stage = CallStage::Cancelled;
    }

    /// Another call begins for the same request: the fallback of a tool. Returns the state of this one.
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

    /// Whether a second call is made, or was, for the same request.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        self.nested
    }

    /// The other call is over: what it reached, this request reached.
    pub fn end_nested(&mut self, outer: &Self) {
        self.reached_before |= outer.has_reached();
        self.admitted = outer.admitted;
    }

    /// Whether a request of this attempt may have been read by a server.
    #[must_use]
    pub fn has_reached_in_attempt(&self) -> bool {
        let at_server = matches!(
            self.stage,
            CallStage::Dispatched | CallStage::Answered | CallStage::Lost
        );
        self.reached_in_attempt || at_server
    }

    /// Whether any request of the call may have been read by a server.
    #[must_use]
    pub fn has_reached(&self) -> bool {
        self.reached_before || self.has_reached_in_attempt()
    }

    /// Whether the call took effect, as far as is known now.
    #[must_use]
    pub fn outcome(&self) -> CallOutcome {
        let answered = self.stage == CallStage::Answered || self.answered;
        match (self.has_reached(), answered) {
            (false, _) => CallOutcome::NotExecuted,
            (true, true) => CallOutcome::Done,
            (true, false) => CallOutcome::Unknown,
        }
    }

    /// Whether a call that ended with this refusal took effect. A refusal may know more than the state does, such as
    /// that the answer is invalid; it is never believed to mean that nothing happened once a server was reached, nor
    /// that something may have before.
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

    /// False when the call was taken back: it stays so.
    fn move_to(&mut self, stage: CallStage) -> bool {
        if self.stage != CallStage::Cancelled {
            self.stage = stage;
        }
        self.stage == stage
    }
}

#[cfg(test)]
mod tests;
