//! The commands that are about servers, with one that speaks MCP-lite.

use mgp_tests::harness::{Kernel, Need, Peers};

use super::LitePeer;

/// `mgp servers add --transport lite` writes the entry and has it started; `info` says what is spoken, and an export
/// for a client leaves it out and says why.
#[tokio::test]
async fn a_lite_server_is_added_shown_and_not_exported() {
    let Some(peers) = Peers::find(&[Need::Python]) else {
        return;
    };
    let peer = LitePeer::http(&peers, &[]).await;
    let kernel = Kernel::start("").await;
    let url = peer.url();
    let add = [
        "servers",
        "add",
        "shop",
        "--transport",
        "lite",
        "--url",
        &url,
    ];
    let said = said(&kernel, &add).await;
    assert!(said.contains("added shop"), "{said}");
    kernel.connected(&["shop"]).await;
    let entry = std::fs::read_to_string(kernel.folder().join("mgp.toml")).unwrap();
    assert!(entry.contains("transport = \"lite\""), "{entry}");
    let info = self::said(&kernel, &["servers", "show", "shop"]).await;
    assert!(info.contains("MCP-lite"), "{info}");
    let called = self::said(&kernel, &["tools", "call", "shop:plain"]).await;
    assert!(called.contains("plain"), "{called}");
    let exported = self::said(&kernel, &["export"]).await;
    assert!(exported.contains("it speaks MCP-lite"), "{exported}");
    let misspelt = self::said(
        &kernel,
        &["servers", "add", "x", "--transport", "lit", "--url", &url],
    )
    .await;
    assert!(misspelt.contains("lite"), "{misspelt}");
}

async fn said(kernel: &Kernel, args: &[&str]) -> String {
    let output = kernel.mgp(args).await;
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
