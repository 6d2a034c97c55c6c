//! How subscriptions begin: what an agent asks for, what servers have of it, and the answer.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mgp_engine::tools::events::channels::KernelChannel;
use mgp_engine::tools::events::{SubscriptionNumber, Topic, topics};
use mgp_protocol::ids::ConnectionId;
use mgp_protocol::mgp::events::{ChannelPattern, Severity, Subscribed};
use mgp_protocol::refusal::Refusal;
use mgp_sync::feed::Doorbell;
use ractor::Actor;
use tokio::sync::oneshot;

use super::entry::{EventAccess, EventEntry};
use super::feeds::{EventsState, OpenSubscription, OpeningSubscription};
use super::hub::{EventsActor, watched};
use super::push_channel;
use super::subscription::{EarlierEvents, EventDelivery, SubscriptionActor, SubscriptionMsg};
use super::{EventsMsg, EventsRequest, FollowingOver, log};
use mgp_callers::agent::Agent;
use mgp_callers::exchange::Exchange;
use mgp_callers::request::Caller;
use mgp_runtime::mailbox::{Mailbox, Reply};
use mgp_runtime::randomness;
use mgp_runtime::task;

/// How long servers may take to say which channels they have. Those of one that takes longer are not there.
const ANSWER: Duration = Duration::from_secs(2);

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
    /// Of an agent of another node: where it is told that it is over.
    over: Option<oneshot::Sender<FollowingOver>>,
}

impl EventsActor {
    pub(super) async fn subscribe(
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
        // What stays open begins with its answer, and ends with itself.
        let (agent, begun, over) = match request.following {
            Some(following) => (following.agent, Weak::new(), Some(following.over)),
            None => {
                // It may have gone since it asked: nothing would end what it gets now.
                let agent = self.directory.get(caller.connection);
                let agent = agent.filter(|_| !caller.is_alone()).ok_or_else(alone)?;
                (agent, Arc::downgrade(&request.exchange), None)
            }
        };
        may_subscribe(state, agent.connection, asked.channels.len())?;
        let after = asked
            .cursor
            .map(|cursor| self.recorded.read_cursor(&cursor, caller.operator))
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
            begun,
            after,
            over,
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
        let pushes = new.channels.iter().filter(|of| push_channel::may_cover(of));
        let pushes: Vec<_> = pushes.cloned().collect();
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
            pushes: pushes.clone(),
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
            push_reach: match pushes.is_empty() {
                true => BTreeSet::new(),
                false => self.push_reach(state, &new.caller),
            },
            pushes,
            over: new.over,
        };
        for channel in &open.of_kernel {
            state.of_kernel.entry(*channel).or_default().insert(number);
        }
        self.follow_sources(state);
        if let Some(after) = new.after {
            self.send_earlier(state, &open, &new.caller, (after, new.severity));
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
    pub(super) fn own_channels(
        &self,
        channels: &[ChannelPattern],
        caller: &Caller,
    ) -> BTreeSet<KernelChannel> {
        let meant = |own: &KernelChannel| channels.iter().any(|of| of.covers(own.name()));
        self.own_channels_of(caller).filter(meant).collect()
    }

    /// Reads what was written down after the record that an agent knows, up to what comes by itself.
    fn send_earlier(
        &self,
        state: &EventsState,
        open: &OpenSubscription,
        caller: &Arc<Caller>,
        (after, severity): (u64, Severity),
    ) {
        let channels: Vec<_> = open.of_kernel.iter().copied().collect();
        let (recorded, mailbox) = (self.recorded.clone(), open.mailbox.clone());
        let (caller, directory) = (caller.clone(), self.directory.clone());
        let until = state.recorded;
        task::detached("events.earlier", async move {
            let access = EventAccess::new(&caller, &directory);
            let wanted = |channel: KernelChannel, event: &EventEntry| {
                let severe = event.severity.is_none_or(|it| it >= severity);
                severe && channels.contains(&channel) && access.hears(event)
            };
            let records = (after.min(until), until);
            let read = log::earlier(&recorded, records, log::LOOKED_AT, wanted);
            let earlier = read.await.unwrap_or_else(|error| {
                tracing::warn!(%error, "earlier events cannot be read");
                // Their numbers are missing.
                EarlierEvents {
                    events: Vec::new(),
                    missed: 1,
                }
            });
            let _ = mailbox.remind(SubscriptionMsg::Earlier(earlier));
        });
    }

    /// Answers the agent: which of its channels it follows.
    pub(super) fn conclude(&self, state: &mut EventsState, number: SubscriptionNumber) {
        let Some(opening) = state.opening.remove(&number) else {
            return;
        };
        // Nobody would know its id.
        if !opening.reply.is_awaited() {
            return self.end(state, number);
        }
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
            // Whoever asks for another node looks again later.
            let stands = channel.is_standing() && open.over.is_none();
            let pushed = state.has_push_channel(number, &channel);
            own || stands || pushed || topics.iter().any(|t| t.channels == channel || told(t))
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
        state.narrow_pushes(number, &kept);
        let effects = state.engine.narrow(number, keeps);
        self.settle(state, number, effects);
        opening.reply.send(Ok(Subscribed {
            subscribed,
            unsupported,
            subscription_id,
        }));
    }

    pub(super) async fn watch(
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
        let agent = self.directory.get(who).ok_or_else(unknown)?;
        let caller = agent.caller().cloned().ok_or_else(unknown)?;
        let channel = self.channel_for(state, &caller, uri)?;
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
            over: None,
        };
        let stopping = || Refusal::Broken("the kernel is stopping".into());
        self.begin(state, new).await.map(drop).ok_or_else(stopping)
    }
}

fn may_subscribe(state: &EventsState, who: ConnectionId, channels: usize) -> Result<(), Refusal> {
    let may = state.engine.may_subscribe(who, channels);
    may.map_err(|full| Refusal::BadParams(full.to_string()))
}

fn alone() -> Refusal {
    Refusal::BadRequest(
        "events come to a connection or a session; a stateless client follows the resources mgp://events/CHANNEL with subscriptions/listen".into(),
    )
}
