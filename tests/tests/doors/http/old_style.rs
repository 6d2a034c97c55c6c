//! HTTP+SSE of 2024-11-05, for clients that know nothing newer.

use http::StatusCode;
use mgp_tests::harness::http::events::Events;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, wait_until};
use serde_json::{Value, json};

use crate::scene::{self, request};

/// An old client: the stream it holds, and where it posts.
struct OldClient {
    events: Events,
    endpoint: HttpClient,
}

impl OldClient {
    async fn open(kernel: &Kernel, path: &str) -> Self {
        let base = kernel.url().strip_suffix("/mcp").unwrap();
        let stream = HttpClient::new(&format!("{base}{path}")).get(None).await;
        assert_eq!(stream.status, StatusCode::OK);
        assert!(stream.is_stream());
        let mut events = stream.events();
        let first = within("the endpoint", DEADLINE, events.next())
            .await
            .unwrap();
        assert_eq!(first.event.as_deref(), Some("endpoint"));
        let endpoint = HttpClient::new(&format!("{base}{}", first.data));
        Self { events, endpoint }
    }

    /// Says something; everything it leads to comes on the stream.
    async fn say(&self, frame: String) {
        let told = self.endpoint.post(frame).await;
        assert_eq!(told.status, StatusCode::ACCEPTED);
    }

    async fn hear(&mut self) -> Value {
        loop {
            let event = within("a message", DEADLINE, self.events.next())
                .await
                .unwrap();
            if !event.data.is_empty() {
                return serde_json::from_str(&event.data).unwrap();
            }
        }
    }

    async fn initialize(&mut self) -> Value {
        self.say(mgp_tests::harness::handshake::initialize(
            "2024-11-05",
            r#"{"roots":{}}"#,
        ))
        .await;
        let opened = self.hear().await;
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.into())
            .await;
        opened
    }
}

/// MCP-088: calls, progress, questions and news, at everything and at one server.
#[tokio::test]
async fn an_old_client_has_everything_on_its_one_stream() {
    let kernel = scene::kernel().await;
    for (path, name) in [("/sse", "it__echo"), ("/sse/it", "echo")] {
        let mut client = OldClient::open(&kernel, path).await;
        let opened = client.initialize().await;
        assert_eq!(opened["result"]["protocolVersion"], "2024-11-05");
        client.say(request("a", "tools/list", json!({}))).await;
        let list = client.hear().await;
        let tools = list["result"]["tools"].as_array().unwrap();
        assert!(tools.iter().any(|tool| tool["name"] == name), "{path}");
        client
            .say(scene::call(1, name, json!({"text": "é\n"})).replace(',', ",\n"))
            .await;
        assert_eq!(client.hear().await["result"]["content"][0]["text"], "é\n");
        client.say(scene::call(2, "ask_roots", json!({}))).await;
        let question = client.hear().await;
        assert_eq!(question["method"], "roots/list");
        let roots = json!({"roots": [{"uri": "file:///old"}]});
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": roots});
        client.say(answer.to_string()).await;
        assert_eq!(
            client.hear().await["result"]["content"][0]["text"],
            "file:///old"
        );
        client
            .say(scene::call(3, "test_trigger_tool_change", json!({})))
            .await;
        let news = [client.hear().await, client.hear().await];
        assert!(
            news.iter()
                .any(|m| m["method"] == "notifications/tools/list_changed"),
            "{news:?}"
        );
        assert!(news.iter().any(|m| m["id"] == 3), "{news:?}");
    }
}

/// The end of its stream is the end of the client: its endpoint is unknown from then on.
#[tokio::test]
async fn an_old_client_ends_with_its_stream() {
    let kernel = scene::kernel().await;
    let mut client = OldClient::open(&kernel, "/sse").await;
    client.initialize().await;
    let other = OldClient::open(&kernel, "/sse").await;
    let OldClient { events, endpoint } = client;
    drop(events);
    let gone = async || endpoint.post(request(1, "ping", json!({}))).await.status == 404;
    wait_until("its endpoint is unknown", DEADLINE, gone).await;
    other.say(request(1, "ping", json!({}))).await;
    let connections = async || kernel.mgp_json(&["status"]).await["connections"] == 1;
    wait_until("one old client is there", DEADLINE, connections).await;
}

/// An endpoint nobody was given, and one of a server nobody knows.
#[tokio::test]
async fn unknown_message_endpoint_is_404() {
    let kernel = scene::kernel().await;
    let base = kernel.url().strip_suffix("/mcp").unwrap();
    for query in [
        "",
        "?session=",
        "?session=11111111-2222-4333-8444-555555555555",
        "?x=1",
    ] {
        let client = HttpClient::new(&format!("{base}/sse/messages{query}"));
        let refused = client.post(request(1, "ping", json!({}))).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{query}");
    }
    let nobody = HttpClient::new(&format!("{base}/sse/nobody"));
    assert_eq!(nobody.get(None).await.status, StatusCode::NOT_FOUND);
}

/// An answer that cannot be read fails its question at once, and nothing is said under the id of the
/// question: the client may have a request of its own with that id.
#[tokio::test]
async fn a_malformed_answer_is_not_answered_under_its_id() {
    let kernel = scene::kernel().await;
    let mut client = OldClient::open(&kernel, "/sse").await;
    client.initialize().await;
    for (spoilt, status) in [
        (r#""result":{"roots":[]},"Error":null"#, 202),
        (r#""result":{"roots":[],}"#, 400),
    ] {
        client
            .say(scene::call("mine", "it__ask_roots", json!({})))
            .await;
        let question = client.hear().await;
        assert_eq!(question["method"], "roots/list");
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},{spoilt}}}"#, question["id"]);
        assert_eq!(client.endpoint.post(answer).await.status, status);
        let ended = client.hear().await;
        assert_eq!(ended["id"], "mine", "{ended}");
    }
    let session = scene::session(&kernel, scene::NEWEST).await;
    let answer = session
        .post(r#"{"jsonrpc":"2.0","id":1,"result":{},"Error":null}"#)
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let told: Value = serde_json::from_str(&answer.text().await).unwrap();
    assert_eq!(told["id"], Value::Null, "{told}");
}
