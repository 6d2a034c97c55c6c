//! The kernel as a client of its servers, to the byte: the handshake, ids, sessions, and answers to what servers ask.

use mgp_tests::harness::handshake::FULL;
use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, Upstream, wait_until};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST, counts, received};

/// The frame that begins the session of a server.
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn parse(frame: &str) -> Value {
    serde_json::from_str(frame).unwrap()
}

/// Where the first frame of this method is.
fn position(frames: &[String], method: &str) -> usize {
    let member = format!(r#""method":"{method}""#);
    let found = frames.iter().position(|frame| frame.contains(&member));
    found.unwrap_or_else(|| panic!("{method}: {frames:#?}"))
}

/// The frames that the kernel sent a server with these keys in its entry.
async fn frames_to(keys: &str) -> Vec<String> {
    let entry = Program::fixture(&["--era", "legacy"]).entry("it");
    let kernel = Kernel::start(&format!("{entry}mgp = false\nmcpl = false\n{keys}")).await;
    kernel.connected(&["it"]).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    received(&mut agent, "it:received").await
}

/// MCP-001.
#[tokio::test]
async fn server_is_initialized_with_version_and_client_info() {
    let frames = frames_to("").await;
    let params = &parse(&frames[position(&frames, "initialize")])["params"];
    assert_eq!(params["protocolVersion"], NEWEST);
    assert!(params["capabilities"].is_object(), "{params}");
    let client = &params["clientInfo"];
    assert_eq!(client["name"], "mgp");
    assert!(client["version"].is_string(), "{params}");
}

/// MCP-014, CMCP-091, CMCP-092: exactly what some client can be asked and the entry allows.
#[tokio::test]
async fn initialize_declares_the_capabilities_that_the_entry_allows() {
    for (keys, declared) in [
        (
            "",
            r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}"#,
        ),
        (
            "sampling = \"off\"\n",
            r#"{"roots":{"listChanged":true},"elicitation":{"form":{},"url":{}}}"#,
        ),
        (
            "sampling = \"off\"\nelicitation = \"off\"\n",
            r#"{"roots":{"listChanged":true}}"#,
        ),
    ] {
        let frames = frames_to(keys).await;
        let hello = &frames[position(&frames, "initialize")];
        // Every server is told that there are hosts of apps.
        let apps = r#""io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}"#;
        let more = &declared[1..];
        let member = format!(r#""capabilities":{{"extensions":{{{apps}}},{more},"clientInfo""#);
        assert!(hello.contains(&member), "{keys}: {hello}");
    }
}

/// MCP-016: once, and before any request.
#[tokio::test]
async fn initialized_follows_the_answer_to_initialize() {
    let frames = frames_to("").await;
    let hello = position(&frames, "initialize");
    assert_eq!(frames[hello + 1], INITIALIZED, "{frames:#?}");
    let times = frames.iter().filter(|frame| **frame == INITIALIZED);
    assert_eq!(times.count(), 1, "{frames:#?}");
    for method in ["tools/list", "resources/list", "prompts/list", "tools/call"] {
        assert!(position(&frames, method) > hello + 1, "{method}");
    }
}

/// A server that asks before it has answered `initialize`, writes down what comes in, and has a logging method that it
/// does not know.
const EAGER: &str = r#"while read -r line; do
printf '%s\n' "$line" >> "$0"
id=$${line#*\"id\":}; id=$${id%%,*}; id=$${id%%\}*}
case $line in
*'"initialize"'*)
for asked in roots/list sampling/createMessage elicitation/create foo/bar ping; do
printf '{"jsonrpc":"2.0","id":"%s","method":"%s","params":{"message":"early","messages":[],"maxTokens":1}}\n' "$asked" "$asked"
done
result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"v","version":"1"}}';;
*'"tools/list"'*) result='{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}';;
*'"tools/call"'*) result='{"content":[]}';;
*'"method":"ping"'*) result='{}';;
*'"method"'*'"id"'*|*'"id"'*'"method"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}\n' "$id"; continue;;
*) continue;;
esac
printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done"#;

