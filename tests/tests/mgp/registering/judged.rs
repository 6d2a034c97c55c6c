//! Code that was judged when its server was registered: that runs, and nothing that it writes itself.

use std::fs;
use std::path::Path;

use mgp_tests::harness::{Agent, DEADLINE, Kernel, wait_until};
use serde_json::{Value, json};

use crate::registering::{ANYBODY, MAY, agent};
use crate::sandbox::starts_none;
use crate::scene::made::NEWEST;

const ID: &str = "dynamic.planter";

/// A server that `strict` lets pass: it writes a file where it is told to, and tells its Python's version
/// and where it runs from.
const CODE: &str = r#"
import sys
import json
from pathlib import Path

def put(name, text):
    try:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        return str(error)
    return "written"

def made(method, params):
    if method == "initialize":
        version = params["protocolVersion"]
        info = {"name": "planter", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object"}
        return {"tools": [{"name": "put", "description": "Puts a file", "inputSchema": schema}]}
    if method == "tools/call":
        told = params["arguments"]
        if "name" in told:
            text = put(told["name"], told["text"])
        else:
            text = f"{sys.version_info.major}.{sys.version_info.minor} {sys.argv[0]}"
        return {"content": [{"type": "text", "text": text}]}
    return {}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = made(asked["method"], asked["params"] if "params" in asked else {})
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
"#;

/// The name of its tool, as agents call it.
async fn tool(agent: &mut Agent) -> String {
    let list = agent.request("tools/list", json!({})).await.result();
    let mut names = list["tools"].as_array().unwrap().iter();
    let name = names.find_map(|tool| {
        let name = tool["name"].as_str()?;
        name.starts_with("dynamic_planter__put").then_some(name)
    });
    name.unwrap().to_owned()
}

/// MGP-227: what judged code leaves where Python looks for modules is not run at its next start, and neither its
/// program nor what lies beside that is its to write.
#[tokio::test]
async fn files_written_by_validated_code_are_not_run() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(MAY).await;
    let mut agent = agent(&kernel).await;
    // It does not flush: that is what the variable is for.
    let ask = json!({
        "id": ID, "command": "python", "env": {"PYTHONUNBUFFERED": "1"},
        "code": {"language": "python", "text": CODE},
    });
    let told = agent.request("mgp/discovery/register", ask).await.result();
    assert_eq!(told["status"], "connected", "{told:#}");
    let tool = tool(&mut agent).await;
    let told = agent.call(&tool, json!({})).await.text();
    let (version, program) = told.split_once(' ').unwrap();
    let folders = kernel.folder().join("data/sandbox");
    let own = folders.join(format!("of-{ID}"));
    let (ran, beside) = (own.join("RAN"), Path::new(program).parent().unwrap());
    let text = format!("open({ran:?}, 'a').write(__name__)\n");
    let site = format!("home/.local/lib/python{version}/site-packages/usercustomize.py");
    for (file, written) in [
        (own.join("json.py"), true),
        (own.join(site), true),
        (program.into(), false),
        (beside.join("json.py"), false),
        (beside.join("node_modules/zod/index.js"), false),
        (folders.join("node_modules/zod/index.js"), false),
    ] {
        let said = agent.call(&tool, json!({"name": file, "text": text}));
        let said = said.await.text();
        assert_eq!(said == "written", written, "{}: {said}", file.display());
    }
    let server = async || {
        let shown = kernel.mgp_json(&["servers", "list"]).await;
        shown["servers"][0].clone()
    };
    let before: Value = server().await["pid"].clone();
    kernel.mgp_json(&["servers", "restart", ID]).await;
    wait_until("it is started again", DEADLINE, async || {
        let shown = server().await;
        ran.exists() || shown["state"] == "connected" && shown["pid"] != before
    })
    .await;
    let names = fs::read_to_string(&ran).unwrap_or_default();
    assert!(!ran.exists(), "these ran: {names}");
    assert_eq!(fs::read_to_string(program).unwrap(), CODE);
    let out = json!({"id": ID});
    agent
        .request("mgp/discovery/deregister", out)
        .await
        .result();
    let left: Vec<_> = fs::read_dir(&folders).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// MGP-224: the document's own example (§15.4) names a program by its path: it is told what to send
/// instead, an agent of plain MCP in a text that a model reads.
#[tokio::test]
async fn registration_by_path_is_rejected_with_the_accepted_form() {
    let kernel = Kernel::start(MAY).await;
    let example = json!({
        "id": "dynamic.custom_tool", "command": "python", "args": ["scripts/mcp_custom.py"],
        "transport": "stdio",
        "mgp": {
            "extensions": ["security"], "permissions_required": ["network.outbound"],
            "trust_level": "sandboxed"
        },
        "created_by": ANYBODY, "justification": "Agent needs custom data processing tool"
    });
    let mut mgp = agent(&kernel).await;
    let refused = mgp.request("mgp/discovery/register", example.clone()).await;
    let error = refused.error();
    assert_eq!(error["code"], 1010, "{error}");
    let told = &error["data"]["_mgp"]["details"];
    assert_eq!(
        (&told["rule"], &told["path"]),
        (&json!("path"), &json!("/args"))
    );
    let mut plain = kernel.http_agent(None);
    plain.initialize(NEWEST, "{}").await.result();
    let read = plain.call("mgp_discovery_register", example).await.text();
    for words in [
        "scripts/mcp_custom.py is a path",
        "send the program's text as `code`",
    ] {
        assert!(
            error.to_string().contains(words) && read.contains(words),
            "{error} {read}"
        );
    }
}
