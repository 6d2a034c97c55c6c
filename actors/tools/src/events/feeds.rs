//! The feeds of all channels with subscribers, and their subscribers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use mgp_engine::tools::events::channels::KernelChannel;
use mgp_engine::tools::events::{EventAttribution, EventSubscriptions, SubscriptionNumber, Topic};
use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::mcpl::push::CHANNELS;
use mgp_protocol::mgp::events::{ChannelPattern, Severity, Subscribed};
use mgp_protocol::refusal::Refusal;
use mgp_sync::Wakeup;
use ractor::ActorCell;
use tokio::sync::oneshot;

use super::entry::{EventEntry, EventFeed, feed_limits};
use super::node_topics::NodeTopics;
use super::push_channel::PushChannel;
use super::subscription::{FeedKey, SubscriptionMsg};
use super::{AuditEvents, EventsMsg, FollowingEnd};
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::{Mailbox, Reply};
use mgp_servers::link::ReportedEvent;

/// The state of the events actor.
#[derive(Debug)]
pub(super) struct EventsState {
    pub(super) mailbox: Mailbox<EventsMsg>,
    pub(super) cell: ActorCell,
    pub(super) engine: EventSubscriptions<LostAwareEvent>,
    /// The topics at servers of other nodes.
    pub(super) node_topics: NodeTopics,
    /// The last events of each channel with subscribers.
    pub(super) feeds: BTreeMap<FeedKey, Arc<EventFeed>>,
    /// The channels of the push events of each server; no entry is empty.
    pub(super) pushes: BTreeMap<ServerId, Vec<PushChannel>>,
    /// The subscribers of the kernel's channels; no entry is empty.
    pub(super) kernel_followers: BTreeMap<KernelChannel, BTreeSet<SubscriptionNumber>>,
    pub(super) open: BTreeMap<SubscriptionNumber, OpenSubscription>,
    /// By the id that the agent knows, or, for resources, by connection and URI.
    pub(super) by_id: HashMap<Arc<str>, SubscriptionNumber>,
    /// Subscriptions whose requests are not answered yet.
    pub(super) pending: BTreeMap<SubscriptionNumber, PendingSubscription>,
    pub(super) last_number: SubscriptionNumber,
    /// Reads the audit log while its channels have subscribers.
    pub(super) log_reader: Option<SupervisedTask<()>>,
    /// The number of the last published record.
    pub(super) last_record: u64,
    /// Channels of the log that may have lost events since their last one.
    pub(super) lost: BTreeSet<KernelChannel>,
    /// Measures servers' resource usage while that has subscribers.
    pub(super) usage_monitor: Option<SupervisedTask<()>>,
    /// The limit of subscriptions at servers is reached, and that was logged.
    pub(super) is_short_reported: bool,
}

/// An event of a server, with the number of events that its subscription lost before it.
pub(super) type LostAwareEvent = (Arc<EventEntry>, u64);

#[derive(Debug)]
pub(super) struct OpenSubscription {
    pub(super) id: Arc<str>,
    pub(super) mailbox: Mailbox<SubscriptionMsg>,
    pub(super) cell: ActorCell,
    pub(super) wakeup: Arc<Wakeup>,
    pub(super) kernel_channels: BTreeSet<KernelChannel>,
    pub(super) follows: BTreeSet<FeedKey>,
    /// The patterns of push events that it requested.
    pub(super) pushes: Vec<ChannelPattern>,
    /// The servers whose push events it may receive.
    pub(super) push_servers: BTreeSet<ServerId>,
    /// For an agent of another node, whose request stays open: receives the reason of its end.
    pub(super) end: Option<oneshot::Sender<FollowingEnd>>,
}

#[derive(Debug)]
pub(super) struct PendingSubscription {
    pub(super) channels: Vec<String>,
    pub(super) severity: Severity,
    pub(super) reply: Reply<Result<Subscribed, Refusal>>,
}

impl EventsState {
    pub(super) fn find_subscription(
        &self,
        connection: ConnectionId,
        id: &str,
    ) -> Option<SubscriptionNumber> {
        let number = *self.by_id.get(id)?;
        (self.engine.owner(number) == Some(connection)).then_some(number)
    }

