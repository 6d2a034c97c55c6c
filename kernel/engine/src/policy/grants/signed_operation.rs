//! An operation with the signature of its issuer: what is stored, and what is sent to other nodes.

use std::sync::Arc;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::encoded_operation::decode_exact;
use super::operation::v1::OperationV1;
use super::{EncodedOperation, OPERATION_MAX, Operation, OperationDecodeError};
use crate::node_key::{NodeKey, PublicKey, Signature, SignatureClaim};

/// Most bytes of an entry: those of an operation, its key and signature, and space for additions of later builds.
const ENTRY_MAX: usize = OPERATION_MAX + 1024;

/// An operation and its signature, as received: it is written back byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedOperation {
    encoded: EncodedOperation,
    key: PublicKey,
    signature: Signature,
    entry_bytes: Arc<[u8]>,
}

/// Its encoding in a journal and between nodes.
#[derive(Serialize, Deserialize)]
struct SignedEntry {
    key: PublicKey,
    signature: Signature,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    written: Option<BodyBytes>,
    /// In place of `written`, in entries that name no nodes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    operation: Option<OperationV1>,
}

struct BodyBytes(Vec<u8>);

impl Serialize for BodyBytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for BodyBytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Body;
        impl Visitor<'_> for Body {
            type Value = BodyBytes;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the bytes of an operation")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<BodyBytes, E> {
                Ok(BodyBytes(bytes.to_vec()))
            }
        }
        from.deserialize_bytes(Body)
    }
}

impl SignedOperation {
    /// Signs an operation.
    #[must_use]
    pub fn new(operation: Operation, key: &NodeKey) -> Self {
        Self::with_signature(operation, key.public_key(), |bytes| key.sign(bytes))
    }

    /// An operation with the signature that `sign` makes of its bytes.
    ///
    /// # Panics
    /// Never: an operation consists of plain strings and numbers.
    #[must_use]
    pub fn with_signature(
        operation: Operation,
        key: PublicKey,
        sign: impl FnOnce(&[u8]) -> Signature,
    ) -> Self {
        let encoded = EncodedOperation::new(operation);
        let signature = sign(encoded.signed_bytes());
        let entry = SignedEntry {
            key,
            signature,
            written: encoded.body().map(|body| BodyBytes(body.to_vec())),
            operation: None,
        };
        let entry = rmp_serde::to_vec_named(&entry).expect("an operation can always be written");
        Self {
            encoded,
            key,
            signature,
            entry_bytes: entry.into(),
        }
    }

    /// The claim for verifying its signature; `None` when the operation names another issuer than the owner of the
    /// key.
    #[must_use]
    pub fn signature_claim(&self) -> Option<SignatureClaim> {
        (self.key.node_id() == self.encoded.issuer()).then(|| SignatureClaim {
            key: self.key,
            bytes: self.encoded.signed_bytes().to_vec(),
            signature: self.signature,
        })
    }

    /// The operation.
    #[must_use]
    pub fn encoded(&self) -> &EncodedOperation {
        &self.encoded
    }

    /// The operation, without its signature.
    #[must_use]
    pub fn into_encoded(self) -> EncodedOperation {
        self.encoded
    }

    /// Its encoding in a journal and between nodes, as received.
    #[must_use]
    pub fn entry_bytes(&self) -> Arc<[u8]> {
        self.entry_bytes.clone()
    }

