//! What the kernel lists is valid for the SDKs' own validators, whatever a server wrote.

use mgp_tests::harness::{Agent, DEADLINE, Kernel, ModernAgent, Need, Peers, Program};
use serde_json::{Value, json};

/// Lists as servers of all languages write them: each with one slip.
const SERVER: &str = r##"
import json, sys
OBJECT = {"type": "object"}
TOOLS = [
    {"name": "whole", "inputSchema": OBJECT},
    {"name": "nulls", "title": None, "description": None, "icons": None, "annotations": None, "outputSchema": None,
     "execution": None, "_meta": None, "inputSchema": OBJECT},
    {"name": "inner", "annotations": {"title": None, "readOnlyHint": None}, "icons": [{"src": "a:b", "sizes": None}],
     "inputSchema": OBJECT},
    {"name": "bool", "inputSchema": {"type": "object", "properties": {"a": True, "b": False}}},
    {"name": "bool_out", "inputSchema": OBJECT, "outputSchema": {"type": "object", "properties": {"a": True}}},
    {"name": "any_out", "inputSchema": OBJECT, "outputSchema": {}},
    {"name": "empty", "inputSchema": {}},
    {"name": "required", "inputSchema": {"type": "object", "properties": [], "required": None}},
    {"name": "tuple", "inputSchema": {"type": "object", "properties": {"a": {"type": "array", "items": [{"type": "string"}]}}}},
    {"name": "number", "description": 7, "inputSchema": OBJECT},
    {"name": "hint", "annotations": {"readOnlyHint": "yes"}, "inputSchema": OBJECT},
    {"name": "meta", "_meta": [], "inputSchema": OBJECT},
    {"name": "icon", "icons": [{"sizes": "48x48"}], "inputSchema": OBJECT},
]
PROMPTS = [
    {"name": "nulls", "title": None, "description": None, "arguments": None, "icons": None, "_meta": None},
    {"name": "inner", "arguments": [{"name": "a", "description": None, "required": None, "title": None}]},
    {"name": "number", "description": 7},
]
RESOURCES = [
    {"uri": "a:nulls", "name": "n", "title": None, "description": None, "mimeType": None, "size": None,
     "annotations": None, "icons": None, "_meta": None},
    {"uri": "a:inner", "name": "i", "annotations": {"audience": None, "priority": None, "lastModified": None}},
    {"uri": "a:size", "name": "s", "size": "7"},
    {"uri": "a:audience", "name": "a", "annotations": {"audience": ["everybody"]}},
    {"uri": "a:moment", "name": "m", "annotations": {"lastModified": "yesterday"}},
]
TEMPLATES = [{"uriTemplate": "t:{a}", "name": "t", "title": None, "mimeType": None, "annotations": None}]
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if id is None:
        continue
    result = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
                       "serverInfo": {"name": "slips", "version": "1"}},
        "tools/list": {"tools": TOOLS}, "prompts/list": {"prompts": PROMPTS},
        "resources/list": {"resources": RESOURCES}, "resources/templates/list": {"resourceTemplates": TEMPLATES},
        "ping": {},
    }.get(method)
    answer = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": id, **answer}), flush=True)
"##;

const LISTS: [&str; 4] = [
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
];
const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What strict clients of this SDK cannot read.
async fn unreadable(script: &Program) -> Value {
    let output = script.output(DEADLINE).await;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).expect(&words)
}

/// One server's null, or its boolean for a schema, costs nobody a list: what is listed is valid in each version for
/// the validators of both SDKs, and what was repaired or left out is named.
#[tokio::test]
async fn listed_definitions_are_valid_whatever_a_server_wrote() {
    let Some(peers) = Peers::find(&[Need::Node, Need::Python]) else {
        return;
    };
    let server = Program::new("python3", ["-c", SERVER]);
    let kernel = Kernel::start(&(server.entry("it") + &Program::fixture(&[]).entry("well"))).await;
    kernel.connected(&["it", "well"]).await;
    let mut lists = Vec::new();
    for version in LEGACY {
        let mut agent = Agent::over_socket(&kernel.socket()).await;
        agent.initialize(version, "{}").await.result();
        for method in LISTS {
            lists.push((method, agent.request(method, json!({})).await.result()));
        }
    }
    let tools = lists[0].1.to_string();
    for kept in [
        "whole", "nulls", "inner", "bool", "bool_out", "any_out", "empty", "required", "tuple",
    ] {
        assert!(
            tools.contains(&format!("\"it__{kept}\"")),
            "{kept}: {tools}"
        );
    }
    let mut modern = ModernAgent::over_socket(&kernel.socket(), "{}").await;
    let mut newest = Vec::new();
    for method in LISTS {
        newest.push((method, modern.request(method, json!({})).await.result()));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, lists: &[(&str, Value)]| {
        let path = folder.path().join(name);
        std::fs::write(&path, serde_json::to_string(lists).unwrap()).unwrap();
        path.display().to_string()
    };
    let (legacy, newest) = (file("legacy", &lists), file("newest", &newest));
    for (file, peers) in [(&legacy, &peers), (&newest, &peers.modern())] {
        let script = peers.node_script("lists.mjs", &[file]);
        assert_eq!(unreadable(&script).await, json!([]), "{file}");
        let script = peers.python_script("lists.py", &[file]);
        assert_eq!(unreadable(&script).await, json!([]), "{file}");
    }
    let listed = kernel.mgp_json(&["servers", "list"]).await.to_string();
    for slip in [
        "tool nulls: ",
        "tool bool: ",
        "prompt inner: ",
        "resource i: ",
    ] {
        assert!(listed.contains(slip), "{slip}: {listed}");
    }
    for left_out in [
        "tool number: ",
        "tool hint: ",
        "prompt number: ",
        "resource s: ",
    ] {
        assert!(listed.contains(left_out), "{left_out}: {listed}");
    }
}
