//! Users who may connect to the socket: its owner, and the users who are agents by configuration.

use std::collections::{BTreeMap, HashMap};

use mgp_protocol::ids::AgentId;
use nix::unistd::{User, geteuid};

/// Users by uid.
#[derive(Debug, Clone)]
pub(super) struct SocketUsers {
    owner: u32,
    agents: HashMap<u32, AgentId>,
}

/// A user who may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SocketPeer {
    /// The kernel's own user: the operator.
    Owner,
    /// Another user.
    Agent(AgentId),
}

impl SocketUsers {
    /// Looks up the named users.
    ///
    /// # Errors
    /// Describes the problem: an unknown user, or the owner, who is the operator already.
    pub(super) fn resolve(named: &BTreeMap<String, AgentId>) -> Result<Self, String> {
        let owner = geteuid().as_raw();
        let mut agents = HashMap::new();
        for (name, agent) in named {
            let uid = parse_uid(name).ok_or_else(|| {
                format!("`users` in [socket] names {name:?}, and this machine has no such user")
            })?;
            if uid == owner {
                return Err(format!(
                    "`users` in [socket] names {name:?}, who runs this kernel and is its operator"
                ));
            }
            if agents.insert(uid, agent.clone()).is_some() {
                return Err(format!("`users` in [socket] names the user {uid} twice"));
            }
        }
        Ok(Self { owner, agents })
    }

    /// Whether users besides the owner may connect.
    pub(super) fn has_other_users(&self) -> bool {
        !self.agents.is_empty()
    }

    /// `None` for users who may not connect.
    pub(super) fn identify(&self, uid: u32) -> Option<SocketPeer> {
        if uid == self.owner {
            Some(SocketPeer::Owner)
        } else {
            self.agents.get(&uid).cloned().map(SocketPeer::Agent)
        }
    }
}

fn parse_uid(name: &str) -> Option<u32> {
    let named = User::from_name(name).ok().flatten();
    named
        .map(|user| user.uid.as_raw())
        .or_else(|| name.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_and_named_users_may_connect() {
        let own = geteuid().as_raw();
        let (one, other) = (own.wrapping_add(1), own.wrapping_add(2));
        let alice = AgentId::parse("alice").unwrap();
        let named = |name: String| BTreeMap::from([(name, alice.clone())]);
        let users = SocketUsers::resolve(&named(one.to_string())).unwrap();
        assert!(users.has_other_users());
        assert_eq!(users.identify(own), Some(SocketPeer::Owner));
        assert_eq!(users.identify(one), Some(SocketPeer::Agent(alice.clone())));
        assert_eq!(users.identify(other), None);
        assert!(SocketUsers::resolve(&named(own.to_string())).is_err());
        assert!(SocketUsers::resolve(&named("nobody is called so".into())).is_err());
    }
}
