//! Collects the names of agents, servers and tools from their stores, for the engine's [`NameResolver`] to resolve
//! what a user wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use mgp_engine::doors::name_resolver::{NameError, NameResolver, ResolvedName, UnavailableNode};
use mgp_engine::node_names::NodeNames;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::ids::{AgentId, GroupName, NodeId};
use mgp_protocol::refusal::Refusal;

use crate::skill_table::SkillTable;
use mgp_callers::{Directory, RegisteredAgents};
use mgp_policy::AccessHandle;
use mgp_servers::ServerTable;

/// Where the names are kept.
#[derive(Clone, Debug)]
pub struct NameSources {
    /// All servers.
    pub servers: Arc<ServerTable>,
    /// Agents with a token.
    pub registered_agents: RegisteredAgents,
    /// Agents that are signed in at the identity provider.
    pub signed_in: SignedInAgents,
    /// Connected agents.
    pub directory: Arc<Directory>,
    /// Agents that have grants or denials.
    pub access: AccessHandle,
    /// Agents that the configuration names.
    pub configured: BTreeSet<AgentId>,
    /// Groups that the configuration names, each with the issuer's groups that give it.
    pub configured_groups: BTreeMap<GroupName, Vec<String>>,
    /// The skills of servers, which grants name as they do tools.
    pub skills: Arc<SkillTable>,
    /// The nodes of the cluster.
    pub nodes: NodeNaming,
}

/// The nodes of the cluster at the moment.
#[derive(Clone, Debug, Default)]
pub struct ClusterNames {
    /// What the others are called.
    pub others: NodeNames,
    /// What this one is called, where it is in a cluster.
    pub local_name: Option<NodeName>,
    /// Those that are away.
    pub unavailable: BTreeMap<NodeId, UnavailableNode>,
    /// The linked ones that do not read grants with patterns.
    pub without_patterns: Vec<NodeId>,
    /// The linked ones that do not read grants with conditions.
    pub without_conditions: Vec<NodeId>,
    /// The linked ones that do not read grants with groups.
    pub without_groups: Vec<NodeId>,
}

/// Tells what nodes are called at the moment.
#[derive(Clone)]
pub struct NodeNaming(Arc<dyn Fn() -> ClusterNames + Send + Sync>);

/// Tells who is signed in at the moment.
#[derive(Clone)]
pub struct SignedInAgents(Arc<dyn Fn() -> Vec<AgentId> + Send + Sync>);

impl SignedInAgents {
    /// Asks `now` each time.
    pub fn new(now: impl Fn() -> Vec<AgentId> + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }
}

impl Default for SignedInAgents {
    /// There is no identity provider.
    fn default() -> Self {
        Self::new(Vec::new)
    }
}

impl fmt::Debug for SignedInAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SignedInAgents").finish_non_exhaustive()
    }
}

impl NodeNaming {
    /// Asks `now` each time.
    pub fn new(now: impl Fn() -> ClusterNames + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// What the other nodes are called.
    #[must_use]
    pub fn others(&self) -> NodeNames {
        (self.0)().others
    }

    /// What the linked nodes are called that do not read grants with patterns.
    #[must_use]
    pub(crate) fn without_patterns(&self) -> Vec<String> {
        let older = (self.0)().without_patterns;
        older.into_iter().map(|node| self.name(node)).collect()
    }

    /// What the linked nodes are called that do not read grants with conditions.
    #[must_use]
    pub(crate) fn without_conditions(&self) -> Vec<String> {
        let older = (self.0)().without_conditions;
        older.into_iter().map(|node| self.name(node)).collect()
    }

    /// What the linked nodes are called that do not read grants with groups.
    #[must_use]
    pub(crate) fn without_groups(&self) -> Vec<String> {
        let older = (self.0)().without_groups;
        older.into_iter().map(|node| self.name(node)).collect()
    }

    /// What another node is called; enough of its id where it has no name here.
    #[must_use]
    pub fn name(&self, node: NodeId) -> String {
        self.others().render(node)
    }
}

impl Default for NodeNaming {
    /// There are no other nodes.
    fn default() -> Self {
        Self::new(Default::default)
    }
}

impl fmt::Debug for NodeNaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeNaming").finish_non_exhaustive()
    }
}

impl NameSources {
    /// All names there are right now.
    #[must_use]
    pub fn name_resolver(&self) -> NameResolver {
        let registered_agents = self
            .registered_agents
            .list()
            .into_iter()
            .map(|(agent, _)| agent);
        let signed_in = (self.signed_in.0)();
        let agents = registered_agents.chain(signed_in);
        let agents = agents.chain(self.directory.ids());
        let servers = self.servers.load();
        let listed = servers.iter().map(|(id, handle)| {
            // Hidden tools have names, too: the configuration and grants may name them.
            let tools = handle.last_offer().map(|_| {
                let tools = handle.tools();
                tools.iter().cloned().chain(self.skills.uris(id)).collect()
            });
            (id.clone(), tools)
        });
        let ClusterNames {
            others,
            local_name: here,
            unavailable: away,
            ..
        } = (self.nodes.0)();
        NameResolver {
            nodes: others,
            local_name: here,
            unavailable: away,
            agents: agents.chain(self.configured.iter().cloned()).collect(),
            granted: Some(self.access.table()),
            servers: listed.collect(),
            groups: self.configured_groups.keys().cloned().collect(),
        }
    }
}

/// The result of reading a name; with `there`, only if it exists.
///
/// # Errors
/// [`Refusal::BadParams`] in the words of [`NameError`].
pub fn require_name<T>(
    meant: Result<ResolvedName<T>, NameError>,
    there: bool,
) -> Result<ResolvedName<T>, Refusal> {
    let meant = if there {
        meant.and_then(ResolvedName::require_existing)
    } else {
        meant
    };
    meant.map_err(|why| Refusal::BadParams(why.to_string()))
}
