//! The state needed to resume a conversation at another kernel: requests in flight, and the handshake.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use mgp_protocol::jsonrpc::partial_message::{self, PartialMessage};
use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::mcp::{self, Method};
use serde_json::value::RawValue;

use super::handshake::Handshake;

/// Requests stored in each direction: four times what the kernel allows one client in flight.
const REQUESTS_MAX: usize = 4096;
/// Longest stored id, in bytes: a UUID in quotes has 38.
const ID_BYTES_MAX: usize = 256;
/// Bytes scanned at the start of a longer line. What clients write before the arguments is shorter.
const HEAD_BYTES: usize = 256;
/// Bytes scanned at the end: some clients write the id last.
const TAIL_BYTES: usize = 96;

/// Requests in flight, and the handshake.
#[derive(Default)]
pub(super) struct ConversationState {
    /// Requests of the client without an answer.
    client_requests: HashSet<RequestId>,
    /// Requests of the kernel without an answer; true for those of an earlier kernel.
    kernel_requests: HashMap<RequestId, bool>,
    handshake: Handshake,
    /// More requests than are stored: the conversation cannot be resumed.
    has_overflowed: bool,
}

/// The open requests of a lost kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LostRequests {
    /// Requests of the client with an unknown outcome.
    pub(super) client_requests: Vec<RequestId>,
    /// Requests of the kernel whose answers are no longer needed.
    pub(super) kernel_requests: Vec<RequestId>,
}

impl ConversationState {
    /// Records a line of the client before it is written; returns what to write, without answers to an earlier kernel.
    pub(super) fn record_client_line<'l>(&mut self, line: &'l [u8]) -> Cow<'l, [u8]> {
        if line.trim_ascii_start().first() == Some(&b'[') {
            return self.record_client_batch(line);
        }
        if self.record_client_message(line) {
            Cow::Borrowed(line)
        } else {
            Cow::default()
        }
    }

    /// Records a message of the client. False for an answer to an earlier kernel.
    fn record_client_message(&mut self, line: &[u8]) -> bool {
        let partial = peek(line);
        let id = partial.id();
        if partial.is_response() {
            return id.is_none_or(|id| self.record_client_response(&id));
        }
        match (partial.method(), id) {
            (Some(mcp::Cancelled::METHOD), None) => {
                if let Some(id) = cancelled_request(line) {
                    self.client_requests.remove(&id);
                }
            }
            (method, Some(id)) => self.record_client_request(method, id, line),
            (Some(method), None) => {
                self.has_overflowed |= !self.handshake.record(method, None, line)
            }
            (None, None) => {}
        }
        true
    }

    /// Records an answer of the client. False for an answer to an earlier kernel.
    fn record_client_response(&mut self, id: &RequestId) -> bool {
        let stale = self.kernel_requests.get(id) == Some(&true);
        if !stale {
            self.kernel_requests.remove(id);
        }
        !stale
    }

    fn record_client_request(&mut self, method: Option<&str>, id: RequestId, line: &[u8]) {
        if let Some(method) = method {
            self.has_overflowed |= !self.handshake.record(method, Some(&id), line);
        }
        self.has_overflowed |=
            self.client_requests.len() >= REQUESTS_MAX || id.as_json().len() > ID_BYTES_MAX;
        if !self.has_overflowed {
            self.client_requests.insert(id);
        }
    }

    /// A batch (2025-03-26), without its stale answers.
    fn record_client_batch<'l>(&mut self, line: &'l [u8]) -> Cow<'l, [u8]> {
        let all = jsonrpc::split_batch(line).unwrap_or_default();
        let mut kept = Vec::with_capacity(all.len());
        for one in &all {
            if self.record_client_message(one.get().as_bytes()) {
                kept.push(one.get());
            }
        }
        match (kept.len() == all.len(), kept.is_empty()) {
            (true, _) => Cow::Borrowed(line),
            (false, true) => Cow::default(),
            (false, false) => Cow::Owned(format!("[{}]\n", kept.join(",")).into_bytes()),
        }
    }

    /// A recorded line could not be written, and will be sent again, except answers: their kernel is gone.
    pub(super) fn forget_line(&mut self, line: &[u8]) {
        match jsonrpc::split_batch(line) {
            Some(all) => all
                .iter()
                .for_each(|one| self.forget_message(one.get().as_bytes())),
            None => self.forget_message(line),
        }
    }

    fn forget_message(&mut self, line: &[u8]) {
        let partial = peek(line);
        let Some(id) = partial.id() else { return };
        if partial.has_method() {
            self.client_requests.remove(&id);
            self.handshake.forget(&id);
        } else if partial.is_response() {
            self.record_kernel_request(id, true);
        }
    }

    /// Records a request of the kernel. A stale one stays stale.
    fn record_kernel_request(&mut self, id: RequestId, stale: bool) {
        self.has_overflowed |= self.kernel_requests.len() >= REQUESTS_MAX;
        if !self.has_overflowed {
            *self.kernel_requests.entry(id).or_default() |= stale;
        }
    }

    /// Records a line of the kernel.
    pub(super) fn record_kernel_line(&mut self, line: &[u8]) {
        let partial = peek(line);
        match (partial.id(), partial.is_response()) {
            (Some(id), true) => {
                self.client_requests.remove(&id);
                self.handshake.record_response(&id, line);
            }
            (Some(id), false) => {
                self.record_kernel_request(id, false);
            }
            (None, _) if partial.method() == Some(mcp::Cancelled::METHOD) => {
                if let Some(id) = cancelled_request(line) {
                    // A cancelled request counts as answered.
                    self.record_client_response(&id);
                }
            }
            (None, _) => {}
        }
    }

    /// The kernel is gone: returns the open requests, except an unanswered `initialize`, which is sent again.
    pub(super) fn take_lost(&mut self) -> LostRequests {
        let waits = self.handshake.pending_initialize().cloned();
        let asked = std::mem::take(&mut self.client_requests);
        let mut lost = LostRequests::default();
        for id in asked {
            if Some(&id) == waits.as_ref() {
                self.client_requests.insert(id);
            } else {
                lost.client_requests.push(id)
            }
        }
        for (id, stale) in &mut self.kernel_requests {
            if !std::mem::replace(stale, true) {
                lost.kernel_requests.push(id.clone());
            }
        }
        lost
    }

    /// No further kernel is expected: returns the requests that wait for one.
    pub(super) fn take_pending(&mut self) -> Vec<RequestId> {
        self.client_requests.drain().collect()
    }

    /// The handshake; `None` if not enough is stored.
    pub(super) fn handshake(&self) -> Option<Handshake> {
        (!self.has_overflowed).then(|| self.handshake.clone())
    }

    /// The ids of the requests in some lines.
    pub(super) fn request_ids<'a>(
        lines: impl Iterator<Item = &'a [u8]>,
    ) -> impl Iterator<Item = RequestId> {
        lines.filter_map(|line| {
            let partial = peek(line);
            partial.id().filter(|_| partial.has_method())
        })
    }
}

