//! How the command line reaches the kernel: finds it, starts it, asks it, and shows progress.

mod answer;
pub(super) mod background;
mod connection;
mod context;
pub(super) mod names;
mod observer;
pub(super) mod pages;
mod progress;
mod question;
mod silence;
mod socket;

pub(super) use answer::{read, refused};
pub(super) use connection::{ConnectOptions, KernelClient};
pub(super) use context::CliContext;
pub(super) use observer::RequestObserver;
pub(super) use progress::ProgressLine;
pub(super) use question::{ask_missing, lacks_some};
pub(super) use silence::{POLL, SilenceTimer};
pub(super) use socket::{ConnectRetries, backlog_is_full, no_connection, trusted};
