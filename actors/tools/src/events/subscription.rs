//! The actor of one event subscription: reads the feeds of its channels at its own pace, and writes to its agent what
//! the agent may receive. A subscription that lags is dropped, and blocks nobody. Messages come from the hub and from
//! replays.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mgp_engine::tools::events::SubscriptionNumber;
use mgp_engine::tools::events::Topic;
use mgp_engine::tools::events::channels::KernelChannel;
use mgp_json::quote;
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcpl::push::CHANNELS;
use mgp_protocol::mgp::events::{ChannelPattern, REPLAY_DEFAULT, REPLAY_MAX, Replayed, Severity};
use mgp_protocol::refusal::Refusal;
use mgp_sync::feed::Wakeup;
use mgp_transports::lines::{QueueLimits, SendError};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::value::RawValue;

use super::EventsMsg;
use super::entry::{EventAccess, EventEntry, EventFeed, render_head};
use mgp_callers::agent::Agent;
use mgp_callers::directory::Directory;
use mgp_callers::in_flight_call::{Delivery, InFlightCall};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_runtime::mailbox::{Mailbox, Queued, Reply};
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::unix_ms;

/// Events of the subscriptions of one connection that may wait for its reader; more stay in their feeds.
const QUEUE_LIMITS: QueueLimits = QueueLimits {
    frames: 256,
    bytes: 1 << 20,
};
/// The poll interval for capacity in a line's buffer.
const RETRY_DELAY: Duration = Duration::from_millis(20);
/// The shortest interval between two change notifications of a resource.
const COALESCE_INTERVAL: Duration = Duration::from_millis(200);
/// Events read at once of one feed.
const BATCH: usize = 64;
/// Events that can be replayed (MGP §13, later drafts): as many as a feed holds.
const REPLAYABLE: usize = 1_000;

/// What feeds one of its channels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FeedKey {
    /// The kernel's own.
    Kernel(KernelChannel),
    /// The request to a server.
    Server(ServerId, Topic),
    /// What an MCPL server pushes.
    Push(ServerId),
}

/// How its agent receives events.
#[derive(Debug)]
pub(super) enum EventDelivery {
    /// Each as a notification, with the start of that.
    Each(String),
    /// As changes of the resource of this URI.
    Updates(String),
}

impl EventDelivery {
    pub(super) fn notifications(id: &str) -> Self {
        Self::Each(render_head(id))
    }
}

/// Events that were written down before the subscription began.
#[derive(Debug, Default)]
pub(super) struct EarlierEvents {
    pub(super) events: Vec<Arc<EventEntry>>,
    /// How many there were before these.
    pub(super) missed: u64,
}

#[derive(Debug)]
pub(super) enum SubscriptionMsg {
    /// There is something new.
    EventsAvailable,
    /// The event it waited for has happened.
    Resume,
    /// It gets the events of this feed after a position.
    Follow(FeedKey, Arc<EventFeed>, u64),
    /// It does not any more.
    Unfollow(FeedKey),
    /// It receives only these push events.
    SetPushes(Vec<ChannelPattern>),
    /// What it waits for before all others.
    Earlier(EarlierEvents),
    /// `mgp/events/replay`: after this event, at most so many.
    Replay(u64, Option<u64>, Reply<Result<Replayed, Refusal>>),
}

/// Fixed at construction.
#[derive(Debug)]
pub(super) struct SubscriptionActor {
    pub(super) number: SubscriptionNumber,
    pub(super) id: Arc<str>,
    pub(super) agent: Weak<Agent>,
    pub(super) directory: Arc<Directory>,
    pub(super) delivery: EventDelivery,
    pub(super) severity: Severity,
    pub(super) wakeup: Arc<Wakeup>,
    pub(super) hub: Mailbox<EventsMsg>,
    /// The request that began it: what it gets comes after that one's answer.
    pub(super) subscribe_call: Weak<InFlightCall>,
    /// Events from before it began come first.
    pub(super) waits_for_earlier: bool,
    /// The push events it subscribed to.
    pub(super) pushes: Vec<ChannelPattern>,
}

