//! The eras in which a server is spoken to.

/// The eras a server speaks with us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum SpokenFamilies {
    /// `initialize` only.
    Legacy,
    /// 2026-07-28 only, or no longer anything else once `initialize` was sent.
    Modern,
    /// Both at once.
    Dual,
}
