//! Callbacks that agents have not answered yet: only the recipient may answer, once, and before the deadline.

use std::collections::{HashMap, VecDeque};

use mgp_protocol::ids::ConnectionId;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mgp::callback::{PendingCallback, PendingCallbacks};

use super::form::{CallbackAnswer, CallbackForm, FormError};
use crate::clock::MonotonicTime;

/// Open callbacks of one client; a person answers one at a time.
const PER_CLIENT_MAX: usize = 64;
/// Callbacks of all clients.
const TOTAL_MAX: usize = 4096;
/// Closed ids that are remembered, so that a late answer gets a reason. The oldest are forgotten and then unknown.
const CLOSED_MAX: usize = 1024;
/// Longest cascade: a program handles a callback, its call causes another one, and so on. Later drafts set this depth
/// for events.
const DEPTH_MAX: usize = 10;
/// Bytes of a message that are stored for listing.
const MESSAGE_MAX: usize = 4096;

/// A callback that was sent to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCallback {
    /// The recipient.
    pub client: ConnectionId,
    /// The call it belongs to: the connection of its caller, and when the call began.
    pub origin_call: (ConnectionId, MonotonicTime),
    /// The accepted answers.
    pub form: CallbackForm,
    /// A program answers it and may make calls for that: a completion, or a request from another agent. A callback
    /// that a person answers does not extend a cascade.
    pub cascades: bool,
    /// The requester, as the client sees it.
    pub requester: String,
    /// The client's own id of the call.
    pub request_id: Option<RequestId>,
    /// The text of the callback.
    pub message: String,
    /// When it was opened.
    pub opened_at: MonotonicTime,
    /// When it expires.
    pub expires_at: MonotonicTime,
}

/// A limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenCallbackError {
    /// Too many open callbacks.
    #[error("{PER_CLIENT_MAX} callbacks wait for this client already, or {TOTAL_MAX} for all")]
    TooMany,
    /// The cascade would exceed [`DEPTH_MAX`].
    #[error(
        "{DEPTH_MAX} callbacks wait for one another's calls already: a cascade goes no further"
    )]
    TooDeep,
}

/// Why an answer is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// This client has no callback with that id.
    #[error(
        "no callback of that id waits for you; `mgp/events/pending_callbacks` lists those that do"
    )]
    Unknown,
    /// It was answered before.
    #[error("this callback was answered already, and is answered once only")]
    Answered,
    /// It has expired.
    #[error(
        "this callback waited for {waited_ms} ms, and its time is over: the server goes on without"
    )]
    TooLate {
        /// How long it waited.
        waited_ms: u64,
    },
    /// Its call has ended.
    #[error("the call in which this callback was asked is over")]
    CallEnded,
    /// The answer is invalid; the callback stays open.
    #[error("{0}")]
    Invalid(FormError),
}

/// How a callback ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ClosedCallback {
    id: String,
    client: ConnectionId,
    outcome: ResponseError,
}

/// The open callbacks of all clients.
#[derive(Debug, Default)]
pub struct OpenCallbacks {
    open: HashMap<String, OpenCallback>,
    /// The cascade depth of the callbacks that cascade, by id.
    depths: HashMap<String, usize>,
    closed: VecDeque<ClosedCallback>,
}

impl OpenCallbacks {
    /// Opens a callback to a client; `id` must be new and hard to guess.
    ///
    /// # Errors
    /// [`OpenCallbackError`].
    pub fn open(&mut self, id: &str, mut callback: OpenCallback) -> Result<(), OpenCallbackError> {
        let entries = self.open.values();
        let entries = entries
            .filter(|open| open.client == callback.client)
            .count();
        if entries >= PER_CLIENT_MAX || self.open.len() >= TOTAL_MAX {
            return Err(OpenCallbackError::TooMany);
        }
        if callback.cascades {
            let depth = self.cascade_depth(&callback);
            if depth > DEPTH_MAX {
                return Err(OpenCallbackError::TooDeep);
            }
            self.depths.insert(id.to_owned(), depth);
        }
        truncate_message(&mut callback.message);
        self.open.insert(id.to_owned(), callback);
        Ok(())
    }

