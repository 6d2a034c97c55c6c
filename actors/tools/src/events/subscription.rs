//! The actor of one event subscription: reads the feeds of its channels at its own pace, and writes to its
//! agent what the agent may hear of. One that falls behind is dropped, and waits for nobody.
//! Asked by: the hub, and whoever replays.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mgp_engine::tools::events::SubscriptionNumber;
use mgp_engine::tools::events::Topic;
use mgp_engine::tools::events::channels::KernelChannel;
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcpl::push::CHANNELS;
use mgp_protocol::mgp::events::{ChannelPattern, REPLAYED, REPLAYED_MAX, Replayed, Severity};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::quoted;
use mgp_sync::feed::Doorbell;
use mgp_transports::lines::{QueueLimits, SendError};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::value::RawValue;

use super::EventsMsg;
use super::entry::{EventAccess, EventEntry, EventFeed, head};
use mgp_callers::agent::Agent;
use mgp_callers::directory::Directory;
use mgp_callers::exchange::{Delivery, Exchange};
use mgp_engine::timestamps::rfc3339_ms;
use mgp_runtime::mailbox::{Mailbox, Queued, Reply};
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::unix_ms;

/// Events of the subscriptions of one connection that may wait for its reader; more stay in their feeds.
const ROOM: QueueLimits = QueueLimits {
    frames: 256,
    bytes: 1 << 20,
};
/// When it is looked again whether a line has room.
const AGAIN: Duration = Duration::from_millis(20);
/// How far apart a resource is told as changed, at least.
const COALESCE: Duration = Duration::from_millis(200);
/// Events read at once of one feed.
const BATCH: usize = 64;
/// Events that can be replayed (MGP §13, later drafts): as many as a feed holds.
const REPLAYABLE: usize = 1_000;

/// What feeds one of its channels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FeedKey {
    /// The kernel's own.
    Kernel(KernelChannel),
    /// What a server was asked for.
    Server(ServerId, Topic),
    /// What an MCPL server pushes.
    Push(ServerId),
}

/// How its agent hears of events.
#[derive(Debug)]
pub(super) enum EventDelivery {
    /// Each as a notification, with the start of that.
    Each(String),
    /// As changes of the resource of this URI.
    Updates(String),
}

impl EventDelivery {
    pub(super) fn of_subscription(id: &str) -> Self {
        Self::Each(head(id))
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
    Look,
    /// What it waited for is over.
    LookAgain,
    /// It gets the events of this feed after a place.
    Follow(FeedKey, Arc<EventFeed>, u64),
    /// It does not any more.
    Unfollow(FeedKey),
    /// It hears of these push events only.
    Pushes(Vec<ChannelPattern>),
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
    pub(super) bell: Arc<Doorbell>,
    pub(super) hub: Mailbox<EventsMsg>,
    /// The request that began it: what it gets comes after that one's answer.
    pub(super) begun: Weak<Exchange>,
    /// Events from before it began come first.
    pub(super) waits_for_earlier: bool,
    /// The push events it asked for.
    pub(super) pushes: Vec<ChannelPattern>,
}

#[derive(Debug)]
pub(super) struct SubscriptionState {
    me: Mailbox<SubscriptionMsg>,
    feeds: BTreeMap<FeedKey, (Arc<EventFeed>, u64)>,
    /// The push events it hears of.
    pushes: Vec<ChannelPattern>,
    /// Those from before it began; `None` while they are waited for.
    earlier: Option<VecDeque<Arc<EventEntry>>>,
    /// The number of its last event.
    seq: u64,
    /// Its last events, which live as long as their feeds keep them.
    sent: VecDeque<Weak<EventEntry>>,
    /// It is past what happened before it could send anything.
    begun: bool,
    /// Too slow: it gets nothing more.
    dropped: bool,
    /// Looks again when there may be room, or when enough time has passed.
    later: Option<SupervisedTask<()>>,
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
            later: Some(self.opens(&me)),
            me,
            feeds: BTreeMap::new(),
            pushes: self.pushes.clone(),
            earlier: (!self.waits_for_earlier).then(VecDeque::new),
            seq: 0,
            sent: VecDeque::new(),
            begun: false,
            dropped: false,
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut SubscriptionState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.open() {
            SubscriptionMsg::Look => self.look(state),
            SubscriptionMsg::LookAgain => {
                state.later = None;
                self.look(state);
            }
            SubscriptionMsg::Follow(key, feed, place) => {
                state.feeds.entry(key).or_insert((feed, place));
                self.look(state);
            }
            SubscriptionMsg::Unfollow(key) => drop(state.feeds.remove(&key)),
            SubscriptionMsg::Pushes(pushes) => state.pushes = pushes,
            SubscriptionMsg::Earlier(earlier) => {
                state.skip(earlier.missed);
                state.earlier = Some(earlier.events.into());
                self.look(state);
            }
            SubscriptionMsg::Replay(after, limit, reply) => {
                reply.send(Ok(self.replayed(state, after, limit)));
            }
        }
        Ok(())
    }
}

