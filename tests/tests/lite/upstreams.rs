//! Servers of MCP-lite behind the kernel: real ones, in Python, that behave as the document says and, when they
//! are told to, do not.

mod answers;
mod changes;
mod misbehaving;
mod promises;
mod questions;
mod words;

use mgp_tests::harness::{Agent, DEADLINE, Kernel, ModernAgent, Peers, Process};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The newest version that opens with `initialize`.
const NEWEST: &str = "2025-11-25";

/// A client that can be asked for a form.
const ASKED: &str = r#"{"elicitation":{"form":{}}}"#;

/// A lite server; dropping it ends it.
struct LitePeer {
    process: Process,
    port: u16,
}

impl LitePeer {
    /// A server over HTTP.
    async fn http(peers: &Peers, flags: &[&str]) -> Self {
        let program = peers.python_script("lite/server_http.py", flags);
        let mut process = Process::start("lite server", &program);
        let port = process.says("its port", DEADLINE, listening).await;
        Self { process, port }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp-lite/v1/", self.port)
    }

    /// Its entry, with more keys.
    fn entry(&self, id: &str, keys: &str) -> String {
        let url = self.url();
        format!("[[servers]]\nid = {id:?}\ntransport = \"lite\"\nurl = {url:?}\n{keys}\n")
    }

    /// What it was asked: `counts` by tool, `redeemed` by token, `paths`.
    async fn told(&self) -> Value {
        self.post("/told", &json!({})).await
    }

    async fn set(&self, settings: Value) {
        self.post("/set", &settings).await;
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }
}

fn listening(said: &str) -> Option<u16> {
    let (_, rest) = said.split_once("listening 127.0.0.1:")?;
    rest.split_once('\n')?.0.trim().parse().ok()
}

/// A client of sessions that sees the server alone.
async fn legacy(kernel: &Kernel, capabilities: &str) -> Agent {
    let mut agent = Agent::over_http(&kernel.server_url("shop"));
    agent.initialize(NEWEST, capabilities).await.result();
    agent
}

/// A stateless client that sees the server alone.
fn modern(kernel: &Kernel, capabilities: &str) -> ModernAgent {
    ModernAgent::over_http(&kernel.server_url("shop"), capabilities)
}
