//! Reports decisions to the audit log and to the servers.

use mgp_engine::policy::permissions::PermissionEffect;
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::audit::{EventType, Outcome, Target, TraceId};
use mgp_protocol::mgp::permission::Ask;
use mgp_runtime::randomness;
use serde_json::json;

use super::{GateNews, SharedGates};
use mgp_store::audit;

impl SharedGates {
    /// Records the effects of a gate. A person's decision was recorded when it was made.
    pub(super) fn told(
        &self,
        server: &ServerId,
        effects: Vec<PermissionEffect>,
        trace: Option<&TraceId>,
    ) {
        for effect in effects {
            let (event_type, permission, by, until_ms, result) = match effect {
                // A question that waits is in the operator's list.
                PermissionEffect::Ask(_) | PermissionEffect::Withdraw(_) => continue,
                PermissionEffect::Granted { by, .. } | PermissionEffect::Denied { by, .. }
                    if is_person(&by) =>
                {
                    continue;
                }
                PermissionEffect::Granted {
                    permission,
                    by,
                    until_ms,
                } => {
                    let granted = EventType::PermissionGranted;
                    (granted, permission, Some(by), until_ms, Outcome::Success)
                }
                PermissionEffect::Denied { permission, by } => {
                    let denied = EventType::PermissionDenied;
                    (denied, permission, Some(by), None, Outcome::Denied)
                }
                PermissionEffect::Revoked { permission, by } => {
                    let revoked = EventType::PermissionRevoked;
                    (revoked, permission, by, None, Outcome::Success)
                }
            };
            let actor = match &by {
                Some(by) if is_person(by) => audit::by_operator(),
                Some(_) | None => audit::by_kernel(),
            };
            let target = Target {
                server_id: Some(server.to_string()),
                ..Target::default()
            };
            let details = json!({
                "permission_type": permission.as_str(), "risk_level": permission.risk().as_str(),
                "decided_by": by.as_deref().unwrap_or("expiry"),
                "expires_at": until_ms.map(rfc3339_ms)
            });
            tracing::info!(%server, %permission, by = by.as_deref(), "{}", event_type.as_str());
            let trace = trace.map_or_else(|| TraceId::mint(randomness::bytes()), TraceId::clone);
            let event = audit::event(event_type, actor, target, &trace, result, details);
            self.audit.tell(event);
        }
    }

    /// Tells a server that the operator is asked (§3.5). Its answer has no effect.
    pub(super) async fn ask_server(&self, server: &ServerId, ask: Ask) {
        self.tell(server, GateNews::Asked(ask)).await;
    }

    /// Tells a server which of these it has, in its own spelling (§3.6).
    pub(super) async fn tell_server(&self, server: &ServerId, request: &str, words: &[String]) {
        let gate = self.shown.load().get(server).cloned();
        if let Some(gate) = gate {
            let decision = gate.decision(request, words);
            self.tell(server, GateNews::Decided(decision)).await;
        }
    }

    async fn tell(&self, server: &ServerId, news: GateNews) {
        let told = self
            .posts()
            .get(server)
            .and_then(|post| post.server.clone());
        if let Some(told) = told {
            told.hears(news).await;
        }
    }
}

/// Whether a person decided, and not a rule.
fn is_person(by: &str) -> bool {
    by != "policy" && by != "configuration"
}
