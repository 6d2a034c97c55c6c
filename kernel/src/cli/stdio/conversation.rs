//! What has to be known of a conversation to take it up at another kernel: what is under way, and how it
//! was opened.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use mgp_protocol::jsonrpc::partial_message::{self, PartialMessage};
use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::mcp::{self, Method};
use serde_json::value::RawValue;

use super::handshake::Handshake;

/// Requests each way that are remembered: four times what the kernel lets one client have under way.
const REQUESTS_MAX: usize = 4096;
/// Longest id that is remembered, in bytes: a UUID in quotes has 38.
const ID_BYTES_MAX: usize = 256;
/// How much of a longer line is looked at from its start, in bytes. What clients write before the
/// arguments is shorter.
const HEAD_BYTES: usize = 256;
/// How much is looked at from its end, in bytes: some clients write the id last.
const TAIL_BYTES: usize = 96;

/// What is under way, and how the conversation was opened.
#[derive(Default)]
pub(super) struct ConversationState {
    /// Requests of the client without an answer.
    client_requests: HashSet<RequestId>,
    /// Requests of the kernel without an answer; true of those whose kernel has gone, ever after.
    kernel_requests: HashMap<RequestId, bool>,
    handshake: Handshake,
    /// More than is remembered: the conversation cannot be taken up.
    has_overflowed: bool,
}

/// What a kernel that went away leaves open.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LostRequests {
    /// Requests of the client, of which nobody knows whether they were carried out.
    pub(super) client_requests: Vec<RequestId>,
    /// Requests of the kernel, whose answers nobody waits for.
    pub(super) kernel_requests: Vec<RequestId>,
}

impl ConversationState {
    /// Notes a line of the client that is about to be written; gives what is to be written of it, all
    /// but the answers that nobody waits for any more.
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

    /// Notes one message of the client. False of an answer that nobody waits for any more.
    fn record_client_message(&mut self, line: &[u8]) -> bool {
        let seen = peek(line);
        let id = seen.id();
        if seen.is_response() {
            return id.is_none_or(|id| self.record_client_response(&id));
        }
        match (seen.method(), id) {
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

    /// Notes an answer of the client. False when nobody waits for it any more.
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

    /// A batch (2025-03-26), without the stale ones among its messages.
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

    /// A line that was noted could not be written, and will be again. An answer is not: who asked has
    /// gone.
    pub(super) fn forget_line(&mut self, line: &[u8]) {
        match jsonrpc::split_batch(line) {
            Some(all) => all
                .iter()
                .for_each(|one| self.forget_message(one.get().as_bytes())),
            None => self.forget_message(line),
        }
    }

    fn forget_message(&mut self, line: &[u8]) {
        let seen = peek(line);
        let Some(id) = seen.id() else { return };
        if seen.has_method() {
            self.client_requests.remove(&id);
            self.handshake.forget(&id);
        } else if seen.is_response() {
            self.record_kernel_request(id, true);
        }
    }

    /// Notes a question of the kernel. One that is stale stays so.
    fn record_kernel_request(&mut self, id: RequestId, stale: bool) {
        self.has_overflowed |= self.kernel_requests.len() >= REQUESTS_MAX;
        if !self.has_overflowed {
            *self.kernel_requests.entry(id).or_default() |= stale;
        }
    }

    /// Notes a line of the kernel.
    pub(super) fn record_kernel_line(&mut self, line: &[u8]) {
        let seen = peek(line);
        match (seen.id(), seen.is_response()) {
            (Some(id), true) => {
                self.client_requests.remove(&id);
                self.handshake.record_response(&id, line);
            }
            (Some(id), false) => {
                self.record_kernel_request(id, false);
            }
            (None, _) if seen.method() == Some(mcp::Cancelled::METHOD) => {
                if let Some(id) = cancelled_request(line) {
                    // What was taken back is not waited for, as what was answered.
                    self.record_client_response(&id);
                }
            }
            (None, _) => {}
        }
    }

    /// The kernel has gone: what stays open. An `initialize` without an answer does not: it is said
    /// again.
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

    /// No kernel is looked for any more: the requests that still wait for one.
    pub(super) fn take_pending(&mut self) -> Vec<RequestId> {
        self.client_requests.drain().collect()
    }

    /// How the conversation was opened; `None` when not enough of it is remembered.
    pub(super) fn handshake(&self) -> Option<Handshake> {
        (!self.has_overflowed).then(|| self.handshake.clone())
    }

    /// The ids of the requests in some lines.
    pub(super) fn request_ids<'a>(
        lines: impl Iterator<Item = &'a [u8]>,
    ) -> impl Iterator<Item = RequestId> {
        lines.filter_map(|line| {
            let seen = peek(line);
            seen.id().filter(|_| seen.has_method())
        })
    }
}

/// What a line is. One that is long is looked at from both ends, and as a whole only where neither tells
/// whose it is.
fn peek(line: &[u8]) -> PartialMessage {
    if line.len() <= HEAD_BYTES + TAIL_BYTES {
        return PartialMessage::scan(line);
    }
    let seen = PartialMessage::scan(&line[..HEAD_BYTES]);
    if seen.id().is_some() {
        return seen;
    }
    match partial_message::find_trailing_id(&line[line.len() - TAIL_BYTES..]) {
        Some(id) => seen.with_id(id),
        None => PartialMessage::scan(line),
    }
}

/// The request that a `notifications/cancelled` takes back.
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

    /// Point 4: what has no answer is lost, wherever its id stands; what has one, or was taken back, is
    /// not.
    #[test]
    fn requests_without_an_answer_are_known() {
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

    /// Point 4: an answer to a question of a kernel that has gone reaches no other kernel, whatever that
    /// one asks.
    #[test]
    fn answers_to_a_kernel_that_has_gone_are_dropped() {
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

    /// Point 4: nor does one in a batch, or one that could not be written to its own kernel.
    #[test]
    fn stale_answers_are_taken_out_of_a_batch() {
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
    fn more_than_is_remembered_is_not_taken_up() {
        let mut conversation = ConversationState::default();
        for id in 0..=REQUESTS_MAX {
            assert!(conversation.handshake().is_some(), "{id}");
            conversation.record_client_line(format!(r#"{{"id":{id},"method":"ping"}}"#).as_bytes());
        }
        assert!(conversation.handshake().is_none());
    }
}
