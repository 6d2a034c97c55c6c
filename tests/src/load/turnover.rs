//! Everything that comes and goes at a kernel, coming and going: what it must not grow from.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::http::SPOKEN;
use crate::harness::{Agent, DEADLINE, HttpClient, Kernel, ModernAgent, Program, wait_until};

/// What the answer of a session's call weighs, in bytes: half of what a session keeps for replay.
const ANSWER: usize = 500 << 10;

/// A resource of the scripted server.
const RESOURCE: &str = "test://static-text";

/// A kernel at which things come and go, in front of one scripted server, `it`.
pub struct Turnover {
    kernel: Kernel,
}

impl Turnover {
    /// A kernel with more sections in `mgp.toml`.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn begin() -> Self {
        let kernel = Kernel::start(&entries(0)).await;
        kernel.connected(&["it"]).await;
        Self { kernel }
    }

    /// The kernel's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.kernel.pid()
    }

    /// So many of each, one after the other; a few servers beside them.
    ///
    /// # Panics
    /// When one is refused.
    pub async fn round(&self, count: usize) {
        self.sessions(count).await;
        self.lines(count).await;
        self.listeners(count).await;
        self.servers(count.div_ceil(20)).await;
    }

    /// Sessions over HTTP, each with a streamed answer that fills its replay buffer, a subscription and a
    /// call that never ends; each is deleted.
    ///
    /// # Panics
    /// When one is refused.
    pub async fn sessions(&self, count: usize) {
        for _ in 0..count {
            let mut client = HttpClient::new(&self.kernel.server_url("it"));
            client.open_session(SPOKEN, "{}").await;
            let params = json!({
                "name": "progress",
                "arguments": {"steps": 1, "bytes": ANSWER},
                "_meta": {"progressToken": 1},
            });
            let answer = client.post(request(1, "tools/call", &params)).await;
            assert!(
                answer.is_stream(),
                "what came before the answer wants a stream"
            );
            let frames = answer.frames().await;
            assert!(frames.last().is_some_and(|last| last.len() > ANSWER));
            let subscribe = request(2, "resources/subscribe", &json!({"uri": RESOURCE}));
            let subscribed = client.post(subscribe).await.frames().await;
            assert!(subscribed[0].contains("result"), "{subscribed:?}");
            let hang = request(3, "tools/call", &json!({"name": "hang", "arguments": {}}));
            let never = client.clone();
            let hanging = tokio::spawn(async move { never.post(hang).await.frames().await });
            assert!(client.delete().await.status.is_success());
            hanging.abort();
        }
    }

    /// Line connections, each closed in the middle of a call.
    ///
    /// # Panics
    /// When one is refused.
    pub async fn lines(&self, count: usize) {
        for _ in 0..count {
            let mut agent = Agent::over_socket(&self.kernel.socket()).await;
            agent.initialize(SPOKEN, "{}").await.result();
            let echo = agent.call("it__echo", json!({"text": "x".repeat(1000)}));
            assert_eq!(echo.await.text().len(), 1000);
            let params = json!({"name": "it__hang", "arguments": {}});
            agent.start("tools/call", params).await;
            agent.close().await;
        }
    }

    /// Stateless clients that listen for a while.
    ///
    /// # Panics
    /// When one is refused.
    pub async fn listeners(&self, count: usize) {
        for _ in 0..count {
            let mut agent = ModernAgent::over_http(self.kernel.url(), "{}");
            let id = agent.listen(json!({"toolsListChanged": true})).await;
            agent
                .hears("notifications/subscriptions/acknowledged")
                .await;
            agent.cancel(&id).await;
        }
    }

    /// Servers that are added, and taken out again.
    ///
    /// # Panics
    /// When one does not come or go by the deadline.
    pub async fn servers(&self, count: usize) {
        self.kernel.rewrite(&entries(count));
        let ids: Vec<_> = (0..count).map(|n| format!("more{n}")).collect();
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        self.known(1 + count).await;
        self.kernel.connected(&ids).await;
        self.kernel.rewrite(&entries(0));
        self.known(1).await;
    }

    /// What a day has beside that: calls of one client, lists, a search, what is refused, a server that crashes
    /// and is started again, and a look at the audit log.
    ///
    /// # Panics
    /// When one is refused that should not be, or the server is not back by the deadline.
    pub async fn day(&self, calls: usize) {
        let mut agent = ModernAgent::over_http(self.kernel.url(), "{}");
        for _ in 0..calls {
            let echo = agent.call("it__echo", json!({"text": "x".repeat(100)}));
            assert_eq!(echo.await.text().len(), 100);
        }
        agent.request("tools/list", json!({})).await.result();
        let find = json!({"query": "echo", "strategy": "keyword"});
        agent.call("mgp_tools_discover", find).await.result();
        assert!(agent.call("it__nothing", json!({})).await.is_error());
        self.crash(&mut agent).await;
        let audit = self.kernel.mgp(&["audit", "find", "--limit", "50"]).await;
        assert!(audit.status.success(), "{audit:?}");
    }

    /// A server that is added, crashes, is started again, and is taken out.
    async fn crash(&self, agent: &mut ModernAgent) {
        self.kernel.rewrite(&entries(1));
        self.kernel.connected(&["more0"]).await;
        agent.call("more0__crash", json!({})).await;
        wait_until("what crashed is back", DEADLINE, async || {
            let echo = agent.call("more0__echo", json!({"text": "back"})).await;
            !echo.is_error()
        })
        .await;
        self.kernel.rewrite(&entries(0));
        self.known(1).await;
    }

    async fn known(&self, count: usize) {
        let what = format!("{count} servers are known");
        wait_until(&what, DEADLINE, async || {
            let status = self.kernel.mgp_json(&["status"]).await;
            status["servers"].as_array().map(Vec::len) == Some(count)
        })
        .await;
    }
}

fn entries(more: usize) -> String {
    let fixture = Program::fixture(&[]);
    let mut entries = fixture.entry("it");
    for n in 0..more {
        let _ = write!(entries, "{}", fixture.entry(&format!("more{n}")));
    }
    entries
}

fn request(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}
