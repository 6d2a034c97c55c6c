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
                let words = "a server of 2026-07-28 asks with `input_required`";
                self.reply(&id, &callback::rejection(METHOD_NOT_FOUND, words));
            }
            return;
        }
        match find_method(method).filter(|(needs, _)| self.has_negotiated(*needs)) {
            Some((_, MethodHandler::Request(take))) => take(self, id, params),
            Some((_, MethodHandler::ClientCallback(asked))) => {
                self.handle_callback(id, asked, params, via);
            }
            // The kernel does not have the methods of extensions that were not negotiated.
            Some((_, MethodHandler::Notification(_))) | None => {
                let words = format!("Method not found: {method}");
                self.reply(&id, &callback::rejection(METHOD_NOT_FOUND, &words));
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
        asked: Callback,
        params: Option<&str>,
        via: Option<u64>,
    ) {
        if self.peer_for(ProtocolFamily::Legacy).is_none() {
            let words = "only ping may be asked before `notifications/initialized`";
            return self.reply(&id, &callback::rejection(INVALID_REQUEST, words));
        }
        let method = asked.method();
        if self.is_forbidden(method) {
            let words = format!("{method} is switched off for this server");
            return self.reply(&id, &callback::rejection(METHOD_NOT_FOUND, &words));
        }
        let source = match self.callback_source(asked, params, via) {
            Ok(source) => source,
            Err(refusal) => return self.reply(&id, &refusal_answer(&refusal)),
        };
        let (link, params) = (self.clone(), params.map(str::to_owned));
        self.spawn_answer(id, async move {
            link.ask_originating_client(asked, params.as_deref(), &source)
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
            let asked = |reply| LinkEvent::PermissionRequested(ask, reply);
            match link.ask_supervisor(asked).await {
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
        let asked = match mcp::parse_params::<Replay>(params) {
            Ok(asked) => asked,
            Err(refusal) => return self.reply(&id, &refusal_answer(&refusal)),
        };
        let link = self.clone();
        self.spawn_answer(id, async move {
            let asked = |reply| LinkEvent::ReplayRequested(asked, reply);
            match link.ask_supervisor(asked).await {
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
            let words = format!("{MAX_CALLBACKS} questions are open already, or one with this id");
            return self.reply(&id, &callback::rejection(INTERNAL_ERROR, &words));
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
            Some(era) => era == ProtocolFamily::Stateless,
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
        let mut it = ScriptedServer::legacy("{}");
        it.serialize_calls().await;
        let (first, suspended) = it.call(1);
        it.next_message().await;
        it.request_form("one");
        let attempts = first.rounds().unwrap();
        attempts.wait_for_callbacks().await;
        attempts.suspend(true);
        // Another call of the same client starts and ends.
        let (_, quick) = it.call(1);
        let request = it.next_message().await;
        it.answer(&request, "result", &json!({}));
        quick.await.unwrap().unwrap();
        let (second, calling) = it.call(2);
        let soon = tokio::time::timeout(Duration::from_secs(1), it.next_message());
        let request = soon.await.expect("its client rests, so others may go in");
        it.request_form("two");
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
        let mut message = it.next_message().await;
        while message["id"] != "two" {
            message = it.next_message().await;
        }
        assert_eq!(message["result"]["action"], "decline");
        it.answer(&request, "result", &json!({}));
        calling.await.unwrap().unwrap();
    }

    /// MCP 2026-07-28: a callback has no `elicitationId` and no progress token; the answer is converted to the
    /// server's version, or the server gets an error if that is impossible.
    #[tokio::test(start_paused = true)]
    async fn callbacks_and_answers_are_converted_between_families() {
        let mut it = ScriptedServer::with_handshake(Version::V2025_06_18, "{}");
        let (exchange, _calling) = it.call(1);
        it.next_message().await;
        let attempts = exchange.rounds().unwrap();
        let url = json!({"mode": "url", "message": "go", "url": "https://a.example/",
            "elicitationId": "e1", "_meta": {"progressToken": 7}});
        it.send(&json!({"jsonrpc": "2.0", "id": "visit", "method": "elicitation/create", "params": url}));
        attempts.wait_for_callbacks().await;
        let asked = attempts.input_requests();
        assert!(asked.contains("https://a.example/"), "{asked}");
        assert!(!asked.contains("elicitationId"), "{asked}");
        assert!(!asked.contains("progressToken"), "{asked}");
        attempts.answer(r#"{"elicitation-1":{"action":"accept"}}"#);
        assert_eq!(it.next_message().await["result"]["action"], "accept");
        let text = json!({"type": "text", "text": "4"});
        let one = json!([text]);
        let two = json!([text, text]);
        for (number, blocks) in [(2, &one), (3, &two)] {
            let params = json!({"messages": [], "maxTokens": 1});
            let method = "sampling/createMessage";
            it.send(&json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params}));
            attempts.wait_for_callbacks().await;
            let said = json!({"role": "assistant", "model": "m", "content": blocks});
            let key = format!("sampling-{number}");
            attempts.answer(&json!({ key: said }).to_string());
            let heard = it.next_message().await;
            if blocks == &one {
                assert_eq!(heard["result"]["content"], text)
            } else {
                assert_eq!(heard["error"]["code"], INTERNAL_ERROR, "{heard}")
            }
        }
    }

    /// MCP 2026-07-28, stdio: a server sends no requests; one that does gets an error at once.
    #[tokio::test]
    async fn stateless_server_may_not_send_requests() {
        let mut it = ScriptedServer::stateless("{}");
        for method in ["roots/list", "ping", "elicitation/create"] {
            it.send(&json!({"jsonrpc": "2.0", "id": "q", "method": method}));
            let answer = it.next_message().await;
            assert_eq!(answer["id"], "q");
            assert_eq!(answer["error"]["code"], -32601, "{method}");
        }
        let mut legacy = ScriptedServer::new();
        legacy.send(&json!({"jsonrpc": "2.0", "id": "q", "method": "ping"}));
        assert_eq!(legacy.next_message().await["result"], json!({}));
    }
}