    /// The cascade depth with this callback. It is not known which of its callbacks a client works on when it makes a
    /// call, so the deepest one open at that time counts.
    fn cascade_depth(&self, callback: &OpenCallback) -> usize {
        let (client, began) = callback.origin_call;
        let before = self.depths.iter().filter_map(|(id, depth)| {
            let open = self.open.get(id)?;
            (open.client == client && open.opened_at <= began).then_some(*depth)
        });
        1 + before.max().unwrap_or(0)
    }

    /// Accepts the answer of a client as JSON text and closes the callback.
    ///
    /// # Errors
    /// [`ResponseError`]; a callback to another client is unknown.
    pub fn respond(
        &mut self,
        id: &str,
        party: ConnectionId,
        response: &str,
        now: MonotonicTime,
    ) -> Result<(OpenCallback, CallbackAnswer), ResponseError> {
        let Some(open) = self.open.get(id).filter(|open| open.client == party) else {
            return Err(self.response_error(id, party));
        };
        if now >= open.expires_at {
            self.close(id, now);
            return Err(self.response_error(id, party));
        }
        let answer = open
            .form
            .parse_response(response)
            .map_err(ResponseError::Invalid)?;
        let open = self.take(id).ok_or(ResponseError::Unknown)?;
        self.record_closed(id, party, ResponseError::Answered);
        Ok((open, answer))
    }

    /// Closes a callback that needs no answer any more, because its call ended or its time expired.
    pub fn close(&mut self, id: &str, now: MonotonicTime) {
        if let Some(open) = self.take(id) {
            let waited = open.expires_at.duration_since(open.opened_at).as_millis();
            let end = if now >= open.expires_at {
                ResponseError::TooLate {
                    waited_ms: u64::try_from(waited).unwrap_or(u64::MAX),
                }
            } else {
                ResponseError::CallEnded
            };
            self.record_closed(id, open.client, end);
        }
    }

    /// The open callbacks of this client.
    #[must_use]
    pub fn pending(&self, party: ConnectionId, now: MonotonicTime) -> PendingCallbacks {
        let entries = self.open.iter();
        let entries = entries.filter(|(_, open)| open.client == party && open.expires_at > now);
        let mut pending: Vec<PendingCallback> = entries
            .map(|(id, it)| to_pending_callback(id, it, now))
            .collect();
        pending.sort_by(|a, b| (b.age_secs, &a.callback_id).cmp(&(a.age_secs, &b.callback_id)));
        PendingCallbacks {
            count: pending.len(),
            pending,
        }
    }

    fn take(&mut self, id: &str) -> Option<OpenCallback> {
        self.depths.remove(id);
        self.open.remove(id)
    }

    fn response_error(&self, id: &str, party: ConnectionId) -> ResponseError {
        let mut closed = self.closed.iter();
        let closed = closed.find(|closed| closed.id == id && closed.client == party);
        closed.map_or(ResponseError::Unknown, |closed| closed.outcome.clone())
    }

    fn record_closed(&mut self, id: &str, party: ConnectionId, end: ResponseError) {
        if self.closed.len() == CLOSED_MAX {
            self.closed.pop_front();
        }
        let id = id.to_owned();
        self.closed.push_back(ClosedCallback {
            id,
            client: party,
            outcome: end,
        });
    }
}

fn to_pending_callback(id: &str, open: &OpenCallback, now: MonotonicTime) -> PendingCallback {
    PendingCallback {
        callback_id: id.to_owned(),
        server_id: open.requester.clone(),
        request_id: open.request_id.clone(),
        kind: open.form.kind(),
        message: open.message.clone(),
        options: open.form.options().to_vec(),
        age_secs: now.duration_since(open.opened_at).as_secs(),
        remaining_ms: u64::try_from(open.expires_at.duration_since(now).as_millis())
            .unwrap_or(u64::MAX),
    }
}

