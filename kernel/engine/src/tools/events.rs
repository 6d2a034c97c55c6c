//! Who follows which channels, and what is asked of servers for that: one subscription at a server for each
//! channel and severity that anybody follows there (MGP §13.2).
//!
//! Events carry no severity on the wire, so a server has to filter them itself: two severities of one channel
//! are two subscriptions. A server of another node is asked for each agent apart, since its owner decides which of its
//! events an agent may hear of: what an agent is told of it stands under the name of an instance.

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
/// Events of one server that are kept while it has not answered what their subscription is: as many as it may
/// send before its answer was read.
pub(crate) const EARLY_EVENTS_MAX: usize = 256;
/// Most subscriptions at one server: each costs the server, and the kernel a feed. A channel beyond is not
/// followed there until another one ends.
pub(crate) const PER_SERVER_MAX: usize = 256;
/// Most subscriptions at all servers together, likewise: each has a feed that holds one event at least.
pub const UPSTREAM_TOTAL_MAX: usize = 1_024;
/// Subscriptions that are tried when there is room again.
const RETRY_BATCH: usize = 8;

/// A subscription of an agent, by the kernel's own number.
pub type SubscriptionNumber = u64;

/// What a server is asked to tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic {
    /// The channels.
    pub channels: ChannelPattern,
    /// The least severity; [`Severity::Debug`] for all events.
    pub severity: Severity,
}

/// What to ask of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventsEffect {
    /// `mgp/events/subscribe` of one topic.
    SubscribeUpstream {
        /// Whose.
        server: ServerId,
        /// What.
        topic: Topic,
    },
    /// `mgp/events/unsubscribe`.
    UnsubscribeUpstream {
        /// Whose.
        server: ServerId,
        /// The server's own id.
        id: Arc<str>,
    },
    /// A topic of a server of another node is followed for an agent.
    SubscribeRemote {
        /// The agent's name for the server.
        server: ServerId,
        /// What.
        topic: Topic,
    },
    /// It is not any more.
    UnsubscribeRemote {
        /// The agent's name for the server.
        server: ServerId,
        /// What.
        topic: Topic,
    },
    /// A subscription follows more than before, as there is room now.
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

/// Where an event of a server belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventAttribution<E> {
    /// To these topics.
    Topics(Vec<Topic>, E),
    /// It is kept until the server has answered.
    Buffered,
    /// Nobody asked for it.
    Unsolicited,
}

#[derive(Clone, Debug)]
struct EventSubscription {
    connection: ConnectionId,
    topics: BTreeSet<Topic>,
    /// The servers whose events it may get.
    servers: BTreeSet<ServerId>,
}

/// All subscriptions, and what servers were asked for. `E` is an event that waits for its server's answer.
#[derive(Clone, Debug)]
pub struct EventSubscriptions<E> {
    subscriptions: BTreeMap<SubscriptionNumber, EventSubscription>,
    by_connection: HashMap<ConnectionId, BTreeSet<SubscriptionNumber>>,
    /// Who follows what of which server; no entry is empty.
    followers: BTreeMap<ServerId, BTreeMap<Topic, BTreeSet<SubscriptionNumber>>>,
    /// Topics in `interest`, of all servers.
    followed_count: usize,
    /// Those that would follow more if there were room, in the order in which they are tried.
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
    /// Whether a connection may have one more subscription, of so many channels.
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

    /// A connection follows these channels at the servers it can reach.
    pub fn subscribe(
        &mut self,
        number: SubscriptionNumber,
        connection: ConnectionId,
        topics: BTreeSet<Topic>,
        reach: BTreeSet<ServerId>,
    ) -> Vec<EventsEffect> {
        let subscription = EventSubscription {
            connection,
            topics,
            servers: reach,
        };
        let effects = self.follow(number, server_topics(&subscription));
        self.subscriptions.insert(number, subscription);
        let own = self.by_connection.entry(connection).or_default();
        own.insert(number);
        effects
    }

    /// It follows these of its channels only.
    pub fn retain_topics(
        &mut self,
        number: SubscriptionNumber,
        keeps: impl Fn(&Topic) -> bool,
    ) -> Vec<EventsEffect> {
        self.update(number, |of| of.topics.retain(|topic| keeps(topic)))
    }

    /// It can reach these servers from now on.
    pub fn set_servers(
        &mut self,
        number: SubscriptionNumber,
        reach: BTreeSet<ServerId>,
    ) -> Vec<EventsEffect> {
        self.update(number, |of| of.servers = reach)
    }

