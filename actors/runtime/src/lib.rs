//! What every room stands on: mailboxes, the clock, ids nobody can guess, and what a room tells those
//! above it.

pub mod event_sink;
pub mod ids;
pub mod mailbox;
pub mod randomness;
pub mod task;
pub mod task_supervisor;
pub mod time;
pub mod trace;
