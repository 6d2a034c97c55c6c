//! Admission and departure of nodes: records the decisions of pairing, and the departures of peers.

use std::sync::Arc;
use std::time::Duration;

use mgp_cluster::pairing::{AdmissionRequest, NodeAdmission, PairingEvent};
use mgp_cluster::replication::JoinedCluster;
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::control::{Control, Leaving};
use mgp_protocol::federation::hello::ReportedRole;
use mgp_protocol::federation::logs::LogHash;
use mgp_protocol::ids::NodeId;
use mgp_runtime::task;
use mgp_transports::quic::{LinkGone, StreamFailure};
use tokio::task::JoinSet;

use super::{Cluster, kernel_principal};

/// Limit for waiting until an admin has recorded this node's departure.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

impl Cluster {
    /// Handles events of pairing.
    pub(super) fn on_pairing_event(self: &Arc<Self>, event: PairingEvent) {
        let cluster = self.clone();
        match event {
            PairingEvent::ApprovalRequested(waiting) => {
                let (name, words) = (&waiting.node.name, &waiting.node.words);
                tracing::info!(%name, words, "a node asks to join: run `mgp approve` if it shows these words");
            }
            PairingEvent::Admit(node, reply) => task::spawn_detached("cluster.admit", async move {
                reply.send(cluster.admit_node(node).await);
            }),
            PairingEvent::Joined(admission, reply) => {
                task::spawn_detached("cluster.join", async move {
                    reply.send(cluster.enter_cluster(admission).await);
                })
            }
        }
    }

    /// Whether another node of the cluster has this name.
    fn is_name_taken(&self, name: &str, but: NodeId) -> bool {
        let view = self.replication.view();
        view.members
            .iter()
            .any(|(node, member)| *node != but && member.name == name && !member.status.is_out())
    }

    /// Resolves when the admission is on disk and links of the node are accepted.
    async fn admit_node(&self, request: AdmissionRequest) -> Result<NodeAdmission, String> {
        if self.is_name_taken(request.name.as_str(), request.node) {
            let name = &request.name;
            return Err(format!(
                "another node of the cluster is called {name}: `mgp nodes join --name OTHER` gives it another name"
            ));
        }
        let role = to_member_role(request.role);
        let admitted =
            self.replication
                .admit(request.key, role, request.name.clone(), kernel_principal());
        admitted.await.map_err(|why| why.to_string())?;
        let invitation = self.replication.create_invitation(self.key).await;
        let invitation = invitation.map_err(|why| why.to_string())?;
        self.update_pinned_peers().await;
        Ok(NodeAdmission {
            cluster: invitation.cluster,
            entries: invitation.entries,
            name: request.name,
            role: request.role,
            inviter: invitation.inviter,
        })
    }

    /// Resolves when the membership is on disk and links to the cluster are dialed.
    async fn enter_cluster(&self, admission: NodeAdmission) -> Result<(), String> {
        let joined = JoinedCluster {
            cluster: admission.cluster,
            inviter: admission.inviter,
            entries: admission.entries,
        };
        let joined = self.replication.join(joined, kernel_principal()).await;
        joined.map_err(|why| why.to_string())?;
        self.update_pinned_peers().await;
        Ok(())
    }
}

impl Cluster {
    /// Tells the linked admins that this node leaves. True when one has recorded it, and therefore ends the link.
    pub(crate) async fn announce_leave(&self) -> bool {
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
                && self.links.send(*node, leaving.clone()).is_ok()
            {
                ends.spawn(async move { link.link.wait_closed().await });
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
        tokio::time::timeout(LEAVE_TIMEOUT, noted)
            .await
            .unwrap_or(false)
    }

    /// Records the departure of a node, on an admin.
    pub(super) fn on_peer_leaving(self: &Arc<Self>, node: NodeId, leaving: Leaving) {
        let view = self.replication.view();
        let here = view.cluster.map(|cluster| LogHash(cluster.0));
        if here != Some(leaving.cluster) || view.role != Some(MemberRole::Admin) {
            return;
        }
        let cluster = self.clone();
        task::spawn_detached("cluster.leaves", async move {
            if let Err(why) = cluster.replication.record_leave_of(node).await {
                let name = cluster.node_label(node);
                tracing::warn!(%name, %why, "the departure of a node could not be recorded");
            }
        });
    }
}

fn to_member_role(role: ReportedRole) -> MemberRole {
    match role {
        ReportedRole::Admin => MemberRole::Admin,
        ReportedRole::Member => MemberRole::Member,
        // A role unknown to this version counts as the least.
        ReportedRole::Leaf | ReportedRole::Unknown => MemberRole::Leaf,
    }
}
