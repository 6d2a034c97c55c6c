//! The manager of a user's services.

pub use crate::ServiceManager;

/// The manager of this system.
pub const MANAGER: ServiceManager = ServiceManager::Systemd;
