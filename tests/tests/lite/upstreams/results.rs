//! Results of a lite server, guarded.

use mgp_tests::harness::{Kernel, Need, Peers};
use serde_json::json;

use super::{LitePeer, NEWEST, legacy, modern};

const KEY: &str = "ghp_a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6g7H8";

/// EXT-187: over HTTP and over gRPC.
#[tokio::test]
async fn results_of_a_lite_server_are_masked() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    for peer in [
        LitePeer::http(&peers, &[]).await,
        LitePeer::grpc(&peers, &[]).await,
    ] {
        let keys = "[servers.results]\npatterns = [\"out of [a-z]+\", \"no such thing\"]\n";
        let kernel = Kernel::start(&peer.entry("shop", keys)).await;
        kernel.connected(&["shop"]).await;
        let mut agent = legacy(&kernel, "{}").await;
        let mut modern = modern(&kernel, "{}");
        let query = json!({"query": KEY});
        for answer in [
            agent.call("search_documents", query.clone()).await,
            modern.call("search_documents", query).await,
        ] {
            let frame = &answer.frame;
            assert!(
                !frame.contains(KEY) && frame.contains("[redacted:github]"),
                "{NEWEST} {}: {frame}",
                peer.transport
            );
        }
        let failed = agent.call("fails", json!({})).await.result();
        assert_eq!(failed["content"][0]["text"], "[redacted:pattern]");
        let refused = agent.call("refuses", json!({})).await.error();
        assert_eq!(refused["message"], "[redacted:pattern]");
    }
}
