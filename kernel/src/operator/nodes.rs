//! `mgp/kernel/nodes/*`: this node, and the nodes of its cluster.

mod ending;
pub(super) mod membership;
mod upkeep;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use mgp_callers::request::{Outcome, Request};
use mgp_calls::confirmations::confirmations;
use mgp_cluster::links::LinkStatus;
use mgp_cluster::replication::{
    AskedBy, ClusterMemberView, ClusterView, MemberStanding, ProposedChanges,
};
use mgp_cluster::tool_index::IndexedNode;
use mgp_engine::clock::micros;
use mgp_engine::doors::nearest::nearest_name;
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::ids::{NodeId, ServerId};
use mgp_protocol::mgp::kernel::nodes::{
    CONFLICTS_MAX, Cluster, Confirmations, GrantConflict, Identity, Leave, Left, Node,
    RelayedNodes, Rename, Revoke, Revoked, Role, SharedServer, Standing,
};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::time::{boot_moment, unix_ms};

use self::membership::{OwnPart, own_part};
use super::{Operator, cluster_troubles, json, read};

impl Operator {
    /// `mgp/kernel/nodes/id`.
    ///
    /// # Errors
    /// When the links do not answer.
    pub async fn identity(&self) -> Outcome {
        let (cluster, view) = (&self.cluster, self.cluster.replication.view());
        json(&Identity {
            id: cluster.here.to_string(),
            short: cluster.here.short(),
            words: cluster.here.words(),
            name: cluster.name().to_string(),
            cluster: view.cluster.map(|id| id.to_string()),
            role: view.role.map(role),
            listens: cluster.links.address().map(|at| at.to_string()),
            trouble: self.own_trouble().await?,
        })
    }

    /// Which nodes found another living kernel with this node's key, in words; nothing where none did.
    pub(super) async fn kept_out(&self) -> Result<Option<String>, Refusal> {
        let links = self.cluster.links.status().await.map_err(super::broken)?;
        let by = links.iter().filter(|link| link.keeps_out);
        let by: Vec<String> = by.map(|link| self.cluster.name_of(link.node)).collect();
        Ok((!by.is_empty()).then(|| {
            let by = by.join(", ");
            format!(
                "two living kernels have this node's key, and neither is let in any more by {by}: stop the copy, then `mgp nodes rekey` on the one that stays"
            )
        }))
    }

    /// What is wrong with this node's key, or with its part in the cluster.
    async fn own_trouble(&self) -> Result<Option<String>, Refusal> {
        let kept_out = self.kept_out().await?;
        let part = self.own_part(&self.cluster.replication.view()).await?;
        Ok(kept_out.or(part.trouble))
    }

    async fn own_part(&self, view: &ClusterView) -> Result<OwnPart, Refusal> {
        let links = self.cluster.links.status().await.map_err(super::broken)?;
        let (key, name) = (self.cluster.key.to_string(), self.cluster.name());
        let name_of = |node| self.cluster.name_of(node);
        Ok(own_part(view, &key, name.as_str(), &links, name_of))
    }

    /// `mgp/kernel/nodes/list`.
    ///
    /// # Errors
    /// When an actor of the cluster does not answer.
    pub async fn list_nodes(&self) -> Outcome {
        let view = self.cluster.replication.view();
        let nodes = match view.cluster {
            Some(_) => self.nodes(&view).await?,
            None => Vec::new(),
        };
        let name_of = |node| self.cluster.name_of(node);
        let mut troubles = cluster_troubles::troubles(&view, name_of, boot_moment());
        if self.cluster.is_draining() {
            troubles.push("this node is drained: it takes no new calls of other nodes' agents until `mgp nodes drain --end`, or a start of the kernel".into());
        }
        let part = self.own_part(&view).await?;
        troubles.extend(self.kept_out().await?);
        let mut conflicts = self.conflicts().await?;
        let conflict_count = conflicts.len();
        conflicts.truncate(CONFLICTS_MAX);
        troubles.extend(part.trouble);
        let is_member = part.membership.is_member();
        json(&Cluster {
            id: view.cluster.map(|id| id.to_string()),
            nodes,
            lease_secs: view.lease.as_secs(),
            confirmed: is_member
                && view.cluster.is_some()
                && view.unheard.is_none()
                && view.shortened.is_none(),
            membership: part.membership,
            listens: self.cluster.links.address().map(|at| at.to_string()),
            waiting: self.waiting_nodes().await?,
            relays: self.relayed_nodes(),
            troubles,
            conflicts,
            conflict_count,
        })
    }

