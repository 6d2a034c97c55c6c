//! The console of a kernel that is not alone.

use mgp_tests::harness::kernel::nodes::config;
use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers};
use serde_json::json;

use crate::browser::{Browser, holds};
use crate::scene;

/// The other kernel: it has a server, and no console.
async fn other() -> Kernel {
    let servers = scene::fixture("demo", &[]);
    let kernel = Kernel::with_config(&config("nas", "127.0.0.1:0", &servers)).await;
    kernel.connected(&["demo"]).await;
    kernel
}

/// Decisions 0067 and 0069: a node is let in by its words in a browser, and a call of its server is seen through to that
/// server.
#[tokio::test]
async fn a_node_is_let_in_and_its_calls_are_seen_through() {
    if Peers::find(&[Need::Browser]).is_none() {
        return;
    }
    let cluster = "[cluster]\nname = \"desk\"\nlisten = \"127.0.0.1:0\"\n";
    let (desk, nas) = tokio::join!(scene::kernel(cluster), other());
    let browser = scene::signed_in(&desk, &[]).await;
    let invited = desk.mgp_json(&["nodes", "invite"]).await;
    let ticket = invited["ticket"].as_str().unwrap();
    let joining = nas.program(&["nodes", "join", ticket, "--json"]);
    let (joined, ()) = tokio::join!(joining.output(DEADLINE), let_in(&browser, &desk));
    assert!(joined.status.success(), "{joined:?}");

    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    desk.mgp_json(&["grants", "add", "local@desk", "nas/demo"])
        .await;
    let call = ["tools", "call", "nas/demo:slow", "ms=50"];
    holds("the tool of the other node answers", async || {
        desk.mgp(&call).await.status.success()
    })
    .await;
    seen_through(&browser).await;
    let said = browser.log().await;
    assert!(!said.contains("SEVERE"), "{said}");
}

/// Somebody compares the words and presses the button.
async fn let_in(browser: &Browser, host: &Kernel) {
    browser.page("#/waiting").await;
    browser.shows("the same three words").await;
    let status = host.mgp_json(&["cluster", "status"]).await;
    let shown = browser
        .js("return document.querySelector('.card .words').innerText")
        .await;
    assert_eq!(shown, status["waiting"][0]["words"], "{status:#}");
    browser.press("Let it in").await;
    browser.shows("Nothing waits for you.").await;
}

/// The parts that the other node measured are within the one that was measured here.
async fn seen_through(browser: &Browser) {
    browser.page("#/activity/tool/slow").await;
    browser
        .until(
            "the call is there",
            "document.querySelector('.record-row .pill.good')",
        )
        .await;
    browser
        .js("document.querySelector('.record-row .pill.good ~ button').click()")
        .await;
    browser.shows("at node nas").await;
    let bars = browser
        .js("const of = (selector) => { const one = document.querySelector(selector).getBoundingClientRect(); return [one.left, one.right]; };
            const nodes = 'ol[aria-label=\"The parts of the call\"] > li > ol > li';
            return { here: of('ol[aria-label=\"The parts of the call\"] > li > .track > .bar.server'),
              node: of(`${nodes} > .track > .bar.node`), server: of(`${nodes} > ol > li > .track > .bar.server`),
              names: [...document.querySelectorAll(`${nodes} > ol > li`)].map((one) => one.innerText) }")
        .await;
    let at = |bar: &str, end: usize| bars[bar][end].as_f64().unwrap();
    for (inner, outer) in [("node", "here"), ("server", "node")] {
        // To the pixel, of which a bar has two at least.
        assert!(at(inner, 0) >= at(outer, 0) - 2.0, "{bars:#}");
        assert!(at(inner, 1) <= at(outer, 1) + 2.0, "{bars:#}");
    }
    assert!(at("server", 1) - at("server", 0) > 20.0, "{bars:#}");
    let names = bars["names"].to_string();
    assert!(names.contains("server · "), "{names}");
    let end =
        "return document.querySelector('.detail').innerText.includes('are the way there and back')";
    assert_eq!(browser.js(end).await, json!(true));
}
