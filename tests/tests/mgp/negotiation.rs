//! What of MGP the kernel says to whom: in both faces, in both eras.

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

/// MGP-016, MGP-021, MGP-023, MGP-026: an agent that declares MGP is answered with what both know.
#[tokio::test]
async fn an_agent_that_declares_mgp_is_answered_in_its_era() {
    let kernel = kernel_with("", &[]).await;
    for version in ERAS {
        let capabilities = answered(kernel.url(), version, &speaks_mgp(version)).await;
        let said = declared(version, &capabilities);
        assert_eq!(
            said,
            json!({"version": "0.2.0", "extensions": BUILT}),
            "{version}"
        );
        let some = declaring(
            version,
            "{}",
            &declaration(&["audit", "com.x.foo", "streaming"]),
        );
        let one = kernel.server_url("it");
        let said = declared(version, &answered(&one, version, &some).await);
        let want = json!({"version": "0.2.0", "extensions": ["audit", "streaming"], "server_id": "it", "trust_level": "standard"});
        assert_eq!(said, want, "{version}");
    }
    assert!(BUILT.iter().all(|word| NINE.contains(word)));
}

/// MGP-018, MGP-024, MGP-025: what a server declares is seen by the operator; its trust can only sink.
#[tokio::test]
async fn what_a_server_declares_is_shown() {
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

/// MGP-008, MGP-010, MGP-011, MGP-012, MGP-013, MGP-014, MGP-015, MGP-269: clients and servers
/// that speak MGP and that do not, each with each, over every wire, with one configuration.
#[tokio::test]
async fn all_four_patterns_work_with_one_configuration() {
    let (kernel, _far) = four_servers("").await;
    for version in ERAS {
        for door in DOORS {
            for speaks in [false, true] {
                let mut client = of_kind(&kernel, door, version, speaks).await;
                for server in ["plain", "speaks", "far-plain", "far-speaks"] {
                    let cell = format!("{version} {door:?} {speaks} {server}");
                    let tool = |name: &str| format!("{server}:{name}");
                    let echoed = client.call(&tool("echo"), json!({"text": "hello"})).await;
                    assert!(echoed.result_text().contains("hello"), "{cell}");
                    let data = json!({"_mgp": {"category": "lifecycle", "retryable": false}});
                    let error = json!({"code": 2001, "message": "m", "data": data});
                    let failed = client
                        .call(&tool("fail"), json!({"error": error}))
                        .await
                        .error();
                    if speaks {
                        assert_eq!(failed, error, "{cell}")
                    } else {
                        assert_eq!(failed, json!({"code": -32603, "message": "m"}), "{cell}")
                    }
                    let unknown = client.call(&tool("nothing"), json!({})).await;
                    assert_eq!(unknown.code(), if speaks { 4001 } else { -32602 }, "{cell}");
                    let mut frames = received(&mut client, &tool("received")).await;
                    // Who keeps an audit log hears that it may and what was done, and that is no call.
                    let heard = |f: &String| {
                        f.contains("\"notifications/mgp.audit\"")
                            || f.contains("\"mgp/permission/response\"")
                    };
                    frames.retain(|frame| !(server.ends_with("speaks") && heard(frame)));
                    no_mgp_methods(&frames);
                }
                assert!(client.heard("notifications/mgp.audit").is_empty());
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

/// MGP-017, MGP-020, MGP-028, MGP-268: a client that says nothing of MGP reads nothing of it.
#[tokio::test]
async fn a_plain_client_is_told_nothing_of_mgp() {
    let said = declaration(&NINE).to_string();
    let kernel = kernel_with("", &["--mgp", &said, "--mgp-unasked"]).await;
    for version in ERAS {
        for url in [kernel.url(), &kernel.server_url("it")] {
            let capabilities = answered(url, version, "{}").await;
            assert!(
                !capabilities.to_string().contains("mgp"),
                "{version} {capabilities}"
            );
            let odd = declaring(
                version,
                "{}",
                &json!({"version": "9.0.0", "extensions": NINE}),
            );
            let capabilities = answered(url, version, &odd).await;
            assert!(
                !capabilities.to_string().contains("mgp"),
                "{version} {capabilities}"
            );
        }
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
async fn a_plain_client_hears_nothing_of_what_an_mgp_server_says() {
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
async fn a_declaration_may_stand_below_experimental() {
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
async fn a_declaration_in_a_session_may_stand_among_the_extensions() {
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

/// MGP-018, MGP-019, MGP-021, MGP-027, MGP-271: what the kernel declares to servers, in both eras; one
/// that says nothing is spoken to in plain MCP.
#[tokio::test]
async fn the_kernel_declares_itself_to_servers() {
    for (era, version) in ["legacy", "modern"].into_iter().zip(ERAS) {
        let kernel = kernel_with("", &["--era", era]).await;
        let mut client = of_kind(&kernel, Door::Http, version, false).await;
        let frames = received(&mut client, "it:received").await;
        let hello: Value = frames
            .iter()
            .map(|frame| serde_json::from_str(frame).unwrap())
            .find(|frame: &Value| {
                let method = &frame["method"];
                method == "initialize" || (era == "modern" && method == "server/discover")
            })
            .unwrap();
        let params = &hello["params"];
        let said = match era {
            "legacy" => {
                assert_eq!(params["protocolVersion"], ERAS[0]);
                assert_eq!(params["clientInfo"]["name"], "mgp");
                assert!(params["clientInfo"]["version"].is_string());
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
        no_mgp_methods(&frames);
        assert_eq!(reported(&kernel, "it").await["mgp"], Value::Null);
    }
}

/// MGP-017, MGP-218: to a server whose entry says so nothing of MGP is offered, and what it declares all
/// the same counts for nothing.
#[tokio::test]
async fn mgp_can_be_held_back_from_a_server() {
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

/// MGP-022, MGP-029, MGP-030, MGP-274, MGP-276: any draft of the same major is spoken, whatever names it
/// has besides; another one, and what is no version, leaves plain MCP and a line in the log.
#[tokio::test]
async fn a_servers_version_is_judged_by_its_major() {
    for (theirs, common) in [
        ("0.1.0", Some("0.1.0")),
        ("0.2.0", Some("0.2.0")),
        ("0.3.0", Some("0.2.0")),
        ("1.0.0", None),
        ("9.0.0", None),
        ("banana", None),
    ] {
        let said =
            json!({"version": theirs, "extensions": ["audit", "observability", "versioning"]});
        let kernel = kernel_with("", &["--mgp", &said.to_string()]).await;
        let server = reported(&kernel, "it").await;
        assert_eq!(server["state"], "connected");
        assert_eq!(server["mgp"]["version"].as_str(), common, "{theirs}");
        let logs = kernel.mgp(&["servers", "logs", "it"]).await.stdout;
        let logs = String::from_utf8_lossy(&logs);
        match common {
            Some(_) => {
                assert_eq!(server["mgp"]["extensions"], json!(["audit"]));
                assert_eq!(
                    logs.contains("another minor version"),
                    theirs != "0.2.0",
                    "{logs}"
                );
            }
            None => assert!(
                logs.contains("plain MCP") && logs.contains(theirs),
                "{logs}"
            ),
        }
    }
}

/// MGP-004: a server hears of MGP from the kernel in the requests of clients that know nothing of it, and
/// one that does not speak it does not hear of it from clients that do.
#[tokio::test]
async fn mgp_is_spoken_with_the_kernel_and_not_through_it() {
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
async fn plain_traffic_is_the_same_to_the_byte() {
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
