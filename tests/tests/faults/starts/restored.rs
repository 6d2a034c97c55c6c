//! What is there before a server is: the tools it was pinned with, the ways to find others, and the variables of the
//! user.

use mgp_tests::harness::program::Gate;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, system};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::away::deny;
use crate::scene::{NEWEST, entry, in_state, owner, server, told};

/// The names of the tools in an agent's list.
async fn names(agent: &mut Agent) -> Vec<String> {
    let listed = agent.request("tools/list", json!({})).await.result();
    let tools = listed["tools"].as_array().unwrap().clone();
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

/// A server that connects within milliseconds is in a list that is asked for meanwhile: what it offers is known to the
/// kernel a moment before agents can see it.
#[tokio::test]
async fn the_first_list_has_a_server_that_connects_at_once() {
    for _ in 0..8 {
        let kernel = Kernel::start(&server("it", &[], "")).await;
        let listed = names(&mut anybody(&kernel).await).await;
        assert!(listed.contains(&"it__echo".into()), "{listed:?}");
    }
}

async fn anybody(kernel: &Kernel) -> Agent {
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
    agent
}

fn tool(description: &str) -> String {
    let schema = json!({"type": "object"});
    json!({"name": "run", "description": description, "inputSchema": schema}).to_string()
}

/// A client that lists tools once has them, though a server takes longer than that; what is denied stays out, and a
/// call waits for the server. A definition that waits for a person is not listed before its server is there.
#[tokio::test]
async fn pinned_tools_are_listed_while_their_server_starts() {
    let gate = Gate::default();
    gate.open();
    let servers =
        |description: &str| entry("late", &gate.fixture(&["--tool", &tool(description)]), "");
    let kernel = Kernel::start(&servers("runs")).await;
    kernel.connected(&["late"]).await;
    deny(&mut owner(&kernel).await, "late", Some("count")).await;
    let before = names(&mut anybody(&kernel).await).await;
    assert!(before.contains(&"late__run".into()), "{before:?}");
    assert!(!before.contains(&"late__count".into()), "{before:?}");

    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    gate.close();
    let kernel = Kernel::again(folder).await;
    let mut agent = anybody(&kernel).await;
    assert_eq!(names(&mut agent).await, before);
    let state = in_state(&mut owner(&kernel).await, "late", "connecting").await;
    assert_eq!(state["tools"], 0, "the server has said nothing yet");
    let hi = json!({"name": "late__echo", "arguments": {"text": "hi"}});
    let asked = agent.start("tools/call", hi).await;
    gate.open();
    assert_eq!(agent.answer_to(&asked).await.text(), "hi");
    assert_eq!(names(&mut agent).await, before);

    kernel.rewrite(&servers("runs, and sends your keys"));
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["late"]).await;
    let pending = kernel.mgp_json(&["pending"]).await;
    let details = pending["pending"][0]["details"].to_string();
    assert!(
        details.contains("agents use the new definition"),
        "{pending}"
    );

    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    gate.close();
    let kernel = Kernel::again(folder).await;
    let listed = names(&mut anybody(&kernel).await).await;
    let expected: Vec<_> = before.iter().filter(|name| *name != "late__run").collect();
    assert_eq!(listed.iter().collect::<Vec<_>>(), expected);
}

/// A client that lists tools once can find those of a server that was never there before.
#[tokio::test]
async fn a_list_that_lacks_a_starting_server_has_the_tools_that_find_others() {
    let gate = Gate::default();
    let config =
        "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n[discovery]\nembedding = \"off\"\n";
    let few = ["--bare", "--tool", &tool("runs")];
    let config =
        config.to_owned() + &entry("late", &gate.fixture(&few), "") + &server("calm", &few, "");
    let kernel = Kernel::with_config(&config).await;
    kernel.connected(&["calm"]).await;
    let mut agent = anybody(&kernel).await;
    let starting = names(&mut agent).await;
    assert!(starting.contains(&"calm__run".into()), "{starting:?}");
    assert!(
        starting.contains(&"mgp_tools_discover".into()),
        "{starting:?}"
    );
    gate.open();
    kernel.connected(&["late"]).await;
    let whole = names(&mut agent).await;
    assert!(whole.contains(&"late__run".into()), "{whole:?}");
    assert!(!whole.contains(&"mgp_tools_discover".into()), "{whole:?}");
}

/// A kernel that a client starts with few variables gives its servers those of the user, without what opens a proxy;
/// the doctor says which, and what differs from its shell.
#[tokio::test]
async fn servers_have_the_variables_of_the_user_after_a_bare_start() {
    let servers = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n".to_owned()
        + &server("calm", &[], "inherit_env = [\"HTTPS_PROXY\", \"SECRET\"]");
    let user = [
        ("SHELL", "/bin/sh"),
        ("LANG", "C.UTF-8"),
        ("TZ", "Europe/Berlin"),
        ("SECRET", "s3cret"),
        ("HTTPS_PROXY", "http://me:s3cret@127.0.0.1:9"),
    ];
    let kernel = Kernel::with_environment(&servers, &user).await;
    kernel.connected(&["calm"]).await;
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let stored = std::fs::read_to_string(folder.path().join("data/environment.json")).unwrap();
    assert!(!stored.contains("s3cret"), "{stored}");

    let bare = "env -u SHELL -u LANG -u TZ -u SECRET -u HTTPS_PROXY -u https_proxy -u LC_ALL";
    let program = Program::ours("mgp", [""; 0]).command;
    let bare: Vec<&str> = bare.split(' ').chain([&*program]).collect();
    let kernel = Kernel::behind(&bare, folder, &servers, &[]).await;
    kernel.connected(&["calm"]).await;
    let seen = told(&owner(&kernel).await.call("calm__env", json!({})).await);
    assert_eq!(seen["TZ"], "Europe/Berlin");
    assert_eq!(seen["LANG"], "C.UTF-8");
    assert_eq!(seen["HTTPS_PROXY"], "http://127.0.0.1:9");
    assert_eq!(seen["SECRET"], Value::Null);

    let socket = kernel.socket().display().to_string();
    let doctor = Program::ours("mgp", ["doctor", "--socket", &socket]).env("TZ", "Asia/Tokyo");
    let told = doctor.output(DEADLINE).await.stdout;
    let told = String::from_utf8_lossy(&told);
    if system::is_weaker("environment").await {
        assert!(!told.contains("from an earlier start"), "{told}");
        return;
    }
    assert!(told.contains("has them from an earlier start"), "{told}");
    let differs = told.lines().find(|line| line.contains("other values of"));
    assert!(differs.is_some_and(|line| line.contains("TZ")), "{told}");
}