/// MCP-018, MCP-053, CMCP-097: what a server asks before `initialized` reaches no client, though one that could answer
/// is waiting for that server; it is refused, and a ping answered. A level that a server does not take stands in its log.
#[tokio::test]
async fn questions_before_the_handshake_reach_no_client() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("frames").display().to_string();
    let kernel = Kernel::start(&Program::new("sh", ["-c", EAGER, &log]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let mut agent = scene::socket_agent(&kernel, FULL).await;
    std::fs::remove_file(&log).unwrap();
    agent
        .request("mgp/servers/restart", json!({"id": "it"}))
        .await
        .result();
    // Made while the server starts: a call is under way that an early question could be taken for one of.
    agent.call("it:echo", json!({})).await.result();
    let mut answers = Vec::new();
    wait_until("all are answered", DEADLINE, async || {
        let frames = std::fs::read_to_string(&log).unwrap();
        let frames = frames.lines().map(parse);
        answers = frames
            .filter(|frame| frame.get("method").is_none())
            .collect();
        answers.len() >= 5
    })
    .await;
    let answer = |id: &str| {
        let own: Vec<&Value> = answers.iter().filter(|answer| answer["id"] == id).collect();
        assert_eq!(own.len(), 1, "{id}: {answers:#?}");
        own[0].clone()
    };
    for refused in ["sampling/createMessage", "elicitation/create", "foo/bar"] {
        assert!(
            answer(refused)["error"]["code"].is_i64(),
            "{refused}: {answers:#?}"
        );
    }
    assert_eq!(answer("foo/bar")["error"]["code"], -32601);
    answer("roots/list");
    assert_eq!(
        answer("ping"),
        json!({"jsonrpc": "2.0", "id": "ping", "result": {}})
    );
    // Its roots belong to no call: they may be asked for.
    let mut asked = agent.asked().iter();
    assert!(
        asked.all(|asked| asked["method"] == "roots/list"),
        "{:?}",
        agent.asked()
    );

    let level = json!({"level": "error"});
    agent.request("logging/setLevel", level).await.result();
    wait_until("its log says so", DEADLINE, async || {
        let logged = kernel.mgp(&["servers", "logs", "it"]).await.stdout;
        let logged = String::from_utf8_lossy(&logged).into_owned();
        logged.contains("logging/setLevel: ") && logged.contains("no such method")
    })
    .await;
}

/// MCP-053, CMCP-060, CMCP-064, CMCP-099: with a hundred calls under way that are never answered, pings are answered in
/// both directions with `{}`, lists in the order they were asked for, and a call may be taken back.
#[tokio::test]
async fn pings_and_lists_are_answered_behind_calls_that_hang() {
    let kernel = scene::kernel_with("", &["--era", "legacy"]).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let mut hanging = Vec::new();
    for _ in 0..100 {
        let call = json!({"name": "it:hang", "arguments": {}});
        hanging.push(agent.start("tools/call", call).await);
    }
    let answer = agent
        .call("it:ask", json!({"method": "ping", "params": {}}))
        .await;
    assert_eq!(answer.result()["structuredContent"], json!({}));
    let frames = received(&mut agent, "it:received").await;
    let answers = frames.iter().filter(|frame| !frame.contains(r#""method""#));
    let answers: Vec<&String> = answers.collect();
    assert_eq!(answers.len(), 1, "{answers:?}");
    let id = parse(answers[0])["id"].to_string();
    let pong = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
    assert_eq!(*answers[0], pong);

    let pong = agent.request("ping", json!({})).await;
    let id = parse(&pong.frame)["id"].to_string();
    assert_eq!(
        pong.frame,
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
    );
    let mut wire = Agent::over_socket(&kernel.socket()).await;
    wire.initialize(NEWEST, "{}").await.result();
    let methods = [
        "tools/list",
        "ping",
        "prompts/list",
        "resources/list",
        "ping",
    ];
    let mut asked = Vec::new();
    for method in methods {
        asked.push(wire.start(method, json!({})).await);
    }
    // The last one's answer is taken first: those before it have come by then.
    for id in asked.iter().rev() {
        within("an answer", DEADLINE, wire.answer_to(id))
            .await
            .result();
    }
    let taken_back = json!({"requestId": hanging[99]});
    agent.notify("notifications/cancelled", taken_back).await;
    scene::taken_back(&mut wire, "hang", 1).await;
}

/// MCP-066, CMCP-046: of a server that declares nothing but tools nothing else is asked, whatever clients ask and the
/// server reports, and no client hears of lists that are not offered.
#[tokio::test]
async fn server_is_sent_no_method_of_a_capability_it_does_not_declare() {
    let absent = ["logging", "prompts", "resources", "completions"];
    let flags = absent.map(|name| ["--without", name]).concat();
    let flags = [flags.as_slice(), &["--era", "legacy"]].concat();
    let kernel = scene::kernel_with("", &flags).await;
    let mut all = scene::socket_agent(&kernel, FULL).await;
    let mut alone = scene::http_agent(&kernel, Some("it"), FULL).await;
    let uri = json!({"uri": "test://static-text"});
    let prompt = json!({"name": "test_simple_prompt"});
    let reference = json!({"ref": {"type": "ref/prompt", "name": "test_simple_prompt"}, "argument": {"name": "a", "value": ""}});
    for (method, params) in [
        ("prompts/list", json!({})),
        ("prompts/get", prompt),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", uri.clone()),
        ("resources/subscribe", uri.clone()),
        ("resources/unsubscribe", uri),
        ("completion/complete", reference),
        ("logging/setLevel", json!({"level": "debug"})),
    ] {
        all.request(method, params.clone()).await;
        alone.request(method, params).await;
    }
    for kind in ["prompts", "resources"] {
        let method = format!("notifications/{kind}/list_changed");
        let told = json!({"method": method, "params": {}});
        alone.call("announce", told).await.result();
    }
    let announced = json!({"method": "notifications/resources/updated", "params": {"uri": "test://static-text"}});
    alone.call("announce", announced).await.result();
    // Added and reported: this list is offered.
    alone
        .call("test_trigger_tool_change", json!({}))
        .await
        .result();
    alone.hears("notifications/tools/list_changed").await;
    let heard = alone.all_heard().iter().chain(all.all_heard());
    let other = heard.filter(|heard| heard["method"] != "notifications/tools/list_changed");
    assert_eq!(other.collect::<Vec<_>>(), [&Value::Null; 0]);

    let counted = counts(&mut all, "it:count").await["methods"].take();
    let known = [
        "initialize",
        "notifications/initialized",
        "notifications/cancelled",
        "ping",
        "server/discover",
        "tools/call",
        "tools/list",
    ];
    let methods = counted.as_object().unwrap().keys();
    let more: Vec<&String> = methods
        .filter(|name| !known.contains(&name.as_str()))
        .collect();
    assert!(more.is_empty(), "{counted}");
}

/// The id that a server knows its newest call of a tool by.
async fn newest_id(agent: &mut Agent, server: &str, tool: &str) -> Value {
    let name = format!(r#""name":"{tool}""#);
    let mut id = Value::Null;
    wait_until(&format!("{tool} is called"), DEADLINE, async || {
        let frames = received(agent, &format!("{server}:received")).await;
        let call = frames.iter().rfind(|frame| frame.contains(&name));
        id = call.map_or(Value::Null, |call| parse(call)["id"].clone());
        !id.is_null()
    })
    .await;
    id
}

/// CMCP-060, CMCP-082, CMCP-100: two servers have calls under way by the same ids; each call has the answer of its own
/// server, in whatever order they come, and an answer to an id of the other server is nobody's.
#[tokio::test]
async fn equal_ids_at_two_servers_never_meet() {
    let kernel = scene::kernel_of_two().await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let mut watcher = scene::socket_agent(&kernel, "{}").await;
    let mut calls = Vec::new();
    for server in ["one", "two"] {
        let mut own = Vec::new();
        for _ in 0..8 {
            let call = json!({"name": format!("{server}:reverse"), "arguments": {"n": 9}});
            own.push(agent.start("tools/call", call).await);
        }
        calls.push(own);
    }
    let mut ids = Vec::new();
    for server in ["one", "two"] {
        newest_id(&mut watcher, server, "reverse").await;
        let frames = received(&mut watcher, &format!("{server}:received")).await;
        let own = frames
            .iter()
            .filter(|frame| frame.contains(r#""name":"reverse""#));
        ids.push(
            own.map(|frame| parse(frame)["id"].clone())
                .collect::<Vec<_>>(),
        );
    }
    let same = ids[0].iter().find(|id| ids[1].contains(id));
    let same = same.unwrap_or_else(|| panic!("they count alike: {ids:?}"));
    // One server answers what only the other one was asked, by an id that it has itself and by all others.
    for id in &ids[1] {
        if !ids[0].contains(id) {
            watcher.call("one:stray", json!({"id": id})).await.result();
        }
    }
    watcher.call("two:reverse", json!({"n": 9})).await.result();
    for (n, id) in calls[1].iter().enumerate() {
        let told = agent.answer_to(id).await.text();
        assert_eq!(told, format!("came as number {}", n + 1), "of two, {same}");
    }
    let listed = watcher
        .request("mgp/servers/list", json!({}))
        .await
        .result();
    let servers = listed["servers"].as_array().unwrap();
    let one = servers.iter().find(|server| server["id"] == "one").unwrap();
    assert_eq!(one["in_flight"], 8, "{one}");
    watcher.call("one:reverse", json!({"n": 9})).await.result();
    // In the order that nobody answered in.
    for (n, id) in calls[0].iter().enumerate().rev() {
        let told = agent.answer_to(id).await.text();
        assert_eq!(told, format!("came as number {}", n + 1), "of one, {same}");
    }
}

/// CMCP-078: a server that starts slowly, and one whose list never comes, hold up neither the list nor the calls of
/// others; what is listed has the order of the servers and not that of their answers.
#[tokio::test]
async fn a_list_has_the_order_of_servers_and_waits_for_none_that_is_slow() {
    let servers = Program::fixture(&["--bare", "--slow-start", "700"]).entry("first")
        + &Program::fixture(&["--bare"]).entry("second")
        + &Program::fixture(&["--hanging-list", "tools/list"]).entry("third");
    let kernel = Kernel::start(&servers).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    kernel.connected(&["second"]).await;
    let call = agent.call("second:test_trigger_tool_change", json!({}));
    within("a call of the fast one", DEADLINE, call)
        .await
        .result();
    kernel.connected(&["first"]).await;
    let tools = within("a list", DEADLINE, agent.request("tools/list", json!({}))).await;
    let tools = tools.result()["tools"].clone();
    let names = tools.as_array().unwrap().iter();
    let names: Vec<&str> = names.filter_map(|tool| tool["name"].as_str()).collect();
    let of = |server: &str| {
        let own = names.iter().enumerate();
        let own = own.filter(|(_, name)| name.starts_with(server));
        own.map(|(at, _)| at).collect::<Vec<_>>()
    };
    let (first, second) = (of("first__"), of("second__"));
    assert!(!first.is_empty() && !second.is_empty(), "{names:?}");
    assert!(first.last() < second.first(), "{names:?}");
    assert!(of("third__").is_empty(), "{names:?}");
}

/// The value of a header in the lines of a head.
fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut lines = head.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Thirty calls at a remote server that answers them in any order: their answers, and the heads of all requests and
/// streams.
async fn thirty_remote_calls() -> (Vec<String>, Vec<String>, Vec<String>) {
    let upstream = Upstream::start(&["--era", "legacy"]).await;
    let kernel = Kernel::start(&remote_entry("it", &upstream.url())).await;
    kernel.connected(&["it"]).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let mut ids = Vec::new();
    for _ in 0..30 {
        let call = json!({"name": "it:reverse", "arguments": {"n": 30}});
        ids.push(agent.start("tools/call", call).await);
    }
    let mut answers = Vec::new();
    for id in &ids {
        answers.push(agent.answer_to(id).await.text());
    }
    let (mut posts, mut streams): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    wait_until("the stream is opened", DEADLINE, async || {
        let told = counts(&mut agent, "it:received").await;
        posts = serde_json::from_value(told["heads"].clone()).unwrap();
        streams = serde_json::from_value(told["streamHeads"].clone()).unwrap();
        !streams.is_empty()
    })
    .await;
    (answers, posts, streams)
}

/// Of these requests, those from the first one in a session on.
fn in_session(posts: &[String]) -> &[String] {
    let mut posts_in_session = posts.iter();
    let opened = posts_in_session.position(|head| header(head, "mcp-session-id").is_some());
    &posts[opened.expect("there is a session")..]
}

/// CMCP-033, CMCP-060: on connections of their own they overtake each other; none is missing, and none came twice.
#[tokio::test]
async fn each_call_to_a_remote_server_is_a_post_of_its_own() {
    let (mut answers, posts, _) = thirty_remote_calls().await;
    answers.sort();
    let mut expected: Vec<_> = (1..=30).map(|n| format!("came as number {n}")).collect();
    expected.sort();
    assert_eq!(answers, expected);
    assert!(in_session(&posts).len() > 30, "{}", posts.len());
}

/// CMCP-034.
#[tokio::test]
async fn get_stream_of_a_remote_server_opens_in_the_session_of_initialize() {
    let (_, posts, streams) = thirty_remote_calls().await;
    let session = header(&in_session(&posts)[0], "mcp-session-id");
    assert!(session.is_some());
    for head in &streams {
        assert_eq!(header(head, "mcp-session-id"), session, "{head}");
    }
}

/// CMCP-035: and every stream.
#[tokio::test]
async fn later_requests_to_a_remote_server_carry_session_and_version() {
    let (_, posts, streams) = thirty_remote_calls().await;
    let later = in_session(&posts);
    let session = header(&later[0], "mcp-session-id");
    for head in later.iter().chain(&streams) {
        assert_eq!(header(head, "mcp-session-id"), session, "{head}");
        assert_eq!(header(head, "mcp-protocol-version"), Some(NEWEST), "{head}");
    }
}

/// CMCP-093: while a client changes its roots, a server that asks gets one of its lists, whole.
#[tokio::test]
async fn roots_that_change_are_read_whole() {
    let kernel = scene::kernel_with("", &["--era", "legacy"]).await;
    let mut agent = scene::socket_agent(&kernel, r#"{"roots":{"listChanged":true}}"#).await;
    let list = |name: &str| {
        let roots = (0..50).map(|n| json!({"uri": format!("file:///{name}/{n}")}));
        json!({"roots": roots.collect::<Vec<_>>()})
    };
    let mut asked = Vec::new();
    for round in 0..20 {
        let name = if round % 2 == 0 { "even" } else { "odd" };
        agent.answers("roots/list", list(name));
        agent
            .notify("notifications/roots/list_changed", json!({}))
            .await;
        for _ in 0..2 {
            let call = json!({"name": "it:ask_roots", "arguments": {}});
            asked.push(agent.start("tools/call", call).await);
        }
        let text = agent.answer_to(&asked[round]).await.text();
        let names: Vec<&str> = text.lines().collect();
        assert_eq!(names.len(), 50, "{text}");
        let of = |name: &str| {
            names
                .iter()
                .all(|uri| uri.starts_with(&format!("file:///{name}/")))
        };
        assert!(of("even") || of("odd"), "{text}");
    }
    // After the change is reported, only the new list is read.
    agent.answers("roots/list", list("last"));
    for id in &asked[20..] {
        agent.answer_to(id).await.result();
    }
    let text = agent.call("it:ask_roots", json!({})).await.text();
    assert!(
        text.lines().all(|uri| uri.starts_with("file:///last/")),
        "{text}"
    );
}
