//! Audit events when a server connects and disconnects (MGP §6.4).

use mgp_engine::policy::trust::TrustLevel;
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::restart::{RestartVerdict, ServerExit};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::mgp::Lifecycle;
use mgp_protocol::mgp::audit::{Event, EventType, Outcome, Target};
use serde_json::{Map, Value};

use super::{ServerActor, ServerEvent};
use crate::link::{Link, VERSION_LABEL, Wire};
use mgp_runtime::time::unix_ms;
use mgp_runtime::trace::Trace;
use mgp_store::audit::{kernel_actor, new_event};

impl ServerActor {
    /// Records that the server takes calls from now on.
    pub(super) fn audit_connected(&self, link: &Link) {
        let mut details = Map::new();
        let peers =
            [ProtocolFamily::Legacy, ProtocolFamily::Stateless].map(|family| link.peer_for(family));
        let versions = peers
            .into_iter()
            .flatten()
            .map(|peer| peer.version.as_str());
        let versions = match link.wire() {
            Wire::Lite(_) => [VERSION_LABEL].into_iter().collect(),
            Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Node(_) => versions.collect(),
        };
        details.insert("protocol_versions".into(), versions);
        let mgp = link
            .mgp()
            .as_active()
            .map_or(&[][..], |active| active.extension_names());
        details.insert("mgp".into(), mgp.iter().copied().collect());
        self.audit
            .record(self.build_event(EventType::ServerConnected, Outcome::Success, details));
    }

    /// Records that the server has the lowest trust because it has no seal (MGP 0.6.3).
    pub(super) fn audit_unsealed(&self, configured: TrustLevel) {
        let mut details = Map::new();
        details.insert("declared_trust_level".into(), configured.as_str().into());
        let effective = self.handle.trust().as_str();
        details.insert("effective_trust_level".into(), effective.into());
        let kind = EventType::TrustLevelDowngradedNoSeal;
        self.audit
            .record(self.build_event(kind, Outcome::Success, details));
    }

    /// Records that the server takes no more calls: `how` it ended, and what follows.
    pub(super) fn audit_disconnected(
        &self,
        exit: &ServerExit,
        how: &str,
        verdict: Option<&RestartVerdict>,
    ) {
        let mut details = Map::new();
        let parked = matches!(verdict, Some(RestartVerdict::Park { .. }));
        if parked {
            details.insert("reason".into(), "restart_limit_exceeded".into());
            details.insert("restart_limit_exceeded".into(), true.into());
            details.insert("last_end".into(), how.into());
        } else {
            details.insert("reason".into(), how.into());
        }
        if let Some(RestartVerdict::Restart { after, .. }) = verdict {
            let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            details.insert("restart_after_ms".into(), after.into());
        }
        let result = match exit {
            ServerExit::Clean | ServerExit::SessionEnded(_) => Outcome::Success,
            ServerExit::Failed(_) | ServerExit::Rejected(_) => Outcome::Failure,
        };
        let event = self.build_event(EventType::ServerDisconnected, result, details);
        self.audit.record(event);
    }

    /// Records that a replacement generation failed, in the audit log and as an event.
    pub(super) fn audit_replacement_failure(&self, why: &str) {
        let mut details = Map::new();
        details.insert("reason".into(), why.into());
        let kind = EventType::SERVER_NOT_REPLACED;
        self.audit
            .record(self.build_event(kind, Outcome::Failure, details));
        let stays = LifecycleState::Connected.to_string();
        self.events.send(ServerEvent::StateChanged(Lifecycle {
            server_id: self.handle.id.to_string(),
            previous_state: stays.clone(),
            new_state: stays,
            reason: format!("it was not replaced and goes on as before: {why}"),
            timestamp: render_rfc3339_ms(unix_ms()),
        }));
    }

    fn build_event(
        &self,
        kind: EventType,
        result: Outcome,
        mut details: Map<String, Value>,
    ) -> Event {
        if let Some(agent) = self.handle.agent() {
            details.insert("instance_of".into(), agent.as_str().into());
        }
        let target = Target {
            server_id: Some(self.handle.id.to_string()),
            ..Target::default()
        };
        let trace = Trace::generate().id;
        new_event(kind, kernel_actor(), target, &trace, result, details.into())
    }
}
