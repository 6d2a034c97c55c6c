//! Opens subscriptions: the agent's request, the servers' answers, and the result.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mgp_engine::tools::events::channels::KernelChannel;
use mgp_engine::tools::events::{SubscriptionNumber, Topic, to_topics};
use mgp_protocol::ids::ConnectionId;
use mgp_protocol::mgp::events::{ChannelPattern, Severity, Subscribed};
use mgp_protocol::refusal::Refusal;
use mgp_sync::Wakeup;
use ractor::Actor;
use tokio::sync::oneshot;

use super::actor::{EventsActor, resource_key};
use super::entry::{EventAccess, EventEntry};
use super::feeds::{EventsState, OpenSubscription, PendingSubscription};
use super::push_channel;
use super::subscription::{EarlierEvents, EventDelivery, SubscriptionActor, SubscriptionMsg};
use super::{EventsMsg, EventsRequest, FollowingEnd, log};
use mgp_callers::InFlightCall;
use mgp_callers::agent::Agent;
use mgp_callers::request::Caller;
use mgp_runtime::{Mailbox, Reply, randomness, task};

/// How long servers may take to report their channels. A server that takes longer counts as without channels.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A checked request for a subscription.
struct NewSubscription {
    agent: Arc<Agent>,
    caller: Arc<Caller>,
    channels: Vec<ChannelPattern>,
    severity: Severity,
    id: Arc<str>,
    delivery: EventDelivery,
    subscribe_call: Weak<InFlightCall>,
    /// It resumes after this record of the audit log.
    after_record: Option<u64>,
    /// For an agent of another node: receives the reason of its end.
    end: Option<oneshot::Sender<FollowingEnd>>,
}

impl EventsActor {
    pub(super) async fn subscribe(
        &self,
        state: &mut EventsState,
        request: EventsRequest,
        reply: Reply<Result<Subscribed, Refusal>>,
    ) {
        let severity = request
            .request
            .filter
            .and_then(|filter| filter.min_severity);
        let severity = severity.unwrap_or(Severity::Debug);
        let channels = request.request.channels.clone();
        let new = match self.check_request(state, request, severity) {
            Ok(new) => new,
            Err(refusal) => return reply.send(Err(refusal)),
        };
        let Some(number) = self.start_subscription(state, new).await else {
            return reply.send(Err(Refusal::Internal("the kernel is stopping".into())));
        };
        let pending = PendingSubscription {
            channels,
            severity,
            reply,
        };
        state.pending.insert(number, pending);
        if !state.engine.is_subscribe_pending(number) {
            return self.answer_subscribe(state, number);
        }
        let mailbox = state.mailbox.clone();
        task::spawn_detached("events.due", async move {
            tokio::time::sleep(ANSWER_TIMEOUT).await;
            let _ = mailbox.send_to_self(EventsMsg::AnswersDue(number));
        });
    }

    fn check_request(
        &self,
        state: &EventsState,
        request: EventsRequest,
        severity: Severity,
    ) -> Result<NewSubscription, Refusal> {
        let EventsRequest {
            caller,
            call,
            request,
            following,
        } = request;
        // A request that stays open starts with its response, and ends with itself.
        let (agent, subscribe_call, end) = match following {
            Some(following) => (following.agent, Weak::new(), Some(following.end)),
            None => {
                // The agent may have disconnected since its request: nothing would end the subscription then.
                let agent = self.directory.get(caller.connection);
                let agent = agent
                    .filter(|_| !caller.is_stateless())
                    .ok_or_else(interrupted)?;
                (agent, Arc::downgrade(&call), None)
            }
        };
        check_limits(state, agent.connection, request.channels.len())?;
        let after = request
            .cursor
            .map(|cursor| self.audit_events.open_cursor(&cursor, caller.operator))
            .transpose()?;
        let channels = request.channels.iter();
        let channels = channels.filter_map(|name| ChannelPattern::parse(name));
        let id = format!(
            "sub-{:032x}",
            u128::from_le_bytes(randomness::random_bytes())
        );
        Ok(NewSubscription {
            agent,
            caller,
            channels: channels.collect(),
            severity,
            delivery: EventDelivery::notifications(&id),
            id: id.into(),
            subscribe_call,
            after_record: after,
            end,
        })
    }

