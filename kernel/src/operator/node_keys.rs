//! `mgp/kernel/nodes/rekey` and `recover`: replaces the key of a node, or the admin of a cluster.

use std::io::ErrorKind;

use mgp_callers::request::{Outcome, Request};
use mgp_cluster::replication::{ClusterMemberView, ClusterRecovery, RecoveryKey};
use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::kernel::nodes::{Confirmations, Recover, Recovered, Rekey, Rekeyed};
use mgp_protocol::refusal::Refusal;

use super::nodes::membership::admin_names;
use super::nodes::request_author;
use super::{Operator, internal_error, json, read};
use crate::key_rotation::KeyRotation;

impl Operator {
    /// `mgp/kernel/nodes/rekey`.
    ///
    /// # Errors
    /// Unknown node, an invalid key; a node without the right or the ability to write now.
    pub(crate) async fn rekey_node(&self, request: &Request) -> Outcome {
        let rekey: Rekey = read(request)?;
        match (rekey.node, rekey.to) {
            (None, None) => self.rekey_local(request).await,
            (Some(node), Some(key)) => self.accept_peer_key(&node, &key, request).await,
            (Some(_), None) | (None, Some(_)) => Err(Refusal::BadParams(
                "a node and its new key belong together: `mgp nodes rekey` at that node shows the key, `mgp nodes rekey NODE --to KEY` here takes it".into(),
            )),
        }
    }

    async fn rekey_local(&self, request: &Request) -> Outcome {
        let renewed = KeyRotation::new(&self.data_dir);
        if let Some(key) = renewed.next_key().map_err(internal_error)? {
            // Repeated before the next start: the same key.
            let signed = self.is_member(key.node_id());
            return json(&self.rekey_outcome(key, signed, Confirmations::default()));
        }
        let key = renewed.propose().map_err(|e| {
            if e.kind() == ErrorKind::AlreadyExists {
                let words = "a new key is being made; if that was cut short, the next start of the kernel settles it: `mgp down`, `mgp up`";
                return Refusal::BadParams(words.into());
            }
            internal_error(e)
        })?;
        let replication = &self.cluster.replication;
        let here = self.cluster.local_node;
        // Nobody would receive it, and the other node may sign another key at the same sequence number.
        let signed = match (
            replication.view().cluster,
            self.duplicate_key_report().await?,
        ) {
            (Some(_), None) => Some(replication.rekey(here, key, request_author(request)).await),
            (Some(_), Some(why)) => Some(Err(Refusal::BadParams(why))),
            (None, _) => None,
        };
        // A failure may come after the write.
        if let Some(Err(why)) = &signed
            && self.is_last_admin()
            && !self.is_member(key.node_id())
        {
            renewed.discard_proposed().map_err(internal_error)?;
            return Err(Refusal::BadParams(format!(
                "this node is the only admin, and cannot sign its new key: {why}. Connect it to another node; or make another node an admin by the recovery key, `mgp cluster recover` there, and then this one's key can change"
            )));
        }
        renewed.confirm().map_err(internal_error)?;
        json(&self.rekey_outcome(key, matches!(signed, Some(Ok(_))), Confirmations::default()))
    }

    async fn accept_peer_key(&self, typed: &str, key: &str, request: &Request) -> Outcome {
        let node = self.find_peer(typed)?;
        let key = PublicKey::parse(&key.trim().to_ascii_lowercase()).ok_or_else(|| {
            let words = "a key has 64 hexadecimal digits; `mgp nodes rekey` at that node shows it";
            Refusal::BadParams(words.into())
        })?;
        if self.is_member(key.node_id()) {
            let words = "a node of the cluster has, or had, that key already";
            return Err(Refusal::BadParams(words.into()));
        }
        let by = request_author(request);
        let name = self.cluster.node_label(node);
        let rekeyed = self.cluster.replication.rekey(node, key, by).await?;
        let confirmed = self.wait_for_confirmations(&rekeyed).await?;
        let answer = self.rekey_outcome(key, true, confirmed);
        json(&Rekeyed {
            name,
            restart: false,
            ..answer
        })
    }

    fn rekey_outcome(&self, key: PublicKey, signed: bool, confirmed: Confirmations) -> Rekeyed {
        let node = key.node_id();
        Rekeyed {
            id: node.to_string(),
            words: node.words(),
            name: self.cluster.name().to_string(),
            key: key.to_string(),
            cluster: self
                .cluster
                .replication
                .view()
                .cluster
                .map(|id| id.to_string()),
            admins: self.admin_names(),
            signed,
            restart: true,
            confirmed,
        }
    }

    /// Admins that can accept this node's new key.
    fn admin_names(&self) -> Vec<String> {
        let view = self.cluster.replication.view();
        admin_names(&view, |node| self.cluster.node_label(node))
    }

    fn is_member(&self, node: NodeId) -> bool {
        self.cluster.replication.view().members.contains_key(&node)
    }

    /// Whether this is the cluster's only admin.
    fn is_last_admin(&self) -> bool {
        let view = self.cluster.replication.view();
        let admin = |(node, member): (&NodeId, &ClusterMemberView)| {
            *node != view.node && member.role == Some(MemberRole::Admin) && !member.status.is_out()
        };
        view.role == Some(MemberRole::Admin) && !view.members.iter().any(admin)
    }

    /// `mgp/kernel/nodes/recover`.
    ///
    /// # Errors
    /// An invalid key or that of another cluster; a node in no cluster, or one that was cut off.
    pub(crate) async fn recover_cluster(&self, request: &Request) -> Outcome {
        let recover: Recover = read(request)?;
        let Some(key) = RecoveryKey::parse(&recover.key) else {
            let words = "this is no recovery key: one begins with mgp-recovery-, and was shown when the cluster was founded";
            return Err(Refusal::BadParams(words.into()));
        };
        let view = self.cluster.replication.view();
        let here = view.members.get(&view.node);
        if here.is_some_and(|member| member.status.is_out()) {
            let words = "this node was cut off under its key: `mgp nodes rekey` gives it another one, with which the recovery key makes it an admin";
            return Err(Refusal::BadParams(words.into()));
        }
        let without = recover.without.iter().map(|typed| self.find_peer(typed));
        let without: Vec<NodeId> = without.collect::<Result<_, _>>()?;
        let names = without.iter().map(|node| self.cluster.node_label(*node));
        let names: Vec<String> = names.collect();
        let (name, by) = (self.cluster.name(), request_author(request));
        let replication = &self.cluster.replication;
        let recovery = ClusterRecovery {
            key,
            name,
            removed: without,
        };
        replication.recover(recovery, by).await?;
        self.cluster.update_pinned_peers().await;
        json(&Recovered {
            cluster: view.cluster.map(|id| id.to_string()).unwrap_or_default(),
            name: self.cluster.name().to_string(),
            without: names,
        })
    }
}
