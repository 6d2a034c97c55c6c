//! Requests from a server: the kernel answers pings; callbacks go to the client whose call caused them.

use std::future::Future;
use std::sync::Arc;

use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc::{
    self, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Malformed, RequestId,
};
use mgp_protocol::mcp;
use mgp_protocol::mgp::audit::Replay;
use mgp_protocol::mgp::permission;
use mgp_protocol::refusal::Refusal;

use crate::link::callback::{self, MAX_CALLBACKS};
use crate::link::server_methods::{Callback, MethodHandler, find_method};
use crate::link::{Link, LinkEvent, Wire};
use mgp_callers::agent::CallbackResult;
use mgp_runtime::task::{self, TaskError};

/// The error for a callback whose answer was lost within the kernel.
const LOST_ANSWER_MESSAGE: &str = "the kernel lost the answer to it";

impl Link {
    /// Handles a request.
    pub(super) fn handle_request(
        self: &Arc<Self>,
        id: RequestId,
        method: &str,
        params: Option<&str>,
        via: Option<u64>,
    ) {
        if self.is_request_forbidden(via) {
            // Over HTTP the server cannot be answered: anything POSTed to it counts as a request.
            if matches!(self.wire(), Wire::Child(_)) {
                let message = "a server of 2026-07-28 asks with `input_required`";
                self.reply(&id, &callback::rejection(METHOD_NOT_FOUND, message));
            }
            return;
        }
        match find_method(method).filter(|(needs, _)| self.has_negotiated(*needs)) {
            Some((_, MethodHandler::Request(take))) => take(self, id, params),
            Some((_, MethodHandler::ClientCallback(callback))) => {
                self.handle_callback(id, callback, params, via);
            }
            // The kernel does not have the methods of extensions that were not negotiated.
            Some((_, MethodHandler::Notification(_))) | None => {
                let message = format!("Method not found: {method}");
                self.reply(&id, &callback::rejection(METHOD_NOT_FOUND, &message));
            }
        }
    }

    pub(in crate::link) fn handle_ping(self: &Arc<Self>, id: &RequestId) {
        self.reply(id, &Ok(bytes::Bytes::from_static(b"{}")));
    }

    /// Forwards a callback to the client whose call caused it.
    fn handle_callback(
        self: &Arc<Self>,
        id: RequestId,
        callback: Callback,
        params: Option<&str>,
        via: Option<u64>,
    ) {
        if self.peer_for(ProtocolFamily::Legacy).is_none() {
            let message = "only ping may be asked before `notifications/initialized`";
            return self.reply(&id, &callback::rejection(INVALID_REQUEST, message));
        }
        let method = callback.method();
        if self.is_forbidden(method) {
            let message = format!("{method} is switched off for this server");
            return self.reply(&id, &callback::rejection(METHOD_NOT_FOUND, &message));
        }
        let source = match self.callback_source(callback, params, via) {
            Ok(source) => source,
            Err(refusal) => return self.reply(&id, &refusal_answer(&refusal)),
        };
        let (link, params) = (self.clone(), params.map(str::to_owned));
        self.spawn_answer(id, async move {
            link.ask_originating_client(callback, params.as_deref(), &source)
                .await
        });
    }

    /// Handles a permission request; it is answered when the operator decides, however long that takes.
    pub(in crate::link) fn handle_permission_request(
        self: &Arc<Self>,
        id: RequestId,
        params: Option<&str>,
    ) {
        let ask = match mcp::parse_params::<permission::Request>(params) {
            Ok(permission::Request(ask)) => ask,
            Err(refusal) => return self.reply(&id, &refusal_answer(&refusal)),
        };
        let link = self.clone();
        self.spawn_answer(id, async move {
            let event = |reply| LinkEvent::PermissionRequested(ask, reply);
            match link.ask_supervisor(event).await {
                Some(decision) => Ok(serialize_answer(&decision)),
                None => callback::rejection(INTERNAL_ERROR, LOST_ANSWER_MESSAGE),
            }
        });
    }

