//! What a node shares of its own servers, and with whom. Nothing is shared by default, and servers of another node
//! are never shared on: only their owner shares them.
//!
//! A rule names a server, its audience, and one tool of it or all with a common prefix. Rules are additive: a tool is
//! shared with a node when at least one rule matches.

mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mgp_protocol::ids::NodeId;
use mgp_protocol::ids::ServerId;
use serde::{Deserialize, Serialize};

use crate::policy::access::SharedTools;

pub use self::requests::{ShareRequest, ShareRequestError};
pub(crate) use crate::policy::tool_pattern::BadToolPattern;
pub use crate::policy::tool_pattern::ToolPattern;

/// Most rules. A person reads all of them in one list.
pub const SHARES_MAX: usize = 1024;
/// Most nodes that rules name: each has an index of its own, with as many entries as the cluster's index.
pub(crate) const NODES_NAMED_MAX: usize = 64;

/// The audience of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareAudience {
    /// Every node of the cluster.
    Cluster,
    /// One node.
    Node(NodeId),
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Share {
    /// A server of this node.
    pub server: ServerId,
    /// Who may see and call it.
    pub to: ShareAudience,
    /// Which of its tools.
    pub tools: ToolPattern,
}

/// A change of the rules, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareChange {
    /// Adds a rule.
    Share(Share),
    /// Removes a rule.
    Unshare(Share),
    /// The node left the cluster: a later node of its name has no rules.
    Forget(NodeId),
    /// The server is removed: a later server of its name is not shared.
    Vacate(ServerId),
}

/// All rules of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    rules: BTreeMap<ServerId, BTreeSet<(ShareAudience, ToolPattern)>>,
}

impl Shares {
    /// Applies a change; false when nothing changed.
    pub fn apply(&mut self, change: &ShareChange) -> bool {
        let before = self.len();
        match change {
            ShareChange::Share(share) => {
                let rules = self.rules.entry(share.server.clone()).or_default();
                rules.insert((share.to, share.tools.clone()));
            }
            ShareChange::Unshare(share) => {
                if let Some(rules) = self.rules.get_mut(&share.server) {
                    rules.remove(&(share.to, share.tools.clone()));
                }
            }
            ShareChange::Forget(node) => {
                let stays = |(to, _): &(ShareAudience, _)| *to != ShareAudience::Node(*node);
                self.rules
                    .values_mut()
                    .for_each(|rules| rules.retain(stays));
            }
            ShareChange::Vacate(server) => {
                self.rules.remove(server);
            }
        }
        self.rules.retain(|_, rules| !rules.is_empty());
        before != self.len()
    }

    /// The rules, by server.
    pub fn iter(&self) -> impl Iterator<Item = Share> + '_ {
        self.rules.iter().flat_map(|(server, rules)| {
            rules.iter().map(|(to, tools)| Share {
                server: server.clone(),
                to: *to,
                tools: tools.clone(),
            })
        })
    }

    /// The same rules in the form used for grants of other nodes' agents.
    #[must_use]
    pub fn to_shared_tools(&self) -> SharedTools {
        let mut shared = SharedTools::default();
        for share in self.iter() {
            let with = match share.to {
                ShareAudience::Cluster => None,
                ShareAudience::Node(node) => Some(node),
            };
            shared.add(share.server, with, &share.tools.to_string());
        }
        shared
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.values().map(BTreeSet::len).sum()
    }

    /// True when nothing is shared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The nodes that rules name.
    #[must_use]
    pub fn named_nodes(&self) -> BTreeSet<NodeId> {
        let audiences = self.rules.values().flatten().map(|(to, _)| to);
        let named = audiences.filter_map(|to| match to {
            ShareAudience::Node(node) => Some(*node),
            ShareAudience::Cluster => None,
        });
        named.collect()
    }

    /// The audience of a node: its own if a rule names it, else that of the cluster.
    #[must_use]
    pub(crate) fn audience_for(&self, node: NodeId) -> ShareAudience {
        let node_audience = ShareAudience::Node(node);
        let mut audiences = self.rules.values().flatten().map(|(to, _)| *to);
        if audiences.any(|to| to == node_audience) {
            node_audience
        } else {
            ShareAudience::Cluster
        }
    }

    /// Whether something of the server is shared with an audience.
    #[must_use]
    pub(crate) fn is_server_shared(&self, view: ShareAudience, server: &ServerId) -> bool {
        self.patterns_for(view, server).next().is_some()
    }

    /// Whether a tool of this node is shared with an audience; `tool` is the server's own name for it.
    #[must_use]
    pub(crate) fn is_tool_shared(
        &self,
        view: ShareAudience,
        server: &ServerId,
        tool: &str,
    ) -> bool {
        self.patterns_for(view, server)
            .any(|tools| tools.matches(tool))
    }

    /// Whether sharing allows a node to call a tool of this node.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn can_call(&self, node: NodeId, server: &ServerId, tool: &str) -> bool {
        self.is_tool_shared(ShareAudience::Node(node), server, tool)
    }

    fn patterns_for<'a>(
        &'a self,
        view: ShareAudience,
        server: &ServerId,
    ) -> impl Iterator<Item = &'a ToolPattern> + use<'a> {
        let rules = self.rules.get(server).into_iter().flatten();
        let meant = move |to: &ShareAudience| *to == ShareAudience::Cluster || *to == view;
        rules.filter_map(move |(to, tools)| meant(to).then_some(tools))
    }
}

impl fmt::Display for ShareAudience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Node(node) => write!(f, "node:{}", node.short_id()),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} to {}", self.server, self.tools, self.to)
    }
}
