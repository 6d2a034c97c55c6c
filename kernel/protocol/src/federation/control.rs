//! The messages of the control stream.

use serde::{Deserialize, Serialize};

use super::addresses::NodeAddresses;
use super::hello::Hello;
use super::logs::{LogHash, LogsDigest};
use super::message::{BadMessage, decode, encode};
use super::tool_index::{IndexDigest, IndexReport};
use crate::ids::NodeId;

/// A control message: a map of `kind` and `body`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum Control {
    /// The first message in each direction, and only the first.
    Hello(Hello),
    /// Requests the peer's clock.
    Ping(Ping),
    /// Answers with the clock.
    Pong(Pong),
    /// The sender's incarnation in membership: incremented after it was suspected dead.
    Renewal(Incarnation),
    /// Verified addresses of other members.
    Addresses(NodeAddresses),
    /// The digest of the sender's logs.
    Logs(LogsDigest),
    /// The digest of what the sender shares with the receiver.
    Index(IndexDigest),
    /// The entries of the receiver's index that the sender rejected.
    IndexReport(IndexReport),
    /// The sender leaves the cluster.
    Leaving(Leaving),
    /// The sender's lease, and the nodes it reaches.
    Reach(ReachReport),
    /// A message of a later version. Ignored by a receiver that does not know it, preserved by a relay.
    #[serde(skip)]
    Unknown(UnknownControl),
}

/// Requests the peer's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// Returned in the answer.
    pub nonce: u64,
}

/// The peer's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// The nonce of the request.
    pub nonce: u64,
    /// The wall clock at the answer, in milliseconds since 1970.
    pub wall_ms: u64,
}

/// A node's incarnation number in membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// Later incarnations have higher numbers.
    pub renewal: u64,
}

/// The sender leaves: an admin that receives it records that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// The cluster that it leaves, identified by the hash of its founding entry.
    pub cluster: LogHash,
}

/// The most links in a report; those of a larger cluster are reported in part.
pub const LINKED_MAX: usize = 1024;

/// A node's report of its reachability, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachReport {
    /// The length of its lease, in milliseconds.
    pub lease_ms: u64,
    /// True if all nodes that could revoke something have confirmed within the lease.
    pub confirmed: bool,
    /// The nodes it has a link to, [`LINKED_MAX`] at most.
    #[serde(default)]
    pub linked: Vec<NodeId>,
}

/// A message of an unknown kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownControl {
    /// Its kind: at most 64 visible ASCII characters.
    pub kind: String,
    /// The whole message.
    pub bytes: Vec<u8>,
}

/// The known kinds.
const KINDS: [&str; 10] = [
    "hello",
    "ping",
    "pong",
    "renewal",
    "addresses",
    "logs",
    "index",
    "index_report",
    "leaving",
    "reach",
];

/// The longest name of a kind.
const KIND_MAX: usize = 64;

#[derive(Deserialize)]
struct ControlKind {
    kind: String,
}

