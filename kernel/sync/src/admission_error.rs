//! The one way in which something is not let in.

use std::fmt;

/// Why something was not let in, and the thing itself, back in its owner's hands.
pub enum AdmissionError<T> {
    /// The bound is reached: later may do.
    Full(T),
    /// It was closed: later will not do either.
    Closed(T),
}

impl<T> AdmissionError<T> {
    /// What was refused.
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
