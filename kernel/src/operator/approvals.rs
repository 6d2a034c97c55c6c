//! `mgp/approvals/*`, and what later drafts say for the same.

use std::collections::BTreeMap;

use mgp_actors::request::{Outcome, Request};
use mgp_actors::time::unix_ms;
use mgp_engine::calendar::parse_rfc3339;
use mgp_protocol::mgp::approvals::{Approve, Deny, Pending};
use mgp_protocol::mgp::permission::{Given, Grant, PermissionType, Revoke, Revoked, Verdict};
use mgp_protocol::refusal::Refusal;
use serde_json::json;

use super::{Operator, read};

impl Operator {
    /// `mgp/approvals/list`.
    ///
    /// # Errors
    /// None at present; the type is that of every answer.
    pub fn pending(&self) -> Outcome {
        super::json(&Pending {
            pending: self.approvals.list(),
        })
    }

    /// `mgp/approvals/approve`: answered when the decision is on disk.
    ///
    /// # Errors
    /// Nothing waits under that name, or nothing came of the decision.
    pub async fn approve(&self, request: &Request) -> Outcome {
        let approve: Approve = read(request)?;
        let until_ms = approve.for_ms.map(|ms| unix_ms().saturating_add(ms));
        let Approve { id, only, .. } = approve;
        let by = who(request);
        super::json(&self.approvals.approve(&id, &only, until_ms, &by).await?)
    }

    /// `mgp/approvals/deny`: answered when the decision is on disk.
    ///
    /// # Errors
    /// Nothing waits under that name, or nothing came of the decision.
    pub async fn deny(&self, request: &Request) -> Outcome {
        let Deny { id, only, later } = read(request)?;
        let by = who(request);
        super::json(&self.approvals.deny(&id, &only, later, &by).await?)
    }

    /// `mgp/permission/grant` of later drafts: each permission of a question with its own answer.
    /// Who decided is who is connected, whatever the body says.
    ///
    /// # Errors
    /// Nothing waits under that name, or nothing came of the decision.
    pub async fn grant_permissions(&self, request: &Request) -> Outcome {
        let Grant(decision) = read(request)?;
        let end = decision.expires_at.as_deref();
        let until_ms = end.map(|end| {
            parse_rfc3339(end).ok_or_else(|| {
                Refusal::BadParams(format!("`expires_at` is no moment of RFC 3339: {end:?}"))
            })
        });
        let until_ms = until_ms.transpose()?;
        let mut parts: BTreeMap<Verdict, Vec<String>> = BTreeMap::new();
        for (permission, given) in &decision.grants {
            let of_it = parts.entry(Given::verdict(given)).or_default();
            of_it.push(permission.clone());
        }
        if parts.is_empty() {
            return Err(Refusal::BadParams("`grants` names no permission".into()));
        }
        let (id, by) = (&decision.request_id, who(request));
        for (verdict, only) in parts {
            let decided = match verdict {
                Verdict::Approved => self.approvals.approve(id, &only, until_ms, &by).await,
                Verdict::Deferred => self.approvals.deny(id, &only, true, &by).await,
                Verdict::Denied => self.approvals.deny(id, &only, false, &by).await,
            };
            decided?;
        }
        super::json(&json!({
            "request_id": id, "grants": decision.grants, "approved_by": by,
            "expires_at": decision.expires_at
        }))
    }

    /// `mgp/permission/revoke`: answered when it is on disk and in force.
    ///
    /// # Errors
    /// Unknown server, or it could not be written down.
    pub async fn revoke_permission(&self, request: &Request) -> Outcome {
        let Revoke { server, permission } = read(request)?;
        let id = self.find(&server)?.id.clone();
        let (mut had, mut permissions, by) = (false, Vec::new(), who(request));
        for permission in PermissionType::read(&permission) {
            let revoked = self.permissions.revoke(&id, &permission, &by);
            had |= revoked.await?;
            permissions.push(permission.to_string());
        }
        super::json(&Revoked {
            server,
            permissions,
            had,
        })
    }
}

/// Who decides, as the door knows it.
fn who(request: &Request) -> String {
    request.caller.agent.to_string()
}
