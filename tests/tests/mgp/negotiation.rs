//! Negotiation of MGP with clients and with servers, in both versions of the protocol.

mod unagreed;

use mgp_tests::harness::envelope::{CLIENT_CAPABILITIES, MODERN};
use mgp_tests::harness::mgp::{
    EXTENSION, NINE, READS_AUDIT_LOG, declaration, declared, declaring, speaks_mgp,
};
use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{Agent, Answer, Client, Kernel, Program, Upstream};
use serde_json::{Value, json};

use crate::scene::{DOORS, Door, ERAS, client, kernel_with, of_kind, received, reported};

/// The extensions of 0.2, all of which are there.
const BUILT: [&str; 9] = [
    "security",
    "access_control",
    "audit",
    "code_safety",
    "lifecycle",
    "streaming",
    "bidirectional",
    "discovery",
    "tool_discovery",
];

/// The capabilities the kernel answers a client with.
async fn answered(url: &str, version: &str, capabilities: &str) -> Value {
    let client = Client::over_http(url, version, capabilities).await;
    let Client::Modern(mut client) = client else {
        let mut client = Agent::over_http(url);
        let hello = client.initialize(version, capabilities).await.result();
        return hello["capabilities"].clone();
    };
    let discovered = client.request("server/discover", json!({})).await.result();
    discovered["capabilities"].clone()
}

/// MGP-021, MGP-023: all extensions of the document, in either version.
#[tokio::test]
async fn agent_that_declares_mgp_is_answered_with_version_and_extensions() {
    let kernel = kernel_with("", &[]).await;
    for version in ERAS {
        let capabilities = answered(kernel.url(), version, &speaks_mgp(version)).await;
        let said = declared(version, &capabilities);
        assert_eq!(
            said,
            json!({"version": "0.2.0", "extensions": BUILT}),
            "{version}"
        );
    }
    assert!(BUILT.iter().all(|word| NINE.contains(word)));
}

/// MGP-026: at the endpoint of one server, with what is known of it.
#[tokio::test]
async fn active_extensions_are_those_that_both_sides_know() {
    let kernel = kernel_with("", &[]).await;
    let one = kernel.server_url("it");
    for version in ERAS {
        let some = declaration(&["audit", "com.x.foo", "streaming"]);
        let some = declaring(version, "{}", &some);
        let said = declared(version, &answered(&one, version, &some).await);
        let want = json!({"version": "0.2.0", "extensions": ["audit", "streaming"], "server_id": "it", "trust_level": "standard"});
        assert_eq!(said, want, "{version}");
    }
}

/// MGP-018, MGP-024, MGP-025: what a server declares is seen by the operator; its trust can only sink.
#[tokio::test]
async fn declaration_of_a_server_is_reported_and_its_trust_only_lowered() {
    if crate::sandbox::starts_none().await {
        return;
    }
    let said = json!({"version": "0.2.0", "extensions": ["security", "audit", "com.x.foo"],
        "permissions_required": ["shell"], "server_id": "mind", "trust_level": "god"});
    for era in ["legacy", "modern"] {
        let flags = ["--era", era, "--mgp", &said.to_string()];
        let kernel = kernel_with("[permissions]\npolicy = \"auto_approve\"\n", &flags).await;
        let server = reported(&kernel, "it").await;
        assert_eq!(server["trust_level"], "sandboxed", "{server:#}");
        let want = json!({"version": "0.2.0", "extensions": ["security", "audit"],
            "server_id": "mind", "permissions_required": ["shell"], "trust_level": "god"});
        assert_eq!(server["mgp"], want, "{era}");
    }
}

