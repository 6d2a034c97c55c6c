//! Servers of MCP-lite behind the kernel: real ones, in Python, that behave as the document says and, when they
//! are told to, do not.

mod answers;
mod changes;
mod grpc;
mod kernels;
mod misbehaving;
mod promises;
mod questions;
mod results;
mod words;

use mgp_tests::harness::{Agent, DEADLINE, Kernel, ModernAgent, Peers, Process, Program};
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
    transport: &'static str,
    port: u16,
    /// Where it is told how to behave.
    control: u16,
}

impl LitePeer {
    /// A server over HTTP.
    async fn http(peers: &Peers, flags: &[&str]) -> Self {
        let program = peers.python_script("lite/server_http.py", flags);
        Self::start("lite", &program).await
    }

    /// A server over gRPC.
    async fn grpc(peers: &Peers, flags: &[&str]) -> Self {
        let program = peers.python_script("lite/server_grpc.py", flags);
        Self::start("grpc", &program).await
    }

    async fn start(transport: &'static str, program: &Program) -> Self {
        let mut process = Process::start("lite server", program);
        let listening = |said: &str| port(said, "listening");
        let at = process.says("its port", DEADLINE, listening).await;
        Self {
            transport,
            port: at,
            control: port(&process.stdout(), "control").unwrap_or(at),
            process,
        }
    }

    fn url(&self) -> String {
        let path = match self.transport {
            "lite" => "/mcp-lite/v1/",
            _ => "",
        };
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Its entry, with more keys.
    fn entry(&self, id: &str, keys: &str) -> String {
        let (transport, url) = (self.transport, self.url());
        format!("[[servers]]\nid = {id:?}\ntransport = {transport:?}\nurl = {url:?}\n{keys}\n")
    }

    /// What it was asked: `counts` by tool, `redeemed` by token, `paths`.
    async fn told(&self) -> Value {
        self.post("/told", &json!({})).await
    }

    async fn set(&self, settings: Value) {
        self.post("/set", &settings).await;
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.control))
            .await
            .unwrap();
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

/// The port in the line that begins with this word.
fn port(said: &str, word: &str) -> Option<u16> {
    let (_, rest) = said.split_once(&format!("{word} 127.0.0.1:"))?;
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

/// The list of an agent at a lite server: its tools as MCP has them, and no `redeem`.
async fn shows_its_tools(agent: &mut Agent) {
    let listed = agent.request("tools/list", json!({})).await.result();
    let tools = listed["tools"].as_array().unwrap();
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name);
    assert!(named("redeem").is_none(), "{listed:#}");
    let search = named("search_documents").unwrap();
    assert_eq!(search["inputSchema"]["required"], json!(["query"]));
    assert_eq!(
        named("bare").unwrap()["inputSchema"],
        json!({"type": "object"})
    );
}
