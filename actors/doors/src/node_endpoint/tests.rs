//! Tests of an agent of one node that calls a server of another one, over a real link.

mod expired_lease;
mod refusals;
mod scene;

use std::time::Duration;

use bytes::Bytes;
use mgp_callers::NodeTimes;
use mgp_engine::calls::outcome::for_refusal;
use mgp_engine::cluster::routes::AttemptFailure;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::federation::assertion::AssertionId;
use mgp_protocol::federation::call::{CallHeader, CallRejection, CallTag};
use mgp_protocol::federation::hello::WireFeatures;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::owner_refusal::OwnerRefusalCause;
use mgp_protocol::refusal::{CallOutcome, Refusal};
use mgp_transports::quic::{CallFrame, CallOutput};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::scene::{TwoNodes, with_meta, within_deadline};

const TRACE: &str = "0b0e7f9c-5a4f-4a0f-9d2e-6a1b0c3d4e5f";

fn header(method: &str) -> CallHeader {
    CallHeader {
        method: method.to_owned(),
        server: Some("demo".to_owned()),
        tag: CallTag([1; 16]),
        request: 5,
        trace: TRACE.to_owned(),
        assertion: None,
        signed: None,
        has_session: false,
        hops: 1,
        left_ms: 0,
    }
}

/// The last frame that answers a call with this header.
async fn answered(nodes: &TwoNodes, header: CallHeader, params: &Value) -> CallFrame {
    let until = Instant::now() + Duration::from_secs(60);
    let params = Bytes::from(params.to_string());
    let call = nodes.peer.link.open_call(header, params, until).await;
    let (mut input, _output) = call.unwrap();
    within_deadline(input.next()).await.unwrap()
}

/// The code and the message of an error.
fn error(frame: &CallFrame) -> (i64, String) {
    let error: Value = match frame {
        CallFrame::Error(error) => serde_json::from_slice(error).unwrap(),
        CallFrame::OwnerRefusal(refusal) => serde_json::from_str(refusal.as_json()).unwrap(),
        CallFrame::Relayed(_) | CallFrame::Result(_) | CallFrame::Refused(_) => {
            panic!("{frame:?}")
        }
    };
    let words = error["message"].as_str().unwrap().to_owned();
    (error["code"].as_i64().unwrap(), words)
}

/// PRJ-014: the owner sees the agent of that node, the one server, no operator, and the trace of the call;
/// MGP reveals nothing of its kernel.
#[tokio::test]
async fn call_has_the_identity_of_the_other_nodes_agent() {
    let nodes = TwoNodes::new().await;
    let params = json!({"name": "x", "trace_id": TRACE});
    let answer = nodes.answer("tools/call", params).await.unwrap();
    assert_eq!(answer["method"], "tools/call");
    let received = nodes.played.last();
    assert_eq!(received.agent, nodes.alice());
    assert_eq!(received.agent.as_remote().unwrap().node, nodes.home);
    assert_eq!(received.view, CatalogView::One(ServerId::new("demo")));
    assert!(!received.operator);
    let of_calls = Features::STREAMING | Features::PROGRESS | Features::CALLBACKS;
    let of_calls = of_calls | Features::EVENTS;
    let of_all = Features::TOOL_SECURITY | Features::ERROR_HANDLING;
    assert_eq!(received.mgp, of_all | of_calls);
    assert_eq!(
        (&*received.trace, &received.params["name"]),
        (TRACE, &json!("x"))
    );
}

/// Decision 0069: the owner's timings are sent beside the answer, which does not contain them; impossible
/// timings are ignored.
#[tokio::test]
async fn owner_timings_are_sent_beside_the_answer() {
    let nodes = TwoNodes::new().await;
    let heard = async |times: Value, ms: u64| {
        let params = json!({"name": "timed", "arguments": times, "ms": ms});
        let (calling, _messages, exchange) = nodes.call("agent.alice", "tools/call", params);
        let answer = within_deadline(calling).await.unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer, json!({"resultType": "complete"}));
        exchange.remote_times().reported()
    };
    let reported = heard(json!({"checks": 60, "server": 1_500}), 2).await;
    let [NodeTimes { node, times }] = &*reported else {
        panic!("{reported:?}")
    };
    assert_eq!(&**node, "nas");
    assert_eq!((times.checks, times.server), (60, 1_500));
    // The total is measured at the endpoint.
    assert!(times.whole >= 2_000, "{times:?}");
    assert!(heard(json!({"server": 60_000_000}), 2).await.is_empty());
    assert!(
        heard(json!({"server": u64::MAX, "door": 2}), 2)
            .await
            .is_empty()
    );
}

