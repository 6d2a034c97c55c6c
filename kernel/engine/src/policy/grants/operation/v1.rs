//! The format of entries from before a node could join a cluster: they name no nodes, and refer to the node's own
//! servers and agents. Their signed bytes are not stored, but derived from the stored ones.

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

/// An operation in this format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::policy::grants) struct OperationV1 {
    pub(in crate::policy::grants) place: LogPosition,
    previous: OperationId,
    author: String,
    told_at_ms: u64,
    change: ChangeV1,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ChangeV1 {
    Grant(GrantV1),
    Revoke(RevokeV1),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct GrantV1 {
    id: GrantId,
    subject: SubjectV1,
    resource: ResourceV1,
    permission: Permission,
    not_after_ms: Option<u64>,
    told_by: Option<String>,
    justification: Option<String>,
    replaces: Vec<GrantId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RevokeV1 {
    Ids(Vec<GrantId>),
    UpTo {
        subject: SubjectV1,
        until: BTreeMap<NodeId, u64>,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SubjectV1 {
    Agent(AgentId),
    Server(ServerId),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ResourceV1 {
    Server(ServerId),
    Tool(ServerId, String),
    Permission(String),
}

impl OperationV1 {
    /// Converts the operation, with the node that it refers to.
    pub(in crate::policy::grants) fn into_operation(self) -> Operation {
        let node = self.place.issuer;
        let change = match self.change {
            ChangeV1::Grant(grant) => GrantChange::Grant(grant.into_grant(node)),
            ChangeV1::Revoke(RevokeV1::Ids(ids)) => GrantChange::Revoke(Revoke::Ids(ids)),
            ChangeV1::Revoke(RevokeV1::UpTo { subject, until }) => {
                let subject = subject.into_subject(node);
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

    /// The bytes that were signed and hashed. Numbers are little-endian; texts and lists have a length prefix.
    pub(in crate::policy::grants) fn to_signed_bytes(&self) -> Vec<u8> {
        let mut out = CanonicalBytes(CONTEXT.to_vec());
        out.write_bytes(&self.place.issuer.0);
        out.write_number(self.place.sequence);
        out.write_bytes(&self.previous.0);
        out.write_text(&self.author);
        out.write_number(self.told_at_ms);
        match &self.change {
            ChangeV1::Grant(grant) => {
                out.write_tag(0);
                out.write_grant(grant);
            }
            ChangeV1::Revoke(RevokeV1::Ids(ids)) => {
                out.write_tag(1);
                out.write_ids(ids);
            }
            ChangeV1::Revoke(RevokeV1::UpTo { subject, until }) => {
                out.write_tag(2);
                out.write_subject(subject);
                out.write_number(until.len() as u64);
                for (issuer, sequence) in until {
                    out.write_bytes(&issuer.0);
                    out.write_number(*sequence);
                }
            }
        }
        out.0
    }
}

impl GrantV1 {
    fn into_grant(self, node: NodeId) -> Grant {
        Grant {
            id: self.id,
            subject: self.subject.into_subject(node),
            resource: self.resource.into_resource(node),
            permission: self.permission,
            not_after_ms: self.not_after_ms,
            told_by: self.told_by,
            justification: self.justification,
            replaces: self.replaces,
            when: None,
        }
    }
}

impl SubjectV1 {
    fn into_subject(self, node: NodeId) -> Subject {
        match self {
            Self::Agent(agent) => Subject::Agent(node.agent(agent)),
            Self::Server(server) => Subject::Server(node.server(server)),
        }
    }
}

impl ResourceV1 {
    fn into_resource(self, node: NodeId) -> GrantResource {
        match self {
            Self::Server(server) => GrantResource::Server(node.server(server)),
            Self::Tool(server, tool) => GrantResource::Tool(node.server(server), tool),
            Self::Permission(permission) => GrantResource::Permission(permission),
        }
    }
}

/// Writes the canonical encoding.
struct CanonicalBytes(Vec<u8>);

impl CanonicalBytes {
    fn write_bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn write_tag(&mut self, tag: u8) {
        self.0.push(tag);
    }

    fn write_number(&mut self, number: u64) {
        self.write_bytes(&number.to_le_bytes());
    }

    fn write_text(&mut self, text: &str) {
        self.write_number(text.len() as u64);
        self.write_bytes(text.as_bytes());
    }

    fn write_optional_text(&mut self, text: Option<&str>) {
        self.write_tag(u8::from(text.is_some()));
        if let Some(text) = text {
            self.write_text(text);
        }
    }

    fn write_ids(&mut self, ids: &[GrantId]) {
        self.write_number(ids.len() as u64);
        for id in ids {
            self.write_bytes(&id.0);
        }
    }

    fn write_subject(&mut self, subject: &SubjectV1) {
        match subject {
            SubjectV1::Agent(agent) => {
                self.write_tag(0);
                self.write_text(agent.as_str());
            }
            SubjectV1::Server(server) => {
                self.write_tag(1);
                self.write_text(server.as_str());
            }
        }
    }

    fn write_resource(&mut self, resource: &ResourceV1) {
        match resource {
            ResourceV1::Server(server) => {
                self.write_tag(0);
                self.write_text(server.as_str());
            }
            ResourceV1::Tool(server, tool) => {
                self.write_tag(1);
                self.write_text(server.as_str());
                self.write_text(tool);
            }
            ResourceV1::Permission(permission) => {
                self.write_tag(2);
                self.write_text(permission);
            }
        }
    }

    fn write_grant(&mut self, grant: &GrantV1) {
        self.write_bytes(&grant.id.0);
        self.write_subject(&grant.subject);
        self.write_resource(&grant.resource);
        self.write_tag(match grant.permission {
            Permission::Allow => 0,
            Permission::Deny => 1,
        });
        self.write_tag(u8::from(grant.not_after_ms.is_some()));
        self.write_number(grant.not_after_ms.unwrap_or_default());
        self.write_optional_text(grant.told_by.as_deref());
        self.write_optional_text(grant.justification.as_deref());
        self.write_ids(&grant.replaces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::grants::EncodedOperation;

    fn grant() -> OperationV1 {
        OperationV1 {
            place: LogPosition {
                issuer: NodeId([1; 32]),
                sequence: 0,
            },
            previous: OperationId::START,
            author: "admin".into(),
            told_at_ms: 1000,
            change: ChangeV1::Grant(GrantV1 {
                id: GrantId([1; 16]),
                subject: SubjectV1::Agent(AgentId::new("a")),
                resource: ResourceV1::Server(ServerId::new("files")),
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
        let written = EncodedOperation::from_v1(grant());
        assert_eq!(
            written.id().to_string(),
            "fc7f19ac71cc1ce2963fcaaab4bac435e1f40b19841c5debb450248937cabe52"
        );
        assert_eq!(written.body(), None);
    }

    /// FED-043: a-52: what a node wrote while it was alone is about its own agents and servers.
    #[test]
    fn what_names_no_node_means_its_own() {
        let operation = grant().into_operation();
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
