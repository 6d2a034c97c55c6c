//! Who follows which channels, and what is asked of servers for that: one subscription at a server for each
//! channel and severity that anybody follows there (MGP §13.2).
//!
//! Events carry no severity on the wire, so a server has to filter them itself: two severities of one channel
//! are two subscriptions.

pub mod channels;
pub mod flow;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::mgp::events::{ChannelPattern, Severity};

/// Most subscriptions of one connection: an agent that has more is broken or hostile.
pub const PER_CONNECTION_MAX: usize = 64;
/// Most subscriptions of all connections together: each holds some 20 KiB at most.
pub const TOTAL_MAX: usize = 10_000;
/// Most channels of one subscription.
pub const CHANNELS_MAX: usize = 64;
/// Events of one server that are kept while it has not answered what their subscription is: as many as it may
/// send before its answer was read.
pub const EARLY_MAX: usize = 256;
/// Most subscriptions at one server: each costs the server, and the kernel a feed.
pub const PER_SERVER_MAX: usize = 256;

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
}

/// A bound is reached; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyEventSubscriptions {
    /// This connection has [`PER_CONNECTION_MAX`].
    #[error(
        "a connection may have at most {PER_CONNECTION_MAX} event subscriptions; end one with mgp/events/unsubscribe"
    )]
    OnConnection,
    /// The kernel has [`TOTAL_MAX`].
    #[error("the kernel has reached its limit of {TOTAL_MAX} event subscriptions")]
    InTotal,
    /// More than [`CHANNELS_MAX`] channels at once.
    #[error(
        "a subscription may name at most {CHANNELS_MAX} channels; a pattern such as tool.* stands for many"
    )]
    Channels,
}

/// Where an event of a server belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributed<E> {
    /// To these topics.
    To(Vec<Topic>, E),
    /// It is kept until the server has answered.
    Kept,
    /// Nobody asked for it.
    Unasked,
}

#[derive(Clone, Debug)]
struct EventSubscription {
    connection: ConnectionId,
    topics: BTreeSet<Topic>,
    /// The servers whose events it may get.
    reach: BTreeSet<ServerId>,
}

/// A subscription at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UpstreamState {
    /// It has not answered yet.
    Asked,
    /// It tells.
    Held(Arc<str>),
    /// It does not have such a channel, and is not asked again in this life.
    Refused,
}

/// A life of a server that knows events.
#[derive(Clone, Debug)]
struct UpstreamServer<E> {
    /// The number of its connection.
    life: u64,
    topics: BTreeMap<Topic, UpstreamState>,
    early: VecDeque<(Arc<str>, Arc<str>, E)>,
    /// The life it took the place of, which tells of its last calls until it has ended.
    former: Option<FormerLife>,
}

/// A life that was replaced without a gap: its number, and what it was asked for.
#[derive(Clone, Debug)]
struct FormerLife {
    life: u64,
    topics: BTreeMap<Topic, UpstreamState>,
}

/// All subscriptions, and what servers were asked for. `E` is an event that waits for its server's answer.
#[derive(Clone, Debug)]
pub struct Events<E> {
    subscriptions: BTreeMap<SubscriptionNumber, EventSubscription>,
    of_connection: HashMap<ConnectionId, BTreeSet<SubscriptionNumber>>,
    /// Who follows what of which server; no entry is empty.
    interest: BTreeMap<ServerId, BTreeMap<Topic, BTreeSet<SubscriptionNumber>>>,
    servers: BTreeMap<ServerId, UpstreamServer<E>>,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self {
            subscriptions: BTreeMap::new(),
            of_connection: HashMap::new(),
            interest: BTreeMap::new(),
            servers: BTreeMap::new(),
        }
    }
}

