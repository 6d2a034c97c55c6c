//! The end of a kernel whose calls hang.

use std::time::{Duration, Instant};

use mgp_tests::harness::http::SESSION;
use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Upstream};
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

/// CMCP-038: the standing stream of a remote server, of which nothing comes, holds up the end of the kernel for less than
/// a second.
#[tokio::test]
async fn an_open_stream_to_a_server_ends_at_once_with_the_kernel() {
    let upstream = Upstream::start(&["--era", "legacy"]).await;
    let mut took = Vec::new();
    while took.iter().all(|took| *took >= Duration::from_secs(1)) {
        assert!(took.len() < 3, "{took:?}");
        let kernel = Kernel::start(&remote_entry("far", &upstream.url())).await;
        kernel.connected(&["far"]).await;
        let begun = Instant::now();
        kernel.end(Signal::SIGTERM, DEADLINE).await;
        took.push(begun.elapsed());
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
