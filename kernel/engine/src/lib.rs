//! Pure decisions: an input and the time go in, effects come out.
//!
//! No clock, no randomness, no threads, no IO: [`moment::Moment`] is passed in, variables and files
//! are read by closures of the caller.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod access;
pub mod approvals;
pub mod attribution;
pub mod audit;
pub mod bearer;
pub mod calendar;
pub mod catalog;
pub mod certificate;
pub mod code_safety;
pub mod consent;
pub mod cursor;
pub mod duties;
pub mod env;
pub mod exposure;
pub mod freshness;
pub mod grants;
pub mod health;
pub mod index;
pub mod journal;
pub mod known;
pub mod levels;
pub mod lifecycle;
pub mod moment;
pub mod names;
pub mod nearest;
pub mod node_key;
pub mod parked;
pub mod permissions;
pub mod pins;
pub mod questions;
pub mod rates;
pub mod registration;
pub mod reload;
pub mod request_ids;
pub mod restart;
pub mod retries;
pub mod risk;
pub mod roster;
pub mod sandbox;
pub mod schema;
pub mod seal;
pub mod spec;
pub mod starts;
pub mod subscriptions;
pub mod tasks;
pub mod tokens;
pub mod tool_cache;
pub mod tool_requests;
pub mod uris;
pub mod validators;