impl<E> Events<E> {
    /// Whether a connection may have one more subscription, of so many channels.
    ///
    /// # Errors
    /// [`TooManyEventSubscriptions`] at a bound.
    pub fn may_subscribe(
        &self,
        connection: ConnectionId,
        channels: usize,
    ) -> Result<(), TooManyEventSubscriptions> {
        let own = self.of_connection.get(&connection);
        if channels > CHANNELS_MAX {
            return Err(TooManyEventSubscriptions::Channels);
        }
        if own.map_or(0, BTreeSet::len) >= PER_CONNECTION_MAX {
            return Err(TooManyEventSubscriptions::OnConnection);
        }
        if self.subscriptions.len() >= TOTAL_MAX {
            return Err(TooManyEventSubscriptions::InTotal);
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
            reach,
        };
        let effects = self.follow(number, pairs(&subscription));
        self.subscriptions.insert(number, subscription);
        let own = self.of_connection.entry(connection).or_default();
        own.insert(number);
        effects
    }

    /// It follows these of its channels only.
    pub fn narrow(
        &mut self,
        number: SubscriptionNumber,
        keeps: impl Fn(&Topic) -> bool,
    ) -> Vec<EventsEffect> {
        self.change(number, |of| of.topics.retain(|topic| keeps(topic)))
    }

    /// It can reach these servers from now on.
    pub fn reaches(
        &mut self,
        number: SubscriptionNumber,
        reach: BTreeSet<ServerId>,
    ) -> Vec<EventsEffect> {
        self.change(number, |of| of.reach = reach)
    }

    /// It can reach this server, too, or cannot any more.
    pub fn reaches_one(
        &mut self,
        number: SubscriptionNumber,
        server: &ServerId,
        reached: bool,
    ) -> Vec<EventsEffect> {
        self.change(number, |of| match reached {
            true => drop(of.reach.insert(server.clone())),
            false => drop(of.reach.remove(server)),
        })
    }

    fn change(
        &mut self,
        number: SubscriptionNumber,
        change: impl FnOnce(&mut EventSubscription),
    ) -> Vec<EventsEffect> {
        let Some(of) = self.subscriptions.get_mut(&number) else {
            return Vec::new();
        };
        let before = pairs(of);
        change(of);
        let after = pairs(of);
        let mut effects = self.unfollow(number, before.difference(&after).cloned());
        effects.extend(self.follow(number, after.difference(&before).cloned()));
        effects
    }

    /// A subscription has ended.
    pub fn unsubscribe(&mut self, number: SubscriptionNumber) -> Vec<EventsEffect> {
        let Some(ended) = self.subscriptions.remove(&number) else {
            return Vec::new();
        };
        if let Some(own) = self.of_connection.get_mut(&ended.connection) {
            own.remove(&number);
            if own.is_empty() {
                self.of_connection.remove(&ended.connection);
            }
        }
        self.unfollow(number, pairs(&ended))
    }

    fn follow(
        &mut self,
        number: SubscriptionNumber,
        pairs: impl IntoIterator<Item = (ServerId, Topic)>,
    ) -> Vec<EventsEffect> {
        let mut effects = Vec::new();
        for (server, topic) in pairs {
            let here = self.interest.entry(server.clone()).or_default();
            here.entry(topic.clone()).or_default().insert(number);
            if let Some(upstream) = self.servers.get_mut(&server) {
                effects.extend(upstream.request(&server, topic));
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
            let Some(here) = self.interest.get_mut(&server) else {
                continue;
            };
            if let Some(followers) = here.get_mut(&topic) {
                followers.remove(&number);
                if !followers.is_empty() {
                    continue;
                }
                here.remove(&topic);
            }
            if here.is_empty() {
                self.interest.remove(&server);
            }
            if let Some(upstream) = self.servers.get_mut(&server) {
                effects.extend(upstream.release(&server, &topic));
            }
        }
        effects
    }

    /// The subscriptions of a connection.
    #[must_use]
    pub fn of(&self, connection: ConnectionId) -> Vec<SubscriptionNumber> {
        let own = self.of_connection.get(&connection);
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
    pub fn all(&self) -> impl Iterator<Item = (SubscriptionNumber, ConnectionId)> + use<'_, E> {
        let all = self.subscriptions.iter();
        all.map(|(number, subscription)| (*number, subscription.connection))
    }

    /// The subscriptions that follow a topic of a server.
    pub fn followers(
        &self,
        server: &ServerId,
        topic: &Topic,
    ) -> impl Iterator<Item = SubscriptionNumber> + use<'_, E> {
        let here = self.interest.get(server);
        let followers = here.and_then(|here| here.get(topic));
        followers.into_iter().flatten().copied()
    }

