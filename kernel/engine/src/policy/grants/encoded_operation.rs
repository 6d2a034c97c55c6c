//! An operation as its issuer encoded it. The bytes are never re-encoded: a later build may know members and kinds
//! that this one does not, and the signature covers the original bytes.

use std::fmt;
use std::sync::Arc;

use mgp_protocol::ids::NodeId;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::operation::v1::OperationV1;
use super::operation::{CONDITIONAL_KIND, GROUP_KIND, PATTERN_KIND};
use super::{
    CausalContext, ClusterId, GrantChange, LogChange, LogPosition, MemberChange, Operation,
    OperationId,
};

/// Most bytes of an operation: some [`super::IDS_MAX`] ids and the longest texts, twice over.
pub(crate) const OPERATION_MAX: usize = 128 << 10;
/// Deepest nesting of an operation. Ours have seven levels, and each takes stack space of the parser: the sender of
/// an operation may be unknown to its signer.
const NESTING_MAX: usize = 64;
/// A prefix of the signed bytes, so that a signature is not valid for anything else.
const CONTEXT: &[u8] = b"mgp log operation v2\0";
/// The kinds this build knows, by the change they parse to.
const GRANT_KINDS: [&str; 5] = [
    "grant",
    PATTERN_KIND,
    CONDITIONAL_KIND,
    GROUP_KIND,
    "revoke",
];
const MEMBER_KINDS: [&str; 7] = [
    "found", "admit", "cut", "rename", "rest", "rekey", "recover",
];

/// An operation, and the bytes that its issuer signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedOperation {
    operation: Arc<Operation>,
    id: OperationId,
    signed_bytes: Arc<[u8]>,
}

/// Bytes that are no signed operation.
#[derive(Debug, thiserror::Error)]
#[error("it holds no signed operation: {0}")]
pub struct OperationDecodeError(pub(super) String);

/// The members of an operation that every build parses.
#[derive(Deserialize)]
struct OperationHead {
    #[serde(default)]
    cluster: Option<ClusterId>,
    place: LogPosition,
    previous: OperationId,
    author: String,
    told_at_ms: u64,
}

/// A single member of it.
#[derive(Deserialize)]
struct ChangeMember<T> {
    change: T,
}

/// A single member that older builds do not write.
#[derive(Deserialize)]
struct OperationContext {
    #[serde(default)]
    context: CausalContext,
}

/// The name of a change's kind; the rest is skipped.
struct KindName(String);

impl<'de> Deserialize<'de> for KindName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OperationName;
        impl<'de> Visitor<'de> for OperationName {
            type Value = KindName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a change")
            }

            fn visit_str<E>(self, name: &str) -> Result<KindName, E> {
                Ok(KindName(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KindName, A::Error> {
                let mut names = Vec::new();
                while let Some((name, _)) = map.next_entry::<String, IgnoredAny>()? {
                    names.push(name);
                }
                // Two kinds in one operation are unknown to this build.
                Ok(KindName(names.join(" and ")))
            }
        }
        from.deserialize_any(OperationName)
    }
}

impl EncodedOperation {
    /// Encodes an operation.
    ///
    /// # Panics
    /// Never: an operation consists of plain strings and numbers.
    #[must_use]
    pub(crate) fn new(operation: Operation) -> Self {
        let body = rmp_serde::to_vec_named(&operation).expect("an operation can be written");
        Self::from_parts(operation, &[CONTEXT, &body].concat())
    }

    /// Decodes an operation of any node. A kind that is unknown, or whose content is invalid, becomes
    /// [`LogChange::Unknown`].
    ///
    /// # Errors
    /// [`OperationDecodeError`] when not even its issuer and position can be read.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, OperationDecodeError> {
        if body.len() > OPERATION_MAX {
            return Err(OperationDecodeError(format!(
                "it has more than {OPERATION_MAX} bytes"
            )));
        }
        let head: OperationHead = decode_exact(body)?;
        let mut operation = Operation {
            cluster: head.cluster,
            place: head.place,
            previous: head.previous,
            author: head.author,
            told_at_ms: head.told_at_ms,
            change: decode_change(body)?,
            // An invalid or oversized context counts as empty: fewer grants count.
            context: decode_exact::<OperationContext>(body)
                .ok()
                .map(|read| read.context)
                .filter(CausalContext::is_bounded)
                .unwrap_or_default(),
        };
        if operation.check_change().is_err() {
            operation.change = LogChange::Unknown("one that breaks a rule".into());
        }
        Ok(Self::from_parts(operation, &[CONTEXT, body].concat()))
    }

    /// An entry in the format that names no nodes.
    pub(super) fn from_v1(home: OperationV1) -> Self {
        let signed = home.to_signed_bytes();
        Self::from_parts(home.into_operation(), &signed)
    }

    fn from_parts(operation: Operation, signed: &[u8]) -> Self {
        Self {
            operation: Arc::new(operation),
            id: OperationId(*blake3::hash(signed).as_bytes()),
            signed_bytes: signed.into(),
        }
    }

    /// The decoded operation.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The decoded operation, without the bytes.
    #[must_use]
    pub fn into_operation(self) -> Operation {
        Arc::unwrap_or_clone(self.operation)
    }

    /// The hash of the signed bytes.
    #[must_use]
    pub fn id(&self) -> OperationId {
        self.id
    }

    /// The signed bytes.
    #[must_use]
    pub(crate) fn signed_bytes(&self) -> &[u8] {
        &self.signed_bytes
    }

    /// The bytes that are stored and sent; `None` for the format whose signed bytes are derived.
    #[must_use]
    pub(crate) fn body(&self) -> Option<&[u8]> {
        self.signed_bytes.strip_prefix(CONTEXT)
    }

    /// Its position.
    #[must_use]
    pub fn position(&self) -> LogPosition {
        self.operation.place
    }

    /// Its issuer.
    #[must_use]
    pub fn issuer(&self) -> NodeId {
        self.operation.place.issuer
    }
}

