//! Messages from a server: answers, notifications, requests.

mod events;
mod mcpl;
mod notifications;
mod requests;
mod streams;

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
use super::wire::without_mark;

/// Lines that are no messages are logged up to this number, then only counted.
const NOISE_SHOWN: u64 = 20;

impl Link {
    /// Handles a line from the child's stdout.
    pub fn receive_frame(self: &Arc<Self>, frame: Frame) {
        match frame {
            Frame::Line(line) => self.receive(&line, None),
            Frame::Overrun { head } => self.overrun(&head, None),
            Frame::Oversized { tail, len } => self.oversized(&tail, len),
        }
    }

    /// Handles one message. `via` is the call on whose stream it came, where the transport tells.
    pub fn receive(self: &Arc<Self>, frame: &Bytes, via: Option<u64>) {
        let frame = &without_mark(frame.clone());
        self.tap_received(frame);
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

    /// The number of the call with this request id.
    pub(super) fn meant(&self, id: &RequestId) -> Option<u64> {
        self.ids.number(id.as_number()?)
    }

    /// 2025-03-26 requires clients to accept batches.
    pub(super) fn may_batch(&self) -> bool {
        let peer = self.peer_in(Era::Legacy);
        peer.is_some_and(|p| p.version.allows_batches())
    }

    fn answered(
        &self,
        frame: &Bytes,
        id: Option<RequestId>,
        outcome: Result<&RawValue, &RawValue>,
    ) {
        let Some(number) = id.as_ref().and_then(|id| self.meant(id)) else {
            return self.unknown(id.as_ref(), outcome);
        };
        let received = match outcome {
            Ok(result) => Ok(frame.slice_ref(result.get().as_bytes())),
            Err(error) => Err(Refusal::Peer(error.to_owned())),
        };
        if !self.settled(number, received) && number > self.pending.newest() {
            self.unknown(id.as_ref(), outcome);
        }
    }

    /// Notes an answer to a request that was never made. An answer to one that is over is late, and as usual as a
    /// cancelled call (CMCP-070).
    fn unknown(&self, id: Option<&RequestId>, outcome: Result<&RawValue, &RawValue>) {
        if self.counts.unknown.fetch_add(1, Ordering::Relaxed) >= NOISE_SHOWN {
            return;
        }
        let id = id.map_or("null", RequestId::as_json);
        let id: String = id.chars().take(40).collect();
        let said = match outcome {
            Ok(_) => String::new(),
            Err(error) => format!(": {}", error.get().chars().take(200).collect::<String>()),
        };
        self.log.note(&format!(
            "an answer with the id {id}, which no request has{said}"
        ));
    }

    /// Handles a line that is no message: it is counted and shown a few times (MCP-072). If the call it
    /// answers can be read, that call fails instead of waiting on.
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

    /// A message exceeds the size limit: the call it answers fails at once, others are not affected.
    /// `via` is the call on whose stream it comes.
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

    /// The end of such a message; some servers put the id last.
    fn oversized(&self, tail: &[u8], len: u64) {
        self.log.note(&format!("it was {len} bytes long"));
        if let Some(id) = torn::id_at_end(tail).and_then(|id| self.meant(&id)) {
            self.settle(id, Err(self.too_large()));
        }
    }

    pub(super) fn too_large(&self) -> Refusal {
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
}

/// The id of the request that an unreadable line answers. Behind other text on its line an answer is not taken, for
/// that text may hold whatever a caller wrote; its call fails at once.
fn answered_by(frame: &[u8], malformed: &Malformed) -> Option<RequestId> {
    const BEGIN: &[u8] = b"{\"jsonrpc\"";
    let is_text = matches!(malformed, Malformed::NotJson(_)) && !frame.starts_with(b"{");
    let mut begins = frame.windows(BEGIN.len());
    let glued = is_text.then(|| begins.position(|part| part == BEGIN));
    let frame = &frame[glued.flatten().unwrap_or(0)..];
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
    use crate::link::scripted::Scripted;

    /// Some servers keep numbers as doubles, others as texts: both mean the number they were sent.
    #[tokio::test]
    async fn an_id_in_another_form_means_the_same_request() {
        let mut it = Scripted::legacy("{}");
        for form in [r#""ID""#, "ID.0", "ID", "IDe0"] {
            let link = it.link.clone();
            let call = tokio::spawn(async move { link.ask("ping", None).await });
            let id = it.next().await["id"].to_string();
            let said = form.replace("ID", &id);
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{said},"result":{{}}}}"#);
            it.link.receive(&Bytes::from(answer), None);
            let within = std::time::Duration::from_secs(5);
            let answer = tokio::time::timeout(within, call).await;
            assert!(answer.expect(&said).unwrap().is_ok(), "{said}");
        }
    }

    /// A byte order mark before a message is no part of it.
    #[tokio::test]
    async fn a_byte_order_mark_is_skipped() {
        let mut it = Scripted::legacy("{}");
        let link = it.link.clone();
        let call = tokio::spawn(async move { link.ask("ping", None).await });
        let id = it.next().await["id"].to_string();
        let answer = format!("\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}");
        it.link.receive(&Bytes::from(answer), None);
        assert_eq!(call.await.unwrap().unwrap(), "{}");
    }

    /// An id counts only while its request is under way at this connection: one that is still to come settles
    /// nothing, and is logged.
    #[tokio::test]
    async fn an_answer_before_its_request_settles_nothing_and_is_logged() {
        let mut it = Scripted::legacy("{}");
        for ahead in 1..4 {
            it.say(&serde_json::json!({"jsonrpc": "2.0", "id": ahead, "result": {"forged": true}}));
        }
        it.say(&serde_json::json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "what?"}}));
        let log = it.link.log.after(0);
        let words: Vec<_> = log.iter().map(|line| line.text.to_string()).collect();
        assert_eq!(words.len(), 4, "{words:?}");
        assert!(words[0].contains("the id 1,"), "{words:?}");
        assert!(words[3].contains("what?"), "{words:?}");
        let link = it.link.clone();
        let call = tokio::spawn(async move { link.ask("ping", None).await });
        let asked = it.next().await;
        assert_eq!(asked["id"], 1);
        it.answer(&asked, "result", &serde_json::json!({}));
        assert_eq!(call.await.unwrap().unwrap(), "{}");
        // A late answer is usual.
        it.answer(&asked, "result", &serde_json::json!({}));
        assert_eq!(it.link.log.after(0).len(), 4);
    }

    #[test]
    fn the_call_an_unreadable_answer_was_for_is_found() {
        for answer in [
            &b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}"[..],
            b" {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"\xff\x01\"}}",
            br#"{"jsonrpc":"2.0","id":7,"id":7,"result":{}}"#,
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"\x01\",\"method\":1}}",
            br#"{"id":7,"result":{"method":"x"}}"#,
            br#"{"result":{"text":"\"}]},"id":7}"#,
            br#"loading... {"jsonrpc":"2.0","id":7,"result":{}}"#,
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
