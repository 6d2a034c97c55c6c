//! The decision about a call, its reason, and the answer to its caller.

use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::access::{AccessStatus, Permission, Source};

use super::{AccessEntry, SetSource};
use crate::clock::MonotonicTime;
use crate::timestamps::render_rfc3339_ms;

/// A decision and its basis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessDecision<'a> {
    /// Allow or deny, whatever the arguments are.
    pub permission: Permission,
    /// Which level decided.
    pub(crate) source: Source,
    /// The entry, if one decided.
    pub entry: Option<&'a AccessEntry>,
    /// True for a caller of another node.
    pub(crate) foreign: bool,
    /// Why a remote caller is denied, where no entry does it.
    pub foreign_denial: Option<ForeignDenial>,
    /// The set that excludes it, if any.
    pub(crate) narrowing: Option<SetSource>,
    /// It denies a call of a tool unless one of the [conditions](super::GrantTable::conditions) holds.
    pub is_conditional: bool,
}

/// Why an agent of another node is denied, besides denying grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignDenial {
    /// Its node or this one is not in the cluster.
    #[error("the agent's node is not in the cluster")]
    NotMember,
    /// Nothing allows it.
    #[error("no grant allows it, and no default policy applies to agents of other nodes")]
    NotGranted,
    /// It is granted, but not shared.
    #[error("a grant allows it, and it is not shared with the agent's node")]
    NotShared,
    /// The lease of a node that could have revoked the grant has expired.
    #[error("a grant allows it, and the lease of node {}, which could have taken that back, has lapsed", .0.node.short_id())]
    LeaseExpired(ExpiredLease),
    /// The logs of this node's cluster lack entries that they once contained.
    #[error(
        "a grant allows it, and the logs of the cluster lack entries here that may have taken that back; `mgp cluster status` at the node that owns the server says what to do"
    )]
    LogsIncomplete,
}

/// The node whose lease has expired, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiredLease {
    /// The node that could revoke grants.
    pub node: NodeId,
    /// The cause.
    pub(crate) cause: LeaseExpiryCause,
}

/// Why a lease has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseExpiryCause {
    /// No message of the node arrived within the lease, which ended then.
    TimedOut(MonotonicTime),
    /// No message arrived since this node started.
    NeverHeard,
    /// It was cut off, and not all operations that it signed before are known here.
    CutOff,
}

impl ExpiredLease {
    /// Describes the cause for the refused caller. `name` is the name of the node.
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
    /// Describes the rule, with a lease as [`ExpiredLease::describe`] does.
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
    /// The decision by an entry: one with a condition denies what is not evaluated, and all that is no call of a tool.
    pub(super) fn with_condition(self, tool: Option<&str>) -> Self {
        let Some(entry) = self.entry.filter(|entry| entry.condition.is_some()) else {
            return self;
        };
        Self {
            permission: Permission::Deny,
            is_conditional: tool.is_some() && entry.has_condition(),
            ..self
        }
    }

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
        if let Some(entry) = self.entry.filter(|entry| entry.condition.is_some()) {
            return format!("{} allows calls of tools on a condition", entry.describe());
        }
        match (self.source, self.entry) {
            (Source::ToolGrant, Some(entry)) => format!("{} {verb} the tool", entry.describe()),
            (_, Some(entry)) => format!("{} {verb} the whole server", entry.describe()),
            (_, None) => format!("the default policy {verb} it"),
        }
    }

    /// True when access to exactly this was granted, as dangerous tools require (§4.4); of a call whose conditions hold.
    #[must_use]
    pub fn is_explicit_allow(&self) -> bool {
        (self.permission == Permission::Allow || self.is_conditional)
            && self.source != Source::DefaultPolicy
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
            when: None,
        }
    }
}

/// The answer of `mgp/access/query` to an agent about a tool denied to it. It is the same for a tool that does not
/// exist, so that probing reveals nothing.
#[must_use]
pub fn hidden_query_response() -> AccessStatus {
    AccessStatus {
        permission: Permission::Deny,
        source: Source::DefaultPolicy,
        granted_by: None,
        granted_at: None,
        expires_at: None,
        when: None,
    }
}

/// The answer to a call of a denied tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DenialResponse {
    /// Exactly as for a tool that does not exist.
    Unknown,
    /// 1001 ACCESS_DENIED (§14).
    Denied,
}

/// The answer to the caller of a denied tool. It includes the denial only if the caller negotiated `access_control`
/// (`agreed`). The operator can hide denials (`reveal` is false), except where the caller saw the tool before
/// (`shown`), for instance when a grant was revoked while a call waited.
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