/// A server over stdio and one over HTTP, of both kinds, in one configuration.
async fn four_servers(more: &str) -> (Kernel, Vec<Upstream>) {
    let said = declaration(&NINE).to_string();
    let speaks = ["--mgp", said.as_str()];
    let far = [Upstream::start(&[]).await, Upstream::start(&speaks).await];
    let config = [
        Program::fixture(&[]).entry("plain") + more,
        Program::fixture(&speaks).entry("speaks") + READS_AUDIT_LOG + more,
        remote_entry("far-plain", &far[0].url()) + more,
        remote_entry("far-speaks", &far[1].url()) + READS_AUDIT_LOG + more,
    ];
    let kernel = Kernel::start(&config.concat()).await;
    let all = ["plain", "speaks", "far-plain", "far-speaks"];
    kernel.connected(&all).await;
    (kernel, far.into())
}

/// No method outside MCP in what went over a wire.
fn no_mgp_methods(frames: &[String]) {
    for frame in frames {
        let read: Value = serde_json::from_str(frame).expect("a frame is JSON");
        assert_eq!(read["jsonrpc"], "2.0", "{frame}");
        let method = read["method"].as_str().unwrap_or_default();
        assert!(!method.contains("mgp"), "{frame}");
    }
}

/// Clients of every version at every endpoint that speak MGP, or that do not, with a name of each for messages.
async fn clients(kernel: &Kernel, speaks: bool) -> Vec<(String, Client)> {
    let mut clients = Vec::new();
    for version in ERAS {
        for door in DOORS {
            let name = format!("{version} {door:?} {speaks}");
            clients.push((name, of_kind(kernel, door, version, speaks).await));
        }
    }
    clients
}

/// Calls a server, over a pipe or HTTP, and checks the result and two errors, in the codes that the client knows.
async fn assert_works(cell: &str, client: &mut Client, server: &str, speaks: bool) {
    let tool = |name: &str| format!("{server}:{name}");
    let echoed = client.call(&tool("echo"), json!({"text": "hello"})).await;
    assert!(echoed.result_text().contains("hello"), "{cell} {server}");
    let data = json!({"_mgp": {"category": "lifecycle", "retryable": false}});
    let error = json!({"code": 2001, "message": "m", "data": data});
    let failed = client.call(&tool("fail"), json!({"error": error})).await;
    let unknown = client.call(&tool("nothing"), json!({})).await;
    if speaks {
        assert_eq!(failed.error(), error, "{cell} {server}");
        assert_eq!(unknown.code(), 4001, "{cell} {server}");
    } else {
        let plain = json!({"code": -32603, "message": "m"});
        assert_eq!(failed.error(), plain, "{cell} {server}");
        assert_eq!(unknown.code(), -32602, "{cell} {server}");
    }
    assert!(client.heard("notifications/mgp.audit").is_empty(), "{cell}");
}

/// The servers `PREFIX` and `far-PREFIX` work for clients of this kind.
async fn assert_pattern(speaks: bool, server: &str) {
    let (kernel, _far) = four_servers("").await;
    for (cell, mut client) in clients(&kernel, speaks).await {
        for server in [server.to_owned(), format!("far-{server}")] {
            assert_works(&cell, &mut client, &server, speaks).await;
        }
    }
}

/// MGP-008.
#[tokio::test]
async fn mcp_client_uses_an_mcp_server_in_plain_mcp() {
    assert_pattern(false, "plain").await;
}

/// MGP-269.
#[tokio::test]
async fn mcp_client_uses_an_mgp_server_in_plain_mcp() {
    assert_pattern(false, "speaks").await;
}

/// MGP-010.
#[tokio::test]
async fn mgp_client_uses_an_mcp_server_with_the_kernels_fallback() {
    assert_pattern(true, "plain").await;
}

/// MGP-011.
#[tokio::test]
async fn mgp_client_uses_an_mgp_server() {
    assert_pattern(true, "speaks").await;
}

