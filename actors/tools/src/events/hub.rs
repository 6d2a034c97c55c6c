//! The hub: who follows which feeds, and what is asked of servers for them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mgp_engine::tools::events::channels::{KernelChannel, KernelEvent};
use mgp_engine::tools::events::{Events, EventsEffect, SubscriptionNumber, Topic, topics};
use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::mgp::events::{Channel, ChannelPattern, Replay, Severity, Subscribed};
use mgp_protocol::refusal::Refusal;
use mgp_sync::feed::Doorbell;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::entry::{EventAccess, EventEntry};
use super::feeds::{EventsState, OpenSubscription, OpeningSubscription};
use super::last::channel_of;
use super::subscription::{EventDelivery, FeedKey, SubscriptionActor, SubscriptionMsg};
use super::{EventsMsg, EventsRequest, LastEvents, bit, log, unknown, upstream};
use mgp_callers::agent::Agent;
use mgp_callers::directory::Directory;
use mgp_callers::exchange::Exchange;
use mgp_callers::request::Caller;
use mgp_runtime::mailbox::{Mailbox, Queued, Reply};
use mgp_runtime::randomness;
use mgp_runtime::task;
use mgp_servers::server::{RenewalHold, ServerTable};
use mgp_store::audit::AuditHandle;

/// How long servers may take to say which channels they have. Those of one that takes longer are not there.
const ANSWER: Duration = Duration::from_secs(2);

/// Fixed at construction.
#[derive(Debug)]
pub(super) struct EventsActor {
    /// Who is told.
    pub(super) directory: Arc<Directory>,
    /// How servers are reached.
    pub(super) servers: Arc<ServerTable>,
    /// Where what happened is written down.
    pub(super) audit: AuditHandle,
    /// The channels that somebody follows, as the handle reads them.
    pub(super) followed: Arc<AtomicU64>,
}

/// What a subscription is made of.
struct NewSubscription {
    agent: Arc<Agent>,
    caller: Arc<Caller>,
    channels: Vec<ChannelPattern>,
    severity: Severity,
    id: Arc<str>,
    delivery: EventDelivery,
    begun: Weak<Exchange>,
    /// It goes on after this record of the audit log.
    after: Option<u64>,
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
            feeds: BTreeMap::new(),
            of_kernel: BTreeMap::new(),
            open: BTreeMap::new(),
            by_id: HashMap::new(),
            opening: BTreeMap::new(),
            last: 0,
            log: None,
            recorded: 0,
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
            EventsMsg::Lost(server) => state.engine.server_lost(&server),
            EventsMsg::Removed(server) => self.removed(state, &server),
            EventsMsg::Answered {
                server,
                life,
                topic,
                id,
            } => self.answered(state, (&server, life), &topic, id.as_deref()),
            EventsMsg::Due(number) => self.conclude(state, number),
            EventsMsg::Told(server, event, _room) => state.told(&server, &event),
            EventsMsg::Happened(event) => {
                state.publish(&FeedKey::Kernel(event.channel), &entry(&event), 0);
            }
            EventsMsg::Recorded(records, reply) => {
                state.recorded(&records);
                reply.send(());
            }
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
    async fn subscribe(
        &self,
        state: &mut EventsState,
        request: EventsRequest,
        reply: Reply<Result<Subscribed, Refusal>>,
    ) {
        let severity = request.asked.filter.and_then(|filter| filter.min_severity);
        let severity = severity.unwrap_or(Severity::Debug);
        let asked = request.asked.channels.clone();
        let new = match self.wanted(state, request, severity) {
            Ok(new) => new,
            Err(refusal) => return reply.send(Err(refusal)),
        };
        let Some(number) = self.begin(state, new).await else {
            return reply.send(Err(Refusal::Broken("the kernel is stopping".into())));
        };
        let opening = OpeningSubscription {
            asked,
            severity,
            reply,
        };
        state.opening.insert(number, opening);
        if !state.engine.is_awaited(number) {
            return self.conclude(state, number);
        }
        let me = state.me.clone();
        task::detached("events.due", async move {
            tokio::time::sleep(ANSWER).await;
            let _ = me.remind(EventsMsg::Due(number));
        });
    }