/// Each method of a server is relayed with its params, and no other method is available to agents.
#[tokio::test]
async fn server_methods_are_relayed_and_kernel_methods_are_not() {
    let nodes = TwoNodes::new().await;
    let methods = [
        "server/discover",
        "tools/list",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "completion/complete",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "mgp/stream/cancel",
        "mgp/callback/respond",
        "mgp/events/subscribe",
    ];
    for method in methods {
        let answer = nodes.answer(method, json!({"of": method})).await.unwrap();
        assert_eq!(answer["method"], method);
        assert_eq!(nodes.played.last().params["of"], method);
    }
    let before = nodes.played.seen.lock().unwrap().len();
    for method in [
        "initialize",
        "mgp/kernel/stop",
        "mgp/access/grant",
        "mgp/discovery/register",
        "mgp/servers/list",
        "mgp/agent/ask",
        "mgp/tools/call",
        "mgp/events/unsubscribe",
        "mgp/events/replay",
        "mgp/events/channels",
    ] {
        let refused = nodes.answer(method, json!({})).await.unwrap_err();
        let Refusal::Owner(refusal) = &refused else {
            panic!("{method}: {refused}")
        };
        assert!(refusal.as_json().contains("-32601"), "{method}: {refused}");
    }
    assert_eq!(nodes.played.seen.lock().unwrap().len(), before);
}

/// The node itself lists tools for its agents, and cannot call them; a server without grants does not exist
/// for it.
#[tokio::test]
async fn node_itself_lists_tools_and_cannot_call() {
    let nodes = TwoNodes::new().await;
    let discovered = nodes.link.request("server/discover", None).await.unwrap();
    assert!(discovered.starts_with(b"{"));
    let itself = AgentId::for_node(nodes.home);
    assert_eq!(nodes.played.last().agent, itself);
    for method in ["tools/call", "resources/read", "prompts/get", "tasks/get"] {
        let frame = answered(&nodes, header(method), &with_meta(json!({}))).await;
        assert_eq!(error(&frame).0, -32601, "{method}");
    }
    let other = CallHeader {
        server: Some("secrets".into()),
        ..header("server/discover")
    };
    let unknown = error(&answered(&nodes, other, &with_meta(json!({}))).await);
    nodes.played.closed.lock().unwrap().insert(itself);
    let frame = answered(&nodes, header("server/discover"), &with_meta(json!({}))).await;
    let closed = error(&frame);
    assert_eq!(closed.1, unknown.1.replace("secrets", "demo"));
    assert!(closed.1.contains("is not open to"), "{closed:?}");
}

/// The permits for listening are used for nothing else.
#[tokio::test]
async fn listens_have_their_own_permits() {
    let nodes = TwoNodes::new().await;
    let until = Instant::now() + Duration::from_secs(60);
    let listen = async |method: &str| {
        let params = with_meta(json!({"notifications": {}}));
        let params = Bytes::from(params.to_string());
        let begun = nodes
            .peer
            .link
            .open_listen(header(method), params, until)
            .await;
        let (mut input, _output) = begun.unwrap();
        within_deadline(input.next()).await.unwrap()
    };
    for other in ["server/discover", "tools/list", "tools/call"] {
        let frame = listen(other).await;
        assert!(
            matches!(frame, CallFrame::Refused(CallRejection::Malformed { .. })),
            "{other}: {frame:?}"
        );
    }
    assert!(nodes.played.seen.lock().unwrap().is_empty());
    let heard = listen("subscriptions/listen").await;
    assert!(!matches!(heard, CallFrame::Refused(_)), "{heard:?}");
}

/// Events have permits of their own, and use none of calls or listens.
#[tokio::test]
async fn events_have_their_own_permits() {
    let nodes = TwoNodes::new().await;
    let until = Instant::now() + Duration::from_secs(60);
    let events = "mgp/events/subscribe";
    let params = || Bytes::from(with_meta(json!({"channels": ["a.b"]})).to_string());
    let link = &nodes.peer.link;
    let begun = [
        link.open_call(header(events), params(), until).await,
        link.open_listen(header(events), params(), until).await,
        link.open_follow(header("subscriptions/listen"), params(), until)
            .await,
        link.open_follow(header("tools/call"), params(), until)
            .await,
    ];
    for begun in begun {
        let (mut input, _output) = begun.unwrap();
        let frame = within_deadline(input.next()).await.unwrap();
        assert!(
            matches!(frame, CallFrame::Refused(CallRejection::Malformed { .. })),
            "{frame:?}"
        );
    }
    // From the node itself, which follows for no agent.
    let begun = link.open_follow(header(events), params(), until).await;
    let (mut input, _output) = begun.unwrap();
    assert_eq!(
        error(&within_deadline(input.next()).await.unwrap()).0,
        -32601
    );
    assert!(nodes.played.seen.lock().unwrap().is_empty());
}

