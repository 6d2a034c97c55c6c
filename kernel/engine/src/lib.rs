//! Pure decisions: an input and the time go in, effects come out.
//!
//! No clock, no randomness, no threads, no IO: [`clock::MonotonicTime`] is passed in, variables and files are read by
//! closures of the caller.
//!
//! The modules are listed in the order in which a call passes them. A module uses only modules below it; all of them
//! may use the small modules at the end.

#![cfg_attr(test, allow(clippy::unwrap_used))]

/// Endpoints and their callers: tokens, certificates, the agent registry, and the names people type.
pub mod doors {
    pub mod agent_registry;
    pub mod app_frames;
    pub mod bearer;
    pub mod broker;
    pub mod certificate;
    pub mod console_sessions;
    pub mod dpop;
    pub mod name_resolver;
    pub mod permission_names;
    pub mod suggestions;
}

/// Limits on calls, their retries and their outcomes.
pub mod calls {
    pub mod extensions;
    pub mod outcome;
    pub mod rate_limits;
    pub mod recorder;
    pub mod result_pages;
    pub mod retries;
    pub mod state;
    pub mod telemetry;
}

/// What is offered: the catalog, its index, and how tools are added to it.
pub mod tools {
    pub mod apps;
    pub mod brief;
    pub mod catalog;
    pub mod events;
    pub mod exposure;
    pub mod index;
    pub mod registration;
    pub mod schema;
    pub mod skills;
    pub mod subscriptions;
    pub mod tool_request_decision;
    pub mod uris;
}

/// Other nodes: links to them, sharing with them, their offers, and their liveness.
pub mod cluster {
    pub mod address_hints;
    pub mod assertions;
    pub mod clock_offset;
    pub mod discovered_nodes;
    pub mod link_plan;
    pub mod membership;
    pub mod pairing;
    pub(crate) mod proven_addresses;
    pub mod remote_requests;
    pub mod routes;
    pub mod shares;
    pub mod staleness;
    pub mod tool_index;
}

/// One server: its entry, its generation, its sandbox, and the callers its callbacks belong to.
pub mod servers {
    pub mod attribution;
    pub mod call_queue;
    pub mod consent;
    pub mod egress;
    pub mod health;
    pub mod lifecycle;
    pub mod log_levels;
    pub mod login;
    pub mod replica_spec;
    pub mod resources;
    pub mod restart;
    pub mod sandbox;
    pub mod spec;
    pub mod start_order;
    pub mod supervision;
    pub mod tree_plan;
}

/// Replication between nodes: the logs of their admins, the members, leases, and their messages.
pub mod replication {
    pub(crate) mod clocks;
    pub mod lease;
    pub mod local_log;
    pub mod log_batch;
    pub mod logs;
    pub mod members;
    pub(crate) mod node_instances;
    pub mod remote_rules;
    pub mod replica;
    pub mod role_changes;
    #[cfg(test)]
    mod test_logs;
}

/// What is allowed, and what must be checked or confirmed first.
pub mod policy {
    pub mod access;
    pub mod approvals;
    pub mod grants;
    pub mod notices;
    pub mod permissions;
    pub mod pins;
    pub mod requirements;
    pub mod risk;
    pub(crate) mod tool_pattern;
    pub mod trust;
}

/// The state of one caller: its callbacks, streams, tasks, suspended calls and cached tools.
pub mod callers {
    pub mod agent_requests;
    pub mod call_stream;
    pub mod callbacks;
    pub mod input_requests;
    pub mod request_ids;
    pub mod request_state;
    pub mod seal;
    pub mod tasks;
    pub mod token_cost;
    pub mod tool_cache;
}

/// Storage: the journal, the audit log and secrets; and the masking used everywhere.
pub mod store {
    pub mod audit;
    pub mod journal;
    pub mod secrets;
}

pub mod clock;
pub mod env;
pub mod node_key;
pub mod node_names;
pub mod timestamps;
pub mod tool_names;
