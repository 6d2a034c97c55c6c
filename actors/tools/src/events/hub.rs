//! The hub: who follows which feeds, and what is asked of servers for them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mgp_engine::tools::events::channels::{KernelChannel, KernelEvent};
use mgp_engine::tools::events::{Events, EventsEffect, SubscriptionNumber, Topic};
use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::mgp::events::{Channel, Replay, Severity};
use mgp_protocol::refusal::Refusal;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::at_nodes::FollowedAtNodes;
use super::entry::{EventAccess, EventEntry};
use super::feeds::{EventsState, OpenSubscription};
use super::subscription::{FeedKey, SubscriptionMsg};
use super::{
    EventsMsg, FollowingOver, LastEvents, RecordedEvents, bit, log, resources, unknown, upstream,
};
use mgp_callers::directory::Directory;
use mgp_callers::request::Caller;
use mgp_runtime::mailbox::{Mailbox, Queued, Reply};
use mgp_servers::server::{RenewalHold, ResourceFigures, ServerTable};

/// Fixed at construction.
#[derive(Debug)]
pub(super) struct EventsActor {
    /// Who is told.
    pub(super) directory: Arc<Directory>,
    /// How servers are reached.
    pub(super) servers: Arc<ServerTable>,
    /// Where what happened is written down.
    pub(super) recorded: RecordedEvents,
    /// What servers use of the machine.
    pub(super) figures: Arc<ResourceFigures>,
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
            me: Mailbox::new(myself),
            engine: Events::default(),
            at_nodes: FollowedAtNodes::default(),
            feeds: BTreeMap::new(),
            pushes: BTreeMap::new(),
            of_kernel: BTreeMap::new(),
            open: BTreeMap::new(),
            by_id: HashMap::new(),
            opening: BTreeMap::new(),
            last: 0,
            log: None,
            recorded: 0,
            lost: BTreeSet::new(),
            looks: None,
            short: false,
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut EventsState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.open() {
            EventsMsg::Subscribe(request, reply) => self.subscribe(state, *request, reply).await,
            EventsMsg::Watch(who, uri, reply) => reply.send(self.watch(state, who, &uri).await),
            EventsMsg::Unwatch(who, uri) => self.unwatch(state, who, &uri),
            EventsMsg::Unsubscribe(who, id, reply) => reply.send(self.unsubscribe(state, who, &id)),
            EventsMsg::Replay(who, asked, reply) => replay(state, who, &asked, reply),
            EventsMsg::Last(caller, uri, reply) => reply.send(self.last(state, &caller, &uri)),
            EventsMsg::Channels(caller, reply) => reply.send(self.channels(state, &caller)),
            EventsMsg::Leave(who) => {
                for number in state.engine.of(who) {
                    self.end(state, number);
                }
            }
            EventsMsg::Back(server, hold) => self.back(state, &server, &hold),
            EventsMsg::Lost(server) => {
                state.at_nodes.lost(&server);
                state.engine.server_lost(&server);
            }
            EventsMsg::Removed(server) => self.removed(state, &server),
            EventsMsg::Answered {
                server,
                life,
                topic,
                id,
            } => self.answered(state, (&server, life), &topic, id.as_deref()),
            EventsMsg::AtNode(news) => self.heard_of_node(state, *news),
            EventsMsg::Due(number) => self.conclude(state, number),
            EventsMsg::TakenBack(number) => self.end(state, number),
            EventsMsg::Told(server, event, _room) => state.told(&server, &event),
            EventsMsg::Happened(event) => {
                state.publish(&FeedKey::Kernel(event.channel), &entry(&event), 0);
            }
            EventsMsg::Recorded(records, reply) => {
                state.take_recorded(&self.recorded, &records);
                reply.send(());
            }
            EventsMsg::PushChannels(server, all) => self.push_channels(state, server, all),
            EventsMsg::Pushed(event, reply) => reply.send(self.pushed(state, &event)),
            EventsMsg::Overtaken(number) => self.dropped(state, number),
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
                self.end(state, number);
            }
        }
        Ok(())
    }
}

fn entry(event: &KernelEvent) -> Arc<EventEntry> {
    EventEntry::of_kernel(event, None)
}

impl EventsActor {
    pub(super) fn own_channels_of(
        &self,
        caller: &Caller,
    ) -> impl Iterator<Item = KernelChannel> + use<> {
        let (logs, operator) = (self.recorded.audit.is_on(), caller.operator);
        // An agent of another node has those of its own kernel.
        let foreign = caller.agent.is_foreign();
        let all = KernelChannel::ALL.into_iter().filter(move |_| !foreign);
        all.filter(move |own| (logs || !own.is_logged()) && (operator || own.is_for_agents()))
    }

