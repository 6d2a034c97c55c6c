//! The trust level of a server.

/// MGP §2.3 trust levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum TrustLevel {
    /// Least trusted.
    Sandboxed,
    /// The default of a configured server.
    #[default]
    Standard,
    /// Vouched for by the operator.
    Trusted,
}

impl TrustLevel {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sandboxed => "sandboxed",
            Self::Standard => "standard",
            Self::Trusted => "trusted",
        }
    }
}