    /// The grants that a revoke closes of which their authors did not know.
    async fn conflicts(&self) -> Result<Vec<GrantConflict>, Refusal> {
        let names = self.cluster.names.load();
        let name = move |node: NodeId| {
            let name = names.names.of(node).map(ToString::to_string);
            name.unwrap_or_else(|| node.short())
        };
        let entries = self.cluster.replication.list(name).await?.into_iter();
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
            nodes: pair.nodes.map(|node| self.cluster.name_of(node)),
            bytes: pair.bytes,
            dropped: pair.dropped,
            since_ms: u64::try_from(pair.age.as_millis()).unwrap_or(u64::MAX),
        });
        relayed.collect()
    }

    async fn nodes(&self, view: &ClusterView) -> Result<Vec<Node>, Refusal> {
        let links = self.cluster.links.status().await.map_err(super::broken)?;
        let links: BTreeMap<NodeId, LinkStatus> =
            links.into_iter().map(|link| (link.node, link)).collect();
        let indexed = self.cluster.tool_index.status().await;
        let indexed: BTreeMap<NodeId, IndexedNode> = indexed
            .map_err(super::broken)?
            .into_iter()
            .map(|indexed| (indexed.node, indexed))
            .collect();
        let mut nodes: Vec<Node> = view
            .members
            .iter()
            // It is listed under its other key.
            .filter(|(_, member)| member.standing != MemberStanding::Rekeyed)
            .filter(|(node, member)| {
                **node != view.here
                    && !(member.standing.is_out() && self.cluster.is_forgotten(**node))
            })
            .map(|(node, member)| self.other(*node, member, links.get(node), indexed.get(node)))
            .collect();
        nodes.push(self.own_node(view.members.get(&view.here)));
        self.tell_reach(view, &mut nodes);
        nodes.sort_by_key(|node| (node.standing != Standing::Here, node.name.clone()));
        Ok(nodes)
    }

    /// What each node that is linked says of its lease, and of whom it reaches.
    fn tell_reach(&self, view: &ClusterView, nodes: &mut [Node]) {
        let members = view.members.iter();
        let is_in = |member: &ClusterMemberView| !member.standing.is_out();
        let there: Vec<NodeId> = members
            .filter(|(_, member)| is_in(member))
            .map(|(node, _)| *node)
            .collect();
        for shown in nodes {
            let Some(node) = NodeId::parse(&shown.id) else {
                continue;
            };
            let reach = match node == view.here {
                true => Some((
                    view.lease.as_secs(),
                    view.unheard.is_none(),
                    self.cluster.links.linked(),
                )),
                false => self
                    .cluster
                    .reach_of(node)
                    .map(|reach| (reach.lease_ms / 1000, reach.confirmed, reach.linked)),
            };
            let Some((lease, confirmed, linked)) = reach else {
                continue;
            };
            shown.lease_secs = Some(lease);
            shown.confirmed = Some(confirmed);
            let missed = there.iter();
            let missed = missed.filter(|other| **other != node && !linked.contains(other));
            shown.unreached = missed.map(|other| self.cluster.name_of(*other)).collect();
        }
    }

    fn own_node(&self, member: Option<&ClusterMemberView>) -> Node {
        let here = self.cluster.here;
        let shares = self.cluster.shares.now();
        let mut servers: BTreeMap<String, u64> = BTreeMap::new();
        for share in shares.all() {
            let means = self.shown_share(&share).means.unwrap_or_default();
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
                .map_or(Role::Leaf, role),
            standing: Standing::Here,
            address: self.cluster.links.address().map(|at| at.to_string()),
            servers: servers
                .map(|(id, tools)| SharedServer {
                    replica: marked(&id),
                    id,
                    tools,
                })
                .collect(),
            why: member.and_then(|member| said_of(member.standing)),
            ..Node::default()
        }
    }

    fn other(
        &self,
        node: NodeId,
        member: &ClusterMemberView,
        link: Option<&LinkStatus>,
        indexed: Option<&IndexedNode>,
    ) -> Node {
        let linked = link.and_then(|link| link.linked);
        let standing = match (member.standing, linked) {
            (MemberStanding::Cut | MemberStanding::Rekeyed, _) => Standing::Revoked,
            (MemberStanding::Left, _) => Standing::Left,
            (_, Some(_)) => Standing::Linked,
            (_, None) => Standing::Away,
        };
        let held = self.cluster.held.load();
        let shared = held
            .servers
            .iter()
            .filter(|(server, _)| server.node == node);
        let shared = shared.map(|(server, held)| SharedServer {
            id: server.server.to_string(),
            tools: held.tools.len() as u64,
            replica: held.record.replica,
        });
        let hidden = held.hidden.get(&node).into_iter();
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
        let since = linked.map(|linked| linked.since_ms).or(member.out_ms);
        let last = || self.cluster.last_address(node);
        let trouble = link.and_then(|link| link.trouble.clone());
        let broken = indexed.and_then(|indexed| indexed.broken.clone());
        Node {
            id: node.to_string(),
            name: match standing {
                Standing::Revoked | Standing::Left => member.name.clone(),
                Standing::Here | Standing::Linked | Standing::Away => self.cluster.name_of(node),
            },
            words: node.words(),
            role: member.role.map(role).unwrap_or(Role::Leaf),
            standing,
            address: linked
                .and_then(|linked| linked.address)
                .or_else(last)
                .map(plain),
            relay: linked
                .and_then(|linked| linked.relay)
                .map(|relay| self.cluster.name_of(relay)),
            since_ms: since.or(lost).map(age_of).or(index_age),
            rtt_us: linked.map(|linked| micros(linked.round_trip)),
            clock_ms: linked
                .and_then(|linked| linked.clock)
                .map(|clock| clock.offset_ms),
            index_age_ms: index_age,
            servers: shared.chain(hidden).collect(),
            why: why_of(
                member.standing,
                linked.is_some() || standing == Standing::Here,
                trouble,
            )
            .or(broken),
            ..Node::default()
        }
    }

    /// `mgp/kernel/nodes/revoke`.
    ///
    /// # Errors
    /// Unknown node; a node that may not, or cannot write now.
    pub async fn revoke_node(&self, request: &Request) -> Outcome {
        let revoke: Revoke = read(request)?;
        let node = self.other_node(&revoke.node)?;
        let name = self.cluster.name_of(node);
        let cut = self
            .cluster
            .replication
            .cut(node, asked_by(request))
            .await?;
        let confirmed = self.confirmed(&cut).await?;
        json(&Revoked {
            id: node.to_string(),
            name,
            confirmed,
        })
    }

    /// `mgp/kernel/nodes/rename`.
    ///
    /// # Errors
    /// Unknown node, a name that is none or is another one's; a node that may not write.
    pub async fn rename_node(&self, request: &Request) -> Outcome {
        let rename: Rename = read(request)?;
        let name = NodeName::parse(&rename.name);
        let name = name.map_err(|why| Refusal::BadParams(why.to_string()))?;
        let node = match &rename.node {
            Some(node) => self.any_node(node)?,
            None => self.cluster.here,
        };
        let view = self.cluster.replication.view();
        let has = |(other, member): (&NodeId, &ClusterMemberView)| {
            *other != node && member.name == name.as_str() && !member.standing.is_out()
        };
        if view.members.iter().any(has) {
            return Err(Refusal::BadParams(format!("another node is called {name}")));
        }
        let by = asked_by(request);
        self.cluster.replication.rename(node, name, by).await?;
        let view = self.cluster.replication.view();
        let nodes = self.nodes(&view).await?;
        let id = node.to_string();
        let renamed = nodes.into_iter().find(|node| node.id == id);
        json(&renamed.unwrap_or_default())
    }

    /// `mgp/kernel/nodes/leave`.
    ///
    /// # Errors
    /// A node that is in no cluster, or is its last admin and was not told to leave all the same.
    pub async fn leave_cluster(&self, request: &Request) -> Outcome {
        let leave: Leave = read(request)?;
        let view = self.cluster.replication.view();
        let Some(cluster) = view.cluster else {
            return Err(Refusal::BadParams("this node is in no cluster".into()));
        };
        let admin = |(node, member): &(&NodeId, &ClusterMemberView)| {
            **node != view.here
                && member.role == Some(MemberRole::Admin)
                && !member.standing.is_out()
        };
        let others = view.members.len() > 1;
        let last =
            view.role == Some(MemberRole::Admin) && !view.members.iter().any(|it| admin(&it));
        if others && last && !leave.last_admin {
            return Err(Refusal::BadParams(
                "this node is the last admin: nobody could let nodes in or grant anything without it; let another admin in first, or say --last-admin".into(),
            ));
        }
        let (replication, by) = (&self.cluster.replication, asked_by(request));
        let noted = match replication.say_left(by.clone()).await {
            Ok(_) => true,
            // Who may not write asks somebody who may, and leaves in any case.
            Err(_) => self.cluster.take_leave().await,
        };
        replication.forget(by).await?;
        self.cluster.listen_no_more().await;
        json(&Left {
            cluster: cluster.to_string(),
            noted,
        })
    }

    pub(super) async fn confirmed(
        &self,
        proposed: &ProposedChanges,
    ) -> Result<Confirmations, Refusal> {
        let name = |node| self.cluster.name_of(node);
        let confirmed = confirmations(&self.cluster.replication, proposed, name).await?;
        Ok(confirmed.unwrap_or_default())
    }

    /// Another node, as it was typed.
    pub(super) fn other_node(&self, typed: &str) -> Result<NodeId, Refusal> {
        let names = self.cluster.names.load();
        let node = names.names.read(typed);
        node.map_err(|why| {
            let known: Vec<&str> = names.names.all().map(|(name, _)| name.as_str()).collect();
            let near = nearest_name(typed, known.into_iter());
            let near = near.map(|near| format!(" (did you mean {near}?)"));
            Refusal::BadParams(format!("{why}{}", near.unwrap_or_default()))
        })
    }

    /// The same, or this one.
    fn any_node(&self, typed: &str) -> Result<NodeId, Refusal> {
        let here = self.cluster.here;
        if typed == self.cluster.name().as_str() || typed == here.to_string() {
            return Ok(here);
        }
        self.other_node(typed)
    }
}