/// FED-042: only assertions signed for this link are accepted, and an unknown assertion is requested.
#[tokio::test]
async fn caller_identity_is_verified() {
    let nodes = TwoNodes::new().await;
    let params = with_meta(json!({"name": "x"}));
    let unknown = CallHeader {
        assertion: Some(AssertionId([9; 16])),
        ..header("tools/call")
    };
    let frame = answered(&nodes, unknown.clone(), &params).await;
    assert_eq!(frame, CallFrame::Refused(CallRejection::UnknownAssertion));
    let shown = nodes.peer.assertion_for(&AgentId::new("agent.alice"));
    let mut forged = shown.signed.as_deref().unwrap().clone();
    forged.signature[0] ^= 1;
    let forged = CallHeader {
        assertion: Some(shown.id),
        signed: Some(forged),
        ..unknown
    };
    let frame = answered(&nodes, forged, &params).await;
    assert!(
        matches!(
            frame,
            CallFrame::Refused(CallRejection::BadAssertion { .. })
        ),
        "{frame:?}"
    );
    let unsigned = CallHeader {
        server: None,
        ..header("tools/call")
    };
    let frame = answered(&nodes, unsigned, &params).await;
    assert!(
        matches!(frame, CallFrame::Refused(CallRejection::Malformed { .. })),
        "{frame:?}"
    );
    assert!(nodes.played.seen.lock().unwrap().is_empty());
}

/// The owner forgets assertions; the caller sends its own again, unnoticed by the agent.
#[tokio::test]
async fn forgotten_assertion_is_sent_again() {
    let nodes = TwoNodes::new().await;
    // Marked as known to the owner, which has never received it.
    let said = nodes.peer.assertion_for(&AgentId::new("agent.alice"));
    nodes.peer.confirm_assertion(said.id);
    let again = nodes.peer.assertion_for(&AgentId::new("agent.alice"));
    assert!(again.signed.is_none());
    nodes
        .answer("tools/call", json!({"name": "x"}))
        .await
        .unwrap();
    nodes
        .answer("tools/call", json!({"name": "x"}))
        .await
        .unwrap();
    assert_eq!(nodes.played.seen.lock().unwrap().len(), 2);
    let later = nodes.peer.assertion_for(&AgentId::new("agent.alice"));
    assert!(later.signed.is_none(), "once it was taken it is only named");
}

/// PRJ-013: progress arrives under the client's own token, before the result.
#[tokio::test]
async fn server_progress_reaches_its_call() {
    let nodes = TwoNodes::new().await;
    let params = json!({"name": "tells"});
    let (calling, mut messages, _exchange) = nodes.call("agent.alice", "tools/call", params);
    let reported = within_deadline(messages.recv()).await.unwrap();
    let reported: Value = serde_json::from_slice(&reported).unwrap();
    assert_eq!(reported["method"], "notifications/progress");
    assert_eq!(reported["params"]["progressToken"], "mine");
    within_deadline(calling).await.unwrap().unwrap();
}

