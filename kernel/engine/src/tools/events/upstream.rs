//! One life of a server: what it is asked to tell, and which of its events belong to that.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mgp_protocol::ids::ServerId;

use super::{Attributed, EARLY_MAX, EventsEffect, PER_SERVER_MAX, Topic};

/// A subscription at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UpstreamState {
    /// It has not answered yet.
    Asked,
    /// It tells.
    Held(Arc<str>),
    /// It does not have such a channel, and is not asked again in this life.
    Refused,
}

/// A life of a server that knows events.
#[derive(Clone, Debug)]
pub(super) struct UpstreamServer<E> {
    /// The number of its connection.
    pub(super) life: u64,
    pub(super) topics: BTreeMap<Topic, UpstreamState>,
    pub(super) early: VecDeque<(Arc<str>, Arc<str>, E)>,
    /// The life it took the place of, which tells of its last calls until it has ended.
    pub(super) former: Option<FormerLife>,
    /// Another node runs it.
    pub(super) at_node: bool,
}

/// A life that was replaced without a gap: its number, and what it was asked for.
#[derive(Clone, Debug)]
pub(super) struct FormerLife {
    pub(super) life: u64,
    pub(super) topics: BTreeMap<Topic, UpstreamState>,
}

impl<E> UpstreamServer<E> {
    /// A life that was asked for nothing yet.
    pub(super) fn new(life: u64, at_node: bool) -> Self {
        Self {
            life,
            topics: BTreeMap::new(),
            early: VecDeque::new(),
            former: None,
            at_node,
        }
    }

    /// Ends what nobody wants. What was not answered yet ends with its answer, but at another node.
    pub(super) fn release(&mut self, server: &ServerId, topic: &Topic) -> Option<EventsEffect> {
        if self.at_node {
            self.topics.remove(topic)?;
            let (server, topic) = (server.clone(), topic.clone());
            return Some(EventsEffect::LeaveAtNode { server, topic });
        }
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

    pub(super) fn request(&mut self, server: &ServerId, topic: Topic) -> Option<EventsEffect> {
        if self.topics.contains_key(&topic) || self.topics.len() >= PER_SERVER_MAX {
            return None;
        }
        self.topics.insert(topic.clone(), UpstreamState::Asked);
        let server = server.clone();
        Some(match self.at_node {
            true => EventsEffect::FollowAtNode { server, topic },
            false => EventsEffect::SubscribeUpstream { server, topic },
        })
    }

    /// The topics of an event. One id may stand for several, if the server gave it twice.
    pub(super) fn attribute(&mut self, id: &str, channel: &str, event: E) -> Attributed<E> {
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
pub(super) fn held(topics: &BTreeMap<Topic, UpstreamState>, id: &str, channel: &str) -> Vec<Topic> {
    let held = topics.iter().filter(|(topic, state)| {
        matches!(state, UpstreamState::Held(own) if **own == *id) && topic.channels.covers(channel)
    });
    held.map(|(topic, _)| topic.clone()).collect()
}

pub(super) fn to<E>(topics: Vec<Topic>, event: E) -> Attributed<E> {
    match topics.is_empty() {
        true => Attributed::Unasked,
        false => Attributed::To(topics, event),
    }
}