    /// Its encoding in a journal, as received.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.entry_bytes.to_vec()
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// [`OperationDecodeError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, OperationDecodeError> {
        // The members around the operation are not signed: any relay could enlarge them.
        if bytes.len() > ENTRY_MAX {
            let why = format!("it has more than {ENTRY_MAX} bytes");
            return Err(OperationDecodeError(why));
        }
        let read: SignedEntry = decode_exact(bytes)?;
        let written = match (read.written, read.operation) {
            (Some(body), None) => EncodedOperation::decode(&body.0)?,
            (None, Some(home)) => EncodedOperation::from_v1(home),
            (None, None) => return Err(OperationDecodeError("there is no operation in it".into())),
            (Some(_), Some(_)) => return Err(OperationDecodeError("there are two in it".into())),
        };
        Ok(Self {
            encoded: written,
            key: read.key,
            signature: read.signature,
            entry_bytes: bytes.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::ids::{AgentId, NodeId, ServerId};
    use mgp_protocol::mgp::access::Permission;

    use super::*;
    use crate::node_key::find_invalid_signature;
    use crate::policy::grants::{
        CausalContext, Grant, GrantChange, GrantId, GrantResource, LogChange, LogPosition,
        OperationId, Revoke, Subject,
    };

    fn operation(issuer: NodeId, change: GrantChange) -> Operation {
        Operation {
            cluster: None,
            place: LogPosition {
                issuer,
                sequence: 3,
            },
            previous: OperationId::START,
            author: "operator".into(),
            told_at_ms: 5,
            change: LogChange::Grants(change),
            context: CausalContext::default(),
        }
    }

    #[test]
    fn an_operation_is_stored_with_a_signature_that_is_its_issuers() {
        let key = NodeKey::new(&[7; 32]);
        let node = key.node_id();
        let grant = Grant {
            id: GrantId([9; 16]),
            subject: Subject::Agent(node.agent(AgentId::new("a"))),
            resource: GrantResource::Tool(node.server(ServerId::new("files")), "read".into()),
            permission: Permission::Deny,
            not_after_ms: Some(u64::MAX),
            told_by: None,
            justification: Some("é".into()),
            replaces: vec![GrantId([1; 16])],
            when: None,
        };
        let until = [(node, 7)].into();
        let sweep = Revoke::UpTo {
            subject: Subject::Server(node.server(ServerId::new("s"))),
            until,
        };
        for change in [GrantChange::Grant(grant), GrantChange::Revoke(sweep)] {
            let signed = SignedOperation::new(operation(node, change.clone()), &key);
            let back = SignedOperation::from_bytes(&signed.to_bytes()).unwrap();
            assert_eq!(back, signed);
            assert_eq!(
                find_invalid_signature(&[back.signature_claim().unwrap()]),
                None
            );
            let mut bytes = signed.to_bytes();
            let at = bytes.windows(8).position(|part| part == b"operator");
            bytes[at.unwrap()] = b'O';
            let changed = SignedOperation::from_bytes(&bytes).unwrap();
            assert_eq!(changed.encoded().operation().author, "Operator");
            assert_eq!(
                find_invalid_signature(&[changed.signature_claim().unwrap()]),
                Some(0)
            );
            let foreign = SignedOperation::new(operation(NodeId([1; 32]), change), &key);
            assert!(foreign.signature_claim().is_none());
        }
        assert!(SignedOperation::from_bytes(b"\x81").is_err());
    }

    /// FED-057: what stands around an operation is signed by nobody: who passes it on cannot make it longer than it is.
    #[test]
    fn an_entry_is_not_filled_up_on_its_way() {
        let key = NodeKey::new(&[7; 32]);
        let change = GrantChange::Revoke(Revoke::Ids(vec![GrantId([1; 16])]));
        let bytes = SignedOperation::new(operation(key.node_id(), change), &key).to_bytes();
        assert!(SignedOperation::from_bytes(&bytes).is_ok());
        let behind = [bytes.as_slice(), b"\xc0"].concat();
        assert!(SignedOperation::from_bytes(&behind).is_err());
        assert_eq!(bytes[0], 0x83, "a map of three");
        let filled = |length: usize| {
            let mut filled = [b"\x84".as_slice(), &bytes[1..], b"\xa4more\xdb"].concat();
            let rest = length - filled.len() - 4;
            filled.extend_from_slice(&u32::try_from(rest).unwrap().to_be_bytes());
            filled.resize(length, b'x');
            filled
        };
        assert!(SignedOperation::from_bytes(&filled(132_096)).is_ok());
        assert!(SignedOperation::from_bytes(&filled(132_097)).is_err());
    }
}
