//! Requests of servers during a call: sampling, forms, addresses and roots; and which client gets them.

mod consents;
mod turns;

use futures_util::future::{join, join_all};
use http::StatusCode;
use mgp_tests::harness::handshake::FULL;
use mgp_tests::harness::http::events::Events;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Agent, DEADLINE};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST};

/// A call of the tool that asks anything.
fn ask(method: &str, params: Value) -> Value {
    json!({"method": method, "params": params})
}

fn sampled(words: &str) -> Value {
    let content = json!({"type": "text", "text": words});
    json!({"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"})
}

/// The next message on a stream.
async fn message(events: &mut Events) -> Value {
    loop {
        let event = within("an event", DEADLINE, events.next()).await;
        let event = event.expect("the stream goes on");
        if !event.data.is_empty() {
            return serde_json::from_str(&event.data).unwrap();
        }
    }
}

/// The params of a sampling that asks for this context, with everything that a server may say.
fn sampling(context: &str) -> Value {
    let preferences = json!({
        "hints": [{"name": "claude"}, {"name": "x"}],
        "costPriority": 0.1,
        "speedPriority": 1,
        "intelligencePriority": 0.25,
    });
    json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": "two and two"}}],
        "modelPreferences": preferences,
        "systemPrompt": "Be brief.",
        "includeContext": context,
        "maxTokens": 9,
        "x-unknown": [1.0, null],
    })
}

/// MCP-048, MCP-049: whatever the client makes of the hints; over both kinds of endpoint.
#[tokio::test]
async fn sampling_params_reach_the_caller_whole() {
    let kernel = scene::kernel().await;
    for agent in [
        &mut scene::http_agent(&kernel, None, FULL).await,
        &mut scene::socket_agent(&kernel, FULL).await,
    ] {
        agent.answers("sampling/createMessage", sampled("four"));
        let params = sampling("none");
        let asked = ask("sampling/createMessage", params.clone());
        agent.call("it:ask", asked).await.result();
        assert_eq!(agent.asked().len(), 1);
        assert_eq!(agent.asked()[0]["params"], params);
    }
}

/// MCP-050.
#[tokio::test]
async fn sampling_with_each_context_reaches_the_caller() {
    let kernel = scene::kernel().await;
    let mut agent = scene::socket_agent(&kernel, FULL).await;
    agent.answers("sampling/createMessage", sampled("four"));
    for context in ["none", "thisServer", "allServers"] {
        let asked = ask("sampling/createMessage", sampling(context));
        agent.call("it:ask", asked).await.result();
        let params = &agent.asked().last().unwrap()["params"];
        assert_eq!(params["includeContext"], context);
    }
}

/// CMCP-086.
#[tokio::test]
async fn sampling_result_reaches_the_server_whole() {
    let kernel = scene::kernel().await;
    for agent in [
        &mut scene::http_agent(&kernel, None, FULL).await,
        &mut scene::socket_agent(&kernel, FULL).await,
    ] {
        agent.answers("sampling/createMessage", sampled("four"));
        let asked = ask("sampling/createMessage", sampling("none"));
        let answer = agent.call("it:ask", asked).await;
        assert_eq!(answer.result()["structuredContent"], sampled("four"));
    }
}

/// CMCP-087, CMCP-089: a form reaches the caller, with the empty schema when it has none, and every
/// kind of answer the server.
#[tokio::test]
async fn form_elicitation_is_accepted_declined_and_cancelled() {
    let kernel = scene::kernel().await;
    let mut alone = scene::http_agent(&kernel, Some("it"), FULL).await;
    let mut everything = scene::http_agent(&kernel, None, FULL).await;
    for answer in [
        json!({"action": "accept", "content": {"name": "Ada", "n": 1.0}}),
        json!({"action": "decline"}),
        json!({"action": "cancel", "_meta": {"why": "x"}}),
    ] {
        for (agent, shown) in [(&mut alone, "Who?"), (&mut everything, "[it] Who?")] {
            agent.answers("elicitation/create", answer.clone());
            let form = ask("elicitation/create", json!({"message": "Who?"}));
            let told = agent.call("ask", form).await;
            assert_eq!(told.result()["structuredContent"], answer);
            let asked = &agent.asked().last().unwrap()["params"];
            assert_eq!(asked["message"], shown);
            assert_eq!(asked["requestedSchema"]["type"], "object");
        }
    }
}

