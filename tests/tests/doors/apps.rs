//! MCP Apps (SEP-1865): what hosts see of apps, and who sees the tools that are only for apps.

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::{Client, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::NEWEST;

const HOST: &str =
    r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#;
const VERSIONS: [&str; 2] = [NEWEST, MODERN];
const PAGE: &str = "<!DOCTYPE html><a href=\"ui://board/other.html\">\u{e9}\u{2028}</a>";

fn page() -> Value {
    json!({
        "uri": "ui://board/view.html", "mimeType": "text/html;profile=mcp-app", "text": PAGE,
        "_meta": {"ui": {"csp": {"connectDomains": ["https://api.example"], "frameDomains": []},
            "permissions": {"clipboardWrite": {}}, "domain": "a.example", "prefersBorder": true}},
    })
}

/// A scripted server with a UI: a tool that shows it, one of the Apps SDK, and one that is only for the app.
fn program(flags: &[&str]) -> Program {
    let uri = "ui://board/view.html";
    let tool = |name: &str, meta: Value| {
        json!({"name": name, "description": "draws a board", "inputSchema": {"type": "object"}, "_meta": meta})
            .to_string()
    };
    let show = tool(
        "show",
        json!({"ui": {"resourceUri": uri}, "ui/resourceUri": uri}),
    );
    let widget = tool("widget", json!({"openai/outputTemplate": uri}));
    let refresh = tool(
        "refresh",
        json!({"ui": {"resourceUri": uri, "visibility": ["app"]}}),
    );
    let results = json!({
        "widget": {"content": [
            {"type": "resource_link", "uri": "ui://board/data", "name": "d"},
            {"type": "resource", "resource": {"uri": "ui://board/embedded", "mimeType": "text/html", "text": PAGE}}]},
    });
    Program::fixture(&["--bare"])
        .args(flags)
        .args(&["--tool", &show, "--tool", &widget, "--tool", &refresh])
        .args(&["--results", &results.to_string()])
        .args(&["--resource", &page().to_string()])
}

async fn start(config: &str) -> Kernel {
    let entry = |id| program(&[]).entry(id);
    let kernel = Kernel::start(&format!("{config}{}{}", entry("one"), entry("two"))).await;
    kernel.connected(&["one", "two"]).await;
    kernel
}

async fn tools(client: &mut Client) -> Vec<Value> {
    let list = client.request("tools/list", json!({})).await.result();
    list["tools"].as_array().unwrap().clone()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

fn find<'a>(tools: &'a [Value], name: &str) -> &'a Value {
    let found = tools.iter().find(|tool| tool["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {:?}", names(tools)))
}

/// EXT-020, EXT-021, EXT-022, EXT-028: of two servers with the same `ui://` URIs each has its own at the merged endpoint, in
/// all forms of tools, in lists and in results; the page and its metadata arrive to the byte.
#[tokio::test]
async fn apps_of_two_servers_stay_apart_at_the_merged_endpoint() {
    let kernel = start("").await;
    for version in VERSIONS {
        let mut host = Client::over_http(kernel.url(), version, HOST).await;
        let listed = tools(&mut host).await;
        for server in ["one", "two"] {
            let uri = format!("ui://{server}/board/view.html");
            let show = &find(&listed, &format!("{server}__show"))["_meta"];
            assert_eq!(
                show,
                &json!({"ui": {"resourceUri": uri}, "ui/resourceUri": uri})
            );
            let widget = &find(&listed, &format!("{server}__widget"))["_meta"];
            assert_eq!(widget["openai/outputTemplate"], uri);
            let list = host.request("resources/list", json!({})).await.result();
            let entries = list["resources"].as_array().unwrap();
            assert!(entries.iter().any(|entry| entry["uri"] == uri), "{list}");
            let read = host
                .request("resources/read", json!({"uri": uri}))
                .await
                .result();
            let mut expected = page();
            expected["uri"] = json!(uri);
            assert_eq!(read["contents"], json!([expected]), "{version}");
            let result = host
                .call(&format!("{server}__widget"), json!({}))
                .await
                .result();
            let content = &result["content"];
            assert_eq!(content[0]["uri"], format!("ui://{server}/board/data"));
            let embedded = &content[1]["resource"];
            assert_eq!(embedded["uri"], format!("ui://{server}/board/embedded"));
            assert_eq!(embedded["text"], PAGE);
        }
        for unknown in ["ui://board/view.html", "ui://three/board/view.html"] {
            let refused = host
                .request("resources/read", json!({"uri": unknown}))
                .await;
            assert!([-32002, -32602].contains(&refused.code()), "{unknown}");
        }
        let mut own = Client::over_http(&kernel.server_url("one"), version, HOST).await;
        let listed = tools(&mut own).await;
        let uri = "ui://board/view.html";
        assert_eq!(find(&listed, "show")["_meta"]["ui"]["resourceUri"], uri);
        let read = own
            .request("resources/read", json!({"uri": uri}))
            .await
            .result();
        assert_eq!(read["contents"], json!([page()]), "{version}");
        let result = own.call("widget", json!({})).await.result();
        assert_eq!(result["content"][0]["uri"], "ui://board/data");
    }
}