    pub(super) fn update_feeds(&mut self, number: SubscriptionNumber) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        let kernel_feeds = open.kernel_channels.iter().copied().map(FeedKey::Kernel);
        let server_feeds = self.engine.followed_topics(number).into_iter();
        let server_feeds = server_feeds.map(|(server, topic)| FeedKey::Server(server, topic));
        let pushes = open.push_servers.iter().filter(|_| !open.pushes.is_empty());
        let pushes = pushes.cloned().map(FeedKey::Push);
        let wanted: BTreeSet<_> = kernel_feeds.chain(server_feeds).chain(pushes).collect();
        let before = std::mem::replace(&mut open.follows, wanted.clone());
        for key in wanted.difference(&before) {
            let feed = self.feeds.entry(key.clone()).or_default().clone();
            let position = feed.newest_position();
            let _ = open
                .mailbox
                .send_to_self(SubscriptionMsg::Follow(key.clone(), feed, position));
        }
        let mailbox = open.mailbox.clone();
        for key in before.difference(&wanted) {
            let _ = mailbox.send_to_self(SubscriptionMsg::Unfollow(key.clone()));
            self.remove_if_unused(key);
        }
    }

    /// Drops a feed without subscribers.
    pub(super) fn remove_if_unused(&mut self, key: &FeedKey) {
        let has_readers = matches!(key, FeedKey::Push(server) if self.pushes.contains_key(server));
        if !has_readers && self.followers(key).next().is_none() {
            self.feeds.remove(key);
        }
    }

    pub(super) fn followers<'a>(
        &'a self,
        key: &'a FeedKey,
    ) -> Box<dyn Iterator<Item = SubscriptionNumber> + 'a> {
        match key {
            FeedKey::Kernel(channel) => {
                let followers = self.kernel_followers.get(channel);
                Box::new(followers.into_iter().flatten().copied())
            }
            FeedKey::Server(server, topic) => Box::new(self.engine.followers(server, topic)),
            FeedKey::Push(_) => {
                let all = self.open.iter();
                let following = all.filter(|(_, open)| open.follows.contains(key));
                Box::new(following.map(|(number, _)| *number))
            }
        }
    }

    pub(super) fn unfollow_kernel(
        &mut self,
        number: SubscriptionNumber,
        channels: &BTreeSet<KernelChannel>,
    ) {
        for channel in channels {
            if let Some(followers) = self.kernel_followers.get_mut(channel) {
                followers.remove(&number);
                if followers.is_empty() {
                    self.kernel_followers.remove(channel);
                }
            }
        }
    }

    /// Adds an event to a feed, and wakes its subscribers that have read everything before.
    pub(super) fn publish(&self, key: &FeedKey, event: &Arc<EventEntry>, missed: u64) {
        let Some(feed) = self.feeds.get(key) else {
            return;
        };
        let limits = feed_limits(self.feeds.len());
        feed.push(event.clone(), event.memory_size(), missed, limits);
        for number in self.followers(key) {
            if let Some(open) = self.open.get(&number).filter(|open| open.wakeup.signal()) {
                let _ = open.mailbox.send_to_self(SubscriptionMsg::EventsAvailable);
            }
        }
    }

    pub(super) fn publish_server_event(&mut self, server: &ServerId, event: &ReportedEvent) {
        let remote_server = if server.is_remote() {
            self.node_topics.find_server(&event.subscription).cloned()
        } else {
            None
        };
        let server = remote_server.as_ref().unwrap_or(server);
        let channel = ChannelPattern::parse(&event.channel).filter(|name| !name.is_wide());
        // Only the kernel and other nodes publish under the names of push events.
        let channel =
            channel.filter(|_| remote_server.is_some() || !event.channel.starts_with(CHANNELS));
        let entry = EventEntry::from_server_event(server, event);
        let attributed = channel.map_or(EventAttribution::Unsolicited, |_| {
            let stored = (entry, event.missed);
            let (id, channel) = (&event.subscription, &event.channel);
            self.engine
                .attribute(server, event.link, id, channel, stored)
        });
        match attributed {
            EventAttribution::Topics(topics, event) => {
                self.publish_to_topics(server, topics, &event)
            }
            EventAttribution::Buffered => {}
            EventAttribution::Unsolicited => {
                tracing::debug!(%server, "an unsolicited event is dropped");
            }
        }
    }

    pub(super) fn publish_to_topics(
        &self,
        server: &ServerId,
        topics: Vec<Topic>,
        (event, missed): &LostAwareEvent,
    ) {
        for topic in topics {
            self.publish(&FeedKey::Server(server.clone(), topic), event, *missed);
        }
    }

    pub(super) fn publish_records(&mut self, log: &AuditEvents, records: &[(u64, String)]) {
        for (sequence, record) in records {
            if *sequence > self.last_record.saturating_add(1) {
                let followed = self.kernel_followers.keys().copied();
                self.lost = followed.filter(|channel| channel.is_logged()).collect();
            }
            self.last_record = *sequence;
            if let Some((channel, event)) = log.to_entry(*sequence, record) {
                let missed = u64::from(self.lost.remove(&channel));
                self.publish(&FeedKey::Kernel(channel), &event, missed);
            }
        }
    }

    /// Removes the gaps of topics without subscribers.
    pub(super) fn retain_followed(&mut self) {
        let engine = &self.engine;
        let is_followed = |server: &ServerId, topic: &Topic| {
            let mut followers = engine.followers(server, topic);
            followers.next().is_some()
        };
        self.node_topics.retain_followed(is_followed);
    }

    /// Logs once that channels of servers are not followed for lack of capacity.
    pub(super) fn report_shortage(&mut self) {
        let is_short = self.engine.has_deferred();
        if is_short && !self.is_short_reported {
            tracing::warn!(
                "the limit of event subscriptions at servers is reached; further channels are followed when some end"
            );
        }
        self.is_short_reported = is_short;
    }
}