/// MGP-012, MGP-013: at one kernel at once, over every transport of MCP.
#[tokio::test]
async fn all_four_patterns_work_with_one_configuration() {
    let (kernel, _far) = four_servers("").await;
    for speaks in [false, true] {
        for (cell, mut client) in clients(&kernel, speaks).await {
            for server in ["plain", "speaks", "far-plain", "far-speaks"] {
                let tool = format!("{server}:echo");
                let echoed = client.call(&tool, json!({"text": "hello"})).await;
                assert!(echoed.result_text().contains("hello"), "{cell} {server}");
            }
        }
    }
    let status = kernel.mgp_json(&["status"]).await;
    let all = status["servers"].as_array().unwrap();
    assert!(
        all.iter().all(|server| server["state"] == "connected"),
        "{status:#}"
    );
    let spoken = async |id: &str| !reported(&kernel, id).await["mgp"].is_null();
    assert!(spoken("speaks").await && spoken("far-speaks").await);
    assert!(!spoken("plain").await && !spoken("far-plain").await);
}

/// MGP-014, MGP-015: JSON-RPC 2.0, and in what is no method of MCP the documented prefixes, to servers that negotiated it.
#[tokio::test]
async fn frames_are_json_rpc_and_methods_of_mgp_have_their_prefix() {
    let (kernel, _far) = four_servers("").await;
    let mut client = of_kind(&kernel, Door::Http, ERAS[0], true).await;
    for server in ["plain", "far-plain", "speaks", "far-speaks"] {
        let tool = |name: &str| format!("{server}:{name}");
        client
            .call(&tool("echo"), json!({"text": "a"}))
            .await
            .result();
        let mut frames = received(&mut client, &tool("received")).await;
        // A server that reads the audit log is notified that it may, and of what was done.
        let of_mgp = |frame: &String| {
            frame.contains("\"notifications/mgp.audit\"")
                || frame.contains("\"mgp/permission/response\"")
        };
        if server.ends_with("speaks") {
            assert!(frames.iter().any(of_mgp), "{server}: {frames:#?}");
            frames.retain(|frame| !of_mgp(frame));
        }
        no_mgp_methods(&frames);
    }
}

/// A kernel in front of a server that says all of MGP without being asked.
async fn kernel_of_mgp() -> Kernel {
    let said = declaration(&NINE).to_string();
    kernel_with("", &["--mgp", &said, "--mgp-unasked"]).await
}

/// MGP-020, MGP-028: at all servers and at one.
#[tokio::test]
async fn client_that_does_not_declare_mgp_is_not_answered_with_it() {
    let kernel = kernel_of_mgp().await;
    for version in ERAS {
        for url in [kernel.url(), &kernel.server_url("it")] {
            let capabilities = answered(url, version, "{}").await.to_string();
            assert!(!capabilities.contains("mgp"), "{version} {capabilities}");
        }
    }
}

/// MGP-017: nor is one of another major version; both get standard MCP.
#[tokio::test]
async fn client_of_another_major_version_gets_standard_mcp() {
    let kernel = kernel_of_mgp().await;
    let odd = json!({"version": "9.0.0", "extensions": NINE});
    for version in ERAS {
        let odd = declaring(version, "{}", &odd);
        for url in [kernel.url(), &kernel.server_url("it")] {
            let capabilities = answered(url, version, &odd).await.to_string();
            assert!(!capabilities.contains("mgp"), "{version} {capabilities}");
        }
        let mut client = Client::over_http(kernel.url(), version, &odd).await;
        let unknown = client.call("it:nothing", json!({})).await;
        assert_eq!(unknown.code(), -32602, "{version}");
    }
}

/// MGP-268.
#[tokio::test]
async fn server_that_only_declares_mgp_is_an_mgp_server() {
    let said = json!({"version": "0.2.0", "extensions": []}).to_string();
    for era in ["legacy", "modern"] {
        let kernel = kernel_with("", &["--era", era, "--mgp", &said]).await;
        let server = reported(&kernel, "it").await;
        assert_eq!(server["state"], "connected", "{server:#}");
        assert_eq!(server["mgp"]["version"], "0.2.0", "{server:#}");
    }
}

