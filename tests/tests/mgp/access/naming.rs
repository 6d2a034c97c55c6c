//! What people type for agents, servers and tools: one thing, however it is spelled, or nothing at all.

use std::process::Output;

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";
/// Everybody at an open HTTP door.
const ANYBODY: &str = "agent.anonymous";

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A kernel in front of one scripted server, and the agent `claude`, who has a token.
async fn kernel() -> Kernel {
    let kernel = Kernel::start(&Program::fixture(&[]).entry("files")).await;
    kernel.connected(&["files"]).await;
    kernel.mgp_json(&["agents", "add", "claude"]).await;
    kernel
}

async fn claude(kernel: &Kernel) -> Agent {
    let mut agent = Agent::over_stdio(&kernel.program(&["stdio", "--agent", "claude"]));
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

async fn entries(kernel: &Kernel) -> Vec<Value> {
    let grants = kernel.mgp_json(&["grants", "list"]).await;
    grants["entries"].as_array().unwrap().clone()
}

/// however an agent and a tool are spelled, the denial is of the same tool, it holds for that agent,
/// and it is printed in one way.
#[tokio::test]
async fn a_denial_holds_however_its_names_are_spelled() {
    let kernel = kernel().await;
    let mut agent = claude(&kernel).await;
    for place in ["files:echo", "files/echo", "files__echo"] {
        for name in ["claude", "agent.claude"] {
            let case = format!("{name} {place}");
            let denied = kernel.mgp(&["grants", "add", name, place, "--deny"]).await;
            let said = "agent.claude is denied files:echo (";
            assert!(out(&denied).starts_with(said), "{case}: {}", err(&denied));
            assert!(
                agent
                    .call("files__echo", json!({"text": "x"}))
                    .await
                    .is_error()
            );
            let why = out(&kernel.mgp(&["explain", name, place]).await);
            assert!(
                why.starts_with("agent.claude may not use files:echo"),
                "{why}"
            );
            let entries = entries(&kernel).await;
            assert_eq!(entries.len(), 1, "{case}: {entries:?}");
            let back = out(&kernel.mgp(&["grants", "remove", name, place]).await);
            assert_eq!(
                back,
                "taken back: the entry of agent.claude for files:echo\n"
            );
            assert_eq!(
                agent.call("files__echo", json!({"text": "x"})).await.text(),
                "x"
            );
        }
    }
}

/// What denies nothing is refused, with what was probably meant; nothing is written down.
#[tokio::test]
async fn a_denial_of_nothing_is_refused_with_the_nearest() {
    let kernel = kernel().await;
    for (agent, place, nearest) in [
        ("agent.claud", "files", "did you mean agent.claude?"),
        ("Claude", "files", "did you mean agent.claude?"),
        ("agent.claude", "filez", "did you mean files?"),
        ("agent.claude", "files/ecoh", "did you mean files:echo?"),
        ("agent.claude", "files__ecoh", "did you mean files:echo?"),
        ("agent.claude", "filez:echo", "did you mean files?"),
        ("agent.claude", "echo", "did you mean files:echo?"),
        ("agent.claude", "fіles", "U+0456"),
        ("agent.claude", "files ", "' '"),
        ("agent.claude", "files:echo\u{200b}", "U+200B"),
        ("agent.cla\u{1b}[2Jude", "files", "is none of them"),
    ] {
        for verb in [
            &["grants", "add", agent, place, "--deny"][..],
            &["explain", agent, place],
        ] {
            let said = kernel.mgp(verb).await;
            assert_eq!(said.status.code(), Some(2), "{verb:?}: {}", out(&said));
            assert!(err(&said).contains(nearest), "{verb:?}: {}", err(&said));
            assert!(!err(&said).contains('\u{1b}'), "{verb:?}: {}", err(&said));
        }
        let said = kernel.mgp(&["grants", "remove", agent, place]).await;
        assert_eq!(said.status.code(), Some(2), "{}", out(&said));
    }
    assert_eq!(entries(&kernel).await, Vec::<Value>::new());
}

/// Every other command that takes a name refuses one of nothing in the same way.
#[tokio::test]
async fn every_command_suggests_the_nearest_name() {
    let kernel = kernel().await;
    for (command, nearest) in [
        (&["servers", "restart", "filez"][..], "did you mean files?"),
        (&["servers", "stop", "filez"], "did you mean files?"),
        (&["servers", "logs", "filez"], "did you mean files?"),
        (&["servers", "remove", "filez"], "did you mean files?"),
        (
            &["tools", "list", "--server", "filez"],
            "did you mean files?",
        ),
        (&["tools", "call", "files:ecoh"], "did you mean files:echo?"),
        (
            &["tools", "find", "x", "--agent", "claud"],
            "did you mean agent.claude?",
        ),
        (
            &["deny", "filez", "network.outbound"],
            "did you mean files?",
        ),
        (
            &["grants", "list", "--agent", "claud"],
            "did you mean agent.claude?",
        ),
        (&["agents", "remove", "claud"], "did you mean agent.claude?"),
        (&["agents", "token", "claud"], "did you mean agent.claude?"),
    ] {
        let said = kernel.mgp(command).await;
        assert_eq!(said.status.code(), Some(2), "{command:?}: {}", err(&said));
        assert!(err(&said).contains(nearest), "{command:?}: {}", err(&said));
    }
    let door = kernel.mgp(&["stdio", "--agent", "claud"]).await;
    assert!(
        err(&door).contains("did you mean claude?"),
        "{}",
        err(&door)
    );
}

/// What is still to come can be denied before it is there, and is denied when it comes.
#[tokio::test]
async fn denial_of_a_future_server_applies_when_it_connects() {
    let kernel = kernel().await;
    let deny = [
        "grants",
        "add",
        "agent.later",
        "files:echo",
        "--deny",
        "--yet-unknown",
    ];
    let denied = kernel.mgp(&deny).await;
    assert!(denied.status.success(), "{}", err(&denied));
    kernel.mgp_json(&["agents", "add", "later"]).await;
    let mut later = Agent::over_stdio(&kernel.program(&["stdio", "--agent", "later"]));
    later.initialize(NEWEST, "{}").await.result();
    assert!(
        later
            .call("files__echo", json!({"text": "x"}))
            .await
            .is_error()
    );
    let bare = kernel
        .mgp(&[
            "grants",
            "add",
            "later",
            "new__tool",
            "--deny",
            "--yet-unknown",
        ])
        .await;
    assert_eq!(
        bare.status.code(),
        Some(2),
        "a server or a tool of one: {}",
        out(&bare)
    );
}

/// A server that is down can be denied, with all it had before; of one that has never listed anything the
/// doubt is told.
#[tokio::test]
async fn a_server_that_is_down_can_be_denied() {
    let asleep = format!(
        "{}autostart = false\n",
        Program::fixture(&[]).entry("asleep")
    );
    let kernel = Kernel::start(&(Program::fixture(&[]).entry("files") + &asleep)).await;
    kernel.connected(&["files"]).await;
    kernel.mgp(&["servers", "stop", "files"]).await;
    let denied = kernel
        .mgp(&["grants", "add", ANYBODY, "files:echo", "--deny"])
        .await;
    assert!(denied.status.success(), "{}", err(&denied));
    let misspelt = kernel
        .mgp(&["grants", "add", ANYBODY, "files:ecoh", "--deny"])
        .await;
    assert_eq!(misspelt.status.code(), Some(2));
    let whole = kernel
        .mgp(&["grants", "add", ANYBODY, "asleep", "--deny"])
        .await;
    assert!(
        whole.status.success() && err(&whole).is_empty(),
        "{}",
        err(&whole)
    );
    let doubtful = kernel
        .mgp(&["grants", "add", ANYBODY, "asleep:echo", "--deny"])
        .await;
    assert!(doubtful.status.success(), "{}", err(&doubtful));
    assert!(
        err(&doubtful).contains("has not listed its tools yet"),
        "{}",
        err(&doubtful)
    );
}

/// A client of the method decides whether names have to be there; the document's own request, which does
/// not say, is for what is to come as well, and is told what is not there.
#[tokio::test]
async fn grant_method_rejects_unknown_names_on_request() {
    let kernel = kernel().await;
    let mut owner = Agent::over_socket(&kernel.socket()).await;
    owner.initialize(NEWEST, "{}").await.result();
    let mut deny = json!({"entry_type": "tool_grant", "agent_id": "agent.claude",
        "server_id": "files", "tool_name": "ecoh", "permission": "deny"});
    let granted = owner
        .request("mgp/access/grant", deny.clone())
        .await
        .result();
    let note = granted["notes"][0].as_str().unwrap();
    assert!(note.contains("did you mean files:echo?"), "{note}");
    deny["yet_unknown"] = json!(false);
    let refused = owner.request("mgp/access/grant", deny.clone()).await;
    assert_eq!(refused.code(), -32602);
    for (member, nonsense) in [
        ("agent_id", "a b"),
        ("server_id", "fі/les"),
        ("agent_id", "operator"),
    ] {
        let mut deny = deny.clone();
        deny.as_object_mut().unwrap().remove("yet_unknown");
        deny[member] = json!(nonsense);
        let refused = owner.request("mgp/access/grant", deny).await;
        assert_eq!(refused.code(), -32602, "{nonsense:?} can never be anybody");
    }
}

/// MGP-079: a denied call reads as a denial in the log, and says what denied it; the caller reads of an
/// unknown tool.
#[tokio::test]
async fn a_denied_call_reads_as_a_denial_in_the_log() {
    let kernel = kernel().await;
    let granted = kernel
        .mgp_json(&["grants", "add", "claude", "files:echo", "--deny"])
        .await;
    let grant = granted["grant_id"].as_str().unwrap();
    let mut agent = claude(&kernel).await;
    let refused = agent.call("files__echo", json!({"text": "x"})).await;
    assert_eq!(refused.error()["message"], "Unknown tool: files__echo");
    let mut said = String::new();
    wait_until("the denied call is in the log", DEADLINE, async || {
        said = out(&kernel.mgp(&["audit", "tail"]).await);
        said.contains("TOOL_BLOCKED")
    })
    .await;
    let line = said
        .lines()
        .find(|line| line.contains("TOOL_BLOCKED"))
        .unwrap();
    let want = format!(
        "TOOL_BLOCKED DENIED  agent agent.claude  files:echo  denied: grant {grant} of operator denies the tool"
    );
    assert!(line.ends_with(&want), "{line}");
    let as_json = out(&kernel.mgp(&["audit", "tail", "--json"]).await);
    let events = as_json
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let event = events
        .into_iter()
        .find(|event| event["event_type"] == "TOOL_BLOCKED")
        .unwrap();
    assert_eq!(event["result"], "DENIED");
    let reason = event["details"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("denied: "), "{event}");
}

/// Names in the configuration that mean nothing are told by `mgp status`, once it is known what there is;
/// entries that mean nothing any more by `mgp grants list`.
#[tokio::test]
async fn misspelt_names_in_the_configuration_are_reported() {
    let discovery = "[discovery]\nembedding = \"off\"\nexposure = \"all\"\n\
        pinned = [\"files:echo\", \"files/ecoh\", \"files__cuont\"]\nmay_register = [\"claud\", \"claude\"]\n\
        [discovery.agents.\"agent.cluade\"]\nexposure = \"all\"\n";
    let files = Program::fixture(&[]).entry("files");
    let rule = "[servers.tools.\"fial\"]\nrisk_level = \"dangerous\"\n";
    let kernel = Kernel::start(&format!("{discovery}{files}{rule}")).await;
    kernel.connected(&["files"]).await;
    kernel.mgp_json(&["agents", "add", "claude"]).await;
    let mut problems = Value::Null;
    wait_until("what files offers is known", DEADLINE, async || {
        problems = kernel.mgp_json(&["status"]).await["config_problems"].clone();
        problems.as_array().unwrap().len() == 5
    })
    .await;
    for (place, nearest) in [
        ("`pinned` in [discovery]", "did you mean files:echo?"),
        ("`pinned` in [discovery]", "did you mean files:count?"),
        (
            "`may_register` in [discovery]",
            "did you mean agent.claude?",
        ),
        ("[discovery.agents]", "did you mean agent.claude?"),
        ("[servers.tools]", "did you mean files:fail?"),
    ] {
        let told = |problem: &Value| {
            let problem = problem.as_str().unwrap();
            problem.starts_with(place) && problem.contains(nearest)
        };
        assert!(
            problems.as_array().unwrap().iter().any(told),
            "{place}: {problems:#}"
        );
    }
    let deny = [
        "grants",
        "add",
        "claude",
        "files:ecoh",
        "--deny",
        "--yet-unknown",
    ];
    kernel.mgp_json(&deny).await;
    let grants = kernel.mgp(&["grants", "list"]).await;
    let note = "an entry of agent.claude: server files has no tool ecoh (did you mean files:echo?)";
    assert!(err(&grants).contains(note), "{}", err(&grants));
}
