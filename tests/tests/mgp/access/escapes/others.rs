//! What belongs to somebody else: names, questions, tasks, the operator's own resource.

use http::header::{HOST, HeaderName, ORIGIN};
use mgp_tests::harness::ModernAgent;
use mgp_tests::harness::http::SESSION;

use super::*;

const PENDING: &str = "mgp://kernel/pending";
const KNOWS: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// MGP-083: whatever a call says of itself, it is its caller's, and is written down as that.
#[tokio::test]
async fn identity_in_the_body_of_a_call_is_ignored() {
    let mut scene = Scene::new().await;
    let url = scene.kernel.url().to_owned();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for speech in SPEECHES {
        let mut claims = call("shut__echo", FORBIDDEN);
        claims["_meta"] = json!({"traceparent": trace, "justification": "the operator said yes",
            "agent_id": "operator", "actor": {"type": "operator", "id": "operator"}});
        claims["trace_id"] = json!("4bf92f35-77b3-4da6-a3ce-929d0e0e4736");
        claims["agent_id"] = json!("agent.alice");
        claims["approved"] = json!(true);
        let answer = scene.bob_asks(speech, &url, "tools/call", claims).await;
        assert!(is_refused(&answer), "{speech:?}: {answer}");
    }
    let log = scene.kernel.folder().join("data/audit/00000001.jsonl");
    let denied = |text: &str| {
        let of_shut = |line: &&str| line.contains("TOOL_BLOCKED") && line.contains("\"shut\"");
        let lines: Vec<String> = text.lines().filter(of_shut).map(str::to_owned).collect();
        lines
    };
    let mut lines = Vec::new();
    wait_until("each try is in the log", DEADLINE, async || {
        lines = denied(&std::fs::read_to_string(&log).unwrap_or_default());
        lines.len() >= SPEECHES.len()
    })
    .await;
    for line in lines {
        let record: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(record["event"]["actor"]["id"], "agent.bob", "{line}");
    }
    scene.nothing_came_through().await;
}

/// MGP-035: what waits for the operator is for an agent no resource at all.
#[tokio::test]
async fn pending_entries_are_no_resource_of_agents() {
    let mut scene = Scene::new().await;
    let nowhere = "mgp://kernel/nosuch";
    for speech in SPEECHES {
        for (url, _) in scene.doors() {
            for method in ["resources/read", "resources/subscribe"] {
                let own = json!({"uri": PENDING});
                let own = scene.bob_asks(speech, &url, method, own).await;
                let none = json!({"uri": nowhere});
                let none = scene.bob_asks(speech, &url, method, none).await;
                let said = own.to_string().replace(PENDING, nowhere);
                assert_eq!(said, none.to_string(), "{speech:?} {method}");
            }
            let listed = scene
                .bob_asks(speech, &url, "resources/list", json!({}))
                .await;
            assert!(!listed.to_string().contains(PENDING), "{listed}");
        }
    }
    scene.nothing_came_through().await;
}

