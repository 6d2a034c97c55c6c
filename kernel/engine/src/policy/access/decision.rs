//! What was decided about a call, why, and what its caller is told of it.

use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::access::{Permission, Source, Standing};

use super::{AccessEntry, Narrowing};
use crate::timestamps::rfc3339_ms;

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
    pub closed: Option<ForeignClosed>,
    /// Which set leaves it out, where one does.
    pub narrowed: Option<Narrowing>,
}

/// Why something is closed to an agent of another node, beside the grants that deny it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignClosed {
    /// Its node is not in the cluster, or this one is not.
    #[error("the agent's node is not in the cluster")]
    NotIn,
    /// Nothing allows it.
    #[error("no grant allows it, and no default policy applies to agents of other nodes")]
    NotGranted,
    /// It is granted, and not shared.
    #[error("a grant allows it, and it is not shared with the agent's node")]
    NotShared,
    /// Somebody who could have taken it back was not heard within the lease.
    #[error("a grant allows it, and node {} could have taken that back and was not heard for too long", .0.short())]
    Lapsed(NodeId),
    /// The logs of this node's cluster lack something that they held.
    #[error(
        "a grant allows it, and the logs of the cluster lack entries here that may have taken that back; `mgp cluster status` at the node that owns the server says what to do"
    )]
    Shortened,
}

impl AccessDecision<'_> {
    /// The deciding level, for the log.
    #[must_use]
    pub fn rule(&self) -> String {
        if let Some(closed) = self.closed {
            return closed.to_string();
        }
        if let Some(narrowed) = self.narrowed {
            return narrowed.to_string();
        }
        let verb = match self.permission {
            Permission::Allow => "allows",
            Permission::Deny => "denies",
        };
        match (self.source, self.entry) {
            (Source::ToolGrant, Some(entry)) => format!("{} {verb} the tool", entry.named()),
            (_, Some(entry)) => format!("{} {verb} the whole server", entry.named()),
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
    pub fn standing(&self) -> Standing {
        Standing {
            permission: self.permission,
            source: self.source,
            granted_by: self.entry.map(|entry| entry.by.to_string()),
            granted_at: self.entry.map(|entry| rfc3339_ms(entry.at_ms)),
            expires_at: self
                .entry
                .and_then(|entry| entry.not_after_ms)
                .map(rfc3339_ms),
        }
    }
}

/// The answer of `mgp/access/query` to an agent about a tool denied to it. It is the same for a tool that
/// does not exist, so that nothing is learned by asking.
#[must_use]
pub fn hidden() -> Standing {
    Standing {
        permission: Permission::Deny,
        source: Source::DefaultPolicy,
        granted_by: None,
        granted_at: None,
        expires_at: None,
    }
}

/// How a call of a denied tool is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DenialAnswer {
    /// Exactly as for a tool that does not exist.
    Unknown,
    /// 1001 ACCESS_DENIED (§14).
    Denied,
}

/// The answer to the caller of a denied tool. It is told of the denial only if it agreed to
/// `access_control` (`agreed`). The operator can hide denials (`reveal` is false), except where the caller
/// was shown the tool before (`shown`), for instance when a grant was revoked while a call waited.
#[must_use]
pub fn told(agreed: bool, shown: bool, reveal: bool) -> DenialAnswer {
    if agreed && (shown || reveal) {
        DenialAnswer::Denied
    } else {
        DenialAnswer::Unknown
    }
}
