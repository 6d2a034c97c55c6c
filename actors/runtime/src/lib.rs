//! The base of the other crates: mailboxes, tasks, the clock, randomness, taps, running other programs, and sinks for
//! events to crates above.

mod bounded_output;
mod event_sink;
pub mod ids;
mod mailbox;
mod metrics;
pub mod randomness;
pub mod tap;
pub mod task;
mod task_supervisor;
pub mod time;
pub mod trace;

// Runs another program with bounds on its output and its duration.
pub use self::bounded_output::run_bounded;

// Sends events to crates above: the sink is passed in at construction, so that none of them is imported.
pub use self::event_sink::EventSink;

// Mailboxes of actors, bounded by credit because those of the actor library are unbounded.
pub use self::mailbox::{ActorCountGuard, AskError, CountedKind, Mailbox, Queued, Reply};

// Counters that any thread updates without waiting, and a reader sums up.
pub use self::metrics::{Counter, LatencyRecorder};

// Supervises tasks of a part of the kernel with shared state instead of an actor.
pub use self::task_supervisor::{TaskSupervisorHandle, TaskSupervisorMsg};
