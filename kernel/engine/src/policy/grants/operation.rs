//! One operation of a log: what is signed, stored and sent.

use std::collections::BTreeMap;

use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::access::Permission;
use mgp_protocol::mgp::permission::PermissionType;
use serde::{Deserialize, Serialize};

use crate::hex::hex_id;
use crate::node_key::Issuer;

use super::{GRANTS_END, ISSUERS_MAX, SEQUENCE_END};

/// Longest name in an operation, in bytes: agents, servers, tools, permissions, authors.
pub const NAME_MAX: usize = 1024;
/// Longest justification, in bytes.
pub const TEXT_MAX: usize = 4096;
/// Most grants that one operation revokes; [`Revoke::UpTo`] revokes more.
pub const IDS_MAX: usize = 1024;
/// A prefix of the signed bytes, so that a signature is not valid for anything else.
const CONTEXT: &[u8] = b"mgp grants operation v1\0";

hex_id! {
    /// The id of a grant: random, never used twice.
    GrantId, 16
}
hex_id! {
    /// The hash of an operation's bytes.
    OperationId, 32
}

impl OperationId {
    /// The predecessor that the first operation of a log names.
    pub const START: Self = Self([0; 32]);
}

/// A place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogPosition {
    /// Whose log.
    pub issuer: Issuer,
    /// Counted from 0, without gaps.
    pub sequence: u64,
}

/// Who is granted something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// An agent: access to servers and tools (§5).
    Agent(AgentId),
    /// A server: permissions it asked for (§3).
    Server(ServerId),
}

/// What is granted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantResource {
    /// All tools of a server, future ones included.
    Server(ServerId),
    /// One tool, by the server's own name for it.
    Tool(ServerId, String),
    /// A permission type, by its full name.
    Permission(String),
}

impl GrantResource {
    /// A permission type as a resource.
    #[must_use]
    pub fn permission(permission: &PermissionType) -> Self {
        Self::Permission(permission.as_str().to_owned())
    }
}

/// Allows or denies something, until it expires or is revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its id, for revoking it.
    pub id: GrantId,
    /// The subject.
    pub subject: Subject,
    /// The resource.
    pub resource: GrantResource,
    /// Allow or deny.
    pub permission: Permission,
    /// When it expires, in milliseconds since 1970.
    pub not_after_ms: Option<u64>,
    /// Who decided, as the author tells it; the author is who counts.
    pub told_by: Option<String>,
    /// The reason given.
    pub justification: Option<String>,
    /// Grants that this one replaces, in the same step.
    pub replaces: Vec<GrantId>,
}

/// A revocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Revoke {
    /// Of these grants, known here or not.
    Ids(Vec<GrantId>),
    /// Of all grants of a subject up to a place in each log, inclusive.
    UpTo {
        /// The subject.
        subject: Subject,
        /// The last sequence number of each issuer.
        until: BTreeMap<Issuer, u64>,
    },
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantChange {
    /// A grant or a denial.
    Grant(Grant),
    /// A revocation.
    Revoke(Revoke),
}

impl GrantChange {
    /// The ids of the grants it revokes.
    #[must_use]
    pub fn revoked(&self) -> &[GrantId] {
        match self {
            Self::Grant(grant) => &grant.replaces,
            Self::Revoke(Revoke::Ids(ids)) => ids,
            Self::Revoke(Revoke::UpTo { .. }) => &[],
        }
    }
}

/// One entry of an issuer's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its place.
    pub place: LogPosition,
    /// The id of the operation before it, [`OperationId::START`] for the first.
    pub previous: OperationId,
    /// Who asked for it, as identified by the issuer's door; never taken from a body.
    pub author: String,
    /// When, in milliseconds since 1970, by the issuer's clock.
    pub told_at_ms: u64,
    /// What it does.
    pub change: GrantChange,
}

/// An operation that no node takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadOperation {
    /// An empty name, or one over [`NAME_MAX`].
    #[error("{0} must have between 1 and {NAME_MAX} bytes")]
    NameLength(&'static str),
    /// A text over [`TEXT_MAX`].
    #[error("the justification has more than {TEXT_MAX} bytes")]
    TextLength,
    /// Nothing to revoke, or more than [`IDS_MAX`].
    #[error("an operation takes back between 1 and {IDS_MAX} grants")]
    Ids,
    /// Nothing to revoke, or more issuers than are possible.
    #[error("a revoke up to a place names between 1 and {ISSUERS_MAX} logs")]
    Logs,
    /// A grant that revokes itself.
    #[error("a grant cannot replace itself")]
    ReplacesItself,
    /// A permission for an agent, or a tool for a server.
    #[error("agents are granted servers and tools, servers are granted permissions")]
    WrongResource,
    /// The log is full: [`GRANTS_END`], [`SEQUENCE_END`].
    #[error("this issuer's log is full; revokes fit a little longer than grants")]
    Full,
}