/// What a server that speaks all of MGP may say of itself, and what nobody has heard of.
const SAID: [&str; 6] = [
    "notifications/mgp.lifecycle",
    "notifications/mgp.audit",
    "notifications/mgp.permission",
    "notifications/mgp.stream.chunk",
    "notifications/mgp.callback.request",
    "notifications/mgp.anything",
];

/// MGP-009: nothing of what a server says in MGP comes to a client that does not speak it: no notification
/// in its calls or beside them, no question, no word in what it is answered or refused; and what the kernel
/// itself tells of that server to others does not either.
#[tokio::test]
async fn client_without_mgp_gets_no_message_of_it() {
    let said = declaration(&NINE).to_string();
    let security = json!({"echo": {"risk_level": "safe", "permissions_required": ["camera"]}});
    for era in ["legacy", "modern"] {
        let flags = [
            "--era",
            era,
            "--mgp",
            &said,
            "--mgp-security",
            &security.to_string(),
        ];
        let kernel = kernel_with("[permissions]\npolicy = \"deny_all\"\n", &flags).await;
        let mut plain = Vec::new();
        for version in ERAS {
            for door in DOORS {
                let mut client = of_kind(&kernel, door, version, false).await;
                client.wants_news_of_tools().await;
                plain.push((format!("{era} {version} {door:?}"), client));
            }
        }
        for (case, client) in &mut plain {
            for method in SAID {
                let params = json!({"server_id": "it", "previous_state": "connected",
                    "new_state": "asleep", "event_type": "com.example.said", "request_id": 1});
                let announced = json!({"method": method, "params": params});
                assert_eq!(client.call("it:announce", announced).await.text(), "sent");
            }
            let ask = json!({"request_id": "mine", "permissions": ["camera"]});
            let asked = json!({"method": "mgp/permission/request", "params": ask});
            silent(&client.call("it:ask", asked).await, case);
            let refused = client.call("it:echo", json!({"text": "x"})).await;
            assert_eq!(refused.code(), -32603, "{case}");
            silent(&refused, case);
        }
        kernel.mgp_json(&["servers", "restart", "it"]).await;
        kernel.connected(&["it"]).await;
        for (case, client) in &mut plain {
            silent(&client.call("it:slow", json!({"ms": 0})).await, case);
            let words = format!("{:?} {:?}", client.all_heard(), client.asked());
            assert!(!words.contains("mgp."), "{case}: {words}");
            assert!(!words.contains("mgp/"), "{case}: {words}");
        }
    }
}

/// An answer without a word of MGP.
fn silent(answer: &Answer, case: &str) {
    for word in ["\"mgp\":", "_mgp", "notifications/mgp", "\"mgp/"] {
        assert!(!answer.frame.contains(word), "{case}: {}", answer.frame);
    }
}

/// MGP-016: where an SDK keeps nothing but `experimental`, the declaration stands there, and its answer.
#[tokio::test]
async fn declaration_below_experimental_is_read_and_answered() {
    let said = declaration(&["security", "audit"]);
    let kernel = kernel_with(
        "",
        &[
            "--mgp",
            &said.to_string(),
            "--mgp-experimental",
            "--era",
            "legacy",
        ],
    )
    .await;
    let spoken = reported(&kernel, "it").await["mgp"].clone();
    assert_eq!(spoken["extensions"], json!(["security", "audit"]));
    let below = json!({"experimental": {"mgp": said}}).to_string();
    let capabilities = answered(kernel.url(), ERAS[0], &below).await;
    assert_eq!(
        capabilities["experimental"]["mgp"]["extensions"],
        json!(["security", "audit"])
    );
    assert_eq!(capabilities["mgp"], Value::Null);
}

