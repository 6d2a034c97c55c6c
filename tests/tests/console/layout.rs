//! What each page shows whole, measured in the browser: on a desk and on a telephone.

use mgp_tests::harness::{Kernel, Need, Peers};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser::{Browser, holds};
use crate::scene;

const SERVERS: usize = 13;
const AGENTS: [&str; 6] = ["claude", "cursor", "zed", "goose", "cline", "windsurf"];

/// Rows that the end of the list cuts, and the pixels that are free below it.
const ROWS: &str = "const list = document.querySelector('.v-list.tall');
    const end = list.getBoundingClientRect().bottom;
    const cut = [...list.querySelectorAll('.v-row')].map((row) => row.getBoundingClientRect())
      .filter((row) => row.top < end - 3 && row.bottom > end + 1).length;
    return { cut, free: innerHeight - end };";

/// Agents whose column is not in sight.
const HIDDEN: &str = "const end = document.querySelector('.matrix').getBoundingClientRect().right;
    const cells = [...document.querySelectorAll('.matrix-head .cell')];
    return { all: cells.length, hidden: [...document.querySelectorAll('.matrix .cell')]
      .filter((cell) => cell.getBoundingClientRect().right > end).length };";

/// Rows are whole, columns have headers and are all in sight, causes come first, and a telephone shows agent and tool.
#[tokio::test]
async fn pages_show_whole_rows_and_every_column() {
    if Peers::find(&[Need::Browser]).is_none() {
        return;
    }
    let long = tempfile::Builder::new()
        .prefix(&"long".repeat(20))
        .tempdir();
    let long = long.unwrap();
    let kernel = busy(&long).await;
    let browser = scene::signed_in(&kernel, &[]).await;
    for (width, height) in [(1440, 900), (390, 844)] {
        browser.size(width, height, false).await;
        servers(&browser, width).await;
        activity(&browser).await;
        about(&browser).await;
    }
    browser.size(1440, 900, false).await;
    rates(&kernel, &browser).await;
    access(&browser).await;
    heads(&browser).await;
    agents(&browser).await;
    let said = browser.log().await;
    assert!(!said.contains("SEVERE"), "{said}");
}

/// 15 servers, one that is left alone after its restarts and one in a sandbox, and seven agents.
async fn busy(long: &TempDir) -> Kernel {
    let mut servers: String = (0..SERVERS)
        .map(|at| scene::fixture(&format!("server{at:02}"), &["--bare", "--tools", "4"]))
        .collect();
    servers += &scene::fixture("broken", &["--exit-at-start", "3"]);
    servers += "max_restarts = 0\n";
    servers += &scene::fixture("walled", &["--bare", "--tools", "3"]);
    servers += &format!(
        "cwd = \"{}\"\n[servers.mgp]\ntrust_level = \"sandboxed\"\n",
        long.path().display()
    );
    let kernel = scene::kernel(&servers).await;
    kernel.connected(&["server00", "server12", "walled"]).await;
    for name in AGENTS {
        let agent = scene::agent(&kernel, name).await;
        let call = json!({"name": "server00__echo_0", "arguments": {"text": "x"}});
        scene::asked(&agent, "tools/call", call).await;
    }
    holds("it is left alone", async || {
        let listed = kernel.mgp_json(&["servers", "list"]).await;
        listed.to_string().contains("restart_limit_exceeded")
    })
    .await;
    kernel
}

async fn whole_rows(browser: &Browser, what: &str) {
    let rows = browser.js(ROWS).await;
    assert_eq!(rows["cut"], 0, "{what}: {rows}");
}

async fn servers(browser: &Browser, width: u32) {
    browser.page("#/cluster").await;
    browser.shows("This node").await;
    browser.page("#/servers").await;
    browser
        .until(
            "the failed server is first",
            "/broken/.test(document.querySelector('.v-row.server-row')?.innerText)",
        )
        .await;
    let what = format!("servers at {width}");
    whole_rows(browser, &what).await;
    let rows = browser.js(ROWS).await;
    let free = rows["free"].as_f64().unwrap();
    assert!(free < 80.0, "{what}: {free} pixels are free below the list");
    // The cause is what the row begins with, by either way the kernel lists a server.
    let why = browser
        .later(
            "const { why } = await import('/console/pages/now.js');
             const reason = 'restart_limit_exceeded: 5 restarts within 300 s; last: exited with code 3';
             return why({ state: 'error', reason, restarts: 5 });",
        )
        .await;
    let cause = "exited with code 3 · restart_limit_exceeded: 5 restarts within 300 s";
    assert!(why.as_str().unwrap().starts_with(cause), "{why}");
    let cut = browser
        .js("const why = document.querySelector('.v-row .why'); return why.innerText === '' || why.scrollHeight > why.clientHeight + 2;")
        .await;
    assert!(
        width < 600 || cut == json!(false),
        "{what}: the cause is cut off"
    );
}

