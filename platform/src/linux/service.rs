//! The manager of a user's services.

pub use crate::ServiceSystem;

/// The manager of this system.
pub const SERVICE_SYSTEM: ServiceSystem = ServiceSystem::Systemd;
