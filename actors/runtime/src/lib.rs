//! The base of the other crates: mailboxes, tasks, the clock, randomness, and sinks for events to crates
//! above.

pub mod event_sink;
pub mod ids;
pub mod mailbox;
pub mod randomness;
pub mod task;
pub mod task_supervisor;
pub mod time;
pub mod trace;
