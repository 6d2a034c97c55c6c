//! The hub: who follows which feeds, and the subscriptions at servers that they need.

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
use mgp_callers::directory::Directory;
use mgp_callers::request::Caller;
use mgp_runtime::mailbox::{Mailbox, Queued, Reply};
use mgp_servers::server::{ResourceMonitor, ResubscriptionGuard, ServerTable};

/// Fixed at construction.
#[derive(Debug)]
pub(super) struct EventsActor {
    /// Who is told.
    pub(super) directory: Arc<Directory>,
    /// How servers are reached.
    pub(super) servers: Arc<ServerTable>,
    /// Where what happened is written down.
    pub(super) audit_events: AuditEvents,
    /// What servers use of the machine.
    pub(super) figures: Arc<ResourceMonitor>,
    /// The channels that somebody follows, as the handle reads them.
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
            EventsMsg::Watch(who, uri, reply) => reply.send(self.watch(state, who, &uri).await),
            EventsMsg::Unwatch(who, uri) => self.unwatch(state, who, &uri),
            EventsMsg::Unsubscribe(who, id, reply) => reply.send(self.unsubscribe(state, who, &id)),
            EventsMsg::Replay(who, asked, reply) => replay(state, who, &asked, reply),
            EventsMsg::Last(caller, uri, reply) => {
                reply.send(self.last_events(state, &caller, &uri))
            }
            EventsMsg::Channels(caller, reply) => reply.send(self.list_channels(state, &caller)),
            EventsMsg::Leave(who) => {
                for number in state.engine.subscriptions_of(who) {
                    self.remove_subscription(state, number);
                }
            }
            EventsMsg::ServerUp(server, hold) => self.server_up(state, &server, &hold),
            EventsMsg::ServerDown(server) => {
                state.node_topics.mark_broken(&server);
                state.engine.server_down(&server);
            }
            EventsMsg::Removed(server) => self.server_removed(state, &server),
            EventsMsg::ServerAnswered {
                server,
                connection: life,
                topic,
                id,
            } => self.handle_answer(state, (&server, life), &topic, id.as_deref()),
            EventsMsg::NodeFollowing(news) => self.handle_node_event(state, *news),
            EventsMsg::AnswersDue(number) => self.answer_subscribe(state, number),
            EventsMsg::Canceled(number) => self.remove_subscription(state, number),
            EventsMsg::ServerEvent(server, event, _room) => {
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
        if let SupervisionEvent::ActorFailed(who, error) = event {
            tracing::error!(%error, "an event subscription failed and is ended");
            let of = |(number, open): (&SubscriptionNumber, &OpenSubscription)| {
                (open.cell.get_id() == who.get_id()).then_some(*number)
            };
            if let Some(number) = state.open.iter().find_map(of) {
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
        let (logs, operator) = (self.audit_events.audit.is_enabled(), caller.operator);
        // An agent of another node has those of its own kernel.
        let foreign = caller.agent.is_remote();
        let all = KernelChannel::ALL.into_iter().filter(move |_| !foreign);
        all.filter(move |own| {
            (logs || !own.is_logged()) && (operator || own.is_visible_to_agents())
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

    /// The log is read, and what servers use is looked at, while somebody follows that.
    pub(super) fn update_sources(&self, state: &mut EventsState) {
        let wanted = state
            .kernel_followers
            .keys()
            .any(|channel| channel.is_logged());
        match (wanted, &state.log_reader) {
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
        let wanted = state
            .kernel_followers
            .contains_key(&KernelChannel::Resources);
        match (wanted, &state.usage_monitor) {
            (true, None) => {
                state.usage_monitor = Some(resources::spawn_monitor(
                    &self.figures,
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
        let bits = bits.fold(0, |all, one| all | one);
        self.followed.store(bits, Ordering::Relaxed);
    }

    fn unwatch(&self, state: &mut EventsState, who: ConnectionId, uri: &str) {
        if let Some(number) = state.by_id.get(&resource_key(who, uri)) {
            self.remove_subscription(state, *number);
        }
    }

    fn unsubscribe(
        &self,
        state: &mut EventsState,
        who: ConnectionId,
        id: &str,
    ) -> Result<(), Refusal> {
        let number = state
            .find_subscription(who, id)
            .ok_or_else(|| unknown_subscription(id))?;
        self.remove_subscription(state, number);
        Ok(())
    }

    /// Nothing of it is left.
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

    /// Nothing of it is left, and its agent at another node gets the reason.
    fn end_with_reason(
        &self,
        state: &mut EventsState,
        number: SubscriptionNumber,
        why: FollowingEnd,
    ) {
        let open = state.open.get_mut(&number);
        if let Some(over) = open.and_then(|open| open.end.take()) {
            let _ = over.send(why);
            self.remove_subscription(state, number);
        }
    }

    /// An agent of another node whose access ended is notified.
    fn end_if_closed(&self, state: &mut EventsState, number: SubscriptionNumber) {
        if !state.engine.reaches_any_server(number) {
            self.end_with_reason(state, number, FollowingEnd::Closed);
        }
    }

    /// A subscription that was too slow keeps its id, and follows nothing.
    fn drop_subscription(&self, state: &mut EventsState, number: SubscriptionNumber) {
        let effects = state.engine.retain_topics(number, |_| false);
        if let Some(open) = state.open.get_mut(&number) {
            let of_kernel = std::mem::take(&mut open.kernel_channels);
            open.pushes.clear();
            state.unfollow_kernel(number, &of_kernel);
        }
        self.update_sources(state);
        self.apply_effects(state, number, effects);
        self.end_with_reason(state, number, FollowingEnd::TooSlow);
    }

    fn server_up(&self, state: &mut EventsState, server: &ServerId, hold: &ResubscriptionGuard) {
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
        for (number, who) in all {
            let agent = self.directory.get(who);
            let caller = agent.as_ref().and_then(|agent| agent.caller());
            let own = handle.as_ref().zip(caller);
            let own = own.map(|(handle, caller)| handle.event_subscription_key(caller));
            let own = own.filter(|key| key == server || server.is_remote());
            let reached = own.is_some()
                && caller.is_some_and(|caller| {
                    EventAccess::new(caller, &self.directory).can_reach(&server.server())
                });
            let key = own.as_ref().unwrap_or(server);
            effects.extend(state.engine.set_server_reachable(number, key, reached));
            self.apply_effects(state, number, Vec::new());
        }
        self.request_effects_with_hold(state, effects, hold);
    }

    /// Its channels are followed no more, also not when another server has its name.
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
        for (number, who) in all {
            let agent = self.directory.get(who);
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
        (server, life): (&ServerId, u64),
        topic: &Topic,
        id: Option<&str>,
    ) {
        let (effects, early) = state
            .engine
            .handle_subscribe_response(server, life, topic, id);
        self.request_effects(state, effects);
        for (topics, event) in early {
            state.publish_to_topics(server, topics, &event);
        }
        let opening: Vec<_> = state.pending.keys().copied().collect();
        for number in opening {
            if !state.engine.is_subscribe_pending(number) {
                self.answer_subscribe(state, number);
            }
        }
    }

    /// Where the last events of a resource are.
    fn last_events(
        &self,
        state: &EventsState,
        caller: &Caller,
        uri: &str,
    ) -> Result<LastEvents, Refusal> {
        let channel = self.resource_channel(state, caller, uri)?;
        let own = self.matching_kernel_channels(std::slice::from_ref(&channel), caller);
        let (logged, live): (Vec<_>, Vec<_>) = own.into_iter().partition(|own| own.is_logged());
        let reach = self.reachable_servers(state, caller);
        let pushing = self.push_servers(state, caller);
        let has = |key: &FeedKey| match key {
            FeedKey::Kernel(of) => live.contains(of),
            FeedKey::Server(server, topic) => {
                reach.contains(server) && topic.severity == Severity::Debug
            }
            FeedKey::Push(server) => pushing.contains(server),
        };
        let feeds = state.feeds.iter().filter(|(key, _)| has(key));
        let feeds = feeds.map(|(_, feed)| feed.clone()).collect();
        Ok(LastEvents {
            channel,
            logged_channels: logged,
            feeds,
        })
    }

    fn list_channels(&self, state: &EventsState, caller: &Caller) -> Vec<Channel> {
        let reach = self.reachable_servers(state, caller);
        let own = self.visible_kernel_channels(caller).map(|own| Channel {
            channel: own.name().into(),
            server_id: None,
            description: Some(own.description().into()),
            logged: own.is_logged(),
        });
        // What another agent follows at an instance of its own must not be disclosed.
        let offered = state.engine.offered_channels();
        let offered = offered.filter(|(server, _)| reach.contains(*server));
        let of_servers = offered.map(|(server, channel)| {
            let server = server.server().to_string();
            (server, channel.to_string())
        });
        // The same channel is told of several severities.
        let of_servers: BTreeSet<_> = of_servers.collect();
        let of_servers = of_servers.into_iter().map(|(server, channel)| Channel {
            channel,
            server_id: Some(server),
            description: None,
            logged: false,
        });
        let pushes = self.visible_push_channels(state, caller);
        own.chain(of_servers).chain(pushes).collect()
    }

    /// Makes a subscription follow the feeds it should, and carries out what is wanted of servers.
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
        self.request_effects_with_hold(state, effects, &ResubscriptionGuard::default());
    }

    /// Waits until servers have answered.
    fn request_effects_with_hold(
        &self,
        state: &mut EventsState,
        effects: Vec<EventsEffect>,
        hold: &ResubscriptionGuard,
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
        upstream::apply_effects(&self.servers, &state.mailbox, effects, hold);
        state.report_shortage();
    }
}

fn replay(
    state: &EventsState,
    who: ConnectionId,
    asked: &Replay,
    reply: Reply<Result<super::Replayed, Refusal>>,
) {
    let number = state.find_subscription(who, &asked.subscription_id);
    let Some(open) = number.and_then(|number| state.open.get(&number)) else {
        return reply.send(Err(unknown_subscription(&asked.subscription_id)));
    };
    let message = SubscriptionMsg::Replay(asked.after_seq, asked.limit, reply);
    let _ = open.mailbox.send(message);
}

/// The internal name of the subscription to a resource; never sent to an agent.
pub(super) fn resource_key(who: ConnectionId, uri: &str) -> Arc<str> {
    format!("{}\n{uri}", who.0).into()
}