#[derive(Debug)]
pub(super) struct SubscriptionState {
    mailbox: Mailbox<SubscriptionMsg>,
    feeds: BTreeMap<FeedKey, (Arc<EventFeed>, u64)>,
    /// The push events it receives.
    pushes: Vec<ChannelPattern>,
    /// Those from before it began; `None` while they are waited for.
    earlier: Option<VecDeque<Arc<EventEntry>>>,
    /// The number of its last event.
    seq: u64,
    /// Its last events, which live as long as their feeds keep them.
    sent: VecDeque<Weak<EventEntry>>,
    /// It is past what happened before it could send anything.
    is_started: bool,
    /// Too slow: it gets nothing more.
    is_dropped: bool,
    /// Retries when there may be capacity, or when enough time has passed.
    retry_timer: Option<SupervisedTask<()>>,
}

impl Actor for SubscriptionActor {
    type Msg = Queued<SubscriptionMsg>;
    type State = SubscriptionState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<SubscriptionState, ActorProcessingErr> {
        let me = Mailbox::new(myself);
        Ok(SubscriptionState {
            retry_timer: Some(self.wait_for_answer(&me)),
            mailbox: me,
            feeds: BTreeMap::new(),
            pushes: self.pushes.clone(),
            earlier: (!self.waits_for_earlier).then(VecDeque::new),
            seq: 0,
            sent: VecDeque::new(),
            is_started: false,
            is_dropped: false,
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut SubscriptionState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            SubscriptionMsg::EventsAvailable => self.deliver(state),
            SubscriptionMsg::Resume => {
                state.retry_timer = None;
                self.deliver(state);
            }
            SubscriptionMsg::Follow(key, feed, place) => {
                state.feeds.entry(key).or_insert((feed, place));
                self.deliver(state);
            }
            SubscriptionMsg::Unfollow(key) => drop(state.feeds.remove(&key)),
            SubscriptionMsg::SetPushes(pushes) => state.pushes = pushes,
            SubscriptionMsg::Earlier(earlier) => {
                state.skip(earlier.missed);
                state.earlier = Some(earlier.events.into());
                self.deliver(state);
            }
            SubscriptionMsg::Replay(after, limit, reply) => {
                reply.send(Ok(self.replay(state, after, limit)));
            }
        }
        Ok(())
    }
}

impl SubscriptionActor {
    /// Resolves when the request that began it is answered; until then nothing is sent. A subscription whose request
    /// was cancelled ends, since its agent never learns of it.
    fn wait_for_answer(&self, me: &Mailbox<SubscriptionMsg>) -> SupervisedTask<()> {
        let (begun, me) = (self.subscribe_call.clone(), me.clone());
        let (hub, number) = (self.hub.clone(), self.number);
        task::spawn_supervised("events.open", async move {
            if let Some(begun) = begun.upgrade() {
                tokio::select! {
                    () = begun.wait_until_ended() => {}
                    () = begun.wait_until_cancelled() => {}
                }
                if !begun.is_awaited() {
                    let _ = hub.send_to_self(EventsMsg::Canceled(number));
                    return;
                }
            }
            let _ = me.send_to_self(SubscriptionMsg::Resume);
        })
    }

    /// Sends the available events, as far as there is capacity.
    fn deliver(&self, state: &mut SubscriptionState) {
        let waits = state.retry_timer.is_some() || state.is_dropped;
        let Some(agent) = self.agent.upgrade().filter(|_| !waits) else {
            return;
        };
        let Some(caller) = agent.caller() else { return };
        let access = EventAccess::new(caller, &self.directory);
        let listener = Receiver {
            subscription: self,
            agent: &agent,
            access,
            operator: caller.operator,
        };
        self.wakeup.reset();
        match listener
            .send_earlier(state)
            .and_then(|()| listener.send_from_feeds(state))
        {
            Ok(()) => {}
            Err(Pause::QueueFull) => state.schedule_delivery(wait_for_capacity(&agent)),
            Err(Pause::Coalescing) => {
                state.schedule_delivery(tokio::time::sleep(COALESCE_INTERVAL))
            }
            Err(Pause::Closed) => {}
            Err(Pause::TooSlow) => self.drop_slow(state, &listener),
        }
    }

    /// It was too slow: the rest stays for replay, and a last event reports it.
    fn drop_slow(&self, state: &mut SubscriptionState, listener: &Receiver<'_>) {
        state.is_dropped = true;
        listener.number_remaining(state);
        // The node of a remote subscriber learns it from the end of its request.
        if let EventDelivery::Each(head) = &self.delivery
            && !listener.agent.is_follower()
        {
            let after = state.seq;
            state.seq += 1;
            state.remember(Weak::new());
            let frame = render_end(head, state.seq, after);
            listener.agent.send(frame.into(), Delivery::Lossy);
        }
        tracing::debug!(subscription = %self.id, "an event subscription was too slow and is dropped");
        let _ = self.hub.send_to_self(EventsMsg::TooSlow(self.number));
    }

