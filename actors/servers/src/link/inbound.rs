//! What a server sends: answers, notifications, questions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use mgp_engine::servers::attribution::{Party, Whom, whom};
use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::dialect::Era;
use mgp_protocol::framing::Frame;
use mgp_protocol::framing::KEPT;
use mgp_protocol::jsonrpc::torn::{self, Glance};
use mgp_protocol::jsonrpc::{self, Malformed, Message, RequestId};
use mgp_protocol::mcp;
use mgp_protocol::mgp::is_of_extension;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::Splice;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::turns::party;
use super::{InFlight, Link, List, Wire, envelope};
use crate::question;
use mgp_callers::exchange::{Delivery, Exchange, Flag};
use mgp_callers::request::Caller;

/// Questions of one server that may be open at once; a person answers one at a time.
pub(super) const MAX_QUESTIONS: usize = 64;

/// Lines that are no messages are written to the log up to this many, then only counted.
const NOISE_SHOWN: u64 = 20;

/// The questions a server has open.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: Mutex<HashMap<RequestId, Arc<Flag>>>,
    count: AtomicUsize,
    /// Those of them that a client was asked.
    placed: AtomicUsize,
    changed: Notify,
}

impl Questions {
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// True while it is not known of some in which call they are asked.
    pub(super) fn is_unplaced(&self) -> bool {
        self.count.load(Ordering::Relaxed) > self.placed.load(Ordering::Relaxed)
    }

    /// A client is asked, until what is given is dropped.
    pub(super) fn place(&self) -> Placed<'_> {
        self.placed.fetch_add(1, Ordering::Relaxed);
        Placed(self)
    }

    /// A call ended: what could not be attributed may be clear now.
    pub(super) fn reconsider(&self) {
        if self.any() {
            self.changed.notify_waiters();
        }
    }

    pub(super) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Notes a question; `None` when there are too many, or one with this id.
    pub(super) fn open(&self, id: &RequestId) -> Option<Arc<Flag>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_QUESTIONS || open.contains_key(id) {
            return None;
        }
        let withdrawn = Arc::new(Flag::default());
        open.insert(id.clone(), withdrawn.clone());
        self.count.store(open.len(), Ordering::Relaxed);
        Some(withdrawn)
    }

    /// Takes a question out; true when it was still open.
    pub(super) fn close(&self, id: &RequestId) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let was_open = open.remove(id).is_some();
        self.count.store(open.len(), Ordering::Relaxed);
        was_open
    }

    fn withdraw(&self, id: &RequestId) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(withdrawn) = open.get(id) {
            withdrawn.raise();
        }
    }

    pub(super) fn drop_all(&self) {
        let open = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            self.count.store(0, Ordering::Relaxed);
            std::mem::take(&mut *open)
        };
        open.into_values().for_each(|withdrawn| withdrawn.raise());
        self.changed.notify_waiters();
    }
}