/// Parses a line. A long one is scanned at both ends, and as a whole only if neither has its id.
fn peek(line: &[u8]) -> PartialMessage {
    if line.len() <= HEAD_BYTES + TAIL_BYTES {
        return PartialMessage::scan(line);
    }
    let partial = PartialMessage::scan(&line[..HEAD_BYTES]);
    if partial.id().is_some() {
        return partial;
    }
    match partial_message::find_trailing_id(&line[line.len() - TAIL_BYTES..]) {
        Some(id) => partial.with_id(id),
        None => PartialMessage::scan(line),
    }
}

/// The request that a `notifications/cancelled` cancels.
fn cancelled_request(line: &[u8]) -> Option<RequestId> {
    match jsonrpc::parse(line).ok()? {
        Message::Notification { params, .. } => {
            let cancelled: mcp::Cancelled<'_> =
                mcp::parse_params(params.map(RawValue::get)).ok()?;
            RequestId::from_json(cancelled.request_id.get())
        }
        Message::Request { .. } | Message::Response { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[RequestId]) -> Vec<&str> {
        let mut ids: Vec<_> = ids.iter().map(RequestId::as_json).collect();
        ids.sort_unstable();
        ids
    }

    /// Point 4: unanswered requests are lost, wherever their ids are; answered and cancelled ones are not.
    #[test]
    fn unanswered_requests_are_tracked() {
        let mut conversation = ConversationState::default();
        let long = "x".repeat(4000);
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#.to_owned(),
            format!(
                r#"{{"method":"tools/call","params":{{"a":"{long}"}},"jsonrpc":"2.0","id":"b"}}"#
            ),
            format!(r#"{{"method":"a","params":["{long}"],"id":3,"z":"{long}"}}"#),
            r#"{"jsonrpc":"2.0","id":4,"method":"tools/call"}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":5,"method":"tools/call"}"#.to_owned(),
            format!(r#"{{"method":"n","params":{{"a":"{long}","id":6}}}}"#),
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#
                .to_owned(),
            r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#.to_owned(),
        ] {
            assert_eq!(
                *conversation.record_client_line(line.as_bytes()),
                *line.as_bytes()
            );
        }
        conversation.record_kernel_line(
            format!(r#"{{"jsonrpc":"2.0","id":4,"result":{{"id":1,"t":"{long}"}}}}"#).as_bytes(),
        );
        conversation.forget_line(br#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#);
        let lost = conversation.take_lost();
        assert_eq!(ids(&lost.client_requests), [r#""b""#, "1", "3", "7"]);
        assert_eq!(conversation.take_lost(), LostRequests::default());
    }

    /// Point 4: an answer to a lost kernel reaches no other kernel, whatever that one asks.
    #[test]
    fn answers_to_a_lost_kernel_are_dropped() {
        let mut conversation = ConversationState::default();
        let ask = |id: u8| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#);
        let answer = |id: u8| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        for id in 1..=4 {
            conversation.record_kernel_line(ask(id).as_bytes());
        }
        let passes = |conversation: &mut ConversationState, line: &str| {
            *conversation.record_client_line(line.as_bytes()) == *line.as_bytes()
        };
        assert!(passes(&mut conversation, &answer(1)));
        let taken_back =
            br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#;
        conversation.record_kernel_line(taken_back);
        assert_eq!(ids(&conversation.take_lost().kernel_requests), ["2", "3"]);
        conversation.record_kernel_line(ask(2).as_bytes());
        conversation.record_kernel_line(
            &String::from_utf8_lossy(taken_back)
                .replace('4', "3")
                .into_bytes(),
        );
        for _ in 0..2 {
            assert!(
                conversation
                    .record_client_line(answer(2).as_bytes())
                    .is_empty()
            );
            assert!(
                conversation
                    .record_client_line(answer(3).as_bytes())
                    .is_empty()
            );
        }
        conversation.record_kernel_line(ask(5).as_bytes());
        assert!(passes(&mut conversation, &answer(5)));
        assert!(
            passes(&mut conversation, &answer(9)),
            "an unknown one is the kernel's to judge"
        );
    }

    /// Point 4: the same for answers in a batch, and answers that could not be written to their own kernel.
    #[test]
    fn stale_answers_are_removed_from_batches() {
        let mut conversation = ConversationState::default();
        let answer = |id: u8| format!(r#"{{"id": {id},"result":{{}}}}"#);
        for id in 1..=2 {
            conversation.record_kernel_line(format!(r#"{{"id":{id},"method":"ping"}}"#).as_bytes());
        }
        conversation.record_client_line(answer(2).as_bytes());
        conversation.forget_line(format!("[{}]\n", answer(2)).as_bytes());
        conversation.take_lost();
        let ping = r#"{"id":7,"method":"ping"}"#;
        let all = format!("[{}, {ping} ,{},{}]\n", answer(1), answer(2), answer(3));
        let kept = format!("[{ping},{}]\n", answer(3));
        assert_eq!(
            *conversation.record_client_line(all.as_bytes()),
            *kept.as_bytes()
        );
        assert!(
            conversation
                .record_client_line(format!(" [{}]\n", answer(1)).as_bytes())
                .is_empty()
        );
        assert_eq!(*conversation.record_client_line(b"[]\n"), *b"[]\n");
        assert_eq!(ids(&conversation.take_lost().client_requests), ["7"]);
    }

    #[test]
    fn conversations_beyond_the_limits_are_not_resumed() {
        let mut conversation = ConversationState::default();
        for id in 0..=REQUESTS_MAX {
            assert!(conversation.handshake().is_some(), "{id}");
            conversation.record_client_line(format!(r#"{{"id":{id},"method":"ping"}}"#).as_bytes());
        }
        assert!(conversation.handshake().is_none());
    }
}
