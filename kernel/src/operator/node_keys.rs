//! `mgp/kernel/nodes/rekey` and `recover`: a node gets another key, and a cluster another admin.

use std::io::ErrorKind;

use mgp_callers::request::{Outcome, Request};
use mgp_cluster::replication::{ClusterMemberView, ClusterRecovery, RecoveryKey};
use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::kernel::nodes::{Confirmations, Recover, Recovered, Rekey, Rekeyed};
use mgp_protocol::refusal::Refusal;

use super::nodes::asked_by;
use super::nodes::membership::admins;
use super::{Operator, broken, json, read};
use crate::renewed_key::RenewedKey;

impl Operator {
    /// `mgp/kernel/nodes/rekey`.
    ///
    /// # Errors
    /// Unknown node, a key that is none; a node that may not, or cannot write now.
    pub async fn rekey_node(&self, request: &Request) -> Outcome {
        let rekey: Rekey = read(request)?;
        match (rekey.node, rekey.to) {
            (None, None) => self.rekey_here(request).await,
            (Some(node), Some(key)) => self.rekey_other(&node, &key, request).await,
            (Some(_), None) | (None, Some(_)) => Err(Refusal::BadParams(
                "a node and its new key belong together: `mgp nodes rekey` at that node shows the key, `mgp nodes rekey NODE --to KEY` here takes it".into(),
            )),
        }
    }

    async fn rekey_here(&self, request: &Request) -> Outcome {
        let renewed = RenewedKey::of(&self.data_dir);
        if let Some(key) = renewed.next().map_err(broken)? {
            // Asked again before the next start: the same key.
            let signed = self.is_member(key.node());
            return json(&self.rekeyed(key, signed, Confirmations::default()));
        }
        let key = renewed.propose().map_err(|e| {
            if e.kind() == ErrorKind::AlreadyExists {
                let words = "a new key is being made; if that was cut short, the next start of the kernel settles it: `mgp down`, `mgp up`";
                return Refusal::BadParams(words.into());
            }
            broken(e)
        })?;
        let replication = &self.cluster.replication;
        let here = self.cluster.here;
        // Nobody would hear it, and the other one of the two may sign another key at the same place.
        let signed = match (replication.view().cluster, self.kept_out().await?) {
            (Some(_), None) => Some(replication.rekey(here, key, asked_by(request)).await),
            (Some(_), Some(why)) => Some(Err(Refusal::BadParams(why))),
            (None, _) => None,
        };
        // A failure may come after it was written.
        if let Some(Err(why)) = &signed
            && self.is_last_admin()
            && !self.is_member(key.node())
        {
            renewed.withdraw().map_err(broken)?;
            return Err(Refusal::BadParams(format!(
                "this node is the only admin, and cannot sign its new key: {why}. Connect it to another node; or make another node an admin by the recovery key, `mgp cluster recover` there, and then this one's key can change"
            )));
        }
        renewed.decide().map_err(broken)?;
        json(&self.rekeyed(key, matches!(signed, Some(Ok(_))), Confirmations::default()))
    }

    async fn rekey_other(&self, typed: &str, key: &str, request: &Request) -> Outcome {
        let node = self.other_node(typed)?;
        let key = PublicKey::parse(&key.trim().to_ascii_lowercase()).ok_or_else(|| {
            let words = "a key has 64 hexadecimal digits; `mgp nodes rekey` at that node shows it";
            Refusal::BadParams(words.into())
        })?;
        if self.is_member(key.node()) {
            let words = "a node of the cluster has, or had, that key already";
            return Err(Refusal::BadParams(words.into()));
        }
        let by = asked_by(request);
        let name = self.cluster.name_of(node);
        let rekeyed = self.cluster.replication.rekey(node, key, by).await?;
        let confirmed = self.confirmed(&rekeyed).await?;
        let answer = self.rekeyed(key, true, confirmed);
        json(&Rekeyed {
            name,
            restart: false,
            ..answer
        })
    }

    fn rekeyed(&self, key: PublicKey, signed: bool, confirmed: Confirmations) -> Rekeyed {
        let node = key.node();
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
            admins: self.admins(),
            signed,
            restart: true,
            confirmed,
        }
    }

    /// Where an admin can take this node's new key.
    fn admins(&self) -> Vec<String> {
        let view = self.cluster.replication.view();
        admins(&view, |node| self.cluster.name_of(node))
    }

    fn is_member(&self, node: NodeId) -> bool {
        self.cluster.replication.view().members.contains_key(&node)
    }

    /// Whether nobody else of the cluster is an admin.
    fn is_last_admin(&self) -> bool {
        let view = self.cluster.replication.view();
        let admin = |(node, member): (&NodeId, &ClusterMemberView)| {
            *node != view.here
                && member.role == Some(MemberRole::Admin)
                && !member.standing.is_out()
        };
        view.role == Some(MemberRole::Admin) && !view.members.iter().any(admin)
    }

    /// `mgp/kernel/nodes/recover`.
    ///
    /// # Errors
    /// A key that is none, or of another cluster; a node that is in none, or was cut off.
    pub async fn recover_cluster(&self, request: &Request) -> Outcome {
        let recover: Recover = read(request)?;
        let Some(key) = RecoveryKey::parse(&recover.key) else {
            let words = "this is no recovery key: one begins with mgp-recovery-, and was shown when the cluster was founded";
            return Err(Refusal::BadParams(words.into()));
        };
        let view = self.cluster.replication.view();
        let here = view.members.get(&view.here);
        if here.is_some_and(|member| member.standing.is_out()) {
            let words = "this node was cut off under its key: `mgp nodes rekey` gives it another one, with which the recovery key makes it an admin";
            return Err(Refusal::BadParams(words.into()));
        }
        let without = recover.without.iter().map(|typed| self.other_node(typed));
        let without: Vec<NodeId> = without.collect::<Result<_, _>>()?;
        let names = without.iter().map(|node| self.cluster.name_of(*node));
        let names: Vec<String> = names.collect();
        let (name, by) = (self.cluster.name(), asked_by(request));
        let replication = &self.cluster.replication;
        let recovery = ClusterRecovery { key, name, without };
        replication.recover(recovery, by).await?;
        self.cluster.pin().await;
        json(&Recovered {
            cluster: view.cluster.map(|id| id.to_string()).unwrap_or_default(),
            name: self.cluster.name().to_string(),
            without: names,
        })
    }
}
