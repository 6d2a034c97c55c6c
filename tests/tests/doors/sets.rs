//! Named sets of servers and tools at their own doors (decision 51). That nothing leads out of one is tried with the
//! ways around grants, in `tests/tests/mgp/access/escapes.rs`.

use http::StatusCode;
use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::http::SESSION;
use mgp_tests::harness::{Agent, DEADLINE, HttpClient, Kernel, ModernAgent, Program, wait_until};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST};

const READING: &str =
    "[sets.reading]\nservers = [\"one\"]\ntools = [\"two:echo\"]\nexcept = [\"one:pid\"]\n";

fn servers() -> String {
    let fixture = Program::fixture(&[]);
    fixture.entry("one") + &fixture.entry("two")
}

/// A kernel in front of two servers that offer the same, with these sets.
async fn kernel(sets: &str) -> Kernel {
    let kernel = Kernel::start(&format!("{sets}{}", servers())).await;
    kernel.connected(&["one", "two"]).await;
    kernel
}

fn at_set(kernel: &Kernel, set: &str) -> String {
    format!("{}/p/{set}", kernel.url())
}

/// The names in a list.
fn names(list: &Value, kind: &str) -> Vec<String> {
    let all = list[kind].as_array().unwrap().iter();
    all.map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn tools(agent: &mut Agent) -> Vec<String> {
    let list = agent.request("tools/list", json!({})).await.result();
    names(&list, "tools")
}

fn is_reading(tools: &[String]) {
    let has = |tool: &str| tools.iter().any(|name| name == tool);
    assert!(
        has("one__echo") && has("one__count") && has("two__echo"),
        "{tools:?}"
    );
    assert!(
        !has("one__pid") && !has("two__count") && !has("two__pid"),
        "{tools:?}"
    );
}

async fn said(kernel: &Kernel, args: &[&str]) -> String {
    let output = kernel.mgp(args).await;
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// Decision 51: over HTTP in both eras, over the old transport and over a line, a set is what it says and no more.
#[tokio::test]
async fn set_of_tools_is_served_at_endpoints_of_its_own() {
    let kernel = kernel(READING).await;
    let url = at_set(&kernel, "reading");
    let mut http = Agent::over_http(&url);
    let mut line = Agent::over_stdio(&kernel.program(&["stdio", "--set", "reading"]));
    for agent in [&mut http, &mut line] {
        agent.initialize(NEWEST, "{}").await.result();
        is_reading(&tools(agent).await);
        let echo = agent.call("two__echo", json!({"text": "in"})).await;
        assert!(!echo.is_error(), "{}", echo.frame);
        for outside in ["two__pid", "one__pid", "two:count", "nosuch"] {
            let refused = agent.call(outside, json!({})).await;
            let words = refused.error()["message"].to_string();
            assert_eq!(words.replace(outside, "nosuch"), "\"Unknown tool: nosuch\"");
        }
        let prompts = agent.request("prompts/list", json!({})).await.result();
        let prompts = names(&prompts, "prompts");
        assert!(
            prompts.iter().all(|name| name.starts_with("one__")),
            "{prompts:?}"
        );
        assert!(!prompts.is_empty());
    }
    let mut modern = ModernAgent::over_http(&url, "{}");
    let list = modern.ask("tools/list", json!({})).await.result();
    is_reading(&names(&list, "tools"));
    assert!(
        modern
            .ask("tools/call", json!({"name": "two__pid", "arguments": {}}))
            .await
            .is_error()
    );
    // The same client sees all at the door of all.
    let mut all = kernel.http_agent(None);
    all.initialize(NEWEST, "{}").await.result();
    assert!(tools(&mut all).await.contains(&"two__pid".to_owned()));
}

/// Decision 51: a set has one spelling, and who asks for one that is not there learns nothing of those that are.
#[tokio::test]
async fn a_stranger_learns_nothing_of_the_sets_there_are() {
    let kernel = kernel(&format!(
        "{READING}[agents.anonymous]\nset = \"reading\"\n[sets.other]\n"
    ))
    .await;
    let mut told = Vec::new();
    // One that is there, for others.
    for set in ["other", "nosuch", "readin", "p"] {
        let answer = HttpClient::new(&at_set(&kernel, set))
            .post(initialize(NEWEST, "{}"))
            .await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{set}");
        told.push(answer.text().await);
    }
    assert!(told.iter().all(|one| *one == told[0]), "{told:?}");
    assert!(!told[0].contains("reading"), "{told:?}");
    for set in [
        "Reading",
        "READING",
        "%72eading",
        "re%61ding",
        "reading%00",
        "reading%20",
        "../reading",
        "..",
        ".",
        "%2e%2e",
        "..%2freading",
        "reading/",
        "reading//",
        "./reading",
        "re%D0%B0ding",
        "reading%E2%80%8B",
        "reading;x",
        "reading,git",
    ] {
        let answer = HttpClient::new(&at_set(&kernel, set))
            .post(initialize(NEWEST, "{}"))
            .await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{set}");
        let words = answer.text().await;
        assert!(!words.contains("other"), "{words}");
    }
    // The owner is told what is near.
    for (set, near) in [
        ("readin", "did you mean reading?"),
        ("Reading", "small letters"),
    ] {
        let line = kernel
            .program(&["stdio", "--set", set])
            .output(DEADLINE)
            .await;
        let words = String::from_utf8(line.stderr).unwrap();
        assert!(!line.status.success() && words.contains(near), "{words}");
    }
    let info = said(&kernel, &["sets", "show", "readin"]).await;
    assert!(info.contains("did you mean reading?"), "{info}");
}

/// Decision 51: a session belongs to the door it was opened at.
#[tokio::test]
async fn a_session_of_a_set_is_one_nowhere_else() {
    let kernel = kernel(&format!(
        "{READING}[sets.all]\nservers = [\"one\", \"two\"]\n"
    ))
    .await;
    let doors = [
        kernel.url().to_owned(),
        at_set(&kernel, "reading"),
        at_set(&kernel, "all"),
    ];
    for (here, door) in doors.iter().enumerate() {
        let mut opened = HttpClient::new(door);
        opened.open_session(NEWEST, "{}").await;
        for (there, other) in doors.iter().enumerate() {
            let mut elsewhere = HttpClient::new(other);
            elsewhere.headers = opened.headers.clone();
            assert!(elsewhere.headers.contains_key(SESSION));
            let list = elsewhere
                .post(scene::request(3, "tools/list", json!({})))
                .await;
            let want = if here == there {
                StatusCode::OK
            } else {
                StatusCode::NOT_FOUND
            };
            assert_eq!(list.status, want, "{door} at {other}");
        }
    }
}

/// Decision 51: a set that changes changes for who is there, and is told; one that goes leaves nothing.
#[tokio::test]
async fn changed_set_applies_to_connected_clients_and_notifies_them() {
    let kernel = kernel(READING).await;
    let mut held = Agent::over_http(&at_set(&kernel, "reading"));
    let mut line = Agent::over_stdio(&kernel.program(&["stdio", "--set", "reading"]));
    let mut all = kernel.http_agent(None);
    for agent in [&mut held, &mut line, &mut all] {
        agent.initialize(NEWEST, "{}").await.result();
    }
    is_reading(&tools(&mut held).await);
    let follow = json!({"uri": "mcpk://one/test%3A%2F%2Fwatched-resource"});
    held.request("resources/subscribe", follow).await.result();
    let two = "[sets.reading]\nservers = [\"two\"]\n";
    kernel.rewrite(&format!("{two}{}", servers()));
    for agent in [&mut held, &mut line] {
        agent.hears("notifications/tools/list_changed").await;
    }
    let now = tools(&mut held).await;
    assert!(now.iter().all(|name| name.starts_with("two__")), "{now:?}");
    assert!(now.contains(&"two__pid".to_owned()));
    let gone = held.call("one__echo", json!({"text": "late"})).await;
    assert!(gone.is_error(), "{}", gone.frame);
    // What it followed has ended: of the next change nobody tells it.
    held.forget();
    let touched = all
        .call("one__test_trigger_resource_update", json!({}))
        .await;
    assert!(!touched.is_error(), "{}", touched.frame);
    held.request("ping", json!({})).await.result();
    assert!(held.heard("notifications/resources/updated").is_empty());
    assert!(
        all.heard("notifications/tools/list_changed").is_empty(),
        "its list is the same"
    );

    kernel.rewrite(&servers());
    for agent in [&mut held, &mut line] {
        agent.hears("notifications/tools/list_changed").await;
    }
    assert_eq!(tools(&mut line).await, [""; 0]);
    let late = HttpClient::new(&at_set(&kernel, "reading"))
        .post(initialize(NEWEST, "{}"))
        .await;
    assert_eq!(late.status, StatusCode::NOT_FOUND);
}

/// Decision 51: what is misspelt in a set is told, and opens nothing.
#[tokio::test]
async fn misspelt_name_in_a_set_is_reported_and_opens_nothing() {
    let sets = "[sets.reading]\nservers = [\"onee\"]\ntools = [\"two:ecko\"]\n[agents.bob]\nset = \"readin\"\n";
    let kernel = kernel(sets).await;
    assert!(kernel.mgp(&["agents", "add", "bob"]).await.status.success());
    let told = [
        ("[sets.reading]", "one?"),
        ("[sets.reading]", "echo"),
        ("agent.bob is held to the set `readin`", "`reading`"),
    ];
    for command in [["status"].as_slice(), &["doctor"]] {
        let words = said(&kernel, command).await;
        for (what, near) in told {
            assert!(
                words.contains(what) && words.contains(near),
                "{command:?} {near}: {words}"
            );
        }
    }
    let mut bob = Agent::over_stdio(&kernel.program(&["stdio", "--agent", "bob"]));
    bob.initialize(NEWEST, "{}").await.result();
    assert_eq!(tools(&mut bob).await, [""; 0]);
    let info = kernel.mgp_json(&["sets", "show", "reading"]).await;
    assert_eq!(info["unknown"].as_array().unwrap().len(), 2, "{info}");
    assert_eq!(info["offered"], json!([]), "{info}");
}

/// Decision 51: the operator sees what a set comes to, who came by it, and which one closes a tool.
#[tokio::test]
async fn the_operator_sees_the_sets() {
    let kernel = kernel(&format!("{READING}[agents.bob]\nset = \"reading\"\n")).await;
    let token = kernel.mgp_json(&["agents", "add", "bob"]).await;
    assert!(token["token"].is_string());
    let list = kernel.mgp_json(&["sets", "list"]).await;
    let set = &list["sets"][0];
    assert_eq!(set["name"], "reading");
    assert_eq!(set["servers"], json!(["one"]));
    assert_eq!(set["tools"], json!(["two:echo"]));
    assert_eq!(set["except"], json!(["one:pid"]));
    assert_eq!(set["agents"], json!(["agent.bob"]));
    assert_eq!(set["unknown"], json!([]));
    let info = kernel.mgp_json(&["sets", "show", "reading"]).await;
    assert_eq!(info, *set);
    let words = said(&kernel, &["sets", "show", "reading"]).await;
    assert!(
        words.contains("mgp stdio --set reading") && words.contains("/mcp/p/reading"),
        "{words}"
    );
    let why = said(&kernel, &["explain", "bob", "two:pid"]).await;
    assert!(why.contains("held to the set reading"), "{why}");
    let why = kernel.mgp_json(&["explain", "bob", "two:echo"]).await;
    assert_eq!(why["permission"], "allow", "{why}");
    let mut client = Agent::over_http(&at_set(&kernel, "reading"));
    client.initialize(NEWEST, "{}").await.result();
    wait_until("it is seen", DEADLINE, async || {
        let status = kernel.mgp_json(&["status"]).await;
        let clients = status["clients"].as_array().unwrap();
        clients.iter().any(|client| client["set"] == "reading")
    })
    .await;
}