/// A question that a client was asked.
pub(super) struct Placed<'a>(&'a Questions);

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        self.0.placed.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Link {
    /// Takes what the child wrote to stdout.
    pub fn receive_frame(self: &Arc<Self>, frame: Frame) {
        match frame {
            Frame::Line(line) => self.receive(&line, None),
            Frame::Overrun { head } => self.overrun(&head, None),
            Frame::Oversized { tail, len } => self.oversized(&tail, len),
        }
    }

    /// Takes one message. `via` is the call on whose own stream it came, where a transport tells.
    pub fn receive(self: &Arc<Self>, frame: &Bytes, via: Option<u64>) {
        match jsonrpc::parse(frame) {
            Ok(Message::Response { id, outcome }) => self.answered(frame, id, outcome),
            Ok(Message::Notification { method, params }) => {
                self.notified(&method, params.map(RawValue::get), via);
            }
            Ok(Message::Request {
                id, method, params, ..
            }) => {
                self.questioned(id, &method, params.map(RawValue::get), via);
            }
            Err(Malformed::Batch) if self.may_batch() => {
                for message in jsonrpc::batch(frame).unwrap_or_default() {
                    self.receive(&frame.slice_ref(message.get().as_bytes()), via);
                }
            }
            Err(Malformed::BadParams { id }) => self.misasked(&id, via),
            Err(malformed) => self.noise(frame, &malformed),
        }
    }

    /// The number of the call that the server means.
    fn meant(&self, id: &RequestId) -> Option<u64> {
        self.ids.number(id.as_u64()?)
    }

    /// 2025-03-26 obliges clients to take batches.
    fn may_batch(&self) -> bool {
        let peer = self.peer_in(Era::Legacy);
        peer.is_some_and(|p| p.version.allows_batches())
    }

    fn answered(
        &self,
        frame: &Bytes,
        id: Option<RequestId>,
        outcome: Result<&RawValue, &RawValue>,
    ) {
        let Some(id) = id.and_then(|id| self.meant(&id)) else {
            return;
        };
        match outcome {
            Ok(result) => self.settle(id, Ok(frame.slice_ref(result.get().as_bytes()))),
            Err(error) => self.settle(id, Err(Refusal::Peer(error.to_owned()))),
        }
    }

    /// A line that is no message: counted, shown a few times, survived (MCP-072). The call that it was
    /// to answer, where that can be read, is not left waiting.
    fn noise(&self, frame: &Bytes, malformed: &Malformed) {
        if let Some(id) = answered_by(frame, malformed).and_then(|id| self.meant(&id)) {
            self.settle(
                id,
                Err(self.faulty(&format!("its answer cannot be read: {malformed}"))),
            );
        }
        let seen = self.counts.noise.fetch_add(1, Ordering::Relaxed);
        if seen < NOISE_SHOWN {
            let text = String::from_utf8_lossy(&frame[..frame.len().min(200)]).into_owned();
            self.log
                .note(&format!("not a message on stdout ({malformed}): {text}"));
        }
    }

    /// A message has passed the limit: whoever waits for it learns it at once, the others never
    /// notice. `via` is the call on whose own stream it comes.
    pub(super) fn overrun(&self, head: &[u8], via: Option<u64>) {
        self.counts.oversized.fetch_add(1, Ordering::Relaxed);
        self.log.note(&format!(
            "a message of more than {} bytes is dropped (max_frame_bytes)",
            self.limits.max_frame
        ));
        let seen = Glance::at(head);
        let named = || seen.id().and_then(|id| self.meant(&id));
        let whose = via.or_else(named).or_else(|| self.only_call());
        if let Some(id) = whose.filter(|_| !seen.asks()) {
            self.settle(id, Err(self.too_large()));
        }
    }

    /// It has ended; some servers put the id last.
    fn oversized(&self, tail: &[u8], len: u64) {
        self.log.note(&format!("it was {len} bytes long"));
        if let Some(id) = torn::id_at_end(tail).and_then(|id| self.meant(&id)) {
            self.settle(id, Err(self.too_large()));
        }
    }

    fn too_large(&self) -> Refusal {
        Refusal::TooLarge {
            server: self.server.clone(),
            limit: self.limits.max_frame as u64,
        }
    }

    fn only_call(&self) -> Option<u64> {
        let mut ids = Vec::new();
        self.pending.for_each(|id, _| ids.push(id));
        (ids.len() == 1).then(|| ids[0])
    }

    fn notified(self: &Arc<Self>, method: &str, params: Option<&str>, via: Option<u64>) {
        match method {
            "notifications/progress" => self.progressed(params),
            "notifications/message" => self.logged(params, via),
            "notifications/tools/list_changed" => {
                self.upward.list_changed(&self.server, List::Tools)
            }
            "notifications/prompts/list_changed" => {
                self.upward.list_changed(&self.server, List::Prompts);
            }
            "notifications/resources/list_changed" => {
                self.upward.list_changed(&self.server, List::Resources);
            }
            "notifications/resources/updated" => self.updated(params),
            "notifications/subscriptions/acknowledged" => {
                self.listening.acknowledged(&self.ids, params)
            }
            "notifications/tasks/status" => {
                let params = params.unwrap_or("{}");
                self.upward.task_changed(&self.server, Era::Legacy, params);
            }
            "notifications/tasks" => self.task_changed(params),
            "notifications/elicitation/complete" => self.elicitation_complete(params),
            "notifications/mgp.lifecycle" => self.stepped(params),
            "notifications/cancelled" => {
                if let Ok(cancelled) = mcp::read::<mcp::Cancelled<'_>>(params)
                    && let Some(id) = RequestId::from_json(cancelled.request_id.get())
                {
                    self.withdrawn(&id);
                }
            }
            // From a server that did not agree to it, it means nothing.
            "notifications/mgp.audit" => match self.mgp().features().contains(Features::AUDIT) {
                true => self.upward.reported(&self.server, params),
                false => self.dropped(),
            },
            // Streams, callbacks and events are agreed on with nobody, and what names a call that is over
            // would reach whoever calls now.
            _ if is_of_extension(method) => self.dropped(),
            // A question without an id is none, and would be put past all that judges questions.
            _ if question::is_like_one(method) => self.dropped(),
            _ => self.pass_on(method, params, via),
        }
    }

    /// The server takes back a question, or ends a listen.
    fn withdrawn(&self, id: &RequestId) {
        self.questions.withdraw(id);
        if let Some(id) = self.meant(id)
            && self.pending.with(id, |call| call.listens) == Some(true)
        {
            self.settle(id, Err(self.lost("it ended a listen")));
        }
    }

    /// Progress goes to the call whose token it names, under the client's own token (CMCP-061); when
    /// that call is over it goes nowhere (CMCP-062).
    fn progressed(&self, params: Option<&str>) {
        let Some(params) = params else { return };
        let Ok(progress) = mcp::read::<mcp::Progress<'_>>(Some(params)) else {
            return;
        };
        let token = RequestId::from_json(progress.progress_token.get());
        let Some(id) = token.and_then(|token| self.meant(&token)) else {
            return;
        };
        self.touch(id);
        let way = self.pending.with(id, |call| {
            let hears = call.caller.as_ref().is_none_or(|caller| caller.hears());
            let token = call.token.clone().filter(|_| hears);
            token.map(|token| (token, call.exchange.clone()))
        });
        if let Some(Some((token, exchange))) = way
            && let Some(token) = exchange.progress_token(token)
        {
            let mut splice = Splice::new(params);
            splice.replace(progress.progress_token.get(), &*token);
            let frame = jsonrpc::notification("notifications/progress", Some(&splice.finish()));
            exchange.send(frame.into(), Delivery::Lossy);
        }
    }

    /// A log record goes to the call that caused it where that is known, else to every client that
    /// may see this server.
    fn logged(&self, params: Option<&str>, via: Option<u64>) {
        let Some(params) = params else { return };
        let Ok(message) = mcp::read::<mcp::Message<'_>>(Some(params)) else {
            return;
        };
        let level = message.level.parse().unwrap_or(LogLevel::Info);
        match self.origin(via) {
            Origin::Call(caller, exchange) | Origin::Likely(caller, exchange, _) => {
                if exchange
                    .level(&caller)
                    .is_some_and(|floor| level.passes(floor))
                {
                    let frame =
                        mgp_callers::directory::log_frame(&self.server, &caller.view, params);
                    exchange.send(frame, Delivery::Lossy);
                }
            }
            Origin::Nobody | Origin::Several => self.upward.logged(&self.server, params),
        }
    }

    fn updated(&self, params: Option<&str>) {
        if let Some(params) = params
            && let Ok(updated) = mcp::read::<mcp::resources::Updated<'_>>(Some(params))
        {
            // What comes over one channel comes in order: the listen in force says it too.
            if matches!(self.wire, Wire::Child(_))
                && self.listening.is_superseded(&self.ids, params)
            {
                return;
            }
            // Under which listen of ours it came is nobody's business.
            let bare = envelope::without_meta(params);
            self.upward.updated(&self.server, &updated.uri, &bare);
        }
    }

    /// Its own word on its state counts from a server that negotiated it.
    fn stepped(&self, params: Option<&str>) {
        match params {
            Some(params) if self.mgp().features().contains(Features::LIFECYCLE) => {
                self.upward.stepped(self.number, params);
            }
            Some(_) | None => self.dropped(),
        }
    }

    fn task_changed(&self, params: Option<&str>) {
        if let Some(params) = params
            && !(matches!(self.wire, Wire::Child(_))
                && self.listening.is_superseded(&self.ids, params))
        {
            let bare = envelope::without_meta(params);
            match self.may_tell(&bare) {
                true => self.upward.task_changed(&self.server, Era::Modern, &bare),
                false => self.dropped(),
            }
        }
    }

    fn elicitation_complete(&self, params: Option<&str>) {
        if let Ok(complete) = mcp::read::<mcp::elicitation::Complete<'_>>(params)
            && let Some(agent) = self.elicited.complete(&complete.elicitation_id)
        {
            let frame = jsonrpc::notification("notifications/elicitation/complete", params);
            agent.tell(frame.into(), Delivery::Reliable);
        }
    }

    /// A notification the kernel does not know goes to the call that caused it, or nowhere: it could
    /// hold what other clients must not see.
    fn pass_on(&self, method: &str, params: Option<&str>, via: Option<u64>) {
        match self.origin(via) {
            Origin::Call(caller, exchange) if caller.hears() => {
                exchange.send(
                    jsonrpc::notification(method, params).into(),
                    Delivery::Lossy,
                );
            }
            Origin::Call(..) | Origin::Likely(..) | Origin::Nobody | Origin::Several => {
                self.dropped();
            }
        }
    }

    /// A notification goes to nobody.
    fn dropped(&self) {
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Whose call a message of the server belongs to.
    fn origin(&self, via: Option<u64>) -> Origin {
        self.origin_among(via, |_| true, client)
    }

    /// The call with this number, or one of those that `may` be meant, told apart by their `party`.
    pub(super) fn origin_among(
        &self,
        via: Option<u64>,
        may: impl Fn(Era) -> bool,
        party: fn(&Caller) -> Party,
    ) -> Origin {
        let of = |call: &InFlight| {
            let caller = call.caller.clone().filter(|_| may(call.era));
            caller.map(|c| (c, call.exchange.clone()))
        };
        if let Some(id) = via {
            return match self.pending.with(id, of).flatten() {
                Some((caller, exchange)) => Origin::Call(caller, exchange),
                None => Origin::Nobody,
            };
        }
        let mut calls = Vec::new();
        self.pending.for_each(|id, call| {
            if let Some((caller, exchange)) = of(call) {
                calls.push((id, caller, exchange));
            }
        });
        attribute(calls, party)
    }

    /// True when every call of a client waits for what the client says.
    pub(super) fn rests(&self, who: Party) -> bool {
        let mut rests = true;
        self.pending.for_each(|_, call| {
            if call.caller.as_ref().is_some_and(|c| party(c) == who) {
                rests &= call.exchange.is_asked();
            }
        });
        rests
    }
}

