//! The manager of a user's services.

pub use crate::ServiceManager;

/// The manager of this system.
pub const MANAGER: ServiceManager = if cfg!(target_os = "macos") {
    ServiceManager::Launchd
} else {
    ServiceManager::Unknown
};
