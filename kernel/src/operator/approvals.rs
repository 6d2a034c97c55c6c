//! Decisions about pending entries: `mgp/approvals/*`, and their equivalents in later drafts.

mod pins;

use std::collections::{BTreeMap, BTreeSet};

use mgp_callers::request::{Outcome, Request};
use mgp_cluster::pairing::PendingNode as Waits;
use mgp_engine::doors::permission_names::parse;
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::sandbox::sandbox_permissions;
use mgp_engine::timestamps::parse_rfc3339;
use mgp_policy::Decider;
use mgp_protocol::mgp::approvals::{Answer, Approve, DecisionResult, Deny};
use mgp_protocol::mgp::kernel::nodes::Role;
use mgp_protocol::mgp::permission::{Grant, PermissionDecision, Revoke, Revoked, Verdict};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::time::unix_ms;
use mgp_servers::ServerMsg;
use serde_json::json;

use super::pairing::require_words;
use super::{Operator, read, send_to_server};

impl Operator {
    /// `mgp/approvals/approve`: answered when the decision is on disk.
    ///
    /// # Errors
    /// An unknown entry, or a decision without effect.
    pub(crate) async fn approve(&self, request: &Request) -> Outcome {
        let approve: Approve = read(request)?;
        let until_ms = approve.for_ms.map(|ms| unix_ms().saturating_add(ms));
        let Approve { id, only, .. } = approve;
        if let Some(node) = self.find_joining_node(&id, &only).await? {
            if node.node.words != id.trim().to_ascii_lowercase() {
                return Err(require_words(&node));
            }
            if until_ms.is_some() {
                let why = format!(
                    "{id} is a node that asks to join, for which no time can be set; approve it without --for"
                );
                return Err(Refusal::BadParams(why));
            }
            self.admit_node(&node).await?;
            return super::json(&decided(&node, Verdict::Approved));
        }
        let decider = decider(request);
        super::json(
            &self
                .approvals
                .approve(&id, &only, until_ms, &decider)
                .await?,
        )
    }

    /// `mgp/approvals/answer`: answered when the value was passed on.
    ///
    /// # Errors
    /// An unknown entry, or one that does not accept this value.
    pub(crate) async fn answer_pending(&self, request: &Request) -> Outcome {
        let Answer { id, value } = read(request)?;
        let decider = decider(request);
        super::json(&self.approvals.answer(&id, &value, &decider).await?)
    }

    /// `mgp/approvals/deny`: answered when the decision is on disk.
    ///
    /// # Errors
    /// An unknown entry, or a decision without effect.
    pub(crate) async fn deny(&self, request: &Request) -> Outcome {
        let Deny { id, only, later } = read(request)?;
        if let Some(node) = self.find_joining_node(&id, &only).await? {
            if later {
                // The entry stays pending.
                return super::json(&decided(&node, Verdict::Deferred));
            }
            self.reject_node(&node).await?;
            return super::json(&decided(&node, Verdict::Denied));
        }
        let decider = decider(request);
        super::json(&self.approvals.deny(&id, &only, later, &decider).await?)
    }

    /// `mgp/permission/grant` of later drafts: a decision for each permission of an entry.
    /// The decider is the connected caller, whatever the body says.
    ///
    /// # Errors
    /// An unknown entry, or a decision without effect.
    pub(crate) async fn grant_permissions(&self, request: &Request) -> Outcome {
        let Grant(decision) = read(request)?;
        let end = decision.expires_at.as_deref();
        let until_ms = end.map(|end| {
            parse_rfc3339(end).ok_or_else(|| {
                Refusal::BadParams(format!("`expires_at` is no moment of RFC 3339: {end:?}"))
            })
        });
        let until_ms = until_ms.transpose()?;
        let mut parts: BTreeMap<Verdict, Vec<String>> = BTreeMap::new();
        for (permission, answer) in &decision.grants {
            let permissions = parts
                .entry(PermissionDecision::verdict(answer))
                .or_default();
            permissions.push(permission.clone());
        }
        if parts.is_empty() {
            return Err(Refusal::BadParams("`grants` names no permission".into()));
        }
        let (id, decider) = (&decision.request_id, decider(request));
        for (verdict, only) in parts {
            let decided = match verdict {
                Verdict::Approved => self.approvals.approve(id, &only, until_ms, &decider).await,
                Verdict::Deferred => self.approvals.deny(id, &only, true, &decider).await,
                Verdict::Denied => self.approvals.deny(id, &only, false, &decider).await,
            };
            decided?;
        }
        super::json(&json!({
            "request_id": id, "grants": decision.grants, "approved_by": decider.name,
            "expires_at": decision.expires_at
        }))
    }

    /// `mgp/permission/revoke`: answered when stored and in force.
    ///
    /// # Errors
    /// Unknown server, or a failed write.
    pub(crate) async fn revoke_permission(&self, request: &Request) -> Outcome {
        let Revoke { server, permission } = read(request)?;
        let handle = self.find_server(&server)?;
        let (mut revoked, mut permissions, decider) =
            (BTreeSet::new(), Vec::new(), decider(request));
        let known = self.permissions.known_permissions(&handle.id).await?;
        let pattern = parse(&permission, &known)
            .map_err(|unknown| Refusal::BadParams(unknown.to_string()))?;
        for permission in pattern {
            let was_granted = self.permissions.revoke(&handle.id, &permission, &decider);
            permissions.push(permission.to_string());
            if was_granted.await? {
                revoked.insert(permission);
            }
        }
        let restarts = handle.sandbox().is_some()
            && handle.state() == LifecycleState::Connected
            && !sandbox_permissions(&revoked).is_empty();
        if restarts {
            // The sandbox of a running process cannot be narrowed.
            send_to_server(&handle, ServerMsg::Restart)?;
        }
        super::json(&Revoked {
            server,
            permissions,
            had: !revoked.is_empty(),
            restarts,
        })
    }
}

/// The decision about a node that asks to join.
fn decided(node: &Waits, verdict: Verdict) -> DecisionResult {
    let (name, role) = (&node.node.name, Role::from(node.role));
    DecisionResult {
        id: node.node.words.clone(),
        text: format!("{name} asks to join as {}", role.as_str()),
        verdict,
        parts: Vec::new(),
        value: None,
        until: None,
    }
}

fn decider(request: &Request) -> Decider {
    Decider {
        name: request.caller.agent.to_string(),
        trace: request.trace.id.clone(),
    }
}
