//! Push events of MCPL servers on the bus: channel `push.SERVER.SET`, which is there for whom the server is
//! open to, and a resource of the last events of each.

use std::collections::BTreeSet;
use std::sync::Arc;

use mgp_engine::tools::events::SubscriptionNumber;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::push::RESOURCES;
use mgp_protocol::mgp::events::{Channel, ChannelPattern};
use mgp_protocol::refusal::Refusal;

use super::entry::{EventAccess, EventEntry};
use super::feeds::EventsState;
use super::hub::EventsActor;
use super::last_events::parse_channel;
use super::push_channel::{PushChannel, PushedEvent, resource_uri};
use super::subscription::{FeedKey, SubscriptionMsg};
use mgp_callers::request::Caller;

impl EventsActor {
    /// The servers, or its own instances of them, whose push events may come to a caller.
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

    /// A server has these channels from now on; none when it disconnected.
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
        let known = |key: &FeedKey| match key {
            FeedKey::Push(server) => state.pushes.contains_key(server),
            FeedKey::Kernel(_) | FeedKey::Server(..) => true,
        };
        state.feeds.retain(|key, _| known(key));
        let all: Vec<_> = state.open.keys().copied().collect();
        for number in all {
            self.update_push_access(state, number);
        }
    }

    /// Other servers are open to a subscription from now on.
    pub(super) fn update_push_access(&self, state: &mut EventsState, number: SubscriptionNumber) {
        let agent = state.engine.owner(number);
        let agent = agent.and_then(|who| self.directory.get(who));
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

    /// Tells an event; answers to how many it goes.
    pub(super) fn publish_push(&self, state: &mut EventsState, event: &PushedEvent) -> usize {
        let key = FeedKey::Push(event.server.clone());
        let channels = state.pushes.get(&event.server);
        let known = |of: &PushChannel| of.channel == event.channel;
        if !channels.is_some_and(|all| all.iter().any(known)) {
            return 0;
        }
        let entry = EventEntry::from_push(event);
        let hearing = self.count_receivers(state, &key, &entry);
        if hearing == 0 && !event.is_delivered {
            return 0;
        }
        state.feeds.entry(key.clone()).or_default();
        state.publish(&key, &entry, 0);
        hearing
    }

    fn count_receivers(
        &self,
        state: &EventsState,
        key: &FeedKey,
        entry: &Arc<EventEntry>,
    ) -> usize {
        let hears = |number: &SubscriptionNumber| {
            let patterns = state.open.get(number).map(|open| &open.pushes);
            let covers = |of: &ChannelPattern| of.covers(entry.channel());
            let agent = state.engine.owner(*number);
            let agent = agent.and_then(|who| self.directory.get(who));
            let caller = agent.as_ref().and_then(|agent| agent.caller());
            patterns.is_some_and(|all| all.iter().any(covers))
                && caller.is_some_and(|of| EventAccess::new(of, &self.directory).can_see(entry))
        };
        state.followers(key).filter(hears).count()
    }

    /// The channel of a resource. Of a set that this caller may not know of there is none.
    pub(super) fn resource_channel(
        &self,
        state: &EventsState,
        caller: &Caller,
        asked: &str,
    ) -> Result<ChannelPattern, Refusal> {
        if !asked.starts_with(RESOURCES) {
            return parse_channel(asked);
        }
        let reach = self.push_servers(state, caller);
        let of_servers = reach
            .iter()
            .filter_map(|key| state.pushes.get_key_value(key));
        let mut all = of_servers.flat_map(|(key, all)| all.iter().map(move |of| (key, of)));
        let found = all.find(|(key, of)| resource_uri(&key.server(), &of.set) == asked);
        let channel = found.and_then(|(_, of)| ChannelPattern::parse(&of.channel));
        channel.ok_or_else(|| Refusal::UnknownResource(asked.to_owned()))
    }

    /// Those that a caller may receive.
    pub(super) fn visible_push_channels(
        &self,
        state: &EventsState,
        caller: &Caller,
    ) -> Vec<Channel> {
        let reach = self.push_servers(state, caller);
        let of_servers = reach
            .iter()
            .filter_map(|key| state.pushes.get_key_value(key));
        let all = of_servers.flat_map(|(key, all)| all.iter().map(move |of| (key, of)));
        all.map(|(key, of)| Channel {
            channel: of.channel.clone(),
            server_id: Some(key.server().to_string()),
            description: Some(of.description.clone()),
            logged: false,
        })
        .collect()
    }
}

impl EventsState {
    /// Whether a set that a subscription may receive from has a matching channel.
    pub(super) fn has_push_channel(&self, number: SubscriptionNumber, of: &ChannelPattern) -> bool {
        let Some(open) = self.open.get(&number) else {
            return false;
        };
        let mut sets = open.push_servers.iter();
        sets.any(|key| {
            let mut all = self.pushes.get(key).into_iter().flatten();
            all.any(|channel| of.covers(&channel.channel))
        })
    }

    /// It receives only these push events.
    pub(super) fn narrow_pushes(
        &mut self,
        number: SubscriptionNumber,
        keeps: &BTreeSet<ChannelPattern>,
    ) {
        if let Some(open) = self
            .open
            .get_mut(&number)
            .filter(|open| !open.pushes.is_empty())
        {
            open.pushes.retain(|pattern| keeps.contains(pattern));
            let kept = open.pushes.clone();
            let _ = open.mailbox.send_to_self(SubscriptionMsg::SetPushes(kept));
        }
    }
}