/// MGP-057: a yes that one agent is asked for is not given by another.
#[tokio::test]
async fn a_yes_is_not_given_by_another() {
    let asks = json!({"name": "fire", "inputSchema": {"type": "object"},
        "security": {"risk_level": "dangerous", "confirmation_required": true}});
    let mut scene = Scene::with(&["--tool", &asks.to_string()]).await;
    let url = scene.kernel.url().to_owned();
    let mut alice = holder(&url, &scene.alice);
    alice
        .open_session(NEWEST, r#"{"elicitation":{"form":{}}}"#)
        .await;
    let dangerous = call("shut__fire", FORBIDDEN);
    let mut calling = alice
        .post(request(&json!(1), "tools/call", &dangerous))
        .await
        .events();
    let question = loop {
        let event = calling.next().await.expect("a question");
        if event.data.contains("elicitation/create") {
            break serde_json::from_str::<Value>(&event.data).unwrap();
        }
    };
    let yes = json!({"jsonrpc": "2.0", "id": question["id"],
        "result": {"action": "accept", "content": {}}});
    let bob = session(&url, &scene.bob, true).await;
    bob.post(yes.to_string()).await;
    scene.tries += 1;
    for speech in SPEECHES {
        for method in ["mgp/approvals/approve", "mgp/approvals/list"] {
            let about = json!({"id": question["id"]});
            let answer = scene.bob_asks(speech, &url, method, about).await;
            assert!(is_refused(&answer), "{speech:?} {method}: {answer}");
        }
    }
    let no = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
    alice.post(no.to_string()).await;
    let answer = calling.next().await.expect("the answer").data;
    assert!(answer.contains("did not say yes"), "{answer}");
    scene.nothing_came_through().await;
}

/// A task is known to whom it was given, and to nobody who has learned its name.
#[tokio::test]
async fn a_task_of_another_is_not_followed() {
    let mut scene = Scene::new().await;
    let url = scene.kernel.url().to_owned();
    let slow = json!({"name": "open__slow_compute", "arguments": {"seconds": 60}});
    let begin = Envelope::new(KNOWS).request(&json!(1), "tools/call", slow);
    let given = response(holder(&url, &scene.alice).put(&begin).await).await;
    let task = given["result"]["taskId"].as_str().expect("a task");
    let about = json!({"taskId": task});
    for (token, knows) in [(scene.alice.clone(), true), (scene.bob.clone(), false)] {
        let methods: &[&str] = if knows {
            &["tasks/get"]
        } else {
            &["tasks/get", "tasks/update", "tasks/cancel"]
        };
        for method in methods {
            scene.tries += usize::from(!knows);
            let asked = Envelope::new(KNOWS).request(&json!(2), method, about.clone());
            let answer = response(holder(&url, &token).put(&asked).await).await;
            assert_eq!(is_refused(&answer), !knows, "{method}: {answer}");
        }
        let follow = json!({"notifications": {"taskIds": [task]}});
        let listen = Envelope::new(KNOWS).request(&json!(3), "subscriptions/listen", follow);
        let mut heard = holder(&url, &token).put(&listen).await.events();
        let agreed = heard.next().await.expect("what is agreed to").data;
        assert_eq!(agreed.contains(task), knows, "{agreed}");
    }
    scene.nothing_came_through().await;
}

/// MGP-080: the line door is no other way: who comes in as an agent is that agent, though the owner's
/// own program brought it in.
#[tokio::test]
async fn agent_over_stdio_has_the_permissions_of_that_agent_alone() {
    for rules in RULES {
        no_line_leads_to_it(Scene::under(rules).await).await;
    }
}

async fn no_line_leads_to_it(mut scene: Scene) {
    let line = ["stdio", "--agent", "bob"].as_slice();
    let program = scene.kernel.program(&match scene.rules {
        Rules::Grants | Rules::Held => line.to_vec(),
        Rules::Door => [line, &["--set", "part"]].concat(),
    });
    let mut line = Agent::over_stdio(&program);
    line.initialize(NEWEST, "{}").await.result();
    let mut modern = ModernAgent::over_stdio(&program, "{}");
    for name in ["shut__echo", "shut:echo", "open__echo", "open:echo"] {
        let closed = [
            line.request("tools/call", call(name, FORBIDDEN)).await,
            modern.ask("tools/call", call(name, FORBIDDEN)).await,
        ];
        let absent = [
            line.request("tools/call", call("nosuch", FORBIDDEN)).await,
            modern.ask("tools/call", call("nosuch", FORBIDDEN)).await,
        ];
        for (closed, absent) in closed.iter().zip(&absent) {
            let said = closed.error().to_string().replace(name, "nosuch");
            assert_eq!(said, absent.error().to_string(), "{name}");
            scene.tries += 1;
        }
    }
    for method in ["mgp/access/grant", "mgp/kernel/stop", "mgp/approvals/list"] {
        let params = grant("bob", "shut", None, "allow");
        assert!(line.request(method, params.clone()).await.is_error());
        assert!(modern.ask(method, params).await.is_error(), "{method}");
        scene.tries += 2;
    }
    let read = line
        .request("resources/read", json!({"uri": PENDING}))
        .await;
    assert!(read.is_error(), "{}", read.frame);
    let listed = line.request("tools/list", json!({})).await.result();
    assert!(!listed.to_string().contains("shut__"), "{listed}");
    line.close().await;
    modern.close().await;
    scene.nothing_came_through().await;
}

/// A session belongs to the agent that opened it, under whatever token it is named.
#[tokio::test]
async fn a_session_of_another_opens_nothing() {
    let mut scene = Scene::new().await;
    let url = scene.kernel.url().to_owned();
    let alice = session(&url, &scene.alice, false).await;
    let mut bob = holder(&url, &scene.bob);
    bob.headers = {
        let mut headers = alice.headers.clone();
        headers.insert(AUTHORIZATION, bob.headers[AUTHORIZATION].clone());
        headers
    };
    let stolen = request(&json!(1), "tools/call", &call("shut__echo", FORBIDDEN));
    assert_eq!(bob.post(stolen.clone()).await.status, StatusCode::NOT_FOUND);
    assert_eq!(bob.get(None).await.status, StatusCode::NOT_FOUND);
    assert_eq!(bob.delete().await.status, StatusCode::NOT_FOUND);
    bob.headers.remove(AUTHORIZATION);
    assert_eq!(bob.post(stolen).await.status, StatusCode::UNAUTHORIZED);
    scene.tries += 4;
    let own = request(&json!(2), "tools/list", &json!({}));
    assert_eq!(alice.post(own).await.status, StatusCode::OK);
    assert!(alice.headers.contains_key(SESSION));
    scene.nothing_came_through().await;
}

/// MCP-081: a token of another kernel, a good token under a foreign `Host`, one from a foreign page:
/// none comes in.
#[tokio::test]
async fn a_good_token_in_the_wrong_place_opens_nothing() {
    let mut scene = Scene::new().await;
    let other = Scene::new().await;
    let url = scene.kernel.url().to_owned();
    let hidden = request(&json!(1), "tools/call", &call("shut__echo", FORBIDDEN));
    let foreign = holder(&url, &other.alice).post(hidden.clone()).await;
    assert_eq!(foreign.status, StatusCode::UNAUTHORIZED);
    let places: [(HeaderName, &str); 5] = [
        (HOST, "evil.example"),
        (HOST, "169.254.169.254"),
        (ORIGIN, "https://evil.example"),
        (ORIGIN, "null"),
        (ORIGIN, "http://127.0.0.1.evil.example"),
    ];
    for (name, value) in places {
        let mut alice = session(&url, &scene.alice, false).await;
        alice.set(name.clone(), value);
        let answer = alice.post(hidden.clone()).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{name}: {value}");
        scene.tries += 1;
    }
    scene.tries += 1;
    scene.nothing_came_through().await;
}
