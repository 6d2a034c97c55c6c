//! Lists: whole, in one order, in pages, and with cursors that nobody can make up.

use mgp_tests::harness::{Agent, Kernel, Program};
use serde_json::{Value, json};

use crate::scene::{self};

const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];

/// All pages of a list, joined, and how many there were.
async fn walked(agent: &mut Agent, method: &str, key: &str) -> (Vec<Value>, usize) {
    let (mut items, mut pages, mut params) = (Vec::new(), 0, json!({}));
    loop {
        let page = agent.request(method, params).await.result();
        items.extend(page[key].as_array().unwrap().clone());
        pages += 1;
        match page.get("nextCursor") {
            None | Some(Value::Null) => return (items, pages),
            Some(cursor) => params = json!({"cursor": cursor}),
        }
    }
}

/// Two servers whose own lists come in pages of 3, behind a kernel with pages of 7.
async fn paged_kernel() -> Kernel {
    let server = Program::fixture(&["--page", "3", "--tools", "20"]);
    let config = format!(
        "[tuning.lists]\npage_size = 7\n{}{}",
        server.entry("one"),
        server.entry("two")
    );
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["one", "two"]).await;
    kernel
}

/// MCP-027, MCP-028: each cursor leads to the next page, and the last page has none.
#[tokio::test]
async fn list_is_served_in_pages_of_the_configured_size() {
    let paged = paged_kernel().await;
    let mut alone = scene::http_agent(&paged, Some("one"), "{}").await;
    for (method, key) in LISTS {
        let (items, pages) = walked(&mut alone, method, key).await;
        assert_eq!(pages, items.len().div_ceil(7).max(1), "{method}");
    }
}

/// MCP-030, CMCP-079: pages of the server's own are followed to their end.
#[tokio::test]
async fn pages_of_a_server_are_joined_in_its_order() {
    let whole = scene::kernel_with("", &["--tools", "20"]).await;
    let paged = paged_kernel().await;
    let mut direct = scene::http_agent(&whole, Some("it"), "{}").await;
    let mut alone = scene::http_agent(&paged, Some("one"), "{}").await;
    for (method, key) in LISTS {
        let (joined, _) = walked(&mut alone, method, key).await;
        let (at_once, pages) = walked(&mut direct, method, key).await;
        assert_eq!(pages, 1, "{method}");
        assert_eq!(joined, at_once, "{method}");
    }
}

#[tokio::test]
async fn merged_list_has_everything_once_in_a_stable_order() {
    let paged = paged_kernel().await;
    let mut alone = scene::http_agent(&paged, Some("one"), "{}").await;
    let mut everything = scene::http_agent(&paged, None, "{}").await;
    for (method, key) in LISTS {
        let (of_one, _) = walked(&mut alone, method, key).await;
        let (of_two, _) = walked(&mut everything, method, key).await;
        assert_eq!(of_two.len(), 2 * of_one.len(), "{method}");
        let (again, _) = walked(&mut everything, method, key).await;
        assert_eq!(of_two, again, "{method}");
    }
}

/// The merged list has one order, servers by their ids, whichever of them was there first.
#[tokio::test]
async fn order_of_a_list_does_not_depend_on_the_order_of_connections() {
    let slow = |id: &str| Program::fixture(&["--slow-start", "300"]).entry(id);
    let fast = |id: &str| Program::fixture(&[]).entry(id);
    let mut orders = Vec::new();
    for servers in [slow("a") + &fast("b"), slow("b") + &fast("a")] {
        let kernel = Kernel::start(&servers).await;
        kernel.connected(&["a", "b"]).await;
        let mut agent = scene::http_agent(&kernel, None, "{}").await;
        let (tools, _) = walked(&mut agent, "tools/list", "tools").await;
        let names: Vec<String> = tools.iter().map(|t| t["name"].to_string()).collect();
        orders.push(names);
    }
    assert_eq!(orders[0], orders[1]);
    let place = |name: &str| orders[0].iter().position(|n| n == name).unwrap();
    assert!(place("\"a__echo\"") < place("\"b__test_simple_text\""));
}

/// MCP-029: a cursor of nobody, of another list, of another door, or with one letter changed.
#[tokio::test]
async fn a_cursor_that_was_not_given_out_here_is_refused() {
    let kernel = paged_kernel().await;
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    let mut other = scene::http_agent(&kernel, Some("one"), "{}").await;
    let cursor = async |agent: &mut Agent, method: &str| {
        let page = agent.request(method, json!({})).await.result();
        page["nextCursor"].as_str().unwrap().to_owned()
    };
    let own = cursor(&mut agent, "tools/list").await;
    let foreign = cursor(&mut other, "tools/list").await;
    let of_prompts = cursor(&mut agent, "prompts/list").await;
    let mut garbled = own.clone();
    garbled.replace_range(3..4, if &own[3..4] == "A" { "B" } else { "A" });
    for bad in ["", "x", "cDoz", &foreign, &of_prompts, &garbled, &own[1..]] {
        let refused = agent.request("tools/list", json!({"cursor": bad})).await;
        assert_eq!(refused.code(), -32602, "{bad:?}");
    }
    for bad in [json!(7), json!({}), json!([])] {
        let refused = agent.request("tools/list", json!({"cursor": bad})).await;
        assert_eq!(refused.code(), -32602, "{bad}");
    }
    let next = agent
        .request("tools/list", json!({"cursor": own}))
        .await
        .result();
    assert_eq!(next["tools"].as_array().unwrap().len(), 7);
}

/// MCP-028: an agent that is half way through a list when it changes misses nothing and gets
/// nothing twice.
#[tokio::test]
async fn a_list_that_grows_on_the_way_is_walked_to_its_end() {
    let kernel = paged_kernel().await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let before = walked(&mut agent, "tools/list", "tools").await.0;
    let first = agent.request("tools/list", json!({})).await.result();
    agent.call("one:grow", json!({})).await.result();
    agent.hears("notifications/tools/list_changed").await;
    let mut items = first["tools"].as_array().unwrap().clone();
    let mut cursor = first["nextCursor"].clone();
    while cursor.is_string() {
        let page = agent
            .request("tools/list", json!({"cursor": cursor}))
            .await
            .result();
        items.extend(page["tools"].as_array().unwrap().clone());
        cursor = page["nextCursor"].clone();
    }
    assert_eq!(items.len(), before.len() + 1);
    assert!(before.iter().all(|tool| items.contains(tool)));
}
