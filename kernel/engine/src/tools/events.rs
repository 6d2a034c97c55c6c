//! Event subscriptions of agents, and the subscriptions at servers that they need: one for each followed channel and
//! severity (MGP §13.2).
//!
//! Events have no severity on the wire, so servers filter them: two severities of one channel are two subscriptions. A
//! server of another node gets one subscription per agent, because its owner decides which events an agent may receive;
//! it is stored under the name of an instance.

pub mod channels;
pub mod rate_limit;
mod remote_servers;
pub mod resources;
#[cfg(test)]
mod tests;
mod upstream;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::mgp::events::{ChannelPattern, Severity};

use self::remote_servers::server_entry;
use self::upstream::{
    PreviousConnection, UpstreamServer, UpstreamState, attribute_to, topics_with_id,
};

/// Most subscriptions of one connection: an agent that has more is broken or hostile.
pub(crate) const PER_CONNECTION_MAX: usize = 64;
/// Most subscriptions of all connections together: each holds some 20 KiB at most.
pub(crate) const TOTAL_MAX: usize = 10_000;
/// Most channels of one subscription.
pub(crate) const CHANNELS_MAX: usize = 64;
/// Buffered events of one server until it answers with their subscription's id: as many as it may send before its answer
/// is read.
pub(crate) const EARLY_EVENTS_MAX: usize = 256;
/// Most subscriptions at one server: each costs the server resources, and the kernel a feed. Further channels are deferred
/// until another one ends.
pub(crate) const PER_SERVER_MAX: usize = 256;
/// Most subscriptions at all servers together: each has a feed that holds at least one event.
pub const UPSTREAM_TOTAL_MAX: usize = 1_024;
/// Deferred subscriptions to retry when capacity is free.
const RETRY_BATCH: usize = 8;

/// The kernel's number of an agent's subscription.
pub type SubscriptionNumber = u64;

/// The channels and severity of a subscription at a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic {
    /// The channels.
    pub channels: ChannelPattern,
    /// The minimum severity; [`Severity::Debug`] for all events.
    pub severity: Severity,
}

/// A request to a server, or a change of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventsEffect {
    /// `mgp/events/subscribe` of one topic.
    SubscribeUpstream {
        /// The server.
        server: ServerId,
        /// The topic.
        topic: Topic,
    },
    /// `mgp/events/unsubscribe`.
    UnsubscribeUpstream {
        /// The server.
        server: ServerId,
        /// The server's own id.
        id: Arc<str>,
    },
    /// Subscribe to a topic of a server of another node for an agent.
    SubscribeRemote {
        /// The agent's name for the server.
        server: ServerId,
        /// The topic.
        topic: Topic,
    },
    /// Unsubscribe from it.
    UnsubscribeRemote {
        /// The agent's name for the server.
        server: ServerId,
        /// The topic.
        topic: Topic,
    },
    /// A subscription follows more topics because capacity became free.
    SubscriptionExtended(SubscriptionNumber),
}

/// A bound is reached; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventSubscriptionLimit {
    /// This connection has [`PER_CONNECTION_MAX`].
    #[error(
        "a connection may have at most {PER_CONNECTION_MAX} event subscriptions; end one with mgp/events/unsubscribe"
    )]
    PerConnection,
    /// The kernel has [`TOTAL_MAX`].
    #[error("the kernel has reached its limit of {TOTAL_MAX} event subscriptions")]
    Total,
    /// More than [`CHANNELS_MAX`] channels at once.
    #[error(
        "a subscription may name at most {CHANNELS_MAX} channels; a pattern such as tool.* stands for many"
    )]
    Channels,
}

/// The topics of a server's event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventAttribution<E> {
    /// It belongs to these topics.
    Topics(Vec<Topic>, E),
    /// It is buffered until the server answers.
    Buffered,
    /// It belongs to no subscription.
    Unsolicited,
}

#[derive(Clone, Debug)]
struct EventSubscription {
    connection: ConnectionId,
    topics: BTreeSet<Topic>,
    /// The servers whose events it may receive.
    servers: BTreeSet<ServerId>,
}

