//! What pairing wants written down: who is let in here, and what this node was let into.

use std::sync::Arc;

use mgp_cluster::pairing::{AdmitNode, NodeAdmission, PairingEvent};
use mgp_cluster::replication::{JoinedCluster, MemberStanding};
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::federation::hello::NodeRole;
use mgp_protocol::ids::NodeId;
use mgp_runtime::task;

use super::{Cluster, by_kernel};

impl Cluster {
    /// What happens while nodes come in.
    pub(super) fn of_pairing(self: &Arc<Self>, event: PairingEvent) {
        let cluster = self.clone();
        match event {
            PairingEvent::Asked(waiting) => {
                let (name, words) = (&waiting.who.name, &waiting.who.words);
                tracing::info!(%name, words, "a node asks to be let in: `mgp node approve`, if it shows these words");
            }
            PairingEvent::Admit(node, reply) => task::detached("cluster.admit", async move {
                reply.send(cluster.admit(node).await);
            }),
            PairingEvent::Joined(admission, reply) => task::detached("cluster.join", async move {
                reply.send(cluster.enter(admission).await);
            }),
        }
    }

    /// Whether another node of the cluster is called so.
    fn is_called(&self, name: &str, but: NodeId) -> bool {
        let view = self.replication.view();
        view.members.iter().any(|(node, member)| {
            *node != but && member.name == name && member.standing != MemberStanding::Cut
        })
    }

    /// On disk, and its links are let in, when this resolves.
    async fn admit(&self, asks: AdmitNode) -> Result<NodeAdmission, String> {
        if self.is_called(asks.name.as_str(), asks.node) {
            let name = &asks.name;
            return Err(format!(
                "another node of the cluster is called {name}: `mgp node join --name OTHER` gives it another name"
            ));
        }
        let role = written(asks.role);
        let admitted = self
            .replication
            .admit(asks.key, role, asks.name.clone(), by_kernel());
        admitted.await.map_err(|why| why.to_string())?;
        let given = self.replication.invitation(self.key).await;
        let given = given.map_err(|why| why.to_string())?;
        self.pin().await;
        Ok(NodeAdmission {
            cluster: given.cluster,
            entries: given.entries,
            name: asks.name,
            role: asks.role,
            inviter: given.inviter,
        })
    }

    /// On disk, and links to the cluster are made, when this resolves.
    async fn enter(&self, admission: NodeAdmission) -> Result<(), String> {
        let joined = JoinedCluster {
            cluster: admission.cluster,
            inviter: admission.inviter,
            entries: admission.entries,
        };
        let joined = self.replication.join(joined, by_kernel()).await;
        joined.map_err(|why| why.to_string())?;
        self.pin().await;
        Ok(())
    }
}

fn written(role: NodeRole) -> MemberRole {
    match role {
        NodeRole::Admin => MemberRole::Admin,
        NodeRole::Member => MemberRole::Member,
        // Of a role that this version does not know, the least is certain.
        NodeRole::Leaf | NodeRole::Unknown => MemberRole::Leaf,
    }
}
