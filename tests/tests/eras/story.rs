//! One story for a client and a server of any version: everything a call can bring about.

use mgp_tests::harness::envelope::{SERVER_INFO, TASKS};
use mgp_tests::harness::{Client, DEADLINE, wait_until};
use serde_json::{Value, json};

use crate::versions::Version;

/// A client at a server whose tools have this prefix.
pub(crate) struct Story<'a> {
    /// The client.
    pub(crate) client: &'a mut Client,
    /// What the names of tools begin with: nothing where one server is shown alone.
    pub(crate) prefix: &'a str,
    /// The version of the client.
    pub(crate) of_client: Version,
    /// The version of the server.
    pub(crate) of_server: Version,
}

impl Story<'_> {
    /// All of it.
    pub(crate) async fn tell(&mut self) {
        self.lists().await;
        self.results().await;
        self.errors().await;
        self.sampling().await;
        self.roots().await;
        self.elicitation().await;
        self.logs().await;
        self.progress().await;
        self.cancelling().await;
        self.news().await;
        self.tasks().await;
    }

    fn tool(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> mgp_tests::harness::Answer {
        let tool = self.tool(tool);
        self.client.call(&tool, arguments).await
    }

    /// A result has what its client's version wants around it, and nothing that it does not know.
    fn is_of_its_version(&self, result: &Value, cached: bool) {
        let modern = self.of_client.is_modern();
        let there = |key: &str| result.get(key).is_some();
        assert_eq!(there("resultType"), modern, "{result}");
        assert_eq!(there("ttlMs"), modern && cached, "{result}");
        assert_eq!(there("cacheScope"), modern && cached, "{result}");
        let served = !result["_meta"][SERVER_INFO].is_null();
        assert!(modern || !served, "{result}");
    }

    async fn lists(&mut self) {
        for (method, key) in [
            ("tools/list", "tools"),
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ] {
            let list = self.client.request(method, json!({})).await.result();
            self.is_of_its_version(&list, true);
            assert!(!list[key].as_array().unwrap().is_empty(), "{method}");
        }
        if self.of_client.is_modern() {
            let told = self.client.request("server/discover", json!({})).await;
            let told = told.result();
            self.is_of_its_version(&told, true);
            assert_eq!(told["supportedVersions"], json!([self.of_client.name]));
            assert!(told["capabilities"]["tools"].is_object());
        }
    }

    async fn results(&mut self) {
        let echo = self.call("echo", json!({"text": "as it is"})).await;
        assert_eq!(echo.text(), "as it is");
        self.is_of_its_version(&echo.result(), false);
        let structured = self.call("structured_echo", json!({"text": "x"})).await;
        if self.of_client.structured {
            let content = structured.result()["structuredContent"].take();
            assert_eq!(content, json!({"text": "x"}));
        }
        let read = json!({"uri": self.resource().await});
        let read = self.client.request("resources/read", read).await.result();
        self.is_of_its_version(&read, true);
        let name = self.tool("test_simple_prompt");
        let prompt = json!({"name": name});
        let prompt = self.client.request("prompts/get", prompt).await.result();
        self.is_of_its_version(&prompt, false);
    }

    /// Where two servers offer the same resource, it is listed under an address of the kernel's own.
    async fn resource(&mut self) -> Value {
        let list = self.client.request("resources/list", json!({})).await;
        let list = list.result();
        let own = |uri: &str| uri.contains("static-text") && !uri.contains("far");
        let all = list["resources"].as_array().unwrap().iter();
        let mut uris = all.filter_map(|resource| resource["uri"].as_str());
        uris.find(|uri| own(uri)).unwrap().into()
    }

    async fn errors(&mut self) {
        let unknown = self.call("nobody", json!({})).await;
        assert_eq!(unknown.code(), -32602);
        let uri = "test://nowhere";
        let unknown = self.client.request("resources/read", json!({"uri": uri}));
        let unknown = unknown.await;
        assert_eq!(unknown.code(), self.of_client.not_found);
        assert_eq!(unknown.error()["data"]["uri"], uri);
    }

    /// Every version knows completions.
    async fn sampling(&mut self) {
        let content = json!({"type": "text", "text": "four"});
        let answer = json!({"role": "assistant", "content": content, "model": "m"});
        self.client.answers("sampling/createMessage", answer);
        let before = self.client.asked().len();
        let told = self.call("test_sampling", json!({"prompt": "2+2"})).await;
        assert_eq!(told.text(), "LLM response: four");
        let asked = &self.client.asked()[before..];
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0]["params"]["messages"][0]["content"]["text"], "2+2");
    }

    /// Every version knows roots.
    async fn roots(&mut self) {
        let root = json!({"uri": "file:///home/me", "name": "home"});
        self.client.answers("roots/list", json!({"roots": [root]}));
        let seen = self.call("ask_roots", json!({})).await;
        assert_eq!(seen.text(), "file:///home/me");
    }

    /// A form reaches a client that knows forms, from a server that does; a client that does not is
    /// not asked, and its call ends as an error.
    async fn elicitation(&mut self) {
        let answer = json!({"action": "accept", "content": {"username": "ada"}});
        self.client.answers("elicitation/create", answer);
        let before = self.client.asked().len();
        if !self.of_server.elicitation {
            return;
        }
        let told = self.call("test_elicitation", json!({"message": "Who?"}));
        let told = told.await;
        let asked = &self.client.asked()[before..];
        if !self.of_client.elicitation {
            assert!(asked.is_empty());
            assert!(told.is_error() || told.result()["isError"] == true);
            return;
        }
        assert!(told.text().contains("action=accept"), "{}", told.frame);
        assert!(told.text().contains("ada"), "{}", told.frame);
        assert_eq!(asked.len(), 1);
        let message = asked[0]["params"]["message"].as_str().unwrap();
        assert!(message.ends_with("Who?"), "{message}");
    }

    /// Log messages of the level a client wants reach it before the answer, and those below do not.
    async fn logs(&mut self) {
        self.client.forget();
        self.client.wants_logs("debug").await;
        self.call("test_tool_with_logging", json!({}))
            .await
            .result();
        self.client.hears("notifications/message").await;
        self.client.wants_logs("emergency").await;
        self.client.forget();
        self.call("test_tool_with_logging", json!({}))
            .await
            .result();
        assert_eq!(
            self.client.heard("notifications/message"),
            [&Value::Null; 0]
        );
    }

    async fn progress(&mut self) {
        self.client.forget();
        let meta = json!({"progressToken": "mine"});
        let arguments = json!({"steps": 4, "ms": 2});
        let name = self.tool("progress");
        let params = json!({"name": name, "arguments": arguments, "_meta": meta});
        let done = self.client.request("tools/call", params).await;
        assert_eq!(done.text(), "4 steps");
        let heard = self.client.heard("notifications/progress");
        let heard: Vec<&Value> = heard.into_iter().map(|p| &p["params"]).collect();
        assert!(heard.iter().all(|p| p["progressToken"] == "mine"));
        let steps: Vec<u64> = heard
            .iter()
            .filter_map(|p| p["progress"].as_u64())
            .collect();
        assert_eq!(steps, [1, 2, 3, 4]);
    }

    async fn count(&mut self, kind: &str) -> u64 {
        let counts = self.call("count", json!({})).await.result();
        counts["structuredContent"][kind]["slow"]
            .as_u64()
            .unwrap_or(0)
    }

    /// What a client takes back ends at the server.
    async fn cancelling(&mut self) {
        let (called, cancelled) = (self.count("calls").await, self.count("cancelled").await);
        let params = json!({"name": self.tool("slow"), "arguments": {"ms": 60_000}});
        let id = self.client.start("tools/call", params).await;
        wait_until("the call is there", DEADLINE, async || {
            self.count("calls").await == called + 1
        })
        .await;
        self.client.cancel(&id).await;
        wait_until("the server gives up", DEADLINE, async || {
            self.count("cancelled").await == cancelled + 1
        })
        .await;
    }

    /// A list that changes is told of to a client that wants to hear it.
    async fn news(&mut self) {
        self.client.wants_news_of_tools().await;
        self.client.forget();
        self.call("test_trigger_tool_change", json!({}))
            .await
            .result();
        self.client.hears("notifications/tools/list_changed").await;
    }

    /// Where calls can become tasks, the kernel says so: it makes them where a server does not.
    async fn tasks(&mut self) {
        if self.of_client.is_modern() {
            let told = self.client.request("server/discover", json!({})).await;
            let extensions = told.result()["capabilities"]["extensions"].take();
            assert!(extensions[TASKS].is_object(), "{extensions}");
        }
    }
}
