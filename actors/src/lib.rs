//! Mailboxes, clocks and hands: each actor performs what an engine decided.
//!
//! Control goes through actors, calls go through snapshots: a `tools/call` reads the published
//! catalog, registers in its server link's pending table and awaits the answer; no mailbox lies on
//! its way.

pub mod access;
pub mod agent;
pub mod agents;
pub mod approvals;
pub mod atomic_file;
pub mod attempts;
pub mod audit;
pub mod belongings;
pub mod bodies;
pub mod catalog;
pub mod connection;
pub mod directory;
pub mod door;
#[cfg(test)]
mod endings;
pub mod errand;
pub mod exchange;
pub mod finder;
pub mod guard;
pub mod holding;
pub mod journal;
pub mod levels;
pub mod link;
pub mod listener;
pub mod mailbox;
pub mod naming;
pub mod negotiation;
pub mod oauth;
pub mod parked;
pub mod pass;
pub mod permissions;
pub mod pins;
pub mod presence;
pub mod question;
pub mod randomness;
pub mod registrar;
pub mod relay;
mod removal;
pub mod request;
pub mod roster;
pub mod sandbox;
pub mod server;
pub mod session;
pub mod stateless;
pub mod streams;
pub mod subscriptions;
pub mod tasks;
pub mod time;
pub mod trace;
pub mod trouble;
pub mod validation;
mod wire_ids;