    /// The servers, or its own instances of them, whose events may come to a caller.
    pub(super) fn reach(&self, state: &EventsState, caller: &Caller) -> BTreeSet<ServerId> {
        let access = EventAccess::new(caller, &self.directory);
        let servers = self.servers.load();
        let open = servers.iter().filter(|(id, _)| access.reaches(id));
        let keys = open.map(|(_, handle)| handle.events_key_of(caller));
        keys.filter(|key| state.engine.knows(key)).collect()
    }

    /// The log is read, and what servers use is looked at, while somebody follows that.
    pub(super) fn follow_sources(&self, state: &mut EventsState) {
        let wanted = state.of_kernel.keys().any(|channel| channel.is_logged());
        match (wanted, &state.log) {
            (true, None) => {
                state.recorded = self.recorded.audit.newest();
                state.log = Some(log::follow(
                    &self.recorded.audit,
                    state.recorded,
                    state.me.clone(),
                ));
            }
            (false, Some(_)) => state.log = None,
            (true, Some(_)) | (false, None) => {}
        }
        let wanted = state.of_kernel.contains_key(&KernelChannel::Resources);
        match (wanted, &state.looks) {
            (true, None) => state.looks = Some(resources::follow(&self.figures, state.me.clone())),
            (false, Some(_)) => state.looks = None,
            (true, Some(_)) | (false, None) => {}
        }
        let bits = state.of_kernel.keys().map(|channel| bit(*channel));
        let bits = bits.fold(0, |all, one| all | one);
        self.followed.store(bits, Ordering::Relaxed);
    }

    fn unwatch(&self, state: &mut EventsState, who: ConnectionId, uri: &str) {
        if let Some(number) = state.by_id.get(&watched(who, uri)) {
            self.end(state, *number);
        }
    }

    fn unsubscribe(
        &self,
        state: &mut EventsState,
        who: ConnectionId,
        id: &str,
    ) -> Result<(), Refusal> {
        let number = state.own(who, id).ok_or_else(|| unknown(id))?;
        self.end(state, number);
        Ok(())
    }

    /// Nothing of it is left.
    pub(super) fn end(&self, state: &mut EventsState, number: SubscriptionNumber) {
        let effects = state.engine.unsubscribe(number);
        state.opening.remove(&number);
        let Some(open) = state.open.remove(&number) else {
            return;
        };
        state.by_id.remove(&open.id);
        open.cell.stop(None);
        state.leave_kernel(number, &open.of_kernel);
        self.follow_sources(state);
        for key in &open.follows {
            state.free(key);
        }
        self.perform(state, effects);
        state.forget_broken();
    }

    /// Nothing of it is left, and its agent at another node is told why.
    fn end_for(&self, state: &mut EventsState, number: SubscriptionNumber, why: FollowingOver) {
        let open = state.open.get_mut(&number);
        if let Some(over) = open.and_then(|open| open.over.take()) {
            let _ = over.send(why);
            self.end(state, number);
        }
    }

    /// An agent of another node that is let in no more is told so.
    fn end_if_closed(&self, state: &mut EventsState, number: SubscriptionNumber) {
        if !state.engine.reaches_any(number) {
            self.end_for(state, number, FollowingOver::Closed);
        }
    }

    /// A subscription that was too slow keeps its id, and follows nothing.
    fn dropped(&self, state: &mut EventsState, number: SubscriptionNumber) {
        let effects = state.engine.narrow(number, |_| false);
        if let Some(open) = state.open.get_mut(&number) {
            let of_kernel = std::mem::take(&mut open.of_kernel);
            open.pushes.clear();
            state.leave_kernel(number, &of_kernel);
        }
        self.follow_sources(state);
        self.settle(state, number, effects);
        self.end_for(state, number, FollowingOver::TooSlow);
    }

    fn back(&self, state: &mut EventsState, server: &ServerId, hold: &RenewalHold) {
        let Some(link) = upstream::link(&self.servers, server) else {
            return state.engine.server_lost(server);
        };
        let mut effects = match server.is_of_node() {
            true => state.engine.node_server_back(server, link.number),
            false => state.engine.server_back(server, link.number),
        };
        let handle = self.servers.load().get(&server.server()).cloned();
        let all: Vec<_> = state.engine.all().collect();
        for (number, who) in all {
            let agent = self.directory.get(who);
            let caller = agent.as_ref().and_then(|agent| agent.caller());
            let own = handle.as_ref().zip(caller);
            let own = own.map(|(handle, caller)| handle.events_key_of(caller));
            let own = own.filter(|key| key == server || server.is_of_node());
            let reached = own.is_some()
                && caller.is_some_and(|caller| {
                    EventAccess::new(caller, &self.directory).reaches(&server.server())
                });
            let key = own.as_ref().unwrap_or(server);
            effects.extend(state.engine.reaches_one(number, key, reached));
            self.settle(state, number, Vec::new());
        }
        self.perform_holding(state, effects, hold);
    }

