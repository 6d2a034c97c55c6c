//! The actor of one event subscription: reads the feeds of its channels at its own pace, and sends its agent what the
//! agent may receive. A subscription that lags is dropped, and blocks nobody. Receives messages from the events actor
//! and from replays.

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
use mgp_sync::Wakeup;
use mgp_transports::lines::{QueueLimits, SendError};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::value::RawValue;

use super::EventsMsg;
use super::entry::{EventAccess, EventEntry, EventFeed, render_head};
use mgp_callers::agent::Agent;
use mgp_callers::{Delivery, Directory, InFlightCall};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::unix_ms;
use mgp_runtime::{Mailbox, Queued, Reply, task};

/// Events of the subscriptions of one connection that may wait for its reader; more stay in their feeds.
const QUEUE_LIMITS: QueueLimits = QueueLimits {
    frames: 256,
    bytes: 1 << 20,
};
/// The poll interval for capacity in a connection's buffer.
const RETRY_DELAY: Duration = Duration::from_millis(20);
/// The shortest interval between two change notifications of a resource.
const COALESCE_INTERVAL: Duration = Duration::from_millis(200);
/// Events read at once from one feed.
const BATCH: usize = 64;
/// Events that can be replayed (MGP §13, later drafts): as many as a feed holds.
const REPLAYABLE: usize = 1_000;

/// A feed of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FeedKey {
    /// A channel of the kernel.
    Kernel(KernelChannel),
    /// A topic at a server.
    Server(ServerId, Topic),
    /// The push events of an MCPL server.
    Push(ServerId),
}

/// How the agent receives events.
#[derive(Debug)]
pub(super) enum EventDelivery {
    /// Each as a notification that starts with this text.
    Each(String),
    /// As changes of the resource with this URI.
    Updates(String),
}

impl EventDelivery {
    pub(super) fn notifications(id: &str) -> Self {
        Self::Each(render_head(id))
    }
}

/// Recorded events from before the subscription.
#[derive(Debug, Default)]
pub(super) struct EarlierEvents {
    pub(super) events: Vec<Arc<EventEntry>>,
    /// The number of earlier ones that are missing.
    pub(super) missed: u64,
}

#[derive(Debug)]
pub(super) enum SubscriptionMsg {
    /// A feed has new events.
    EventsAvailable,
    /// Delivery may continue.
    Resume,
    /// Follows this feed from a position.
    Follow(FeedKey, Arc<EventFeed>, u64),
    /// Unfollows a feed.
    Unfollow(FeedKey),
    /// Replaces the patterns of push events.
    SetPushes(Vec<ChannelPattern>),
    /// The earlier events that it waits for.
    Earlier(EarlierEvents),
    /// `mgp/events/replay`: after this number, at most so many.
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
    pub(super) events_actor: Mailbox<EventsMsg>,
    /// The request that opened it; no event is sent before its response.
    pub(super) subscribe_call: Weak<InFlightCall>,
    /// Whether earlier events come first.
    pub(super) waits_for_earlier: bool,
    /// The patterns of push events that it requested.
    pub(super) pushes: Vec<ChannelPattern>,
}

