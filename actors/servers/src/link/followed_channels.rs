//! Follows channels of servers on other nodes for agents. Each channel is one long-lived request, which is
//! repeated when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::events::Subscribe;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};

use super::calls::RegisteredCall;
use super::{InFlight, Link, MetadataHeaders, request_meta};
use crate::link::CallContext;
use mgp_callers::request::Outcome;
use mgp_callers::{InFlightCall, ReplyPath};
use mgp_runtime::task::{self, SupervisedTask};

/// First and longest delay before a refused channel is requested again: its server may be starting or start
/// later, and its owner may grant access.
const REFUSED_BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// First and longest delay before a lost channel is requested again, once the node is linked.
const LOST_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The most events that a gap between two sequence numbers counts as missed, so that no node can exhaust the
/// counter.
const MISSED_MAX: u64 = u32::MAX as u64;

/// A channel to follow, and the agent it is for.
#[derive(Clone, Debug)]
pub struct ChannelRequest {
    /// The agent whose grants the owner checks.
    pub agent: AgentId,
    /// The local subscription id of its events.
    pub id: Arc<str>,
    /// `params` of `mgp/events/subscribe`.
    pub params: String,
}

/// A state change of a followed channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowEvent {
    /// Events are delivered from now on.
    Started {
        /// True if the channel was followed before, and events may have been lost.
        is_resumed: bool,
    },
    /// The server has no such channel, or its owner denies access to the agent. It is retried later.
    Refused,
}

/// A followed channel in the pending table.
#[derive(Debug)]
pub(super) struct FollowedChannel {
    pub(super) agent: AgentId,
    pub(super) id: Arc<str>,
    /// The sequence number of its last event at the owner.
    last: AtomicU64,
    started: watch::Sender<bool>,
}

impl FollowedChannel {
    /// The number of events missing before this sequence number.
    pub(super) fn count_missed_before(&self, seq: Option<&RawValue>) -> u64 {
        let Some(seq) = seq.and_then(|seq| seq.get().parse::<u64>().ok()) else {
            return 0;
        };
        let last = self.last.swap(seq, Ordering::Relaxed);
        seq.saturating_sub(last.saturating_add(1)).min(MISSED_MAX)
    }
}

impl Link {
    /// Follows a channel of a server on another node until the returned task is dropped or the connection ends.
    pub fn follow_channel(
        self: &Arc<Self>,
        request: ChannelRequest,
        on_event: impl Fn(FollowEvent) + Send + Sync + 'static,
    ) -> SupervisedTask<()> {
        let link = self.clone();
        task::spawn_supervised("link.channel", async move {
            tokio::select! {
                biased;
                () = link.wait_until_closed() => {}
                () = run_follow_loop(&link, &request, &on_event) => {}
            }
        })
    }

    /// Handles the owner's confirmation that it delivers the events of a channel.
    pub(in crate::link) fn handle_channel_started(self: &Arc<Self>, via: Option<u64>) {
        match self.followed_channel(via) {
            Some(channel) => drop(channel.started.send_replace(true)),
            None => self.count_dropped(),
        }
    }

    /// The channel that this call follows.
    pub(super) fn followed_channel(&self, via: Option<u64>) -> Option<Arc<FollowedChannel>> {
        self.pending.inspect(via?, |call| call.channel.clone())?
    }
}

async fn run_follow_loop(
    link: &Arc<Link>,
    request: &ChannelRequest,
    on_event: &(impl Fn(FollowEvent) + Send + Sync),
) {
    let (mut wait, mut refused_for, mut again) = (LOST_BACKOFF.0, REFUSED_BACKOFF.0, false);
    loop {
        let (agreed, ended) = follow_once(link, request, || {
            on_event(FollowEvent::Started { is_resumed: again });
            (wait, refused_for, again) = (LOST_BACKOFF.0, REFUSED_BACKOFF.0, true);
        })
        .await;
        if let Err(refusal) = &ended {
            link.log
                .push_note(&format!("{}: {refusal}", Subscribe::METHOD));
        }
        // A result in place of events means that there are none.
        let refused = match &ended {
            Ok(_) => !agreed,
            Err(refusal) => refusal.is_answer() || matches!(refusal, Refusal::Forbidden(_)),
        };
        if refused {
            on_event(FollowEvent::Refused);
            tokio::time::sleep(refused_for).await;
            refused_for = (refused_for * 2).min(REFUSED_BACKOFF.1);
        } else {
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LOST_BACKOFF.1);
        }
    }
}

/// Follows the channel once; returns whether the owner confirmed it, and how it ended.
async fn follow_once(
    link: &Arc<Link>,
    request: &ChannelRequest,
    agreed: impl FnOnce(),
) -> (bool, Outcome) {
    let mut stream = match FollowStream::open(link, request) {
        Ok(stream) => stream,
        Err(refusal) => return (false, Err(refusal)),
    };
    match stream.wait_for_start(link).await {
        Ok(()) => {
            agreed();
            (true, stream.wait_for_end(link).await)
        }
        Err(ended) => (false, ended),
    }
}

/// The request that follows a channel; dropping it ends it at the owner too.
struct FollowStream {
    task: SupervisedTask<Outcome>,
    started: watch::Receiver<bool>,
}

impl FollowStream {
    fn open(link: &Arc<Link>, request: &ChannelRequest) -> Result<Self, Refusal> {
        let (answer, settled) = oneshot::channel();
        let channel = Arc::new(FollowedChannel {
            agent: request.agent.clone(),
            id: request.id.clone(),
            last: AtomicU64::new(0),
            started: watch::Sender::new(false),
        });
        let agreed = channel.started.subscribe();
        let in_flight = InFlight {
            answer,
            call: InFlightCall::new(ReplyPath::Discard),
            caller: None,
            token: None,
            stream: None,
            mgp_progress: false,
            family: ProtocolFamily::Stateless,
            is_listen: false,
            channel: Some(channel),
            last_activity: AtomicU64::new(0),
        };
        let id = link.insert(in_flight)?;
        let params = request_meta::add_meta(Some(&request.params), &link.kernel_meta);
        let request_id = link.ids.encode(id).to_string();
        let frame = jsonrpc::request(&request_id, Subscribe::METHOD, Some(&params));
        let link = link.clone();
        let task = task::spawn_supervised("link.channel.request", async move {
            let _forget = RegisteredCall { link: &link, id };
            let mirror = MetadataHeaders {
                method: Subscribe::METHOD,
                name: None,
                params: &[],
            };
            tokio::select! {
                biased;
                outcome = settled => outcome.unwrap_or_else(|_| Err(link.lost_refusal("it was closed"))),
                never = link.wire.send_call(&link, id, frame.into(), ProtocolFamily::Stateless, mirror, CallContext::default()) => match never {},
            }
        });
        Ok(Self {
            task,
            started: agreed,
        })
    }

    /// Resolves when the owner has confirmed the channel.
    ///
    /// # Errors
    /// How the request ended before that.
    async fn wait_for_start(&mut self, link: &Link) -> Result<(), Outcome> {
        let Self {
            task,
            started: agreed,
        } = self;
        tokio::select! {
            biased;
            Ok(_) = agreed.wait_for(|agreed| *agreed) => Ok(()),
            ended = task => Err(ended.unwrap_or_else(|_| Err(link.lost_refusal("it was closed")))),
        }
    }

    /// Resolves when the owner ends the request.
    async fn wait_for_end(&mut self, link: &Link) -> Outcome {
        match (&mut self.task).await {
            Ok(outcome) => outcome,
            Err(_) => Err(link.lost_refusal("it was closed")),
        }
    }
}