/// EXT-029: an app reads what it knows by its server's own URI, where one server has it, and no server answers for another
/// one that is unavailable.
#[tokio::test]
async fn own_uri_of_an_app_is_readable_if_it_is_unique() {
    let entry = program(&[]).entry("one");
    let late = Program::fixture(&["--hang-at-initialize"]).entry("board");
    let kernel = Kernel::start(&entry).await;
    kernel.connected(&["one"]).await;
    let mut host = Client::over_http(kernel.url(), MODERN, HOST).await;
    let uri = json!({"uri": "ui://board/view.html"});
    let read = host.request("resources/read", uri.clone()).await.result();
    assert_eq!(read["contents"], json!([page()]));
    kernel.rewrite(&(entry + &late + "autostart = false\n"));
    wait_until("the server board is known", DEADLINE, async || {
        let read = host.request("resources/read", uri.clone()).await;
        read.is_error()
    })
    .await;
}

/// EXT-023, EXT-024, EXT-025: a tool that is only for apps exists at the endpoint of its server, for clients with apps; for
/// others, for models that search, and at the merged endpoint it does not.
#[tokio::test]
async fn app_only_tool_exists_only_for_apps_of_its_server() {
    let kernel = start("").await;
    for version in VERSIONS {
        for (capabilities, is_host) in [(HOST, true), ("{}", false)] {
            let mut own = Client::over_http(&kernel.server_url("one"), version, capabilities).await;
            let listed = tools(&mut own).await;
            assert_eq!(names(&listed).contains(&"refresh"), is_host, "{version}");
            let called = own.call("refresh", json!({})).await;
            let unknown = own.call("refrest", json!({})).await;
            assert_eq!(called.is_error(), !is_host);
            if !is_host {
                let same = called.error().to_string().replace("refresh", "refrest");
                assert_eq!(same, unknown.error().to_string());
            }
            let through = json!({"name": "refresh", "arguments": {}});
            assert!(own.call("mgp_tools_call", through).await.is_error());
            let mut merged = Client::over_http(kernel.url(), version, capabilities).await;
            let listed = tools(&mut merged).await;
            assert!(!names(&listed).contains(&"one__refresh"), "{version}");
            for name in ["one__refresh", "one:refresh", "refresh"] {
                assert_eq!(merged.call(name, json!({})).await.code(), -32602, "{name}");
            }
            let find = json!({"query": "draws a board refresh", "max_results": 20});
            let found = merged.call("mgp_tools_discover", find).await.text();
            assert!(
                found.contains("one__show") && !found.contains("refresh"),
                "{found}"
            );
        }
    }
}

/// EXT-025: an operator allows the tools of a server's apps at the merged endpoint.
#[tokio::test]
async fn operator_allows_app_only_tools_at_the_merged_endpoint() {
    let entry = program(&[]).entry("one") + "merged_app_tools = true\n";
    let kernel = Kernel::start(&(entry + &program(&[]).entry("two"))).await;
    kernel.connected(&["one", "two"]).await;
    for version in VERSIONS {
        for (capabilities, is_host) in [(HOST, true), ("{}", false)] {
            let mut merged = Client::over_http(kernel.url(), version, capabilities).await;
            let listed = tools(&mut merged).await;
            assert_eq!(names(&listed).contains(&"one__refresh"), is_host);
            assert!(!names(&listed).contains(&"two__refresh"));
            assert_eq!(
                merged.call("one__refresh", json!({})).await.is_error(),
                !is_host
            );
            let through = json!({"name": "one__refresh", "arguments": {}});
            assert!(merged.call("mgp_tools_call", through).await.is_error());
        }
    }
}

/// EXT-027: a host has the definitions of tools with a UI whatever else is listed; other clients find them.
#[tokio::test]
async fn tools_with_a_ui_stay_listed_for_hosts() {
    let kernel = start("[discovery]\nexposure = \"discovery\"\n").await;
    for version in VERSIONS {
        let mut host = Client::over_http(kernel.url(), version, HOST).await;
        let listed = tools(&mut host).await;
        let listed: Vec<_> = names(&listed)
            .into_iter()
            .filter(|name| !name.starts_with("mgp"))
            .collect();
        assert_eq!(
            listed,
            ["one__show", "one__widget", "two__show", "two__widget"]
        );
        let mut plain = Client::over_http(kernel.url(), version, "{}").await;
        let listed = tools(&mut plain).await;
        assert!(
            names(&listed).iter().all(|name| name.starts_with("mgp")),
            "{listed:?}"
        );
    }
}
