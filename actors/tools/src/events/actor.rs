//! The events actor: subscribers of feeds, and the subscriptions at servers for them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mgp_engine::tools::events::channels::{KernelChannel, KernelEvent};
use mgp_engine::tools::events::{EventSubscriptions, EventsEffect, SubscriptionNumber, Topic};
use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::mgp::events::{Channel, Replay, Severity};
use mgp_protocol::refusal::Refusal;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::entry::{EventAccess, EventEntry};
use super::feeds::{EventsState, OpenSubscription};
use super::node_topics::NodeTopics;
use super::subscription::{FeedKey, SubscriptionMsg};
use super::{
    AuditEvents, EventsMsg, FollowingEnd, LastEvents, channel_bit, log, resources,
    unknown_subscription, upstream,
};
use mgp_callers::Directory;
use mgp_callers::request::Caller;
use mgp_runtime::{Mailbox, Queued, Reply};
use mgp_servers::{ResourceMonitor, ResubscriptionGuard, ServerTable};

/// Fixed at construction.
#[derive(Debug)]
pub(super) struct EventsActor {
    pub(super) directory: Arc<Directory>,
    pub(super) servers: Arc<ServerTable>,
    /// Records as events.
    pub(super) audit_events: AuditEvents,
    pub(super) monitor: Arc<ResourceMonitor>,
    /// The channels with subscribers, shared with the handle.
    pub(super) followed: Arc<AtomicU64>,
}