/// All subscriptions of agents and at servers. `E` is an event that waits for its server's answer.
#[derive(Clone, Debug)]
pub struct EventSubscriptions<E> {
    subscriptions: BTreeMap<SubscriptionNumber, EventSubscription>,
    by_connection: HashMap<ConnectionId, BTreeSet<SubscriptionNumber>>,
    /// The subscriptions for each topic of each server; no entry is empty.
    followers: BTreeMap<ServerId, BTreeMap<Topic, BTreeSet<SubscriptionNumber>>>,
    /// Topics in `followers`, of all servers.
    followed_count: usize,
    /// Subscriptions with deferred topics, in the order of retries.
    deferred: VecDeque<SubscriptionNumber>,
    servers: BTreeMap<ServerId, UpstreamServer<E>>,
}

impl<E> Default for EventSubscriptions<E> {
    fn default() -> Self {
        Self {
            subscriptions: BTreeMap::new(),
            by_connection: HashMap::new(),
            followers: BTreeMap::new(),
            followed_count: 0,
            deferred: VecDeque::new(),
            servers: BTreeMap::new(),
        }
    }
}

impl<E> EventSubscriptions<E> {
    /// Checks whether a connection may have one more subscription, with this number of channels.
    ///
    /// # Errors
    /// [`EventSubscriptionLimit`] at a bound.
    pub fn check_capacity(
        &self,
        connection: ConnectionId,
        channels: usize,
    ) -> Result<(), EventSubscriptionLimit> {
        let own = self.by_connection.get(&connection);
        if channels > CHANNELS_MAX {
            return Err(EventSubscriptionLimit::Channels);
        }
        if own.map_or(0, BTreeSet::len) >= PER_CONNECTION_MAX {
            return Err(EventSubscriptionLimit::PerConnection);
        }
        if self.subscriptions.len() >= TOTAL_MAX {
            return Err(EventSubscriptionLimit::Total);
        }
        Ok(())
    }

    /// Subscribes a connection to these topics of reachable servers.
    pub fn subscribe(
        &mut self,
        number: SubscriptionNumber,
        connection: ConnectionId,
        topics: BTreeSet<Topic>,
        servers: BTreeSet<ServerId>,
    ) -> Vec<EventsEffect> {
        let subscription = EventSubscription {
            connection,
            topics,
            servers,
        };
        let effects = self.follow(number, server_topics(&subscription));
        self.subscriptions.insert(number, subscription);
        let own = self.by_connection.entry(connection).or_default();
        own.insert(number);
        effects
    }

    /// Ends the other topics of a subscription.
    pub fn retain_topics(
        &mut self,
        number: SubscriptionNumber,
        keep: impl Fn(&Topic) -> bool,
    ) -> Vec<EventsEffect> {
        self.update(number, |subscription| {
            subscription.topics.retain(|topic| keep(topic));
        })
    }

    /// Sets the servers that a subscription can reach.
    pub fn set_servers(
        &mut self,
        number: SubscriptionNumber,
        servers: BTreeSet<ServerId>,
    ) -> Vec<EventsEffect> {
        self.update(number, |subscription| subscription.servers = servers)
    }

    /// Adds or removes a reachable server.
    pub fn set_server_reachable(
        &mut self,
        number: SubscriptionNumber,
        server: &ServerId,
        is_reachable: bool,
    ) -> Vec<EventsEffect> {
        self.update(number, |subscription| {
            if is_reachable {
                subscription.servers.insert(server.clone());
            } else {
                subscription.servers.remove(server);
            }
        })
    }

    /// Whether it reaches any server.
    #[must_use]
    pub fn reaches_any_server(&self, number: SubscriptionNumber) -> bool {
        let subscription = self.subscriptions.get(&number);
        subscription.is_some_and(|subscription| !subscription.servers.is_empty())
    }

