//! The first message in each direction: the node's identity and features.

use std::fmt;
use std::ops::{BitAnd, BitOr};

use serde::{Deserialize, Serialize};

use super::byte_text::fixed_bytes;
use super::message::{BadMessage, decode, encode};
use crate::ids::describe_char;
use crate::mgp::kernel::nodes::Role;

fixed_bytes! {
    /// The id of one run of a kernel: random at each start. Two at a time with one key mean that the key
    /// was copied.
    LifeId, 16
}

/// The versions of this kernel.
pub const WIRE_VERSIONS: WireVersions = WireVersions {
    lowest: 1,
    highest: 1,
};

/// The identity of a node. Its key was proven by the handshake; the rest is self-reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The supported versions.
    pub versions: WireVersions,
    /// The supported features.
    pub features: WireFeatures,
    /// The id of this run.
    pub life: LifeId,
    /// The node's name.
    pub name: NodeName,
    /// The self-reported role. The rights of a node are determined by the cluster's log, never by this.
    pub role: ReportedRole,
    /// Its wall clock, in milliseconds since 1970.
    pub wall_ms: u64,
}

/// The supported versions of the wire protocol, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireVersions {
    /// The oldest version.
    pub lowest: u16,
    /// The newest version.
    pub highest: u16,
}

/// The negotiated version and features of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedWire {
    /// The newest common version.
    pub version: u16,
    /// The common features.
    pub features: WireFeatures,
}

/// The nodes have no common version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this kernel speaks the versions {ours} of the link's protocol, the other one {theirs}: update the older one"
)]
pub struct NoCommonVersion {
    /// The versions of this node.
    pub(crate) ours: WireVersions,
    /// The versions of the peer.
    pub(crate) theirs: WireVersions,
}

impl Hello {
    /// Encodes the hello.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes a hello.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        decode(bytes)
    }

    /// Negotiates the version and features of the link.
    ///
    /// # Errors
    /// [`NoCommonVersion`].
    pub fn negotiate(&self, theirs: &Self) -> Result<NegotiatedWire, NoCommonVersion> {
        let (ours, peer_versions) = (self.versions, theirs.versions);
        let version = ours.highest.min(peer_versions.highest);
        if version >= ours.lowest.max(peer_versions.lowest) {
            Ok(NegotiatedWire {
                version,
                features: self.features & theirs.features,
            })
        } else {
            Err(NoCommonVersion {
                ours,
                theirs: peer_versions,
            })
        }
    }
}

impl fmt::Display for WireVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.lowest, self.highest)
    }
}

/// A set of features of a node. Unknown bits are preserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WireFeatures(u64);

impl WireFeatures {
    /// No optional features.
    pub const NONE: Self = Self(0);
    /// Calls are accepted.
    pub const CALLS: Self = Self(1);
    /// Membership packets are accepted.
    pub const MEMBERSHIP: Self = Self(1 << 1);
    /// Grants and their revocation are replicated.
    pub const GRANTS: Self = Self(1 << 2);
    /// Indexes of shared tools are replicated.
    pub const INDEX: Self = Self(1 << 3);
    /// Refusals of the owner's kernel have a frame of their own, so that an error is its server's.
    pub const REFUSALS: Self = Self(1 << 4);
    /// Packets have a header, and may be relayed to a third node.
    pub const RELAY: Self = Self(1 << 5);
    /// A call that arrives while the node shuts down is rejected as such, and the link is then closed as
    /// such.
    pub const SHUTDOWN: Self = Self(1 << 9);
    /// A cut-off that keeps a node with a lower role is read as a demotion.
    pub const DEMOTION: Self = Self(1 << 10);
    /// Grants with patterns are supported.
    pub const PATTERNS: Self = Self(1 << 11);
    /// Grants with conditions are supported.
    pub const CONDITIONS: Self = Self(1 << 12);
    /// Reads grants with groups, and what puts agents into groups.
    pub const GROUPS: Self = Self(1 << 13);
    /// A deliberately changed wire format (`wire-next`): set by tests of mixed clusters, never by a
    /// release.
    pub const WIRE_NEXT: Self = Self(1 << 63);

    /// True if it contains all of `other`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for WireFeatures {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for WireFeatures {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The self-reported role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedRole {
    /// Signs grants and admits nodes.
    Admin,
    /// Shares and calls.
    Member,
    /// Only calls.
    Leaf,
    /// A role of a later version, with the rights of a leaf.
    #[serde(other)]
    Unknown,
}

impl From<Role> for ReportedRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Admin => Self::Admin,
            Role::Member => Self::Member,
            Role::Leaf => Self::Leaf,
        }
    }
}

impl From<ReportedRole> for Role {
    fn from(role: ReportedRole) -> Self {
        match role {
            ReportedRole::Admin => Self::Admin,
            ReportedRole::Member => Self::Member,
            ReportedRole::Leaf | ReportedRole::Unknown => Self::Leaf,
        }
    }
}

/// The name of a node: the first part of the name of each tool it shares.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NodeName(Box<str>);

impl NodeName {
    /// The longest name: `node__server__tool` should fit the 64 characters that most model APIs allow.
    pub const MAX_LEN: usize = 24;
    /// A reserved name: the paths below `/mcp/p/` belong to sets, not to the servers of a node.
    const RESERVED: &str = "p";

