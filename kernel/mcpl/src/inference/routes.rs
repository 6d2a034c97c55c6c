//! Who answers the inferences of a server: rules by server and set, pins by conversation, and else nobody (MCPL §11.5).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use mgp_protocol::ids::{AgentId, ServerId};

/// Who answers an inference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// Nobody: it is refused.
    #[default]
    Nowhere,
    /// Any connected agent that offers inference and sees the server.
    AnyAgent,
    /// This agent.
    Agent(AgentId),
    /// The client of this agent is asked by `sampling/createMessage`, and so its person.
    Sampling(AgentId),
    /// A provider of the configuration.
    Provider(Arc<str>),
}

/// No destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is none of \"none\", \"agent\", \"agent:NAME\", \"sampling:AGENT\" and \"provider:NAME\""
)]
pub struct NoDestination(pub String);

impl Destination {
    /// Reads what a person wrote.
    ///
    /// # Errors
    /// [`NoDestination`].
    pub fn parse(text: &str) -> Result<Self, NoDestination> {
        let none = || NoDestination(text.to_owned());
        let agent = |name: &str| {
            let own = [AgentId::LOCAL, AgentId::ANONYMOUS];
            let own = own.into_iter().find(|own| *own == name);
            own.map_or_else(|| AgentId::parse(name).ok(), |own| Some(AgentId::new(own)))
        };
        match text.split_once(':') {
            None if text == "none" => Ok(Self::Nowhere),
            None if text == "agent" => Ok(Self::AnyAgent),
            Some(("agent", name)) => agent(name).map(Self::Agent).ok_or_else(none),
            Some(("sampling", name)) => agent(name).map(Self::Sampling).ok_or_else(none),
            Some(("provider", name)) if !name.is_empty() => Ok(Self::Provider(name.into())),
            Some(_) | None => Err(none()),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("none"),
            Self::AnyAgent => f.write_str("agent"),
            Self::Agent(agent) => write!(f, "agent:{agent}"),
            Self::Sampling(agent) => write!(f, "sampling:{agent}"),
            Self::Provider(name) => write!(f, "provider:{name}"),
        }
    }
}

/// The sets of a rule: a server or any, and a name or the beginning of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    /// `None` for any.
    server: Option<ServerId>,
    /// The whole name, or what stands before the star.
    set: String,
    /// All names that begin so.
    wild: bool,
}

impl RouteKey {
    /// Reads `SERVER:SET`; `*` for any server, `memory.*` for all sets of that beginning, `*` for all.
    ///
    /// # Errors
    /// In words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wants = || format!("{text:?} is no \"SERVER:SET\"");
        let (server, set) = text.split_once(':').ok_or_else(wants)?;
        let server = match server {
            "*" => None,
            // Instances of a server are held to its rules.
            named => Some(ServerId::parse_of_any_node(named).map_err(|e| e.to_string())?),
        };
        let (set, wild) = match set.strip_suffix('*') {
            Some("") => ("", true),
            // `memory*` would mean `memory2.x`, too, which nobody expects of dotted names.
            Some(before) if before.ends_with('.') => (before, true),
            Some(_) => return Err(format!("{text:?}: a star stands alone or after a dot")),
            None => (set, false),
        };
        match set.contains('*') || (set.is_empty() && !wild) {
            true => Err(wants()),
            false => Ok(Self {
                server,
                set: set.to_owned(),
                wild,
            }),
        }
    }

    fn covers(&self, server: &ServerId, set: &str) -> bool {
        let named = self.server.as_ref().is_none_or(|named| named == server);
        named
            && match self.wild {
                true => set.starts_with(&self.set),
                false => set == self.set,
            }
    }

    /// A higher one goes first: the server by name, then the whole name of the set, then the longer beginning.
    fn weight(&self) -> (bool, bool, usize) {
        (self.server.is_some(), !self.wild, self.set.len())
    }
}

/// Who answers whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferenceRoutes {
    /// Where no rule says more: nobody, until the operator says so.
    pub default: Destination,
    /// By server and set.
    pub rules: BTreeMap<RouteKey, Destination>,
    /// By conversation of a server: it goes before all rules.
    pub pins: BTreeMap<(ServerId, String), Destination>,
}

