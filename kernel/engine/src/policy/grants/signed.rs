//! An operation with the signature of its issuer: what is stored, and what is sent to other nodes.

use serde::{Deserialize, Serialize};

use super::Operation;
use crate::node_key::{NodeKey, PublicKey, Signature, SignatureClaim};

/// An operation and who signed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    /// What is done.
    pub operation: Operation,
    /// Whose signature it is: its hash is the operation's issuer.
    pub key: PublicKey,
    /// Of [`Operation::bytes`].
    pub signature: Signature,
}

/// Bytes that are no signed operation.
#[derive(Debug, thiserror::Error)]
#[error("it holds no signed operation: {0}")]
pub struct Unreadable(String);

impl Signed {
    /// Signs an operation.
    #[must_use]
    pub fn new(operation: Operation, key: &NodeKey) -> Self {
        Self {
            key: key.public(),
            signature: key.sign(&operation.bytes()),
            operation,
        }
    }

    /// What to judge its signature by; `None` when the operation names another issuer than the one
    /// whose key this is.
    #[must_use]
    pub fn claim(&self) -> Option<SignatureClaim> {
        (self.key.issuer() == self.operation.place.issuer).then(|| SignatureClaim {
            key: self.key,
            bytes: self.operation.bytes(),
            signature: self.signature,
        })
    }

    /// Its form in a journal.
    ///
    /// # Panics
    /// Never: an operation is plain words and numbers.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).expect("an operation can always be written")
    }

    /// Reads that form.
    ///
    /// # Errors
    /// [`Unreadable`] says why not.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Unreadable> {
        rmp_serde::from_slice(bytes).map_err(|error| Unreadable(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::ids::{AgentId, ServerId};
    use mgp_protocol::mgp::access::Permission;

    use super::*;
    use crate::node_key::Issuer;
    use crate::node_key::first_bad;
    use crate::policy::grants::{
        Grant, GrantChange, GrantId, GrantResource, LogPosition, OperationId, Revoke, Subject,
    };

    fn operation(issuer: Issuer, change: GrantChange) -> Operation {
        Operation {
            place: LogPosition {
                issuer,
                sequence: 3,
            },
            previous: OperationId::START,
            author: "operator".into(),
            told_at_ms: 5,
            change,
        }
    }

    #[test]
    fn an_operation_is_stored_with_a_signature_that_is_its_issuers() {
        let key = NodeKey::new(&[7; 32]);
        let grant = Grant {
            id: GrantId([9; 16]),
            subject: Subject::Agent(AgentId::new("a")),
            resource: GrantResource::Tool(ServerId::new("files"), "read".into()),
            permission: Permission::Deny,
            not_after_ms: Some(u64::MAX),
            told_by: None,
            justification: Some("é".into()),
            replaces: vec![GrantId([1; 16])],
        };
        let until = [(key.issuer(), 7)].into();
        let sweep = Revoke::UpTo {
            subject: Subject::Server(ServerId::new("s")),
            until,
        };
        for change in [GrantChange::Grant(grant), GrantChange::Revoke(sweep)] {
            let signed = Signed::new(operation(key.issuer(), change.clone()), &key);
            let back = Signed::from_bytes(&signed.to_bytes()).unwrap();
            assert_eq!(back, signed);
            assert_eq!(first_bad(&[back.claim().unwrap()]), None);
            let mut changed = signed.clone();
            changed.operation.author = "somebody".into();
            assert_eq!(first_bad(&[changed.claim().unwrap()]), Some(0));
            let foreign = Signed::new(operation(Issuer([1; 32]), change), &key);
            assert!(foreign.claim().is_none());
        }
        assert!(Signed::from_bytes(b"\x81").is_err());
    }
}
