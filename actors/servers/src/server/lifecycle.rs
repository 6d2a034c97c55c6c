//! The steps of a server through its states: heard from the server itself, told to agents (MGP §11.4).

use mgp_engine::servers::lifecycle::{self, LifecycleEvent, Transition, TransitionReason};
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::mgp;

use super::{ServerActor, ServerState};
use mgp_runtime::time::unix_ms;

impl ServerActor {
    /// A server says that it went from one state to another. What it cannot say of itself is noted
    /// in its log and changes nothing.
    pub(super) fn said(&self, state: &mut ServerState, link: u64, step: &mgp::Lifecycle) {
        let current = state.current.as_ref();
        let Some(current) = current.filter(|c| c.link.as_ref().is_some_and(|l| l.number == link))
        else {
            return;
        };
        let stands = state.lifecycle.state();
        let said = lifecycle::said(stands, &step.previous_state, &step.new_state, &step.reason);
        match said {
            Ok(LifecycleEvent::Failed(why)) => current.fail(why),
            Ok(event) => {
                current.stop(TransitionReason::ServerRequest);
                self.handle.vacate();
                self.step(state, event, None);
            }
            Err(implausible) => self.handle.log.note(&implausible.to_string()),
        }
    }

    /// Agents that negotiated it hear of every step.
    pub(super) fn tell_agents(&self, step: &Transition) {
        // Their own instances come and go with their calls.
        if self.handle.agent().is_some() {
            return;
        }
        let step = mgp::Lifecycle {
            server_id: self.handle.id.to_string(),
            previous_state: step.from.to_string(),
            new_state: step.to.to_string(),
            reason: step.reason.to_string(),
            timestamp: rfc3339_ms(unix_ms()),
        };
        self.directory.stepped(&self.handle.id, &step);
    }
}
