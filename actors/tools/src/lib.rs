//! The combined offers of all servers: catalog, search, registration, subscriptions to resources and to events.

pub mod catalog;
pub mod events;
pub mod offering;
pub mod published_catalog;
pub mod registrar;
pub mod search;
pub mod server_events;
pub mod subscriptions;
