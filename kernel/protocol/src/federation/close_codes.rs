//! The error codes of closed links and reset streams, as carried by QUIC.

/// Defines an enum of codes, each with its number and a text for people and logs.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $code:ident = $number:literal $words:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum $name {
            $($(#[$of])* #[error($words)] $code,)*
            /// A code of a later version.
            #[error("for reason {0}, which this version does not know")]
            Unknown(u64),
        }

        impl $name {
            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> u64 {
                match self {
                    $(Self::$code => $number,)*
                    Self::Unknown(code) => code,
                }
            }

            /// Decodes a number.
            #[must_use]
            pub const fn from_code(code: u64) -> Self {
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
        /// The node shuts down or leaves, or the link is no longer referenced.
        Done = 0 "the node ended it",
        /// The peer's key is no longer pinned.
        Revoked = 1 "the node was revoked",
        /// The peer's key is not pinned.
        NotPinned = 2 "the node is not known here",
        /// Replaced by another link to the same node.
        Replaced = 3 "another link took its place",
        /// No common version.
        NoCommonVersion = 4 "no version that both speak",
        /// A malformed message.
        Malformed = 5 "a message that cannot be read",
        /// A control message beyond the limit.
        Oversized = 6 "a control message beyond the limit",
        /// No hello in time, or no message for too long.
        Silent = 7 "nothing was heard in time",
        /// A pairing link is finished, or its ticket is used or withdrawn.
        PairingOver = 8 "the pairing is over",
        /// The peer has too many links.
        TooMany = 9 "too many links",
        /// Two live nodes use the key.
        TwoLives = 10 "two kernels use the same key",
        /// The node was shut down gracefully. Each accepted call was answered, and the answers arrived: a
        /// call without an answer was not started.
        Shutdown = 11 "the node was shut down",
    }
}

codes! {
    /// Why a stream was reset or stopped.
    StreamReset {
        /// The stream was dropped without a reason.
        Abandoned = 0 "it was abandoned",
        /// Its caller cancelled.
        Cancelled = 1 "it was cancelled",
        /// A frame beyond the limit.
        Oversized = 2 "a frame beyond the limit",
        /// Something that cannot be read.
        Malformed = 3 "a frame that cannot be read",
        /// Its deadline passed.
        Late = 4 "its time was over",
        /// The limit of streams or bytes is reached; nothing was executed.
        Busy = 5 "there was no room for it",
        /// An unknown stream kind, or one that is not expected here.
        Unexpected = 6 "a stream of an unknown kind",
        /// The answer is complete; further messages are ignored.
        Answered = 7 "it was answered",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for code in (0..64).chain([1 << 40]) {
            assert_eq!(LinkClose::from_code(code).code(), code);
            assert_eq!(StreamReset::from_code(code).code(), code);
        }
        assert_eq!(LinkClose::from_code(1), LinkClose::Revoked);
        assert_eq!(StreamReset::from_code(1), StreamReset::Cancelled);
        assert_eq!(LinkClose::from_code(99), LinkClose::Unknown(99));
        assert!(LinkClose::Unknown(99).to_string().contains("99"));
    }
}
