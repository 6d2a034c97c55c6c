//! Stores decisions as grants, on disk before they are confirmed.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::policy::access::{ChangeRequest, Principal};
use mgp_engine::policy::grants::GrantChange;
use mgp_engine::policy::permissions::RecordedDecision;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::permission::{PermissionType, Verdict};
use mgp_protocol::refusal::Refusal;

use crate::access::AccessHandle;
use crate::approvals::Decider;

#[derive(Debug)]
pub(super) struct DecisionStore(pub(super) AccessHandle);

impl DecisionStore {
    /// The earlier decisions about a server.
    pub(super) async fn load(
        &self,
        server: &ServerId,
    ) -> Result<BTreeMap<PermissionType, RecordedDecision>, Refusal> {
        self.0.permission_decisions(server.clone()).await
    }

    /// Records a decision, in the audit log too. A deferred one changes nothing.
    pub(super) async fn record(
        &self,
        server: &ServerId,
        permission: &PermissionType,
        verdict: Verdict,
        until_ms: Option<u64>,
        decider: &Decider,
    ) -> Result<Vec<GrantChange>, Refusal> {
        let by = Principal::Operator(Arc::from(decider.name.as_str()));
        let change = ChangeRequest::SetPermission {
            server: server.clone(),
            permission: permission.clone(),
            verdict,
            until_ms,
        };
        self.0.record(by, decider.trace.clone(), change).await
    }
}
