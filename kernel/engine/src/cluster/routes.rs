//! Which tools of other nodes there are under which names, and where a call of one goes.
//!
//! A tool of another node has the name of its node in front, always: no name of this node's own changes or
//! means something else because a node came, and a bare name never leads away from this node.

mod choice;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mgp_protocol::federation::tool_index::{IndexRoot, ServerRecord};
use mgp_protocol::ids::NodeId;
use mgp_protocol::ids::ServerId;

pub use self::choice::{
    CallAttempts, CallChoice, HOMES_MAX, Homes, NextTry, PlaceCandidate, TryFailure,
};
use crate::cluster::node_names::NodeHandle;
use crate::cluster::staleness::Stage;
use crate::cluster::tool_index::{HeldEntry, HeldIndex, IndexKey};
use crate::tool_names::{canonical, shown_remote};

/// Where a server runs. Places on this node come first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallPlace {
    /// On this node.
    Here(ServerId),
    /// On another one.
    There(NodeId, ServerId),
}

/// Tools that are one entry wherever they are called: alike in what their servers are started as, in name
/// and in schemas, and marked as replicas by each owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaGroup {
    specification: IndexRoot,
    tool: Arc<str>,
    schemas: IndexRoot,
}

/// A server of this node that its operator marked as one of several that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnReplica {
    /// Its id.
    pub server: ServerId,
    /// What it is started as, hashed.
    pub specification: IndexRoot,
    /// Its tools, and the hashes of their schemas.
    pub tools: BTreeMap<Arc<str>, IndexRoot>,
}

/// A tool of another node as agents are shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteTool {
    /// Its owner.
    pub node: NodeId,
    /// Its server and name there.
    pub key: IndexKey,
    /// The name shown.
    pub shown: Arc<str>,
    /// Whether it is shown with its age.
    pub stage: Stage,
}

/// A server of another node, as `mgp/discovery/list` tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteServer {
    /// `node/server`.
    pub id: String,
    /// Its owner.
    pub node: NodeId,
    /// What its owner told of it.
    pub record: ServerRecord,
    /// Its own names for its tools.
    pub tools: Vec<Arc<str>>,
    /// How far that may still be believed.
    pub stage: Stage,
}

/// Whose tool a name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteName<'a> {
    /// This one's.
    Of(NodeId, &'a IndexKey),
    /// It has the form of this node's tools, and the node told of no such tool.
    Missing(NodeId),
}

#[derive(Debug)]
struct NodeRoutes {
    handle: NodeHandle,
    /// By the shown name.
    tools: BTreeMap<Arc<str>, IndexKey>,
    servers: BTreeMap<ServerId, ServerRecord>,
    groups: BTreeMap<IndexKey, ReplicaGroup>,
}

/// The tools of all other nodes.
#[derive(Debug, Default)]
pub struct RouteTable {
    nodes: BTreeMap<NodeId, NodeRoutes>,
    handles: BTreeMap<NodeHandle, NodeId>,
    own: BTreeMap<(ServerId, Arc<str>), ReplicaGroup>,
    /// Members in the order they came; the first that is there lends the entry its name.
    groups: BTreeMap<ReplicaGroup, Vec<CallPlace>>,
}

impl RouteTable {
    /// A node's tools are these now, under this name.
    pub fn set(&mut self, node: NodeId, handle: &NodeHandle, index: &HeldIndex) {
        let before = self.nodes.remove(&node);
        if let Some(before) = &before {
            self.handles.remove(&before.handle);
        }
        let routes = NodeRoutes::new(node, handle, index);
        self.handles.insert(handle.clone(), node);
        let ended = before.iter().flat_map(|before| &before.groups);
        for (key, group) in ended.filter(|(key, group)| routes.groups.get(*key) != Some(group)) {
            self.leave(group, &CallPlace::There(node, key.server.clone()));
        }
        for (key, group) in &routes.groups {
            join(
                &mut self.groups,
                group,
                CallPlace::There(node, key.server.clone()),
            );
        }
        self.nodes.insert(node, routes);
    }

    /// Nothing of the node is left.
    pub fn remove(&mut self, node: NodeId) {
        let Some(routes) = self.nodes.remove(&node) else {
            return;
        };
        self.handles.remove(&routes.handle);
        for (key, group) in &routes.groups {
            self.leave(group, &CallPlace::There(node, key.server.clone()));
        }
    }

    /// The servers of this node that are marked as replicas are these now.
    pub fn set_own(&mut self, replicas: &[OwnReplica]) {
        let tools = replicas.iter().flat_map(|replica| {
            replica.tools.iter().map(|(tool, schemas)| {
                let group = ReplicaGroup {
                    specification: replica.specification,
                    tool: Arc::clone(tool),
                    schemas: *schemas,
                };
                ((replica.server.clone(), Arc::clone(tool)), group)
            })
        });
        let before = std::mem::replace(&mut self.own, tools.collect());
        for ((server, _), group) in &before {
            self.leave(group, &CallPlace::Here(server.clone()));
        }
        for ((server, _), group) in &self.own {
            join(&mut self.groups, group, CallPlace::Here(server.clone()));
        }
    }

