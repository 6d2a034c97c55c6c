//! The protocol families spoken with a server.

/// The protocol families that a server speaks with the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum SpokenFamilies {
    /// `initialize` only.
    Legacy,
    /// 2026-07-28 only, or nothing else once `initialize` was sent.
    Stateless,
    /// Both at once.
    Dual,
}
