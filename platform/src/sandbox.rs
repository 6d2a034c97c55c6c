//! The sandbox of a server's process: its policy, and the launcher that starts the server under it.

pub use crate::launch::{
    KERNEL_PID_VARIABLE, LAUNCH_ARGUMENT, Limits, Machine, POLICY_VARIABLE, PROXY_PORT, Policy,
    SERVER_PREFIX,
};
pub use crate::system::sandbox::{
    LAUNCHER_STAYS, NOT_HELD, bind_socket, confine_to_compute, launch, probe, receive_listener,
};
