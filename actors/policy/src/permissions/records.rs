//! Stores decisions as grants, on disk before anybody is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::policy::access::Principal;
use mgp_engine::policy::grants::GrantChange;
use mgp_engine::policy::permissions::{self, Recorded};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::permission::{PermissionType, Verdict};
use mgp_protocol::refusal::Refusal;

use crate::access::AccessHandle;
use crate::approvals::Decider;

/// The store of decisions.
#[derive(Debug)]
pub(super) struct Records(pub(super) AccessHandle);

impl Records {
    /// The earlier decisions about a server.
    pub(super) async fn of(
        &self,
        server: &ServerId,
    ) -> Result<BTreeMap<PermissionType, Recorded>, Refusal> {
        let server = server.clone();
        self.0
            .look(move |ledger| {
                permissions::recorded(ledger.grants, ledger.authority, &server, ledger.now_ms)
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
        let by = Principal::Operator(Arc::from(decider.by.as_str()));
        let trace = decider.trace.clone();
        let decided = self.0.record(by, trace, move |ledger| {
            let change = permissions::record(
                ledger.grants,
                ledger.authority,
                &server,
                &permission,
                verdict,
                until_ms,
                ledger.fresh,
            );
            Ok(change.into_iter().collect())
        });
        decided.await
    }
}
