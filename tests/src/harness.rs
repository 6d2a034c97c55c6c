//! What a test needs to use the kernel as a person would: a real process, real agents, real peers.
//!
//! Nothing here shares code with the kernel. Waiting is always on a condition with a deadline, and
//! what a test starts ends with it, by its process id.

pub mod account;
pub mod agent;
pub mod answer;
pub mod client;
pub mod envelope;
pub mod handshake;
pub mod http;
pub mod kernel;
pub mod mgp;
pub mod modern;
pub mod peers;
pub mod process;
pub mod program;
pub mod sign_in;
pub mod system;
pub mod upstream;
pub mod wait;

pub use account::Account;
pub use agent::Agent;
pub use answer::Answer;
pub use client::Client;
pub use envelope::Envelope;
pub use http::HttpClient;
pub use kernel::{Kernel, on_a_disk};
pub use modern::ModernAgent;
pub use peers::{ClientPrograms, Need, OpenApiPrograms, Peers};
pub use process::Process;
pub use program::Program;
pub use upstream::Upstream;
pub use wait::{DEADLINE, wait_until};