    fn replay(&self, state: &SubscriptionState, after: u64, limit: Option<u64>) -> Replayed {
        let limit = limit.unwrap_or(REPLAY_DEFAULT).clamp(1, REPLAY_MAX);
        let mut replayed = Replayed {
            subscription_id: self.id.to_string(),
            events: Vec::new(),
            has_more: false,
            truncated: false,
        };
        let Some(agent) = self.agent.upgrade() else {
            return replayed;
        };
        let Some(caller) = agent.caller() else {
            return replayed;
        };
        let access = EventAccess::new(caller, &self.directory);
        let first = state.seq + 1 - state.sent.len() as u64;
        replayed.truncated = after.saturating_add(1) < first;
        for (seq, event) in (first..).zip(&state.sent).filter(|(seq, _)| *seq > after) {
            match event.upgrade() {
                None => replayed.truncated = true,
                Some(event) if access.can_see(&event) => {
                    if replayed.events.len() as u64 == limit {
                        replayed.has_more = true;
                        break;
                    }
                    let params = event.render_params(seq, caller.operator);
                    replayed.events.extend(RawValue::from_string(params).ok());
                }
                Some(_closed_meanwhile) => {}
            }
        }
        replayed
    }
}

/// Why nothing more is sent now.
enum Pause {
    /// The line is full.
    QueueFull,
    /// The resource's change was just notified.
    Coalescing,
    /// The connection has ended.
    Closed,
    /// Unread events were dropped.
    TooSlow,
}

/// The agent of a subscription, with its rights as they are now.
struct Receiver<'a> {
    subscription: &'a SubscriptionActor,
    agent: &'a Agent,
    access: EventAccess<'a>,
    operator: bool,
}

impl Receiver<'_> {
    /// Those from before it began.
    fn send_earlier(&self, state: &mut SubscriptionState) -> Result<(), Pause> {
        let Some(mut earlier) = state.earlier.take() else {
            return Err(Pause::Closed);
        };
        let mut sent = Ok(());
        while let Some(event) = earlier.front() {
            sent = self.send(state, event);
            if sent.is_err() {
                break;
            }
            earlier.pop_front();
        }
        state.earlier = Some(earlier);
        sent
    }

    fn send_from_feeds(&self, state: &mut SubscriptionState) -> Result<(), Pause> {
        if !state.is_started {
            self.catch_up(state);
            state.is_started = true;
        }
        loop {
            let next = match (state.next_events(), &self.subscription.delivery) {
                (Err(Pause::TooSlow), EventDelivery::Updates(uri)) => {
                    return Err(self.send_update(state, uri));
                }
                (next, _) => next?,
            };
            if next.is_empty() {
                return Ok(());
            }
            for (key, place, event) in next {
                let before = state.feeds.get(&key).map_or(place, |(_, before)| *before);
                state.skip(place.saturating_sub(before + 1));
                state.set_position(&key, place - 1);
                self.send(state, &event)?;
                state.set_position(&key, place);
            }
        }
    }

    /// Events that feeds dropped before its agent could read anything are not the agent's fault: they count as lost.
    fn catch_up(&self, state: &mut SubscriptionState) {
        let mut lost = 0;
        for (key, (feed, place)) in &mut state.feeds {
            let read = feed.read(*place, 1);
            if read.has_gap {
                let first = read.events.first().map(|(first, _)| *first);
                let before = first.unwrap_or_else(|| feed.newest_position() + 1) - 1;
                lost += self.missing_numbers(key, before.saturating_sub(*place));
                *place = before;
            }
        }
        state.skip(lost);
    }

    /// The size of the gap after this many dropped events of a feed. Other agents' activity is not disclosed: it
    /// counts as one then.
    fn missing_numbers(&self, key: &FeedKey, gone: u64) -> u64 {
        match key {
            FeedKey::Kernel(_) | FeedKey::Push(_) if !self.operator => gone.min(1),
            FeedKey::Kernel(_) | FeedKey::Push(_) | FeedKey::Server(..) => gone,
        }
    }

    fn is_wanted(&self, event: &EventEntry, pushes: &[ChannelPattern]) -> bool {
        let severe = event
            .severity
            .is_none_or(|it| it >= self.subscription.severity);
        // The feed of a server has the events of all its sets.
        let meant = !event.channel().starts_with(CHANNELS)
            || pushes.iter().any(|of| of.covers(event.channel()));
        severe && meant && self.access.can_see(event)
    }

    fn send(&self, state: &mut SubscriptionState, event: &Arc<EventEntry>) -> Result<(), Pause> {
        if !self.is_wanted(event, &state.pushes) {
            return Ok(());
        }
        match &self.subscription.delivery {
            EventDelivery::Each(head) => {
                let frame = event.render_frame(head, state.seq + 1, self.operator);
                self.agent
                    .try_send(frame, QUEUE_LIMITS)
                    .map_err(|refused| match refused {
                        SendError::Full => Pause::QueueFull,
                        SendError::Closed => Pause::Closed,
                    })?;
                state.seq += 1;
                state.remember(Arc::downgrade(event));
                Ok(())
            }
            EventDelivery::Updates(uri) => Err(self.send_update(state, uri)),
        }
    }

    /// However many events there are, the resource has changed once.
    fn send_update(&self, state: &mut SubscriptionState, uri: &str) -> Pause {
        self.agent
            .send(render_update(uri).into(), Delivery::Reliable);
        state.skip_all();
        Pause::Coalescing
    }

    /// What is left in the feeds is numbered, so that it can be replayed.
    fn number_remaining(&self, state: &mut SubscriptionState) {
        for (key, (feed, place)) in std::mem::take(&mut state.feeds) {
            let left = feed.read(place, REPLAYABLE);
            let first = left
                .events
                .first()
                .map_or(feed.newest_position() + 1, |(first, _)| *first);
            state.skip(self.missing_numbers(&key, first.saturating_sub(place + 1)));
            for (_, event) in left.events {
                if self.is_wanted(&event, &state.pushes) {
                    state.seq += 1;
                    state.remember(Arc::downgrade(&event));
                }
            }
        }
    }
}

