//! Channels that agents follow at a server of another node: each is a request of its own for one agent, which stays open
//! for the events and is made again when it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mgp_protocol::dialect::Era;
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::events::Subscribe;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};

use super::calls::Forget;
use super::{InFlight, Link, MirroredHeaders, envelope};
use crate::link::Alongside;
use mgp_callers::exchange::{Exchange, ReplyPath};
use mgp_callers::request::Outcome;
use mgp_runtime::task::{self, SupervisedTask};

/// First and longest wait before a channel that was refused is asked for again: its server may be starting just now, or be
/// started again some day, and its owner may let the agent in.
const REFUSED: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// First and longest wait before one that was lost is asked for again. It waits for a node that is away besides.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Most numbers of events that are taken as missing between two: no node makes the numbers of a subscription run out.
const MISSED_MAX: u64 = u32::MAX as u64;

/// What is followed, and for whom.
#[derive(Clone, Debug)]
pub struct ChannelRequest {
    /// Whose rights its owner looks at.
    pub agent: AgentId,
    /// The id under which its events are told here.
    pub id: Arc<str>,
    /// `params` of `mgp/events/subscribe`.
    pub params: String,
}

/// How following goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowingNews {
    /// Its events come from now on.
    Agreed {
        /// They did so before, and some may be lost.
        again: bool,
    },
    /// The server has no such channel, or its owner does not let the agent hear of it. It is asked again later.
    Refused,
}

/// A channel in the table of calls.
#[derive(Debug)]
pub(super) struct FollowedChannel {
    pub(super) agent: AgentId,
    pub(super) id: Arc<str>,
    /// The number of its last event at the owner.
    last: AtomicU64,
    agreed: watch::Sender<bool>,
}

impl FollowedChannel {
    /// How many events are missing before the one with this number.
    pub(super) fn missed_before(&self, seq: Option<&RawValue>) -> u64 {
        let Some(seq) = seq.and_then(|seq| seq.get().parse::<u64>().ok()) else {
            return 0;
        };
        let last = self.last.swap(seq, Ordering::Relaxed);
        seq.saturating_sub(last.saturating_add(1)).min(MISSED_MAX)
    }
}

impl Link {
    /// Follows a channel of a server of another node until the returned task is dropped or the connection is over.
    pub fn follow_channel(
        self: &Arc<Self>,
        request: ChannelRequest,
        news: impl Fn(FollowingNews) + Send + Sync + 'static,
    ) -> SupervisedTask<()> {
        let link = self.clone();
        task::supervised("link.channel", async move {
            tokio::select! {
                biased;
                () = link.over() => {}
                () = keep_on(&link, &request, &news) => {}
            }
        })
    }

    /// The owner of the server says that it tells the events of a channel from now on.
    pub(in crate::link) fn channel_agreed(self: &Arc<Self>, via: Option<u64>) {
        match self.channel_of(via) {
            Some(channel) => drop(channel.agreed.send_replace(true)),
            None => self.dropped(),
        }
    }

    /// The channel that is followed with this call.
    pub(super) fn channel_of(&self, via: Option<u64>) -> Option<Arc<FollowedChannel>> {
        self.pending.with(via?, |call| call.channel.clone())?
    }
}

async fn keep_on(
    link: &Arc<Link>,
    request: &ChannelRequest,
    news: &(impl Fn(FollowingNews) + Send + Sync),
) {
    let (mut wait, mut refused_for, mut again) = (AGAIN.0, REFUSED.0, false);
    loop {
        let (agreed, ended) = follow(link, request, || {
            news(FollowingNews::Agreed { again });
            (wait, refused_for, again) = (AGAIN.0, REFUSED.0, true);
        })
        .await;
        if let Err(refusal) = &ended {
            link.log.note(&format!("{}: {refusal}", Subscribe::METHOD));
        }
        // An answer in the place of events is that there are none.
        let refused = match &ended {
            Ok(_) => !agreed,
            Err(refusal) => refusal.is_answer() || matches!(refusal, Refusal::Forbidden(_)),
        };
        match refused {
            true => {
                news(FollowingNews::Refused);
                tokio::time::sleep(refused_for).await;
                refused_for = (refused_for * 2).min(REFUSED.1);
            }
            false => {
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(AGAIN.1);
            }
        }
    }
}

/// Follows it once: whether the owner agreed, and how it ended.
async fn follow(
    link: &Arc<Link>,
    request: &ChannelRequest,
    agreed: impl FnOnce(),
) -> (bool, Outcome) {
    let mut stream = match FollowingStream::open(link, request) {
        Ok(stream) => stream,
        Err(refusal) => return (false, Err(refusal)),
    };
    match stream.begun(link).await {
        Ok(()) => {
            agreed();
            (true, stream.ended(link).await)
        }
        Err(ended) => (false, ended),
    }
}

/// One request; dropping it ends it at the owner, too.
struct FollowingStream {
    task: SupervisedTask<Outcome>,
    agreed: watch::Receiver<bool>,
}

impl FollowingStream {
    fn open(link: &Arc<Link>, request: &ChannelRequest) -> Result<Self, Refusal> {
        let (answer, settled) = oneshot::channel();
        let channel = Arc::new(FollowedChannel {
            agent: request.agent.clone(),
            id: request.id.clone(),
            last: AtomicU64::new(0),
            agreed: watch::Sender::new(false),
        });
        let agreed = channel.agreed.subscribe();
        let in_flight = InFlight {
            answer,
            exchange: Exchange::new(ReplyPath::Nowhere),
            caller: None,
            token: None,
            stream: None,
            reports: false,
            era: Era::Modern,
            listens: false,
            channel: Some(channel),
            touched: AtomicU64::new(0),
        };
        let id = link.insert(in_flight)?;
        let params = envelope::wrap(Some(&request.params), &link.own_meta);
        let shown = link.ids.shown(id).to_string();
        let frame = jsonrpc::request(&shown, Subscribe::METHOD, Some(&params));
        let link = link.clone();
        let task = task::supervised("link.channel.request", async move {
            let _forget = Forget { link: &link, id };
            let mirror = MirroredHeaders {
                method: Subscribe::METHOD,
                name: None,
                params: &[],
            };
            tokio::select! {
                biased;
                outcome = settled => outcome.unwrap_or_else(|_| Err(link.lost("it was closed"))),
                never = link.wire.carry(&link, id, frame.into(), Era::Modern, mirror, Alongside::default()) => match never {},
            }
        });
        Ok(Self { task, agreed })
    }

    /// Resolves when the owner tells its events.
    ///
    /// # Errors
    /// How it ended before that.
    async fn begun(&mut self, link: &Link) -> Result<(), Outcome> {
        let Self { task, agreed } = self;
        tokio::select! {
            biased;
            Ok(_) = agreed.wait_for(|agreed| *agreed) => Ok(()),
            ended = task => Err(ended.unwrap_or_else(|_| Err(link.lost("it was closed")))),
        }
    }

    /// Resolves when the owner ends it.
    async fn ended(&mut self, link: &Link) -> Outcome {
        match (&mut self.task).await {
            Ok(outcome) => outcome,
            Err(_) => Err(link.lost("it was closed")),
        }
    }
}
