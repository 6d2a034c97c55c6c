use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use tokio::time::timeout;

use super::serve;

/// Longest wait for a line.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// A client at the other end of a pipe.
struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    output: WriteHalf<DuplexStream>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Client {
    /// Serves `root`, before the handshake.
    fn at(root: &Path) -> Self {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (input, output) = tokio::io::split(theirs);
        let server = tokio::spawn(serve(input, output, root.canonicalize().unwrap()));
        let (lines, output) = tokio::io::split(ours);
        Self {
            lines: BufReader::new(lines).lines(),
            output,
            server,
        }
    }

    /// Connects with this version and these capabilities.
    async fn connect(root: &Path, version: &str, capabilities: Value) -> Self {
        let mut client = Self::at(root);
        let params = json!({"protocolVersion": version, "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"}});
        let answer = client.request(json!("hello"), "initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], version);
        client
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        client
    }

    async fn send(&mut self, message: &Value) {
        self.output
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn receive(&mut self) -> Value {
        let line = timeout(LINE_TIMEOUT, self.lines.next_line())
            .await
            .expect("a line in time");
        serde_json::from_str(&line.unwrap().expect("a line before the end")).unwrap()
    }

    async fn ask(&mut self, id: Value, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
    }

    async fn request(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.ask(id.clone(), method, params).await;
        let answer = self.receive().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.request(json!(7), "tools/call", params).await["result"].take()
    }

    /// Closes the input; the server must end successfully without further output.
    async fn close(mut self) {
        self.output.shutdown().await.unwrap();
        let ended = timeout(LINE_TIMEOUT, self.server)
            .await
            .expect("an end in time");
        ended.unwrap().unwrap();
        assert_eq!(self.lines.next_line().await.unwrap(), None);
    }
}

fn crate_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

const LATEST: &str = "2025-11-25";

#[tokio::test]
async fn every_legacy_version_is_served_with_its_members() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", LATEST] {
        let mut client = Client::connect(&crate_folder(), version, json!({})).await;
        let tools = client.request(json!(1), "tools/list", json!({})).await;
        let tools = tools["result"]["tools"].as_array().unwrap();
        let names: Vec<_> = tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["time", "search_text", "slow_job", "ask_me"]);
        let has = |key: &str| tools.iter().any(|tool| tool.get(key).is_some());
        assert_eq!(has("annotations"), version >= "2025-03-26");
        assert_eq!(
            (has("title"), has("outputSchema")),
            (version >= "2025-06-18", version >= "2025-06-18")
        );
        let time = client.call("time", json!({})).await;
        assert_eq!(
            time.get("structuredContent").is_some(),
            version >= "2025-06-18"
        );
        client.close().await;
    }
}

#[tokio::test]
async fn only_pings_are_answered_before_initialize() {
    let mut client = Client::at(&crate_folder());
    assert_eq!(
        client.request(json!(1), "ping", json!({})).await["result"],
        json!({})
    );
    let answer = client.request(json!(2), "tools/list", json!({})).await;
    assert_eq!(answer["error"]["code"], -32600);
    let unknown = json!({"protocolVersion": "2026-07-28", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    let answer = client.request(json!(3), "initialize", unknown).await;
    assert_eq!(answer["result"]["protocolVersion"], LATEST);
    let answer = client.request(json!(4), "server/discover", json!({})).await;
    assert_eq!(answer["error"]["code"], -32601);
    client.output.write_all(b"{nonsense\n").await.unwrap();
    assert_eq!(client.receive().await["error"]["code"], -32700);
    client.close().await;
}

#[tokio::test]
async fn the_time_is_returned_at_an_offset() {
    let mut client = Client::connect(&crate_folder(), LATEST, json!({})).await;
    let told = client.call("time", json!({"utc_offset": "+05:30"})).await;
    let structured = &told["structuredContent"];
    assert!(
        structured["time"].as_str().unwrap().ends_with("+05:30"),
        "{told}"
    );
    assert!(structured["unix_seconds"].as_i64().unwrap() > 1_700_000_000);
    let text: Value = serde_json::from_str(told["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(&text, structured);
    let wrong = client.call("time", json!({"utc_offset": "noon"})).await;
    assert_eq!(wrong["isError"], true);
    let wrong = client.call("time", json!({"zone": "x"})).await;
    assert!(
        wrong["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("`zone`"),
        "{wrong}"
    );
    client.close().await;
}

#[tokio::test]
async fn text_is_found_only_below_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let write = |path: &Path, text: &[u8]| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(&root.join("a.txt"), b"first\nNeedle here\n");
    write(&root.join("sub/b.txt"), b"needle\n");
    write(&root.join("binary"), b"needle\0");
    write(&root.join(".hidden"), b"needle\n");
    write(&folder.path().join("outside.txt"), b"needle\n");
    std::os::unix::fs::symlink(folder.path(), root.join("out")).unwrap();

    let mut client = Client::connect(&root, LATEST, json!({})).await;
    let found = client
        .call(
            "search_text",
            json!({"pattern": "needle", "ignore_case": true}),
        )
        .await;
    let want = json!({"matches": [
        {"file": "a.txt", "line": 2, "text": "Needle here"},
        {"file": "sub/b.txt", "line": 1, "text": "needle"},
    ], "files_searched": 2, "complete": true});
    assert_eq!(found["structuredContent"], want);
    let one = json!({"pattern": "e", "max_results": 1});
    let found = client.call("search_text", one).await;
    assert_eq!(found["structuredContent"]["complete"], false);
    for outside in ["..", "/", "out", "sub/../.."] {
        let refused = client
            .call(
                "search_text",
                json!({"pattern": "needle", "folder": outside}),
            )
            .await;
        assert_eq!(refused["isError"], true, "{outside}: {refused}");
    }
    client.close().await;
}

#[tokio::test]
async fn a_slow_job_reports_progress() {
    let mut client = Client::connect(&crate_folder(), LATEST, json!({})).await;
    let params = json!({"name": "slow_job", "arguments": {"steps": 2, "step_ms": 0},
        "_meta": {"progressToken": "t"}});
    client.ask(json!(1), "tools/call", params).await;
    for step in 1..=2 {
        let progress = client.receive().await;
        assert_eq!(progress["method"], "notifications/progress");
        let told = &progress["params"];
        assert_eq!(
            (&told["progressToken"], &told["progress"], &told["total"]),
            (&json!("t"), &json!(step), &json!(2))
        );
    }
    assert_eq!(
        client.receive().await["result"]["content"][0]["text"],
        "2 steps done"
    );
    client.close().await;
}

#[tokio::test]
async fn a_cancelled_call_is_not_answered() {
    let mut client = Client::connect(&crate_folder(), LATEST, json!({})).await;
    let params = json!({"name": "slow_job", "arguments": {"steps": 1000, "step_ms": 60_000}});
    client.ask(json!(1), "tools/call", params).await;
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})).await;
    assert_eq!(
        client.request(json!(2), "ping", json!({})).await["result"],
        json!({})
    );
    client.close().await;
}

#[tokio::test]
async fn calls_beyond_the_limit_are_rejected() {
    let mut client = Client::connect(&crate_folder(), LATEST, json!({})).await;
    let slow = json!({"name": "slow_job", "arguments": {"steps": 1, "step_ms": 60_000}});
    for id in 100..164 {
        client.ask(json!(id), "tools/call", slow.clone()).await;
    }
    let refused = client.request(json!("one more"), "tools/call", slow).await;
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("64 calls"),
        "{refused}"
    );
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 100}})).await;
    assert!(client.call("time", json!({})).await["structuredContent"].is_object());
    client.close().await;
}