/// The id of the request that a line was to answer which cannot be read as a message.
fn answered_by(frame: &[u8], malformed: &Malformed) -> Option<RequestId> {
    let seen = Glance::at(frame);
    match malformed {
        _ if seen.asks() => None,
        Malformed::Batch | Malformed::BadParams { .. } | Malformed::BadNotice => None,
        Malformed::NotAMessage { id, .. } => id.clone(),
        Malformed::NotJson(_) => {
            let tail = &frame[frame.len().saturating_sub(KEPT)..];
            let ends = || torn::id_at_end(tail).filter(|_| frame.starts_with(b"{"));
            seen.id().or_else(ends)
        }
    }
}

type Calls = Vec<(u64, Arc<Caller>, Arc<Exchange>)>;

/// Each client by itself.
fn client(caller: &Caller) -> Party {
    Party::Client(caller.connection)
}

/// A call that waits for its client's answer is most likely not the one that speaks now.
fn attribute(mut calls: Calls, party: fn(&Caller) -> Party) -> Origin {
    let clients = |calls: &Calls| whom(calls.iter().map(|(_, caller, _)| party(caller)));
    let latest = |calls: Calls| calls.into_iter().max_by_key(|(id, ..)| *id);
    let all = clients(&calls);
    let (waiting, active): (Calls, Calls) = calls
        .drain(..)
        .partition(|(_, _, exchange)| exchange.is_asked());
    match (all, clients(&active)) {
        (Whom::Nobody, _) => Origin::Nobody,
        (Whom::One(_), _) => {
            let latest = latest(active).or_else(|| latest(waiting));
            latest.map_or(Origin::Nobody, |(_, caller, exchange)| {
                Origin::Call(caller, exchange)
            })
        }
        (Whom::Several, Whom::One(asked)) => {
            let others = waiting.into_iter();
            let others = others.filter(|(_, caller, _)| party(caller) != asked);
            let others = others.map(|(_, _, exchange)| exchange).collect();
            match latest(active) {
                Some((_, caller, exchange)) => Origin::Likely(caller, exchange, others),
                None => Origin::Several,
            }
        }
        (Whom::Several, Whom::Nobody | Whom::Several) => Origin::Several,
    }
}

