//! The error of all bounded structures of this crate.

use std::fmt;

/// Why an item was rejected; returns the item to its owner.
pub enum AdmissionError<T> {
    /// The bound is reached; a later attempt may succeed.
    Full(T),
    /// The structure is closed for good.
    Closed(T),
}

impl<T> AdmissionError<T> {
    /// The rejected item.
    #[must_use]
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(thing) | Self::Closed(thing) => thing,
        }
    }
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
