//! The first message each way: who is there, and what both can do.

use std::fmt;
use std::ops::{BitAnd, BitOr};

use serde::{Deserialize, Serialize};

use super::byte_text::fixed_bytes;
use super::message::{BadMessage, decode, encode};
use crate::ids::describe_char;
use crate::mgp::kernel::nodes::Role;

fixed_bytes! {
    /// One life of a kernel: random at each start. Two at a time with one key mean that the key was copied.
    LifeId, 16
}

/// What this kernel speaks.
pub const WIRE_VERSIONS: WireVersions = WireVersions {
    lowest: 1,
    highest: 1,
};

/// Says who a node is. Its key was proven by the handshake; the rest is its own word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The versions it speaks.
    pub versions: WireVersions,
    /// What it can do.
    pub features: WireFeatures,
    /// Which life of the node this is.
    pub life: LifeId,
    /// What it is called.
    pub name: NodeName,
    /// What it takes itself for. What it may do is said by the cluster's log, never here.
    pub role: ReportedRole,
    /// Its wall clock, in milliseconds since 1970.
    pub wall_ms: u64,
}

/// The versions of the wire that a node speaks, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireVersions {
    /// The oldest one.
    pub lowest: u16,
    /// The newest one.
    pub highest: u16,
}

/// What two nodes agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedWire {
    /// The newest version both speak.
    pub version: u16,
    /// What both can do.
    pub features: WireFeatures,
}

/// No version is spoken by both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this kernel speaks the versions {ours} of the link's protocol, the other one {theirs}: update the older one"
)]
pub struct NoCommonVersion {
    /// Ours.
    pub(crate) ours: WireVersions,
    /// The peer's.
    pub(crate) theirs: WireVersions,
}

impl Hello {
    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        decode(bytes)
    }

    /// What both sides are going to speak.
    ///
    /// # Errors
    /// [`NoCommonVersion`].
    pub fn negotiate(&self, theirs: &Self) -> Result<NegotiatedWire, NoCommonVersion> {
        let (ours, others) = (self.versions, theirs.versions);
        let version = ours.highest.min(others.highest);
        if version >= ours.lowest.max(others.lowest) {
            Ok(NegotiatedWire {
                version,
                features: self.features & theirs.features,
            })
        } else {
            Err(NoCommonVersion {
                ours,
                theirs: others,
            })
        }
    }
}

impl fmt::Display for WireVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.lowest, self.highest)
    }
}

/// A set of what a node can do. Bits that are not known are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WireFeatures(u64);

impl WireFeatures {
    /// Nothing beyond what every version has.
    pub const NONE: Self = Self(0);
    /// Calls are taken.
    pub const CALLS: Self = Self(1);
    /// Packets of membership are taken.
    pub const MEMBERSHIP: Self = Self(1 << 1);
    /// Grants and their revocation are exchanged.
    pub const GRANTS: Self = Self(1 << 2);
    /// Indexes of shared tools are exchanged.
    pub const INDEX: Self = Self(1 << 3);
    /// What the owner's kernel refuses by itself is a frame of its own, so that an error is its server's.
    pub const REFUSALS: Self = Self(1 << 4);
    /// Packets have a head, and may be passed on to a third node.
    pub const RELAY: Self = Self(1 << 5);
    /// A call that comes while the node shuts down is refused as such, and the link then closed as such.
    pub const SHUTDOWN: Self = Self(1 << 9);
    /// A cut that leaves a node in, with a lower role, is read as that.
    pub const DEMOTION: Self = Self(1 << 10);
    /// Grants with patterns are read.
    pub const PATTERNS: Self = Self(1 << 11);
    /// A wire that is changed on purpose (`wire-next`): no release sets it, tests of mixed clusters do.
    pub const WIRE_NEXT: Self = Self(1 << 63);

    /// True when all of `other` is in it.
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

/// What a node takes itself for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedRole {
    /// Signs grants and admits nodes.
    Admin,
    /// Shares and calls.
    Member,
    /// Only calls.
    Leaf,
    /// A role of a later version: may do what a leaf may.
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

/// What a node is called: the first part of the name of each tool it shares.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NodeName(Box<str>);

impl NodeName {
    /// Longest name: `node__server__tool` should stay within the 64 characters most model APIs allow.
    pub const MAX_LEN: usize = 24;
    /// No node is called so: behind `/mcp/p/` stand the names of sets, and its servers would lie there.
    const RESERVED: &str = "p";

    /// Judges a name given by a person or a peer.
    ///
    /// # Errors
    /// [`BadNodeName`] says what is wrong with it.
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

    /// The name for a node on a machine of this name: what of it can stand in a node's name.
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

    /// The name itself.
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

/// Why a text names no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNodeName {
    /// More than [`NodeName::MAX_LEN`] bytes.
    #[error("a node's name has at most {max} characters, this one has {0}", max = NodeName::MAX_LEN)]
    TooLong(usize),
    /// A character that would not survive in a tool's name, or has two cases.
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

    /// The address of a set is never that of a server of a node.
    #[test]
    fn no_node_stands_where_sets_do() {
        assert_eq!(NodeName::parse("p"), Err(BadNodeName::Reserved));
        assert!(NodeName::parse("pp").is_ok());
        assert_eq!(NodeName::from_hostname("P.lan").as_str(), "node");
    }

    #[test]
    fn the_newest_common_version_is_spoken() {
        let agreed = |a: (u16, u16), b: (u16, u16)| {
            let agreed = hello(a.0, a.1).negotiate(&hello(b.0, b.1));
            agreed.map(|agreed| agreed.version).ok()
        };
        assert_eq!(agreed((1, 1), (1, 2)), Some(1));
        assert_eq!(agreed((1, 3), (2, 5)), Some(3));
        assert_eq!(agreed((1, 1), (2, 2)), None);
        assert_eq!(agreed((3, 4), (1, 2)), None);
        // The ends the wrong way round are no range.
        assert_eq!(agreed((2, 1), (1, 2)), None);
        let refused = hello(1, 1).negotiate(&hello(2, 3)).unwrap_err().to_string();
        assert!(refused.contains("1 to 1") && refused.contains("2 to 3"));
    }

    #[test]
    fn a_feature_counts_when_both_have_it_and_unknown_bits_are_kept() {
        let next = hello(1, 1);
        assert_eq!(Hello::decode(&next.encode()).as_ref(), Ok(&next));
        let mut old = next.clone();
        old.features = WireFeatures::CALLS | WireFeatures::GRANTS;
        let agreed = old.negotiate(&next).unwrap();
        assert_eq!(agreed.features, WireFeatures::CALLS);
        assert!(!agreed.features.contains(WireFeatures::WIRE_NEXT));
    }

    #[test]
    fn names_survive_in_the_names_of_tools() {
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
    fn every_machine_has_a_name_for_its_node() {
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

    /// A name from the wire is judged like one that was typed.
    #[test]
    fn a_hello_with_a_bad_name_is_none() {
        let mut bytes = hello(1, 1).encode();
        let at = bytes.windows(5).position(|five| five == b"nas-2").unwrap();
        bytes[at] = b'N';
        let refused = Hello::decode(&bytes).unwrap_err().to_string();
        assert!(refused.contains("small letters"), "{refused}");
    }
}
