//! Named sets of servers and tools (decision 51). A set narrows what grants and default policies allow, and never
//! widens it: it is checked first, and what it excludes is denied in any case.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use mgp_protocol::ids::{AgentId, ServerId, SetName};

use super::{Audience, GrantTable, Principal};

/// The contents of a set. Tools have their servers' own names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ToolSet {
    /// Servers included as a whole: with prompts, resources and events.
    pub servers: BTreeSet<ServerId>,
    /// Single tools of other servers.
    pub tools: BTreeMap<ServerId, BTreeSet<String>>,
    /// Tools that are excluded in any case.
    pub except: BTreeMap<ServerId, BTreeSet<String>>,
}

impl ToolSet {
    /// Whether a tool or, without one, the server as a whole is in it.
    #[must_use]
    pub fn contains(&self, server: &ServerId, tool: Option<&str>) -> bool {
        let whole = self.servers.contains(server);
        let Some(tool) = tool else {
            return whole;
        };
        let named = |of: &BTreeMap<ServerId, BTreeSet<String>>| {
            of.get(server).is_some_and(|tools| tools.contains(tool))
        };
        (whole || named(&self.tools)) && !named(&self.except)
    }
}

/// The configured sets, and the agents assigned to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolSets {
    /// By name.
    pub by_name: BTreeMap<SetName, Arc<ToolSet>>,
    /// Agents that are limited to a set at every endpoint. An agent assigned to a set that does not exist has no
    /// access.
    pub by_agent: HashMap<AgentId, SetName>,
}

impl ToolSets {
    fn get(&self, name: &SetName) -> Option<&Arc<ToolSet>> {
        self.by_name.get(name)
    }

    /// The sets that narrow a caller: that of its endpoint, and the assigned one.
    fn sets_for<'a>(
        &'a self,
        principal: &'a Principal,
    ) -> impl Iterator<Item = (SetSource, &'a SetName)> {
        let door = principal.set().map(|name| (SetSource::Endpoint, name));
        let held = principal.agent().and_then(|agent| self.by_agent.get(agent));
        door.into_iter()
            .chain(held.map(|name| (SetSource::Assignment, name)))
    }
}

/// Why a set applies to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetSource {
    /// The caller uses the set's endpoint.
    #[error("it is not in the set of this door")]
    Endpoint,
    /// The caller is assigned to the set.
    #[error("it is not in the set that the agent is held to")]
    Assignment,
}

impl GrantTable {
    /// The table with other sets.
    #[must_use]
    pub fn with_sets(&self, sets: Arc<ToolSets>, generation: u64) -> Self {
        Self {
            sets,
            generation,
            ..self.clone()
        }
    }

    /// The sets.
    #[must_use]
    pub fn sets(&self) -> &Arc<ToolSets> {
        &self.sets
    }

    /// Whether the caller may use the endpoint of this set: the set exists, and the caller is not assigned to another
    /// one.
    #[must_use]
    pub fn can_use_set(&self, principal: &Principal, set: &SetName) -> bool {
        let held = principal
            .agent()
            .and_then(|agent| self.sets.by_agent.get(agent));
        self.sets.by_name.contains_key(set) && held.is_none_or(|held| held == set)
    }

    /// Whether any set narrows this caller.
    #[must_use]
    pub fn is_in_any_set(&self, principal: &Principal) -> bool {
        self.sets.sets_for(principal).next().is_some()
    }