    fn update(
        &mut self,
        number: SubscriptionNumber,
        change: impl FnOnce(&mut EventSubscription),
    ) -> Vec<EventsEffect> {
        let Some(subscription) = self.subscriptions.get_mut(&number) else {
            return Vec::new();
        };
        let before = server_topics(subscription);
        change(subscription);
        let after = server_topics(subscription);
        let mut effects = self.unfollow(number, before.difference(&after).cloned());
        effects.extend(self.follow(number, after.difference(&before).cloned()));
        effects
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, number: SubscriptionNumber) -> Vec<EventsEffect> {
        let Some(ended) = self.subscriptions.remove(&number) else {
            return Vec::new();
        };
        if let Some(own) = self.by_connection.get_mut(&ended.connection) {
            own.remove(&number);
            if own.is_empty() {
                self.by_connection.remove(&ended.connection);
            }
        }
        self.deferred.retain(|deferred| *deferred != number);
        self.unfollow(number, server_topics(&ended))
    }

    fn follow(
        &mut self,
        number: SubscriptionNumber,
        pairs: impl IntoIterator<Item = (ServerId, Topic)>,
    ) -> Vec<EventsEffect> {
        let mut effects = Vec::new();
        for (server, topic) in pairs {
            if !self.has_capacity(&server, &topic) {
                if !self.deferred.contains(&number) {
                    self.deferred.push_back(number);
                }
                continue;
            }
            let topics_here = self.followers.entry(server.clone()).or_default();
            let followers = topics_here.entry(topic.clone()).or_default();
            self.followed_count += usize::from(followers.is_empty());
            followers.insert(number);
            if let Some(upstream) = server_entry(&mut self.servers, &server) {
                effects.extend(upstream.request(&server, topic));
            }
        }
        effects
    }

    fn has_capacity(&self, server: &ServerId, topic: &Topic) -> bool {
        let topics_here = self.followers.get(server);
        topics_here.is_some_and(|topics_here| topics_here.contains_key(topic))
            || (topics_here.map_or(0, BTreeMap::len) < PER_SERVER_MAX
                && self.followed_count < UPSTREAM_TOTAL_MAX)
    }

    /// Whether any topics are deferred for lack of capacity.
    #[must_use]
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Retries deferred topics.
    fn retry_deferred(&mut self) -> Vec<EventsEffect> {
        let mut effects = Vec::new();
        for _ in 0..RETRY_BATCH.min(self.deferred.len()) {
            let Some(number) = self.deferred.pop_front() else {
                break;
            };
            let before = self.followed_topics(number);
            let wanted = self.subscriptions.get(&number).map(server_topics);
            let wanted = wanted.unwrap_or_default();
            effects.extend(self.follow(number, wanted.difference(&before).cloned()));
            if self.followed_topics(number).len() > before.len() {
                effects.push(EventsEffect::SubscriptionExtended(number));
            }
        }
        effects
    }

    fn unfollow(
        &mut self,
        number: SubscriptionNumber,
        pairs: impl IntoIterator<Item = (ServerId, Topic)>,
    ) -> Vec<EventsEffect> {
        let mut effects = Vec::new();
        for (server, topic) in pairs {
            let Some(topics_here) = self.followers.get_mut(&server) else {
                continue;
            };
            let Some(followers) = topics_here.get_mut(&topic) else {
                continue;
            };
            followers.remove(&number);
            if !followers.is_empty() {
                continue;
            }
            topics_here.remove(&topic);
            self.followed_count -= 1;
            if topics_here.is_empty() {
                self.followers.remove(&server);
            }
            if let Some(upstream) = self.servers.get_mut(&server) {
                effects.extend(upstream.release(&server, &topic));
                if upstream.is_remote && server.is_instance() && upstream.topics.is_empty() {
                    self.servers.remove(&server);
                }
            }
        }
        effects.extend(self.retry_deferred());
        effects
    }

    /// The subscriptions of a connection.
    #[must_use]
    pub fn subscriptions_of(&self, connection: ConnectionId) -> Vec<SubscriptionNumber> {
        let own = self.by_connection.get(&connection);
        own.into_iter().flatten().copied().collect()
    }

