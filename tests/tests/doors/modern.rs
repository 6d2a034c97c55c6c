//! 2026-07-28: requests that stand alone, at every door.

mod calls;
mod envelope;
mod listening;
mod rounds;