/// MGP-016: where an SDK of the modern era opens a session, the declaration stands among the extensions, and its
/// answer; then it is MGP as ever.
#[tokio::test]
async fn declaration_among_the_extensions_of_a_session_is_read_and_answered() {
    let said = declaration(&["security", "audit"]);
    let flags = [
        "--mgp",
        &said.to_string(),
        "--mgp-extension",
        "--era",
        "legacy",
    ];
    let kernel = kernel_with("", &flags).await;
    let spoken = reported(&kernel, "it").await["mgp"].clone();
    assert_eq!(spoken["extensions"], json!(["security", "audit"]));
    let session = ERAS[0];
    let among = json!({"extensions": {EXTENSION: said, "com.x/other": {}}}).to_string();
    for url in [kernel.url(), &kernel.server_url("it")] {
        let capabilities = answered(url, session, &among).await;
        let answer = &capabilities["extensions"][EXTENSION];
        assert_eq!(answer["extensions"], json!(["security", "audit"]));
        let elsewhere = [&capabilities["mgp"], &capabilities["experimental"]["mgp"]];
        assert_eq!(elsewhere, [&Value::Null; 2]);
    }
    for door in DOORS {
        let mut speaks = client(&kernel, door, session, &among).await;
        let unknown = speaks.call("it:nothing", json!({})).await;
        assert_eq!(unknown.code(), 4001, "{door:?}");
        let among = r#"{"extensions":{"com.x/other":{}}}"#;
        let mut plain = client(&kernel, door, session, among).await;
        let unknown = plain.call("it:nothing", json!({})).await;
        assert_eq!(unknown.code(), -32602, "{door:?}");
    }
}

/// The first request that a server got, whose version this is, and all frames.
async fn first_request(kernel: &Kernel, era: &str, version: &str) -> (Value, Vec<String>) {
    let mut client = of_kind(kernel, Door::Http, version, false).await;
    let frames = received(&mut client, "it:received").await;
    let mut read = frames
        .iter()
        .map(|frame| serde_json::from_str::<Value>(frame).unwrap());
    let hello = read.find(|frame| {
        let method = &frame["method"];
        method == "initialize" || (era == "modern" && method == "server/discover")
    });
    (hello.unwrap(), frames)
}

/// MGP-018: version and extensions, in each place where a server may look for them.
#[tokio::test]
async fn kernel_declares_mgp_to_servers() {
    for (era, version) in ["legacy", "modern"].into_iter().zip(ERAS) {
        let kernel = kernel_with("", &["--era", era]).await;
        let (hello, _) = first_request(&kernel, era, version).await;
        let params = &hello["params"];
        let said = match era {
            "legacy" => {
                let said = declared(version, &params["capabilities"]);
                let below = &params["capabilities"]["experimental"]["mgp"];
                let among = &params["capabilities"]["extensions"][EXTENSION];
                assert_eq!([below, among], [&said; 2], "{hello:#}");
                said
            }
            _ => declared(version, &params["_meta"][CLIENT_CAPABILITIES]),
        };
        assert_eq!(said["version"], "0.2.0", "{hello:#}");
        let words = said["extensions"].as_array().unwrap();
        let built = |word: &str| words.contains(&json!(word));
        assert!(
            NINE.iter().all(|word| built(word) == BUILT.contains(word)),
            "{words:?}"
        );
        assert!(built("callbacks") && built("events"), "{words:?}");
    }
}

/// MGP-019.
#[tokio::test]
async fn kernel_initializes_servers_with_its_name_and_version() {
    let kernel = kernel_with("", &["--era", "legacy"]).await;
    let (hello, _) = first_request(&kernel, "legacy", ERAS[0]).await;
    let params = &hello["params"];
    assert_eq!(params["protocolVersion"], ERAS[0]);
    assert_eq!(params["clientInfo"]["name"], "mgp");
    assert!(params["clientInfo"]["version"].is_string());
}

