//! Who did what to whom, in which request, and how it ended: each kind of event, from what causes it to
//! its place in the log.

use std::collections::BTreeSet;

use mgp_tests::harness::mgp::{NINE, READS_AUDIT_LOG, declaration, declaring, trace};
use mgp_tests::harness::{Agent, Client, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::audit::{events, has_the_form, whole_log};
use crate::permissions::{id, needing, question};
use crate::scene::made::{NEWEST, agent, kernel, operator, tool};
use crate::scene::reported;

/// Everybody at an open HTTP door.
const ANYBODY: &str = "agent.anonymous";

/// The events of a trace, once there are so many; each in the form of the document.
async fn of_trace(kernel: &Kernel, words: &str, count: usize) -> Vec<Value> {
    let (mut found, trace) = (Vec::new(), trace(words));
    wait_until(
        &format!("{count} events of {words}"),
        DEADLINE,
        async || {
            found = events(kernel).await;
            found.retain(|event| event["trace_id"] == trace.as_str());
            found.len() >= count
        },
    )
    .await;
    assert_eq!(found.len(), count, "{found:#?}");
    found.iter().for_each(has_the_form);
    found
}

/// Types and results, in their order.
fn told(events: &[Value]) -> Vec<(&str, &str)> {
    let each = events
        .iter()
        .map(|e| (e["event_type"].as_str(), e["result"].as_str()));
    each.map(|(kind, result)| (kind.unwrap_or_default(), result.unwrap_or_default()))
        .collect()
}

async fn count(kernel: &Kernel, kind: &str) -> usize {
    let all = events(kernel).await;
    all.iter().filter(|e| e["event_type"] == kind).count()
}

async fn traced(agent: &mut Agent, method: &str, mut params: Value, words: &str) {
    params["trace_id"] = json!(trace(words));
    agent.request(method, params).await.result();
}

/// MGP-076, MGP-094, MGP-095: each change of access has one event: who, whom, what, why, and in which
/// request; what changes nothing has none.
#[tokio::test]
async fn each_change_of_access_is_recorded_once() {
    let kernel = kernel(&[tool("make", json!({}))], "").await;
    let mut operator = operator(&kernel).await;
    let of_tool = json!({"entry_type": "tool_grant", "agent_id": ANYBODY, "server_id": "it",
        "tool_name": "make"});
    let of_server = json!({"entry_type": "server_grant", "agent_id": ANYBODY, "server_id": "it"});
    let with = |entry: &Value, permission: &str| {
        let mut params = entry.clone();
        params["permission"] = json!(permission);
        params["justification"] = json!("as agreed");
        params["granted_by"] = json!("the owner");
        params
    };
    let grant = "mgp/access/grant";
    for (trace, entry, permission, tool) in [
        ("first", &of_tool, "deny", json!("make")),
        ("second", &of_tool, "allow", json!("make")),
        ("third", &of_server, "allow", Value::Null),
    ] {
        traced(&mut operator, grant, with(entry, permission), trace).await;
        let event = of_trace(&kernel, trace, 1).await.remove(0);
        assert_eq!(
            told(std::slice::from_ref(&event)),
            [("ACCESS_GRANTED", "SUCCESS")]
        );
        assert_eq!(event["actor"]["type"], "operator", "{event}");
        let target = &event["target"];
        assert_eq!(
            [
                &target["agent_id"],
                &target["server_id"],
                &target["tool_name"]
            ],
            [&json!(ANYBODY), &json!("it"), &tool]
        );
        let details = &event["details"];
        assert_eq!(details["permission"], permission, "{event}");
        assert_eq!(details["justification"], "as agreed", "{event}");
        assert_eq!(details["granted_by"], "the owner", "{event}");
    }
    for (trace, entry, tool) in [
        ("fourth", &of_tool, json!("make")),
        ("fifth", &of_server, Value::Null),
    ] {
        traced(&mut operator, "mgp/access/revoke", entry.clone(), trace).await;
        let event = of_trace(&kernel, trace, 1).await.remove(0);
        assert_eq!(
            told(std::slice::from_ref(&event)),
            [("ACCESS_REVOKED", "SUCCESS")]
        );
        assert_eq!(event["actor"]["type"], "operator", "{event}");
        let target = &event["target"];
        assert_eq!(
            (&target["agent_id"], &target["tool_name"]),
            (&json!(ANYBODY), &tool)
        );
        assert_eq!(event["details"]["revoked"].as_array().unwrap().len(), 1);
    }
    traced(&mut operator, "mgp/access/revoke", of_tool, "sixth").await;
    assert_eq!(count(&kernel, "ACCESS_REVOKED").await, 2);
    assert_eq!(count(&kernel, "ACCESS_GRANTED").await, 3);
}

/// A kernel whose operator granted, denied and revoked permissions of the server `it`, and revoked what a policy had
/// granted to the server `easy`; each in a request with a trace of its own.
async fn with_decisions() -> Kernel {
    let needs = needing(&["shell.execute", "camera"]);
    let keys = "permission_policy = \"auto_approve\"\n";
    let asks = Program::fixture(&["--mgp", &needs]).entry("it");
    let easy = Program::fixture(&["--mgp", &needing(&["memory.read"])]).entry("easy");
    let easy = easy.replacen("[[servers]]\n", &format!("[[servers]]\n{keys}"), 1);
    let kernel = Kernel::start(&format!("{asks}{easy}")).await;
    let mut operator = operator(&kernel).await;
    let asked = id(&question(&kernel).await);
    for (method, permission, trace) in [
        ("mgp/approvals/approve", "shell.execute", "yes"),
        ("mgp/approvals/deny", "camera", "no"),
    ] {
        let params = json!({"id": asked, "only": [permission]});
        traced(&mut operator, method, params, trace).await;
    }
    kernel.connected(&["it", "easy"]).await;
    let revoke = json!({"server": "it", "permission": "shell.execute"});
    traced(&mut operator, "mgp/permission/revoke", revoke, "back").await;
    let again = json!({"server": "easy", "permission": "memory.read"});
    traced(&mut operator, "mgp/permission/revoke", again, "easy").await;
    kernel
}

/// The one event of this request of the operator about a permission of `it`.
async fn assert_decision(trace: &str, kind: &str, result: &str, permission: &str) {
    let kernel = with_decisions().await;
    let event = of_trace(&kernel, trace, 1).await.remove(0);
    assert_eq!(told(std::slice::from_ref(&event)), [(kind, result)]);
    assert_eq!(event["actor"]["type"], "operator", "{event}");
    assert_eq!(event["target"]["server_id"], "it", "{event}");
    assert_eq!(event["details"]["permission_type"], permission, "{event}");
    assert!(event["details"]["decided_by"].is_string(), "{event}");
}

/// MGP-091.
#[tokio::test]
async fn granted_permission_is_recorded() {
    assert_decision("yes", "PERMISSION_GRANTED", "SUCCESS", "shell.execute").await;
}

/// MGP-092.
#[tokio::test]
async fn denied_permission_is_recorded() {
    assert_decision("no", "PERMISSION_DENIED", "DENIED", "camera").await;
}

/// MGP-093.
#[tokio::test]
async fn revoked_permission_is_recorded() {
    assert_decision("back", "PERMISSION_REVOKED", "SUCCESS", "shell.execute").await;
}

/// MGP-046: a policy is the kernel's decision and no person's, its revoke is one of a person; and a server that is
/// merely started again has none.
#[tokio::test]
async fn each_decision_on_a_permission_is_recorded_once() {
    let kernel = with_decisions().await;
    let both = of_trace(&kernel, "easy", 2).await;
    assert_eq!(
        told(&both),
        [
            ("PERMISSION_DENIED", "DENIED"),
            ("PERMISSION_REVOKED", "SUCCESS")
        ]
    );
    let by_policy =
        |e: &&Value| e["event_type"] == "PERMISSION_GRANTED" && e["actor"]["type"] == "kernel";
    let all = events(&kernel).await;
    let of_policy: Vec<_> = all.iter().filter(by_policy).collect();
    assert_eq!(of_policy.len(), 1, "{of_policy:#?}");
    assert_eq!(of_policy[0]["details"]["decided_by"], "policy");
    kernel.mgp_json(&["servers", "restart", "it"]).await;
    kernel.connected(&["it"]).await;
    for kind in [
        "PERMISSION_GRANTED",
        "PERMISSION_DENIED",
        "PERMISSION_REVOKED",
    ] {
        assert_eq!(count(&kernel, kind).await, 2, "{kind}");
    }
}

/// A server whose tools are checked in different ways, and a client that confirms or declines.
struct Screened {
    kernel: Kernel,
    client: Client,
}

impl Screened {
    async fn start() -> Self {
        let tools = [
            tool(
                "make",
                json!({"risk_level": "safe", "validator": "sandbox"}),
            ),
            tool(
                "run",
                json!({"risk_level": "safe", "code_safety": {"level": "standard", "language": "python"}}),
            ),
            tool("odd", json!({"risk_level": "safe", "validator": "zzz"})),
            tool("blast", json!({"risk_level": "dangerous"})),
            tool("secret", json!({"risk_level": "safe"})),
        ];
        let kernel = kernel(&tools, "").await;
        let form = declaring(
            NEWEST,
            r#"{"elicitation":{"form":{}}}"#,
            &declaration(&NINE),
        );
        let mut client = Client::over_http(&kernel.server_url("it"), NEWEST, &form).await;
        client.answers("elicitation/create", json!({"action": "decline"}));
        Self { kernel, client }
    }

    /// The error of a call, and its events: these, of the agent and the tool, with the risk of it.
    async fn blocked(
        &mut self,
        name: &str,
        arguments: Value,
        expected: &[(&str, &str)],
    ) -> (Value, Vec<Value>) {
        let params = json!({"name": name, "arguments": arguments, "trace_id": trace(name)});
        let error = self.client.request("tools/call", params).await.error();
        let events = of_trace(&self.kernel, name, expected.len()).await;
        assert_eq!(told(&events), expected, "{name}");
        for event in &events {
            assert_eq!(event["actor"], json!({"type": "agent", "id": ANYBODY}));
            assert_eq!(
                event["target"],
                json!({"server_id": "it", "tool_name": name})
            );
            assert!(event["details"]["risk_level"].is_string(), "{event}");
        }
        (error, events)
    }
}

const BLOCKED: (&str, &str) = ("TOOL_BLOCKED", "BLOCKED");
const DENIED: (&str, &str) = ("TOOL_BLOCKED", "DENIED");

/// MGP-065, MGP-098: before the event of the call itself, with the rule and the place.
#[tokio::test]
async fn arguments_that_a_validator_blocks_are_recorded_as_validation_failed() {
    let mut screened = Screened::start().await;
    let expected = [("VALIDATION_FAILED", "BLOCKED"), BLOCKED];
    let arguments = json!({"command": "rm -rf /"});
    let (error, events) = screened.blocked("make", arguments, &expected).await;
    assert_eq!(error["code"], 1010, "{error}");
    for event in events {
        let details = &event["details"];
        assert_eq!(details["validator"], "sandbox", "{event}");
        assert_eq!(details["at"], "/command", "{event}");
        assert!(details["rule"].is_string(), "{event}");
    }
}

/// MGP-064: fail closed; what passes the strictest of the known ones is let through.
#[tokio::test]
async fn unknown_validator_is_recorded_and_applied_as_the_strictest() {
    let mut screened = Screened::start().await;
    let expected = [("VALIDATION_FAILED", "BLOCKED"), BLOCKED];
    let arguments = json!({"url": "http://169.254.169.254/"});
    let (_, events) = screened.blocked("odd", arguments, &expected).await;
    for event in events {
        assert_eq!(event["details"]["validator_unknown"], "zzz", "{event}");
    }
    let accept = json!({"action": "accept", "content": {}});
    screened.client.answers("elicitation/create", accept);
    let params = json!({"name": "odd", "arguments": {"a": 1}, "trace_id": trace("fine")});
    screened.client.request("tools/call", params).await.result();
    let fine = of_trace(&screened.kernel, "fine", 1).await;
    assert_eq!(told(&fine), [("TOOL_EXECUTED", "SUCCESS")]);
    assert_eq!(fine[0]["details"]["validator_unknown"], "zzz");
}

/// MGP-099, MGP-114: with every violation.
#[tokio::test]
async fn unsafe_code_is_recorded_as_code_rejected() {
    let mut screened = Screened::start().await;
    let expected = [("CODE_REJECTED", "BLOCKED"), BLOCKED];
    let arguments = json!({"code": "import subprocess\neval('1')\n"});
    let (error, events) = screened.blocked("run", arguments, &expected).await;
    assert_eq!(error["code"], 1011, "{error}");
    let violations = json!(["Blocked import: 'subprocess'", "Blocked pattern: 'eval('"]);
    for event in events {
        assert_eq!(event["details"]["violations"], violations, "{event}");
    }
}

/// MGP-057.
#[tokio::test]
async fn dangerous_call_that_is_not_confirmed_is_recorded_as_denied() {
    let mut screened = Screened::start().await;
    let (_, events) = screened.blocked("blast", json!({}), &[DENIED]).await;
    let reason = events[0]["details"]["reason"].to_string();
    assert!(reason.contains("did not say yes"), "{reason}");
}

/// MGP-079, MGP-090.
#[tokio::test]
async fn call_of_a_denied_tool_is_recorded_as_denied() {
    let mut screened = Screened::start().await;
    let deny = json!({"entry_type": "tool_grant", "agent_id": ANYBODY, "server_id": "it",
        "tool_name": "secret", "permission": "deny"});
    let mut operator = operator(&screened.kernel).await;
    traced(&mut operator, "mgp/access/grant", deny, "denied").await;
    let (error, _) = screened.blocked("secret", json!({}), &[DENIED]).await;
    assert_eq!(error["code"], 1001, "{error}");
}

/// MGP-085, MGP-086: a call can end in six ways, and the log says which; every event has the form of
/// the document.
#[tokio::test]
async fn each_outcome_of_a_call_has_its_result() {
    let entry = Program::fixture(&[]).entry("it");
    let kernel = Kernel::start(&format!("{entry}call_timeout_secs = 3\n")).await;
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    let deny = json!({"entry_type": "tool_grant", "agent_id": ANYBODY, "server_id": "it",
        "tool_name": "count", "permission": "deny"});
    traced(
        &mut operator(&kernel).await,
        "mgp/access/grant",
        deny,
        "deny",
    )
    .await;
    let error = json!({"key": "k", "error": {"code": -32050, "message": "no"}});
    for (name, arguments, kind, result) in [
        ("echo", json!({"text": "x"}), "TOOL_EXECUTED", "SUCCESS"),
        ("fail", error, "TOOL_EXECUTED", "FAILURE"),
        ("hang", json!({}), "TOOL_EXECUTED", "TIMEOUT"),
        ("count", json!({}), "TOOL_BLOCKED", "DENIED"),
        ("nowhere", json!({}), "TOOL_BLOCKED", "BLOCKED"),
    ] {
        let params = json!({"name": name, "arguments": arguments, "trace_id": trace(result)});
        agent.request("tools/call", params).await;
        assert_eq!(
            told(&of_trace(&kernel, result, 1).await),
            [(kind, result)],
            "{name}"
        );
    }
    let params =
        json!({"name": "slow", "arguments": {"ms": 60_000}, "trace_id": trace("CANCELLED")});
    let under_way = agent.start("tools/call", params).await;
    wait_until("the call is under way", DEADLINE, async || {
        reported(&kernel, "it").await["in_flight"] == 1
    })
    .await;
    agent
        .notify("notifications/cancelled", json!({"requestId": under_way}))
        .await;
    let ended = of_trace(&kernel, "CANCELLED", 1).await;
    assert_eq!(told(&ended), [("TOOL_EXECUTED", "CANCELLED")]);
    let all = events(&kernel).await;
    all.iter().for_each(has_the_form);
    let kinds: BTreeSet<_> = all.iter().map(|e| e["event_type"].to_string()).collect();
    assert_eq!(kinds.len(), 4, "{kinds:?}");
}

/// MGP-101, MGP-102, MGP-103: one trace goes from an agent through the kernel to its server, comes back
/// in what the server reports of itself, and is that of all that is told of it.
#[tokio::test]
async fn trace_is_the_same_at_agent_kernel_server_and_log() {
    let said = declaration(&["audit"]).to_string();
    for era in ["legacy", "modern"] {
        let server = Program::fixture(&["--era", era, "--mgp", &said]).entry("it");
        let keeper = Program::fixture(&["--mgp", &said]).entry("keeper");
        let kernel = Kernel::start(&format!("{server}{keeper}{READS_AUDIT_LOG}")).await;
        kernel.connected(&["it", "keeper"]).await;
        let mut agent = kernel.http_agent(None);
        agent.initialize(NEWEST, "{}").await.result();
        let own = trace("all the way");
        let params = json!({"name": "it__notify", "arguments": {"kind": "audit"}, "trace_id": own});
        agent.request("tools/call", params).await.result();
        let written = of_trace(&kernel, "all the way", 2).await;
        let reported = written
            .iter()
            .find(|e| e["actor"]["type"] == "server")
            .unwrap();
        assert_eq!(reported["event_type"], "dev.cloto.mgp.server_reported");
        assert_eq!(reported["actor"]["id"], "it", "whatever it says of itself");
        assert_eq!(
            reported["details"]["reported_type"],
            "com.example.looked_up"
        );
        assert_eq!(reported["details"]["reported_details"], json!({"rows": 3}));
        let done = written
            .iter()
            .find(|e| e["actor"]["type"] == "agent")
            .unwrap();
        assert_eq!(done["event_type"], "TOOL_EXECUTED", "{era}");
        wait_until("the keeper hears of both", DEADLINE, async || {
            let heard = agent.call("keeper__received", json!({})).await.result();
            let frames = heard["structuredContent"]["frames"]
                .as_array()
                .unwrap()
                .clone();
            let both = |frame: &Value| {
                let frame: Value = serde_json::from_str(frame.as_str().unwrap()).unwrap();
                frame["method"] == "notifications/mgp.audit"
                    && frame["params"]["trace_id"] == own.as_str()
            };
            frames.iter().filter(|frame| both(frame)).count() == 2
        })
        .await;
    }
}

/// MGP-100: what the document has no type for is told under a name in reverse-domain notation, on the wire
/// as in the log: what the kernel does, and what a server reports in a type of its own.
#[tokio::test]
async fn events_without_a_documented_type_are_in_reverse_domain_notation() {
    let said = declaration(&["audit"]).to_string();
    let fixture = Program::fixture(&["--mgp", &said]);
    let kernel =
        Kernel::start(&(fixture.entry("it") + &fixture.entry("keeper") + READS_AUDIT_LOG)).await;
    kernel.connected(&["it", "keeper"]).await;
    let mut agent = kernel.http_agent(None);
    let speaks = declaring(NEWEST, "{}", &declaration(&NINE));
    agent.initialize(NEWEST, &speaks).await.result();
    let joined = json!({"event_type": "com.example.node_joined", "details": {"node": "b"},
        "trace_id": trace("joined")});
    let report = json!({"method": "notifications/mgp.audit", "params": joined});
    agent.call("it__announce", report).await.result();
    let out = json!({"id": "it", "trace_id": trace("out")});
    let refused = agent.request("mgp/discovery/deregister", out).await;
    assert_eq!(refused.code(), 1000);
    for (words, kind) in [
        ("joined", "dev.cloto.mgp.server_reported"),
        ("out", "dev.cloto.mgp.server_deregistered"),
    ] {
        let event = of_trace(&kernel, words, 1).await.remove(0);
        assert_eq!(event["event_type"], kind);
        let mut heard = Value::Null;
        wait_until("the keeper hears of it", DEADLINE, async || {
            heard = heard_of(&mut agent, &trace(words)).await;
            !heard.is_null()
        })
        .await;
        assert_eq!(heard["event_type"], kind, "{heard}");
        if words == "joined" {
            let own = &heard["details"]["reported_type"];
            assert_eq!(own, "com.example.node_joined", "{heard}");
        }
    }
}

/// The event of a trace that the server `keeper` heard, or nothing.
async fn heard_of(agent: &mut Agent, trace: &str) -> Value {
    let seen = agent.call("keeper__received", json!({})).await.result();
    let frames = seen["structuredContent"]["frames"].as_array().unwrap();
    let frames = frames.iter().filter_map(Value::as_str);
    let mut frames = frames.map(|frame| serde_json::from_str::<Value>(frame).unwrap());
    let found = frames.find(|frame| {
        frame["method"] == "notifications/mgp.audit" && frame["params"]["trace_id"] == trace
    });
    found.map_or(Value::Null, |mut frame| frame["params"].take())
}

/// MGP-083, MGP-087: an audit server asks for what it missed; to others there is no such method.
#[tokio::test]
async fn audit_server_requests_missed_events() {
    let said = declaration(&["audit"]).to_string();
    let keeper = Program::fixture(&["--era", "legacy", "--mgp", &said]).entry("keeper");
    let plain = Program::fixture(&["--era", "legacy"]).entry("plain");
    let kernel = Kernel::start(&format!("{keeper}{READS_AUDIT_LOG}{plain}")).await;
    kernel.connected(&["keeper", "plain"]).await;
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    let replay = |limit: u64, since: u64| {
        let params = json!({"limit": limit, "since_seq": since});
        json!({"method": "mgp/audit/replay", "params": params})
    };
    let first = agent.call("keeper__ask", replay(1, 0)).await.result();
    let first = &first["structuredContent"];
    assert_eq!(first["events"].as_array().unwrap().len(), 1, "{first}");
    assert_eq!(
        (&first["has_more"], &first["next_seq"]),
        (&json!(true), &json!(1))
    );
    has_the_form(&first["events"][0]);
    let rest = agent.call("keeper__ask", replay(100, 1)).await.result();
    let rest = rest["structuredContent"]["events"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(rest[0]["_mgp"]["seq"], 2, "{rest:?}");
    let refused = agent.call("plain__ask", replay(1, 0)).await;
    assert!(
        refused.frame.contains("Method not found"),
        "{}",
        refused.frame
    );
}

/// A server that only declares `audit` receives and reads nothing until the operator approves that, and nothing more
/// once the approval is taken back. Its own tools work all the while.
#[tokio::test]
async fn an_audit_server_needs_the_operators_approval() {
    let said = declaration(&["audit"]).to_string();
    let keeper = Program::fixture(&["--era", "legacy", "--mgp", &said]).entry("keeper");
    let kernel = Kernel::start(&keeper).await;
    kernel.connected(&["keeper"]).await;
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    let replay = || json!({"method": "mgp/audit/replay", "params": {"limit": 1}});
    let refused = agent.call("keeper__ask", replay()).await;
    assert!(refused.frame.contains("is not approved"), "{refused:?}");
    let asked = question(&kernel).await;
    assert_eq!(
        asked["parts"],
        json!(["dev.cloto.mgp.audit_log"]),
        "{asked:#}"
    );
    let count = async |agent: &mut Agent| {
        let seen = agent.call("keeper__received", json!({})).await.result();
        let frames = seen["structuredContent"]["frames"].to_string();
        frames.matches("notifications/mgp.audit").count()
    };
    assert_eq!(count(&mut agent).await, 0);
    kernel.mgp_json(&["approve", &id(&asked)]).await;
    wait_until("the keeper receives events", DEADLINE, async || {
        count(&mut agent).await > 0
    })
    .await;
    agent.call("keeper__ask", replay()).await.result();
    let info = kernel.mgp_json(&["servers", "show", "keeper"]).await;
    assert!(
        info.to_string().contains("dev.cloto.mgp.audit_log"),
        "{info}"
    );
    let revoked = kernel
        .mgp(&["deny", "keeper", "dev.cloto.mgp.audit_log"])
        .await;
    assert!(revoked.status.success(), "{revoked:?}");
    let refused = agent.call("keeper__ask", replay()).await;
    assert!(refused.frame.contains("is not approved"), "{refused:?}");
    // What was under way when it was taken back may still arrive.
    let before = count(&mut agent).await;
    for _ in 0..5 {
        agent
            .call("keeper__echo", json!({"text": "x"}))
            .await
            .result();
    }
    let after = count(&mut agent).await;
    assert!(after <= before + 1, "{before} and then {after}");
}

/// MGP-087: the log tells of everybody, so a sandboxed server is neither told it nor may ask for it,
/// whatever it declares; its calls are in it as all others are.
#[tokio::test]
async fn a_sandboxed_server_does_not_read_the_log() {
    if crate::sandbox::starts_none().await {
        return;
    }
    let said = declaration(&["audit"]).to_string();
    let keeper = |id: &str| Program::fixture(&["--era", "legacy", "--mgp", &said]).entry(id);
    let low = "default_policy = \"opt-out\"\n[servers.mgp]\ntrust_level = \"sandboxed\"\n";
    let off = "[confirmation]\nenabled = false\n";
    let config = format!(
        "{off}{}{READS_AUDIT_LOG}{}{READS_AUDIT_LOG}{low}",
        keeper("high"),
        keeper("low")
    );
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["high", "low"]).await;
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    agent.call("low__echo", json!({"text": "x"})).await.result();
    let replay = json!({"method": "mgp/audit/replay", "params": {"limit": 1}});
    let refused = agent.call("low__ask", replay).await;
    assert!(refused.frame.contains("sandboxed"), "{}", refused.frame);
    let mut told = async |tool: &str| {
        let seen = agent.call(tool, json!({})).await.result();
        let frames = seen["structuredContent"]["frames"].to_string();
        frames.matches("notifications/mgp.audit").count()
    };
    wait_until("the other server hears of it", DEADLINE, async || {
        told("high__received").await > 2
    })
    .await;
    assert_eq!(told("low__received").await, 0);
}

/// A secret of the configuration is in no record, whoever says it: not the one a kernel was started
/// with, and not one it was given while it ran.
#[tokio::test]
async fn secrets_that_come_later_are_masked_too() {
    let with = |secret: &str| Program::fixture(&[]).env("API_KEY", secret).entry("it");
    let kernel = Kernel::start(&with("swordfish-the-first")).await;
    kernel.connected(&["it"]).await;
    let mut agent = agent(&kernel).await;
    agent.call("swordfish-the-first", json!({})).await.error();
    kernel.rewrite(&with("swordfish-the-second"));
    let mut owner = operator(&kernel).await;
    let reload = owner.request("mgp/kernel/reload", json!({}));
    reload.await.result();
    kernel.connected(&["it"]).await;
    for (name, words) in [
        ("swordfish-the-second", "new"),
        ("swordfish-the-first", "old"),
    ] {
        let params = json!({"name": name, "arguments": {}, "trace_id": trace(words)});
        agent.request("tools/call", params).await.error();
        let event = of_trace(&kernel, words, 1).await.remove(0);
        assert_eq!(event["target"]["tool_name"], "[redacted]", "{event}");
    }
    assert!(!whole_log(kernel.folder()).contains("swordfish"));
}
