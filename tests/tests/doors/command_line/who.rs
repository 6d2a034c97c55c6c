//! What the operator is told: who is connected, what an agent sees, what a server is and offers.

use std::fs;
use std::process::Output;

use mgp_tests::harness::{Agent, DEADLINE, HttpClient, Kernel, ModernAgent, wait_until};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST};

fn out(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The clients that the status tells of, by who they are to the kernel.
async fn clients(kernel: &Kernel) -> Vec<Value> {
    let mut status = kernel.mgp_json(&["status"]).await;
    let clients: Vec<Value> = serde_json::from_value(status["clients"].take()).unwrap();
    assert_eq!(status["connections"], clients.len());
    clients
}

/// Every client is told of, whichever way it came in, with its name, what it speaks and what it called;
/// `status` does not count itself.
#[tokio::test]
async fn status_lists_connected_clients() {
    let kernel = scene::kernel().await;
    assert_eq!(clients(&kernel).await, Vec::<Value>::new());
    out(&kernel.mgp(&["agents", "add", "claude"]).await);
    let mut named = Agent::over_stdio(&kernel.program(&["stdio", "--agent", "claude"]));
    named.initialize(NEWEST, "{}").await.result();
    for _ in 0..3 {
        named.call("it__echo", json!({"text": "x"})).await.result();
    }
    let session = scene::http_agent(&kernel, Some("it"), "{}").await;
    let mut alone = ModernAgent::over_http(kernel.url(), "{}");
    alone.call("it__echo", json!({"text": "x"})).await.result();
    let found = clients(&kernel).await;
    let of = |speaks: &str, door: &str| {
        let fits = |c: &&Value| c["speaks"] == speaks && c["door"] == door;
        found
            .iter()
            .find(fits)
            .unwrap_or_else(|| panic!("{speaks} {door}: {found:#?}"))
    };
    assert_eq!(found.len(), 3, "{found:#?}");
    let line = of(NEWEST, "socket");
    assert_eq!(
        (&line["agent"], &line["calls"]),
        (&json!("agent.claude"), &json!(3))
    );
    assert_eq!(
        (&line["name"], &line["version"]),
        (&json!("mgp-tests"), &json!("1"))
    );
    assert_eq!(of(NEWEST, "http")["server"], "it");
    assert_eq!(of("2026-07-28", "http")["calls"], 1);
    let shown = out(&kernel.mgp(&["status"]).await);
    assert!(shown.contains("agents    3 connected"), "{shown}");
    let row = shown
        .lines()
        .find(|line| line.starts_with("agent.claude"))
        .unwrap();
    assert!(row.contains("mgp-tests 1") && row.contains(NEWEST), "{row}");
    drop(session);
    named.close().await;
    wait_until("who has gone is not told of", DEADLINE, async || {
        clients(&kernel)
            .await
            .iter()
            .all(|client| client["agent"] != "agent.claude")
    })
    .await;
}

/// What `mgp tools list --agent` prints is what that agent's client is shown.
#[tokio::test]
async fn tools_list_of_an_agent_is_what_its_client_is_shown() {
    let kernel = scene::kernel_of_two().await;
    out(&kernel.mgp(&["agents", "add", "claude"]).await);
    out(&kernel
        .mgp(&["grants", "add", "agent.claude", "two", "--deny"])
        .await);
    let names = |list: &Value| {
        let tools = list["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let mut agent = Agent::over_stdio(&kernel.program(&["stdio", "--agent", "claude"]));
    agent.initialize(NEWEST, "{}").await.result();
    let shown = names(&agent.request("tools/list", json!({})).await.result());
    let listed = names(
        &kernel
            .mgp_json(&["tools", "list", "--agent", "claude"])
            .await,
    );
    assert_eq!(listed, shown);
    assert!(
        listed.iter().any(|name| name.starts_with("one__")),
        "{listed:?}"
    );
    assert!(
        listed.iter().all(|name| !name.starts_with("two__")),
        "{listed:?}"
    );
    let all = names(&kernel.mgp_json(&["tools", "list"]).await);
    assert!(all.iter().any(|name| name.starts_with("two__")), "{all:?}");
    let unknown = kernel.mgp(&["tools", "list", "--agent", "claud"]).await;
    assert!(!unknown.status.success(), "{unknown:?}");
}

/// All that is known of one server is in one place.
#[tokio::test]
async fn servers_show_prints_all_of_a_server() {
    let kernel = scene::kernel().await;
    let shown = out(&kernel.mgp(&["servers", "show", "it"]).await);
    for part in [
        "it is connected",
        "runs ",
        "mgp-fixture",
        "process ",
        "speaks ",
        "offers ",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = kernel.mgp_json(&["servers", "show", "it"]).await;
    assert_eq!(
        (&json["id"], &json["state"]),
        (&json!("it"), &json!("connected"))
    );
    let unknown = kernel.mgp(&["servers", "show", "its"]).await;
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
}

/// Resources and prompts are listed and read from the shell as agents read them.
#[tokio::test]
async fn resources_and_prompts_are_listed_and_read() {
    let kernel = scene::kernel().await;
    let listed = out(&kernel.mgp(&["resources", "list"]).await);
    assert!(listed.contains("test://static-text"), "{listed}");
    assert!(listed.contains("test://template/{id}/data"), "{listed}");
    let text = "This is the content of the static text resource.\n";
    for typed in [
        &["resources", "read", "test://static-text"][..],
        &["resources", "read", "test://static-text", "--server", "it"],
    ] {
        assert_eq!(out(&kernel.mgp(typed).await), text);
    }
    let folder = tempfile::tempdir().unwrap();
    let pictures = folder.path().display().to_string();
    let saved = out(&kernel
        .mgp(&[
            "resources",
            "read",
            "test://static-binary",
            "--out",
            &pictures,
        ])
        .await);
    assert!(saved.starts_with("saved "), "{saved}");
    let file = fs::read_dir(folder.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert!(
        fs::read(file.path())
            .unwrap()
            .starts_with(b"\x89PNG\r\n\x1a\n")
    );
    let missing = kernel.mgp(&["resources", "read", "test://nothing"]).await;
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");

    let listed = out(&kernel.mgp(&["prompts", "list"]).await);
    let name = "it__test_prompt_with_arguments";
    let row = listed
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or_else(|| panic!("{listed}"));
    assert!(row.contains("arg1=…"), "{row}");
    let got = out(&kernel
        .mgp(&["prompts", "get", name, "arg1=red", "arg2=007"])
        .await);
    assert!(
        got.starts_with("user: ") && got.contains("red") && got.contains("007"),
        "{got}"
    );
}

/// Whoever adds an agent can paste what is printed: over stdio without the token, over HTTP with it.
#[tokio::test]
async fn a_new_agents_entries_work_as_printed() {
    let kernel = Kernel::with_config("[http]\nlisten = \"127.0.0.1:0\"\n").await;
    let added = kernel.mgp(&["agents", "add", "claude"]).await;
    let said = String::from_utf8_lossy(&added.stderr).into_owned();
    let token = out(&added).trim().to_owned();
    let entries: Vec<Value> = said
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let [stdio, http] = &entries[..] else {
        panic!("{said}")
    };
    let (stdio, http) = (&stdio["mcpServers"]["mgp"], &http["mcpServers"]["mgp"]);
    assert!(!stdio.to_string().contains(&token));

    let args: Vec<String> = serde_json::from_value(stdio["args"].clone()).unwrap();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut agent = Agent::over_stdio(&kernel.program(&words));
    agent.initialize(NEWEST, "{}").await.result();
    assert_eq!(clients(&kernel).await[0]["agent"], "agent.claude");

    let mut client = HttpClient::new(http["url"].as_str().unwrap());
    let header = http["headers"]["Authorization"].as_str().unwrap();
    assert_eq!(header, format!("Bearer {token}"));
    client.set(http::header::AUTHORIZATION, header);
    client.open_session(NEWEST, "{}").await;
    let found = clients(&kernel).await;
    assert!(
        found
            .iter()
            .any(|c| c["door"] == "http" && c["agent"] == "agent.claude"),
        "{found:#?}"
    );

    let json = kernel
        .mgp_json(&["agents", "token", "claude", "--rotate"])
        .await;
    let header = &json["entries"]["http"]["mcpServers"]["mgp"]["headers"]["Authorization"];
    assert_eq!(
        *header,
        format!("Bearer {}", json["token"].as_str().unwrap())
    );
}

/// A list that is cut says how many tools stand behind it.
#[tokio::test]
async fn tools_that_a_list_does_not_show_are_counted() {
    let sections = "[discovery]\nembedding = \"off\"\nexposure = \"discovery\"\n";
    let kernel = scene::kernel_with(sections, &[]).await;
    out(&kernel.mgp(&["agents", "add", "claude"]).await);
    out(&kernel
        .mgp(&["grants", "add", "claude", "it:echo", "--deny"])
        .await);
    let all = kernel.mgp_json(&["tools", "list"]).await;
    let all = all["tools"].as_array().unwrap().len();
    let command = ["tools", "list", "--agent", "claude"];
    let listed = kernel.mgp_json(&command).await;
    assert_eq!(listed["tools"].as_array().unwrap().len(), 3);
    assert_eq!(listed["unlisted"], all - 1);
    let told = kernel.mgp(&command).await.stderr;
    let told = String::from_utf8_lossy(&told);
    assert!(
        told.contains(&format!("may call {} more tools", all - 1)),
        "{told}"
    );
}

/// A server that is not there is refused with the nearest, wherever it is named.
#[tokio::test]
async fn a_misspelt_server_is_refused_with_the_nearest() {
    let kernel = scene::kernel().await;
    for line in ["prompts list", "resources list", "tools list", "stdio"] {
        let command: Vec<&str> = line.split(' ').chain(["--server", "its"]).collect();
        let refused = kernel.mgp(&command).await;
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{line}: {told}");
        assert!(told.contains("did you mean it?"), "{line}: {told}");
    }
}
