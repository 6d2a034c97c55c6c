//! `mgp/kernel/nodes/*`: this node, and the nodes of its cluster.

mod maintenance;
pub(super) mod membership;
mod revoke_impact;

use std::collections::BTreeMap;

use mgp_callers::request::{Outcome, Request};
use mgp_calls::confirmations::wait_for_confirmations;
use mgp_cluster::IndexedNode;
use mgp_cluster::links::LinkStatus;
use mgp_cluster::pairing::canonical_address;
use mgp_cluster::replication::{
    ClusterMemberView, ClusterView, MemberStatus, ProposedChanges, RequestedBy,
};
use mgp_engine::clock::to_micros_rounded_up;
use mgp_engine::doors::suggestions::nearest_name;
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::ids::{NodeId, ServerId};
use mgp_protocol::mgp::kernel::nodes::{
    CONFLICTS_MAX, Cluster, Confirmations, GrantConflict, Identity, Leave, LeaveResult, Node,
    NodeStatus, RelayedNodes, Rename, Revoke, Revoked, Role, SharedServer,
};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::time::{boottime_now, unix_ms};

use self::membership::{LocalMembership, local_membership};
use super::{Operator, cluster_failures, json, read};

impl Operator {
    /// `mgp/kernel/nodes/id`.
    ///
    /// # Errors
    /// When the links do not answer.
    pub(crate) async fn identity(&self) -> Outcome {
        let (cluster, view) = (&self.cluster, self.cluster.replication.view());
        json(&Identity {
            id: cluster.local_node.to_string(),
            short: cluster.local_node.short_id(),
            words: cluster.local_node.words(),
            name: cluster.name().to_string(),
            cluster: view.cluster.map(|id| id.to_string()),
            role: view.role.map(to_protocol_role),
            listens: cluster.links.address().map(|at| at.to_string()),
            trouble: self.local_failure().await?,
        })
    }

    /// The nodes that saw another running kernel with this node's key; `None` if there are none.
    pub(super) async fn duplicate_key_report(&self) -> Result<Option<String>, Refusal> {
        let links = self
            .cluster
            .links
            .status()
            .await
            .map_err(super::internal_error)?;
        let by = links.iter().filter(|link| link.is_blocked);
        let by: Vec<String> = by.map(|link| self.cluster.node_label(link.node)).collect();
        Ok((!by.is_empty()).then(|| {
            let by = by.join(", ");
            format!(
                "two living kernels have this node's key, and neither is let in any more by {by}: stop the copy, then `mgp nodes rekey` on the one that stays"
            )
        }))
    }

    /// Problems with this node's key or membership.
    async fn local_failure(&self) -> Result<Option<String>, Refusal> {
        let kept_out = self.duplicate_key_report().await?;
        let part = self
            .local_membership(&self.cluster.replication.view())
            .await?;
        Ok(kept_out.or(part.failure))
    }

    async fn local_membership(&self, view: &ClusterView) -> Result<LocalMembership, Refusal> {
        let links = self
            .cluster
            .links
            .status()
            .await
            .map_err(super::internal_error)?;
        let (key, name) = (self.cluster.key.to_string(), self.cluster.name());
        let name_of = |node| self.cluster.node_label(node);
        Ok(local_membership(view, &key, name.as_str(), &links, name_of))
    }