impl Operation {
    /// Checks what every node must judge in the same way.
    ///
    /// # Errors
    /// [`BadOperation`] says what is wrong.
    pub fn check(&self) -> Result<(), BadOperation> {
        name("an author", &self.author)?;
        let end = match &self.change {
            GrantChange::Grant(_) => GRANTS_END,
            GrantChange::Revoke(_) => SEQUENCE_END,
        };
        if self.place.sequence >= end {
            return Err(BadOperation::Full);
        }
        match &self.change {
            GrantChange::Grant(grant) => grant.check(),
            GrantChange::Revoke(Revoke::Ids(ids)) => match ids.len() {
                1..=IDS_MAX => Ok(()),
                _ => Err(BadOperation::Ids),
            },
            GrantChange::Revoke(Revoke::UpTo { subject, until }) => {
                subject.check()?;
                match until.len() {
                    1..=ISSUERS_MAX => Ok(()),
                    _ => Err(BadOperation::Logs),
                }
            }
        }
    }

    /// What is signed and hashed: the same for the same operation everywhere, different for any two
    /// that differ. Numbers are little-endian, texts and lists carry their length in front.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = CanonicalBytes(CONTEXT.to_vec());
        out.put(&self.place.issuer.0);
        out.number(self.place.sequence);
        out.put(&self.previous.0);
        out.text(&self.author);
        out.number(self.told_at_ms);
        match &self.change {
            GrantChange::Grant(grant) => {
                out.tag(0);
                out.grant(grant);
            }
            GrantChange::Revoke(Revoke::Ids(ids)) => {
                out.tag(1);
                out.ids(ids);
            }
            GrantChange::Revoke(Revoke::UpTo { subject, until }) => {
                out.tag(2);
                out.subject(subject);
                out.number(until.len() as u64);
                for (issuer, sequence) in until {
                    out.put(&issuer.0);
                    out.number(*sequence);
                }
            }
        }
        out.0
    }

    /// The hash of [`Operation::bytes`].
    #[must_use]
    pub fn id(&self) -> OperationId {
        OperationId(*blake3::hash(&self.bytes()).as_bytes())
    }
}

fn name(what: &'static str, text: &str) -> Result<(), BadOperation> {
    match text.len() {
        1..=NAME_MAX => Ok(()),
        _ => Err(BadOperation::NameLength(what)),
    }
}

impl Subject {
    fn check(&self) -> Result<(), BadOperation> {
        match self {
            Self::Agent(agent) => name("an agent's id", agent.as_str()),
            Self::Server(server) => name("a server's id", server.as_str()),
        }
    }
}

impl Grant {
    /// Checks its form.
    ///
    /// # Errors
    /// [`BadOperation`] says what is wrong.
    pub fn check(&self) -> Result<(), BadOperation> {
        self.subject.check()?;
        match (&self.subject, &self.resource) {
            (Subject::Agent(_), GrantResource::Server(server)) => {
                name("a server's id", server.as_str())
            }
            (Subject::Agent(_), GrantResource::Tool(server, tool)) => {
                name("a server's id", server.as_str())?;
                name("a tool's name", tool)
            }
            (Subject::Server(_), GrantResource::Permission(permission)) => {
                name("a permission's name", permission)
            }
            (Subject::Agent(_), GrantResource::Permission(_))
            | (Subject::Server(_), GrantResource::Server(_) | GrantResource::Tool(..)) => {
                Err(BadOperation::WrongResource)
            }
        }?;
        if let Some(told_by) = &self.told_by {
            name("granted_by", told_by)?;
        }
        if self
            .justification
            .as_ref()
            .is_some_and(|text| text.len() > TEXT_MAX)
        {
            return Err(BadOperation::TextLength);
        }
        if self.replaces.len() > IDS_MAX {
            return Err(BadOperation::Ids);
        }
        if self.replaces.contains(&self.id) {
            return Err(BadOperation::ReplacesItself);
        }
        Ok(())
    }
}

/// Writes the canonical form.
struct CanonicalBytes(Vec<u8>);

impl CanonicalBytes {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn tag(&mut self, tag: u8) {
        self.0.push(tag);
    }

    fn number(&mut self, number: u64) {
        self.put(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.put(text.as_bytes());
    }

    fn maybe_text(&mut self, text: Option<&str>) {
        self.tag(u8::from(text.is_some()));
        if let Some(text) = text {
            self.text(text);
        }
    }

    fn ids(&mut self, ids: &[GrantId]) {
        self.number(ids.len() as u64);
        for id in ids {
            self.put(&id.0);
        }
    }

    fn subject(&mut self, subject: &Subject) {
        match subject {
            Subject::Agent(agent) => {
                self.tag(0);
                self.text(agent.as_str());
            }
            Subject::Server(server) => {
                self.tag(1);
                self.text(server.as_str());
            }
        }
    }

    fn resource(&mut self, resource: &GrantResource) {
        match resource {
            GrantResource::Server(server) => {
                self.tag(0);
                self.text(server.as_str());
            }
            GrantResource::Tool(server, tool) => {
                self.tag(1);
                self.text(server.as_str());
                self.text(tool);
            }
            GrantResource::Permission(permission) => {
                self.tag(2);
                self.text(permission);
            }
        }
    }

    fn grant(&mut self, grant: &Grant) {
        self.put(&grant.id.0);
        self.subject(&grant.subject);
        self.resource(&grant.resource);
        self.tag(match grant.permission {
            Permission::Allow => 0,
            Permission::Deny => 1,
        });
        self.tag(u8::from(grant.not_after_ms.is_some()));
        self.number(grant.not_after_ms.unwrap_or_default());
        self.maybe_text(grant.told_by.as_deref());
        self.maybe_text(grant.justification.as_deref());
        self.ids(&grant.replaces);
    }
}
