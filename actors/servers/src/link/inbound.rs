//! Dispatches messages from a server: answers, notifications and requests.

mod events;
mod mcpl;
mod notifications;
mod requests;
mod streams;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::framing::EDGE_LEN;
use mgp_protocol::framing::Frame;
use mgp_protocol::jsonrpc::partial_message::{self, PartialMessage};
use mgp_protocol::jsonrpc::{self, Malformed, Message, RequestId};
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use super::Link;
use super::wire::strip_bom;

/// Malformed lines are logged up to this number, then only counted.
const MALFORMED_LOGGED_MAX: u64 = 20;

impl Link {
    /// Handles one line of the child's stdout.
    pub(crate) fn receive_frame(self: &Arc<Self>, frame: Frame) {
        match frame {
            Frame::Line(line) => self.receive(&line, None),
            Frame::LimitExceeded { head } => self.handle_oversized(&head, None),
            Frame::Oversized { tail, len } => self.handle_oversized_tail(&tail, len),
        }
    }

    /// Handles one message. `via` is the call on whose stream it came, if the transport knows it.
    pub(crate) fn receive(self: &Arc<Self>, frame: &Bytes, via: Option<u64>) {
        let frame = &strip_bom(frame.clone());
        self.tap_received(frame);
        match jsonrpc::parse(frame) {
            Ok(Message::Response { id, outcome }) => self.handle_answer(frame, id, outcome),
            Ok(Message::Notification { method, params }) => {
                let params = params.map(RawValue::get);
                let guarded = self.guard_message(&method, params, via);
                self.handle_notification(&method, guarded.as_deref().or(params), via);
            }
            Ok(Message::Request {
                id, method, params, ..
            }) => {
                let params = params.map(RawValue::get);
                let guarded = self.guard_message(&method, params, via);
                self.handle_request(id, &method, guarded.as_deref().or(params), via);
            }
            Err(Malformed::Batch) if self.can_batch() => {
                for message in jsonrpc::split_batch(frame).unwrap_or_default() {
                    self.receive(&frame.slice_ref(message.get().as_bytes()), via);
                }
            }
            Err(Malformed::BadParams { id }) => self.reject_params(&id, via),
            Err(malformed) => self.handle_malformed(frame, &malformed),
        }
    }

    /// The number of the call with this request id.
    pub(super) fn find_call(&self, id: &RequestId) -> Option<u64> {
        self.ids.decode(id.as_number()?)
    }

    /// True if the server may send batches: 2025-03-26 requires clients to accept them.
    pub(super) fn can_batch(&self) -> bool {
        let peer = self.peer_for(ProtocolFamily::Legacy);
        peer.is_some_and(|p| p.version.has_batches())
    }

    fn handle_answer(
        &self,
        frame: &Bytes,
        id: Option<RequestId>,
        outcome: Result<&RawValue, &RawValue>,
    ) {
        let Some(number) = id.as_ref().and_then(|id| self.find_call(id)) else {
            return self.record_unknown_answer(id.as_ref(), outcome);
        };
        let received = match outcome {
            Ok(result) => Ok(frame.slice_ref(result.get().as_bytes())),
            Err(error) => Err(Refusal::Peer(error.to_owned())),
        };
        if !self.try_settle_call(number, received) && number > self.pending.newest_id() {
            self.record_unknown_answer(id.as_ref(), outcome);
        }
    }

    /// Counts and logs an answer to a request that was never made. An answer to an ended request is late, which
    /// is normal after a cancellation (CMCP-070).
    fn record_unknown_answer(&self, id: Option<&RequestId>, outcome: Result<&RawValue, &RawValue>) {
        if self.counts.unknown.fetch_add(1, Ordering::Relaxed) >= MALFORMED_LOGGED_MAX {
            return;
        }
        let id = id.map_or("null", RequestId::as_json);
        let id: String = id.chars().take(40).collect();
        let detail = match outcome {
            Ok(_) => String::new(),
            Err(error) => format!(": {}", error.get().chars().take(200).collect::<String>()),
        };
        self.log.push_note(&format!(
            "an answer with the id {id}, which no request has{detail}"
        ));
    }

    /// Counts and logs a malformed line (MCP-072). If the answered request can be identified, it fails at once.
    fn handle_malformed(&self, frame: &Bytes, malformed: &Malformed) {
        if let Some(id) = find_answered_id(frame, malformed).and_then(|id| self.find_call(&id)) {
            self.settle_call(
                id,
                Err(self.invalid_answer_refusal(&format!("its answer cannot be read: {malformed}"))),
            );
        }
        let seen = self.counts.malformed.fetch_add(1, Ordering::Relaxed);
        if seen < MALFORMED_LOGGED_MAX {
            let text = String::from_utf8_lossy(&frame[..frame.len().min(200)]).into_owned();
            self.log
                .push_note(&format!("not a message on stdout ({malformed}): {text}"));
        }
    }