    /// Starts the actor of a subscription. Channels that servers do not have are removed once the servers have answered.
    async fn start_subscription(
        &self,
        state: &mut EventsState,
        new: NewSubscription,
    ) -> Option<SubscriptionNumber> {
        state.last_number += 1;
        let number = state.last_number;
        let wakeup = Arc::new(Wakeup::new());
        let pushes = new
            .channels
            .iter()
            .filter(|pattern| push_channel::can_cover(pattern));
        let pushes: Vec<_> = pushes.cloned().collect();
        let actor = SubscriptionActor {
            number,
            id: new.id.clone(),
            agent: Arc::downgrade(&new.agent),
            directory: self.directory.clone(),
            delivery: new.delivery,
            severity: new.severity,
            wakeup: wakeup.clone(),
            events_actor: state.mailbox.clone(),
            subscribe_call: new.subscribe_call,
            waits_for_earlier: new.after_record.is_some(),
            pushes: pushes.clone(),
        };
        let (actor, _) = Actor::spawn_linked(None, actor, (), state.cell.clone())
            .await
            .ok()?;
        let open = OpenSubscription {
            id: new.id.clone(),
            cell: actor.get_cell(),
            mailbox: Mailbox::new(actor),
            wakeup,
            kernel_channels: self.matching_kernel_channels(&new.channels, &new.caller),
            follows: BTreeSet::new(),
            push_servers: if pushes.is_empty() {
                BTreeSet::new()
            } else {
                self.push_servers(state, &new.caller)
            },
            pushes,
            end: new.end,
        };
        for channel in &open.kernel_channels {
            state
                .kernel_followers
                .entry(*channel)
                .or_default()
                .insert(number);
        }
        self.update_sources(state);
        if let Some(after) = new.after_record {
            self.send_earlier(state, &open, &new.caller, (after, new.severity));
        }
        state.open.insert(number, open);
        state.by_id.insert(new.id, number);
        let (topics, reach) = (
            to_topics(&new.channels, new.severity),
            self.reachable_servers(state, &new.caller),
        );
        let connection = new.agent.connection;
        let effects = state.engine.subscribe(number, connection, topics, reach);
        self.apply_effects(state, number, effects);
        Some(number)
    }

    /// The matching channels of the kernel that this caller may receive.
    pub(super) fn matching_kernel_channels(
        &self,
        channels: &[ChannelPattern],
        caller: &Caller,
    ) -> BTreeSet<KernelChannel> {
        let matches_pattern = |channel: &KernelChannel| {
            channels
                .iter()
                .any(|pattern| pattern.covers(channel.name()))
        };
        self.visible_kernel_channels(caller)
            .filter(matches_pattern)
            .collect()
    }

    /// Reads the log from the agent's last record up to the live events.
    fn send_earlier(
        &self,
        state: &EventsState,
        open: &OpenSubscription,
        caller: &Arc<Caller>,
        (after, severity): (u64, Severity),
    ) {
        let channels: Vec<_> = open.kernel_channels.iter().copied().collect();
        let (audit_events, mailbox) = (self.audit_events.clone(), open.mailbox.clone());
        let (caller, directory) = (caller.clone(), self.directory.clone());
        let until = state.last_record;
        task::spawn_detached("events.earlier", async move {
            let access = EventAccess::new(&caller, &directory);
            let is_wanted = |channel: KernelChannel, event: &EventEntry| {
                let is_severe = event.severity.is_none_or(|other| other >= severity);
                is_severe && channels.contains(&channel) && access.can_see(event)
            };
            let records = (after.min(until), until);
            let read = log::read_earlier(&audit_events, records, log::RECORDS_MAX, is_wanted);
            let earlier = read.await.unwrap_or_else(|error| {
                tracing::warn!(%error, "earlier events cannot be read");
                // Reported as a gap in the numbers.
                EarlierEvents {
                    events: Vec::new(),
                    missed: 1,
                }
            });
            let _ = mailbox.send_to_self(SubscriptionMsg::Earlier(earlier));
        });
    }