    /// What a subscription follows at the servers it reaches.
    #[must_use]
    pub fn followed(&self, number: SubscriptionNumber) -> BTreeSet<(ServerId, Topic)> {
        let of = self.subscriptions.get(&number);
        of.map(pairs).unwrap_or_default()
    }

    /// A server that knows events is connected. A life that was not lost before goes on telling: it finishes
    /// its calls beside this one.
    pub fn server_back(&mut self, server: &ServerId, life: u64) -> Vec<EventsEffect> {
        let before = self.servers.remove(server);
        let former = before.filter(|before| before.life != life);
        let upstream = UpstreamServer {
            life,
            topics: BTreeMap::new(),
            early: VecDeque::new(),
            former: former.map(|before| FormerLife {
                life: before.life,
                topics: before.topics,
            }),
        };
        let upstream = self.servers.entry(server.clone()).insert_entry(upstream);
        let (upstream, here) = (upstream.into_mut(), self.interest.get(server));
        let wanted = here.into_iter().flat_map(BTreeMap::keys).cloned();
        wanted
            .filter_map(|topic| upstream.request(server, topic))
            .collect()
    }

    /// A server is not connected any more.
    pub fn server_lost(&mut self, server: &ServerId) {
        self.servers.remove(server);
    }

    /// The servers that know events: those that are connected, and those that somebody follows.
    pub fn known(&self) -> impl Iterator<Item = &ServerId> {
        self.servers.keys().chain(self.interest.keys())
    }

    /// The servers that know events and are connected.
    #[cfg(test)]
    pub fn servers(&self) -> impl Iterator<Item = &ServerId> {
        self.servers.keys()
    }

    /// What servers said they have, by name.
    pub fn offered(&self) -> impl Iterator<Item = (&ServerId, &ChannelPattern)> {
        self.servers.iter().flat_map(|(id, server)| {
            let held = server.topics.iter();
            let held = held.filter(|(_, state)| matches!(state, UpstreamState::Held(_)));
            held.map(move |(topic, _)| (id, &topic.channels))
        })
    }

    /// A server answered what it was asked: with its id of the subscription, or that it has no such channel.
    /// Comes with the events that waited for this.
    pub fn answered(
        &mut self,
        server: &ServerId,
        life: u64,
        topic: &Topic,
        id: Option<&str>,
    ) -> (Vec<EventsEffect>, Vec<(Vec<Topic>, E)>) {
        let Some(upstream) = self.servers.get_mut(server).filter(|up| up.life == life) else {
            return (Vec::new(), Vec::new());
        };
        let state = match id {
            Some(id) => UpstreamState::Held(id.into()),
            None => UpstreamState::Refused,
        };
        upstream.topics.insert(topic.clone(), state);
        let early = std::mem::take(&mut upstream.early);
        let mut known = Vec::new();
        for (id, channel, event) in early {
            if let Attributed::To(topics, event) = upstream.attribute(&id, &channel, event) {
                known.push((topics, event));
            }
        }
        let wanted = self
            .interest
            .get(server)
            .is_some_and(|here| here.contains_key(topic));
        let ended = match wanted {
            true => None,
            false => upstream.release(server, topic),
        };
        (Vec::from_iter(ended), known)
    }

    /// A server sent an event under its own id of a subscription.
    pub fn event(
        &mut self,
        server: &ServerId,
        life: u64,
        id: &str,
        channel: &str,
        event: E,
    ) -> Attributed<E> {
        match self.servers.get_mut(server) {
            Some(upstream) if upstream.life == life => upstream.attribute(id, channel, event),
            Some(upstream) => {
                let former = upstream.former.as_ref();
                match former.filter(|former| former.life == life) {
                    Some(former) => to(held(&former.topics, id, channel), event),
                    None => Attributed::Unasked,
                }
            }
            None => Attributed::Unasked,
        }
    }