#[derive(Debug)]
pub(super) struct SubscriptionState {
    mailbox: Mailbox<SubscriptionMsg>,
    feeds: BTreeMap<FeedKey, (Arc<EventFeed>, u64)>,
    /// The patterns of push events that it receives.
    pushes: Vec<ChannelPattern>,
    /// Events from before the subscription; `None` until they arrive.
    earlier: Option<VecDeque<Arc<EventEntry>>>,
    /// The number of its last event.
    seq: u64,
    /// Its last events; the feeds own them.
    sent: VecDeque<Weak<EventEntry>>,
    /// Whether it has passed the events from before its first delivery.
    is_started: bool,
    /// It was too slow, and receives nothing more.
    is_dropped: bool,
    /// Continues delivery when there may be capacity, or after an interval.
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
        let mailbox = Mailbox::new(myself);
        Ok(SubscriptionState {
            retry_timer: Some(self.wait_for_answer(&mailbox)),
            mailbox,
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
            SubscriptionMsg::Follow(key, feed, position) => {
                state.feeds.entry(key).or_insert((feed, position));
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
    /// Resolves once the opening request is answered; nothing is sent before. If that request was cancelled, the
    /// subscription ends, since its agent never learns of it.
    fn wait_for_answer(&self, mailbox: &Mailbox<SubscriptionMsg>) -> SupervisedTask<()> {
        let (call, mailbox) = (self.subscribe_call.clone(), mailbox.clone());
        let (events_actor, number) = (self.events_actor.clone(), self.number);
        task::spawn_supervised("events.open", async move {
            if let Some(call) = call.upgrade() {
                tokio::select! {
                    () = call.wait_until_ended() => {}
                    () = call.wait_until_cancelled() => {}
                }
                if !call.is_awaited() {
                    let _ = events_actor.send_to_self(EventsMsg::Canceled(number));
                    return;
                }
            }
            let _ = mailbox.send_to_self(SubscriptionMsg::Resume);
        })
    }

    /// Sends the available events, as far as there is capacity.
    fn deliver(&self, state: &mut SubscriptionState) {
        let is_paused = state.retry_timer.is_some() || state.is_dropped;
        let Some(agent) = self.agent.upgrade().filter(|_| !is_paused) else {
            return;
        };
        let Some(caller) = agent.caller() else { return };
        let access = EventAccess::new(caller, &self.directory);
        let receiver = Receiver {
            subscription: self,
            agent: &agent,
            access,
            operator: caller.operator,
        };
        self.wakeup.reset();
        match receiver
            .send_earlier(state)
            .and_then(|()| receiver.send_from_feeds(state))
        {
            Ok(()) => {}
            Err(Pause::QueueFull) => state.schedule_delivery(wait_for_capacity(&agent)),
            Err(Pause::Coalescing) => {
                state.schedule_delivery(tokio::time::sleep(COALESCE_INTERVAL))
            }
            Err(Pause::Closed) => {}
            Err(Pause::TooSlow) => self.drop_slow(state, &receiver),
        }
    }

    /// Drops a slow subscription: the rest stays for replay, and a last event reports it.
    fn drop_slow(&self, state: &mut SubscriptionState, receiver: &Receiver<'_>) {
        state.is_dropped = true;
        receiver.number_remaining(state);
        // The node of a remote subscriber learns it from the end of its request.
        if let EventDelivery::Each(head) = &self.delivery
            && !receiver.agent.is_follower()
        {
            let after = state.seq;
            state.seq += 1;
            state.remember(Weak::new());
            let frame = render_end(head, state.seq, after);
            receiver.agent.send(frame.into(), Delivery::Lossy);
        }
        tracing::debug!(subscription = %self.id, "an event subscription was too slow and is dropped");
        let _ = self
            .events_actor
            .send_to_self(EventsMsg::TooSlow(self.number));
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

/// Why delivery stops for now.
enum Pause {
    /// The connection's buffer is full.
    QueueFull,
    /// The resource's change was just notified.
    Coalescing,
    /// The connection has ended.
    Closed,
    /// The feed dropped unread events.
    TooSlow,
}

/// The agent of a subscription, with its current rights.
struct Receiver<'a> {
    subscription: &'a SubscriptionActor,
    agent: &'a Agent,
    access: EventAccess<'a>,
    operator: bool,
}

impl Receiver<'_> {
    /// Sends the events from before the subscription.
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
            for (key, position, event) in next {
                let before = state
                    .feeds
                    .get(&key)
                    .map_or(position, |(_, before)| *before);
                state.skip(position.saturating_sub(before + 1));
                state.set_position(&key, position - 1);
                self.send(state, &event)?;
                state.set_position(&key, position);
            }
        }
    }

    /// Skips events that feeds dropped before the first delivery. That is not the agent's fault: they count as lost.
    fn catch_up(&self, state: &mut SubscriptionState) {
        let mut lost = 0;
        for (key, (feed, position)) in &mut state.feeds {
            let read = feed.read(*position, 1);
            if read.has_gap {
                let first = read.events.first().map(|(first, _)| *first);
                let before = first.unwrap_or_else(|| feed.newest_position() + 1) - 1;
                lost += self.missing_numbers(key, before.saturating_sub(*position));
                *position = before;
            }
        }
        state.skip(lost);
    }

    /// The size of the gap after this many dropped events of a feed. It counts as one where the number would disclose
    /// other agents' activity.
    fn missing_numbers(&self, key: &FeedKey, dropped: u64) -> u64 {
        match key {
            FeedKey::Kernel(_) | FeedKey::Push(_) if !self.operator => dropped.min(1),
            FeedKey::Kernel(_) | FeedKey::Push(_) | FeedKey::Server(..) => dropped,
        }
    }

    fn is_wanted(&self, event: &EventEntry, pushes: &[ChannelPattern]) -> bool {
        let is_severe = event
            .severity
            .is_none_or(|severity| severity >= self.subscription.severity);
        // The feed of a server has the push events of all its sets.
        let matches_push = !event.channel().starts_with(CHANNELS)
            || pushes.iter().any(|pattern| pattern.covers(event.channel()));
        is_severe && matches_push && self.access.can_see(event)
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
                    .map_err(|error| match error {
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

    /// Notifies the agent once, however many events there are.
    fn send_update(&self, state: &mut SubscriptionState, uri: &str) -> Pause {
        self.agent
            .send(render_update(uri).into(), Delivery::Reliable);
        state.skip_all();
        Pause::Coalescing
    }

    /// Numbers the unsent events, so that they can be replayed.
    fn number_remaining(&self, state: &mut SubscriptionState) {
        for (key, (feed, position)) in std::mem::take(&mut state.feeds) {
            let unsent = feed.read(position, REPLAYABLE);
            let first = unsent
                .events
                .first()
                .map_or(feed.newest_position() + 1, |(first, _)| *first);
            state.skip(self.missing_numbers(&key, first.saturating_sub(position + 1)));
            for (_, event) in unsent.events {
                if self.is_wanted(&event, &state.pushes) {
                    state.seq += 1;
                    state.remember(Arc::downgrade(&event));
                }
            }
        }
    }
}

impl SubscriptionState {
    /// The next events of all feeds, in no particular order between channels.
    fn next_events(&self) -> Result<Vec<(FeedKey, u64, Arc<EventEntry>)>, Pause> {
        let mut next = Vec::new();
        for (key, (feed, position)) in &self.feeds {
            let read = feed.read(*position, BATCH);
            if read.has_gap {
                return Err(Pause::TooSlow);
            }
            let read = read.events.into_iter();
            next.extend(read.map(|(position, event)| (key.clone(), position, event)));
        }
        Ok(next)
    }

    fn set_position(&mut self, key: &FeedKey, position: u64) {
        if let Some((_, current)) = self.feeds.get_mut(key) {
            *current = position;
        }
    }

    /// Skips all available events.
    fn skip_all(&mut self) {
        if let Some(earlier) = &mut self.earlier {
            earlier.clear();
        }
        for (feed, position) in self.feeds.values_mut() {
            *position = feed.newest_position();
        }
    }

    /// Skips the numbers of lost events.
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
        let mailbox = self.mailbox.clone();
        self.retry_timer = Some(task::spawn_supervised("events.later", async move {
            after.await;
            let _ = mailbox.send_to_self(SubscriptionMsg::Resume);
        }));
    }
}

/// Resolves when there may be capacity for the agent's next event.
fn wait_for_capacity(agent: &Agent) -> impl Future<Output = ()> + Send + use<> {
    let capacity = agent.capacity_available();
    async move {
        match capacity {
            Some(capacity) => capacity.await,
            None => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
}

/// The last event of a subscription that was dropped.
fn render_end(head: &str, seq: u64, after: u64) -> String {
    let now = render_rfc3339_ms(unix_ms());
    let message = "its reader was too slow: events were lost; ask for what is left with mgp/events/replay, and subscribe again";
    format!(
        r#"{head}{seq},"channel":"system.subscription_ended","timestamp":"{now}","data":{{"reason":"too_slow","last_seq":{after},"message":"{message}"}}}}}}"#
    )
}

fn render_update(uri: &str) -> Vec<u8> {
    let params = format!(r#"{{"uri":{}}}"#, quote(uri));
    jsonrpc::notification("notifications/resources/updated", Some(&params))
}
