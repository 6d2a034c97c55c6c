//! Push events of MCPL servers on the bus: a channel `push.SERVER.SET` for those that may use the server, and a
//! resource of each channel's last events.

use std::collections::BTreeSet;
use std::sync::Arc;

use mgp_engine::tools::events::SubscriptionNumber;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::push::RESOURCES;
use mgp_protocol::mgp::events::{Channel, ChannelPattern};
use mgp_protocol::refusal::Refusal;

use super::actor::EventsActor;
use super::entry::{EventAccess, EventEntry};
use super::feeds::EventsState;
use super::last_events::parse_channel;
use super::push_channel::{PushChannel, PushedEvent, resource_uri};
use super::subscription::{FeedKey, SubscriptionMsg};
use mgp_callers::request::Caller;

impl EventsActor {
    /// The servers, or the caller's own instances of them, whose push events a caller may receive.
    pub(super) fn push_servers(&self, state: &EventsState, caller: &Caller) -> BTreeSet<ServerId> {
        if state.pushes.is_empty() {
            return BTreeSet::new();
        }
        let access = EventAccess::new(caller, &self.directory);
        let servers = self.servers.load();
        let open = servers.iter().filter(|(id, _)| access.can_reach(id));
        let keys = open.map(|(_, handle)| handle.event_subscription_key(caller));
        keys.filter(|key| state.pushes.contains_key(key)).collect()
    }

    /// Replaces the channels of a server; none when it disconnected.
    pub(super) fn set_push_channels(
        &self,
        state: &mut EventsState,
        server: ServerId,
        channels: Vec<PushChannel>,
    ) {
        if channels.is_empty() {
            drop(state.pushes.remove(&server))
        } else {
            drop(state.pushes.insert(server, channels))
        }
        let is_known = |key: &FeedKey| match key {
            FeedKey::Push(server) => state.pushes.contains_key(server),
            FeedKey::Kernel(_) | FeedKey::Server(..) => true,
        };
        state.feeds.retain(|key, _| is_known(key));
        let all: Vec<_> = state.open.keys().copied().collect();
        for number in all {
            self.update_push_access(state, number);
        }
    }

    /// Updates the servers whose push events a subscription may receive.
    pub(super) fn update_push_access(&self, state: &mut EventsState, number: SubscriptionNumber) {
        let agent = state.engine.owner(number);
        let agent = agent.and_then(|connection| self.directory.get(connection));
        let caller = agent.as_ref().and_then(|agent| agent.caller());
        let reach = caller.map(|caller| self.push_servers(state, caller));
        if let Some(open) = state
            .open
            .get_mut(&number)
            .filter(|open| !open.pushes.is_empty())
        {
            open.push_servers = reach.unwrap_or_default();
            state.update_feeds(number);
        }
    }

    /// Publishes a push event; returns the number of its receivers.
    pub(super) fn publish_push(&self, state: &mut EventsState, event: &PushedEvent) -> usize {
        let key = FeedKey::Push(event.server.clone());
        let channels = state.pushes.get(&event.server);
        let matches_channel = |channel: &PushChannel| channel.channel == event.channel;
        if !channels.is_some_and(|all| all.iter().any(matches_channel)) {
            return 0;
        }
        let entry = EventEntry::from_push(event);
        let receivers = self.count_receivers(state, &key, &entry);
        if receivers == 0 && !event.is_delivered {
            return 0;
        }
        state.feeds.entry(key.clone()).or_default();
        state.publish(&key, &entry, 0);
        receivers
    }

    fn count_receivers(
        &self,
        state: &EventsState,
        key: &FeedKey,
        entry: &Arc<EventEntry>,
    ) -> usize {
        let receives = |number: &SubscriptionNumber| {
            let patterns = state.open.get(number).map(|open| &open.pushes);
            let covers = |pattern: &ChannelPattern| pattern.covers(entry.channel());
            let agent = state.engine.owner(*number);
            let agent = agent.and_then(|connection| self.directory.get(connection));
            let caller = agent.as_ref().and_then(|agent| agent.caller());
            patterns.is_some_and(|all| all.iter().any(covers))
                && caller
                    .is_some_and(|caller| EventAccess::new(caller, &self.directory).can_see(entry))
        };
        state.followers(key).filter(receives).count()
    }

    /// The channel of a resource; unknown if the caller may not know its set.
    pub(super) fn resource_channel(
        &self,
        state: &EventsState,
        caller: &Caller,
        uri: &str,
    ) -> Result<ChannelPattern, Refusal> {
        if !uri.starts_with(RESOURCES) {
            return parse_channel(uri);
        }
        let reach = self.push_servers(state, caller);
        let visible = reach
            .iter()
            .filter_map(|key| state.pushes.get_key_value(key));
        let mut all = visible.flat_map(|(key, all)| all.iter().map(move |channel| (key, channel)));
        let found = all.find(|(key, channel)| resource_uri(&key.server(), &channel.set) == uri);
        let channel = found.and_then(|(_, channel)| ChannelPattern::parse(&channel.channel));
        channel.ok_or_else(|| Refusal::UnknownResource(uri.to_owned()))
    }

    /// The push channels that a caller may receive.
    pub(super) fn visible_push_channels(
        &self,
        state: &EventsState,
        caller: &Caller,
    ) -> Vec<Channel> {
        let reach = self.push_servers(state, caller);
        let visible = reach
            .iter()
            .filter_map(|key| state.pushes.get_key_value(key));
        let all = visible.flat_map(|(key, all)| all.iter().map(move |channel| (key, channel)));
        all.map(|(key, channel)| Channel {
            channel: channel.channel.clone(),
            server_id: Some(key.server().to_string()),
            description: Some(channel.description.clone()),
            logged: false,
        })
        .collect()
    }
}

impl EventsState {
    /// Whether a set that a subscription may receive from has a matching channel.
    pub(super) fn has_push_channel(
        &self,
        number: SubscriptionNumber,
        pattern: &ChannelPattern,
    ) -> bool {
        let Some(open) = self.open.get(&number) else {
            return false;
        };
        let mut sets = open.push_servers.iter();
        sets.any(|key| {
            let mut all = self.pushes.get(key).into_iter().flatten();
            all.any(|channel| pattern.covers(&channel.channel))
        })
    }

    /// Restricts a subscription to these push events.
    pub(super) fn narrow_pushes(
        &mut self,
        number: SubscriptionNumber,
        retained: &BTreeSet<ChannelPattern>,
    ) {
        if let Some(open) = self
            .open
            .get_mut(&number)
            .filter(|open| !open.pushes.is_empty())
        {
            open.pushes.retain(|pattern| retained.contains(pattern));
            let pushes = open.pushes.clone();
            let _ = open
                .mailbox
                .send_to_self(SubscriptionMsg::SetPushes(pushes));
        }
    }
}