    /// `mgp/kernel/nodes/list`.
    ///
    /// # Errors
    /// When an actor of the cluster does not answer.
    pub(crate) async fn list_nodes(&self) -> Outcome {
        let view = self.cluster.replication.view();
        let nodes = match view.cluster {
            Some(_) => self.all_nodes(&view).await?,
            None => Vec::new(),
        };
        let name_of = |node| self.cluster.node_label(node);
        let mut problems = cluster_failures::find_failures(&view, name_of, boottime_now());
        if self.cluster.is_draining() {
            problems.push("this node is drained: it takes no new calls of other nodes' agents until `mgp nodes drain --end`, or a start of the kernel".into());
        }
        let part = self.local_membership(&view).await?;
        problems.extend(self.duplicate_key_report().await?);
        let mut conflicts = self.grant_conflicts().await?;
        let conflict_count = conflicts.len();
        conflicts.truncate(CONFLICTS_MAX);
        problems.extend(part.failure);
        let is_member = part.membership.is_member();
        json(&Cluster {
            id: view.cluster.map(|id| id.to_string()),
            nodes,
            lease_secs: view.lease.as_secs(),
            confirmed: is_member
                && view.cluster.is_some()
                && view.silent_node.is_none()
                && view.loss.is_none(),
            membership: part.membership,
            listens: self.cluster.links.address().map(|at| at.to_string()),
            waiting: self.waiting_nodes().await?,
            relays: self.relayed_nodes(),
            troubles: problems,
            conflicts,
            conflict_count,
        })
    }

    /// Grants closed by a revoke that their authors had not seen.
    async fn grant_conflicts(&self) -> Result<Vec<GrantConflict>, Refusal> {
        let names = self.cluster.names.load();
        let name = move |node: NodeId| names.names.render(node);
        let entries = self
            .cluster
            .replication
            .list_entries(name)
            .await?
            .into_iter();
        let conflicts = entries.filter_map(|entry| {
            Some(GrantConflict {
                conflict: entry.conflict?,
                grant_id: entry.grant_id,
                agent_id: entry.agent_id,
                server_id: entry.server_id,
                tool_name: entry.tool_name,
            })
        });
        Ok(conflicts.collect())
    }

    fn relayed_nodes(&self) -> Vec<RelayedNodes> {
        let pairs = self.cluster.links.relayed_pairs().into_iter();
        let relayed = pairs.map(|pair| RelayedNodes {
            nodes: pair.nodes.map(|node| self.cluster.node_label(node)),
            bytes: pair.bytes,
            dropped: pair.dropped,
            since_ms: u64::try_from(pair.age.as_millis()).unwrap_or(u64::MAX),
        });
        relayed.collect()
    }

    async fn all_nodes(&self, view: &ClusterView) -> Result<Vec<Node>, Refusal> {
        let links = self
            .cluster
            .links
            .status()
            .await
            .map_err(super::internal_error)?;
        let links: BTreeMap<NodeId, LinkStatus> =
            links.into_iter().map(|link| (link.node, link)).collect();
        let indexed = self.cluster.tool_index.status().await;
        let indexed: BTreeMap<NodeId, IndexedNode> = indexed
            .map_err(super::internal_error)?
            .into_iter()
            .map(|indexed| (indexed.node, indexed))
            .collect();
        let mut nodes: Vec<Node> = view
            .members
            .iter()
            // It is listed under its new key.
            .filter(|(_, member)| member.status != MemberStatus::Rekeyed)
            .filter(|(node, member)| {
                **node != view.node
                    && !(member.status.is_out() && self.cluster.is_forgotten(**node))
            })
            .map(|(node, member)| self.peer_node(*node, member, links.get(node), indexed.get(node)))
            .collect();
        nodes.push(self.local_node(view.members.get(&view.node)));
        self.add_reachability(view, &mut nodes);
        nodes.sort_by_key(|node| (node.standing != NodeStatus::Here, node.name.clone()));
        Ok(nodes)
    }

