//! A load generator that leaves the machine to what it measures: requests are serialised before the
//! clock starts, answers are looked at only as far as needed, and all clients share one thread.
//!
//! Only ever at the loopback, and bounded in calls and in time.

pub mod bounds;
pub mod h2;
pub mod http;
pub mod latency;
pub mod lines;
pub mod machine;
pub mod nginx;
pub mod pipe;
pub mod report;
pub mod request;
pub mod run;
pub mod sessions;
pub mod turnover;

pub use crate::harness::process::usage::{Holding, Usage};
pub use bounds::Bounds;
pub use h2::{H2Load, H2Post};
pub use http::HttpLoad;
pub use lines::LineLoad;
pub use nginx::Nginx;
pub use pipe::PipeLoad;
pub use report::{Cell, Report, Table};
pub use request::{Request, Talk};
pub use run::Run;
pub use turnover::Turnover;
