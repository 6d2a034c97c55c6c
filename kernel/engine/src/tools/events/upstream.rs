//! Subscriptions at one connection of a server, and attribution of its events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mgp_protocol::ids::ServerId;

use super::{EARLY_EVENTS_MAX, EventAttribution, EventsEffect, PER_SERVER_MAX, Topic};

/// A subscription at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UpstreamState {
    /// The server has not answered yet.
    Requested,
    /// Active, with the server's id.
    Active(Arc<str>),
    /// The server has no such channel; not requested again on this connection.
    Rejected,
}

/// A connection of a server that supports events.
#[derive(Clone, Debug)]
pub(super) struct UpstreamServer<E> {
    /// The number of its connection.
    pub(super) connection: u64,
    pub(super) topics: BTreeMap<Topic, UpstreamState>,
    pub(super) early_events: VecDeque<(Arc<str>, Arc<str>, E)>,
    /// The connection it replaced, which delivers events of its last calls until it ends.
    pub(super) previous: Option<PreviousConnection>,
    /// Another node runs it.
    pub(super) is_remote: bool,
}

/// A connection replaced by a rolling restart.
#[derive(Clone, Debug)]
pub(super) struct PreviousConnection {
    pub(super) connection: u64,
    pub(super) topics: BTreeMap<Topic, UpstreamState>,
}

impl<E> UpstreamServer<E> {
    /// A connection without subscriptions.
    pub(super) fn new(connection: u64, is_remote: bool) -> Self {
        Self {
            connection,
            topics: BTreeMap::new(),
            early_events: VecDeque::new(),
            previous: None,
            is_remote,
        }
    }

    /// Ends a topic without followers. A pending subscription ends after its answer, except at another node.
    pub(super) fn release(&mut self, server: &ServerId, topic: &Topic) -> Option<EventsEffect> {
        if self.is_remote {
            self.topics.remove(topic)?;
            let (server, topic) = (server.clone(), topic.clone());
            return Some(EventsEffect::UnsubscribeRemote { server, topic });
        }
        match self.topics.get(topic)? {
            UpstreamState::Requested => None,
            UpstreamState::Rejected => {
                self.topics.remove(topic);
                None
            }
            UpstreamState::Active(id) => {
                let (server, id) = (server.clone(), id.clone());
                self.topics.remove(topic);
                Some(EventsEffect::UnsubscribeUpstream { server, id })
            }
        }
    }

    pub(super) fn request(&mut self, server: &ServerId, topic: Topic) -> Option<EventsEffect> {
        if self.topics.contains_key(&topic) || self.topics.len() >= PER_SERVER_MAX {
            return None;
        }
        self.topics.insert(topic.clone(), UpstreamState::Requested);
        let server = server.clone();
        Some(if self.is_remote {
            EventsEffect::SubscribeRemote { server, topic }
        } else {
            EventsEffect::SubscribeUpstream { server, topic }
        })
    }

    /// Attributes an event to topics; several if the server reused an id.
    pub(super) fn attribute(&mut self, id: &str, channel: &str, event: E) -> EventAttribution<E> {
        let topics = topics_with_id(&self.topics, id, channel);
        if !topics.is_empty() {
            return EventAttribution::Topics(topics, event);
        }
        let is_pending = |(topic, state): (&Topic, &UpstreamState)| {
            *state == UpstreamState::Requested && topic.channels.covers(channel)
        };
        if self.early_events.len() < EARLY_EVENTS_MAX && self.topics.iter().any(is_pending) {
            self.early_events
                .push_back((id.into(), channel.into(), event));
            return EventAttribution::Buffered;
        }
        EventAttribution::Unsolicited
    }
}

/// The active topics with this id.
pub(super) fn topics_with_id(
    topics: &BTreeMap<Topic, UpstreamState>,
    id: &str,
    channel: &str,
) -> Vec<Topic> {
    let active = topics.iter().filter(|(topic, state)| {
        matches!(state, UpstreamState::Active(active) if **active == *id)
            && topic.channels.covers(channel)
    });
    active.map(|(topic, _)| topic.clone()).collect()
}

pub(super) fn attribute_to<E>(topics: Vec<Topic>, event: E) -> EventAttribution<E> {
    if topics.is_empty() {
        EventAttribution::Unsolicited
    } else {
        EventAttribution::Topics(topics, event)
    }
}