/// Decodes a value that must fill the bytes to their end.
pub(super) fn decode_exact<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, OperationDecodeError> {
    let mut left = bytes;
    let mut reader = rmp_serde::Deserializer::new(&mut left);
    reader.set_max_depth(NESTING_MAX);
    let read = T::deserialize(&mut reader);
    let read = read.map_err(|error| OperationDecodeError(error.to_string()))?;
    if left.is_empty() {
        Ok(read)
    } else {
        Err(OperationDecodeError("there is more behind it".into()))
    }
}

fn decode_change(body: &[u8]) -> Result<LogChange, OperationDecodeError> {
    decode_exact::<ChangeMember<IgnoredAny>>(body)?;
    let Ok(ChangeMember {
        change: KindName(kind),
    }) = decode_exact(body)
    else {
        return Ok(LogChange::Unknown("one without a name".into()));
    };
    let read = if GRANT_KINDS.contains(&kind.as_str()) {
        decode_exact::<ChangeMember<GrantChange>>(body).map(|of| {
            if of.change.is_of_kind(&kind) {
                LogChange::Grants(of.change)
            } else {
                LogChange::Unknown("one that breaks a rule".into())
            }
        })
    } else if MEMBER_KINDS.contains(&kind.as_str()) {
        decode_exact::<ChangeMember<MemberChange>>(body).map(|of| LogChange::Members(of.change))
    } else {
        Err(OperationDecodeError(String::new()))
    };
    Ok(read.unwrap_or(LogChange::Unknown(kind)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use mgp_protocol::ids::{AgentId, ServerId};

    use crate::policy::grants::{GrantId, Revoke, Subject};

    fn revoke() -> Operation {
        Operation {
            cluster: Some(ClusterId([3; 32])),
            place: LogPosition {
                issuer: NodeId([1; 32]),
                sequence: 4,
            },
            previous: OperationId([2; 32]),
            author: "operator".into(),
            told_at_ms: 5,
            change: LogChange::Grants(GrantChange::Revoke(Revoke::Ids(vec![GrantId([1; 16])]))),
            context: CausalContext::default(),
        }
    }

    /// The bytes of an operation of which a later build has changed something.
    fn body(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut value = serde_json::to_value(revoke()).unwrap();
        change(&mut value);
        rmp_serde::to_vec_named(&value).unwrap()
    }

    /// FED-057.
    #[test]
    fn what_was_written_is_read_to_the_same_bytes() {
        let written = EncodedOperation::new(revoke());
        let read = EncodedOperation::decode(written.body().unwrap()).unwrap();
        assert_eq!(read, written);
        assert_eq!(read.operation(), &revoke());
    }

    /// FED-057: signed bytes are stored and relayed as they came.
    #[test]
    fn what_a_later_build_adds_is_kept_to_the_byte() {
        let added = body(|value| value["weight"] = json!({"of": [1, 2]}));
        let read = EncodedOperation::decode(&added).unwrap();
        assert_eq!(read.body().unwrap(), added);
        assert_eq!(read.operation(), &revoke());
        assert_ne!(read.id(), EncodedOperation::new(revoke()).id());
        for strange in [
            json!({"mute": {"all": true}}),
            json!("mute"),
            json!({"revoke": {"by_weight": 3}}),
            json!({"revoke": {"ids": []}}),
            json!({"revoke": {"ids": ["01010101010101010101010101010101"]}, "mute": {}}),
            pattern("grant", json!({"agents_at": NodeId([1; 32])}), json!([])),
            pattern(
                "grant_pattern",
                json!({"agent": NodeId([1; 32]).agent(AgentId::new("a"))}),
                json!([]),
            ),
            pattern(
                "grant_pattern",
                json!({"agents_at": NodeId([1; 32])}),
                json!([GrantId([2; 16])]),
            ),
        ] {
            let bytes = body(|value| value["change"] = strange);
            let read = EncodedOperation::decode(&bytes).unwrap();
            assert_eq!(read.body().unwrap(), bytes);
            let LogChange::Unknown(_) = read.operation().change else {
                panic!("{read:?}");
            };
        }
    }

    fn pattern(kind: &str, subject: Value, replaces: Value) -> Value {
        let on = NodeId([2; 32]).server(ServerId::new("files"));
        let grant = json!({
            "id": GrantId([1; 16]), "subject": subject, "resource": {"server": on}, "permission": "allow",
            "not_after_ms": null, "told_by": null, "justification": null, "replaces": replaces,
        });
        json!({kind: grant})
    }

    /// A build without patterns closes what an issuer of such an entry allowed: it is of a kind that it cannot know.
    #[test]
    fn a_grant_with_a_pattern_is_an_entry_of_another_kind() {
        let change = pattern(
            "grant_pattern",
            json!({"agents_at": NodeId([1; 32])}),
            json!([]),
        );
        let read = EncodedOperation::decode(&body(|value| value["change"] = change)).unwrap();
        let LogChange::Grants(GrantChange::Grant(grant)) = &read.operation().change else {
            panic!("{read:?}");
        };
        assert_eq!(grant.subject, Subject::AgentsAt(NodeId([1; 32])));
        let again = EncodedOperation::new(read.operation().clone());
        assert_eq!(again.body(), read.body());
        assert!(
            again
                .body()
                .unwrap()
                .windows(13)
                .any(|it| it == b"grant_pattern")
        );
    }

    /// EXT-144: an entry with a condition cannot be read as one without. A build that does not know its kind finds one
    /// that it does not know, and closes what its issuer allowed.
    #[test]
    fn a_grant_on_a_condition_is_an_entry_of_another_kind() {
        let agent = json!({"agent": NodeId([1; 32]).agent(AgentId::new("a"))});
        let all = json!({"agents_at": NodeId([1; 32])});
        let with = |kind: &str, subject: &Value, when: Value, more: (&str, Value)| {
            let mut change = pattern(kind, subject.clone(), json!([]));
            change[kind]["when"] = when;
            change[kind][more.0] = more.1;
            let bytes = body(|value| value["change"] = change);
            EncodedOperation::decode(&bytes).unwrap()
        };
        let none = ("justification", Value::Null);
        for subject in [&agent, &all] {
            let read = with(
                "conditional_grant",
                subject,
                json!("args.n == 1"),
                none.clone(),
            );
            let LogChange::Grants(GrantChange::Grant(grant)) = &read.operation().change else {
                panic!("{read:?}");
            };
            assert_eq!(grant.when.as_deref(), Some("args.n == 1"));
            let again = EncodedOperation::new(read.operation().clone());
            let bytes = again.body().unwrap();
            assert!(bytes.windows(17).any(|it| it == b"conditional_grant"));
            // What a condition says is not judged: a later build may read more.
            let later = with(
                "conditional_grant",
                subject,
                json!("args.later()"),
                none.clone(),
            );
            assert!(later.operation().change.grants().is_some());
        }
        for (kind, subject, when, more) in [
            ("grant", &agent, json!("args.n == 1"), none.clone()),
            ("grant_pattern", &all, json!("args.n == 1"), none.clone()),
            ("conditional_grant", &agent, Value::Null, none.clone()),
            ("conditional_grant", &agent, json!(""), none.clone()),
            (
                "conditional_grant",
                &agent,
                json!("x".repeat(5000)),
                none.clone(),
            ),
            (
                "conditional_grant",
                &agent,
                json!("true"),
                ("permission", json!("deny")),
            ),
            (
                "conditional_grant",
                &agent,
                json!("true"),
                ("replaces", json!([GrantId([2; 16])])),
            ),
        ] {
            let read = with(kind, subject, when.clone(), more);
            let LogChange::Unknown(_) = read.operation().change else {
                panic!("{kind} {when} {read:?}");
            };
        }
    }

    /// EXT-215: an entry with a group is of a kind of its own, whatever else it has: a build that does not know the kind
    /// closes what its issuer allowed. No other kind may carry one.
    #[test]
    fn a_grant_with_a_group_is_an_entry_of_another_kind() {
        let of = |kind: &str, subject: Value, more: &[(&str, Value)]| {
            let mut change = pattern(kind, subject, json!([]));
            for (name, value) in more {
                change[kind][*name] = value.clone();
            }
            let bytes = body(|value| value["change"] = change);
            EncodedOperation::decode(&bytes).unwrap()
        };
        let agent = || json!({"agent": NodeId([1; 32]).agent(AgentId::new("a"))});
        let group = || json!({"agent_everywhere": "group.readers"});
        let local = || json!({"agent": NodeId([1; 32]).agent(AgentId::new("group.readers"))});
        let member = ("resource", json!({"group": "readers"}));
        let when = ("when", json!("args.n == 1"));
        for (subject, more) in [
            (group(), vec![]),
            (group(), vec![when.clone()]),
            (agent(), vec![member.clone()]),
            (json!({"agents_at": NodeId([1; 32])}), vec![member.clone()]),
        ] {
            let read = of("group_grant", subject.clone(), &more);
            assert!(read.operation().change.grants().is_some(), "{read:?}");
            let again = EncodedOperation::new(read.operation().clone());
            let bytes = again.body().unwrap();
            assert!(bytes.windows(11).any(|it| it == b"group_grant"));
            assert!(
                !GRANT_KINDS[..3].contains(&"group_grant"),
                "builds before this one"
            );
            for kind in ["grant", "grant_pattern", "conditional_grant"] {
                let read = of(kind, subject.clone(), &more);
                assert!(
                    matches!(read.operation().change, LogChange::Unknown(_)),
                    "{kind} {read:?}"
                );
            }
        }
        for (subject, more) in [
            (agent(), vec![]),
            // In the logs of a cluster a group is that of all nodes, and replaces nothing.
            (local(), vec![]),
            (group(), vec![("replaces", json!([GrantId([2; 16])]))]),
            (group(), vec![member.clone()]),
            (agent(), vec![member.clone(), ("permission", json!("deny"))]),
            (agent(), vec![member.clone(), ("not_after_ms", json!(7))]),
            (agent(), vec![member.clone(), when]),
            (agent(), vec![("resource", json!({"group": "Readers"}))]),
            (json!({"agent_everywhere": "group.Readers"}), vec![]),
        ] {
            let read = of("group_grant", subject, &more);
            assert!(
                matches!(read.operation().change, LogChange::Unknown(_)),
                "{read:?}"
            );
        }
    }

    /// Whoever brings it may be a stranger: reading it takes no more of the stack than there is.
    #[test]
    fn what_is_nested_without_end_is_refused() {
        let nested = |depth: usize| (0..depth).fold(json!(0), |inner, _| json!([inner]));
        assert!(EncodedOperation::decode(&body(|value| value["change"] = nested(20))).is_ok());
        assert!(EncodedOperation::decode(&body(|value| value["change"] = nested(100))).is_err());
        let flat = body(|value| value["change"] = json!("deep"));
        let at = flat
            .windows(5)
            .position(|five| five == b"\xa4deep")
            .unwrap();
        for depth in [1_000, 60_000] {
            let nested = [vec![0x91; depth], vec![0xc0]].concat();
            let deep = [&flat[..at], &nested, &flat[at + 5..]].concat();
            assert!(EncodedOperation::decode(&deep).is_err(), "{depth}");
        }
    }

    /// The bound is the last length that fits.
    #[test]
    fn operation_of_the_greatest_length_is_read() {
        let filled = |length: usize| {
            let mut bytes = body(|_| {});
            bytes[0] += 1;
            bytes.extend_from_slice(b"\xa4more\xdb");
            let rest = length - bytes.len() - 4;
            bytes.extend_from_slice(&u32::try_from(rest).unwrap().to_be_bytes());
            bytes.resize(length, b'x');
            bytes
        };
        assert!(EncodedOperation::decode(&filled(OPERATION_MAX)).is_ok());
        assert!(EncodedOperation::decode(&filled(OPERATION_MAX + 1)).is_err());
    }

    /// Two readers must not find two operations in one entry.
    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let mut behind = body(|_| {});
        behind.push(0xc0);
        assert!(EncodedOperation::decode(&behind).is_err());
        // A map of one more member, the place a second time.
        let mut twice = body(|_| {});
        assert_eq!(twice[0], 0x86);
        twice[0] += 1;
        let place = json!({"place": revoke().place});
        twice.extend_from_slice(&rmp_serde::to_vec_named(&place).unwrap()[1..]);
        assert!(EncodedOperation::decode(&twice).is_err());
        for missing in ["place", "previous", "author", "told_at_ms", "change"] {
            let bytes = body(|value| {
                value.as_object_mut().unwrap().remove(missing);
            });
            assert!(EncodedOperation::decode(&bytes).is_err(), "{missing}");
        }
        assert!(EncodedOperation::decode(&vec![0; OPERATION_MAX + 1]).is_err());
        assert!(EncodedOperation::decode(b"").is_err());
    }
}
