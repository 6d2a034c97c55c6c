//! The membership of this node in a cluster: founds, joins and forgets it.

use mgp_engine::policy::grants::{
    CausalContext, ClusterId, LogChange, LogPosition, MemberChange, Operation, OperationId,
    SignedOperation,
};
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::time::unix_ms;
use serde_json::json;

use super::disk::{LogJournals, LogsIdentity, OpenedLogs};
use super::state::ReplicationState;
use super::wire::verify_entries;
use super::{FoundedCluster, JoinedCluster, RecoveryKey, RequestedBy, events, not_in_cluster};

/// The most entries sent to a joining node. It requests the rest.
const JOIN_ENTRIES_MAX: usize = 65_536;

impl ReplicationState {
    /// Founds a cluster.
    pub(super) async fn found_cluster(
        &mut self,
        name: &NodeName,
        by: &RequestedBy,
    ) -> Result<FoundedCluster, Refusal> {
        self.check_may_join()?;
        let recovery = RecoveryKey::generate();
        let operation = Operation {
            cluster: None,
            place: LogPosition {
                issuer: self.key.node_id(),
                sequence: 0,
            },
            previous: OperationId::START,
            author: by.principal.name().to_owned(),
            told_at_ms: unix_ms(),
            change: LogChange::Members(MemberChange::Found {
                key: self.key.public_key(),
                recovery: recovery.public(),
                name: name.to_string(),
            }),
            context: CausalContext::default(),
        };
        let founding = SignedOperation::new(operation, &self.key);
        let cluster = ClusterId(founding.encoded().id().0);
        let owner = LogsIdentity {
            cluster,
            inviter: None,
        };
        self.begin_membership(owner, vec![founding], by, "found")
            .await?;
        Ok(FoundedCluster { cluster, recovery })
    }

    /// Joins a cluster that a member invited this node to.
    pub(super) async fn join(
        &mut self,
        joined: JoinedCluster,
        by: &RequestedBy,
    ) -> Result<(), Refusal> {
        self.check_may_join()?;
        if joined.entries.len() > JOIN_ENTRIES_MAX {
            return Err(Refusal::BadParams("there are too many entries".into()));
        }
        let mut signed = Vec::with_capacity(joined.entries.len());
        for part in joined
            .entries
            .chunks(mgp_engine::replication::log_batch::BATCH_ENTRIES)
        {
            signed.extend(verify_entries(part.iter()));
        }
        let founds = |signed: &&SignedOperation| signed.encoded().id().0 == joined.cluster.0;
        if signed.iter().find(founds).is_none() {
            let why = "the founding entry of the cluster is missing";
            return Err(Refusal::BadParams(why.into()));
        }
        let owner = LogsIdentity {
            cluster: joined.cluster,
            inviter: Some(joined.inviter.0),
        };
        self.begin_membership(owner, signed, by, "join").await
    }

    fn check_may_join(&self) -> Result<(), Refusal> {
        if self.session.is_some() {
            let why = "this node is in a cluster; `mgp nodes leave` takes it out";
            return Err(Refusal::BadParams(why.into()));
        }
        let checked = self.audit.check();
        checked.map_err(|error| Refusal::Internal(error.to_string()))
    }

    async fn begin_membership(
        &mut self,
        owner: LogsIdentity,
        signed: Vec<SignedOperation>,
        by: &RequestedBy,
        how: &str,
    ) -> Result<(), Refusal> {
        let broken = |why: String| Refusal::Internal(why);
        let details = json!({"cluster": owner.cluster.to_string(), "change": how});
        let begun =
            LogJournals::create(self.folder.clone(), &owner, &signed, self.witness.clone()).await;
        let journals = begun.map_err(|error| broken(error.to_string()))?;
        let event = events::membership_event(by, details);
        if let Err(error) = self.audit.record_decision(event).await {
            let _ = journals.forget_all().await;
            return Err(broken(error.to_string()));
        }
        self.begin_session(OpenedLogs::new(owner, journals, signed));
        Ok(())
    }

    /// Forgets the cluster, and all grants of its logs.
    pub(super) async fn forget(&mut self, by: &RequestedBy) -> Result<(), Refusal> {
        let session = self.session.as_ref().ok_or_else(not_in_cluster)?;
        let details = json!({"cluster": session.cluster.to_string(), "change": "leave"});
        let ended = session.journals.forget_all().await;
        ended.map_err(|error| Refusal::Internal(error.to_string()))?;
        self.session = None;
        let in_force = self.access.set_foreign_rules(None);
        self.publish_view(true);
        let _ = in_force.await;
        let event = events::membership_event(by, details);
        let recorded = self.audit.record_decision(event).await;
        recorded.map_err(|error| Refusal::Internal(error.to_string()))
    }
}