impl SubscriptionActor {
    /// Resolves when the request that began it is answered; until then nothing is sent. One whose request was
    /// taken back ends, since its agent never learns of it.
    fn opens(&self, me: &Mailbox<SubscriptionMsg>) -> SupervisedTask<()> {
        let (begun, me) = (self.begun.clone(), me.clone());
        let (hub, number) = (self.hub.clone(), self.number);
        task::supervised("events.open", async move {
            if let Some(begun) = begun.upgrade() {
                tokio::select! {
                    () = begun.ended() => {}
                    () = begun.cancelled() => {}
                }
                if !begun.is_awaited() {
                    let _ = hub.remind(EventsMsg::TakenBack(number));
                    return;
                }
            }
            let _ = me.remind(SubscriptionMsg::LookAgain);
        })
    }

    /// Sends what there is, as far as there is room.
    fn look(&self, state: &mut SubscriptionState) {
        let waits = state.later.is_some() || state.dropped;
        let Some(agent) = self.agent.upgrade().filter(|_| !waits) else {
            return;
        };
        let Some(caller) = agent.caller() else { return };
        let access = EventAccess::new(caller, &self.directory);
        let listener = Hearer {
            of: self,
            agent: &agent,
            access,
            operator: caller.operator,
        };
        self.bell.settle();
        match listener.earlier(state).and_then(|()| listener.feeds(state)) {
            Ok(()) => {}
            Err(Pause::NoRoom) => state.look_again(room(&agent)),
            Err(Pause::Coalesces) => state.look_again(tokio::time::sleep(COALESCE)),
            Err(Pause::Over) => {}
            Err(Pause::Overtaken) => self.drop_out(state, &listener),
        }
    }

    /// It was too slow: what is left stays for replay, and one last event says so.
    fn drop_out(&self, state: &mut SubscriptionState, listener: &Hearer<'_>) {
        state.dropped = true;
        listener.leave(state);
        // The node of one that follows from there is told by the end of its request.
        if let EventDelivery::Each(head) = &self.delivery
            && !listener.agent.is_following()
        {
            let after = state.seq;
            state.seq += 1;
            state.remember(Weak::new());
            let frame = ended(head, state.seq, after);
            listener.agent.tell(frame.into(), Delivery::Lossy);
        }
        tracing::debug!(subscription = %self.id, "an event subscription was too slow and is dropped");
        let _ = self.hub.remind(EventsMsg::Overtaken(self.number));
    }