impl InferenceRoutes {
    /// Who answers an inference of this set of a server, or of an instance of it.
    #[must_use]
    pub fn route(&self, server: &ServerId, set: &str, conversation: Option<&str>) -> &Destination {
        let server = server.server();
        let pinned = conversation.and_then(|id| self.pins.get(&(server.clone(), id.to_owned())));
        let ruled = || {
            let covering = self
                .rules
                .iter()
                .filter(|(key, _)| key.covers(&server, set));
            let best = covering.max_by_key(|(key, _)| key.weight());
            best.map(|(_, destination)| destination)
        };
        pinned.or_else(ruled).unwrap_or(&self.default)
    }

    /// Every destination that is named, for a check of the configuration.
    pub fn destinations(&self) -> impl Iterator<Item = &Destination> {
        let rules = self.rules.values().chain(self.pins.values());
        rules.chain([&self.default])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(text: &str) -> Destination {
        Destination::parse(text).unwrap()
    }

    fn routes() -> InferenceRoutes {
        let rule = |key: &str, text: &str| (RouteKey::parse(key).unwrap(), to(text));
        InferenceRoutes {
            default: Destination::Nowhere,
            rules: [
                rule("memory:memory.consolidation", "provider:small"),
                rule("memory:memory.*", "provider:wild"),
                rule("memory:memory.deep.*", "provider:deep"),
                rule("*:compliance.redaction", "provider:big"),
                rule("*:memory.*", "agent"),
                rule("notes:*", "agent:agent.alice"),
            ]
            .into(),
            pins: [(
                (ServerId::new("memory"), "conv_123".to_owned()),
                to("provider:big"),
            )]
            .into(),
        }
    }

    /// MCPL-106: the key is (server, set); a pin goes before a name, a name before a wildcard, a longer one before a
    /// shorter one, and what nobody named goes nowhere.
    #[test]
    fn the_policy_table() {
        let routes = routes();
        for (server, set, conversation, goes) in [
            ("memory", "memory.consolidation", None, "provider:small"),
            (
                "memory",
                "memory.consolidation",
                Some("conv_9"),
                "provider:small",
            ),
            (
                "memory",
                "memory.consolidation",
                Some("conv_123"),
                "provider:big",
            ),
            ("memory", "memory.other", None, "provider:wild"),
            ("memory", "memory.deep.x", None, "provider:deep"),
            ("memory", "memory", None, "none"),
            ("memory", "memoryx.a", None, "none"),
            ("memory", "Memory.other", None, "none"),
            ("other", "memory.x", None, "agent"),
            ("other", "compliance.redaction", None, "provider:big"),
            ("other", "x", None, "none"),
            // A conversation is pinned for the server that names it so, and for no other.
            ("other", "memory.x", Some("conv_123"), "agent"),
            ("notes", "anything", None, "agent:agent.alice"),
            // Named by its server, a wildcard goes before the whole name for any server.
            ("notes", "compliance.redaction", None, "agent:agent.alice"),
        ] {
            let found = routes.route(&ServerId::new(server), set, conversation);
            assert_eq!(found.to_string(), goes, "{server}:{set} {conversation:?}");
        }
        let instance = ServerId::new("memory").instance("agent.bob");
        let found = routes.route(&instance, "memory.consolidation", None);
        assert_eq!(found.to_string(), "provider:small");
    }

    /// MCPL-106: nothing is answered until the operator says by whom.
    #[test]
    fn without_rules_nobody_answers() {
        let none = InferenceRoutes::default();
        let found = none.route(&ServerId::new("memory"), "memory.x", Some("conv"));
        assert_eq!(*found, Destination::Nowhere);
    }

    #[test]
    fn what_is_no_key_or_destination_is_refused() {
        for bad in [
            "memory",
            ":x",
            "memory:",
            "memory:a*",
            "memory:*.a",
            "memory:a.*.b",
            "m m:x",
        ] {
            assert!(RouteKey::parse(bad).is_err(), "{bad}");
        }
        for bad in [
            "",
            "None",
            "provider:",
            "provider",
            "agent:",
            "sampling",
            "model:x",
            "agent:a b",
        ] {
            assert!(Destination::parse(bad).is_err(), "{bad}");
        }
        for good in [
            "none",
            "agent",
            "agent:agent.a",
            "sampling:agent.a",
            "provider:x",
        ] {
            assert_eq!(to(good).to_string(), good);
        }
        assert_eq!(to("agent:alice"), to("agent:agent.alice"));
    }
}