/// Who asks, and by which request.
pub(super) fn asked_by(request: &Request) -> AskedBy {
    AskedBy {
        principal: request.caller.identity(),
        trace: request.trace.id.clone(),
    }
}

pub(super) fn role(role: MemberRole) -> Role {
    match role {
        MemberRole::Admin => Role::Admin,
        MemberRole::Member => Role::Member,
        MemberRole::Leaf => Role::Leaf,
    }
}

/// What is wrong with a node: what the logs say of it, and what the last try to reach it came to. Of a node that is
/// up, linked or this one, its last word that it shuts down says nothing.
fn why_of(standing: MemberStanding, up: bool, trouble: Option<String>) -> Option<String> {
    match (standing, said_of(standing), trouble) {
        (MemberStanding::Resting, _, trouble) if up => trouble,
        (MemberStanding::Resting, Some(said), Some(trouble)) => Some(format!("{said} ({trouble})")),
        (_, said, trouble) => said.or(trouble),
    }
}

fn said_of(standing: MemberStanding) -> Option<String> {
    let said = match standing {
        MemberStanding::In
        | MemberStanding::Left
        | MemberStanding::Cut
        | MemberStanding::Rekeyed => return None,
        MemberStanding::Resting => {
            "the last that it wrote is that it shuts down; it has not answered since"
        }
        MemberStanding::Doubtful => {
            "it is not certain that it was let in: what says so is missing, or its author was cut off"
        }
        MemberStanding::Forked => {
            "it signed two different logs, or somebody with its key did: `mgp nodes rekey` there gives it another key"
        }
        MemberStanding::Twice => {
            "two living nodes have its key, and neither is let in: stop the copy, then `mgp nodes rekey` on the one that stays, and here what it says then; or cut it off with `mgp nodes remove`"
        }
    };
    Some(said.to_owned())
}

/// An address as people write it: one of IPv4, although it came by a socket for both.
pub(super) fn plain(at: SocketAddr) -> String {
    SocketAddr::new(at.ip().to_canonical(), at.port()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that was once shut down gracefully is up as soon as it answers, whatever its log ends with.
    #[test]
    fn a_node_that_is_linked_is_not_called_shut_down() {
        let timed_out = || Some("no node answers at 10.0.0.2:7332".to_owned());
        assert_eq!(why_of(MemberStanding::Resting, true, None), None);
        let told = why_of(MemberStanding::Resting, false, timed_out()).unwrap();
        assert!(
            told.contains("that it shuts down") && told.contains("10.0.0.2:7332"),
            "{told}"
        );
        assert_eq!(why_of(MemberStanding::In, false, timed_out()), timed_out());
    }
}