/// MGP-027, MGP-271.
#[tokio::test]
async fn server_that_does_not_declare_mgp_gets_plain_mcp() {
    for (era, version) in ["legacy", "modern"].into_iter().zip(ERAS) {
        let kernel = kernel_with("", &["--era", era]).await;
        let (_, frames) = first_request(&kernel, era, version).await;
        no_mgp_methods(&frames);
        assert_eq!(reported(&kernel, "it").await["mgp"], Value::Null);
    }
}

/// MGP-218: to a server whose entry says so nothing of MGP is offered, and what it declares all
/// the same counts for nothing.
#[tokio::test]
async fn mgp_can_be_switched_off_for_a_server() {
    for era in ["legacy", "modern"] {
        let said = declaration(&NINE).to_string();
        let kernel = kernel_with(
            "mgp = false\n",
            &["--era", era, "--mgp", &said, "--mgp-unasked"],
        )
        .await;
        assert_eq!(reported(&kernel, "it").await["mgp"], Value::Null);
        let mut client = of_kind(&kernel, Door::Http, ERAS[1], true).await;
        let frames = received(&mut client, "it:received").await;
        for frame in frames {
            let read: Value = serde_json::from_str(&frame).unwrap();
            let capabilities = match read["method"].as_str() {
                Some("initialize") => &read["params"]["capabilities"],
                _ => &read["params"]["_meta"][CLIENT_CAPABILITIES],
            };
            assert!(!capabilities.to_string().contains("mgp"), "{frame}");
        }
    }
}

/// What is reported of a server that declares this version, and its log.
async fn with_version(version: &str) -> (Value, String) {
    let extensions = ["audit", "observability", "versioning"];
    let said = json!({"version": version, "extensions": extensions});
    let kernel = kernel_with("", &["--mgp", &said.to_string()]).await;
    let server = reported(&kernel, "it").await;
    assert_eq!(server["state"], "connected", "{version}");
    let logs = kernel.mgp(&["servers", "logs", "it"]).await.stdout;
    (server, String::from_utf8_lossy(&logs).into_owned())
}

/// It speaks plain MCP with such a server, and logs why.
async fn assert_plain(version: &str) {
    let (server, logs) = with_version(version).await;
    assert_eq!(server["mgp"]["version"].as_str(), None, "{version}");
    assert!(
        logs.contains("plain MCP") && logs.contains(version),
        "{logs}"
    );
}

/// MGP-274, EXT-160.
#[tokio::test]
async fn server_of_another_minor_version_gets_the_lower_one() {
    for (theirs, common, differs) in [
        ("0.1.0", "0.1.0", true),
        ("0.2.0", "0.2.0", false),
        ("0.3.0", "0.3.0", false),
        ("0.7.0", "0.7.0", false),
        ("0.9.0", "0.7.0", true),
    ] {
        let (server, logs) = with_version(theirs).await;
        assert_eq!(server["mgp"]["version"], common, "{theirs}");
        let logged = logs.contains("another minor version");
        assert_eq!(logged, differs, "{logs}");
    }
}

/// MGP-022, MGP-276.
#[tokio::test]
async fn unknown_and_future_extensions_of_a_server_are_ignored() {
    let (server, _) = with_version("0.2.0").await;
    assert_eq!(server["mgp"]["extensions"], json!(["audit"]));
}

/// MGP-029.
#[tokio::test]
async fn server_of_another_major_version_gets_plain_mcp() {
    for version in ["1.0.0", "9.0.0"] {
        assert_plain(version).await;
    }
}

/// MGP-030.
#[tokio::test]
async fn server_with_a_malformed_version_gets_plain_mcp() {
    assert_plain("banana").await;
}