/// Whose call caused a message of a server.
pub(super) enum Origin {
    /// The only client with calls under way.
    Call(Arc<Caller>, Arc<Exchange>),
    /// The only client with calls that do not wait for their clients; these calls of others do.
    Likely(Arc<Caller>, Arc<Exchange>, Vec<Arc<Exchange>>),
    /// No call is under way.
    Nobody,
    /// Calls of several clients are.
    Several,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_an_unreadable_answer_was_for_is_found() {
        for answer in [
            &b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}"[..],
            b" {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"\xff\x01\"}}",
            br#"{"jsonrpc":"2.0","id":7,"id":7,"result":{}}"#,
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"\x01\",\"method\":1}}",
            br#"{"id":7,"result":{"method":"x"}}"#,
            br#"{"result":{"text":"\"}]},"id":7}"#,
        ] {
            let words = String::from_utf8_lossy(answer);
            let malformed = jsonrpc::parse(answer).expect_err(&words);
            let id = answered_by(answer, &malformed);
            assert_eq!(id, Some(RequestId::from(7)), "{words}: {malformed}");
        }
        let question = br#"{"id":7,"method":"x","params":{},}"#;
        let malformed = jsonrpc::parse(question).unwrap_err();
        assert_eq!(answered_by(question, &malformed), None);
    }
}