    /// Reads a name as that of another node's tool: as it is shown, or `node/server:tool`. `None` when it
    /// has no such form; names of this node's own are read before.
    #[must_use]
    pub fn read(&self, name: &str) -> Option<RemoteName<'_>> {
        let (handle, canonical) = match (name.split_once('/'), name.split_once("__")) {
            (Some((handle, rest)), _) => (handle, Some(rest)),
            (None, Some((handle, _))) => (handle, None),
            (None, None) => return None,
        };
        let all = self.handles.iter();
        let (_, node) = all.clone().find(|(held, _)| held.as_str() == handle)?;
        let routes = self.nodes.get(node)?;
        let found = match canonical {
            None => routes.tools.get(name),
            Some(rest) => {
                let (server, tool) = rest.split_once(':')?;
                let key = IndexKey::tool(&ServerId::new(server), tool);
                let mut keys = routes.tools.values();
                keys.find(|held| **held == key)
            }
        };
        Some(match found {
            Some(key) => RemoteName::Of(*node, key),
            None => RemoteName::Missing(*node),
        })
    }

    /// What agents are shown, given how fresh each node is: of a replica group only one, and none where
    /// this node has one itself.
    #[must_use]
    pub fn listed(&self, stage: impl Fn(NodeId) -> Stage) -> Vec<RemoteTool> {
        let mut listed = Vec::new();
        for (node, routes) in &self.nodes {
            let stage_of = stage(*node);
            if stage_of >= Stage::Hidden {
                continue;
            }
            for (shown, key) in &routes.tools {
                let place = CallPlace::There(*node, key.server.clone());
                let group = routes.groups.get(key);
                if group.is_none_or(|group| self.stands_for(group, &stage) == Some(&place)) {
                    listed.push(RemoteTool {
                        node: *node,
                        key: key.clone(),
                        shown: Arc::clone(shown),
                        stage: stage_of,
                    });
                }
            }
        }
        listed
    }

    /// The servers of other nodes (MGP-222). Those of hidden nodes are told of, too: as not to be had.
    #[must_use]
    pub fn servers(&self, stage: impl Fn(NodeId) -> Stage) -> Vec<RemoteServer> {
        let nodes = self.nodes.iter();
        let servers = nodes.flat_map(|(node, routes)| {
            let stage = stage(*node);
            let all = routes.servers.iter();
            all.map(move |(server, record)| {
                let its = routes.tools.values().filter(|key| key.server == *server);
                RemoteServer {
                    id: format!("{}/{server}", routes.handle),
                    node: *node,
                    record: *record,
                    tools: its.filter_map(|key| key.tool.clone()).collect(),
                    stage,
                }
            })
        });
        servers.collect()
    }

    /// Where a call of this tool may go: the place itself, and its replicas.
    #[must_use]
    pub fn places(&self, place: &CallPlace, tool: &str) -> BTreeSet<CallPlace> {
        let group = match place {
            CallPlace::Here(server) => self.own.get(&(server.clone(), tool.into())),
            CallPlace::There(node, server) => {
                let routes = self.nodes.get(node);
                routes.and_then(|routes| routes.groups.get(&IndexKey::tool(server, tool)))
            }
        };
        let members = group.and_then(|group| self.groups.get(group));
        let members = members.into_iter().flatten().cloned();
        members.chain([place.clone()]).collect()
    }

    /// `node/server:tool`, for people and policies.
    #[must_use]
    pub fn canonical(&self, node: NodeId, key: &IndexKey) -> Option<String> {
        let handle = &self.nodes.get(&node)?.handle;
        Some(format!(
            "{handle}/{}",
            canonical(&key.server, key.tool.as_deref()?)
        ))
    }

    /// The member whose name the group's entry has.
    fn stands_for(
        &self,
        group: &ReplicaGroup,
        stage: impl Fn(NodeId) -> Stage,
    ) -> Option<&CallPlace> {
        let members = self.groups.get(group)?;
        let own = members
            .iter()
            .find(|place| matches!(place, CallPlace::Here(_)));
        let there = |place: &&CallPlace| match place {
            CallPlace::Here(_) => true,
            CallPlace::There(node, _) => stage(*node) < Stage::Hidden,
        };
        own.or_else(|| members.iter().find(there))
    }

    fn leave(&mut self, group: &ReplicaGroup, place: &CallPlace) {
        if let Some(members) = self.groups.get_mut(group) {
            members.retain(|member| member != place);
            if members.is_empty() {
                self.groups.remove(group);
            }
        }
    }
}

fn join(
    groups: &mut BTreeMap<ReplicaGroup, Vec<CallPlace>>,
    group: &ReplicaGroup,
    place: CallPlace,
) {
    let members = groups.entry(group.clone()).or_default();
    if !members.contains(&place) {
        members.push(place);
    }
}

impl NodeRoutes {
    /// A tool counts when its server was told of as well.
    fn new(node: NodeId, handle: &NodeHandle, index: &HeldIndex) -> Self {
        let servers = index.entries().filter_map(|(key, entry)| match entry {
            HeldEntry::Server(record) => Some((key.server.clone(), *record)),
            HeldEntry::Tool(_) => None,
        });
        let servers: BTreeMap<_, _> = servers.collect();
        let (mut tools, mut groups) = (BTreeMap::new(), BTreeMap::new());
        let id = node.to_string();
        for (key, entry) in index.entries() {
            let (Some(tool), HeldEntry::Tool(held)) = (&key.tool, entry) else {
                continue;
            };
            let Some(record) = servers.get(&key.server) else {
                continue;
            };
            let shown = shown_remote(handle.as_str(), &id, &key.server, tool);
            tools.insert(shown.into(), key.clone());
            if let Some(specification) = record.specification.filter(|_| record.replica) {
                let group = ReplicaGroup {
                    specification,
                    tool: Arc::clone(tool),
                    schemas: held.schemas,
                };
                groups.insert(key.clone(), group);
            }
        }
        Self {
            handle: handle.clone(),
            tools,
            servers,
            groups,
        }
    }
}