    fn wanted(
        &self,
        state: &EventsState,
        request: EventsRequest,
        severity: Severity,
    ) -> Result<NewSubscription, Refusal> {
        let (caller, asked) = (request.caller, request.asked);
        // It may have gone since it asked: nothing would end what it gets now.
        let agent = self.directory.get(caller.connection);
        let agent = agent.filter(|_| !caller.is_alone()).ok_or_else(alone)?;
        may_subscribe(state, caller.connection, asked.channels.len())?;
        let after = asked
            .cursor
            .map(|cursor| read_cursor(&cursor))
            .transpose()?;
        let channels = asked.channels.iter();
        let channels = channels.filter_map(|name| ChannelPattern::parse(name));
        let id = format!("sub-{:032x}", u128::from_le_bytes(randomness::bytes()));
        Ok(NewSubscription {
            agent,
            caller,
            channels: channels.collect(),
            severity,
            delivery: EventDelivery::of_subscription(&id),
            id: id.into(),
            begun: Arc::downgrade(&request.exchange),
            after,
        })
    }

    /// Starts the actor of a subscription. What servers do not have is taken out of it once they have
    /// answered.
    async fn begin(
        &self,
        state: &mut EventsState,
        new: NewSubscription,
    ) -> Option<SubscriptionNumber> {
        state.last += 1;
        let number = state.last;
        let bell = Arc::new(Doorbell::new());
        let actor = SubscriptionActor {
            number,
            id: new.id.clone(),
            agent: Arc::downgrade(&new.agent),
            directory: self.directory.clone(),
            delivery: new.delivery,
            severity: new.severity,
            bell: bell.clone(),
            hub: state.me.clone(),
            begun: new.begun,
            waits_for_earlier: new.after.is_some(),
        };
        let (actor, _) = Actor::spawn_linked(None, actor, (), state.cell.clone())
            .await
            .ok()?;
        let open = OpenSubscription {
            id: new.id.clone(),
            cell: actor.get_cell(),
            mailbox: Mailbox::new(actor),
            bell,
            of_kernel: self.own_channels(&new.channels, &new.caller),
            follows: BTreeSet::new(),
        };
        for channel in &open.of_kernel {
            state.of_kernel.entry(*channel).or_default().insert(number);
        }
        self.follow_log(state);
        if let Some(after) = new.after {
            self.send_earlier(state, &open, (after, new.severity));
        }
        state.open.insert(number, open);
        state.by_id.insert(new.id, number);
        let (topics, reach) = (
            topics(&new.channels, new.severity),
            self.reach(state, &new.caller),
        );
        let who = new.agent.connection;
        let effects = state.engine.subscribe(number, who, topics, reach);
        self.settle(state, number, effects);
        Some(number)
    }

    /// The kernel's channels that are meant, of those this caller may hear of.
    fn own_channels(
        &self,
        channels: &[ChannelPattern],
        caller: &Caller,
    ) -> BTreeSet<KernelChannel> {
        let meant = |own: &KernelChannel| channels.iter().any(|of| of.covers(own.name()));
        self.own_channels_of(caller).filter(meant).collect()
    }

    fn own_channels_of(&self, caller: &Caller) -> impl Iterator<Item = KernelChannel> + use<> {
        let (logs, operator) = (self.audit.is_on(), caller.operator);
        let all = KernelChannel::ALL.into_iter();
        all.filter(move |own| (logs || !own.is_logged()) && (operator || own.is_for_agents()))
    }

    /// The servers, or its own instances of them, whose events may come to a caller.
    fn reach(&self, state: &EventsState, caller: &Caller) -> BTreeSet<ServerId> {
        let access = EventAccess::new(caller, &self.directory);
        let servers = self.servers.load();
        let known: BTreeSet<&ServerId> = state.engine.known().collect();
        let open = servers.iter().filter(|(id, _)| access.reaches(id));
        let keys = open.map(|(_, handle)| handle.key_of(caller));
        keys.filter(|key| known.contains(key)).collect()
    }

    /// Reads what was written down after the record that an agent knows, up to what comes by itself.
    fn send_earlier(
        &self,
        state: &EventsState,
        open: &OpenSubscription,
        (after, severity): (u64, Severity),
    ) {
        let channels: Vec<_> = open.of_kernel.iter().copied().collect();
        let (audit, mailbox) = (self.audit.clone(), open.mailbox.clone());
        let until = state.recorded;
        task::detached("events.earlier", async move {
            let read = log::earlier(&audit, (after.min(until), until), &channels, severity);
            let earlier = read.await.unwrap_or_else(|error| {
                tracing::warn!(%error, "earlier events cannot be read");
                super::subscription::EarlierEvents::default()
            });
            let _ = mailbox.remind(SubscriptionMsg::Earlier(earlier));
        });
    }