    fn replayed(&self, state: &SubscriptionState, after: u64, limit: Option<u64>) -> Replayed {
        let limit = limit.unwrap_or(REPLAYED).clamp(1, REPLAYED_MAX);
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
                Some(event) if access.hears(&event) => {
                    if replayed.events.len() as u64 == limit {
                        replayed.has_more = true;
                        break;
                    }
                    let params = event.params(seq, caller.operator);
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
    NoRoom,
    /// The resource has just been told as changed.
    Coalesces,
    /// The connection has ended.
    Over,
    /// Events it has not read are gone.
    Overtaken,
}

/// The agent of a subscription, with its rights as they are now.
struct Hearer<'a> {
    of: &'a SubscriptionActor,
    agent: &'a Agent,
    access: EventAccess<'a>,
    operator: bool,
}

impl Hearer<'_> {
    /// Those from before it began.
    fn earlier(&self, state: &mut SubscriptionState) -> Result<(), Pause> {
        let Some(mut earlier) = state.earlier.take() else {
            return Err(Pause::Over);
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

    fn feeds(&self, state: &mut SubscriptionState) -> Result<(), Pause> {
        if !state.begun {
            self.catch_up(state);
            state.begun = true;
        }
        loop {
            let next = match (state.gather(), &self.of.delivery) {
                (Err(Pause::Overtaken), EventDelivery::Updates(uri)) => {
                    return Err(self.update(state, uri));
                }
                (next, _) => next?,
            };
            if next.is_empty() {
                return Ok(());
            }
            for (key, place, event) in next {
                let before = state.feeds.get(&key).map_or(place, |(_, before)| *before);
                state.skip(place.saturating_sub(before + 1));
                state.move_to(&key, place - 1);
                self.send(state, &event)?;
                state.move_to(&key, place);
            }
        }
    }

    /// What feeds had no room for before its agent could read anything is no fault of the agent: it is lost.
    fn catch_up(&self, state: &mut SubscriptionState) {
        let mut lost = 0;
        for (key, (feed, place)) in &mut state.feeds {
            let read = feed.read(*place, 1);
            if read.overtaken {
                let first = read.events.first().map(|(first, _)| *first);
                let before = first.unwrap_or_else(|| feed.newest() + 1) - 1;
                lost += self.numbers(key, before.saturating_sub(*place));
                *place = before;
            }
        }
        state.skip(lost);
    }

    /// How many numbers are missing where so many events of a feed are gone unread. How much others did is not
    /// told to agents: it is one number then.
    fn numbers(&self, key: &FeedKey, gone: u64) -> u64 {
        match key {
            FeedKey::Kernel(_) | FeedKey::Push(_) if !self.operator => gone.min(1),
            FeedKey::Kernel(_) | FeedKey::Push(_) | FeedKey::Server(..) => gone,
        }
    }

    fn wants(&self, event: &EventEntry, pushes: &[ChannelPattern]) -> bool {
        let severe = event.severity.is_none_or(|it| it >= self.of.severity);
        // The feed of a server has the events of all its sets.
        let meant = !event.channel().starts_with(CHANNELS)
            || pushes.iter().any(|of| of.covers(event.channel()));
        severe && meant && self.access.hears(event)
    }

    fn send(&self, state: &mut SubscriptionState, event: &Arc<EventEntry>) -> Result<(), Pause> {
        if !self.wants(event, &state.pushes) {
            return Ok(());
        }
        match &self.of.delivery {
            EventDelivery::Each(head) => {
                let frame = event.frame(head, state.seq + 1, self.operator);
                self.agent
                    .offer(frame, ROOM)
                    .map_err(|refused| match refused {
                        SendError::Full => Pause::NoRoom,
                        SendError::Closed => Pause::Over,
                    })?;
                state.seq += 1;
                state.remember(Arc::downgrade(event));
                Ok(())
            }
            EventDelivery::Updates(uri) => Err(self.update(state, uri)),
        }
    }

    /// However many events there are, the resource has changed once.
    fn update(&self, state: &mut SubscriptionState, uri: &str) -> Pause {
        self.agent.tell(updated(uri).into(), Delivery::Reliable);
        state.skip_all();
        Pause::Coalesces
    }

    /// What is left in the feeds is numbered, so that it can be replayed.
    fn leave(&self, state: &mut SubscriptionState) {
        for (key, (feed, place)) in std::mem::take(&mut state.feeds) {
            let left = feed.read(place, REPLAYABLE);
            let first = left
                .events
                .first()
                .map_or(feed.newest() + 1, |(first, _)| *first);
            state.skip(self.numbers(&key, first.saturating_sub(place + 1)));
            for (_, event) in left.events {
                if self.wants(&event, &state.pushes) {
                    state.seq += 1;
                    state.remember(Arc::downgrade(&event));
                }
            }
        }
    }
}

impl SubscriptionState {
    /// The next events of all feeds. Between channels no order is promised.
    fn gather(&self) -> Result<Vec<(FeedKey, u64, Arc<EventEntry>)>, Pause> {
        let mut next = Vec::new();
        for (key, (feed, place)) in &self.feeds {
            let read = feed.read(*place, BATCH);
            if read.overtaken {
                return Err(Pause::Overtaken);
            }
            let read = read.events.into_iter();
            next.extend(read.map(|(place, event)| (key.clone(), place, event)));
        }
        Ok(next)
    }

    fn move_to(&mut self, key: &FeedKey, place: u64) {
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
            *place = feed.newest();
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

    fn look_again(&mut self, after: impl Future<Output = ()> + Send + 'static) {
        let me = self.me.clone();
        self.later = Some(task::supervised("events.later", async move {
            after.await;
            let _ = me.remind(SubscriptionMsg::LookAgain);
        }));
    }
}

/// Resolves when there may be room for the agent's next event.
fn room(agent: &Agent) -> impl Future<Output = ()> + Send + use<> {
    let room = agent.room();
    async move {
        match room {
            Some(room) => room.await,
            None => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// The last event of a subscription that was dropped.
fn ended(head: &str, seq: u64, after: u64) -> String {
    let now = rfc3339_ms(unix_ms());
    let words = "its reader was too slow: events were lost; ask for what is left with mgp/events/replay, and subscribe again";
    format!(
        r#"{head}{seq},"channel":"system.subscription_ended","timestamp":"{now}","data":{{"reason":"too_slow","last_seq":{after},"message":"{words}"}}}}}}"#
    )
}

fn updated(uri: &str) -> Vec<u8> {
    let params = format!(r#"{{"uri":{}}}"#, quoted(uri));
    jsonrpc::notification("notifications/resources/updated", Some(&params))
}
