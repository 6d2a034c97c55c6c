//! What all servers offer together: the catalog, the search, registration, subscriptions to resources.

pub mod catalog;
pub mod finder;
pub mod registrar;
pub mod server_events;
pub mod shown;
pub mod subscriptions;
