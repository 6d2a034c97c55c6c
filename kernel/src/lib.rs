//! The program `mgp`: the configuration, the command line and the kernel itself.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cli;
mod cluster;
pub mod config;
mod config_source;
mod demo;
mod handover;
mod health;
mod kernel;
mod key_rotation;
mod operator;
mod paths;
mod pending_notices;
mod routes;
mod skill_folder;
mod supervision_tree;
mod trust;
mod version;

// Starts the actors of the cluster.
pub use self::cluster::{Cluster, ClusterDeps};

// The source of the configuration, and its current status.
pub use self::config_source::ConfigSource;

// The supervision tree: which actor supervises which, and what the failure of each means.
pub use self::supervision_tree::{ROOT_ACTORS, RootActor, ServerDeps, TreeActor, TreeHandle};