impl SubscriptionState {
    /// The next events of all feeds. Between channels no order is promised.
    fn next_events(&self) -> Result<Vec<(FeedKey, u64, Arc<EventEntry>)>, Pause> {
        let mut next = Vec::new();
        for (key, (feed, place)) in &self.feeds {
            let read = feed.read(*place, BATCH);
            if read.has_gap {
                return Err(Pause::TooSlow);
            }
            let read = read.events.into_iter();
            next.extend(read.map(|(place, event)| (key.clone(), place, event)));
        }
        Ok(next)
    }

    fn set_position(&mut self, key: &FeedKey, place: u64) {
        if let Some((_, own)) = self.feeds.get_mut(key) {
            *own = place;
        }
    }

    /// Passes over everything there is.
    fn skip_all(&mut self) {
        if let Some(earlier) = &mut self.earlier {
            earlier.clear();
        }
        for (feed, place) in self.feeds.values_mut() {
            *place = feed.newest_position();
        }
    }

    /// Events were lost on their way: their numbers are missing.
    fn skip(&mut self, missed: u64) {
        self.seq = self.seq.saturating_add(missed);
        for _ in 0..missed.min(REPLAYABLE as u64) {
            self.remember(Weak::new());
        }
    }

    fn remember(&mut self, event: Weak<EventEntry>) {
        if self.sent.len() == REPLAYABLE {
            self.sent.pop_front();
        }
        self.sent.push_back(event);
    }

    fn schedule_delivery(&mut self, after: impl Future<Output = ()> + Send + 'static) {
        let me = self.mailbox.clone();
        self.retry_timer = Some(task::spawn_supervised("events.later", async move {
            after.await;
            let _ = me.send_to_self(SubscriptionMsg::Resume);
        }));
    }
}

/// Resolves when there may be capacity for the agent's next event.
fn wait_for_capacity(agent: &Agent) -> impl Future<Output = ()> + Send + use<> {
    let room = agent.capacity_available();
    async move {
        match room {
            Some(room) => room.await,
            None => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
}

/// The last event of a subscription that was dropped.
fn render_end(head: &str, seq: u64, after: u64) -> String {
    let now = render_rfc3339_ms(unix_ms());
    let words = "its reader was too slow: events were lost; ask for what is left with mgp/events/replay, and subscribe again";
    format!(
        r#"{head}{seq},"channel":"system.subscription_ended","timestamp":"{now}","data":{{"reason":"too_slow","last_seq":{after},"message":"{words}"}}}}}}"#
    )
}

fn render_update(uri: &str) -> Vec<u8> {
    let params = format!(r#"{{"uri":{}}}"#, quote(uri));
    jsonrpc::notification("notifications/resources/updated", Some(&params))
}