/// CMCP-090: an address is shown as it is, to those alone who can open one; a flat `elicitation`
/// means forms alone.
#[tokio::test]
async fn url_elicitation_needs_the_url_capability() {
    let kernel = scene::kernel().await;
    let url = json!({"mode": "url", "message": "Sign in", "url": "https://example.com/?a=b&c", "elicitationId": "e-1"});
    let form = json!({"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
    for (capabilities, forms, addresses) in [
        (r#"{"elicitation":{}}"#, true, false),
        (r#"{"elicitation":{"form":{}}}"#, true, false),
        (r#"{"elicitation":{"url":{}}}"#, false, true),
        (r#"{"elicitation":{"form":{},"url":{}}}"#, true, true),
        (r#"{"sampling":{}}"#, false, false),
    ] {
        let mut agent = scene::http_agent(&kernel, Some("it"), capabilities).await;
        agent.answers("elicitation/create", json!({"action": "accept"}));
        for (params, can) in [(&form, forms), (&url, addresses)] {
            let answer = agent
                .call("ask", ask("elicitation/create", params.clone()))
                .await;
            if can {
                assert_eq!(answer.result()["structuredContent"]["action"], "accept");
                assert_eq!(agent.asked().last().unwrap()["params"], *params);
            } else {
                assert_eq!(answer.code(), -32601, "{capabilities} {params}")
            }
        }
        let asked = usize::from(forms) + usize::from(addresses);
        assert_eq!(agent.asked().len(), asked, "{capabilities}");
    }
}

/// A server asks a client of these capabilities, and gets -32601; the client is not asked.
async fn assert_not_asked(capabilities: &str, method: &str) {
    let kernel = scene::kernel().await;
    let mut agent = scene::socket_agent(&kernel, capabilities).await;
    let asked = ask(method, json!({"message": "?"}));
    let rejected = agent.call("it:ask", asked).await;
    assert_eq!(rejected.code(), -32601, "{method}");
    assert!(agent.asked().is_empty(), "{:?}", agent.asked());
}

/// MCP-052, CMCP-065.
#[tokio::test]
async fn sampling_of_a_client_that_did_not_declare_it_is_method_not_found() {
    assert_not_asked("{}", "sampling/createMessage").await;
}

/// CMCP-066, CMCP-088.
#[tokio::test]
async fn elicitation_of_a_client_that_did_not_declare_it_is_method_not_found() {
    assert_not_asked("{}", "elicitation/create").await;
}

/// CMCP-067.
#[tokio::test]
async fn roots_of_a_client_that_did_not_declare_them_are_method_not_found() {
    assert_not_asked("{}", "roots/list").await;
}

/// CMCP-068: whatever the client declares.
#[tokio::test]
async fn unknown_request_of_a_server_is_method_not_found() {
    assert_not_asked("{}", "foo/bar").await;
    assert_not_asked(FULL, "foo/bar").await;
}

/// MCP-064.
#[tokio::test]
async fn client_is_asked_for_what_it_declared_alone() {
    let kernel = scene::kernel().await;
    let mut agent = scene::socket_agent(&kernel, r#"{"sampling":{}}"#).await;
    agent.answers("sampling/createMessage", sampled("four"));
    agent.answers("roots/list", json!({"roots": []}));
    let asked = agent
        .call("it:ask", ask("sampling/createMessage", json!({})))
        .await;
    assert_eq!(asked.result()["structuredContent"], sampled("four"));
    let rejected = agent.call("it:ask", ask("roots/list", json!({}))).await;
    assert_eq!(rejected.code(), -32601);
    assert_eq!(agent.asked().len(), 1);
}

/// CMCP-084: a capability without a handler, and the other way round.
#[tokio::test]
async fn declared_capability_without_a_handler_is_method_not_found() {
    let kernel = scene::kernel().await;
    let mut agent = scene::socket_agent(&kernel, FULL).await;
    let rejected = agent
        .call("it:ask", ask("sampling/createMessage", json!({})))
        .await;
    assert_eq!(rejected.code(), -32601);
    assert_eq!(agent.asked().len(), 1);
    let mut handles = scene::socket_agent(&kernel, "{}").await;
    handles.answers("sampling/createMessage", sampled("four"));
    let rejected = handles
        .call("it:ask", ask("sampling/createMessage", json!({})))
        .await;
    assert_eq!(rejected.code(), -32601);
    assert!(handles.asked().is_empty());
}

/// MCP-067: each caller's own roots, however many there are; nobody sees another's.
#[tokio::test]
async fn roots_list_returns_the_roots_of_the_caller() {
    let kernel = scene::kernel().await;
    let mut agents = Vec::new();
    for n in 0..6 {
        let mut agent = match n % 2 {
            0 => scene::http_agent(&kernel, None, FULL).await,
            _ => scene::socket_agent(&kernel, FULL).await,
        };
        let root = json!({"uri": format!("file:///home/{n}"), "name": "home"});
        agent.answers("roots/list", json!({"roots": [root]}));
        agents.push(agent);
    }
    // Known to ask, the server gets one agent's calls at a time.
    agents[0].call("it:ask_roots", json!({})).await.result();
    let calling = agents.iter_mut().enumerate().map(async |(n, agent)| {
        let asked = agent.asked().len();
        for _ in 0..5 {
            let seen = agent.call("it:ask_roots", json!({})).await.text();
            assert_eq!(seen, format!("file:///home/{n}"));
        }
        assert_eq!(agent.asked().len(), asked + 5);
    });
    join_all(calling).await;
}

/// Two agents at once at a shared server that is known to ask, over one pipe: each is asked its own
/// question and gets what comes of its own answer.
#[tokio::test]
async fn agents_at_a_shared_server_get_their_own_elicitations() {
    let kernel = scene::kernel().await;
    let mut one = scene::http_agent(&kernel, None, FULL).await;
    let mut two = scene::http_agent(&kernel, None, FULL).await;
    one.answers(
        "elicitation/create",
        json!({"action": "accept", "content": {}}),
    );
    two.answers("elicitation/create", json!({"action": "decline"}));
    one.answers("roots/list", json!({"roots": []}));
    one.call("it:ask_roots", json!({})).await.result();
    let told = async |agent: &mut Agent, message: &str| {
        for _ in 0..5 {
            let arguments = json!({"message": message});
            let told = agent.call("it:test_elicitation", arguments).await;
            let action = if message == "one?" {
                "action=accept"
            } else {
                "action=decline"
            };
            assert!(told.text().contains(action), "{}", told.frame);
        }
        let own = format!("[it] {message}");
        let asked = agent.asked().iter();
        let forms = asked.filter(|q| q["method"] == "elicitation/create");
        let forms: Vec<&Value> = forms.map(|q| &q["params"]["message"]).collect();
        assert_eq!(forms, [&own; 5]);
    };
    join(told(&mut one, "one?"), told(&mut two, "two?")).await;
}

/// CMCP-074: a question that waits for its answer holds up nothing else, neither of the same agent nor of
/// another one.
#[tokio::test]
async fn pending_elicitation_delays_no_other_call() {
    let kernel = scene::kernel().await;
    let mut other = scene::socket_agent(&kernel, FULL).await;
    other.answers("roots/list", json!({"roots": []}));
    // The server is known to ask.
    other.call("it:ask_roots", json!({})).await.result();
    let client = scene::session_with(&kernel, NEWEST, FULL).await;
    let call = scene::call("asking", "test_elicitation", json!({"message": "?"}));
    let mut events = client.post(call).await.events();
    let question = message(&mut events).await;
    let echo = client
        .post(scene::call(2, "echo", json!({"text": "meanwhile"})))
        .await;
    assert!(echo.frames().await.last().unwrap().contains("meanwhile"));
    for text in ["one", "two"] {
        let echo = other.call("it:echo", json!({"text": text})).await;
        assert_eq!(echo.text(), text);
    }
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
    assert_eq!(
        client.post(answer.to_string()).await.status,
        StatusCode::ACCEPTED
    );
    assert_eq!(message(&mut events).await["id"], "asking");
}

/// CMCP-101, CMCP-008: a question comes on the stream of its call and nowhere else; its answer is
/// POSTed and told 202 without a body; equal ids in both directions do not meet.
#[tokio::test]
async fn request_of_a_server_comes_on_the_stream_of_its_call() {
    let kernel = scene::kernel().await;
    let client = scene::session_with(&kernel, "2025-06-18", FULL).await;
    let mut standing = client.get(None).await.events();
    let call = scene::call(1, "test_sampling", json!({"prompt": "hi"}));
    let mut events = client.post(call).await.events();
    let question = message(&mut events).await;
    assert_eq!(question["method"], "sampling/createMessage");
    // It cannot be named by counting.
    for id in [1, 77] {
        let stray = json!({"jsonrpc": "2.0", "id": id, "result": sampled("to nobody")});
        let told = client.post(stray.to_string()).await;
        assert_eq!(told.status, StatusCode::ACCEPTED);
    }
    assert_ne!(question["id"], 1);
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": sampled("hello")});
    let told = client.post(answer.to_string()).await;
    assert_eq!(told.status, StatusCode::ACCEPTED);
    assert_eq!(told.text().await, "");
    let twice = client.post(answer.to_string()).await;
    assert_eq!(twice.status, StatusCode::ACCEPTED);
    let result = message(&mut events).await;
    assert_eq!(result["id"], 1);
    assert_eq!(
        result["result"]["content"][0]["text"],
        "LLM response: hello"
    );
    client.delete().await;
    while let Some(event) = within("the end", DEADLINE, standing.next()).await {
        assert_eq!(event.data, "");
    }
}

/// The error of a client is told to the server as it is.
#[tokio::test]
async fn error_of_a_client_reaches_the_server() {
    let kernel = scene::kernel().await;
    let client = scene::session_with(&kernel, NEWEST, FULL).await;
    let call = scene::call(1, "test_sampling", json!({"prompt": "hi"}));
    let mut events = client.post(call).await.events();
    let question = message(&mut events).await;
    let error = json!({"code": -1, "message": "User rejected sampling request", "data": [1]});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "error": error});
    client.post(answer.to_string()).await;
    assert_eq!(message(&mut events).await["error"], error);
}

/// An agent that leaves with a question open leaves its server free to ask the next one.
#[tokio::test]
async fn agent_that_leaves_with_a_pending_elicitation_delays_nobody() {
    let kernel = scene::kernel().await;
    let client = scene::session_with(&kernel, NEWEST, FULL).await;
    let call = scene::call(1, "test_elicitation", json!({"message": "?"}));
    let mut events = client.post(call).await.events();
    assert_eq!(message(&mut events).await["method"], "elicitation/create");
    let mut next = scene::socket_agent(&kernel, FULL).await;
    next.answers("elicitation/create", json!({"action": "decline"}));
    let form = json!({"name": "it:test_elicitation", "arguments": {"message": "my turn"}});
    let asks = next.start("tools/call", form).await;
    client.delete().await;
    let told = next.answer_to(&asks).await.text();
    assert!(told.contains("action=decline"), "{told}");
}