impl Actor for EventsActor {
    type Msg = Queued<EventsMsg>;
    type State = EventsState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<EventsState, ActorProcessingErr> {
        Ok(EventsState {
            cell: myself.get_cell(),
            mailbox: Mailbox::new(myself),
            engine: EventSubscriptions::default(),
            node_topics: NodeTopics::default(),
            feeds: BTreeMap::new(),
            pushes: BTreeMap::new(),
            kernel_followers: BTreeMap::new(),
            open: BTreeMap::new(),
            by_id: HashMap::new(),
            pending: BTreeMap::new(),
            last_number: 0,
            log_reader: None,
            last_record: 0,
            lost: BTreeSet::new(),
            usage_monitor: None,
            is_short_reported: false,
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut EventsState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            EventsMsg::Subscribe(request, reply) => self.subscribe(state, *request, reply).await,
            EventsMsg::Watch(connection, uri, reply) => {
                reply.send(self.watch(state, connection, &uri).await)
            }
            EventsMsg::Unwatch(connection, uri) => self.unwatch(state, connection, &uri),
            EventsMsg::Unsubscribe(connection, id, reply) => {
                reply.send(self.unsubscribe(state, connection, &id))
            }
            EventsMsg::Replay(connection, request, reply) => {
                replay(state, connection, &request, reply)
            }
            EventsMsg::Last(caller, uri, reply) => {
                reply.send(self.last_events(state, &caller, &uri))
            }
            EventsMsg::Channels(caller, reply) => reply.send(self.list_channels(state, &caller)),
            EventsMsg::Leave(connection) => {
                for number in state.engine.subscriptions_of(connection) {
                    self.remove_subscription(state, number);
                }
            }
            EventsMsg::ServerUp(server, guard) => self.server_up(state, &server, &guard),
            EventsMsg::ServerDown(server) => {
                state.node_topics.mark_broken(&server);
                state.engine.server_down(&server);
            }
            EventsMsg::Removed(server) => self.server_removed(state, &server),
            EventsMsg::ServerAnswered {
                server,
                connection: link_number,
                topic,
                id,
            } => self.handle_answer(state, (&server, link_number), &topic, id.as_deref()),
            EventsMsg::NodeFollowing(event) => self.handle_node_event(state, *event),
            EventsMsg::AnswersDue(number) => self.answer_subscribe(state, number),
            EventsMsg::Canceled(number) => self.remove_subscription(state, number),
            EventsMsg::ServerEvent(server, event, _charge) => {
                state.publish_server_event(&server, &event)
            }
            EventsMsg::KernelEvent(event) => {
                state.publish(&FeedKey::Kernel(event.channel), &kernel_entry(&event), 0);
            }
            EventsMsg::Recorded(records, reply) => {
                state.publish_records(&self.audit_events, &records);
                reply.send(());
            }
            EventsMsg::PushChannels(server, all) => self.set_push_channels(state, server, all),
            EventsMsg::Push(event, reply) => reply.send(self.publish_push(state, &event)),
            EventsMsg::TooSlow(number) => self.drop_subscription(state, number),
            EventsMsg::AccessChanged => self.access_changed(state),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut EventsState,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(cell, error) = event {
            tracing::error!(%error, "an event subscription failed and is ended");
            let failed = |(number, open): (&SubscriptionNumber, &OpenSubscription)| {
                (open.cell.get_id() == cell.get_id()).then_some(*number)
            };
            if let Some(number) = state.open.iter().find_map(failed) {
                self.remove_subscription(state, number);
            }
        }
        Ok(())
    }
}

fn kernel_entry(event: &KernelEvent) -> Arc<EventEntry> {
    EventEntry::from_kernel_event(event, None)
}

impl EventsActor {
    pub(super) fn visible_kernel_channels(
        &self,
        caller: &Caller,
    ) -> impl Iterator<Item = KernelChannel> + use<> {
        let (is_logging, operator) = (self.audit_events.audit.is_enabled(), caller.operator);
        // An agent of another node receives those of its own kernel.
        let is_remote = caller.agent.is_remote();
        let all = KernelChannel::ALL.into_iter().filter(move |_| !is_remote);
        all.filter(move |channel| {
            (is_logging || !channel.is_logged()) && (operator || channel.is_visible_to_agents())
        })
    }

    /// The servers, or the caller's own instances of them, whose events it may receive.
    pub(super) fn reachable_servers(
        &self,
        state: &EventsState,
        caller: &Caller,
    ) -> BTreeSet<ServerId> {
        let access = EventAccess::new(caller, &self.directory);
        let servers = self.servers.load();
        let open = servers.iter().filter(|(id, _)| access.can_reach(id));
        let keys = open.map(|(_, handle)| handle.event_subscription_key(caller));
        keys.filter(|key| state.engine.supports_events(key))
            .collect()
    }

    /// Runs the log reader and the usage monitor only while they have subscribers.
    pub(super) fn update_sources(&self, state: &mut EventsState) {
        let is_needed = state
            .kernel_followers
            .keys()
            .any(|channel| channel.is_logged());
        match (is_needed, &state.log_reader) {
            (true, None) => {
                state.last_record = self.audit_events.audit.newest_sequence();
                state.log_reader = Some(log::spawn_follower(
                    &self.audit_events.audit,
                    state.last_record,
                    state.mailbox.clone(),
                ));
            }
            (false, Some(_)) => state.log_reader = None,
            (true, Some(_)) | (false, None) => {}
        }
        let is_needed = state
            .kernel_followers
            .contains_key(&KernelChannel::Resources);
        match (is_needed, &state.usage_monitor) {
            (true, None) => {
                state.usage_monitor = Some(resources::spawn_monitor(
                    &self.monitor,
                    state.mailbox.clone(),
                ))
            }
            (false, Some(_)) => state.usage_monitor = None,
            (true, Some(_)) | (false, None) => {}
        }
        let bits = state
            .kernel_followers
            .keys()
            .map(|channel| channel_bit(*channel));
        let bits = bits.fold(0, |all, bit| all | bit);
        self.followed.store(bits, Ordering::Relaxed);
    }

    fn unwatch(&self, state: &mut EventsState, connection: ConnectionId, uri: &str) {
        if let Some(number) = state.by_id.get(&resource_key(connection, uri)) {
            self.remove_subscription(state, *number);
        }
    }

    fn unsubscribe(
        &self,
        state: &mut EventsState,
        connection: ConnectionId,
        id: &str,
    ) -> Result<(), Refusal> {
        let number = state
            .find_subscription(connection, id)
            .ok_or_else(|| unknown_subscription(id))?;
        self.remove_subscription(state, number);
        Ok(())
    }

    /// Removes a subscription with all of its state.
    pub(super) fn remove_subscription(&self, state: &mut EventsState, number: SubscriptionNumber) {
        let effects = state.engine.unsubscribe(number);
        state.pending.remove(&number);
        let Some(open) = state.open.remove(&number) else {
            return;
        };
        state.by_id.remove(&open.id);
        open.cell.stop(None);
        state.unfollow_kernel(number, &open.kernel_channels);
        self.update_sources(state);
        for key in &open.follows {
            state.remove_if_unused(key);
        }
        self.request_effects(state, effects);
        state.retain_followed();
    }

    /// Removes a subscription, and sends the reason to its agent at another node.
    fn end_with_reason(
        &self,
        state: &mut EventsState,
        number: SubscriptionNumber,
        reason: FollowingEnd,
    ) {
        let open = state.open.get_mut(&number);
        if let Some(end) = open.and_then(|open| open.end.take()) {
            let _ = end.send(reason);
            self.remove_subscription(state, number);
        }
    }

    /// Ends the subscription of an agent of another node that may no longer use any of its servers.
    fn end_if_closed(&self, state: &mut EventsState, number: SubscriptionNumber) {
        if !state.engine.reaches_any_server(number) {
            self.end_with_reason(state, number, FollowingEnd::Closed);
        }
    }

    /// Drops a slow subscription: it keeps its id, but no feeds.
    fn drop_subscription(&self, state: &mut EventsState, number: SubscriptionNumber) {
        let effects = state.engine.retain_topics(number, |_| false);
        if let Some(open) = state.open.get_mut(&number) {
            let kernel_channels = std::mem::take(&mut open.kernel_channels);
            open.pushes.clear();
            state.unfollow_kernel(number, &kernel_channels);
        }
        self.update_sources(state);
        self.apply_effects(state, number, effects);
        self.end_with_reason(state, number, FollowingEnd::TooSlow);
    }

    fn server_up(&self, state: &mut EventsState, server: &ServerId, guard: &ResubscriptionGuard) {
        let Some(link) = upstream::find_link(&self.servers, server) else {
            return state.engine.server_down(server);
        };
        let mut effects = if server.is_remote() {
            state.engine.remote_server_up(server, link.number)
        } else {
            state.engine.server_up(server, link.number)
        };
        let handle = self.servers.load().get(&server.server()).cloned();
        let all: Vec<_> = state.engine.iter().collect();
        for (number, connection) in all {
            let agent = self.directory.get(connection);
            let caller = agent.as_ref().and_then(|agent| agent.caller());
            let key = handle.as_ref().zip(caller);
            let key = key.map(|(handle, caller)| handle.event_subscription_key(caller));
            let key = key.filter(|key| key == server || server.is_remote());
            let is_reachable = key.is_some()
                && caller.is_some_and(|caller| {
                    EventAccess::new(caller, &self.directory).can_reach(&server.server())
                });
            let key = key.as_ref().unwrap_or(server);
            effects.extend(state.engine.set_server_reachable(number, key, is_reachable));
            self.apply_effects(state, number, Vec::new());
        }
        self.request_effects_with_guard(state, effects, guard);
    }

    /// Unfollows the channels of a removed server, which must not pass to another server of its name.
    fn server_removed(&self, state: &mut EventsState, server: &ServerId) {
        state.node_topics.mark_broken(server);
        state.engine.server_down(server);
        let all: Vec<_> = state.engine.iter().collect();
        for (number, _) in all {
            let effects = if server.is_remote() {
                state.engine.drop_remote_instances(number, server)
            } else {
                state.engine.set_server_reachable(number, server, false)
            };
            self.apply_effects(state, number, effects);
            self.end_if_closed(state, number);
        }
        state.retain_followed();
    }

    fn access_changed(&self, state: &mut EventsState) {
        let all: Vec<_> = state.engine.iter().collect();
        for (number, connection) in all {
            let agent = self.directory.get(connection);
            let caller = agent.as_ref().and_then(|agent| agent.caller());
            let reach = caller.map(|caller| self.reachable_servers(state, caller));
            let effects = state.engine.set_servers(number, reach.unwrap_or_default());
            self.update_push_access(state, number);
            self.apply_effects(state, number, effects);
            self.end_if_closed(state, number);
        }
    }

    pub(super) fn handle_answer(
        &self,
        state: &mut EventsState,
        (server, link_number): (&ServerId, u64),
        topic: &Topic,
        id: Option<&str>,
    ) {
        let (effects, early) =
            state
                .engine
                .handle_subscribe_response(server, link_number, topic, id);
        self.request_effects(state, effects);
        for (topics, event) in early {
            state.publish_to_topics(server, topics, &event);
        }
        let pending: Vec<_> = state.pending.keys().copied().collect();
        for number in pending {
            if !state.engine.is_subscribe_pending(number) {
                self.answer_subscribe(state, number);
            }
        }
    }

    /// The sources of a resource's last events.
    fn last_events(
        &self,
        state: &EventsState,
        caller: &Caller,
        uri: &str,
    ) -> Result<LastEvents, Refusal> {
        let channel = self.resource_channel(state, caller, uri)?;
        let kernel_channels = self.matching_kernel_channels(std::slice::from_ref(&channel), caller);
        let (logged, live): (Vec<_>, Vec<_>) = kernel_channels
            .into_iter()
            .partition(|channel| channel.is_logged());
        let reach = self.reachable_servers(state, caller);
        let push_servers = self.push_servers(state, caller);
        let matches_feed = |key: &FeedKey| match key {
            FeedKey::Kernel(channel) => live.contains(channel),
            FeedKey::Server(server, topic) => {
                reach.contains(server) && topic.severity == Severity::Debug
            }
            FeedKey::Push(server) => push_servers.contains(server),
        };
        let feeds = state.feeds.iter().filter(|(key, _)| matches_feed(key));
        let feeds = feeds.map(|(_, feed)| feed.clone()).collect();
        Ok(LastEvents {
            channel,
            logged_channels: logged,
            feeds,
        })
    }

    fn list_channels(&self, state: &EventsState, caller: &Caller) -> Vec<Channel> {
        let reach = self.reachable_servers(state, caller);
        let kernel_channels = self.visible_kernel_channels(caller).map(|channel| Channel {
            channel: channel.name().into(),
            server_id: None,
            description: Some(channel.description().into()),
            logged: channel.is_logged(),
        });
        // The topics of another agent at its own instance must not be disclosed.
        let offered = state.engine.offered_channels();
        let offered = offered.filter(|(server, _)| reach.contains(*server));
        let offered = offered.map(|(server, channel)| {
            let server = server.server().to_string();
            (server, channel.to_string())
        });
        // The same channel may be offered with several severities.
        let offered: BTreeSet<_> = offered.collect();
        let offered = offered.into_iter().map(|(server, channel)| Channel {
            channel,
            server_id: Some(server),
            description: None,
            logged: false,
        });
        let pushes = self.visible_push_channels(state, caller);
        kernel_channels.chain(offered).chain(pushes).collect()
    }

    /// Updates the feeds of a subscription, and executes the effects at servers.
    pub(super) fn apply_effects(
        &self,
        state: &mut EventsState,
        number: SubscriptionNumber,
        effects: Vec<EventsEffect>,
    ) {
        state.update_feeds(number);
        self.request_effects(state, effects);
    }

    fn request_effects(&self, state: &mut EventsState, effects: Vec<EventsEffect>) {
        self.request_effects_with_guard(state, effects, &ResubscriptionGuard::default());
    }

    /// Executes the effects; `guard` is released once servers have answered.
    fn request_effects_with_guard(
        &self,
        state: &mut EventsState,
        effects: Vec<EventsEffect>,
        guard: &ResubscriptionGuard,
    ) {
        for effect in &effects {
            match effect {
                EventsEffect::SubscriptionExtended(number) => state.update_feeds(*number),
                EventsEffect::SubscribeRemote { server, topic } => {
                    self.follow_node_topic(state, (server.clone(), topic.clone()));
                }
                EventsEffect::UnsubscribeRemote { server, topic } => {
                    state.node_topics.remove(&(server.clone(), topic.clone()));
                }
                EventsEffect::SubscribeUpstream { .. }
                | EventsEffect::UnsubscribeUpstream { .. } => {}
            }
        }
        upstream::apply_effects(&self.servers, &state.mailbox, effects, guard);
        state.report_shortage();
    }
}

fn replay(
    state: &EventsState,
    connection: ConnectionId,
    request: &Replay,
    reply: Reply<Result<super::Replayed, Refusal>>,
) {
    let number = state.find_subscription(connection, &request.subscription_id);
    let Some(open) = number.and_then(|number| state.open.get(&number)) else {
        return reply.send(Err(unknown_subscription(&request.subscription_id)));
    };
    let message = SubscriptionMsg::Replay(request.after_seq, request.limit, reply);
    let _ = open.mailbox.send(message);
}

/// The internal key of the subscription to a resource; never sent to an agent.
pub(super) fn resource_key(connection: ConnectionId, uri: &str) -> Arc<str> {
    format!("{}\n{uri}", connection.0).into()
}
