//! Finds things without trusting them: the files of the configuration, and nodes on the local network.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
pub mod interfaces;
pub mod lan;

// Finds the configuration files in force (MGP §15.2, A-01).
pub use self::config::{
    ConfigFile, ConfigKind, ConfigLookup, ConfigLookupError, PROJECT_FILE, config_files,
};
