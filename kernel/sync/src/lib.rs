//! The structures that threads share, each small enough for exhaustive tests.
//!
//! | structure | what it protects | its invariant |
//! |---|---|---|
//! | [`PendingRequests`] | requests that await an answer | each request is settled exactly once |
//! | [`Gate`] | a server or an endpoint that drains | nothing enters after it closes; the drain is reported once |
//! | [`Ring`] | the event streams of a session | replay, then live events: no gap, no duplicate |
//! | [`Feed`] | the last events of a channel | a reader learns what it missed, and the writer never waits |
//! | [`Snapshot`] | tables that calls read without asking their owner | a load sees the last store that returned |
//! | [`Slot`] | the current instance of something that restarts | an occupant is removed only with its own token |
//! | [`Credit`] | the bound of a queue | charges stay within the limit and come back exactly once |
//! | [`CoalescingQueue`] | what waits to be sent over a link | an item is taken once, in order; a waiting receiver is woken |
//! | [`Roster`] | open links, and the peers that may have one | after a change returns, no forbidden entry goes on |
//! | [`SendWindow`] | frames of a stream in flight to its reader | a waiting sender is woken by the next release |
//!
//! Everything else in the kernel belongs to one actor and is not shared. No lock is held across an
//! await, nor while a waker is woken, a drain is reported or a replaced value dropped; where a
//! caller's closure does run under a lock, its method says so.
//!
//! [loom](https://docs.rs/loom) runs the same code through every interleaving, in a target folder
//! of its own so that the everyday one stays warm:
//!
//! ```text
//! RUSTFLAGS="--cfg mgp_loom" cargo test -p mgp-sync --release --target-dir target/loom
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

/// `Debug` that prints only the name: the content may be large, secret or locked.
macro_rules! opaque_debug {
    ($name:ident $(<$t:ident>)?) => {
        impl $(<$t>)? std::fmt::Debug for $name $(<$t>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

mod coalescing_queue;
mod credit;
mod feed;
mod gate;
mod pending_requests;
mod ring;
mod roster;
mod send_window;
mod slot;
mod snapshot;

mod admission_error;
mod number_map;
mod shim;

pub use admission_error::AdmissionError;
pub use coalescing_queue::CoalescingQueue;
pub use credit::{Charge, Credit};
pub use feed::{Feed, FeedLimits, FeedRead, Wakeup};
pub use gate::{Gate, GatePass};
pub use pending_requests::PendingRequests;
pub use ring::{LIVE, Ring, RingLimits, RingNext, RingReader};
pub use roster::{EnterError, Roster, RosterGuard};
pub use send_window::{ReleasedFrames, SendWindow};
pub use slot::{FillToken, Slot, UntilFilled};
pub use snapshot::Snapshot;
