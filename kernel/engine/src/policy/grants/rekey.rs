//! Re-signs a node's own journal under a new key of the node: the content stays, signed by the new key.

use mgp_protocol::ids::NodeId;

use super::{
    Grant, GrantChange, GrantResource, LogChange, Operation, OperationId, Revoke, SignedOperation,
    Subject,
};
use crate::node_key::NodeKey;

/// The operations of a node's journal as they are once the node has this key. Their sequence numbers stay.
#[must_use]
pub fn rekey(operations: Vec<Operation>, from: NodeId, key: &NodeKey) -> Vec<SignedOperation> {
    let moved = |node: NodeId| if node == from { key.node_id() } else { node };
    let mut previous = OperationId::START;
    let signed = operations.into_iter().map(|mut operation| {
        operation.place.issuer = moved(operation.place.issuer);
        operation.previous = previous;
        if let LogChange::Grants(change) = &mut operation.change {
            change.replace_nodes(&moved);
        }
        let signed = SignedOperation::new(operation, key);
        previous = signed.encoded().id();
        signed
    });
    signed.collect()
}

impl GrantChange {
    fn replace_nodes(&mut self, moved: &impl Fn(NodeId) -> NodeId) {
        match self {
            Self::Grant(grant) => grant.replace_nodes(moved),
            Self::Revoke(Revoke::UpTo { subject, until }) => {
                subject.replace_nodes(moved);
                *until = until
                    .iter()
                    .map(|(node, last)| (moved(*node), *last))
                    .collect();
            }
            Self::Revoke(Revoke::Ids(_)) => {}
        }
    }
}

impl Grant {
    fn replace_nodes(&mut self, moved: &impl Fn(NodeId) -> NodeId) {
        self.subject.replace_nodes(moved);
        match &mut self.resource {
            GrantResource::Server(on)
            | GrantResource::Tool(on, _)
            | GrantResource::Tools(on, _) => {
                on.node = moved(on.node);
            }
            GrantResource::Permission(_) | GrantResource::Group(_) => {}
        }
    }
}

impl Subject {
    fn replace_nodes(&mut self, moved: &impl Fn(NodeId) -> NodeId) {
        let node = match self {
            Self::Agent(agent) => &mut agent.node,
            Self::Server(server) => &mut server.node,
            Self::AgentsAt(node) => node,
            Self::AgentEverywhere(_) => return,
        };
        *node = moved(*node);
    }
}