fn truncate_message(text: &mut String) {
    if text.len() > MESSAGE_MAX {
        let end = (0..=MESSAGE_MAX)
            .rev()
            .find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgp_protocol::mgp::callback::CallbackKind;
    use proptest::prelude::*;
    use std::time::Duration;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    fn at(ms: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_millis(ms))
    }

    fn callback(party: ConnectionId, since: u64, until: u64) -> OpenCallback {
        OpenCallback {
            client: party,
            origin_call: (party, at(since)),
            form: CallbackForm::new(CallbackKind::Confirmation, None).unwrap(),
            cascades: false,
            requester: "it".into(),
            request_id: RequestId::from_json("\"a-7\""),
            message: "go on?".into(),
            opened_at: at(since),
            expires_at: at(until),
        }
    }

    const YES: &str = "\"confirm\"";

    /// MGP-176, MGP-183: for others the id is unknown.
    #[test]
    fn only_the_recipient_answers_and_only_once() {
        let mut open = OpenCallbacks::default();
        open.open("k", callback(A, 0, 100)).unwrap();
        assert_eq!(
            open.respond("k", B, YES, at(1)),
            Err(ResponseError::Unknown)
        );
        assert_eq!(
            open.respond("x", A, YES, at(1)),
            Err(ResponseError::Unknown)
        );
        let unfit = open.respond("k", A, "\"maybe\"", at(1)).unwrap_err();
        assert!(matches!(unfit, ResponseError::Invalid(_)), "{unfit}");
        let (_, said) = open.respond("k", A, YES, at(2)).unwrap();
        assert_eq!(said, CallbackAnswer::Response(YES.into()));
        assert_eq!(
            open.respond("k", A, YES, at(3)),
            Err(ResponseError::Answered)
        );
        assert_eq!(
            open.respond("k", B, YES, at(3)),
            Err(ResponseError::Unknown)
        );
    }

    /// MGP-181: even before the timeout is handled.
    #[test]
    fn a_late_answer_is_rejected() {
        let late = Err(ResponseError::TooLate { waited_ms: 90 });
        let mut open = OpenCallbacks::default();
        for id in ["a", "b", "c"] {
            open.open(id, callback(A, 10, 100)).unwrap();
        }
        assert!(open.respond("a", A, YES, at(99)).is_ok());
        assert_eq!(open.respond("b", A, YES, at(100)), late);
        open.close("c", at(100));
        assert_eq!(open.respond("c", A, YES, at(20)), late);
        open.open("d", callback(A, 10, 100)).unwrap();
        open.close("d", at(50));
        assert_eq!(
            open.respond("d", A, YES, at(60)),
            Err(ResponseError::CallEnded)
        );
    }

    /// Only its own, oldest first.
    #[test]
    fn a_client_lists_its_pending_callbacks() {
        let mut open = OpenCallbacks::default();
        open.open("new", callback(A, 3_000, 9_000)).unwrap();
        open.open("old", callback(A, 1_000, 9_000)).unwrap();
        open.open("others", callback(B, 0, 9_000)).unwrap();
        open.open("over", callback(A, 0, 4_000)).unwrap();
        let seen = open.pending(A, at(4_000));
        assert_eq!(seen.count, 2);
        let first = &seen.pending[0];
        assert_eq!((first.callback_id.as_str(), first.age_secs), ("old", 3));
        assert_eq!(first.request_id, RequestId::from_json("\"a-7\""));
        assert_eq!(first.remaining_ms, 5_000);
        assert_eq!(seen.pending[1].callback_id, "new");
    }

    /// Later drafts, 13.8: earlier calls, and callbacks answered by persons, do not count.
    #[test]
    fn a_cascade_is_bounded() {
        let depth = u64::try_from(DEPTH_MAX).unwrap();
        let asked = |party, began: u64, since: u64| OpenCallback {
            origin_call: (party, at(began)),
            cascades: true,
            ..callback(party, since, 1000)
        };
        let mut open = OpenCallbacks::default();
        for n in 0..3 * depth {
            open.open(&format!("call {n}"), asked(B, 0, n + 1)).unwrap();
            open.open(&format!("person {n}"), callback(B, n, 1000))
                .unwrap();
        }
        for n in 0..depth {
            open.open(&n.to_string(), asked(A, 10 * n, 10 * n + 5))
                .unwrap();
        }
        let more = || asked(A, 10 * depth, 10 * depth + 5);
        assert_eq!(open.open("more", more()), Err(OpenCallbackError::TooDeep));
        let other = OpenCallback {
            client: B,
            ..more()
        };
        assert_eq!(open.open("of A", other), Err(OpenCallbackError::TooDeep));
        open.open("person", callback(A, 200, 1000)).unwrap();
        open.close("5", at(201));
        assert_eq!(open.open("more", more()), Err(OpenCallbackError::TooDeep));
        let last = (depth - 1).to_string();
        open.respond(&last, A, YES, at(202)).unwrap();
        open.open("more", more()).unwrap();
        assert_eq!(
            open.depths.len(),
            open.open.values().filter(|it| it.cascades).count()
        );
    }

    #[test]
    fn open_callbacks_are_bounded() {
        let mut open = OpenCallbacks::default();
        for n in 0..PER_CLIENT_MAX {
            let mut long = callback(A, 0, 9);
            long.message = "ä".repeat(MESSAGE_MAX);
            open.open(&n.to_string(), long).unwrap();
        }
        assert_eq!(
            open.open("more", callback(A, 0, 9)),
            Err(OpenCallbackError::TooMany)
        );
        assert!(open.pending(A, at(0)).pending[0].message.len() < MESSAGE_MAX + 8);
        let mut client = 2;
        while open
            .open(
                &format!("of {client}"),
                callback(ConnectionId(client), 0, 9),
            )
            .is_ok()
        {
            client += 1;
        }
        assert_eq!(open.open.len(), TOTAL_MAX);
        for n in 0..PER_CLIENT_MAX {
            open.close(&n.to_string(), at(1));
        }
        assert_eq!(
            open.respond("0", A, YES, at(2)),
            Err(ResponseError::CallEnded)
        );
        for n in 0..CLOSED_MAX {
            open.open("k", callback(A, 0, 9)).unwrap();
            open.close("k", at(u64::try_from(n).unwrap()));
        }
        assert_eq!(
            open.respond("0", A, YES, at(2)),
            Err(ResponseError::Unknown)
        );
    }

    proptest! {
        /// Only the first answer of the recipient before the deadline is accepted.
        #[test]
        fn open_callbacks_behave_like_a_simple_model(
            steps in proptest::collection::vec((0u8..3, 0u64..3, 0u64..2, 1u64..20), 0..60)
        ) {
            let mut open = OpenCallbacks::default();
            let mut model: HashMap<String, (ConnectionId, u64)> = HashMap::new();
            let mut asked = 0;
            for (now, (step, pick, party, lasts)) in (0..).zip(steps) {
                let party = ConnectionId(party);
                let id = pick.min(asked).to_string();
                match step {
                    0 => {
                        asked += 1;
                        let id = asked.to_string();
                        let until = now + lasts;
                        open.open(&id, callback(party, now, until)).unwrap();
                        model.insert(id, (party, until));
                    }
                    1 => {
                        let may = model.get(&id);
                        let may = may.is_some_and(|(of, until)| *of == party && now < *until);
                        let taken = open.respond(&id, party, YES, at(now));
                        prop_assert_eq!(taken.is_ok(), may);
                        if may {
                            model.remove(&id);
                        }
                    }
                    _ => {
                        open.close(&id, at(now));
                        model.remove(&id);
                    }
                }
                let entries = model.values().filter(|(of, until)| *of == party && now < *until);
                prop_assert_eq!(open.pending(party, at(now)).count, entries.count());
            }
        }
    }
}
