//! The combined offers of all servers: catalog, search, registration, subscriptions to resources and to events.

mod catalog;
mod events;
mod offering;
mod published_catalog;
pub mod registrar;
pub mod search;
pub mod server_events;
mod subscriptions;

// Publishes the offers of all servers as one catalog, and notifies agents of changes.
pub use self::catalog::{CatalogActor, CatalogHandle, CatalogMsg, PublishedCatalog};

// Events: what servers and the kernel publish to subscribers (MGP §13).
pub use self::events::{
    AuditEvents, EventsHandle, EventsMsg, EventsRequest, FollowingAgent, FollowingEnd, PushChannel,
    PushedEvent,
};

// What the servers of this node offer to other nodes.
pub use self::offering::{LocalOffer, OfferSources};

// Subscriptions to resources: one at the server for any number of agents.
pub use self::subscriptions::{SubscriptionsActor, SubscriptionsHandle, SubscriptionsMsg};
