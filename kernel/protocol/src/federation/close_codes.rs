//! Why a link or a stream ends: the numbers that QUIC carries for us.

/// Makes an enum of codes: each has its number, and words for people and logs.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $code:ident = $number:literal $words:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum $name {
            $($(#[$of])* #[error($words)] $code,)*
            /// One of a later version.
            #[error("for reason {0}, which this version does not know")]
            Unknown(u64),
        }

        impl $name {
            /// As on the wire.
            #[must_use]
            pub const fn code(self) -> u64 {
                match self {
                    $(Self::$code => $number,)*
                    Self::Unknown(code) => code,
                }
            }

            /// Reads a number.
            #[must_use]
            pub const fn of_code(code: u64) -> Self {
                match code {
                    $($number => Self::$code,)*
                    _ => Self::Unknown(code),
                }
            }
        }
    };
}

codes! {
    /// Why a link was closed.
    LinkClose {
        /// Its node ends or leaves, or nobody holds the link any more.
        Done = 0 "the node ended it",
        /// The peer's key is no longer pinned.
        Revoked = 1 "the node was revoked",
        /// The peer's key is not pinned.
        NotPinned = 2 "the node is not known here",
        /// Another link to the same node took its place.
        Replaced = 3 "another link took its place",
        /// No version that both speak.
        NoCommonVersion = 4 "no version that both speak",
        /// Something that cannot be read where it had to be.
        Malformed = 5 "a message that cannot be read",
        /// A control message beyond the limit.
        Oversized = 6 "a control message beyond the limit",
        /// No hello in time, or nothing at all for too long.
        Silent = 7 "nothing was heard in time",
        /// A link for pairing has done its work, or its ticket is used or withdrawn.
        PairingOver = 8 "the pairing is over",
        /// More links than a peer may have.
        TooMany = 9 "too many links",
        /// The key is in use by two lives at once.
        TwoLives = 10 "two kernels use the same key",
        /// Its node was shut down gracefully. Each call that it took was answered, and the answers arrived: what
        /// has no answer was not begun.
        Shutdown = 11 "the node was shut down",
    }
}

codes! {
    /// Why a stream was reset, or is not read any further.
    StreamReset {
        /// Whoever it belonged to is gone without a word.
        Abandoned = 0 "it was abandoned",
        /// Its caller cancelled.
        Cancelled = 1 "it was cancelled",
        /// A frame beyond the limit.
        Oversized = 2 "a frame beyond the limit",
        /// Something that cannot be read.
        Malformed = 3 "a frame that cannot be read",
        /// Its time is over.
        Late = 4 "its time was over",
        /// More streams or bytes than there is room for; nothing was done.
        Busy = 5 "there was no room for it",
        /// A kind of stream that is not known, or not expected here.
        Unexpected = 6 "a stream of an unknown kind",
        /// The answer is whole; what the peer still writes is of no use.
        Answered = 7 "it was answered",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_as_it_was_written() {
        for code in (0..64).chain([1 << 40]) {
            assert_eq!(LinkClose::of_code(code).code(), code);
            assert_eq!(StreamReset::of_code(code).code(), code);
        }
        assert_eq!(LinkClose::of_code(1), LinkClose::Revoked);
        assert_eq!(StreamReset::of_code(1), StreamReset::Cancelled);
        assert_eq!(LinkClose::of_code(99), LinkClose::Unknown(99));
        assert!(LinkClose::Unknown(99).to_string().contains("99"));
    }
}
