//! What a server sends: answers, notifications, questions.

mod notifications;
mod requests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use mgp_protocol::dialect::Era;
use mgp_protocol::framing::Frame;
use mgp_protocol::framing::KEPT;
use mgp_protocol::jsonrpc::torn::{self, Glance};
use mgp_protocol::jsonrpc::{self, Malformed, Message, RequestId};
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use super::Link;

/// Lines that are no messages are written to the log up to this many, then only counted.
const NOISE_SHOWN: u64 = 20;

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
<<<<<<< HEAD

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
                if caller
                    .log_level(&exchange)
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
=======
>>>>>>> servers
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
