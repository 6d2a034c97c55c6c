//! The eight severities of log records (RFC 5424), and the level a server must be set to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Severities, the least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Details for debugging.
    Debug,
    /// Normal operation.
    Info,
    /// Normal, but worth attention.
    Notice,
    /// Could become an error.
    Warning,
    /// Something failed.
    Error,
    /// A part has failed.
    Critical,
    /// Somebody must act now.
    Alert,
    /// Nothing works.
    Emergency,
}

impl LogLevel {
    /// All of them, the least severe first.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// Whether a record of this severity is sent to a session with the level `floor`.
    #[must_use]
    pub fn is_at_least(self, floor: Self) -> bool {
        self >= floor
    }
}

/// An unknown level name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no log level; the levels are debug, info, notice, warning, error, critical, alert and emergency"
)]
pub struct UnknownLogLevel(String);

impl FromStr for LogLevel {
    type Err = UnknownLogLevel;

    fn from_str(word: &str) -> Result<Self, UnknownLogLevel> {
        let level = Self::ALL.into_iter().find(|level| level.as_str() == word);
        level.ok_or_else(|| UnknownLogLevel(word.chars().take(40).collect()))
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_serialize_as_displayed_and_are_ordered() {
        for pair in LogLevel::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        for level in LogLevel::ALL {
            let json = serde_json::to_string(&level).unwrap();
            assert_eq!(json, format!("\"{level}\""));
            assert_eq!(level.as_str().parse(), Ok(level));
        }
        assert!("verbose".parse::<LogLevel>().is_err());
        assert!("DEBUG".parse::<LogLevel>().is_err());
    }

    #[test]
    fn a_record_passes_from_the_floor_level_on() {
        assert!(LogLevel::Error.is_at_least(LogLevel::Info));
        assert!(LogLevel::Info.is_at_least(LogLevel::Info));
        assert!(!LogLevel::Debug.is_at_least(LogLevel::Info));
    }
}
