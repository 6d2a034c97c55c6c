//! Faults as text and JSON.

use std::fmt;

use serde_json::{Value, json};

use super::{LogFault, SegmentOffset};

impl fmt::Display for SegmentOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {}, byte {}", self.segment, self.offset)
    }
}

/// `record 7`, `records 7 to 9`.
struct NumberSpan(u64, u64);

impl fmt::Display for NumberSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == self.1 {
            write!(f, "record {}", self.0)
        } else {
            write!(f, "records {} to {}", self.0, self.1)
        }
    }
}

impl fmt::Display for LogFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { sequence, place } => {
                write!(f, "record {sequence} was changed ({place})")
            }
            Self::Removed { from, to } => write!(f, "{}: removed", NumberSpan(*from, *to)),
            Self::Truncated { from, to } => {
                write!(f, "{}: cut off the end", NumberSpan(*from, *to))
            }
            Self::Moved { from, to, place } => {
                write!(f, "{}: moved ({place})", NumberSpan(*from, *to))
            }
            Self::Duplicated { from, to, place } => {
                write!(f, "{}: duplicated ({place})", NumberSpan(*from, *to))
            }
            Self::Foreign { place } => write!(f, "something that is no record ({place})"),
            Self::Unanchored { first } => write!(
                f,
                "record {first} does not follow the records that were trimmed"
            ),
            Self::Separator { sequence, place } => write!(
                f,
                "the newline after record {sequence} is another byte ({place})"
            ),
            Self::Torn { place, len } => {
                write!(
                    f,
                    "{len} bytes of an unfinished record at the end ({place})"
                )
            }
            Self::Unterminated { place } => {
                write!(f, "the newline after the last record is missing ({place})")
            }
            Self::TooMany { place } => write!(
                f,
                "too many faults to distinguish; nothing was verified from there on ({place})"
            ),
        }
    }
}

impl LogFault {
    /// The kind, records and offset, for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut out = match *self {
            Self::Changed { sequence, .. } => {
                json!({"fault": "changed", "from": sequence, "to": sequence})
            }
            Self::Removed { from, to } => json!({"fault": "removed", "from": from, "to": to}),
            Self::Truncated { from, to } => json!({"fault": "truncated", "from": from, "to": to}),
            Self::Moved { from, to, .. } => json!({"fault": "moved", "from": from, "to": to}),
            Self::Duplicated { from, to, .. } => {
                json!({"fault": "duplicated", "from": from, "to": to})
            }
            Self::Foreign { .. } => json!({"fault": "foreign"}),
            Self::Unanchored { first } => {
                json!({"fault": "unanchored", "from": first, "to": first})
            }
            Self::Separator { sequence, .. } => {
                json!({"fault": "separator", "from": sequence, "to": sequence})
            }
            Self::Torn { len, .. } => json!({"fault": "torn", "bytes": len}),
            Self::Unterminated { .. } => json!({"fault": "unterminated"}),
            Self::TooMany { .. } => json!({"fault": "too_many"}),
        };
        if let Some(place) = self.place() {
            out["file"] = place.segment.into();
            out["offset"] = place.offset.into();
        }
        out["message"] = self.to_string().into();
        out
    }

    fn place(&self) -> Option<SegmentOffset> {
        match *self {
            Self::Changed { place, .. }
            | Self::Moved { place, .. }
            | Self::Duplicated { place, .. }
            | Self::Foreign { place }
            | Self::Separator { place, .. }
            | Self::Torn { place, .. }
            | Self::Unterminated { place }
            | Self::TooMany { place } => Some(place),
            Self::Removed { .. } | Self::Truncated { .. } | Self::Unanchored { .. } => None,
        }
    }
}
