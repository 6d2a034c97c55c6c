//! Which connection is subscribed to which resource: many connections share one subscription at the server.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use mgp_protocol::ids::{ConnectionId, ServerId};

/// Most subscriptions of one connection: an agent that follows more is broken or hostile.
pub const PER_CONNECTION_MAX: usize = 1_000;
/// Most subscriptions of all connections together: some megabytes at the usual length of URIs.
pub(crate) const TOTAL_MAX: usize = 10_000;

/// What to ask of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubscriptionEffect {
    /// `resources/subscribe`: somebody wants to hear of it now.
    SubscribeUpstream {
        /// Its server.
        server: ServerId,
        /// The server's own URI.
        uri: Arc<str>,
    },
    /// `resources/unsubscribe`: nobody does any more.
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

/// All subscriptions, by what they are about and by whose they are.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    by_subject: HashMap<ResourceKey, BTreeSet<ConnectionId>>,
    by_connection: HashMap<ConnectionId, BTreeSet<ResourceKey>>,
    /// Servers that are away: they are asked for everything again when they are back.
    down: HashSet<ServerId>,
    total: usize,
}

impl Subscriptions {
    /// A connection wants to hear of a resource, given by the server's own URI. Asking again for the
    /// same changes nothing.
    ///
    /// # Errors
    /// [`SubscriptionLimit`] at a bound.
    pub fn subscribe(
        &mut self,
        connection: ConnectionId,
        server: &ServerId,
        uri: &str,
    ) -> Result<Option<SubscriptionEffect>, SubscriptionLimit> {
        let subject: ResourceKey = (server.clone(), uri.into());
        let own = self.by_connection.get(&connection);
        if own.is_some_and(|own| own.contains(&subject)) {
            return Ok(None);
        }
        if own.map_or(0, BTreeSet::len) >= PER_CONNECTION_MAX {
            return Err(SubscriptionLimit::PerConnection);
        }
        if self.total >= TOTAL_MAX {
            return Err(SubscriptionLimit::Total);
        }
        self.total += 1;
        let own = self.by_connection.entry(connection).or_default();
        own.insert(subject.clone());
        let followers = self.by_subject.entry(subject.clone()).or_default();
        followers.insert(connection);
        let first = followers.len() == 1 && !self.down.contains(server);
        let (server, uri) = subject;
        Ok(first.then_some(SubscriptionEffect::SubscribeUpstream { server, uri }))
    }

    /// A connection no longer wants to hear of a resource.
    pub fn unsubscribe(
        &mut self,
        connection: ConnectionId,
        server: &ServerId,
        uri: &str,
    ) -> Option<SubscriptionEffect> {
        let subject: ResourceKey = (server.clone(), uri.into());
        let own = self.by_connection.get_mut(&connection)?;
        if !own.remove(&subject) {
            return None;
        }
        if own.is_empty() {
            self.by_connection.remove(&connection);
        }
        self.remove_follower(connection, subject)
    }

    /// A connection is gone.
    pub fn remove_connection(&mut self, connection: ConnectionId) -> Vec<SubscriptionEffect> {
        let own = self.by_connection.remove(&connection).unwrap_or_default();
        own.into_iter()
            .filter_map(|subject| self.remove_follower(connection, subject))
            .collect()
    }

    /// Ends what is not kept: whether a connection may still hear of a server.
    pub fn retain(
        &mut self,
        kept: impl Fn(ConnectionId, &ServerId) -> bool,
    ) -> Vec<SubscriptionEffect> {
        let mut ended = Vec::new();
        for (connection, own) in &mut self.by_connection {
            let lost = own.extract_if(.., |(server, _)| !kept(*connection, server));
            ended.extend(lost.map(|subject| (*connection, subject)));
        }
        self.by_connection.retain(|_, own| !own.is_empty());
        ended
            .into_iter()
            .filter_map(|(connection, subject)| self.remove_follower(connection, subject))
            .collect()
    }

    fn remove_follower(
        &mut self,
        connection: ConnectionId,
        subject: ResourceKey,
    ) -> Option<SubscriptionEffect> {
        self.total -= 1;
        let followers = self.by_subject.get_mut(&subject)?;
        followers.remove(&connection);
        if !followers.is_empty() {
            return None;
        }
        self.by_subject.remove(&subject);
        let (server, uri) = subject;
        let there = !self.down.contains(&server);
        there.then_some(SubscriptionEffect::UnsubscribeUpstream { server, uri })
    }

    /// Who is told that a resource changed, each once.
    pub fn followers(
        &self,
        server: &ServerId,
        uri: &str,
    ) -> impl Iterator<Item = ConnectionId> + use<'_> {
        let subject: ResourceKey = (server.clone(), uri.into());
        let followers = self.by_subject.get(&subject);
        followers.into_iter().flatten().copied()
    }

    /// A server went away, and what it was asked for with it. Nothing is asked of it until it is
    /// back.
    pub fn server_down(&mut self, server: &ServerId) {
        self.down.insert(server.clone());
    }

    /// A server is there again: the URIs it is to be asked for anew, in their order.
    pub fn server_up(&mut self, server: &ServerId) -> Vec<Arc<str>> {
        self.down.remove(server);
        let subjects = self.by_subject.keys().filter(|(of, _)| of == server);
        let mut uris: Vec<Arc<str>> = subjects.map(|(_, uri)| Arc::clone(uri)).collect();
        uris.sort();
        uris
    }

    /// A server was taken out for good: its subscriptions end, and those of its instances.
    pub fn remove_server(&mut self, server: &ServerId) {
        self.down.retain(|of| of.server() != *server);
        self.by_subject.retain(|(of, _), _| of.server() != *server);
        self.by_connection.retain(|_, own| {
            own.retain(|(of, _)| of.server() != *server);
            !own.is_empty()
        });
        self.total = self.by_connection.values().map(BTreeSet::len).sum();
    }

    /// Subscriptions of all connections together.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.total
    }

    /// Nobody follows anything.
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
    fn only_the_first_and_the_last_reach_the_server() {
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
    fn what_is_not_kept_ends_for_whom_it_is_not() {
        let mut all = Subscriptions::default();
        for (who, uri) in [(A, "x"), (B, "x"), (A, "y")] {
            all.subscribe(who, &files(), uri).unwrap();
        }
        assert_eq!(all.retain(|_, _| true), []);
        let ended = all.retain(|who, server| who == B || *server != files());
        assert_eq!(ended, [unsubscribed("y").unwrap()]);
        assert_eq!(all.followers(&files(), "x").collect::<Vec<_>>(), [B]);
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn a_server_that_comes_back_is_asked_again() {
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
    fn a_server_that_was_taken_out_is_followed_by_nobody() {
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
    fn bounds_refuse_and_change_nothing() {
        let mut all = Subscriptions::default();
        for connection in 0..10 {
            for n in 0..PER_CONNECTION_MAX {
                let uri = format!("{connection}/{n}");
                all.subscribe(ConnectionId(connection), &files(), &uri)
                    .unwrap();
            }
        }
        let own = all.subscribe(ConnectionId(0), &files(), "one more");
        assert_eq!(own, Err(SubscriptionLimit::PerConnection));
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
        /// Against a plain set of (connection, uri): the server is subscribed exactly to what
        /// somebody follows.
        #[test]
        fn the_server_is_asked_for_what_is_followed(
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
                    let told: BTreeSet<_> = all.followers(&files(), uri).collect();
                    let want = model.iter().filter(|(_, u)| **u == **uri).map(|(c, _)| *c);
                    prop_assert_eq!(told, want.collect::<BTreeSet<_>>());
                }
            }
        }
    }
}