    /// The log is read while somebody follows what is written there.
    fn follow_log(&self, state: &mut EventsState) {
        let wanted = state.of_kernel.keys().any(|channel| channel.is_logged());
        match (wanted, &state.log) {
            (true, None) => {
                state.recorded = self.audit.newest();
                state.log = Some(log::follow(&self.audit, state.recorded, state.me.clone()));
            }
            (false, Some(_)) => state.log = None,
            (true, Some(_)) | (false, None) => {}
        }
        let bits = state.of_kernel.keys().map(|channel| bit(*channel));
        let bits = bits.fold(0, |all, one| all | one);
        self.followed.store(bits, Ordering::Relaxed);
    }

    /// Answers the agent: which of its channels it follows.
    fn conclude(&self, state: &mut EventsState, number: SubscriptionNumber) {
        let Some(opening) = state.opening.remove(&number) else {
            return;
        };
        let Some(open) = state.open.get(&number) else {
            return;
        };
        let topics: BTreeSet<Topic> = {
            let followed = state.engine.topics(number);
            let told = |topic: &&Topic| state.engine.is_told(number, topic);
            followed.filter(told).cloned().collect()
        };
        let supported = |name: &String| {
            let Some(channel) = ChannelPattern::parse(name) else {
                return false;
            };
            let own = open.of_kernel.iter().any(|own| channel.covers(own.name()));
            let told = |topic: &Topic| topic.channels.covers(channel.as_str());
            own || channel.is_standing() || topics.iter().any(|t| t.channels == channel || told(t))
        };
        let (subscribed, unsupported): (Vec<_>, Vec<_>) =
            opening.asked.into_iter().partition(supported);
        let kept: BTreeSet<_> = subscribed
            .iter()
            .filter_map(|name| ChannelPattern::parse(name))
            .collect();
        let subscription_id = open.id.to_string();
        let keeps =
            |topic: &Topic| topic.severity == opening.severity && kept.contains(&topic.channels);
        let effects = state.engine.narrow(number, keeps);
        self.settle(state, number, effects);
        opening.reply.send(Ok(Subscribed {
            subscribed,
            unsupported,
            subscription_id,
        }));
    }

