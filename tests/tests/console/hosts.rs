//! Hosts of MCP Apps in the browser: a page with the client and `AppBridge` of the extension's SDK, which the reference
//! host is made of, shows the SDK's example servers through the kernel.

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Need, Peers, Process};
use serde_json::{Value, json};

use crate::browser::Browser;

/// The host's own origin, and that of its sandbox.
struct AppHost {
    _server: Process,
    origin: String,
    sandbox: String,
}

impl AppHost {
    async fn start(peers: &Peers) -> Self {
        let mut server = Process::start("the host of apps", &peers.app_host());
        let origins = |line: &str| serde_json::from_str::<Value>(line).ok();
        let origins = server.says("its origins", DEADLINE, origins).await;
        let text = |name: &str| origins[name].as_str().unwrap().to_owned();
        Self {
            origin: text("host"),
            sandbox: text("sandbox"),
            _server: server,
        }
    }

    /// What a kernel needs for pages of this host.
    fn door(&self) -> String {
        let origin = &self.origin;
        format!("[http]\nlisten = \"127.0.0.1:0\"\nallowed_origins = [\"{origin}\"]\n")
    }

    /// The address of the host's page that shows this tool's app.
    fn page(&self, url: &str, token: &str, tool: &str, mode: &str) -> String {
        let (origin, sandbox) = (&self.origin, &self.sandbox);
        format!(
            "{origin}/index.html?url={url}&token={token}&tool={tool}&mode={mode}&sandbox={sandbox}"
        )
    }
}

/// A node with a name, with these servers.
async fn node(host: &AppHost, name: &str, servers: &str) -> Kernel {
    let cluster = format!("[cluster]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\n");
    Kernel::with_config(&format!("{}{cluster}{servers}", host.door())).await
}

async fn token(kernel: &Kernel) -> String {
    let made = kernel.mgp_json(&["agents", "add", "alice"]).await;
    made["token"].as_str().unwrap().to_owned()
}

/// Opens the app of a tool, and goes into its frame.
async fn open(browser: &Browser, page: &str) {
    browser.go(page).await;
    let ended = "window.shown?.done || window.shown?.error";
    browser.until("the host has shown the app", ended).await;
    assert_eq!(
        browser.js("return window.shown.error ?? null").await,
        json!(null)
    );
    browser.enter_frame().await;
    browser.enter_frame().await;
}

/// EXT-030, EXT-031: apps of the SDK's servers are rendered by its host in a browser, get the result of their tool, and call
/// tools themselves: at the merged endpoint, at that of their server, and over a link to the server's node.
#[tokio::test(flavor = "multi_thread")]
async fn apps_run_in_a_browser_host_made_with_the_sdk() {
    let Some(peers) = Peers::find(&[Need::Apps, Need::Browser]) else {
        return;
    };
    let host = AppHost::start(&peers).await;
    let servers = [
        ("clock", "basic-vanillajs"),
        ("monitor", "system-monitor"),
        ("budget", "budget-allocator"),
    ];
    let entries = servers.map(|(id, name)| peers.app_server(name).entry(id));
    let entries = entries.concat();
    let (nas, desk) = tokio::join!(node(&host, "nas", &entries), node(&host, "desk", ""));
    let ids = servers.map(|(id, _)| id);
    let nodes = JoinedNodes::joined(nas, desk, &ids).await;
    let (here, there) = (token(&nodes.nas).await, token(&nodes.desk).await);
    for id in ids {
        nodes
            .nas
            .mgp_json(&["grants", "add", "alice@desk", id])
            .await;
    }
    let browser = Browser::open(&[]).await;
    let of = |kernel: &Kernel, server: &str| kernel.server_url(server);
    let (nas, desk) = (nodes.nas.url().to_owned(), nodes.desk.url().to_owned());
    let page = host.page(&desk, &there, "nas__clock__get-time", "auto");
    open(&browser, &page).await;
    browser.until("a time is shown", TIME_IS_SHOWN).await;
    let clock = of(&nodes.desk, "nas/clock");
    for (url, token, tool, mode) in [
        (&nas, &here, "clock__get-time", "legacy"),
        (&clock, &there, "get-time", "auto"),
    ] {
        open(&browser, &host.page(url, token, tool, mode)).await;
        the_clock_runs(&browser).await;
    }
    for (url, token, mode) in [
        (of(&nodes.nas, "monitor"), &here, "auto"),
        (of(&nodes.desk, "nas/monitor"), &there, "legacy"),
    ] {
        open(&browser, &host.page(&url, token, "get-system-info", mode)).await;
        the_monitor_polls(&browser).await;
    }
    let budget = host.page(&of(&nodes.nas, "budget"), &here, "get-budget-data", "auto");
    open(&browser, &budget).await;
    let drawn = "document.querySelectorAll('#sliders-container input').length > 2";
    browser.until("the budget is drawn", drawn).await;
}

const TIME_IS_SHOWN: &str = "document.querySelector('#server-time').textContent.startsWith('20')";

/// The app shows the time of the result, and after a press that of its own call.
async fn the_clock_runs(browser: &Browser) {
    let time = "document.querySelector('#server-time').textContent";
    browser.until("a time is shown", TIME_IS_SHOWN).await;
    let first = browser.js(&format!("return {time}")).await;
    browser
        .js("document.querySelector('#get-time-btn').click()")
        .await;
    let later = format!("{time}.startsWith('20') && {time} !== {first}");
    browser.until("a later time is shown", &later).await;
}

/// The app shows what only a tool for apps gives.
async fn the_monitor_polls(browser: &Browser) {
    let press = "document.querySelector('#poll-toggle-btn').innerText === 'Start' \
        && document.querySelector('#poll-toggle-btn').click()";
    browser.js(press).await;
    let polled = "document.querySelector('#memory-percent').textContent !== '--%'";
    browser.until("the memory is shown", polled).await;
}

/// EXT-030: a page at an origin that is not configured reaches nothing, and no page is lent the browser's cookies.
#[tokio::test]
async fn only_pages_of_configured_origins_may_read_answers() {
    let kernel = Kernel::with_config(
        "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\nallowed_origins = [\"http://localhost:9\"]\n",
    )
    .await;
    for (origin, allowed) in [("http://localhost:9", true), ("http://localhost:8", false)] {
        let mut page = HttpClient::new(kernel.url());
        page.set(http::header::ORIGIN, origin);
        page.set(http::header::ACCESS_CONTROL_REQUEST_METHOD, "POST");
        page.set(
            http::header::ACCESS_CONTROL_REQUEST_HEADERS,
            "authorization,mgp-console",
        );
        let answer = page.send(http::Method::OPTIONS, "").await.unwrap();
        let header = |name: &str| {
            answer
                .headers
                .get(name)
                .map(|value| value.to_str().unwrap())
        };
        let origin = allowed.then_some(origin);
        assert_eq!(header("access-control-allow-origin"), origin);
        let names = allowed.then_some("authorization");
        assert_eq!(header("access-control-allow-headers"), names);
        assert_eq!(header("access-control-allow-credentials"), None);
    }
}
