//! The trust level of a server.

use mgp_protocol::mgp::negotiation::Negotiated;

/// MGP §2.3 trust levels. 0.2 has three words for the four of 0.6: its `sandboxed` is both `experimental` and `untrusted`,
/// which are confined alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum TrustLevel {
    /// Least trusted: `sandboxed`, `untrusted`.
    Sandboxed,
    /// Confined as the least trusted, and named by the operator.
    Experimental,
    /// The default of a configured server.
    #[default]
    Standard,
    /// Vouched for by the operator: `trusted`, `core`.
    Trusted,
}

impl TrustLevel {
    /// The word in 0.2.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sandboxed | Self::Experimental => "sandboxed",
            Self::Standard => "standard",
            Self::Trusted => "trusted",
        }
    }

    /// The word for this peer.
    #[must_use]
    pub fn word_for(self, peer: &Negotiated) -> &'static str {
        if !peer.has_four_trust_levels() {
            return self.as_str();
        }
        match self {
            Self::Sandboxed => "untrusted",
            Self::Experimental => "experimental",
            Self::Standard => "standard",
            Self::Trusted => "core",
        }
    }

    /// Parses a word of any version.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let known = [
            ("trusted", Self::Trusted),
            ("core", Self::Trusted),
            ("standard", Self::Standard),
            ("experimental", Self::Experimental),
            ("sandboxed", Self::Sandboxed),
            ("untrusted", Self::Sandboxed),
        ];
        let mut known = known.into_iter();
        known.find_map(|(name, level)| (name == word).then_some(level))
    }

    /// True if its process is confined, and its claims are checked most strictly.
    #[must_use]
    pub fn is_sandboxed(self) -> bool {
        self <= Self::Experimental
    }
}
