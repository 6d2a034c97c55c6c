//! Python readers end lines at more than the newline: nothing of that starts a request.

use mgp_tests::harness::{Agent, Kernel, Need, Peers};
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";
/// Everybody at an open HTTP door.
const ANYBODY: &str = "agent.anonymous";

/// A call of the denied tool, under an id that could be that of another call.
fn hidden(id: u64) -> String {
    let params = json!({"name": "secret", "arguments": {}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

async fn deny(kernel: &Kernel, server: &str) -> Agent {
    let mut owner = Agent::over_socket(&kernel.socket()).await;
    owner.initialize(NEWEST, "{}").await.result();
    let entry = json!({"entry_type": "tool_grant", "agent_id": ANYBODY, "server_id": server,
        "tool_name": "secret", "permission": "deny"});
    owner.request("mgp/access/grant", entry).await.result();
    owner
}

/// CMCP-016: the way past denials, validators, confirmation and audit, at servers that cut their lines
/// as the official SDK does and as `str.splitlines` does.
#[tokio::test]
async fn a_carriage_return_starts_no_request_at_a_python_server() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let ways = ["sdk", "universal", "splitlines"];
    let entries = ways.map(|way| peers.python_script("servers/lines.py", &[way]).entry(way));
    let kernel = Kernel::start(&entries.concat()).await;
    kernel.connected(&ways).await;
    for server in ways {
        let mut owner = deny(&kernel, server).await;
        let mut agent = kernel.http_agent(None);
        agent.initialize(NEWEST, "{}").await.result();
        assert_ne!(
            agent
                .call(&format!("{server}__secret"), json!({}))
                .await
                .code(),
            0
        );
        for guess in 0..20 {
            let id = 100 + guess;
            let smuggled = hidden(guess);
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{server}__echo","arguments":{{"text":"seen"}},"z":["#
            );
            agent.send(&(call + "\r" + &smuggled + "\r]}}")).await;
            assert_eq!(agent.answer_to(&json!(id)).await.text(), "seen");
        }
        for end in ["\u{85}", "\u{2028}", "\u{2029}"] {
            let text = format!("a{end}{}{end}b", hidden(7));
            let said = agent
                .call(&format!("{server}__echo"), json!({"text": text}))
                .await;
            assert_eq!(said.text(), text);
        }
        let ran = owner.call(&format!("{server}__ran"), json!({})).await;
        assert_eq!(ran.text(), "0", "{server}");
        let allowed: Value = owner
            .call(&format!("{server}__secret"), json!({}))
            .await
            .result();
        assert_eq!(allowed["content"][0]["text"], "SECRET", "the tool is there");
    }
}