    /// Validates a name given by a person or a peer.
    ///
    /// # Errors
    /// [`BadNodeName`].
    pub fn parse(text: &str) -> Result<Self, BadNodeName> {
        if text.len() > Self::MAX_LEN {
            return Err(BadNodeName::TooLong(text.len()));
        }
        let plain = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-');
        if let Some(c) = text.chars().find(|c| !plain(*c)) {
            return Err(BadNodeName::Character(c));
        }
        if text.is_empty() || text.starts_with('-') || text.ends_with('-') {
            return Err(BadNodeName::EmptyOrEdgeDash);
        }
        if text == Self::RESERVED {
            return Err(BadNodeName::Reserved);
        }
        Ok(Self(text.into()))
    }

    /// Derives a node name from a host name, keeping the allowed characters.
    #[must_use]
    pub fn from_hostname(host: &str) -> Self {
        let first = host.split('.').next().unwrap_or_default();
        let plain = |c: char| match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => c,
            _ => '-',
        };
        let name: String = first.chars().map(plain).take(Self::MAX_LEN).collect();
        let name = name.trim_matches('-');
        Self::parse(name).unwrap_or_else(|_| Self("node".into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0.into()
    }
}

impl TryFrom<String> for NodeName {
    type Error = BadNodeName;

    fn try_from(text: String) -> Result<Self, BadNodeName> {
        Self::parse(&text)
    }
}

/// An invalid node name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNodeName {
    /// More than [`NodeName::MAX_LEN`] bytes.
    #[error("a node's name has at most {max} characters, this one has {0}", max = NodeName::MAX_LEN)]
    TooLong(usize),
    /// A character that is not allowed in a tool's name, or has two cases.
    #[error("a node's name is made of small letters, digits and '-'; {} is none of them", describe_char(*.0))]
    Character(char),
    /// Nothing, or `-` at an end.
    #[error("a node's name begins and ends with a letter or a digit")]
    EmptyOrEdgeDash,
    /// [`NodeName::RESERVED`].
    #[error("no node is called \"p\": /mcp/p/NAME is the address of a set; choose another name")]
    Reserved,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(lowest: u16, highest: u16) -> Hello {
        Hello {
            versions: WireVersions { lowest, highest },
            features: WireFeatures::CALLS | WireFeatures::WIRE_NEXT,
            life: LifeId([3; 16]),
            name: NodeName::parse("nas-2").unwrap(),
            role: ReportedRole::Member,
            wall_ms: 1_790_000_000_000,
        }
    }

    /// The path of a set is never that of a server of a node.
    #[test]
    fn reserved_name_of_sets_is_rejected() {
        assert_eq!(NodeName::parse("p"), Err(BadNodeName::Reserved));
        assert!(NodeName::parse("pp").is_ok());
        assert_eq!(NodeName::from_hostname("P.lan").as_str(), "node");
    }

    #[test]
    fn newest_common_version_is_negotiated() {
        let agreed = |a: (u16, u16), b: (u16, u16)| {
            let agreed = hello(a.0, a.1).negotiate(&hello(b.0, b.1));
            agreed.map(|agreed| agreed.version).ok()
        };
        assert_eq!(agreed((1, 1), (1, 2)), Some(1));
        assert_eq!(agreed((1, 3), (2, 5)), Some(3));
        assert_eq!(agreed((1, 1), (2, 2)), None);
        assert_eq!(agreed((3, 4), (1, 2)), None);
        // A reversed range is invalid.
        assert_eq!(agreed((2, 1), (1, 2)), None);
        let refused = hello(1, 1).negotiate(&hello(2, 3)).unwrap_err().to_string();
        assert!(refused.contains("1 to 1") && refused.contains("2 to 3"));
    }

    #[test]
    fn features_are_intersected_and_unknown_bits_preserved() {
        let next = hello(1, 1);
        assert_eq!(Hello::decode(&next.encode()).as_ref(), Ok(&next));
        let mut old = next.clone();
        old.features = WireFeatures::CALLS | WireFeatures::GRANTS;
        let agreed = old.negotiate(&next).unwrap();
        assert_eq!(agreed.features, WireFeatures::CALLS);
        assert!(!agreed.features.contains(WireFeatures::WIRE_NEXT));
    }

    #[test]
    fn node_names_are_valid_in_tool_names() {
        for good in ["nas", "a", "pi-4", "0"] {
            assert_eq!(NodeName::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "", "-", "a-", "-a", "NAS", "a_b", "a__b", "ä", "a b", "a.b", "a\n",
        ] {
            assert!(NodeName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(NodeName::parse(&"a".repeat(24)).is_ok());
        assert!(NodeName::parse(&"a".repeat(25)).is_err());
    }

    #[test]
    fn node_name_is_derived_from_any_host_name() {
        for (host, name) in [
            ("nas", "nas"),
            ("NAS-2.fritz.box", "nas-2"),
            ("Günthers MacBook", "g-nthers-macbook"),
            ("_a_", "a"),
            ("", "node"),
            ("---.lan", "node"),
            ("abcdefghijklmnopqrstuvw-yz", "abcdefghijklmnopqrstuvw"),
        ] {
            assert_eq!(NodeName::from_hostname(host).as_str(), name, "{host}");
        }
    }

    /// A name on the wire is validated like a typed one.
    #[test]
    fn hello_with_an_invalid_name_is_rejected() {
        let mut bytes = hello(1, 1).encode();
        let at = bytes.windows(5).position(|five| five == b"nas-2").unwrap();
        bytes[at] = b'N';
        let refused = Hello::decode(&bytes).unwrap_err().to_string();
        assert!(refused.contains("small letters"), "{refused}");
    }
}
