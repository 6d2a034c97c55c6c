//! Resource subscriptions of connections, which share one subscription at the server.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use mgp_protocol::ids::{ConnectionId, ServerId};

/// Most subscriptions of one connection: an agent with more is broken or hostile.
pub const PER_CONNECTION_MAX: usize = 1_000;
/// Most subscriptions of all connections together: some megabytes at the usual length of URIs.
pub(crate) const TOTAL_MAX: usize = 10_000;

/// A request to a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubscriptionEffect {
    /// `resources/subscribe`, for the first follower.
    SubscribeUpstream {
        /// Its server.
        server: ServerId,
        /// The server's own URI.
        uri: Arc<str>,
    },
    /// `resources/unsubscribe`, after the last follower.
    UnsubscribeUpstream {
        /// Its server.
        server: ServerId,
        /// The server's own URI.
        uri: Arc<str>,
    },
}

/// A bound is reached; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscriptionLimit {
    /// This connection has [`PER_CONNECTION_MAX`].
    #[error("a connection may have at most {PER_CONNECTION_MAX} resource subscriptions")]
    PerConnection,
    /// The kernel has [`TOTAL_MAX`].
    #[error("the kernel has reached its limit of {TOTAL_MAX} resource subscriptions")]
    Total,
}

type ResourceKey = (ServerId, Arc<str>);

/// All subscriptions, by resource and by connection.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    by_resource: HashMap<ResourceKey, BTreeSet<ConnectionId>>,
    by_connection: HashMap<ConnectionId, BTreeSet<ResourceKey>>,
    /// Disconnected servers, which get all subscriptions again after a reconnect.
    down: HashSet<ServerId>,
    total: usize,
}

impl Subscriptions {
    /// Subscribes a connection to a resource, given by the server's own URI. Idempotent.
    ///
    /// # Errors
    /// [`SubscriptionLimit`] at a bound.
    pub fn subscribe(
        &mut self,
        connection: ConnectionId,
        server: &ServerId,
        uri: &str,
    ) -> Result<Option<SubscriptionEffect>, SubscriptionLimit> {
        let resource: ResourceKey = (server.clone(), uri.into());
        let subscribed = self.by_connection.get(&connection);
        if subscribed.is_some_and(|subscribed| subscribed.contains(&resource)) {
            return Ok(None);
        }
        if subscribed.map_or(0, BTreeSet::len) >= PER_CONNECTION_MAX {
            return Err(SubscriptionLimit::PerConnection);
        }
        if self.total >= TOTAL_MAX {
            return Err(SubscriptionLimit::Total);
        }
        self.total += 1;
        let subscribed = self.by_connection.entry(connection).or_default();
        subscribed.insert(resource.clone());
        let followers = self.by_resource.entry(resource.clone()).or_default();
        followers.insert(connection);
        let should_subscribe = followers.len() == 1 && !self.down.contains(server);
        let (server, uri) = resource;
        Ok(should_subscribe.then_some(SubscriptionEffect::SubscribeUpstream { server, uri }))
    }

    /// Unsubscribes a connection from a resource.
    pub fn unsubscribe(
        &mut self,
        connection: ConnectionId,
        server: &ServerId,
        uri: &str,
    ) -> Option<SubscriptionEffect> {
        let resource: ResourceKey = (server.clone(), uri.into());
        let subscribed = self.by_connection.get_mut(&connection)?;
        if !subscribed.remove(&resource) {
            return None;
        }
        if subscribed.is_empty() {
            self.by_connection.remove(&connection);
        }
        self.remove_follower(connection, resource)
    }

    /// Removes all subscriptions of a closed connection.
    pub fn remove_connection(&mut self, connection: ConnectionId) -> Vec<SubscriptionEffect> {
        let subscribed = self.by_connection.remove(&connection).unwrap_or_default();
        subscribed
            .into_iter()
            .filter_map(|resource| self.remove_follower(connection, resource))
            .collect()
    }

