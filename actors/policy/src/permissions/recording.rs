//! Reports decisions to the audit log and to the servers.

use mgp_engine::policy::permissions::PermissionEffect;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::audit::{EventType, Outcome, Target, TraceId};
use mgp_protocol::mgp::permission::Ask;
use mgp_runtime::randomness;
use serde_json::json;

use super::{GateMessage, SharedGates};
use mgp_store::audit;

impl SharedGates {
    /// Records the effects of a gate, except decisions of a person, which are already recorded.
    pub(super) fn record_effects(
        &self,
        server: &ServerId,
        effects: Vec<PermissionEffect>,
        trace: Option<&TraceId>,
    ) {
        for effect in effects {
            let (event_type, permission, by, until_ms, result) = match effect {
                // Pending entries are in the operator's list.
                PermissionEffect::Request(_) | PermissionEffect::Withdraw(_) => continue,
                PermissionEffect::Granted { decided_by: by, .. }
                | PermissionEffect::Denied { decided_by: by, .. }
                    if is_person(&by) =>
                {
                    continue;
                }
                PermissionEffect::Granted {
                    permission,
                    decided_by: by,
                    expires_ms: until_ms,
                } => {
                    let granted = EventType::PermissionGranted;
                    (granted, permission, Some(by), until_ms, Outcome::Success)
                }
                PermissionEffect::Denied {
                    permission,
                    decided_by: by,
                } => {
                    let denied = EventType::PermissionDenied;
                    (denied, permission, Some(by), None, Outcome::Denied)
                }
                PermissionEffect::Revoked {
                    permission,
                    decided_by: by,
                } => {
                    let revoked = EventType::PermissionRevoked;
                    (revoked, permission, by, None, Outcome::Success)
                }
            };
            let actor = match &by {
                Some(by) if is_person(by) => audit::operator_actor(),
                Some(_) | None => audit::kernel_actor(),
            };
            let target = Target {
                server_id: Some(server.to_string()),
                ..Target::default()
            };
            let details = json!({
                "permission_type": permission.as_str(), "risk_level": permission.risk().as_str(),
                "decided_by": by.as_deref().unwrap_or("expiry"),
                "expires_at": until_ms.map(render_rfc3339_ms)
            });
            tracing::info!(%server, %permission, by = by.as_deref(), "{}", event_type.as_str());
            let trace = trace.map_or_else(
                || TraceId::from_random(randomness::random_bytes()),
                TraceId::clone,
            );
            let event = audit::new_event(event_type, actor, target, &trace, result, details);
            self.audit.record(event);
        }
    }

    /// Notifies a server that the operator was asked (§3.5). The server's response has no effect.
    pub(super) async fn notify_awaiting(&self, server: &ServerId, ask: Ask) {
        self.notify_server(server, GateMessage::AwaitingOperator(ask))
            .await;
    }

    /// Notifies a server which of these permissions it has, in its own spelling (§3.6).
    pub(super) async fn notify_decided(&self, server: &ServerId, request: &str, words: &[String]) {
        let gate = self.published.load().get(server).cloned();
        if let Some(gate) = gate {
            let decision = gate.to_decision(request, words);
            self.notify_server(server, GateMessage::Decided(decision))
                .await;
        }
    }

    async fn notify_server(&self, server: &ServerId, message: GateMessage) {
        let listener = self
            .lock_gates()
            .get(server)
            .and_then(|open_gate| open_gate.listener.clone());
        if let Some(listener) = listener {
            listener.notify(message).await;
        }
    }
}

/// Whether a person decided, not a rule.
fn is_person(by: &str) -> bool {
    by != "policy" && by != "configuration"
}
