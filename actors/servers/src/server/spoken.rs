//! In which eras a server is spoken to.

/// The eras a server speaks with us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum SpokenEras {
    /// `initialize` only.
    Legacy,
    /// 2026-07-28 only, or nothing else any more once `initialize` was said.
    Modern,
    /// Both at once.
    Dual,
}
