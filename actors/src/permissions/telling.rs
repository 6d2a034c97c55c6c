//! Who hears of decisions: the audit log, and servers that negotiated `security`.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::policy::permissions::PermissionEffect;
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::audit::{EventType, Outcome, Target, TraceId};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::permission::{Ask, Await, Grant, Request, Response};
use serde_json::json;

use super::Shared;
use crate::audit;
use crate::link::Link;
use crate::randomness;

/// How long a server may take to say that it has heard; then it has its gate without a word.
const HEARING: Duration = Duration::from_secs(5);

impl Shared {
    /// Effects of a gate, in the audit log. What a person gives or denies is there already, written
    /// with the decision itself.
    pub(super) fn told(
        &self,
        server: &ServerId,
        effects: Vec<PermissionEffect>,
        trace: Option<&TraceId>,
    ) {
        for effect in effects {
            let (event_type, permission, by, until_ms, result) = match effect {
                // What waits is in the operator's list.
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

    fn link(&self, server: &ServerId) -> Option<Arc<Link>> {
        let posts = self.posts();
        let link = posts.get(server)?.link.upgrade()?;
        drop(posts);
        let speaks = link.mgp().features().contains(Features::PERMISSIONS);
        speaks.then_some(link)
    }

    /// Tells a server that the operator is asked (§3.5). What it answers decides nothing; one that
    /// does not know the word has its gate without.
    pub(super) async fn ask_server(&self, server: &ServerId, ask: Ask) {
        let Some(link) = self.link(server) else {
            return;
        };
        let method = match later(&link) {
            true => Await::METHOD,
            false => Request::METHOD,
        };
        say(&link, method, &ask).await;
    }

    /// Tells a server what it has now of these, in its own spelling (§3.6).
    pub(super) async fn tell_server(&self, server: &ServerId, request: &str, words: &[String]) {
        let Some(link) = self.link(server) else {
            return;
        };
        let Some(gate) = self.shown.load().get(server).cloned() else {
            return;
        };
        let method = match later(&link) {
            true => Grant::METHOD,
            false => Response::METHOD,
        };
        say(&link, method, &gate.decision(request, words)).await;
    }
}

/// Whether somebody decided, and not a rule.
fn is_person(by: &str) -> bool {
    by != "policy" && by != "configuration"
}

fn later(link: &Link) -> bool {
    let mgp = link.mgp().active();
    mgp.is_some_and(mgp_protocol::mgp::negotiation::Active::awaits_permissions)
}

async fn say(link: &Arc<Link>, method: &str, params: &impl serde::Serialize) {
    let params = serde_json::to_string(params).expect("what is asked and decided is always JSON");
    let answer = link.ask(method, Some(&params));
    match tokio::time::timeout(HEARING, answer).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(server = %link.server, method, %error, "a silent gate"),
        Err(_) => tracing::debug!(server = %link.server, method, "no answer: a silent gate"),
    }
}