    /// Adds what linked nodes report about their leases and links.
    fn add_reachability(&self, view: &ClusterView, nodes: &mut [Node]) {
        let members = view.members.iter();
        let is_in = |member: &ClusterMemberView| !member.status.is_out();
        let there: Vec<NodeId> = members
            .filter(|(_, member)| is_in(member))
            .map(|(node, _)| *node)
            .collect();
        for shown in nodes {
            let Some(node) = NodeId::parse(&shown.id) else {
                continue;
            };
            let reach = if node == view.node {
                Some((
                    view.lease.as_secs(),
                    view.silent_node.is_none(),
                    self.cluster.links.linked_nodes(),
                ))
            } else {
                self.cluster
                    .reported_reach(node)
                    .map(|reach| (reach.lease_ms / 1000, reach.confirmed, reach.linked))
            };
            let Some((lease, confirmed, linked)) = reach else {
                continue;
            };
            shown.lease_secs = Some(lease);
            shown.confirmed = Some(confirmed);
            let missed = there.iter();
            let missed = missed.filter(|other| **other != node && !linked.contains(other));
            shown.unreached = missed
                .map(|other| self.cluster.node_label(*other))
                .collect();
        }
    }

    fn local_node(&self, member: Option<&ClusterMemberView>) -> Node {
        let here = self.cluster.local_node;
        let shares = self.cluster.shares.current();
        let mut servers: BTreeMap<String, u64> = BTreeMap::new();
        for share in shares.iter() {
            let means = self.to_protocol_share(&share).means.unwrap_or_default();
            let most = servers.entry(share.server.to_string()).or_default();
            *most = means.max(*most);
        }
        let servers = servers.into_iter();
        let table = self.servers.load();
        let marked = |id: &str| {
            let server = table.get(&ServerId::new(id));
            server.is_some_and(|server| server.mark().is_some())
        };
        Node {
            id: here.to_string(),
            name: self.cluster.name().to_string(),
            words: here.words(),
            role: member
                .and_then(|member| member.role)
                .map_or(Role::Leaf, to_protocol_role),
            standing: NodeStatus::Here,
            address: self.cluster.links.address().map(|at| at.to_string()),
            servers: servers
                .map(|(id, tools)| SharedServer {
                    replica: marked(&id),
                    id,
                    tools,
                })
                .collect(),
            why: member.and_then(|member| status_problem(member.status)),
            ..Node::default()
        }
    }

    fn peer_node(
        &self,
        node: NodeId,
        member: &ClusterMemberView,
        link: Option<&LinkStatus>,
        indexed: Option<&IndexedNode>,
    ) -> Node {
        let linked = link.and_then(|link| link.linked);
        let status = match (member.status, linked) {
            (MemberStatus::CutOff | MemberStatus::Rekeyed, _) => NodeStatus::Revoked,
            (MemberStatus::Left, _) => NodeStatus::Left,
            (_, Some(_)) => NodeStatus::Linked,
            (_, None) => NodeStatus::Away,
        };
        let imported = self.cluster.imported_tools.load();
        let shared = imported
            .servers
            .iter()
            .filter(|(server, _)| server.node == node);
        let shared = shared.map(|(server, imported)| SharedServer {
            id: server.server.to_string(),
            tools: imported.tools.len() as u64,
            replica: imported.record.replica,
        });
        let hidden = imported.hidden.get(&node).into_iter();
        let hidden = hidden.flat_map(|hidden| &hidden.servers);
        let hidden = hidden.map(|(server, tools)| SharedServer {
            id: server.to_string(),
            tools: *tools as u64,
            replica: false,
        });
        let index_age = indexed.and_then(|indexed| indexed.age);
        let index_age = index_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let lost = link.and_then(|link| link.lost_ms);
        let age_of = |at: u64| unix_ms().saturating_sub(at);
        let since = linked.map(|linked| linked.since_ms).or(member.removed_ms);
        let last = || self.cluster.last_address(node);
        let problem = link.and_then(|link| link.problem.clone());
        let broken = indexed.and_then(|indexed| indexed.broken.clone());
        Node {
            id: node.to_string(),
            name: match status {
                NodeStatus::Revoked | NodeStatus::Left => member.name.clone(),
                NodeStatus::Here | NodeStatus::Linked | NodeStatus::Away => {
                    self.cluster.node_label(node)
                }
            },
            words: node.words(),
            role: member.role.map(to_protocol_role).unwrap_or(Role::Leaf),
            standing: status,
            address: linked
                .and_then(|linked| linked.address)
                .or_else(last)
                .map(canonical_address),
            relay: linked
                .and_then(|linked| linked.relay)
                .map(|relay| self.cluster.node_label(relay)),
            since_ms: since.or(lost).map(age_of).or(index_age),
            rtt_us: linked.map(|linked| to_micros_rounded_up(linked.round_trip)),
            clock_ms: linked
                .and_then(|linked| linked.clock)
                .map(|clock| clock.offset_ms),
            index_age_ms: index_age,
            servers: shared.chain(hidden).collect(),
            why: member_problem(
                member.status,
                linked.is_some() || status == NodeStatus::Here,
                problem,
            )
            .or(broken),
            ..Node::default()
        }
    }

