//! One life of a server: what it is asked to tell, and which of its events belong to that.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mgp_protocol::ids::ServerId;

use super::{EARLY_EVENTS_MAX, EventAttribution, EventsEffect, PER_SERVER_MAX, Topic};

/// A subscription at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UpstreamState {
    /// It has not answered yet.
    Requested,
    /// It tells.
    Active(Arc<str>),
    /// It does not have such a channel, and is not asked again in this life.
    Rejected,
}

/// A life of a server that knows events.
#[derive(Clone, Debug)]
pub(super) struct UpstreamServer<E> {
    /// The number of its connection.
    pub(super) connection: u64,
    pub(super) topics: BTreeMap<Topic, UpstreamState>,
    pub(super) early_events: VecDeque<(Arc<str>, Arc<str>, E)>,
    /// The life it took the place of, which tells of its last calls until it has ended.
    pub(super) previous: Option<PreviousConnection>,
    /// Another node runs it.
    pub(super) is_remote: bool,
}

/// A life that was replaced without a gap: its number, and what it was asked for.
#[derive(Clone, Debug)]
pub(super) struct PreviousConnection {
    pub(super) connection: u64,
    pub(super) topics: BTreeMap<Topic, UpstreamState>,
}

impl<E> UpstreamServer<E> {
    /// A life that was asked for nothing yet.
    pub(super) fn new(connection: u64, is_remote: bool) -> Self {
        Self {
            connection,
            topics: BTreeMap::new(),
            early_events: VecDeque::new(),
            previous: None,
            is_remote,
        }
    }

    /// Ends what nobody wants. What was not answered yet ends with its answer, but at another node.
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

    /// The topics of an event. One id may stand for several, if the server gave it twice.
    pub(super) fn attribute(&mut self, id: &str, channel: &str, event: E) -> EventAttribution<E> {
        let topics = topics_with_id(&self.topics, id, channel);
        if !topics.is_empty() {
            return EventAttribution::Topics(topics, event);
        }
        let asked = |(topic, state): (&Topic, &UpstreamState)| {
            *state == UpstreamState::Requested && topic.channels.covers(channel)
        };
        if self.early_events.len() < EARLY_EVENTS_MAX && self.topics.iter().any(asked) {
            self.early_events
                .push_back((id.into(), channel.into(), event));
            return EventAttribution::Buffered;
        }
        EventAttribution::Unsolicited
    }
}

/// The topics that a server holds under this id.
pub(super) fn topics_with_id(
    topics: &BTreeMap<Topic, UpstreamState>,
    id: &str,
    channel: &str,
) -> Vec<Topic> {
    let held = topics.iter().filter(|(topic, state)| {
        matches!(state, UpstreamState::Active(own) if **own == *id)
            && topic.channels.covers(channel)
    });
    held.map(|(topic, _)| topic.clone()).collect()
}

pub(super) fn attribute_to<E>(topics: Vec<Topic>, event: E) -> EventAttribution<E> {
    if topics.is_empty() {
        EventAttribution::Unsolicited
    } else {
        EventAttribution::Topics(topics, event)
    }
}
