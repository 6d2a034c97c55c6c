//! The base of the other crates: mailboxes, tasks, the clock, randomness, taps, running other programs, and sinks for
//! events to crates above.

pub mod bounded_output;
pub mod event_sink;
pub mod ids;
pub mod mailbox;
pub mod metrics;
pub mod randomness;
pub mod tap;
pub mod task;
pub mod task_supervisor;
pub mod time;
pub mod trace;