impl Control {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Unknown(unknown) => unknown.bytes.clone(),
            Self::Hello(_)
            | Self::Ping(_)
            | Self::Pong(_)
            | Self::Renewal(_)
            | Self::Addresses(_)
            | Self::Logs(_)
            | Self::Index(_)
            | Self::IndexReport(_)
            | Self::Leaving(_)
            | Self::Reach(_) => encode(self),
        }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`BadMessage`], also for a known kind with a malformed body.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let ControlKind { kind } = decode(bytes)?;
        if KINDS.contains(&kind.as_str()) {
            return decode(bytes).map(Self::sanitize);
        }
        if kind.len() > KIND_MAX || !kind.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadMessage("the name of its kind is none".to_owned()));
        }
        let bytes = bytes.to_vec();
        Ok(Self::Unknown(UnknownControl { kind, bytes }))
    }

    /// Sanitizes the texts of a peer that are shown to people.
    fn sanitize(mut self) -> Self {
        if let Self::IndexReport(report) = &mut self {
            *report = std::mem::take(report).sanitize();
        }
        if let Self::Reach(reach) = &mut self {
            reach.linked.truncate(LINKED_MAX);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::addresses::NodeAddress;
    use super::super::hello::{LifeId, NodeName, ReportedRole, WIRE_VERSIONS, WireFeatures};
    use super::super::logs::{LogDigest, LogNonce, LogsDigestReason};
    use super::super::tool_index::{IndexRoot, RefusedEntry};
    use super::*;

    fn all() -> [Control; 10] {
        let hello = Hello {
            versions: WIRE_VERSIONS,
            features: WireFeatures::CALLS,
            life: LifeId([1; 16]),
            name: NodeName::parse("nas").unwrap(),
            role: ReportedRole::Admin,
            wall_ms: 7,
        };
        let (nonce, wall_ms) = (u64::MAX, 9);
        [
            Control::Hello(hello),
            Control::Ping(Ping { nonce }),
            Control::Pong(Pong { nonce, wall_ms }),
            Control::Renewal(Incarnation { renewal: 3 }),
            Control::Addresses(NodeAddresses {
                nodes: vec![NodeAddress {
                    node: NodeId([7; 32]),
                    address: "192.0.2.1:4410".parse().unwrap(),
                }],
            }),
            Control::Logs(LogsDigest {
                reason: LogsDigestReason::Ask,
                life: LifeId([2; 16]),
                nonce: Some(LogNonce([3; 16])),
                lease_ms: Some(30_000),
                heads: vec![LogDigest {
                    issuer: NodeId([4; 32]),
                    next: 5,
                    last: LogHash([6; 32]),
                    behind: None,
                }],
            }),
            Control::Index(IndexDigest {
                epoch: 1,
                version: 2,
                root: IndexRoot([3; 32]),
            }),
            Control::IndexReport(IndexReport {
                refused: 1,
                examples: vec![RefusedEntry {
                    entry: "a".to_owned(),
                    reason: "b".to_owned(),
                }],
            }),
            Control::Leaving(Leaving {
                cluster: LogHash([8; 32]),
            }),
            Control::Reach(ReachReport {
                lease_ms: 30_000,
                confirmed: true,
                linked: vec![NodeId([9; 32])],
            }),
        ]
    }

    #[test]
    fn control_messages_round_trip_with_known_kinds() {
        for message in all() {
            let bytes = message.encode();
            assert_eq!(Control::decode(&bytes), Ok(message));
            let ControlKind { kind } = decode(&bytes).unwrap();
            assert!(KINDS.contains(&kind.as_str()));
        }
    }

    /// FED-011, FED-059: a later version adds members and kinds; this one reads those it knows.
    #[test]
    fn unknown_members_are_ignored_and_unknown_kinds_preserved() {
        #[derive(Serialize)]
        struct Changed<'a, B> {
            kind: &'a str,
            since: (u8, Option<&'a str>),
            body: B,
        }
        #[derive(Serialize)]
        struct NextPing {
            hops: [u8; 2],
            nonce: u64,
        }
        let hops = [1, 2];
        let since = (2, Some("wire-next"));
        let body = NextPing { hops, nonce: 5 };
        let kind = "ping";
        let ping = encode(&Changed { kind, since, body });
        assert_eq!(Control::decode(&ping), Ok(Control::Ping(Ping { nonce: 5 })));
        let (kind, body) = ("drain", vec![1, 2, 3]);
        let drain = encode(&Changed { kind, since, body });
        let Ok(Control::Unknown(unknown)) = Control::decode(&drain) else {
            panic!("a kind of a later version is not taken");
        };
        assert_eq!((unknown.kind.as_str(), &unknown.bytes), ("drain", &drain));
        assert_eq!(Control::Unknown(unknown).encode(), drain);
        let (kind, body) = ("two\nlines", 0);
        let lines = encode(&Changed { kind, since, body });
        assert!(Control::decode(&lines).is_err());
    }

    /// No perturbed message panics the decoder, and trailing bytes are rejected.
    #[test]
    fn perturbed_bytes_are_rejected_or_decoded() {
        for message in all() {
            let bytes = message.encode();
            for cut in 0..bytes.len() {
                assert!(Control::decode(&bytes[..cut]).is_err(), "{cut}");
            }
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut bad = bytes.clone();
                    bad[at] ^= 1 << bit;
                    let _read = Control::decode(&bad);
                }
            }
            let more = [bytes.as_slice(), &[0xc0]].concat();
            assert!(Control::decode(&more).is_err());
        }
        assert!(Control::decode(&[0x91; 60_000]).is_err());
        assert!(Control::decode(&[0x81; 60_000]).is_err());
        // A string that declares four gigabytes.
        assert!(Control::decode(&[0x81, 0xdb, 0xff, 0xff, 0xff, 0xff]).is_err());
    }

    /// A duplicate member would have two meanings for two parsers.
    #[test]
    fn duplicate_member_is_rejected() {
        let twice = b"\x83\xa4kind\xa4ping\xa4body\x81\xa5nonce\x01\xa4kind\xa4pong";
        assert!(Control::decode(twice).is_err());
        let inside = b"\x82\xa4kind\xa4ping\xa4body\x82\xa5nonce\x01\xa5nonce\x02";
        assert!(Control::decode(inside).is_err());
        let by_position = b"\x92\xa4ping\x81\xa5nonce\x01";
        assert!(Control::decode(by_position).is_err());
    }
}