    /// Ends subscriptions of connections that may no longer follow a server.
    pub fn retain(
        &mut self,
        may_follow: impl Fn(ConnectionId, &ServerId) -> bool,
    ) -> Vec<SubscriptionEffect> {
        let mut ended = Vec::new();
        for (connection, subscribed) in &mut self.by_connection {
            let lost = subscribed.extract_if(.., |(server, _)| !may_follow(*connection, server));
            ended.extend(lost.map(|resource| (*connection, resource)));
        }
        self.by_connection
            .retain(|_, subscribed| !subscribed.is_empty());
        ended
            .into_iter()
            .filter_map(|(connection, resource)| self.remove_follower(connection, resource))
            .collect()
    }

    fn remove_follower(
        &mut self,
        connection: ConnectionId,
        resource: ResourceKey,
    ) -> Option<SubscriptionEffect> {
        self.total -= 1;
        let followers = self.by_resource.get_mut(&resource)?;
        followers.remove(&connection);
        if !followers.is_empty() {
            return None;
        }
        self.by_resource.remove(&resource);
        let (server, uri) = resource;
        let is_up = !self.down.contains(&server);
        is_up.then_some(SubscriptionEffect::UnsubscribeUpstream { server, uri })
    }

    /// The connections to notify when a resource changes, each once.
    pub fn followers(
        &self,
        server: &ServerId,
        uri: &str,
    ) -> impl Iterator<Item = ConnectionId> + use<'_> {
        let resource: ResourceKey = (server.clone(), uri.into());
        let followers = self.by_resource.get(&resource);
        followers.into_iter().flatten().copied()
    }

    /// A server disconnected and lost its subscriptions. It gets no requests until it is back.
    pub fn server_down(&mut self, server: &ServerId) {
        self.down.insert(server.clone());
    }

    /// A server reconnected. Returns the sorted URIs to subscribe to again.
    pub fn server_up(&mut self, server: &ServerId) -> Vec<Arc<str>> {
        self.down.remove(server);
        let resources = self.by_resource.keys().filter(|(owner, _)| owner == server);
        let mut uris: Vec<Arc<str>> = resources.map(|(_, uri)| Arc::clone(uri)).collect();
        uris.sort();
        uris
    }

    /// Ends the subscriptions of a removed server and its instances.
    pub fn remove_server(&mut self, server: &ServerId) {
        self.down.retain(|down| down.server() != *server);
        self.by_resource
            .retain(|(owner, _), _| owner.server() != *server);
        self.by_connection.retain(|_, subscribed| {
            subscribed.retain(|(owner, _)| owner.server() != *server);
            !subscribed.is_empty()
        });
        self.total = self.by_connection.values().map(BTreeSet::len).sum();
    }

    /// Subscriptions of all connections together.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.total
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    fn files() -> ServerId {
        ServerId::new("files")
    }

    fn subscribed(uri: &str) -> Option<SubscriptionEffect> {
        let (server, uri) = (files(), uri.into());
        Some(SubscriptionEffect::SubscribeUpstream { server, uri })
    }

    fn unsubscribed(uri: &str) -> Option<SubscriptionEffect> {
        let (server, uri) = (files(), uri.into());
        Some(SubscriptionEffect::UnsubscribeUpstream { server, uri })
    }

    #[test]
    fn only_the_first_and_last_subscription_reach_the_server() {
        let mut all = Subscriptions::default();
        assert_eq!(all.subscribe(A, &files(), "x"), Ok(subscribed("x")));
        assert_eq!(all.subscribe(A, &files(), "x"), Ok(None));
        assert_eq!(all.subscribe(B, &files(), "x"), Ok(None));
        assert_eq!(all.followers(&files(), "x").collect::<Vec<_>>(), [A, B]);
        assert_eq!(all.followers(&files(), "y").count(), 0);
        assert_eq!(all.unsubscribe(A, &files(), "x"), None);
        assert_eq!(all.unsubscribe(A, &files(), "x"), None);
        assert_eq!(all.remove_connection(B), [unsubscribed("x").unwrap()]);
        assert!(all.is_empty());
    }

    #[test]
    fn retain_ends_only_unretained_subscriptions() {
        let mut all = Subscriptions::default();
        for (connection, uri) in [(A, "x"), (B, "x"), (A, "y")] {
            all.subscribe(connection, &files(), uri).unwrap();
        }
        assert_eq!(all.retain(|_, _| true), []);
        let ended = all.retain(|connection, server| connection == B || *server != files());
        assert_eq!(ended, [unsubscribed("y").unwrap()]);
        assert_eq!(all.followers(&files(), "x").collect::<Vec<_>>(), [B]);
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn a_reconnected_server_gets_its_subscriptions_again() {
        let mut all = Subscriptions::default();
        for uri in ["b", "a"] {
            all.subscribe(A, &files(), uri).unwrap();
        }
        all.server_down(&files());
        assert_eq!(all.subscribe(A, &files(), "c"), Ok(None));
        assert_eq!(all.unsubscribe(A, &files(), "b"), None);
        let uris = all.server_up(&files());
        assert_eq!(uris, [Arc::from("a"), Arc::from("c")]);
        assert_eq!(all.unsubscribe(A, &files(), "a"), unsubscribed("a"));
    }

    #[test]
    fn a_removed_server_has_no_followers() {
        let mut all = Subscriptions::default();
        let instance = files().instance("agent.a");
        let other = ServerId::new("other");
        for server in [&files(), &instance, &other] {
            all.subscribe(A, server, "x").unwrap();
        }
        all.server_down(&files());
        all.remove_server(&files());
        assert_eq!(all.len(), 1);
        assert!(all.server_up(&files()).is_empty());
        assert_eq!(all.followers(&instance, "x").count(), 0);
        assert_eq!(all.followers(&other, "x").collect::<Vec<_>>(), [A]);
    }

    #[test]
    fn a_subscription_beyond_a_bound_changes_nothing() {
        let mut all = Subscriptions::default();
        for connection in 0..10 {
            for n in 0..PER_CONNECTION_MAX {
                let uri = format!("{connection}/{n}");
                all.subscribe(ConnectionId(connection), &files(), &uri)
                    .unwrap();
            }
        }
        let subscribed = all.subscribe(ConnectionId(0), &files(), "one more");
        assert_eq!(subscribed, Err(SubscriptionLimit::PerConnection));
        let other = all.subscribe(ConnectionId(99), &files(), "one more");
        assert_eq!(other, Err(SubscriptionLimit::Total));
        assert_eq!(all.len(), TOTAL_MAX);
        all.remove_connection(ConnectionId(0));
        assert!(
            all.subscribe(ConnectionId(99), &files(), "one more")
                .is_ok()
        );
    }

    proptest! {
        /// Against a set of (connection, uri).
        #[test]
        fn the_server_is_subscribed_exactly_to_followed_resources(
            steps in proptest::collection::vec((0u8..4, 0u64..4, 0u8..4), 0..80)
        ) {
            let mut all = Subscriptions::default();
            let (mut model, mut upstream) = (BTreeSet::new(), BTreeSet::new());
            for (step, connection, uri) in steps {
                let (connection, uri) = (ConnectionId(connection), uri.to_string());
                let effects = match step {
                    0 | 1 => {
                        model.insert((connection, uri.clone()));
                        Vec::from_iter(all.subscribe(connection, &files(), &uri).unwrap())
                    }
                    2 => {
                        model.remove(&(connection, uri.clone()));
                        Vec::from_iter(all.unsubscribe(connection, &files(), &uri))
                    }
                    _ => {
                        model.retain(|(of, _)| *of != connection);
                        all.remove_connection(connection)
                    }
                };
                for effect in effects {
                    match effect {
                        SubscriptionEffect::SubscribeUpstream { uri, .. } => prop_assert!(upstream.insert(uri)),
                        SubscriptionEffect::UnsubscribeUpstream { uri, .. } => prop_assert!(upstream.remove(&uri)),
                    }
                }
                let followed: BTreeSet<Arc<str>> = model.iter().map(|(_, u)| u.as_str().into()).collect();
                prop_assert_eq!(&upstream, &followed);
                prop_assert_eq!(all.len(), model.len());
                for uri in &followed {
                    let followers: BTreeSet<_> = all.followers(&files(), uri).collect();
                    let want = model.iter().filter(|(_, u)| **u == **uri).map(|(c, _)| *c);
                    prop_assert_eq!(followers, want.collect::<BTreeSet<_>>());
                }
            }
        }
    }
}
