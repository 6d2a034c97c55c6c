//! Finding tools for hosts with a tool search and approvals of their own: calls by confirmed effect, and answers in
//! short.

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::made::NEWEST;

const READ: &str = "mgp_tools_call_read";
const WRITE: &str = "mgp_tools_call_write";
const CALL: &str = "mgp_tools_call";
const DISCOVER: &str = "mgp_tools_discover";
const DESCRIBE: &str = "mgp_tools_describe";

fn tool(name: &str, annotations: Value) -> Value {
    let path = json!({"type": "string"});
    let limit = json!({"type": "integer"});
    let schema = json!({"type": "object", "properties": {"limit": limit, "path": path},
        "required": ["path"]});
    json!({"name": name, "description": "Handles a parchment. Slowly, as it is old.",
        "inputSchema": schema, "annotations": annotations})
}

fn tools() -> Vec<Value> {
    vec![
        tool("parchment_read", json!({"readOnlyHint": true})),
        tool("parchment_copy", json!({"destructiveHint": false})),
        tool("parchment_burn", json!({})),
    ]
}

fn config(tools: &[Value], discovery: &str) -> String {
    let flags: Vec<String> = tools.iter().map(|tool| format!("--tool={tool}")).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let archive = Program::fixture(&flags).entry("archive") + "pin = \"warn\"\n";
    format!(
        "{archive}[confirmation]\nenabled = false\n[discovery]\nembedding = \"off\"\nexposure = \"discovery\"\n{discovery}"
    )
}

async fn kernel(discovery: &str) -> Kernel {
    let kernel = Kernel::start(&config(&tools(), discovery)).await;
    found_there(&kernel).await;
    kernel
}

async fn found_there(kernel: &Kernel) {
    kernel.connected(&["archive"]).await;
    let find = ["tools", "find", "parchment", "--strategy", "keyword"];
    wait_until("it can be found", DEADLINE, async || {
        kernel.mgp_json(&find).await["tools"]
            .to_string()
            .contains("parchment_burn")
    })
    .await;
}

