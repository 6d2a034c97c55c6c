//! The error of all bounded structures of this crate.

use std::fmt;

/// Why an item was rejected; returns the item to its owner.
pub enum AdmissionError<T> {
    /// The bound is reached; a later attempt may succeed.
    Full(T),
    /// The structure is closed for good.
    Closed(T),
}

impl<T> fmt::Display for AdmissionError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "full",
            Self::Closed(_) => "closed",
        })
    }
}

impl<T> fmt::Debug for AdmissionError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> std::error::Error for AdmissionError<T> {}
