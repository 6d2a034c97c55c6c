//! Stores decisions as grants, on disk before anybody is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::policy::access::Principal;
use mgp_engine::policy::grants::GrantChange;
use mgp_engine::policy::permissions::{self, RecordedDecision};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::permission::{PermissionType, Verdict};
use mgp_protocol::refusal::Refusal;

use crate::access::AccessHandle;
use crate::approvals::Decider;

/// The store of decisions.
#[derive(Debug)]
pub(super) struct DecisionStore(pub(super) AccessHandle);

impl DecisionStore {
    /// The earlier decisions about a server.
    pub(super) async fn load(
        &self,
        server: &ServerId,
    ) -> Result<BTreeMap<PermissionType, RecordedDecision>, Refusal> {
        let server = server.clone();
        self.0
            .read(move |ledger| {
                permissions::decisions_in_force(
                    ledger.grants,
                    ledger.authority,
                    &server,
                    ledger.now_ms,
                )
            })
            .await
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
        let (server, permission) = (server.clone(), permission.clone());
        let by = Principal::Operator(Arc::from(decider.name.as_str()));
        let trace = decider.trace.clone();
        let decided = self.0.record(by, trace, move |ledger| {
            let change = permissions::to_grant_change(
                ledger.grants,
                ledger.authority,
                &server,
                &permission,
                verdict,
                until_ms,
                ledger.new_id,
            );
            Ok(change.into_iter().collect())
        });
        decided.await
    }
}
