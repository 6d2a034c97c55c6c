//! The beginning and the end of a stay in a cluster: it is founded, joined, and forgotten.

use mgp_engine::policy::grants::{
    CausalContext, ClusterId, LogChange, LogPosition, MemberChange, Operation, OperationId, Signed,
};
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::time::unix_ms;
use serde_json::json;

use super::disk::{LogJournals, LogsOwner, OpenedLogs};
use super::state::ReplicationState;
use super::wire::verified;
use super::{AskedBy, FoundedCluster, JoinedCluster, RecoveryKey, events, in_none};

/// Entries that a node is given when it joins. The rest it asks for.
const JOIN_ENTRIES_MAX: usize = 65_536;

impl ReplicationState {
    /// Founds a cluster.
    pub(super) async fn found(
        &mut self,
        name: &NodeName,
        by: &AskedBy,
    ) -> Result<FoundedCluster, Refusal> {
        self.may_enter()?;
        let recovery = RecoveryKey::make();
        let operation = Operation {
            cluster: None,
            place: LogPosition {
                issuer: self.key.node(),
                sequence: 0,
            },
            previous: OperationId::START,
            author: by.principal.name().to_owned(),
            told_at_ms: unix_ms(),
            change: LogChange::Members(MemberChange::Found {
                key: self.key.public(),
                recovery: recovery.public(),
                name: name.to_string(),
            }),
            context: CausalContext::default(),
        };
        let founding = Signed::new(operation, &self.key);
        let cluster = ClusterId(founding.written().id().0);
        let owner = LogsOwner {
            cluster,
            inviter: None,
        };
        self.enter(owner, vec![founding], by, "found").await?;
        Ok(FoundedCluster { cluster, recovery })
    }

    /// Takes part in a cluster that a node of it invited this one to.
    pub(super) async fn join(
        &mut self,
        joined: JoinedCluster,
        by: &AskedBy,
    ) -> Result<(), Refusal> {
        self.may_enter()?;
        if joined.entries.len() > JOIN_ENTRIES_MAX {
            return Err(Refusal::BadParams("there are too many entries".into()));
        }
        let mut signed = Vec::with_capacity(joined.entries.len());
        for part in joined
            .entries
            .chunks(mgp_engine::replication::exchange::BATCH_ENTRIES)
        {
            signed.extend(verified(part.iter()));
        }
        let founds = |signed: &&Signed| signed.written().id().0 == joined.cluster.0;
        if signed.iter().find(founds).is_none() {
            let why = "what founded the cluster is not among the entries";
            return Err(Refusal::BadParams(why.into()));
        }
        let owner = LogsOwner {
            cluster: joined.cluster,
            inviter: Some(joined.inviter.0),
        };
        self.enter(owner, signed, by, "join").await
    }

    fn may_enter(&self) -> Result<(), Refusal> {
        if self.stay.is_some() {
            let why = "this node is in a cluster; `mgp nodes leave` takes it out";
            return Err(Refusal::BadParams(why.into()));
        }
        let checked = self.audit.check();
        checked.map_err(|error| Refusal::Broken(error.to_string()))
    }

    async fn enter(
        &mut self,
        owner: LogsOwner,
        signed: Vec<Signed>,
        by: &AskedBy,
        how: &str,
    ) -> Result<(), Refusal> {
        let broken = |why: String| Refusal::Broken(why);
        let details = json!({"cluster": owner.cluster.to_string(), "change": how});
        let begun =
            LogJournals::begin(self.folder.clone(), &owner, &signed, self.witness.clone()).await;
        let journals = begun.map_err(|error| broken(error.to_string()))?;
        let event = events::of_this_node(by, details);
        if let Err(error) = self.audit.decided(event).await {
            let _ = journals.end().await;
            return Err(broken(error.to_string()));
        }
        self.begin(OpenedLogs::begun(owner, journals, signed));
        Ok(())
    }

    /// Forgets the cluster, and all that its logs allow.
    pub(super) async fn forget(&mut self, by: &AskedBy) -> Result<(), Refusal> {
        let stay = self.stay.as_ref().ok_or_else(in_none)?;
        let details = json!({"cluster": stay.cluster.to_string(), "change": "leave"});
        let ended = stay.journals.end().await;
        ended.map_err(|error| Refusal::Broken(error.to_string()))?;
        self.stay = None;
        let in_force = self.access.set_foreign(None);
        self.show(true);
        let _ = in_force.await;
        let event = events::of_this_node(by, details);
        let told = self.audit.decided(event).await;
        told.map_err(|error| Refusal::Broken(error.to_string()))
    }
}
