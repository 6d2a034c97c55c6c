//! Servers of MCP Apps, made with the SDK of the extension: system-monitor and basic-vanillajs of npm.

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::{Client, Kernel, Need, Peers};
use serde_json::{Value, json};

use super::both_ways::SPOKEN;

const HOST: &str =
    r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#;
const MIME: &str = "text/html;profile=mcp-app";

async fn tools(client: &mut Client) -> Vec<Value> {
    let list = client.request("tools/list", json!({})).await.result();
    list["tools"].as_array().unwrap().clone()
}

/// The URI of a tool's UI, which both forms name.
fn ui(tools: &[Value], name: &str) -> String {
    let tool = tools.iter().find(|tool| tool["name"] == name);
    let meta = &tool.unwrap_or_else(|| panic!("{name} in {tools:?}"))["_meta"];
    assert_eq!(meta["ui/resourceUri"], meta["ui"]["resourceUri"]);
    meta["ui"]["resourceUri"].as_str().unwrap().to_owned()
}

/// EXT-020, EXT-021, EXT-022, EXT-024, EXT-025: at both endpoints and in both protocol families a host sees the UI of a
/// tool, reads the page to the byte, calls the tool, and at the endpoint of the server calls what is only for the app.
#[tokio::test]
async fn host_renders_real_apps_through_the_kernel() {
    let Some(peers) = Peers::find(&[Need::Apps]) else {
        return;
    };
    let servers = [("monitor", "system-monitor"), ("clock", "basic-vanillajs")];
    let entries = servers.map(|(id, name)| peers.app_server(name).entry(id));
    let kernel = Kernel::start(&entries.concat()).await;
    kernel.connected(&["monitor", "clock"]).await;
    for version in [SPOKEN, MODERN] {
        let mut merged = Client::over_http(kernel.url(), version, HOST).await;
        let mut monitor = Client::over_http(&kernel.server_url("monitor"), version, HOST).await;
        let all = tools(&mut merged).await;
        let own = tools(&mut monitor).await;
        assert_eq!(all.len(), 2, "{all:?}");
        let apps = [
            (true, ui(&all, "monitor__get-system-info"), "system-monitor"),
            (true, ui(&all, "clock__get-time"), "basic-vanillajs"),
            (false, ui(&own, "get-system-info"), "system-monitor"),
        ];
        for (is_merged, uri, server) in apps {
            let client = if is_merged { &mut merged } else { &mut monitor };
            let read = client.request("resources/read", json!({"uri": uri})).await;
            let contents = &read.result()["contents"][0];
            let page = std::fs::read_to_string(peers.app_page(server)).unwrap();
            assert_eq!(
                (&contents["uri"], &contents["mimeType"]),
                (&json!(uri), &json!(MIME))
            );
            assert!(
                contents["text"].as_str() == Some(&page),
                "{server} {version}"
            );
        }
        assert_eq!(
            ui(&all, "clock__get-time"),
            "ui://clock/get-time/mcp-app.html"
        );
        assert_eq!(
            ui(&own, "get-system-info"),
            "ui://system-monitor/mcp-app.html"
        );
        let told = merged.call("clock__get-time", json!({})).await.result();
        assert!(told["structuredContent"]["time"].is_string(), "{told}");
        let polled = monitor.call("poll-system-stats", json!({})).await.result();
        assert!(
            polled["structuredContent"]["uptime"]["seconds"].is_number(),
            "{polled}"
        );
        let unknown = merged.call("monitor__poll-system-stats", json!({})).await;
        assert_eq!(unknown.code(), -32602);
    }
}