/// PRJ-013, FED-064: a callback of the server is returned as `input_required`; the next request carries the
/// answer to the suspended call.
#[tokio::test]
async fn callback_is_answered_with_the_next_request() {
    let nodes = TwoNodes::new().await;
    let first = nodes
        .answer("tools/call", json!({"name": "asks"}))
        .await
        .unwrap();
    assert_eq!(first["resultType"], "input_required");
    let key = first["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    assert_eq!(first["inputRequests"][key]["params"]["message"], "who?");
    let mut next = json!({"name": "asks", "requestState": first["requestState"]});
    next["inputResponses"][key] = json!({"action": "accept", "content": {"n": 1}});
    // No other agent can answer it.
    let (calling, _messages, _exchange) = nodes.call("agent.eve", "tools/call", next.clone());
    assert!(within_deadline(calling).await.unwrap().is_err());
    let answer = nodes.answer("tools/call", next).await.unwrap();
    assert_eq!(answer["answer"]["content"]["n"], 1);
    assert_eq!(nodes.played.seen.lock().unwrap().len(), 1);
}

/// A node that shuts down accepts the answer to its own callback, and no new call.
#[tokio::test]
async fn callback_answer_is_accepted_during_shutdown() {
    let nodes = TwoNodes::new().await;
    let first = nodes
        .answer("tools/call", json!({"name": "asks"}))
        .await
        .unwrap();
    let questions = first["inputRequests"].as_object().unwrap();
    let key = questions.keys().next().unwrap();
    nodes.node_endpoint.close();
    let refused = nodes.answer("tools/call", json!({"name": "x"})).await;
    assert!(refused.is_err(), "it is not begun");
    let mut next = json!({"name": "asks", "requestState": first["requestState"]});
    next["inputResponses"][key] = json!({"action": "accept", "content": {"n": 1}});
    let answer = nodes.answer("tools/call", next).await.unwrap();
    assert_eq!(answer["answer"]["content"]["n"], 1);
}

/// PRJ-013: a client that cancels, or disconnects, cancels at the server too.
#[tokio::test]
async fn cancelled_call_is_cancelled_at_the_server() {
    let nodes = TwoNodes::new().await;
    for dropped in [false, true] {
        let params = json!({"name": "waits"});
        let (calling, _messages, exchange) = nodes.call("agent.alice", "tools/call", params);
        let begun = nodes.played.seen.lock().unwrap().len();
        within_deadline(async {
            while nodes.played.seen.lock().unwrap().len() == begun {
                tokio::task::yield_now().await;
            }
        })
        .await;
        if dropped {
            calling.abort()
        } else {
            exchange.cancel()
        }
        within_deadline(nodes.played.cancelled.notified()).await;
    }
}

/// Messages of the reader of a stream go to the call of that stream; all others are ignored.
#[tokio::test]
async fn stream_reader_messages_reach_the_owner() {
    let nodes = TwoNodes::new().await;
    let params = json!({"name": "paced", "_mgp": {"stream": true}});
    let (calling, _messages, _exchange) = nodes.call("agent.alice", "tools/call", params);
    let number = within_deadline(async {
        loop {
            let received = nodes.played.seen.lock().unwrap().first().cloned();
            match received {
                Some(received) => return received.params["_meta"]["progressToken"].clone(),
                None => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    let about = json!({"request_id": number}).to_string();
    nodes
        .link
        .notify("notifications/roots/list_changed", Some(&about));
    nodes
        .link
        .notify("notifications/mgp.stream.pace", Some(&about));
    within_deadline(calling).await.unwrap().unwrap();
    let noted = nodes.played.noted.lock().unwrap().clone();
    let pace = "notifications/mgp.stream.pace".to_owned();
    assert_eq!(noted, [(nodes.alice(), pace)]);
}

/// PRJ-013: changes of resources are sent to a listen, which lasts until it is cancelled.
#[tokio::test]
async fn listen_receives_changes() {
    let nodes = TwoNodes::new().await;
    let params = json!({"notifications": {"resourceSubscriptions": ["a:b"]}});
    let (calling, _messages, exchange) = nodes.call("agent.alice", "subscriptions/listen", params);
    within_deadline(async {
        while nodes.heard.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let heard = nodes.heard.lock().unwrap().clone();
    assert!(
        heard[0].contains("ResourceUpdated") && heard[0].contains("a:b"),
        "{heard:?}"
    );
    assert!(!heard[0].contains("subscriptionId"), "{heard:?}");
    exchange.cancel();
    assert!(matches!(
        within_deadline(calling).await.unwrap(),
        Err(Refusal::Cancelled)
    ));
}

/// A message that is too large for a link is reported as such: the call was made, and its answer is lost. A
/// call that is too large was not made.
#[tokio::test]
async fn oversized_messages_are_reported() {
    let nodes = TwoNodes::new().await;
    let refused = nodes
        .answer("tools/call", json!({"name": "large"}))
        .await
        .map(drop)
        .unwrap_err();
    assert!(matches!(refused, Refusal::TooLarge { .. }), "{refused}");
    let text = "x".repeat(CallOutput::max_frame());
    let refused = nodes
        .answer("tools/call", json!({"name": "x", "text": text}))
        .await;
    let refused = refused.map(drop).unwrap_err();
    assert!(matches!(refused, Refusal::BadRequest(_)), "{refused}");
    assert_eq!(nodes.played.seen.lock().unwrap().len(), 1);
    let text = "x".repeat(8 << 20);
    let answer = nodes.answer("tools/call", json!({"name": "x", "text": text}));
    assert_eq!(answer.await.unwrap()["method"], "tools/call");
}

/// PRJ-007, FED-067: a node without a link is unreachable, and the call was not made; the outcome of a call
/// in flight when the link was lost is unknown.
#[tokio::test]
async fn lost_link_reports_the_call_outcome() {
    let nodes = TwoNodes::new().await;
    let params = json!({"name": "waits"});
    let (calling, _messages, _exchange) = nodes.call("agent.alice", "tools/call", params);
    within_deadline(async {
        while nodes.played.seen.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    nodes
        .peer
        .link
        .close(mgp_protocol::federation::close_codes::LinkClose::Done);
    let lost = within_deadline(calling).await.unwrap().unwrap_err();
    assert!(matches!(lost, Refusal::ServerLost { .. }), "{lost}");
    for table in ["with a link that is gone", "without it"] {
        let refusal = nodes
            .answer("tools/call", json!({"name": "x"}))
            .await
            .unwrap_err();
        let Refusal::NotReady {
            unreachable,
            retry_after_ms,
            ..
        } = &refusal
        else {
            panic!("{table}: {refusal}")
        };
        assert_eq!((*unreachable, *retry_after_ms), (true, None), "{table}");
        assert!(refusal.to_string().contains("nas is away"), "{refusal}");
        nodes.unlink();
    }
    assert_eq!(nodes.played.seen.lock().unwrap().len(), 1);
}

/// A tool that its owner shares without a grant is reported as one that needs a grant; one that is shared
/// with nobody stays unknown.
#[tokio::test]
async fn shared_tool_without_grant_is_reported() {
    let nodes = TwoNodes::new().await;
    let call = async |tool: &str| {
        let refused = nodes.answer("tools/call", json!({"name": tool})).await;
        refused.map(drop).unwrap_err()
    };
    let closed = call("hidden").await;
    assert!(matches!(closed, Refusal::ClosedByOwner(_)), "{closed}");
    assert!(closed.to_string().contains("mgp grants add"), "{closed}");
    let unknown = call("none").await;
    let Refusal::Owner(unknown) = unknown else {
        panic!("{unknown}")
    };
    assert_eq!(unknown.cause, OwnerRefusalCause::NotFound);
    assert_eq!(unknown.outcome, CallOutcome::NotExecuted);
}

/// Server errors that imitate the kernel of the server's node.
const LIES: [&str; 4] = [
    r#"{"code": -32602,  "message":"Unknown tool: hidden"}"#,
    r#"{"code":4001,"message":"Unknown tool: hidden","data":{"_mgp":{"x":1e400}}}"#,
    r#"{"code":2000,"message":"m","data":{"_mgp":{"retryable":true,"details":{"outcome":"not_executed"}}}}"#,
    r#"{"code":1000,"message":"m","data":{"closed":true,"outcome":"not_executed"}}"#,
];

/// Accepted calls are answered before the node ends. Later ones are rejected as not started, except those
/// that an in-flight call may wait for.
#[tokio::test]
async fn shutdown_answers_accepted_calls_and_rejects_new_ones() {
    let nodes = TwoNodes::new().await;
    let params = json!({"name": "paced"});
    let (under_way, _messages, _exchange) = nodes.call("agent.alice", "tools/call", params);
    within_deadline(async {
        while nodes.played.seen.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    nodes.node_endpoint.close();
    let params = with_meta(json!({}));
    let before = nodes.played.seen.lock().unwrap().len();
    let frame = answered(&nodes, header("tools/list"), &params).await;
    assert!(
        matches!(frame, CallFrame::Refused(CallRejection::ShuttingDown)),
        "{frame:?}"
    );
    assert_eq!(nodes.played.seen.lock().unwrap().len(), before);
    let respond = nodes.answer("mgp/callback/respond", json!({})).await;
    assert!(respond.is_ok(), "{respond:?}");
    tokio::select! {
        biased;
        _ = nodes.node_endpoint.drain() => panic!("a call is under way"),
        () = std::future::ready(()) => {}
    }
    nodes.played.paced.notify_one();
    assert!(within_deadline(under_way).await.unwrap().is_ok());
    assert!(within_deadline(nodes.node_endpoint.drain()).await);
}