async fn activity(browser: &Browser) {
    browser.page("#/activity/server/server00").await;
    browser.shows("TOOL_EXECUTED").await;
    let record = browser
        .js("const row = document.querySelector('.v-row.record-row');
             const last = row.lastElementChild;
             const [its, one] = [last.getBoundingClientRect(), row.getBoundingClientRect()];
             return { text: row.innerText, inside: its.height > 0 && its.bottom <= one.bottom && its.top >= one.top };")
        .await;
    let text = record["text"].as_str().unwrap();
    assert!(text.contains("agent."), "{record}");
    assert!(text.contains("server00:echo_0"), "{record}");
    assert_eq!(record["inside"], true, "{record}");
    whole_rows(browser, "activity").await;
}

async fn about(browser: &Browser) {
    browser.page("#/servers/walled/about").await;
    browser.shows("Sandbox holds it to").await;
    let wide = browser
        .js("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        .await;
    assert!(wide.as_i64().unwrap() <= 0, "too wide by {wide}");
}

/// Calls of a server and their times, as they are made.
async fn rates(kernel: &Kernel, browser: &Browser) {
    browser.page("#/servers").await;
    let row = "[...document.querySelectorAll('.v-row.server-row')].find((row) => row.innerText.includes('server01'))";
    let cell = |title: &str| format!("{row}?.querySelector('[data-title=\"{title}\"]')?.innerText");
    browser
        .until(
            "nothing was called",
            &format!("{} === '0'", cell("Calls/s")),
        )
        .await;
    let call = ["tools", "call", "server01:echo_0", "text=x"];
    // The rate is that of up to a minute.
    for _ in 0..6 {
        assert!(kernel.mgp(&call).await.status.success());
    }
    for (title, shape) in [
        ("Calls/s", r"/^0\.\d|^[1-9]/"),
        ("Errors/s", "/^0$/"),
        ("p50", "/s$/"),
        ("p99", "/s$/"),
    ] {
        let expression = format!("{shape}.test({})", cell(title));
        browser
            .until(&format!("{title} of the call"), &expression)
            .await;
    }
}

async fn access(browser: &Browser) {
    let all = json!({"all": AGENTS.len() + 1, "hidden": 0});
    browser.page("#/access").await;
    let there = "document.querySelectorAll('.matrix-head .cell').length === 7";
    browser.until("the agents are there", there).await;
    assert_eq!(browser.js(HIDDEN).await, all);
    let legend = "document.querySelector('.legend')?.checkVisibility() && /✓ allow.*✕ deny.*border/.test(document.querySelector('.legend').innerText)";
    browser.until("the legend is there", legend).await;
    whole_rows(browser, "access").await;
    browser.page("#/access/server00/echo_1").await;
    browser.shows("What was looked at").await;
    assert_eq!(browser.js(HIDDEN).await, all, "beside the rule");
}

async fn heads(browser: &Browser) {
    for (page, first) in [
        ("#/servers", "State"),
        ("#/servers/server00/tools", "Tool"),
        ("#/servers/server00/pins", "State"),
        ("#/activity", "Time"),
    ] {
        browser.page(page).await;
        let head = format!(
            "document.querySelector('.v-head span')?.innerText === '{first}' && document.querySelector('.v-head').checkVisibility()"
        );
        browser
            .until(&format!("{page} has column headers"), &head)
            .await;
    }
}

/// One action, and the others in a menu.
async fn agents(browser: &Browser) {
    browser.page("#/agents").await;
    browser.shows("agent.windsurf").await;
    let actions =
        "return [...document.querySelector('.card').querySelectorAll('button, a, summary')]
        .filter((one) => one.checkVisibility()).map((one) => one.innerText)";
    assert_eq!(browser.js(actions).await, json!(["Access", "More"]));
    browser
        .js("document.querySelector('.card summary').click()")
        .await;
    let all: Value = browser.js(actions).await;
    for action in ["Activity", "Count its tools", "New token…", "Remove…"] {
        assert!(all.to_string().contains(action), "{all}");
    }
    browser.js("document.querySelector('h1').click()").await;
    assert_eq!(browser.js(actions).await, json!(["Access", "More"]));
}
