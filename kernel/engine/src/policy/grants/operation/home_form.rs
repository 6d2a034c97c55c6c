//! The form of the entries that a node wrote before it could be part of a cluster: they name no nodes, and
//! mean its own. Their signed bytes are not the stored ones, but made of them.

use std::collections::BTreeMap;

use mgp_protocol::ids::{AgentId, NodeId, ServerId};
use mgp_protocol::mgp::access::Permission;
use serde::{Deserialize, Serialize};

use super::{
    CausalContext, Grant, GrantChange, GrantId, GrantResource, LogChange, LogPosition, Operation,
    OperationId, Revoke, Subject,
};

/// A prefix of the signed bytes, so that a signature is not valid for anything else.
const CONTEXT: &[u8] = b"mgp grants operation v1\0";

/// An operation in this form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::policy::grants) struct HomeOperation {
    pub(in crate::policy::grants) place: LogPosition,
    previous: OperationId,
    author: String,
    told_at_ms: u64,
    change: HomeChange,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HomeChange {
    Grant(HomeGrant),
    Revoke(HomeRevoke),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct HomeGrant {
    id: GrantId,
    subject: HomeSubject,
    resource: HomeResource,
    permission: Permission,
    not_after_ms: Option<u64>,
    told_by: Option<String>,
    justification: Option<String>,
    replaces: Vec<GrantId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HomeRevoke {
    Ids(Vec<GrantId>),
    UpTo {
        subject: HomeSubject,
        until: BTreeMap<NodeId, u64>,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HomeSubject {
    Agent(AgentId),
    Server(ServerId),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HomeResource {
    Server(ServerId),
    Tool(ServerId, String),
    Permission(String),
}

impl HomeOperation {
    /// The same operation with the node it was about.
    pub(in crate::policy::grants) fn operation(self) -> Operation {
        let node = self.place.issuer;
        let change = match self.change {
            HomeChange::Grant(grant) => GrantChange::Grant(grant.at(node)),
            HomeChange::Revoke(HomeRevoke::Ids(ids)) => GrantChange::Revoke(Revoke::Ids(ids)),
            HomeChange::Revoke(HomeRevoke::UpTo { subject, until }) => {
                let subject = subject.at(node);
                GrantChange::Revoke(Revoke::UpTo { subject, until })
            }
        };
        Operation {
            cluster: None,
            place: self.place,
            previous: self.previous,
            author: self.author,
            told_at_ms: self.told_at_ms,
            change: LogChange::Grants(change),
            context: CausalContext::default(),
        }
    }

    /// What was signed and hashed. Numbers are little-endian, texts and lists carry their length in front.
    pub(in crate::policy::grants) fn bytes(&self) -> Vec<u8> {
        let mut out = CanonicalBytes(CONTEXT.to_vec());
        out.put(&self.place.issuer.0);
        out.number(self.place.sequence);
        out.put(&self.previous.0);
        out.text(&self.author);
        out.number(self.told_at_ms);
        match &self.change {
            HomeChange::Grant(grant) => {
                out.tag(0);
                out.grant(grant);
            }
            HomeChange::Revoke(HomeRevoke::Ids(ids)) => {
                out.tag(1);
                out.ids(ids);
            }
            HomeChange::Revoke(HomeRevoke::UpTo { subject, until }) => {
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
}

impl HomeGrant {
    fn at(self, node: NodeId) -> Grant {
        Grant {
            id: self.id,
            subject: self.subject.at(node),
            resource: self.resource.at(node),
            permission: self.permission,
            not_after_ms: self.not_after_ms,
            told_by: self.told_by,
            justification: self.justification,
            replaces: self.replaces,
        }
    }
}

impl HomeSubject {
    fn at(self, node: NodeId) -> Subject {
        match self {
            Self::Agent(agent) => Subject::Agent(node.agent(agent)),
            Self::Server(server) => Subject::Server(node.server(server)),
        }
    }
}

impl HomeResource {
    fn at(self, node: NodeId) -> GrantResource {
        match self {
            Self::Server(server) => GrantResource::Server(node.server(server)),
            Self::Tool(server, tool) => GrantResource::Tool(node.server(server), tool),
            Self::Permission(permission) => GrantResource::Permission(permission),
        }
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

    fn subject(&mut self, subject: &HomeSubject) {
        match subject {
            HomeSubject::Agent(agent) => {
                self.tag(0);
                self.text(agent.as_str());
            }
            HomeSubject::Server(server) => {
                self.tag(1);
                self.text(server.as_str());
            }
        }
    }

    fn resource(&mut self, resource: &HomeResource) {
        match resource {
            HomeResource::Server(server) => {
                self.tag(0);
                self.text(server.as_str());
            }
            HomeResource::Tool(server, tool) => {
                self.tag(1);
                self.text(server.as_str());
                self.text(tool);
            }
            HomeResource::Permission(permission) => {
                self.tag(2);
                self.text(permission);
            }
        }
    }

    fn grant(&mut self, grant: &HomeGrant) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::grants::Written;

    fn grant() -> HomeOperation {
        HomeOperation {
            place: LogPosition {
                issuer: NodeId([1; 32]),
                sequence: 0,
            },
            previous: OperationId::START,
            author: "admin".into(),
            told_at_ms: 1000,
            change: HomeChange::Grant(HomeGrant {
                id: GrantId([1; 16]),
                subject: HomeSubject::Agent(AgentId::new("a")),
                resource: HomeResource::Server(ServerId::new("files")),
                permission: Permission::Allow,
                not_after_ms: None,
                told_by: None,
                justification: None,
                replaces: Vec::new(),
            }),
        }
    }

    /// The bytes are an interface: signatures of stored journals depend on them.
    #[test]
    fn the_signed_bytes_stay_as_they_are() {
        let written = Written::of_home_form(grant());
        assert_eq!(
            written.id().to_string(),
            "fc7f19ac71cc1ce2963fcaaab4bac435e1f40b19841c5debb450248937cabe52"
        );
        assert_eq!(written.body(), None);
    }

    /// FED-043: a-52: what a node wrote while it was alone is about its own agents and servers.
    #[test]
    fn what_names_no_node_means_its_own() {
        let operation = grant().operation();
        assert_eq!(operation.cluster, None);
        let LogChange::Grants(GrantChange::Grant(grant)) = operation.change else {
            panic!("{operation:?}");
        };
        let node = NodeId([1; 32]);
        let agent = Subject::Agent(node.agent(AgentId::new("a")));
        let server = GrantResource::Server(node.server(ServerId::new("files")));
        assert_eq!((grant.subject, grant.resource), (agent, server));
    }
}
