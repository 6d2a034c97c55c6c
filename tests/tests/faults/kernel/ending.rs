//! The end of a kernel whose calls hang.

use std::time::{Duration, Instant};

use mgp_tests::harness::http::SESSION;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::scene::{NEWEST, begin, in_flight, owner, server};

/// Two seconds for the kernel, and one for a busy machine; one run in three is enough, and each has an end.
const IN_TIME: Duration = Duration::from_secs(3);

/// CMCP-057: a kernel that is told to end does so within two seconds, whatever hangs: calls at servers
/// that never answer, a server that ignores its end, one that is still starting, open streams, and
/// calls that wait for a person.
#[tokio::test]
async fn a_kernel_ends_in_time_whatever_hangs() {
    let mut took = Vec::new();
    while took.iter().all(|took| *took >= IN_TIME) {
        assert!(took.len() < 3, "{took:?}");
        took.push(ended().await);
    }
}

/// How long a kernel took to end in which much hangs.
async fn ended() -> Duration {
    let servers = [
        server("it", &[], ""),
        server("deaf", &["--ignore-term"], ""),
        server("late", &["--hang-at-initialize", "--ignore-term"], ""),
        server(
            "wary",
            &[],
            "[servers.tools.echo]\nrisk_level = \"dangerous\"",
        ),
    ];
    let kernel = Kernel::start(&servers.concat()).await;
    kernel.connected(&["it", "deaf", "wary"]).await;
    let mut agent = owner(&kernel).await;
    for tool in ["it__hang", "deaf__hang", "wary__echo"] {
        begin(&mut agent, tool, json!({})).await;
    }
    in_flight(&mut agent, "it", 1).await;
    in_flight(&mut agent, "deaf", 1).await;
    let mut client = HttpClient::new(kernel.url());
    client.open_session(NEWEST, "{}").await;
    assert!(client.headers.contains_key(SESSION));
    let standing = client.get(None).await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "it__hang", "arguments": {}}});
    let streamed = client.post(call.to_string()).await;
    assert!(standing.is_stream() && streamed.is_stream());
    let begun = Instant::now();
    kernel.end(Signal::SIGTERM, DEADLINE).await;
    begun.elapsed()
}
