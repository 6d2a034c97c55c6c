//! Ways around the rules, tried by an agent that has a good token of its own; none of them leads
//! anywhere.

mod others;

use http::StatusCode;
use http::header::AUTHORIZATION;
use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::mgp::speaks_mgp;
use mgp_tests::harness::{Agent, DEADLINE, Envelope, HttpClient, Kernel, Program, wait_until};
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";
/// What a call says that must reach nobody.
const FORBIDDEN: &str = "forbidden-fruit";
const PERMITTED: &str = "permitted-fruit";
const WATCHED: &str = "test://watched-resource";

/// How a client speaks: MCP of which era, and whether MGP with it.
#[derive(Clone, Copy, Debug)]
enum Speech {
    Legacy { mgp: bool },
    Modern { mgp: bool },
}

const SPEECHES: [Speech; 4] = [
    Speech::Legacy { mgp: false },
    Speech::Legacy { mgp: true },
    Speech::Modern { mgp: false },
    Speech::Modern { mgp: true },
];

/// By what Bob is kept away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    /// Nothing is open to him but what is granted.
    Grants,
    /// He is held to a set, at whichever door (decision 51).
    Held,
    /// He comes by the door of a set (decision 51).
    Door,
}

const RULES: [Rules; 3] = [Rules::Grants, Rules::Held, Rules::Door];

/// What is open to Bob, as a set.
const SET: &str = "[sets.part]\nservers = [\"open\"]\nexcept = [\"open:echo\"]\n";

/// Two servers that offer the same. What is not granted is closed; Bob may use `open` without its
/// `echo`, and nothing of `shut`; Alice may use both.
struct Scene {
    kernel: Kernel,
    owner: Agent,
    alice: String,
    bob: String,
    rules: Rules,
    tries: usize,
}

impl Scene {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    /// The same, where Bob is kept away by other rules.
    async fn under(rules: Rules) -> Self {
        let held = match rules {
            Rules::Grants => return Self::new().await,
            Rules::Held => "[agents.bob]\nset = \"part\"\n",
            Rules::Door => "",
        };
        let access = format!("[access]\nreveal = false\n{SET}{held}");
        Self::made(rules, &access, &[]).await
    }

    /// The same, with servers that are told more.
    async fn with(flags: &[&str]) -> Self {
        let access = "[access]\ndefault_policy = \"opt-in\"\nreveal = false\n";
        let mut scene = Self::made(Rules::Grants, access, flags).await;
        scene.decide("alice", "open", None, "allow").await;
        scene.decide("alice", "shut", None, "allow").await;
        scene.decide("bob", "open", None, "allow").await;
        scene.decide("bob", "open", Some("echo"), "deny").await;
        scene
    }

    async fn made(rules: Rules, access: &str, flags: &[&str]) -> Self {
        let fixture = Program::fixture(flags);
        let config = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\n{access}{}{}",
            fixture.entry("open"),
            fixture.entry("shut"),
        );
        let kernel = Kernel::with_config(&config).await;
        kernel.connected(&["open", "shut"]).await;
        let mut owner = Agent::over_socket(&kernel.socket()).await;
        owner.initialize(NEWEST, "{}").await.result();
        let (alice, bob) = (token(&kernel, "alice").await, token(&kernel, "bob").await);
        Self {
            kernel,
            owner,
            alice,
            bob,
            rules,
            tries: 0,
        }
    }

    async fn decide(&mut self, agent: &str, server: &str, tool: Option<&str>, permission: &str) {
        let entry = grant(agent, server, tool, permission);
        self.owner.request("mgp/access/grant", entry).await.result();
    }

    /// The door of everything that Bob may see.
    fn url(&self) -> String {
        match self.rules {
            Rules::Grants | Rules::Held => self.kernel.url().to_owned(),
            Rules::Door => self.kernel.server_url("p/part"),
        }
    }

    /// The doors, and what they show.
    fn doors(&self) -> Vec<(String, Option<&'static str>)> {
        let whole = (self.url(), None);
        let single = ["open", "shut"].map(|id| (self.kernel.server_url(id), Some(id)));
        match self.rules {
            Rules::Grants => vec![whole].into_iter().chain(single).collect(),
            Rules::Held => {
                let set = (self.kernel.server_url("p/part"), None);
                vec![whole, set].into_iter().chain(single).collect()
            }
            // He is free elsewhere.
            Rules::Door => vec![whole],
        }
    }

    /// Bob asks something in this speech at this door.
    async fn bob_asks(&mut self, speech: Speech, url: &str, method: &str, params: Value) -> Value {
        self.tries += 1;
        ask(speech, url, &self.bob, method, params).await
    }

    /// Every frame a server was sent, as one text.
    async fn seen_by(&mut self, server: &str) -> String {
        let tool = format!("{server}__received");
        let seen = self.owner.call(&tool, json!({})).await.result();
        seen["structuredContent"]["frames"].to_string()
    }

    /// Nothing that was forbidden came through, though the way was open to who is permitted.
    async fn nothing_came_through(mut self) {
        let legacy = Speech::Legacy { mgp: false };
        let (url, alice) = (self.kernel.url().to_owned(), self.alice.clone());
        for server in ["open", "shut"] {
            let call = call(&format!("{server}__echo"), PERMITTED);
            ask(legacy, &url, &alice, "tools/call", call).await;
            let seen = self.seen_by(server).await;
            assert!(seen.contains(PERMITTED), "{server} sees who is permitted");
            assert!(!seen.contains(FORBIDDEN), "{server} was reached: {seen}");
        }
        println!("{} tries, 0 escapes", self.tries);
    }
}

