//! A collector of OpenTelemetry in Python, which reads what it is told with the messages of opentelemetry-proto.

use http::Method;
use mgp_tests::harness::{DEADLINE, HttpClient, Peers, Process, wait_until};
use serde_json::Value;

/// What waits is told at once.
const SOON: &str = "[tuning.telemetry]\ninterval_ms = 20\nmetrics_interval_secs = 1\n";

/// A running collector.
pub(crate) struct Collector {
    _process: Process,
    /// Its address.
    pub(crate) url: String,
    /// The address of its services of gRPC.
    grpc: String,
}

impl Collector {
    pub(crate) async fn start(peers: &Peers) -> Self {
        let mut process = Process::start("collector", &peers.collector());
        let addresses = |said: &str| {
            let line = said.lines().next()?.strip_prefix("collecting at ")?;
            let (url, grpc) = line.split_once(" and ")?;
            Some((url.to_owned(), grpc.to_owned()))
        };
        let (url, grpc) = process.says("its addresses", DEADLINE, addresses).await;
        Self {
            _process: process,
            url,
            grpc,
        }
    }

    /// The section that names it, with more keys.
    pub(crate) fn section(&self, more: &str) -> String {
        self.named(&format!("{more}\n{SOON}"))
    }

    /// The same, over gRPC.
    pub(crate) fn grpc_section(&self, more: &str) -> String {
        let endpoint = &self.grpc;
        format!("[telemetry]\nprotocol = \"grpc\"\nendpoint = \"{endpoint}\"\n{more}\n{SOON}")
    }

    /// The section that names it, with these keys alone.
    pub(crate) fn named(&self, keys: &str) -> String {
        format!("[telemetry]\nendpoint = \"{}\"\n{keys}\n", self.url)
    }

    /// What it was told so far; nothing of it was wrong.
    pub(crate) async fn told(&self) -> Value {
        let client = HttpClient::new(&format!("{}/told", self.url));
        let told = client.send(Method::GET, "").await.unwrap().text().await;
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(
            told["bad"].as_array().map(Vec::len),
            Some(0),
            "{}",
            told["bad"]
        );
        told
    }

    /// From now on it answers so.
    pub(crate) async fn answers(&self, how: Value) {
        let client = HttpClient::new(&format!("{}/answers", self.url));
        client.send(Method::PUT, how.to_string()).await.unwrap();
    }

    /// Waits until what it was told satisfies this.
    pub(crate) async fn is_told(&self, what: &str, there: impl Fn(&Value) -> bool) -> Value {
        let mut told = Value::Null;
        wait_until(what, DEADLINE, async || {
            told = self.told().await;
            there(&told)
        })
        .await;
        told
    }
}