    /// Its channels are followed no more, also not when another server has its name.
    fn removed(&self, state: &mut EventsState, server: &ServerId) {
        state.at_nodes.lost(server);
        state.engine.server_lost(server);
        let all: Vec<_> = state.engine.all().collect();
        for (number, _) in all {
            let effects = match server.is_of_node() {
                true => state.engine.reaches_no_instance(number, server),
                false => state.engine.reaches_one(number, server, false),
            };
            self.settle(state, number, effects);
            self.end_if_closed(state, number);
        }
        state.forget_broken();
    }

    fn access_changed(&self, state: &mut EventsState) {
        let all: Vec<_> = state.engine.all().collect();
        for (number, who) in all {
            let agent = self.directory.get(who);
            let caller = agent.as_ref().and_then(|agent| agent.caller());
            let reach = caller.map(|caller| self.reach(state, caller));
            let effects = state.engine.reaches(number, reach.unwrap_or_default());
            self.push_access(state, number);
            self.settle(state, number, effects);
            self.end_if_closed(state, number);
        }
    }

    pub(super) fn answered(
        &self,
        state: &mut EventsState,
        (server, life): (&ServerId, u64),
        topic: &Topic,
        id: Option<&str>,
    ) {
        let (effects, early) = state.engine.answered(server, life, topic, id);
        self.perform(state, effects);
        for (topics, event) in early {
            state.publish_told(server, topics, &event);
        }
        let opening: Vec<_> = state.opening.keys().copied().collect();
        for number in opening {
            if !state.engine.is_awaited(number) {
                self.conclude(state, number);
            }
        }
    }

    /// Where the last events of a resource are.
    fn last(&self, state: &EventsState, caller: &Caller, uri: &str) -> Result<LastEvents, Refusal> {
        let channel = self.channel_for(state, caller, uri)?;
        let own = self.own_channels(std::slice::from_ref(&channel), caller);
        let (logged, live): (Vec<_>, Vec<_>) = own.into_iter().partition(|own| own.is_logged());
        let reach = self.reach(state, caller);
        let pushing = self.push_reach(state, caller);
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
            logged,
            feeds,
        })
    }

    fn channels(&self, state: &EventsState, caller: &Caller) -> Vec<Channel> {
        let reach = self.reach(state, caller);
        let own = self.own_channels_of(caller).map(|own| Channel {
            channel: own.name().into(),
            server_id: None,
            description: Some(own.description().into()),
            logged: own.is_logged(),
        });
        // What another agent follows at an instance of its own is nobody else's business.
        let offered = state.engine.offered();
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
        let pushes = self.push_channels_of(state, caller);
        own.chain(of_servers).chain(pushes).collect()
    }

    /// Makes a subscription follow the feeds it should, and carries out what is wanted of servers.
    pub(super) fn settle(
        &self,
        state: &mut EventsState,
        number: SubscriptionNumber,
        effects: Vec<EventsEffect>,
    ) {
        state.refeed(number);
        self.perform(state, effects);
    }

    fn perform(&self, state: &mut EventsState, effects: Vec<EventsEffect>) {
        self.perform_holding(state, effects, &RenewalHold::default());
    }

    /// Holds on until servers have answered what they are asked.
    fn perform_holding(
        &self,
        state: &mut EventsState,
        effects: Vec<EventsEffect>,
        hold: &RenewalHold,
    ) {
        for effect in &effects {
            match effect {
                EventsEffect::FollowsMore(number) => state.refeed(*number),
                EventsEffect::FollowAtNode { server, topic } => {
                    self.follow_at_node(state, (server.clone(), topic.clone()));
                }
                EventsEffect::LeaveAtNode { server, topic } => {
                    state.at_nodes.leave(&(server.clone(), topic.clone()));
                }
                EventsEffect::SubscribeUpstream { .. }
                | EventsEffect::UnsubscribeUpstream { .. } => {}
            }
        }
        upstream::perform(&self.servers, &state.me, effects, hold);
        state.tell_shortage();
    }
}

fn replay(
    state: &EventsState,
    who: ConnectionId,
    asked: &Replay,
    reply: Reply<Result<super::Replayed, Refusal>>,
) {
    let number = state.own(who, &asked.subscription_id);
    let Some(open) = number.and_then(|number| state.open.get(&number)) else {
        return reply.send(Err(unknown(&asked.subscription_id)));
    };
    let message = SubscriptionMsg::Replay(asked.after_seq, asked.limit, reply);
    let _ = open.mailbox.tell(message);
}

/// Under which name the subscription to a resource is kept: no agent is told it.
pub(super) fn watched(who: ConnectionId, uri: &str) -> Arc<str> {
    format!("{}\n{uri}", who.0).into()
}
