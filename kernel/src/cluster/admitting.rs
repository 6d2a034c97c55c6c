//! Who comes in and who leaves: what pairing wants written down, and what a node says that leaves.

use std::sync::Arc;
use std::time::Duration;

use mgp_cluster::pairing::{AdmitNode, NodeAdmission, PairingEvent};
use mgp_cluster::replication::JoinedCluster;
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::federation::control::{Control, Leaving};
use mgp_protocol::federation::ends::LinkClose;
use mgp_protocol::federation::hello::ToldRole;
use mgp_protocol::federation::logs::LogHash;
use mgp_protocol::ids::NodeId;
use mgp_runtime::task;
use mgp_transports::quic::{LinkGone, StreamFailure};
use tokio::task::JoinSet;

use super::{Cluster, by_kernel};

/// Longest that a node that leaves waits until an admin has written that down.
const LEAVING: Duration = Duration::from_secs(2);

impl Cluster {
    /// What happens while nodes come in.
    pub(super) fn of_pairing(self: &Arc<Self>, event: PairingEvent) {
        let cluster = self.clone();
        match event {
            PairingEvent::Asked(waiting) => {
                let (name, words) = (&waiting.who.name, &waiting.who.words);
                tracing::info!(%name, words, "a node asks to be let in: `mgp approve`, if it shows these words");
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
        view.members
            .iter()
            .any(|(node, member)| *node != but && member.name == name && !member.standing.is_out())
    }

    /// On disk, and its links are let in, when this resolves.
    async fn admit(&self, asks: AdmitNode) -> Result<NodeAdmission, String> {
        if self.is_called(asks.name.as_str(), asks.node) {
            let name = &asks.name;
            return Err(format!(
                "another node of the cluster is called {name}: `mgp nodes join --name OTHER` gives it another name"
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

impl Cluster {
    /// Tells the admins in reach that this node leaves. True when one has written it down: it ends the link then.
    pub(crate) async fn take_leave(&self) -> bool {
        let view = self.replication.view();
        let Some(cluster) = view.cluster else {
            return false;
        };
        let leaving = Control::Leaving(Leaving {
            cluster: LogHash(cluster.0),
        });
        let mut ends = JoinSet::new();
        for (node, member) in view.members.iter() {
            let link = self.links.link(*node);
            if member.role == Some(MemberRole::Admin)
                && let Some(link) = link
                && self.links.tell(*node, leaving.clone()).is_ok()
            {
                ends.spawn(async move { link.link.ended().await });
            }
        }
        let noted = async {
            while let Some(ended) = ends.join_next().await {
                let revoked = LinkGone(StreamFailure::LinkClosed(LinkClose::Revoked));
                if ended.is_ok_and(|why| why == revoked) {
                    return true;
                }
            }
            false
        };
        tokio::time::timeout(LEAVING, noted).await.unwrap_or(false)
    }

    /// A node says that it leaves: an admin writes that down.
    pub(super) fn leaves(self: &Arc<Self>, node: NodeId, leaving: Leaving) {
        let view = self.replication.view();
        let here = view.cluster.map(|cluster| LogHash(cluster.0));
        if here != Some(leaving.cluster) || view.role != Some(MemberRole::Admin) {
            return;
        }
        let cluster = self.clone();
        task::detached("cluster.leaves", async move {
            if let Err(why) = cluster.replication.note_left(node).await {
                let name = cluster.name_of(node);
                tracing::warn!(%name, %why, "a node leaves, and this one cannot write that down");
            }
        });
    }
}

fn written(role: ToldRole) -> MemberRole {
    match role {
        ToldRole::Admin => MemberRole::Admin,
        ToldRole::Member => MemberRole::Member,
        // Of a role that this version does not know, the least is certain.
        ToldRole::Leaf | ToldRole::Unknown => MemberRole::Leaf,
    }
}