async fn token(kernel: &Kernel, name: &str) -> String {
    let made = kernel.mgp_json(&["agents", "add", name]).await;
    made["token"].as_str().unwrap().to_owned()
}

fn grant(agent: &str, server: &str, tool: Option<&str>, permission: &str) -> Value {
    let entry_type = tool.map_or("server_grant", |_| "tool_grant");
    json!({"entry_type": entry_type, "agent_id": format!("agent.{agent}"), "server_id": server,
        "tool_name": tool, "permission": permission})
}

fn holder(url: &str, token: &str) -> HttpClient {
    let mut client = HttpClient::new(url);
    client.set(AUTHORIZATION, &format!("Bearer {token}"));
    client
}

fn request(id: &Value, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn call(tool: &str, text: &str) -> Value {
    json!({"name": tool, "arguments": {"text": text}})
}

/// The last message of an answer: the response.
async fn response(answer: mgp_tests::harness::http::HttpAnswer) -> Value {
    let status = answer.status;
    let frames = answer.frames().await;
    let last = frames.last().map(|frame| serde_json::from_str(frame));
    match last {
        Some(Ok(value)) => value,
        Some(Err(_)) | None => json!({"error": {"code": status.as_u16(), "message": "no JSON"}}),
    }
}

async fn session(url: &str, token: &str, mgp: bool) -> HttpClient {
    let mut client = holder(url, token);
    let capabilities = if mgp {
        speaks_mgp(NEWEST)
    } else {
        "{}".to_owned()
    };
    client.open_session(NEWEST, &capabilities).await;
    client
}

async fn ask(speech: Speech, url: &str, token: &str, method: &str, params: Value) -> Value {
    match speech {
        Speech::Legacy { mgp } => {
            let hello = holder(url, token).post(initialize(NEWEST, "{}")).await;
            if hello.status != StatusCode::OK {
                return response(hello).await;
            }
            let client = session(url, token, mgp).await;
            response(client.post(request(&json!(7), method, &params)).await).await
        }
        Speech::Modern { mgp } => {
            let capabilities = if mgp {
                speaks_mgp(MODERN)
            } else {
                "{}".to_owned()
            };
            let request = Envelope::new(&capabilities).request(&json!(7), method, params);
            response(holder(url, token).put(&request).await).await
        }
    }
}

fn is_refused(answer: &Value) -> bool {
    answer["error"].is_object() || answer["result"]["isError"] == true
}

/// The names a server's tool may go by at a door.
fn names(server: &str, view: Option<&str>) -> Vec<String> {
    let mut names = vec![format!("{server}__echo"), format!("{server}:echo")];
    names.extend((view == Some(server)).then(|| "echo".to_owned()));
    names
}

/// MGP-080: a hidden tool is reached by none of its names, at no door, in no era, with MGP or without,
/// and each answer is word for word that for a tool which does not exist.
#[tokio::test]
async fn a_hidden_tool_is_reached_by_no_name() {
    for rules in RULES {
        no_name_leads_to_it(Scene::under(rules).await).await;
    }
}

async fn no_name_leads_to_it(mut scene: Scene) {
    for speech in SPEECHES {
        for (url, view) in scene.doors() {
            for server in ["open", "shut"] {
                for name in names(server, view) {
                    let answer = scene
                        .bob_asks(speech, &url, "tools/call", call(&name, FORBIDDEN))
                        .await;
                    let unknown = scene
                        .bob_asks(speech, &url, "tools/call", call("nosuch", FORBIDDEN))
                        .await;
                    assert!(is_refused(&answer), "{speech:?} {name}: {answer}");
                    let said = answer.to_string().replace(&name, "nosuch");
                    assert_eq!(said, unknown.to_string(), "{speech:?} {name}");
                }
            }
        }
    }
    scene.nothing_came_through().await;
}

/// MGP-080, MGP-081: of a server that is closed nothing is listed, read, completed or followed, and
/// its own door is that of a server which does not exist.
#[tokio::test]
async fn a_hidden_server_is_reached_by_no_method() {
    for rules in RULES {
        no_method_leads_to_it(Scene::under(rules).await).await;
    }
}

async fn no_method_leads_to_it(mut scene: Scene) {
    for speech in SPEECHES {
        let url = scene.url();
        // What is closed is asked for in the words for what is not there, and answered in them.
        for (method, closed) in of_server("shut") {
            let params = closed.to_string().replace("shut", "nosuch");
            let params = serde_json::from_str(&params).unwrap();
            let absent = scene.bob_asks(speech, &url, method, params).await;
            let answer = scene.bob_asks(speech, &url, method, closed).await;
            let said = answer.to_string().replace("shut", "nosuch");
            assert_eq!(said, absent.to_string(), "{speech:?} {method}");
        }
        for list in [
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
        ] {
            let answer = scene.bob_asks(speech, &url, list, json!({})).await;
            let text = answer.to_string();
            assert!(!text.contains("shut"), "{speech:?} {list}: {text}");
            assert!(
                text.contains("open") || text.contains("test://"),
                "{speech:?} {list}: {text}"
            );
        }
        if scene.rules == Rules::Door {
            continue;
        }
        let (shut, none) = (
            scene.kernel.server_url("shut"),
            scene.kernel.server_url("nosuch"),
        );
        let closed = scene.bob_asks(speech, &shut, "tools/list", json!({})).await;
        let absent = scene.bob_asks(speech, &none, "tools/list", json!({})).await;
        let said = closed.to_string().replace("shut", "nosuch");
        assert_eq!(said, absent.to_string(), "{speech:?}");
    }
    let seen = scene.seen_by("shut").await;
    for word in [
        "prompts/get",
        "resources/read",
        "resources/subscribe",
        "completion/complete",
    ] {
        assert!(!seen.contains(word), "{word} reached it: {seen}");
    }
    scene.nothing_came_through().await;
}

/// What can be asked of a server besides its tools.
fn of_server(server: &str) -> [(&'static str, Value); 4] {
    let resource = json!({"uri": format!("mcpk://{server}/test%3A%2F%2Fwatched-resource")});
    let prompt = json!({"name": format!("{server}__test_simple_prompt"), "arguments": {}});
    let of_prompt = format!("{server}__test_prompt_with_arguments");
    let completed = json!({"ref": {"type": "ref/prompt", "name": of_prompt},
        "argument": {"name": "arg1", "value": FORBIDDEN}});
    [
        ("prompts/get", prompt),
        ("resources/read", resource.clone()),
        ("resources/subscribe", resource),
        ("completion/complete", completed),
    ]
}

/// MGP-075: a grant that has ended opens nothing more, not even to who used it a moment before.
#[tokio::test]
async fn a_grant_that_has_ended_opens_nothing() {
    let mut scene = Scene::new().await;
    let granted = scene
        .kernel
        .mgp(&["grants", "add", "agent.bob", "shut/echo", "--expires", "2s"])
        .await;
    assert!(granted.status.success(), "{granted:?}");
    let (url, bob) = (scene.kernel.url().to_owned(), scene.bob.clone());
    let client = session(&url, &bob, true).await;
    let allowed = call("shut__echo", PERMITTED);
    let used = response(
        client
            .post(request(&json!(1), "tools/call", &allowed))
            .await,
    )
    .await;
    assert!(!is_refused(&used), "{used}");
    wait_until("the grant has ended", DEADLINE, async || {
        let again = client
            .post(request(&json!(2), "tools/call", &allowed))
            .await;
        is_refused(&response(again).await)
    })
    .await;
    for speech in SPEECHES {
        let late = call("shut__echo", FORBIDDEN);
        let answer = scene.bob_asks(speech, &url, "tools/call", late).await;
        assert!(is_refused(&answer), "{speech:?}: {answer}");
    }
    let late = request(&json!(3), "tools/call", &call("shut__echo", FORBIDDEN));
    assert!(is_refused(&response(client.post(late).await).await));
    scene.nothing_came_through().await;
}

/// A-31: whoever is no operator grants, revokes, registers, approves and stops nothing, as a method or
/// as a tool, under any spelling, whatever the body claims.
#[tokio::test]
async fn operator_methods_are_denied_to_agents_under_any_spelling() {
    let mut scene = Scene::new().await;
    let mut claims = grant("bob", "shut", None, "allow");
    for claim in [
        "granted_by",
        "created_by",
        "agent",
        "operator",
        "on_behalf_of",
    ] {
        claims[claim] = json!("operator");
    }
    claims["id"] = json!("open");
    claims["command"] = json!("/bin/true");
    claims["name"] = json!("mallory");
    claims["_meta"] = json!({"agent_id": "operator", "dev.cloto/agent": "operator"});
    let words = [
        "access/grant",
        "access/revoke",
        "access/list",
        "access/explain",
        "agents/add",
        "agents/remove",
        "agents/token",
        "agents/list",
        "approvals/list",
        "approvals/approve",
        "approvals/deny",
        "permission/grant",
        "audit/replay",
        "servers/stop",
        "servers/logs",
        "kernel/stop",
        "kernel/reload",
        "kernel/status",
        "discovery/register",
        "discovery/deregister",
        "lifecycle/shutdown",
    ];
    let url = scene.kernel.url().to_owned();
    for speech in SPEECHES {
        for word in words {
            let method = format!("mgp/{word}");
            let answer = scene.bob_asks(speech, &url, &method, claims.clone()).await;
            assert!(is_refused(&answer), "{speech:?} {method}: {answer}");
            for tool in [
                method.clone(),
                method.replace('/', "."),
                method.replace('/', "_"),
            ] {
                let params = json!({"name": tool, "arguments": claims});
                let answer = scene.bob_asks(speech, &url, "tools/call", params).await;
                assert!(is_refused(&answer), "{speech:?} {tool}: {answer}");
            }
        }
        let sneaked = call("shut__echo", FORBIDDEN);
        let answer = scene.bob_asks(speech, &url, "tools/call", sneaked).await;
        assert!(is_refused(&answer), "{speech:?}: {answer}");
    }
    let listed = scene.kernel.mgp_json(&["agents", "list"]).await;
    assert_eq!(listed["agents"].as_array().unwrap().len(), 2, "{listed}");
    scene.nothing_came_through().await;
}

/// MGP-070, A-31: of another agent's rights nothing is learned, whoever one claims to be.
#[tokio::test]
async fn permissions_of_another_agent_are_not_disclosed() {
    for rules in RULES {
        no_rights_are_told(Scene::under(rules).await).await;
    }
}

async fn no_rights_are_told(mut scene: Scene) {
    let url = scene.url();
    for speech in [Speech::Legacy { mgp: true }, Speech::Modern { mgp: true }] {
        let about = |agent: &str, server: &str| json!({"agent_id": format!("agent.{agent}"), "server_id": server, "tool_name": "echo"});
        let others = scene
            .bob_asks(speech, &url, "mgp/access/query", about("alice", "shut"))
            .await;
        assert!(is_refused(&others), "{speech:?}: {others}");
        let own = scene
            .bob_asks(speech, &url, "mgp/access/query", about("bob", "shut"))
            .await;
        let none = scene
            .bob_asks(speech, &url, "mgp/access/query", about("bob", "nosuch"))
            .await;
        assert_eq!(own["result"], none["result"], "{speech:?}: {own}");
        assert_eq!(own["result"]["permission"], "deny", "{speech:?}: {own}");
    }
    scene.nothing_came_through().await;
}

/// A question put to one agent is not answered by another, its call not cancelled, its subscription
/// not ended.
#[tokio::test]
async fn agent_cannot_answer_cancel_or_end_anything_of_another() {
    let mut scene = Scene::new().await;
    let url = scene.kernel.url().to_owned();
    let mut alice = holder(&url, &scene.alice);
    alice
        .open_session(NEWEST, r#"{"elicitation":{"form":{}}}"#)
        .await;
    let mut standing = alice.get(None).await.events();
    let uri = format!("mcpk://open/{}", "test%3A%2F%2Fwatched-resource");
    let follow = request(&json!(1), "resources/subscribe", &json!({"uri": uri}));
    assert!(!is_refused(&response(alice.post(follow).await).await));
    let ask = json!({"name": "open__test_elicitation", "arguments": {"message": "Who?"}});
    let mut calling = alice
        .post(request(&json!(2), "tools/call", &ask))
        .await
        .events();
    let question = loop {
        let event = calling.next().await.expect("a question");
        if event.data.contains("elicitation/create") {
            break serde_json::from_str::<Value>(&event.data).unwrap();
        }
    };
    let bob = session(&url, &scene.bob, false).await;
    let forged = json!({"jsonrpc": "2.0", "id": question["id"],
        "result": {"action": "accept", "content": {"username": FORBIDDEN, "email": "b@b.b"}}});
    let cancelled = |id: i64| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    for message in [forged, cancelled(2), cancelled(1)] {
        scene.tries += 1;
        bob.post(message.to_string()).await;
    }
    let leave = request(&json!(3), "resources/unsubscribe", &json!({"uri": uri}));
    scene.tries += 1;
    bob.post(leave).await;
    let answer = json!({"jsonrpc": "2.0", "id": question["id"],
        "result": {"action": "accept", "content": {"username": PERMITTED, "email": "a@a.a"}}});
    assert_eq!(
        alice.post(answer.to_string()).await.status,
        StatusCode::ACCEPTED
    );
    let done = calling.next().await.expect("the answer").data;
    assert!(
        done.contains(PERMITTED) && !done.contains(FORBIDDEN),
        "{done}"
    );
    let touched = scene
        .owner
        .call("open__test_trigger_resource_update", json!({}))
        .await;
    assert!(!touched.is_error(), "{}", touched.frame);
    let heard = loop {
        let event = standing.next().await.expect("news");
        if event.data.contains("resources/updated") {
            break event.data;
        }
    };
    assert!(
        heard.contains(WATCHED) || heard.contains("watched-resource"),
        "{heard}"
    );
    scene.nothing_came_through().await;
}

/// CMCP-005: in a batch each request is judged alone: the allowed one is answered, the denied one is
/// refused, and the server sees only the first.
#[tokio::test]
async fn a_batch_carries_nothing_past_the_rules() {
    let mut scene = Scene::new().await;
    let url = scene.kernel.url().to_owned();
    let mut bob = holder(&url, &scene.bob);
    bob.open_session("2025-03-26", "{}").await;
    let add = json!({"name": "open__received", "arguments": {}});
    let batch = format!(
        "[{},{},{}]",
        request(&json!(1), "tools/call", &add),
        request(&json!(2), "tools/call", &call("shut__echo", FORBIDDEN)),
        request(&json!(3), "tools/call", &call("open__echo", FORBIDDEN)),
    );
    scene.tries += 2;
    let frames = bob.post(batch).await.frames().await;
    let mut answers = Vec::new();
    for frame in &frames {
        let message: Value = serde_json::from_str(frame).unwrap();
        let one = std::slice::from_ref(&message);
        answers.extend_from_slice(message.as_array().map_or(one, Vec::as_slice));
    }
    for answer in &answers {
        assert_eq!(is_refused(answer), answer["id"] != 1, "{answer}");
    }
    assert_eq!(answers.len(), 3, "{frames:?}");
    scene.nothing_came_through().await;
}