    /// Answers the agent with the channels that it now follows.
    pub(super) fn answer_subscribe(&self, state: &mut EventsState, number: SubscriptionNumber) {
        let Some(pending) = state.pending.remove(&number) else {
            return;
        };
        // No one waits for the answer, so no one would know its id.
        if !pending.reply.is_awaited() {
            return self.remove_subscription(state, number);
        }
        let Some(open) = state.open.get(&number) else {
            return;
        };
        let topics: BTreeSet<Topic> = {
            let followed = state.engine.topics(number);
            let is_delivered = |topic: &&Topic| state.engine.is_delivered(number, topic);
            followed.filter(is_delivered).cloned().collect()
        };
        let is_supported = |name: &String| {
            let Some(channel) = ChannelPattern::parse(name) else {
                return false;
            };
            let is_kernel = open
                .kernel_channels
                .iter()
                .any(|kernel| channel.covers(kernel.name()));
            let is_covered = |topic: &Topic| topic.channels.covers(channel.as_str());
            // A request of another node is checked again later.
            let is_always_supported = channel.is_standard() && open.end.is_none();
            let is_push = state.has_push_channel(number, &channel);
            is_kernel
                || is_always_supported
                || is_push
                || topics
                    .iter()
                    .any(|t| t.channels == channel || is_covered(t))
        };
        let (subscribed, unsupported): (Vec<_>, Vec<_>) =
            pending.channels.into_iter().partition(is_supported);
        let patterns: BTreeSet<_> = subscribed
            .iter()
            .filter_map(|name| ChannelPattern::parse(name))
            .collect();
        let subscription_id = open.id.to_string();
        let is_retained = |topic: &Topic| {
            topic.severity == pending.severity && patterns.contains(&topic.channels)
        };
        state.narrow_pushes(number, &patterns);
        let effects = state.engine.retain_topics(number, is_retained);
        self.apply_effects(state, number, effects);
        pending.reply.send(Ok(Subscribed {
            subscribed,
            unsupported,
            subscription_id,
        }));
    }

    pub(super) async fn watch(
        &self,
        state: &mut EventsState,
        connection: ConnectionId,
        uri: &str,
    ) -> Result<(), Refusal> {
        let id = resource_key(connection, uri);
        if state.by_id.contains_key(&id) {
            return Ok(());
        }
        let unknown = || Refusal::UnknownResource(uri.to_owned());
        let agent = self.directory.get(connection).ok_or_else(unknown)?;
        let caller = agent.caller().cloned().ok_or_else(unknown)?;
        let channel = self.resource_channel(state, &caller, uri)?;
        check_limits(state, connection, 1)?;
        let new = NewSubscription {
            agent,
            caller,
            channels: vec![channel],
            severity: Severity::Debug,
            id,
            delivery: EventDelivery::Updates(uri.to_owned()),
            subscribe_call: Weak::new(),
            after_record: None,
            end: None,
        };
        let stopping = || Refusal::Internal("the kernel is stopping".into());
        self.start_subscription(state, new)
            .await
            .map(drop)
            .ok_or_else(stopping)
    }
}

fn check_limits(
    state: &EventsState,
    connection: ConnectionId,
    channels: usize,
) -> Result<(), Refusal> {
    let checked = state.engine.check_capacity(connection, channels);
    checked.map_err(|full| Refusal::BadParams(full.to_string()))
}

fn interrupted() -> Refusal {
    Refusal::BadRequest(
        "events come to a connection or a session; a stateless client follows the resources mgp://events/CHANNEL with subscriptions/listen".into(),
    )
}