    /// The set that excludes this for the caller, and why it applies; `None` where none does. Two lookups for a
    /// caller in a set, one where any agent is assigned to one, and none otherwise.
    #[must_use]
    pub fn excluding_set<'a>(
        &'a self,
        principal: &'a Principal,
        server: &ServerId,
        tool: Option<&str>,
    ) -> Option<(SetSource, &'a SetName)> {
        self.sets.sets_for(principal).find(|(_, name)| {
            let set = self.sets.get(name);
            set.is_none_or(|set| !set.contains(server, tool))
        })
    }

    /// The tools of this server that the caller's sets name individually, from the first set that includes it.
    pub(super) fn tools_in_sets<'a>(
        &'a self,
        principal: &Principal,
        server: &ServerId,
    ) -> impl Iterator<Item = &'a str> + use<'a> {
        let of = |name: &SetName| self.sets.get(name)?.tools.get(server);
        let mut sets = self.sets.sets_for(principal);
        let tools = sets.find_map(|(_, name)| of(name));
        tools.into_iter().flatten().map(String::as_str)
    }

    /// Narrows the audience `base` by the caller's sets. Sets are compared by content, so that a list change is
    /// reported only where the list may have changed.
    pub(super) fn narrow_audience(&self, principal: &Principal, base: Audience) -> Audience {
        let sets = self.sets.sets_for(principal);
        let sets = sets.map(|(_, name)| self.sets.get(name).cloned().unwrap_or_default());
        sets.fold(base, |base, set| Audience::InSet(Box::new(base), set))
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::ids::NodeId;
    use mgp_protocol::mgp::access::{DefaultPolicy, Permission};
    use proptest::prelude::*;

    use super::*;
    use crate::policy::access::DefaultPolicies;
    use crate::policy::grants::{Authority, Grants};

    fn id(text: &str) -> ServerId {
        ServerId::new(text)
    }

    fn name(text: &str) -> SetName {
        SetName::parse(text).unwrap()
    }

    fn tools(of: &[(&str, &str)]) -> BTreeMap<ServerId, BTreeSet<String>> {
        let mut all: BTreeMap<ServerId, BTreeSet<String>> = BTreeMap::new();
        for (server, tool) in of {
            all.entry(id(server)).or_default().insert((*tool).into());
        }
        all
    }

    fn reading() -> ToolSet {
        ToolSet {
            servers: [id("files")].into(),
            tools: tools(&[("git", "log")]),
            except: tools(&[("files", "delete")]),
        }
    }

    fn table(policy: DefaultPolicy, sets: ToolSets) -> GrantTable {
        let defaults = DefaultPolicies {
            kernel: policy,
            servers: HashMap::new(),
            group: None,
        };
        let authority = Authority::with_local_issuer(NodeId([1; 32]));
        GrantTable::build(&Grants::default(), &authority, defaults, 0, 1)
            .with_sets(Arc::new(sets), 2)
    }

    fn sets() -> ToolSets {
        ToolSets {
            by_name: [
                (name("reading"), Arc::new(reading())),
                (
                    name("git"),
                    Arc::new(ToolSet {
                        servers: [id("git")].into(),
                        ..ToolSet::default()
                    }),
                ),
            ]
            .into(),
            by_agent: [
                (AgentId::new("agent.held"), name("reading")),
                (AgentId::new("agent.lost"), name("gone")),
            ]
            .into(),
        }
    }

    fn agent(text: &str) -> Principal {
        Principal::Agent(AgentId::new(text))
    }

    fn at(text: &str, set: &str) -> Principal {
        Principal::InSet(AgentId::new(text), name(set))
    }

    /// Decision 51: what a set leaves out is closed at its door, and at every door to who is held to it.
    #[test]
    fn a_set_has_whole_servers_and_single_tools() {
        let table = table(DefaultPolicy::OptOut, sets());
        for who in [agent("agent.held"), at("agent.free", "reading")] {
            let may = |server, tool| table.is_allowed(&who, &id(server), tool, 0);
            assert!(may("files", None) && may("files", Some("read")) && may("git", Some("log")));
            assert!(!may("files", Some("delete")), "an exception counts");
            assert!(!may("git", None) && !may("git", Some("push")) && !may("other", Some("log")));
            let sees = |server| table.is_server_visible(&who, &id(server), 0);
            assert!(sees("files") && sees("git") && !sees("other"));
            assert!(table.named_tools(&who, &id("git")).eq(["log"]));
        }
        // Both count where there are two.
        let both = at("agent.held", "git");
        assert!(table.is_allowed(&both, &id("git"), Some("log"), 0));
        assert!(!table.is_allowed(&both, &id("git"), Some("push"), 0));
        assert!(!table.is_allowed(&both, &id("files"), None, 0));
        // The log says which of them left it out.
        let rule =
            |who: &Principal, server| table.decide(who, &id(server), None, 0).describe_rule();
        assert_eq!(rule(&both, "files"), SetSource::Endpoint.to_string());
        assert_eq!(
            rule(&agent("agent.held"), "git"),
            SetSource::Assignment.to_string()
        );
    }

    /// Decision 51: a name that leads nowhere opens nothing.
    #[test]
    fn who_is_held_to_a_set_that_is_not_there_has_nothing() {
        let table = table(DefaultPolicy::OptOut, sets());
        for who in [agent("agent.lost"), at("agent.free", "gone")] {
            assert!(!table.is_allowed(&who, &id("files"), Some("read"), 0));
            assert!(
                !table.is_server_visible(&who, &id("files"), 0)
                    && !table.is_server_open(&who, &id("files"), 0)
            );
        }
        let free = agent("agent.free");
        assert!(table.can_use_set(&free, &name("git")) && !table.can_use_set(&free, &name("gone")));
        let held = agent("agent.held");
        assert!(
            table.can_use_set(&held, &name("reading")) && !table.can_use_set(&held, &name("git"))
        );
    }

    /// Who is in a set or held to one, also to one that is not there; and a table with other sets is another one.
    #[test]
    fn callers_are_narrowed_by_their_door_or_by_what_they_are_held_to() {
        let table = table(DefaultPolicy::OptOut, sets());
        assert_eq!((table.generation(), &**table.sets()), (2, &sets()));
        let narrowed = ["agent.held", "agent.lost"].map(agent);
        assert!(narrowed.iter().all(|who| table.is_in_any_set(who)));
        assert!(table.is_in_any_set(&at("agent.free", "git")));
        assert!(!table.is_in_any_set(&agent("agent.free")));
        assert!(!table.is_in_any_set(&Principal::Operator("admin".into())));
    }

    /// A list is told to have changed where the set did, and not for the others.
    #[test]
    fn an_audience_is_told_apart_by_what_its_sets_have() {
        let before = table(DefaultPolicy::OptOut, sets());
        let mut other = sets();
        other.by_name.insert(name("git"), Arc::new(reading()));
        let after = before.with_sets(Arc::new(other), 3);
        let same = |who: &Principal| before.audience(who) == after.audience(who);
        assert!(same(&agent("agent.free")) && same(&agent("agent.held")));
        assert!(same(&at("agent.free", "reading")) && !same(&at("agent.free", "git")));
        assert!(!same(&at("agent.held", "git")));
        assert_ne!(before.audience(&agent("agent.held")), Audience::All);
    }

    proptest! {
        /// Decision 51: whatever a set has, nothing is open with it that is closed without it.
        #[test]
        fn a_set_never_widens(
            servers in prop::collection::btree_set("[abc]", 0..3),
            of in prop::collection::vec(("[abc]", "[xyz]"), 0..4),
            except in prop::collection::vec(("[abc]", "[xyz]"), 0..4),
            server in "[abcd]",
            tool in prop::option::of("[xyz]"),
            open in any::<bool>(),
        ) {
            let pairs = |of: &[(String, String)]| {
                let of: Vec<(&str, &str)> = of.iter().map(|(s, t)| (&**s, &**t)).collect();
                tools(&of)
            };
            let set = ToolSet {
                servers: servers.iter().map(|s| id(s)).collect(),
                tools: pairs(&of),
                except: pairs(&except),
            };
            let policy = match open {
                true => DefaultPolicy::OptOut,
                false => DefaultPolicy::OptIn,
            };
            let one = ToolSets {
                by_name: [(name("s"), Arc::new(set.clone()))].into(),
                by_agent: [(AgentId::new("agent.held"), name("s"))].into(),
            };
            let table = table(policy, one);
            let free = table.decide(&agent("agent.free"), &id(&server), tool.as_deref(), 0);
            for who in [agent("agent.held"), at("agent.free", "s")] {
                let narrowed = table.decide(&who, &id(&server), tool.as_deref(), 0);
                let want = free.permission == Permission::Allow && set.contains(&id(&server), tool.as_deref());
                prop_assert_eq!(narrowed.permission == Permission::Allow, want);
                prop_assert_eq!(table.lease(&narrowed).is_some(), want);
            }
        }
    }
}
