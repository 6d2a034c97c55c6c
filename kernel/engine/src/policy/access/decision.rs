//! What was decided about a call, why, and what its caller is told of it.

use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::access::{AccessStatus, Permission, Source};

use super::{AccessEntry, SetSource};
use crate::clock::MonotonicTime;
use crate::timestamps::render_rfc3339_ms;

/// A decision, and what it is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessDecision<'a> {
    /// Allow or deny.
    pub permission: Permission,
    /// Which level decided.
    pub source: Source,
    /// The entry, if one decided.
    pub entry: Option<&'a AccessEntry>,
    /// True for a caller of another node.
    pub foreign: bool,
    /// Why it is closed to one, where no entry denies it.
    pub foreign_denial: Option<ForeignDenial>,
    /// Which set leaves it out, where one does.
    pub narrowing: Option<SetSource>,
}

/// Why something is closed to an agent of another node, beside the grants that deny it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignDenial {
    /// Its node is not in the cluster, or this one is not.
    #[error("the agent's node is not in the cluster")]
    NotMember,
    /// Nothing allows it.
    #[error("no grant allows it, and no default policy applies to agents of other nodes")]
    NotGranted,
    /// It is granted, and not shared.
    #[error("a grant allows it, and it is not shared with the agent's node")]
    NotShared,
    /// The lease of somebody who could have taken it back has lapsed.
    #[error("a grant allows it, and the lease of node {}, which could have taken that back, has lapsed", .0.node.short_id())]
    LeaseExpired(ExpiredLease),
    /// The logs of this node's cluster lack something that they held.
    #[error(
        "a grant allows it, and the logs of the cluster lack entries here that may have taken that back; `mgp cluster status` at the node that owns the server says what to do"
    )]
    LogsIncomplete,
}

/// Whose lease has lapsed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiredLease {
    /// The node that could take grants back.
    pub node: NodeId,
    /// What happened.
    pub cause: LeaseExpiryCause,
}

/// Why a lease has lapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseExpiryCause {
    /// The node was not heard within the lease, which ended then.
    TimedOut(MonotonicTime),
    /// It was not heard since this node started.
    NeverHeard,
    /// It was cut off, and not all that it signed before is known here.
    CutOff,
}

impl ExpiredLease {
    /// The cause, for who is refused. `name` is what the node is called.
    #[must_use]
    pub fn describe(&self, name: &str, now: MonotonicTime) -> String {
        match self.cause {
            LeaseExpiryCause::TimedOut(end) => {
                let ago = now.duration_since(end).as_secs();
                format!("the lease of {name} lapsed {ago} s ago")
            }
            LeaseExpiryCause::NeverHeard => {
                format!("{name} is away: it was not heard since this node started")
            }
            LeaseExpiryCause::CutOff => format!(
                "{name} was cut off, and a part of what it signed before has not arrived here yet"
            ),
        }
    }
}

impl ForeignDenial {
    /// The rule, with a lease in the words of [`ExpiredLease::describe`].
    #[must_use]
    pub fn describe(&self, name: impl FnOnce(NodeId) -> String, now: MonotonicTime) -> String {
        match self {
            Self::LeaseExpired(lapsed) => {
                let why = lapsed.describe(&name(lapsed.node), now);
                format!("a grant allows it, and {why}")
            }
            Self::NotMember | Self::NotGranted | Self::NotShared | Self::LogsIncomplete => {
                self.to_string()
            }
        }
    }
}

impl AccessDecision<'_> {
    /// The deciding level, for the log.
    #[must_use]
    pub fn describe_rule(&self) -> String {
        if let Some(closed) = self.foreign_denial {
            return closed.to_string();
        }
        if let Some(narrowed) = self.narrowing {
            return narrowed.to_string();
        }
        let verb = match self.permission {
            Permission::Allow => "allows",
            Permission::Deny => "denies",
        };
        match (self.source, self.entry) {
            (Source::ToolGrant, Some(entry)) => format!("{} {verb} the tool", entry.describe()),
            (_, Some(entry)) => format!("{} {verb} the whole server", entry.describe()),
            (_, None) => format!("the default policy {verb} it"),
        }
    }

    /// True when somebody allowed exactly this, as dangerous tools require (§4.4).
    #[must_use]
    pub fn is_explicit_allow(&self) -> bool {
        self.permission == Permission::Allow && self.source != Source::DefaultPolicy
    }

    /// The answer of `mgp/access/query`.
    #[must_use]
    pub fn to_query_response(&self) -> AccessStatus {
        AccessStatus {
            permission: self.permission,
            source: self.source,
            granted_by: self.entry.map(|entry| entry.decided_by.to_string()),
            granted_at: self.entry.map(|entry| render_rfc3339_ms(entry.decided_ms)),
            expires_at: self
                .entry
                .and_then(|entry| entry.not_after_ms)
                .map(render_rfc3339_ms),
        }
    }
}

/// The answer of `mgp/access/query` to an agent about a tool denied to it. It is the same for a tool that
/// does not exist, so that nothing is learned by asking.
#[must_use]
pub fn hidden_query_response() -> AccessStatus {
    AccessStatus {
        permission: Permission::Deny,
        source: Source::DefaultPolicy,
        granted_by: None,
        granted_at: None,
        expires_at: None,
    }
}

/// How a call of a denied tool is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DenialResponse {
    /// Exactly as for a tool that does not exist.
    Unknown,
    /// 1001 ACCESS_DENIED (§14).
    Denied,
}

/// The answer to the caller of a denied tool. It is told of the denial only if it agreed to
/// `access_control` (`agreed`). The operator can hide denials (`reveal` is false), except where the caller
/// was shown the tool before (`shown`), for instance when a grant was revoked while a call waited.
#[must_use]
pub fn denial_response(agreed: bool, shown: bool, reveal: bool) -> DenialResponse {
    if agreed && (shown || reveal) {
        DenialResponse::Denied
    } else {
        DenialResponse::Unknown
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Who is refused reads what happened, and never that a grant is missing.
    #[test]
    fn a_lapse_names_the_node_and_what_became_of_it() {
        let at = |seconds| MonotonicTime::new(Duration::from_secs(seconds));
        for (cause, words) in [
            (
                LeaseExpiryCause::TimedOut(at(30)),
                "the lease of nas lapsed 12 s ago",
            ),
            (LeaseExpiryCause::NeverHeard, "nas is away"),
            (LeaseExpiryCause::CutOff, "nas was cut off"),
        ] {
            let by = NodeId([1; 32]);
            let closed = ForeignDenial::LeaseExpired(ExpiredLease { node: by, cause });
            let told = closed.describe(|_| "nas".to_owned(), at(42));
            assert!(told.contains(words), "{told}");
            assert!(!told.contains("no grant"), "{told}");
        }
        let name = |_| unreachable!("no node is named");
        let told = ForeignDenial::NotGranted.describe(name, at(0));
        assert!(told.contains("no grant allows it"), "{told}");
    }
}