    /// Fails the call that an oversized message answers; other calls are not affected. `via` is the call on
    /// whose stream it comes.
    pub(super) fn handle_oversized(&self, head: &[u8], via: Option<u64>) {
        self.counts.oversized.fetch_add(1, Ordering::Relaxed);
        self.log.push_note(&format!(
            "a message of more than {} bytes is dropped (max_frame_bytes)",
            self.limits.max_frame
        ));
        let seen = PartialMessage::scan(head);
        let named = || seen.id().and_then(|id| self.find_call(&id));
        let whose = via.or_else(named).or_else(|| self.only_call());
        if let Some(id) = whose.filter(|_| !seen.has_method()) {
            self.settle_call(id, Err(self.too_large_refusal()));
        }
    }

    /// Handles the end of an oversized message; some servers put the id last.
    fn handle_oversized_tail(&self, tail: &[u8], len: u64) {
        self.log.push_note(&format!("it was {len} bytes long"));
        if let Some(id) = partial_message::find_trailing_id(tail).and_then(|id| self.find_call(&id))
        {
            self.settle_call(id, Err(self.too_large_refusal()));
        }
    }

    pub(super) fn too_large_refusal(&self) -> Refusal {
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

/// The id of the request that a malformed line answers. An answer behind other text on its line is not accepted,
/// because that text may be controlled by a caller; the call fails at once.
fn find_answered_id(frame: &[u8], malformed: &Malformed) -> Option<RequestId> {
    const MESSAGE_START: &[u8] = b"{\"jsonrpc\"";
    let is_text = matches!(malformed, Malformed::NotJson(_)) && !frame.starts_with(b"{");
    let mut begins = frame.windows(MESSAGE_START.len());
    let glued = is_text.then(|| begins.position(|part| part == MESSAGE_START));
    let frame = &frame[glued.flatten().unwrap_or(0)..];
    let seen = PartialMessage::scan(frame);
    match malformed {
        _ if seen.has_method() => None,
        Malformed::Batch | Malformed::BadParams { .. } | Malformed::BadNotification => None,
        Malformed::NotAMessage { id, .. } => id.clone(),
        Malformed::NotJson(_) => {
            let tail = &frame[frame.len().saturating_sub(EDGE_LEN)..];
            let ends =
                || partial_message::find_trailing_id(tail).filter(|_| frame.starts_with(b"{"));
            seen.id().or_else(ends)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::scripted::ScriptedServer;

    /// Some servers store ids as floating-point numbers, others as strings: both match the number they were
    /// sent.
    #[tokio::test]
    async fn id_as_float_or_string_matches_request() {
        let mut server = ScriptedServer::legacy("{}");
        for form in [r#""ID""#, "ID.0", "ID", "IDe0"] {
            let link = server.link.clone();
            let call = tokio::spawn(async move { link.request("ping", None).await });
            let id = server.next_message().await["id"].to_string();
            let written = form.replace("ID", &id);
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{written},"result":{{}}}}"#);
            server.link.receive(&Bytes::from(answer), None);
            let within = std::time::Duration::from_secs(5);
            let answer = tokio::time::timeout(within, call).await;
            assert!(answer.expect(&written).unwrap().is_ok(), "{written}");
        }
    }

    /// A byte order mark before a message is skipped.
    #[tokio::test]
    async fn byte_order_mark_is_skipped() {
        let mut server = ScriptedServer::legacy("{}");
        let link = server.link.clone();
        let call = tokio::spawn(async move { link.request("ping", None).await });
        let id = server.next_message().await["id"].to_string();
        let answer = format!("\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}");
        server.link.receive(&Bytes::from(answer), None);
        assert_eq!(call.await.unwrap().unwrap(), "{}");
    }

    /// An id matches only while its request is in flight: an answer to a future request settles nothing and is
    /// logged.
    #[tokio::test]
    async fn answer_before_its_request_is_logged_and_settles_nothing() {
        let mut server = ScriptedServer::legacy("{}");
        for ahead in 1..4 {
            server.send(
                &serde_json::json!({"jsonrpc": "2.0", "id": ahead, "result": {"forged": true}}),
            );
        }
        server.send(&serde_json::json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "what?"}}));
        let log = server.link.log.lines_after(0);
        let words: Vec<_> = log.iter().map(|line| line.text.to_string()).collect();
        assert_eq!(words.len(), 4, "{words:?}");
        assert!(words[0].contains("the id 1,"), "{words:?}");
        assert!(words[3].contains("what?"), "{words:?}");
        let link = server.link.clone();
        let call = tokio::spawn(async move { link.request("ping", None).await });
        let request = server.next_message().await;
        assert_eq!(request["id"], 1);
        server.answer(&request, "result", &serde_json::json!({}));
        assert_eq!(call.await.unwrap().unwrap(), "{}");
        // Late answers are normal.
        server.answer(&request, "result", &serde_json::json!({}));
        assert_eq!(server.link.log.lines_after(0).len(), 4);
    }

    #[test]
    fn unreadable_answer_is_matched_to_its_call() {
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
            let id = find_answered_id(answer, &malformed);
            assert_eq!(id, Some(RequestId::from(7)), "{words}: {malformed}");
        }
        let malformed_request = br#"{"id":7,"method":"x","params":{},}"#;
        let malformed = jsonrpc::parse(malformed_request).unwrap_err();
        assert_eq!(find_answered_id(malformed_request, &malformed), None);
    }
}
