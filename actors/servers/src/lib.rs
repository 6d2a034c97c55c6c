//! Servers: supervisors, connections, processes and sandboxes.

mod audit_forwarding;
mod guard;
pub mod link;
mod log_levels;
mod login;
mod negotiation;
pub mod sandbox;
mod server;
pub mod upstream;

// Keeps the guard process running, which ends every child process when the kernel is killed.
pub use self::guard::{GuardActor, GuardHandle, GuardMsg};

// The logins of a kernel at servers reached over HTTP, and their tokens.
pub use self::login::{
    CallbackListener, LoginBackend, LoginError, LoginHttpClient, Logins, ServerLogin, SignIn,
};

// The supervisor of one server: starts it, watches it, restarts it within limits, stops it completely.
pub use self::server::{
    Connector, FetchTimes, ProcessSpawner, ResourceMonitor, ResourceSnapshot, ResubscriptionGuard,
    RunningGeneration, ServerActor, ServerEvent, ServerHandle, ServerMsg, ServerTable,
    StartProgress, Status,
};