    /// The topics of a subscription.
    pub fn topics(&self, number: SubscriptionNumber) -> impl Iterator<Item = &Topic> {
        let subscription = self.subscriptions.get(&number);
        subscription.into_iter().flat_map(|s| &s.topics)
    }

    /// The connection of a subscription.
    #[must_use]
    pub fn owner(&self, number: SubscriptionNumber) -> Option<ConnectionId> {
        let subscription = self.subscriptions.get(&number)?;
        Some(subscription.connection)
    }

    /// All subscriptions with their connections.
    pub fn iter(&self) -> impl Iterator<Item = (SubscriptionNumber, ConnectionId)> + use<'_, E> {
        let all = self.subscriptions.iter();
        all.map(|(number, subscription)| (*number, subscription.connection))
    }

    /// The subscriptions that follow a topic of a server.
    pub fn followers(
        &self,
        server: &ServerId,
        topic: &Topic,
    ) -> impl Iterator<Item = SubscriptionNumber> + use<'_, E> {
        let topics_here = self.followers.get(server);
        let followers = topics_here.and_then(|topics_here| topics_here.get(topic));
        followers.into_iter().flatten().copied()
    }

    /// The topics that a subscription follows at reachable servers, without deferred ones.
    #[must_use]
    pub fn followed_topics(&self, number: SubscriptionNumber) -> BTreeSet<(ServerId, Topic)> {
        let subscription = self.subscriptions.get(&number);
        let mut all = subscription.map(server_topics).unwrap_or_default();
        all.retain(|(server, topic)| {
            let topics_here = self.followers.get(server);
            let followers = topics_here.and_then(|topics_here| topics_here.get(topic));
            followers.is_some_and(|followers| followers.contains(&number))
        });
        all
    }

    /// A server that supports events is connected. A previous connection that was not lost still delivers events while it
    /// finishes its calls.
    pub fn server_up(&mut self, server: &ServerId, connection: u64) -> Vec<EventsEffect> {
        let previous = self.servers.remove(server);
        let previous = previous.filter(|previous| previous.connection != connection);
        let upstream = UpstreamServer {
            previous: previous.map(|previous| PreviousConnection {
                connection: previous.connection,
                topics: previous.topics,
            }),
            ..UpstreamServer::new(connection, false)
        };
        let upstream = self.servers.entry(server.clone()).insert_entry(upstream);
        let (upstream, topics_here) = (upstream.into_mut(), self.followers.get(server));
        let wanted = topics_here.into_iter().flat_map(BTreeMap::keys).cloned();
        wanted
            .filter_map(|topic| upstream.request(server, topic))
            .collect()
    }

    /// A server disconnected; subscriptions of agents at a remote server end with it.
    pub fn server_down(&mut self, server: &ServerId) {
        if self
            .servers
            .remove(server)
            .is_some_and(|lost| lost.is_remote)
        {
            self.servers.retain(|key, _| key.server() != *server);
        }
    }

    /// Connected servers that support events.
    #[cfg(test)]
    pub fn servers(&self) -> impl Iterator<Item = &ServerId> {
        self.servers.keys()
    }

    /// The channels that servers have confirmed, by server.
    pub fn offered_channels(&self) -> impl Iterator<Item = (&ServerId, &ChannelPattern)> {
        self.servers.iter().flat_map(|(id, server)| {
            let topics = server.topics.iter();
            let active = topics.filter(|(_, state)| matches!(state, UpstreamState::Active(_)));
            active.map(move |(topic, _)| (id, &topic.channels))
        })
    }

    /// Handles the answer to a subscription: its id, or `None` for an unknown channel. Also returns the events that were
    /// buffered for it.
    pub fn handle_subscribe_response(
        &mut self,
        server: &ServerId,
        connection: u64,
        topic: &Topic,
        id: Option<&str>,
    ) -> (Vec<EventsEffect>, Vec<(Vec<Topic>, E)>) {
        let Some(upstream) = self
            .servers
            .get_mut(server)
            .filter(|up| up.connection == connection)
        else {
            return (Vec::new(), Vec::new());
        };
        if upstream.is_remote && !upstream.topics.contains_key(topic) {
            return (Vec::new(), Vec::new());
        }
        let state = match id {
            Some(id) => UpstreamState::Active(id.into()),
            None => UpstreamState::Rejected,
        };
        upstream.topics.insert(topic.clone(), state);
        let early = std::mem::take(&mut upstream.early_events);
        let mut known = Vec::new();
        for (id, channel, event) in early {
            if let EventAttribution::Topics(topics, event) =
                upstream.attribute(&id, &channel, event)
            {
                known.push((topics, event));
            }
        }
        let topics_here = self.followers.get(server);
        let wanted = topics_here.is_some_and(|topics_here| topics_here.contains_key(topic));
        let ended = if wanted {
            None
        } else {
            upstream.release(server, topic)
        };
        // Topics that obsolete pending requests had blocked.
        let blocked = topics_here.into_iter().flat_map(BTreeMap::keys).cloned();
        let more = blocked.filter_map(|topic| upstream.request(server, topic));
        (ended.into_iter().chain(more).collect(), known)
    }

    /// Attributes an event with the server's id of a subscription.
    pub fn attribute(
        &mut self,
        server: &ServerId,
        connection: u64,
        id: &str,
        channel: &str,
        event: E,
    ) -> EventAttribution<E> {
        match self.servers.get_mut(server) {
            Some(upstream) if upstream.connection == connection => {
                upstream.attribute(id, channel, event)
            }
            Some(upstream) => {
                let previous = upstream.previous.as_ref();
                match previous.filter(|previous| previous.connection == connection) {
                    Some(previous) => {
                        attribute_to(topics_with_id(&previous.topics, id, channel), event)
                    }
                    None => EventAttribution::Unsolicited,
                }
            }
            None => EventAttribution::Unsolicited,
        }
    }

    /// Whether a server has not answered yet for a topic of this subscription.
    #[must_use]
    pub fn is_subscribe_pending(&self, number: SubscriptionNumber) -> bool {
        let Some(subscription) = self.subscriptions.get(&number) else {
            return false;
        };
        let servers = subscription
            .servers
            .iter()
            .filter_map(|id| self.servers.get(id));
        let mut states = servers.flat_map(|server| {
            let topics = subscription.topics.iter();
            topics.filter_map(|topic| server.topics.get(topic))
        });
        states.any(|state| *state == UpstreamState::Requested)
    }

    /// Whether a reachable server delivers events of a topic.
    #[must_use]
    pub fn is_delivered(&self, number: SubscriptionNumber, topic: &Topic) -> bool {
        let Some(subscription) = self.subscriptions.get(&number) else {
            return false;
        };
        let mut servers = subscription
            .servers
            .iter()
            .filter_map(|id| self.servers.get(id));
        servers.any(|server| matches!(server.topics.get(topic), Some(UpstreamState::Active(_))))
    }

    /// Subscriptions of all connections together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.subscriptions.len()
    }

    /// True without subscriptions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
    }
}

/// Each topic of a subscription at each reachable server.
fn server_topics(subscription: &EventSubscription) -> BTreeSet<(ServerId, Topic)> {
    let topics_of = |server: &ServerId| {
        let server = server.clone();
        let topics = subscription.topics.iter();
        topics.map(move |topic| (server.clone(), topic.clone()))
    };
    subscription.servers.iter().flat_map(topics_of).collect()
}

/// The topics for the channels of a subscription, without those that another pattern covers.
#[must_use]
pub fn to_topics(channels: &[ChannelPattern], severity: Severity) -> BTreeSet<Topic> {
    let is_covered = |channel: &ChannelPattern| {
        let mut others = channels.iter().filter(|other| *other != channel);
        others.any(|other| other.covers(channel.as_str()))
    };
    let distinct = channels.iter().filter(|channel| !is_covered(channel));
    distinct
        .map(|channels| Topic {
            channels: channels.clone(),
            severity,
        })
        .collect()
}