/// The queue of a client is bounded; beyond it the client is disconnected.
#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let mut client = Client::at(&crate_folder());
    for id in 0..10_000 {
        client.ask(json!(id), "ping", json!({})).await;
    }
    let mut heard = 0;
    while timeout(LINE_TIMEOUT, client.lines.next_line())
        .await
        .expect("an end in time")
        .unwrap()
        .is_some()
    {
        heard += 1;
    }
    assert!((1024..10_000).contains(&heard), "{heard}");
    client.close().await;
}

#[tokio::test]
async fn the_user_is_asked_if_the_client_supports_it() {
    let mut client = Client::connect(&crate_folder(), LATEST, json!({"elicitation": {}})).await;
    client
        .ask(json!(1), "tools/call", json!({"name": "ask_me"}))
        .await;
    let question = client.receive().await;
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(
        question["params"]["requestedSchema"]["required"],
        json!(["name"])
    );
    let content = json!({"name": "Ada", "colour": "blue"});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": content}})).await;
    assert_eq!(
        client.receive().await["result"]["content"][0]["text"],
        "Hello Ada, who likes blue."
    );

    client
        .ask(json!(2), "tools/call", json!({"name": "ask_me"}))
        .await;
    let question = client.receive().await;
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})).await;
    let taken_back = client.receive().await;
    assert_eq!(taken_back["method"], "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    client.close().await;

    let mut deaf = Client::connect(&crate_folder(), LATEST, json!({})).await;
    let said = deaf.call("ask_me", json!({})).await;
    assert!(
        said["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("cannot be asked"),
        "{said}"
    );
    deaf.close().await;
}

#[tokio::test]
async fn resources_templates_prompts_and_completion_are_served() {
    let mut client = Client::connect(&crate_folder(), LATEST, json!({})).await;
    let list = client.request(json!(1), "resources/list", json!({})).await;
    let uri = list["result"]["resources"][0]["uri"].clone();
    let read = client
        .request(json!(2), "resources/read", json!({"uri": uri}))
        .await;
    assert!(
        read["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("# The demo server")
    );
    let templates = client
        .request(json!(3), "resources/templates/list", json!({}))
        .await;
    assert_eq!(
        templates["result"]["resourceTemplates"][0]["uriTemplate"],
        "demo://greeting/{name}"
    );
    let read = client
        .request(
            json!(4),
            "resources/read",
            json!({"uri": "demo://greeting/Ada%20L"}),
        )
        .await;
    assert_eq!(read["result"]["contents"][0]["text"], "Hello Ada L.");
    for missing in ["demo://nothing", "demo://greeting/%zz"] {
        let read = client
            .request(json!(5), "resources/read", json!({"uri": missing}))
            .await;
        assert_eq!(
            (&read["error"]["code"], &read["error"]["data"]["uri"]),
            (&json!(-32002), &json!(missing))
        );
    }
    let prompt = json!({"name": "explain", "arguments": {"topic": "kernels"}});
    let got = client.request(json!(6), "prompts/get", prompt).await;
    assert!(
        got["result"]["messages"][0]["content"]["text"]
            .as_str()
            .unwrap()
            .contains("kernels")
    );
    let missing = client
        .request(json!(7), "prompts/get", json!({"name": "explain"}))
        .await;
    assert_eq!(missing["error"]["code"], -32602);
    let half = json!({"ref": {"type": "ref/prompt", "name": "explain"}, "argument": {"name": "topic", "value": "S"}});
    let completed = client.request(json!(8), "completion/complete", half).await;
    assert_eq!(
        completed["result"]["completion"]["values"],
        json!(["servers"])
    );
    client.close().await;
}
