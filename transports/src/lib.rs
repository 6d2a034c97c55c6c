//! Moves frames, and knows no method by name: stdio of children and our own socket, HTTP, links to other kernels.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod budget;
pub mod child;
mod fair_slots;
pub mod guard;
pub mod http;
pub mod lines;
pub mod log;
pub mod quic;
pub mod sse;
mod stall;
pub mod unix;
mod unread;

// A memory budget for messages that arrive in parts: bounded in bytes, for all peers together and for each.
pub use self::budget::MessageBudget;

// Slots that several owners share: when all are taken, the owner with the most slots gives one back.
pub use self::fair_slots::{FairSlots, SlotAdmission, Usage};

// A deadline on writes without progress: a peer that never reads blocks no task forever.
pub use self::stall::StallGuard;

// Responses that are buffered until their clients read them: counted in bytes.
pub use self::unread::{ResponseBudget, UnreadBytes, UnreadResponse};