    async fn watch(
        &self,
        state: &mut EventsState,
        who: ConnectionId,
        uri: &str,
    ) -> Result<(), Refusal> {
        let id = watched(who, uri);
        if state.by_id.contains_key(&id) {
            return Ok(());
        }
        let unknown = || Refusal::UnknownResource(uri.to_owned());
        let channel = channel_of(uri)?;
        let agent = self.directory.get(who).ok_or_else(unknown)?;
        let caller = agent.caller().cloned().ok_or_else(unknown)?;
        may_subscribe(state, who, 1)?;
        let new = NewSubscription {
            agent,
            caller,
            channels: vec![channel],
            severity: Severity::Debug,
            id,
            delivery: EventDelivery::Updates(uri.to_owned()),
            begun: Weak::new(),
            after: None,
        };
        let stopping = || Refusal::Broken("the kernel is stopping".into());
        self.begin(state, new).await.map(drop).ok_or_else(stopping)
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
    fn end(&self, state: &mut EventsState, number: SubscriptionNumber) {
        let effects = state.engine.unsubscribe(number);
        state.opening.remove(&number);
        let Some(open) = state.open.remove(&number) else {
            return;
        };
        state.by_id.remove(&open.id);
        open.cell.stop(None);
        state.leave_kernel(number, &open.of_kernel);
        self.follow_log(state);
        for key in open.follows {
            state.free(&key);
        }
        self.perform(state, effects);
    }

    /// A subscription that was too slow keeps its id, and follows nothing.
    fn dropped(&self, state: &mut EventsState, number: SubscriptionNumber) {
        let effects = state.engine.narrow(number, |_| false);
        if let Some(open) = state.open.get_mut(&number) {
            let of_kernel = std::mem::take(&mut open.of_kernel);
            state.leave_kernel(number, &of_kernel);
        }
        self.follow_log(state);
        self.settle(state, number, effects);
    }

    fn back(&self, state: &mut EventsState, server: &ServerId, hold: &RenewalHold) {
        let Some(link) = upstream::link(&self.servers, server) else {
            return state.engine.server_lost(server);
        };
        let mut effects = state.engine.server_back(server, link.number);
        let handle = self.servers.load().get(&server.server()).cloned();
        let all: Vec<_> = state.engine.all().collect();
        for (number, who) in all {
            let agent = self.directory.get(who);
            let reached = agent
                .as_ref()
                .and_then(|agent| agent.caller())
                .is_some_and(|caller| {
                    let own = handle
                        .as_ref()
                        .is_some_and(|handle| handle.key_of(caller) == *server);
                    own && EventAccess::new(caller, &self.directory).reaches(&server.server())
                });
            effects.extend(state.engine.reaches_one(number, server, reached));
            self.settle(state, number, Vec::new());
        }
        upstream::perform(&self.servers, &state.me, effects, hold);
    }

    /// Its channels are followed no more, also not when another server has its name.
    fn removed(&self, state: &mut EventsState, server: &ServerId) {
        state.engine.server_lost(server);
        let all: Vec<_> = state.engine.all().collect();
        for (number, _) in all {
            let effects = state.engine.reaches_one(number, server, false);
            self.settle(state, number, effects);
        }
    }

    fn access_changed(&self, state: &mut EventsState) {
        let all: Vec<_> = state.engine.all().collect();
        for (number, who) in all {
            let agent = self.directory.get(who);
            let caller = agent.as_ref().and_then(|agent| agent.caller());
            let reach = caller.map(|caller| self.reach(state, caller));
            let effects = state.engine.reaches(number, reach.unwrap_or_default());
            self.settle(state, number, effects);
        }
    }

    fn answered(
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
        let channel = channel_of(uri)?;
        let own = self.own_channels(std::slice::from_ref(&channel), caller);
        let (logged, live): (Vec<_>, Vec<_>) = own.into_iter().partition(|own| own.is_logged());
        let reach = self.reach(state, caller);
        let has = |key: &FeedKey| match key {
            FeedKey::Kernel(of) => live.contains(of),
            FeedKey::Server(server, topic) => {
                reach.contains(server) && topic.severity == Severity::Debug
            }
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
        let access = EventAccess::new(caller, &self.directory);
        let own = self.own_channels_of(caller).map(|own| Channel {
            channel: own.name().into(),
            server_id: None,
            description: Some(own.description().into()),
            logged: own.is_logged(),
        });
        let offered = state.engine.offered();
        let offered = offered.filter(|(server, _)| access.reaches(&server.server()));
        let of_servers = offered.map(|(server, channel)| Channel {
            channel: channel.to_string(),
            server_id: Some(server.server().to_string()),
            description: None,
            logged: false,
        });
        let mut all: Vec<_> = own.chain(of_servers).collect();
        all.dedup();
        all
    }

    /// Makes a subscription follow the feeds it should, and carries out what is wanted of servers.
    fn settle(
        &self,
        state: &mut EventsState,
        number: SubscriptionNumber,
        effects: Vec<EventsEffect>,
    ) {
        state.refeed(number);
        self.perform(state, effects);
    }

    fn perform(&self, state: &EventsState, effects: Vec<EventsEffect>) {
        let hold = RenewalHold::default();
        upstream::perform(&self.servers, &state.me, effects, &hold);
    }
}

fn may_subscribe(state: &EventsState, who: ConnectionId, channels: usize) -> Result<(), Refusal> {
    let may = state.engine.may_subscribe(who, channels);
    may.map_err(|full| Refusal::BadParams(full.to_string()))
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
fn watched(who: ConnectionId, uri: &str) -> Arc<str> {
    format!("{}\n{uri}", who.0).into()
}

fn alone() -> Refusal {
    Refusal::BadRequest(
        "events come to a connection or a session; a stateless client follows the resources mgp://events/CHANNEL with subscriptions/listen".into(),
    )
}

fn read_cursor(cursor: &str) -> Result<u64, Refusal> {
    let unread = || Refusal::BadParams("`_mgp.cursor` is not one that an event carried".to_owned());
    cursor.parse().map_err(|_| unread())
}
