//! An agent that is a host, said line by line, so that it can say what no canned answer does.

use std::path::Path;
use std::time::Duration;

use mgp_tests::harness::DEADLINE;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

pub(crate) struct Host {
    lines: Lines<BufReader<OwnedReadHalf>>,
    to: OwnedWriteHalf,
}

impl Host {
    /// At the owner's socket.
    pub(crate) async fn at(socket: &Path) -> Self {
        let (from, to) = UnixStream::connect(socket).await.unwrap().into_split();
        let lines = BufReader::new(from).lines();
        let mut host = Self { lines, to };
        let mcpl = json!({"version": "0.4", "inferenceRequest": {"streaming": true}, "featureSets": true,
            "contextHooks": {"beforeInference": true}});
        let params = json!({"protocolVersion": "2025-06-18", "clientInfo": {"name": "host", "version": "1"},
            "capabilities": {"experimental": {"mcpl": mcpl}}});
        host.says(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}))
            .await;
        assert!(host.next().await["result"]["capabilities"]["experimental"]["mcpl"].is_object());
        host.says(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        host
    }

    pub(crate) async fn says(&mut self, frame: &Value) {
        let line = format!("{frame}\n");
        self.to.write_all(line.as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(DEADLINE, self.lines.next_line()).await;
        serde_json::from_str(&line.expect("in time").unwrap().unwrap()).unwrap()
    }

    /// The next request of this method: its id and params.
    pub(crate) async fn asked(&mut self, method: &str) -> (Value, Value) {
        loop {
            let mut frame = self.next().await;
            if frame["method"] == method {
                return (frame["id"].take(), frame["params"].take());
            }
        }
    }

    /// True when nothing of this method comes for a moment.
    pub(crate) async fn is_spared(&mut self, method: &str) -> bool {
        let moment = Duration::from_millis(100);
        let asked = tokio::time::timeout(moment, self.asked(method)).await;
        asked.is_err()
    }

    pub(crate) async fn chunk(&mut self, id: &Value, index: u64, delta: &str) {
        let params = json!({"requestId": id, "index": index, "delta": delta});
        self.says(&json!({"jsonrpc": "2.0", "method": "inference/chunk", "params": params}))
            .await;
    }

    pub(crate) async fn answers(&mut self, id: &Value, content: &str) {
        let result = json!({"content": content, "model": "theirs", "finishReason": "end_turn",
            "usage": {"inputTokens": 5, "outputTokens": 2}});
        self.says(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
            .await;
    }
}