    /// `mgp/kernel/nodes/revoke`.
    ///
    /// # Errors
    /// Unknown node; a node without the right or the ability to write now.
    pub(crate) async fn revoke_node(&self, request: &Request) -> Outcome {
        let revoke: Revoke = read(request)?;
        let node = self.find_peer(&revoke.node)?;
        let name = self.cluster.node_label(node);
        let cut = self
            .cluster
            .replication
            .cut_off(node, request_author(request))
            .await?;
        let confirmed = self.wait_for_confirmations(&cut).await?;
        json(&Revoked {
            id: node.to_string(),
            name,
            confirmed,
        })
    }

    /// `mgp/kernel/nodes/rename`.
    ///
    /// # Errors
    /// Unknown node, an invalid or taken name; a node that may not write.
    pub(crate) async fn rename_node(&self, request: &Request) -> Outcome {
        let rename: Rename = read(request)?;
        let name = NodeName::parse(&rename.name);
        let name = name.map_err(|why| Refusal::BadParams(why.to_string()))?;
        let node = match &rename.node {
            Some(node) => self.find_node(node)?,
            None => self.cluster.local_node,
        };
        let view = self.cluster.replication.view();
        let has = |(other, member): (&NodeId, &ClusterMemberView)| {
            *other != node && member.name == name.as_str() && !member.status.is_out()
        };
        if view.members.iter().any(has) {
            return Err(Refusal::BadParams(format!("another node is called {name}")));
        }
        let by = request_author(request);
        self.cluster.replication.rename(node, name, by).await?;
        let view = self.cluster.replication.view();
        let nodes = self.all_nodes(&view).await?;
        let id = node.to_string();
        let renamed = nodes.into_iter().find(|node| node.id == id);
        json(&renamed.unwrap_or_default())
    }

    /// `mgp/kernel/nodes/leave`.
    ///
    /// # Errors
    /// A node in no cluster, or its last admin, unless forced.
    pub(crate) async fn leave_cluster(&self, request: &Request) -> Outcome {
        let leave: Leave = read(request)?;
        let view = self.cluster.replication.view();
        let Some(cluster) = view.cluster else {
            return Err(Refusal::BadParams("this node is in no cluster".into()));
        };
        let admin = |(node, member): &(&NodeId, &ClusterMemberView)| {
            **node != view.node && member.role == Some(MemberRole::Admin) && !member.status.is_out()
        };
        let others = view.members.len() > 1;
        let last =
            view.role == Some(MemberRole::Admin) && !view.members.iter().any(|it| admin(&it));
        if others && last && !leave.last_admin {
            return Err(Refusal::BadParams(
                "this node is the last admin: nobody could let nodes in or grant anything without it; let another admin in first, or say --last-admin".into(),
            ));
        }
        let (replication, by) = (&self.cluster.replication, request_author(request));
        let noted = match replication.record_own_leave(by.clone()).await {
            Ok(_) => true,
            // A node without the right to write asks one that has it, and leaves in any case.
            Err(_) => self.cluster.announce_leave().await,
        };
        replication.forget(by).await?;
        self.cluster.stop_listening().await;
        json(&LeaveResult {
            cluster: cluster.to_string(),
            noted,
        })
    }

