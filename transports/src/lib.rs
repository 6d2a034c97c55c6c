//! Moves frames, and knows no method by name: stdio of children and our own socket, HTTP, links to other kernels.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod budget;
pub mod child;
pub mod fair_slots;
pub mod guard;
pub mod http;
pub mod lines;
pub mod log;
pub mod quic;
pub mod sse;
pub mod stall;
pub mod unix;
pub mod unread;