/// MGP-004: a server hears of MGP from the kernel in the requests of clients that know nothing of it, and
/// one that does not speak it does not hear of it from clients that do.
#[tokio::test]
async fn mgp_is_negotiated_with_the_kernel_on_each_side() {
    let (kernel, _far) = four_servers("").await;
    for (speaks, server) in [
        (false, "speaks"),
        (false, "far-speaks"),
        (true, "plain"),
        (true, "far-plain"),
    ] {
        for version in ERAS {
            let mut client = of_kind(&kernel, Door::Http, version, speaks).await;
            let frames = received(&mut client, &format!("{server}:received")).await;
            let call: Value = serde_json::from_str(frames.last().unwrap()).unwrap();
            assert_eq!(call["method"], "tools/call");
            let Some(capabilities) = call["params"]["_meta"].get(CLIENT_CAPABILITIES) else {
                continue;
            };
            let said = declared(MODERN, capabilities);
            assert_eq!(said.is_null(), speaks, "{version} {server} {call:#}");
        }
    }
}

/// The offer in a frame, taken out of it; and its id, which counts what else was under way.
fn without_offer(frame: &str) -> String {
    let mut frame = frame.to_owned();
    for (before, name, after) in [
        ("{", r#""mgp":{"#, ","),
        ("{", r#""experimental":{"mgp":{"#, "},"),
        ("{", r#""extensions":{"dev.cloto/mgp":{"#, "},"),
        ("{", r#""dev.cloto/mgp":{"#, ","),
        // Behind what is offered of MCPL.
        ("", r#","mgp":{"#, ""),
        (",", r#""extensions":{"dev.cloto/mgp":{"#, "},"),
    ] {
        let Some(at) = frame.find(&format!("{before}{name}")) else {
            continue;
        };
        let end = frame[at..].find('}').expect("an object ends") + at + 1;
        // Beside another extension the offer alone goes: what is left of it is seen by who asks.
        if !frame[end..].starts_with(after) {
            continue;
        }
        frame.replace_range(at + before.len()..end + after.len(), "");
    }
    let read: Value = serde_json::from_str(&frame).expect("a frame is JSON");
    match read["id"].as_u64() {
        Some(id) => frame.replacen(&format!(r#""id":{id},"#), "", 1),
        None => frame,
    }
}

/// MGP-003: between a client and a server that speak MCP, everything goes as it went, to the byte,
/// whether MGP is offered or not.
#[tokio::test]
async fn traffic_without_mgp_is_the_same_to_the_byte() {
    for (version, era) in [
        (ERAS[0], "legacy"),
        (ERAS[1], "modern"),
        (ERAS[0], "modern"),
        (ERAS[1], "legacy"),
    ] {
        let mut seen = Vec::new();
        for entry in ["", "mgp = false\n"] {
            let kernel = kernel_with(entry, &["--era", era]).await;
            let mut client = of_kind(&kernel, Door::Socket, version, false).await;
            let mut answers = Vec::new();
            for (method, params) in [
                ("tools/list", json!({})),
                ("prompts/list", json!({})),
                ("resources/list", json!({})),
                (
                    "tools/call",
                    json!({"name": "it:echo", "arguments": {"text": "a", "n": 1.50}}),
                ),
                (
                    "tools/call",
                    json!({"name": "it:fail", "arguments": {"error": {"code": 7, "data": [1]}}}),
                ),
                ("tools/call", json!({"name": "it:nothing"})),
                ("resources/read", json!({"uri": "no://such"})),
            ] {
                let mut params = params;
                params["_meta"] = json!({"trace_id": "0af7651916cd43dd8448eb211c80319c"});
                answers.push(client.request(method, params).await.frame);
            }
            let frames = received(&mut client, "it:received").await;
            let mut frames: Vec<_> = frames.iter().map(|frame| without_offer(frame)).collect();
            // The last asks for them, and has a trace of its own. The first lists come side by side.
            frames.pop();
            frames.sort();
            assert!(!frames.concat().contains("cloto") && !frames.concat().contains("\"mgp\":"));
            seen.push((answers, frames));
        }
        assert_eq!(seen[0], seen[1], "{version} {era}");
    }
}