    /// Handles an audit server's request for events that it missed.
    pub(in crate::link) fn handle_replay_request(
        self: &Arc<Self>,
        id: RequestId,
        params: Option<&str>,
    ) {
        let replay = match mcp::parse_params::<Replay>(params) {
            Ok(replay) => replay,
            Err(refusal) => return self.reply(&id, &refusal_answer(&refusal)),
        };
        let link = self.clone();
        self.spawn_answer(id, async move {
            let event = |reply| LinkEvent::ReplayRequested(replay, reply);
            match link.ask_supervisor(event).await {
                Some(Ok(replayed)) => Ok(serialize_answer(&replayed)),
                Some(Err(refusal)) => callback::rejection(INTERNAL_ERROR, &refusal.to_string()),
                None => callback::rejection(INTERNAL_ERROR, LOST_ANSWER_MESSAGE),
            }
        });
    }

    /// Answers a request later, unless the server cancels it.
    fn spawn_answer(
        self: &Arc<Self>,
        id: RequestId,
        answer: impl Future<Output = CallbackResult> + Send + 'static,
    ) {
        let Some(withdrawn) = self.open_callbacks.register(&id) else {
            let message =
                format!("{MAX_CALLBACKS} callbacks are open already, or one with this id");
            return self.reply(&id, &callback::rejection(INTERNAL_ERROR, &message));
        };
        let link = self.clone();
        task::spawn_detached("link.request", async move {
            let answer = task::catch_panic("link.answer", answer);
            tokio::select! {
                answer = answer => {
                    let broken = |broken: TaskError| callback::rejection(INTERNAL_ERROR, &broken.to_string());
                    let answer = answer.unwrap_or_else(broken);
                    if link.open_callbacks.remove(&id) {
                        link.reply(&id, &answer);
                    }
                }
                () = withdrawn.wait_until_raised() => {
                    link.open_callbacks.remove(&id);
                }
                // A request received after the end of the connection is never cancelled.
                () = link.wait_until_closed() => {
                    link.open_callbacks.remove(&id);
                }
            }
        });
    }

    /// True where servers may send no requests: on the stream of a stateless call, and on the connection of a
    /// server that is only stateless.
    fn is_request_forbidden(&self, via: Option<u64>) -> bool {
        match via.and_then(|id| self.pending.inspect(id, |call| call.family)) {
            Some(family) => family == ProtocolFamily::Stateless,
            None => {
                self.peer_for(ProtocolFamily::Stateless).is_some()
                    && self.peer_for(ProtocolFamily::Legacy).is_none()
            }
        }
    }

    /// Rejects a request whose params are not an object.
    pub(super) fn reject_params(self: &Arc<Self>, id: &RequestId, via: Option<u64>) {
        if self.is_request_forbidden(via) && !matches!(self.wire(), Wire::Child(_)) {
            return;
        }
        let why = Malformed::BadParams { id: id.clone() };
        self.reply(id, &callback::rejection(INVALID_PARAMS, &why.to_string()));
    }

    pub(super) fn reply(self: &Arc<Self>, id: &RequestId, answer: &CallbackResult) {
        let text = |bytes: &bytes::Bytes| String::from_utf8_lossy(bytes).into_owned();
        let frame = match answer {
            Ok(result) => jsonrpc::result(id.as_json(), &text(result)),
            Err(error) => jsonrpc::error(id.as_json(), &text(error)),
        };
        self.wire().send_message(self, frame.into());
    }
}

fn refusal_answer(refusal: &Refusal) -> CallbackResult {
    callback::rejection(INVALID_PARAMS, &refusal.to_string())
}