async fn agent(kernel: &Kernel) -> Agent {
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

async fn listed(agent: &mut Agent) -> Vec<Value> {
    let mut list = agent.request("tools/list", json!({})).await.result();
    list["tools"].as_array_mut().unwrap().drain(..).collect()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

/// Calls a tool of the archive through a finding tool: the error, if it is refused.
async fn call(agent: &mut Agent, through: &str, tool: &str) -> Option<String> {
    let wanted = json!({"name": format!("archive__{tool}"), "arguments": {"path": "/p"}});
    let answer = agent.call(through, wanted).await;
    answer.is_error().then(|| answer.frame.clone())
}

/// EXT-060: the finding tools are loaded by hosts that defer others.
#[tokio::test]
async fn finding_tools_are_always_loaded() {
    let kernel = kernel("").await;
    let mut agent = agent(&kernel).await;
    let tools = listed(&mut agent).await;
    assert_eq!(
        names(&tools),
        ["mgp_tools_discover", "mgp_tools_request", CALL]
    );
    for tool in &tools {
        assert_eq!(tool["_meta"]["anthropic/alwaysLoad"], true, "{tool:#}");
    }
}

/// EXT-061: a tool only reads where the operator confirmed it; then it is called by a tool that a host may always allow.
#[tokio::test]
async fn confirmed_effect_opens_the_call_tools() {
    let kernel = kernel("").await;
    let mut agent = agent(&kernel).await;
    for through in [READ, WRITE] {
        let refused = call(&mut agent, through, "parchment_read").await.unwrap();
        assert!(refused.contains("nobody confirmed"), "{refused}");
        assert!(refused.contains(CALL), "{refused}");
    }
    assert_eq!(call(&mut agent, CALL, "parchment_read").await, None);
    let confirmed = kernel
        .mgp_json(&["tools", "confirm", "archive", "--yes"])
        .await;
    // The fixture has a tool of its own that says that it reads.
    assert_eq!(
        confirmed["tools"],
        json!(["parchment_copy", "parchment_read", "test_structured"])
    );
    let shown = listed(&mut agent).await;
    for (name, reads) in [(READ, true), (WRITE, false)] {
        let tool = shown.iter().find(|tool| tool["name"] == name).unwrap();
        assert_eq!(tool["annotations"]["readOnlyHint"], reads, "{tool:#}");
    }
    let tools = ["parchment_read", "parchment_copy", "parchment_burn"];
    for (through, open) in [(READ, 1), (WRITE, 2), (CALL, 3)] {
        for (at, tool) in tools.iter().enumerate() {
            let refused = call(&mut agent, through, tool).await;
            assert_eq!(
                refused.is_some(),
                at >= open,
                "{through} {tool}: {refused:?}"
            );
        }
    }
    let asked = json!({"query": "parchment", "strategy": "keyword"});
    let found = agent.call(DISCOVER, asked).await.result();
    let found = found["structuredContent"]["tools"].as_array().unwrap();
    let effect = |name: &str| {
        let tool = found.iter().find(|tool| tool["tool_id"] == *name).unwrap();
        tool.get("effect").cloned()
    };
    assert_eq!(effect("archive:parchment_read"), Some(json!("read")));
    assert_eq!(effect("archive:parchment_burn"), None);
    // Nothing is left, and it can be taken back.
    let confirmed = kernel
        .mgp_json(&["tools", "confirm", "archive", "--yes"])
        .await;
    assert_eq!(confirmed["tools"], json!([]));
    let remove = [
        "tools",
        "confirm",
        "archive",
        "--only",
        "parchment_read",
        "--remove",
        "--yes",
    ];
    kernel.mgp_json(&remove).await;
    assert!(call(&mut agent, READ, "parchment_read").await.is_some());
}

/// EXT-061: a tool that may not be called reads like one that does not exist, through these tools as well.
#[tokio::test]
async fn call_tools_do_not_reveal_a_denied_tool() {
    let access = "[access]\ndefault_policy = \"opt-in\"\nreveal = false\n";
    let kernel = Kernel::start(&(config(&tools(), "") + access)).await;
    found_there(&kernel).await;
    let granted = ["grants", "add", "agent.anonymous", "archive/parchment_copy"];
    kernel.mgp_json(&granted).await;
    let mut alice = agent(&kernel).await;
    let code = |frame: Option<String>| {
        let frame: Value = serde_json::from_str(&frame.unwrap()).unwrap();
        let message = frame["error"]["message"].as_str().unwrap().to_owned();
        (
            frame["error"]["code"].clone(),
            message.replace("parchment_none", "parchment_read"),
        )
    };
    let denied = code(call(&mut alice, READ, "parchment_read").await);
    let absent = code(call(&mut alice, READ, "parchment_none").await);
    assert_eq!(denied, absent);
}

/// EXT-061: a confirmation is of a definition: another one needs another.
#[tokio::test]
async fn changed_definition_loses_its_confirmation() {
    let kernel = kernel("").await;
    kernel
        .mgp_json(&["tools", "confirm", "archive", "--yes"])
        .await;
    let mut tools = tools();
    tools[0]["description"] = json!("Reads a parchment, and burns it");
    kernel.rewrite(&config(&tools, ""));
    wait_until("the change waits for a person", DEADLINE, async || {
        let pending = kernel.mgp_json(&["pending"]).await;
        pending["pending"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    })
    .await;
    found_there(&kernel).await;
    let mut agent = agent(&kernel).await;
    assert!(call(&mut agent, READ, "parchment_copy").await.is_some());
    assert_eq!(call(&mut agent, WRITE, "parchment_copy").await, None);
    let refused = call(&mut agent, READ, "parchment_read").await.unwrap();
    assert!(refused.contains("nobody confirmed"), "{refused}");
    let confirm = [
        "tools",
        "confirm",
        "archive",
        "--only",
        "parchment_read",
        "--yes",
    ];
    let changed = kernel.mgp(&confirm).await;
    assert!(!changed.status.success(), "{changed:?}");
    // An approval of the change is none of its effect.
    let pending = kernel.mgp_json(&["pending"]).await;
    let id = pending["pending"][0]["id"].as_str().unwrap();
    kernel.mgp_json(&["approve", id]).await;
    assert!(call(&mut agent, READ, "parchment_read").await.is_some());
    kernel.mgp_json(&confirm).await;
    assert_eq!(call(&mut agent, READ, "parchment_read").await, None);
}

/// EXT-062: searches answer in short, and tools are described whole on demand.
#[tokio::test]
async fn brief_answers_name_arguments_and_are_described() {
    let kernel = kernel("answers = \"brief\"\n").await;
    let mut agent = agent(&kernel).await;
    assert!(names(&listed(&mut agent).await).contains(&DESCRIBE));
    let asked = json!({"query": "parchment_read", "strategy": "keyword", "max_results": 1});
    let found = agent.call(DISCOVER, asked).await.result();
    let tool = &found["structuredContent"]["tools"][0];
    assert_eq!(tool["name"], "archive__parchment_read");
    assert_eq!(tool["does"], "Handles a parchment.");
    assert_eq!(tool["arguments"], "path, [limit: integer]");
    assert_eq!(tool.get("inputSchema"), None);
    let names = ["archive__parchment_read", "archive__nothing"];
    let described = agent.call(DESCRIBE, json!({"names": names})).await.result();
    let described = &described["structuredContent"];
    assert_eq!(described["tools"][0]["name"], names[0]);
    assert_eq!(
        described["tools"][0]["inputSchema"]["required"],
        json!(["path"])
    );
    assert_eq!(described["unknown"], json!([names[1]]));
    let many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    assert!(
        agent
            .call(DESCRIBE, json!({"names": many}))
            .await
            .is_error()
    );
}

/// EXT-062, EXT-023: a tool that is only for apps is described to nobody.
#[tokio::test]
async fn app_only_tool_is_not_described() {
    let mut hidden = tool("parchment_seal", json!({}));
    hidden["_meta"] = json!({"ui": {"visibility": ["app"]}});
    let all = [tools(), vec![hidden]].concat();
    let kernel = Kernel::start(&config(&all, "answers = \"brief\"\n")).await;
    found_there(&kernel).await;
    let mut agent = kernel.http_agent(Some("archive"));
    agent.initialize(NEWEST, "{}").await.result();
    let names = ["parchment_read", "parchment_seal"];
    let described = agent.call(DESCRIBE, json!({"names": names})).await.result();
    let described = &described["structuredContent"];
    assert_eq!(described["tools"][0]["name"], names[0], "{described:#}");
    assert_eq!(described["unknown"], json!([names[1]]));
}