    /// It can reach this server, too, or cannot any more.
    pub fn set_server_reachable(
        &mut self,
        number: SubscriptionNumber,
        server: &ServerId,
        reached: bool,
    ) -> Vec<EventsEffect> {
        self.update(number, |of| {
            if reached {
                of.servers.insert(server.clone());
            } else {
                of.servers.remove(server);
            }
        })
    }

    /// Whether it reaches any server.
    #[must_use]
    pub fn reaches_any_server(&self, number: SubscriptionNumber) -> bool {
        let of = self.subscriptions.get(&number);
        of.is_some_and(|of| !of.servers.is_empty())
    }

    fn update(
        &mut self,
        number: SubscriptionNumber,
        change: impl FnOnce(&mut EventSubscription),
    ) -> Vec<EventsEffect> {
        let Some(of) = self.subscriptions.get_mut(&number) else {
            return Vec::new();
        };
        let before = server_topics(of);
        change(of);
        let after = server_topics(of);
        let mut effects = self.unfollow(number, before.difference(&after).cloned());
        effects.extend(self.follow(number, after.difference(&before).cloned()));
        effects
    }

    /// A subscription has ended.
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
        self.deferred.retain(|short| *short != number);
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
            let here = self.followers.entry(server.clone()).or_default();
            let followers = here.entry(topic.clone()).or_default();
            self.followed_count += usize::from(followers.is_empty());
            followers.insert(number);
            if let Some(upstream) = server_entry(&mut self.servers, &server) {
                effects.extend(upstream.request(&server, topic));
            }
        }
        effects
    }

    fn has_capacity(&self, server: &ServerId, topic: &Topic) -> bool {
        let here = self.followers.get(server);
        here.is_some_and(|here| here.contains_key(topic))
            || (here.map_or(0, BTreeMap::len) < PER_SERVER_MAX
                && self.followed_count < UPSTREAM_TOTAL_MAX)
    }

    /// Whether something cannot be followed for lack of room.
    #[must_use]
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// There may be room for what could not be followed.
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
            let Some(here) = self.followers.get_mut(&server) else {
                continue;
            };
            let Some(followers) = here.get_mut(&topic) else {
                continue;
            };
            followers.remove(&number);
            if !followers.is_empty() {
                continue;
            }
            here.remove(&topic);
            self.followed_count -= 1;
            if here.is_empty() {
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

    /// What a subscription follows.
    pub fn topics(&self, number: SubscriptionNumber) -> impl Iterator<Item = &Topic> {
        let of = self.subscriptions.get(&number);
        of.into_iter().flat_map(|of| &of.topics)
    }

    /// Whose a subscription is.
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
        let here = self.followers.get(server);
        let followers = here.and_then(|here| here.get(topic));
        followers.into_iter().flatten().copied()
    }

    /// What a subscription follows at the servers it reaches, as far as there is room.
    #[must_use]
    pub fn followed_topics(&self, number: SubscriptionNumber) -> BTreeSet<(ServerId, Topic)> {
        let of = self.subscriptions.get(&number);
        let mut all = of.map(server_topics).unwrap_or_default();
        all.retain(|(server, topic)| {
            let here = self.followers.get(server);
            let followers = here.and_then(|here| here.get(topic));
            followers.is_some_and(|followers| followers.contains(&number))
        });
        all
    }

    /// A server that knows events is connected. A life that was not lost before goes on telling: it finishes
    /// its calls beside this one.
    pub fn server_up(&mut self, server: &ServerId, life: u64) -> Vec<EventsEffect> {
        let before = self.servers.remove(server);
        let former = before.filter(|before| before.connection != life);
        let upstream = UpstreamServer {
            previous: former.map(|before| PreviousConnection {
                connection: before.connection,
                topics: before.topics,
            }),
            ..UpstreamServer::new(life, false)
        };
        let upstream = self.servers.entry(server.clone()).insert_entry(upstream);
        let (upstream, here) = (upstream.into_mut(), self.followers.get(server));
        let wanted = here.into_iter().flat_map(BTreeMap::keys).cloned();
        wanted
            .filter_map(|topic| upstream.request(server, topic))
            .collect()
    }

    /// A server is not connected any more, nor is what agents follow of it at another node.
    pub fn server_down(&mut self, server: &ServerId) {
        if self
            .servers
            .remove(server)
            .is_some_and(|lost| lost.is_remote)
        {
            self.servers.retain(|key, _| key.server() != *server);
        }
    }

    /// The servers that know events and are connected.
    #[cfg(test)]
    pub fn servers(&self) -> impl Iterator<Item = &ServerId> {
        self.servers.keys()
    }

    /// What servers said they have, by name.
    pub fn offered_channels(&self) -> impl Iterator<Item = (&ServerId, &ChannelPattern)> {
        self.servers.iter().flat_map(|(id, server)| {
            let held = server.topics.iter();
            let held = held.filter(|(_, state)| matches!(state, UpstreamState::Active(_)));
            held.map(move |(topic, _)| (id, &topic.channels))
        })
    }

    /// A server answered what it was asked: with its id of the subscription, or that it has no such channel.
    /// Comes with the events that waited for this.
    pub fn handle_subscribe_response(
        &mut self,
        server: &ServerId,
        life: u64,
        topic: &Topic,
        id: Option<&str>,
    ) -> (Vec<EventsEffect>, Vec<(Vec<Topic>, E)>) {
        let Some(upstream) = self
            .servers
            .get_mut(server)
            .filter(|up| up.connection == life)
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
        let here = self.followers.get(server);
        let wanted = here.is_some_and(|here| here.contains_key(topic));
        let ended = if wanted {
            None
        } else {
            upstream.release(server, topic)
        };
        // What did not fit beside questions that nobody waits for any more.
        let left = here.into_iter().flat_map(BTreeMap::keys).cloned();
        let more = left.filter_map(|topic| upstream.request(server, topic));
        (ended.into_iter().chain(more).collect(), known)
    }

    /// A server sent an event under its own id of a subscription.
    pub fn attribute(
        &mut self,
        server: &ServerId,
        life: u64,
        id: &str,
        channel: &str,
        event: E,
    ) -> EventAttribution<E> {
        match self.servers.get_mut(server) {
            Some(upstream) if upstream.connection == life => upstream.attribute(id, channel, event),
            Some(upstream) => {
                let former = upstream.previous.as_ref();
                match former.filter(|former| former.connection == life) {
                    Some(former) => {
                        attribute_to(topics_with_id(&former.topics, id, channel), event)
                    }
                    None => EventAttribution::Unsolicited,
                }
            }
            None => EventAttribution::Unsolicited,
        }
    }

    /// Whether a server still owes an answer to what this subscription follows.
    #[must_use]
    pub fn is_subscribe_pending(&self, number: SubscriptionNumber) -> bool {
        let Some(of) = self.subscriptions.get(&number) else {
            return false;
        };
        let servers = of.servers.iter().filter_map(|id| self.servers.get(id));
        let mut states = servers.flat_map(|server| {
            let topics = of.topics.iter();
            topics.filter_map(|topic| server.topics.get(topic))
        });
        states.any(|state| *state == UpstreamState::Requested)
    }

    /// Whether a server that this subscription reaches tells of a topic.
    #[must_use]
    pub fn is_delivered(&self, number: SubscriptionNumber, topic: &Topic) -> bool {
        let Some(of) = self.subscriptions.get(&number) else {
            return false;
        };
        let mut servers = of.servers.iter().filter_map(|id| self.servers.get(id));
        servers.any(|server| matches!(server.topics.get(topic), Some(UpstreamState::Active(_))))
    }

    /// Subscriptions of all connections together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.subscriptions.len()
    }

    /// Nobody follows anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
    }
}

/// What a subscription follows, each at each server it reaches.
fn server_topics(of: &EventSubscription) -> BTreeSet<(ServerId, Topic)> {
    let at = |server: &ServerId| {
        let server = server.clone();
        let topics = of.topics.iter();
        topics.map(move |topic| (server.clone(), topic.clone()))
    };
    of.servers.iter().flat_map(at).collect()
}

/// The channels of a subscription as topics, each at most once: what a pattern among them covers is not
/// followed twice.
#[must_use]
pub fn to_topics(channels: &[ChannelPattern], severity: Severity) -> BTreeSet<Topic> {
    let covered = |one: &ChannelPattern| {
        let mut others = channels.iter().filter(|other| *other != one);
        others.any(|other| other.covers(one.as_str()))
    };
    let kept = channels.iter().filter(|channel| !covered(channel));
    kept.map(|channels| Topic {
        channels: channels.clone(),
        severity,
    })
    .collect()
}
