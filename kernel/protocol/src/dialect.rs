//! The MCP version of a peer, and what that version supports.

use std::fmt;

/// The published versions of MCP, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 2024-11-05: HTTP+SSE.
    V2024_11_05,
    /// 2025-03-26: Streamable HTTP, batches.
    V2025_03_26,
    /// 2025-06-18: elicitation, structured results, the version header.
    V2025_06_18,
    /// 2025-11-25: URL elicitation, resumable polling, input errors as results.
    V2025_11_25,
    /// 2026-07-28: stateless; no `initialize`.
    V2026_07_28,
}

/// The family of a protocol version: with a handshake, or with all metadata in each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtocolFamily {
    /// Opened by `initialize`: 2024-11-05 to 2025-11-25.
    Legacy,
    /// Stateless, with the caller's metadata in each request's `_meta`: 2026-07-28.
    Stateless,
}

/// The dialect of answers to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The MCP version of the client.
    pub version: Version,
    /// True if it negotiated the error codes of MGP.
    pub mgp: bool,
}

impl From<Version> for Dialect {
    /// The dialect without MGP.
    fn from(version: Version) -> Self {
        Self {
            version,
            mgp: false,
        }
    }
}

impl Version {
    /// All versions negotiated by `initialize`.
    pub const LEGACY: [Self; 4] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
    ];
    /// The answer to an `initialize` that names an unknown version.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;
    /// The stateless version.
    pub const STATELESS: Self = Self::V2026_07_28;

    /// Parses a version's date.
    #[must_use]
    pub fn parse(date: &str) -> Option<Self> {
        [
            Self::V2024_11_05,
            Self::V2025_03_26,
            Self::V2025_06_18,
            Self::V2025_11_25,
            Self::V2026_07_28,
        ]
        .into_iter()
        .find(|v| v.as_str() == date)
    }

    /// The date, as on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Negotiates the version of an `initialize`: the requested one if it is a legacy one, otherwise the
    /// latest legacy one.
    #[must_use]
    pub fn negotiate(requested: &str) -> Self {
        Self::parse(requested)
            .filter(|v| v.is_legacy())
            .unwrap_or(Self::LATEST_LEGACY)
    }

    /// True for versions negotiated by `initialize`.
    #[must_use]
    pub fn is_legacy(self) -> bool {
        self < Self::V2026_07_28
    }

    /// The family of this version.
    #[must_use]
    pub fn family(self) -> ProtocolFamily {
        if self.is_legacy() {
            ProtocolFamily::Legacy
        } else {
            ProtocolFamily::Stateless
        }
    }

    /// JSON-RPC batches exist in this version only.
    #[must_use]
    pub fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Bad arguments of a tool are a result with `isError`, so that the model can correct them (SEP-1303).
    #[must_use]
    pub fn has_input_errors_as_results(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// An SSE stream opens with an event that has an id and no data, to resume from (SEP-1699).
    #[must_use]
    pub fn has_stream_priming(self) -> bool {
        self == Self::V2025_11_25
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCP-003, A-29: a known legacy version is echoed, anything else gets the latest legacy one.
    #[test]
    fn known_legacy_version_is_echoed_and_others_get_the_latest() {
        for v in Version::LEGACY {
            assert_eq!(Version::negotiate(v.as_str()), v);
        }
        for other in ["2026-07-28", "1999-01-01", ""] {
            assert_eq!(Version::negotiate(other), Version::V2025_11_25);
        }
    }
}