    pub(super) async fn wait_for_confirmations(
        &self,
        proposed: &ProposedChanges,
    ) -> Result<Confirmations, Refusal> {
        let name = |node| self.cluster.node_label(node);
        let confirmed = wait_for_confirmations(&self.cluster.replication, proposed, name).await?;
        Ok(confirmed.unwrap_or_default())
    }

    /// Another node, by its typed name.
    pub(super) fn find_peer(&self, typed: &str) -> Result<NodeId, Refusal> {
        let names = self.cluster.names.load();
        let node = names.names.resolve(typed);
        node.map_err(|why| {
            let known: Vec<&str> = names.names.iter().map(|(name, _)| name.as_str()).collect();
            let near = nearest_name(typed, known.into_iter());
            let near = near.map(|near| format!(" (did you mean {near}?)"));
            Refusal::BadParams(format!("{why}{}", near.unwrap_or_default()))
        })
    }

    /// Another node or this one.
    fn find_node(&self, typed: &str) -> Result<NodeId, Refusal> {
        let here = self.cluster.local_node;
        if typed == self.cluster.name().as_str() || typed == here.to_string() {
            return Ok(here);
        }
        self.find_peer(typed)
    }
}

/// The caller, and the request.
pub(super) fn request_author(request: &Request) -> RequestedBy {
    RequestedBy {
        principal: request.caller.identity(),
        trace: request.trace.id.clone(),
    }
}

pub(super) fn to_protocol_role(role: MemberRole) -> Role {
    match role {
        MemberRole::Admin => Role::Admin,
        MemberRole::Member => Role::Member,
        MemberRole::Leaf => Role::Leaf,
    }
}

/// The problem of a node: its status in the logs, and the last failed attempt to reach it. For a node that is up,
/// linked or local, its last shutdown notice does not count.
fn member_problem(status: MemberStatus, up: bool, problem: Option<String>) -> Option<String> {
    match (status, status_problem(status), problem) {
        (MemberStatus::Retired, _, problem) if up => problem,
        (MemberStatus::Retired, Some(description), Some(problem)) => {
            Some(format!("{description} ({problem})"))
        }
        (_, description, problem) => description.or(problem),
    }
}

fn status_problem(status: MemberStatus) -> Option<String> {
    let description = match status {
        MemberStatus::Active
        | MemberStatus::Left
        | MemberStatus::CutOff
        | MemberStatus::Rekeyed => return None,
        MemberStatus::Retired => {
            "the last that it wrote is that it shuts down; it has not answered since"
        }
        MemberStatus::Doubtful => {
            "it is not certain that it was let in: what says so is missing, or its author was cut off"
        }
        MemberStatus::Forked => {
            "it signed two different logs, or somebody with its key did: `mgp nodes rekey` there gives it another key"
        }
        MemberStatus::DuplicateKey => {
            "two living nodes have its key, and neither is let in: stop the copy, then `mgp nodes rekey` on the one that stays, and here what it says then; or cut it off with `mgp nodes remove`"
        }
    };
    Some(description.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that was shut down gracefully is up as soon as it answers, whatever its log ends with.
    #[test]
    fn a_node_that_is_linked_is_not_called_shut_down() {
        let timed_out = || Some("no node answers at 10.0.0.2:7332".to_owned());
        assert_eq!(member_problem(MemberStatus::Retired, true, None), None);
        let told = member_problem(MemberStatus::Retired, false, timed_out()).unwrap();
        assert!(
            told.contains("that it shuts down") && told.contains("10.0.0.2:7332"),
            "{told}"
        );
        assert_eq!(
            member_problem(MemberStatus::Active, false, timed_out()),
            timed_out()
        );
    }
}