    /// Whether a server still owes an answer to what this subscription follows.
    #[must_use]
    pub fn is_awaited(&self, number: SubscriptionNumber) -> bool {
        let Some(of) = self.subscriptions.get(&number) else {
            return false;
        };
        let servers = of.reach.iter().filter_map(|id| self.servers.get(id));
        let mut states = servers.flat_map(|server| {
            let topics = of.topics.iter();
            topics.filter_map(|topic| server.topics.get(topic))
        });
        states.any(|state| *state == UpstreamState::Asked)
    }

    /// Whether a server that this subscription reaches tells of a topic.
    #[must_use]
    pub fn is_told(&self, number: SubscriptionNumber, topic: &Topic) -> bool {
        let Some(of) = self.subscriptions.get(&number) else {
            return false;
        };
        let mut servers = of.reach.iter().filter_map(|id| self.servers.get(id));
        servers.any(|server| matches!(server.topics.get(topic), Some(UpstreamState::Held(_))))
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

impl<E> UpstreamServer<E> {
    /// Ends what nobody wants. What was not answered yet ends with its answer.
    fn release(&mut self, server: &ServerId, topic: &Topic) -> Option<EventsEffect> {
        match self.topics.get(topic)? {
            UpstreamState::Asked => None,
            UpstreamState::Refused => {
                self.topics.remove(topic);
                None
            }
            UpstreamState::Held(id) => {
                let (server, id) = (server.clone(), id.clone());
                self.topics.remove(topic);
                Some(EventsEffect::UnsubscribeUpstream { server, id })
            }
        }
    }

    fn request(&mut self, server: &ServerId, topic: Topic) -> Option<EventsEffect> {
        if self.topics.contains_key(&topic) || self.topics.len() >= PER_SERVER_MAX {
            return None;
        }
        self.topics.insert(topic.clone(), UpstreamState::Asked);
        let server = server.clone();
        Some(EventsEffect::SubscribeUpstream { server, topic })
    }

    /// The topics of an event. One id may stand for several, if the server gave it twice.
    fn attribute(&mut self, id: &str, channel: &str, event: E) -> Attributed<E> {
        let topics = held(&self.topics, id, channel);
        if !topics.is_empty() {
            return Attributed::To(topics, event);
        }
        let asked = |(topic, state): (&Topic, &UpstreamState)| {
            *state == UpstreamState::Asked && topic.channels.covers(channel)
        };
        if self.early.len() < EARLY_MAX && self.topics.iter().any(asked) {
            self.early.push_back((id.into(), channel.into(), event));
            return Attributed::Kept;
        }
        Attributed::Unasked
    }
}

/// The topics that a server holds under this id.
fn held(topics: &BTreeMap<Topic, UpstreamState>, id: &str, channel: &str) -> Vec<Topic> {
    let held = topics.iter().filter(|(topic, state)| {
        matches!(state, UpstreamState::Held(own) if **own == *id) && topic.channels.covers(channel)
    });
    held.map(|(topic, _)| topic.clone()).collect()
}

fn to<E>(topics: Vec<Topic>, event: E) -> Attributed<E> {
    match topics.is_empty() {
        true => Attributed::Unasked,
        false => Attributed::To(topics, event),
    }
}

/// What a subscription follows, each at each server it reaches.
fn pairs(of: &EventSubscription) -> BTreeSet<(ServerId, Topic)> {
    let at = |server: &ServerId| {
        let server = server.clone();
        let topics = of.topics.iter();
        topics.map(move |topic| (server.clone(), topic.clone()))
    };
    of.reach.iter().flat_map(at).collect()
}

/// The channels of a subscription as topics, each at most once: what a pattern among them covers is not
/// followed twice.
#[must_use]
pub fn topics(channels: &[ChannelPattern], severity: Severity) -> BTreeSet<Topic> {
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
