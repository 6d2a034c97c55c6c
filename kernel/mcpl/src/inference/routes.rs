//! Routes inferences of servers: pins by conversation, rules by server and set, else rejection (MCPL §11.5).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use mgp_protocol::ids::{AgentId, ServerId};

use crate::names;

/// The destination of an inference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// None: rejected.
    #[default]
    Nowhere,
    /// Any connected agent that offers inference and sees the server.
    AnyAgent,
    /// This agent.
    Agent(AgentId),
    /// This agent's client, by `sampling/createMessage`, and so its user.
    Sampling(AgentId),
    /// A provider of the configuration.
    Provider(Arc<str>),
}

/// The text is no destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is none of \"none\", \"agent\", \"agent:NAME\", \"sampling:AGENT\" and \"provider:NAME\""
)]
pub struct DestinationError(pub String);

impl Destination {
    /// Parses a destination.
    ///
    /// # Errors
    /// [`DestinationError`].
    pub fn parse(text: &str) -> Result<Self, DestinationError> {
        let none = || DestinationError(text.to_owned());
        let agent = |name: &str| {
            let reserved = [AgentId::LOCAL, AgentId::ANONYMOUS];
            let reserved = reserved.into_iter().find(|reserved| *reserved == name);
            reserved.map_or_else(
                || AgentId::parse(name).ok(),
                |reserved| Some(AgentId::new(reserved)),
            )
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

/// The sets of a rule: `SERVER.SET`, or a prefix of such names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    /// The whole name, or the prefix before the star.
    name: String,
    /// Whether this is a prefix.
    is_prefix: bool,
}

impl RouteKey {
    /// Parses `memory.memory.consolidation`; `memory.memory.*` for all sets with that prefix, `memory.*` for all of a
    /// server.
    ///
    /// # Errors
    /// In words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wants = || format!("{text:?} is no \"SERVER.SET\"");
        let (name, wild) = match text.strip_suffix('*') {
            // `memory.m*` would match `memory.mail`, too, which is unexpected for dotted names.
            Some(before) if before.ends_with('.') => (before, true),
            Some(_) => return Err(format!("{text:?}: a star stands after a dot")),
            None => (text, false),
        };
        let whole = if wild {
            format!("{name}x")
        } else {
            name.to_owned()
        };
        match names::parse_set(&whole) {
            Some(_) if !name.contains('*') => Ok(Self {
                name: name.to_owned(),
                is_prefix: wild,
            }),
            Some(_) | None => Err(wants()),
        }
    }

    fn matches(&self, name: &str) -> bool {
        if self.is_prefix {
            name.starts_with(&self.name)
        } else {
            name == self.name
        }
    }
}

/// The best rule of a set: its exact name, else the longest prefix.
#[must_use]
pub(crate) fn find_best<'a, T>(
    rules: &'a BTreeMap<RouteKey, T>,
    server: &ServerId,
    set: &str,
) -> Option<&'a T> {
    let name = names::set_name(&server.server(), set);
    let covering = rules.iter().filter(|(key, _)| key.matches(&name));
    let best = covering.max_by_key(|(key, _)| (!key.is_prefix, key.name.len()));
    best.map(|(_, rule)| rule)
}

/// Destinations of inferences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferenceRoutes {
    /// Without a rule; rejects by default.
    pub default: Destination,
    /// By server and set.
    pub rules: BTreeMap<RouteKey, Destination>,
    /// By conversation of a server; before all rules.
    pub pins: BTreeMap<(ServerId, String), Destination>,
}

impl InferenceRoutes {
    /// The destination for this set of a server or of its instance.
    #[must_use]
    pub fn route(&self, server: &ServerId, set: &str, conversation: Option<&str>) -> &Destination {
        let pinned = conversation.and_then(|id| self.pins.get(&(server.server(), id.to_owned())));
        let ruled = || find_best(&self.rules, server, set);
        pinned.or_else(ruled).unwrap_or(&self.default)
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
                rule("memory.memory.consolidation", "provider:small"),
                rule("memory.memory.*", "provider:wild"),
                rule("memory.memory.deep.*", "provider:deep"),
                rule("a~b.c", "agent"),
                rule("notes.*", "agent:agent.alice"),
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
            // A pin applies only to the server that names the conversation so.
            ("notes", "memory.x", Some("conv_123"), "agent:agent.alice"),
            ("notes", "anything", None, "agent:agent.alice"),
            // A name of two parts is that of one server and one set, whatever dots they have.
            ("a.b", "c", None, "agent"),
            ("a", "b.c", None, "none"),
            ("notes.a", "x", None, "none"),
        ] {
            let found = routes.route(&ServerId::new(server), set, conversation);
            assert_eq!(found.to_string(), goes, "{server}:{set} {conversation:?}");
        }
        let instance = ServerId::new("memory").instance("agent.bob");
        let found = routes.route(&instance, "memory.consolidation", None);
        assert_eq!(found.to_string(), "provider:small");
    }

    /// MCPL-106: inferences are rejected until the operator configures a destination.
    #[test]
    fn without_rules_nobody_answers() {
        let none = InferenceRoutes::default();
        let found = none.route(&ServerId::new("memory"), "memory.x", Some("conv"));
        assert_eq!(*found, Destination::Nowhere);
    }

    #[test]
    fn invalid_keys_and_destinations_are_rejected() {
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
        for text in [
            "none",
            "agent",
            "agent:agent.a",
            "sampling:agent.a",
            "provider:x",
        ] {
            assert_eq!(to(text).to_string(), text);
        }
        assert_eq!(to("agent:alice"), to("agent:agent.alice"));
    }
}
