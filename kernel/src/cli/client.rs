//! The command line's client of the kernel: finds, starts and queries it, and shows progress.

pub(super) mod background;
mod connection;
mod context;
mod download;
mod form_prompt;
pub(super) mod name_resolution;
mod observer;
pub(super) mod pages;
pub(super) mod pins;
mod progress;
mod response;
mod response_timeout;
mod socket;
mod windows_host;

pub(super) use connection::{ConnectOptions, KernelClient};
pub(super) use context::CliContext;
pub(super) use form_prompt::{has_promptable_missing, prompt_missing_arguments};
pub(super) use observer::RequestObserver;
pub(super) use progress::ProgressLine;
pub(super) use response::{parse_error, parse_result};
pub(super) use response_timeout::{POLL_INTERVAL, ResponseTimer};
pub(super) use socket::{ConnectRetries, backlog_is_full, check_owner, connect_failure};