fn serialize_answer(answer: &impl serde::Serialize) -> bytes::Bytes {
    let text = serde_json::to_vec(answer).expect("what the kernel says is always JSON");
    text.into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use mgp_protocol::dialect::Version;
    use serde_json::json;

    use crate::link::scripted::ScriptedServer;

    /// Decisions 2 and 10: a suspended call does not block other clients; an ambiguous callback waits, and is
    /// sent when the suspended call's time is over.
    #[tokio::test(start_paused = true)]
    async fn suspended_call_yields_to_other_callback() {
        let mut server = ScriptedServer::legacy("{}");
        server.serialize_calls().await;
        let (first, suspended) = server.call(1);
        server.next_message().await;
        server.request_form("one");
        let attempts = first.rounds().unwrap();
        attempts.wait_for_callbacks().await;
        attempts.suspend(true);
        // Another call of the same client starts and ends.
        let (_, quick) = server.call(1);
        let request = server.next_message().await;
        server.answer(&request, "result", &json!({}));
        quick.await.unwrap().unwrap();
        let (second, calling) = server.call(2);
        let soon = tokio::time::timeout(Duration::from_secs(1), server.next_message());
        let request = soon.await.expect("its client rests, so others may go in");
        server.request_form("two");
        let seconds = second.rounds().unwrap();
        let soon = tokio::time::timeout(
            callback::SUSPENSION_HOLD - Duration::from_secs(1),
            seconds.wait_for_callbacks(),
        );
        assert!(
            soon.await.is_err(),
            "it could be the suspended call that asks"
        );
        assert!(!suspended.is_finished());
        seconds.wait_for_callbacks().await;
        assert!(seconds.input_requests().contains("two"));
        assert!(!attempts.input_requests().contains("two"));
        suspended.await.unwrap().unwrap_err();
        seconds.answer(r#"{"elicitation-1":{"action":"decline"}}"#);
        let mut message = server.next_message().await;
        while message["id"] != "two" {
            message = server.next_message().await;
        }
        assert_eq!(message["result"]["action"], "decline");
        server.answer(&request, "result", &json!({}));
        calling.await.unwrap().unwrap();
    }

    /// MCP 2026-07-28: a callback has no `elicitationId` and no progress token; the answer is converted to the
    /// server's version, or the server gets an error if that is impossible.
    #[tokio::test(start_paused = true)]
    async fn callbacks_and_answers_are_converted_between_families() {
        let mut server = ScriptedServer::with_handshake(Version::V2025_06_18, "{}");
        let (in_flight, _calling) = server.call(1);
        server.next_message().await;
        let attempts = in_flight.rounds().unwrap();
        let url = json!({"mode": "url", "message": "go", "url": "https://a.example/",
            "elicitationId": "e1", "_meta": {"progressToken": 7}});
        server.send(&json!({"jsonrpc": "2.0", "id": "visit", "method": "elicitation/create", "params": url}));
        attempts.wait_for_callbacks().await;
        let input_requests = attempts.input_requests();
        assert!(
            input_requests.contains("https://a.example/"),
            "{input_requests}"
        );
        assert!(
            !input_requests.contains("elicitationId"),
            "{input_requests}"
        );
        assert!(
            !input_requests.contains("progressToken"),
            "{input_requests}"
        );
        attempts.answer(r#"{"elicitation-1":{"action":"accept"}}"#);
        assert_eq!(server.next_message().await["result"]["action"], "accept");
        let text = json!({"type": "text", "text": "4"});
        let one = json!([text]);
        let two = json!([text, text]);
        for (number, blocks) in [(2, &one), (3, &two)] {
            let params = json!({"messages": [], "maxTokens": 1});
            let method = "sampling/createMessage";
            server
                .send(&json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params}));
            attempts.wait_for_callbacks().await;
            let answer = json!({"role": "assistant", "model": "m", "content": blocks});
            let key = format!("sampling-{number}");
            attempts.answer(&json!({ key: answer }).to_string());
            let response = server.next_message().await;
            if blocks == &one {
                assert_eq!(response["result"]["content"], text)
            } else {
                assert_eq!(response["error"]["code"], INTERNAL_ERROR, "{response}")
            }
        }
    }

    /// MCP 2026-07-28, stdio: a server sends no requests; one that does gets an error at once.
    #[tokio::test]
    async fn stateless_server_may_not_send_requests() {
        let mut server = ScriptedServer::stateless("{}");
        for method in ["roots/list", "ping", "elicitation/create"] {
            server.send(&json!({"jsonrpc": "2.0", "id": "q", "method": method}));
            let answer = server.next_message().await;
            assert_eq!(answer["id"], "q");
            assert_eq!(answer["error"]["code"], -32601, "{method}");
        }
        let mut legacy = ScriptedServer::new();
        legacy.send(&json!({"jsonrpc": "2.0", "id": "q", "method": "ping"}));
        assert_eq!(legacy.next_message().await["result"], json!({}));
    }
}
