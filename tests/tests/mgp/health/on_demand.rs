//! Servers on demand: a call starts them, and they are stopped when nobody uses them.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use mgp_tests::harness::handshake::FULL;
use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::mgp::declaration;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::health::{NEWEST, owner, server, shown, speaker};

/// Stopped a second after its last use.
const BRIEF: &str = "start = \"on-demand\"\nidle_stop_secs = 1";

/// A scripted server that counts its starts, and fails to start while there is a file `broken`.
struct Counted {
    folder: TempDir,
}

impl Counted {
    fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Its entry, `it`, with these keys.
    fn entry(&self, flags: &[&str], keys: &str) -> String {
        let fixture = Program::fixture(flags);
        let folder = self.folder.path().display();
        let script = format!(
            "echo x >> {folder}/starts; if [ -e {folder}/broken ]; then exit 3; fi; exec \"$0\" \"$@\""
        );
        let mut args = vec!["-c".to_owned(), script, fixture.command];
        args.extend(fixture.args);
        let entry = Program::new("sh", args).entry("it");
        format!("{}\n{keys}\n", entry.trim_end())
    }

    fn starts(&self) -> usize {
        let text = std::fs::read_to_string(self.path("starts"));
        text.unwrap_or_default().lines().count()
    }
}

async fn wait_asleep(owner: &mut Agent, id: &str) -> Value {
    let mut server = Value::Null;
    wait_until(&format!("{id} sleeps"), DEADLINE, async || {
        server = shown(owner, id).await;
        server["sleeping"] == true
    })
    .await;
    server
}

async fn agent(kernel: &Kernel) -> Agent {
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, FULL).await.result();
    agent
}

async fn names(agent: &mut Agent, method: &str, list: &str, key: &str) -> Vec<String> {
    let listed = agent.request(method, json!({})).await.result();
    let items = listed[list].as_array().unwrap().iter();
    items
        .map(|item| item[key].as_str().unwrap().to_owned())
        .collect()
}

/// What is offered, of every kind.
async fn offered(agent: &mut Agent) -> [Vec<String>; 4] {
    [
        names(agent, "tools/list", "tools", "name").await,
        names(agent, "prompts/list", "prompts", "name").await,
        names(agent, "resources/list", "resources", "uri").await,
        names(
            agent,
            "resources/templates/list",
            "resourceTemplates",
            "uriTemplate",
        )
        .await,
    ]
}

/// PRJ-015, PRJ-016: it runs once for its lists; after that they are there without a process, also after a restart of
/// the kernel, and can be called.
#[tokio::test]
async fn lists_of_a_sleeping_server_survive_a_restart_of_the_kernel() {
    let it = Counted::new();
    let kernel = Kernel::start(&it.entry(&[], BRIEF)).await;
    let mut operator = owner(&kernel).await;
    wait_asleep(&mut operator, "it").await;
    let before = offered(&mut agent(&kernel).await).await;
    assert!(
        before[0].iter().any(|name| name == "it__echo"),
        "{before:?}"
    );
    assert!(before.iter().all(|list| !list.is_empty()), "{before:?}");
    drop(operator);
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    let mut agent = agent(&kernel).await;
    assert_eq!(offered(&mut agent).await, before);
    let mut operator = owner(&kernel).await;
    let server = wait_asleep(&mut operator, "it").await;
    assert_eq!(server["state"], "registered");
    assert!(server["tools"].as_u64().unwrap() > 0 && server["pid"].is_null());
    assert_eq!(it.starts(), 1, "no list starts it");
    let said = agent.call("it__echo", json!({"text": "hello"})).await;
    assert!(said.text().contains("hello"), "{}", said.text());
    assert_eq!(it.starts(), 2);
}

/// PRJ-017: every kind of request wakes it, at every endpoint.
#[tokio::test]
async fn every_kind_of_request_starts_a_sleeping_server() {
    let it = Counted::new();
    let kernel = Kernel::start(&it.entry(&[], BRIEF)).await;
    let mut operator = owner(&kernel).await;
    let mut starts = 1;
    let reference = json!({"type": "ref/prompt", "name": "it__test_prompt_with_arguments"});
    for (method, params) in [
        (
            "tools/call",
            json!({"name": "it__echo", "arguments": {"text": "x"}}),
        ),
        ("prompts/get", json!({"name": "it__test_simple_prompt"})),
        ("resources/read", json!({"uri": "test://static-text"})),
        (
            "completion/complete",
            json!({"ref": reference, "argument": {"name": "arg1", "value": "a"}}),
        ),
    ] {
        let mut agent = agent(&kernel).await;
        wait_asleep(&mut operator, "it").await;
        assert_eq!(it.starts(), starts);
        agent.request(method, params).await.result();
        starts += 1;
        assert_eq!(it.starts(), starts, "{method}");
    }
    for mut agent in [
        kernel.http_agent(Some("it")),
        kernel.stdio_agent(Some("it")),
    ] {
        agent.initialize(NEWEST, FULL).await.result();
        wait_asleep(&mut operator, "it").await;
        agent.call("echo", json!({"text": "x"})).await.result();
        starts += 1;
        assert_eq!(it.starts(), starts);
    }
    let mut agent = agent(&kernel).await;
    wait_asleep(&mut operator, "it").await;
    let uri = json!({"uri": "test://watched-resource"});
    agent.request("resources/subscribe", uri).await.result();
    wait_until("the subscription starts it", DEADLINE, async || {
        it.starts() == starts + 1
    })
    .await;
}

/// PRJ-017: its tools stay shared while it sleeps, and a call over the link starts it.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_another_node_starts_a_sleeping_server() {
    let it = Counted::new();
    let keys = "start = \"on-demand\"\nidle_stop_secs = 3";
    let JoinedNodes { nas, desk } = JoinedNodes::sharing(&it.entry(&[], keys), &["it"]).await;
    let mut operator = owner(&nas).await;
    wait_asleep(&mut operator, "it").await;
    let mut agent = agent(&desk).await;
    wait_until("its tools are shared", DEADLINE, async || {
        let listed = names(&mut agent, "tools/list", "tools", "name").await;
        listed.iter().any(|name| name == "nas__it__echo")
    })
    .await;
    let starts = it.starts();
    let said = agent.call("nas__it__echo", json!({"text": "hello"})).await;
    assert!(said.text().contains("hello"), "{}", said.text());
    assert_eq!(it.starts(), starts + 1);
}

/// PRJ-017: calls that come at once start it once, and each is answered once.
#[tokio::test]
async fn twenty_calls_at_once_start_a_sleeping_server_once() {
    let it = Counted::new();
    let kernel = Kernel::start(&it.entry(&["--slow-start", "300"], BRIEF)).await;
    let mut operator = owner(&kernel).await;
    let mut agent = agent(&kernel).await;
    wait_asleep(&mut operator, "it").await;
    let mut calls = Vec::new();
    for n in 0..20 {
        let call = json!({"name": "it__echo", "arguments": {"text": format!("call {n}")}});
        calls.push(agent.start("tools/call", call).await);
    }
    for (n, id) in calls.iter().enumerate() {
        let said = agent.answer_to(id).await.text();
        assert!(said.contains(&format!("call {n}")), "{said}");
    }
    assert_eq!(it.starts(), 2);
}

/// PRJ-017: a caller that gave a token learns that its call waits for a start.
#[tokio::test]
async fn a_start_is_reported_as_progress_to_its_caller() {
    let it = Counted::new();
    let kernel = Kernel::start(&it.entry(&["--slow-start", "2500"], BRIEF)).await;
    let mut operator = owner(&kernel).await;
    for mut agent in [kernel.http_agent(None), kernel.stdio_agent(None)] {
        agent.initialize(NEWEST, FULL).await.result();
        wait_asleep(&mut operator, "it").await;
        let call = json!({
            "name": "it__echo", "arguments": {"text": "x"}, "_meta": {"progressToken": "mine"},
        });
        agent.request("tools/call", call).await.result();
        let told = agent.heard("notifications/progress");
        assert!(told.len() > 1, "{told:?}");
        let steps = told.iter().map(|told| &told["params"]);
        for step in steps.clone() {
            assert_eq!(step["progressToken"], "mine");
            let words = step["message"].as_str().unwrap();
            assert!(words.starts_with("starting it: "), "{words}");
        }
        let steps: Vec<f64> = steps
            .map(|step| step["progress"].as_f64().unwrap())
            .collect();
        assert!(steps.is_sorted_by(|a, b| a < b), "{steps:?}");
    }
}

/// EXT-207: first starts are spaced: of many servers few start at once for their lists. One that is called does not wait
/// for them.
#[tokio::test]
async fn first_starts_are_spaced_and_a_call_goes_first() {
    let folder = TempDir::new().unwrap();
    let at = folder.path().display();
    let (log, gate) = (folder.path().join("log"), folder.path().join("gate"));
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fixture = Program::fixture(&[]);
    let script =
        format!("echo + >> {at}/log; cat {at}/gate; echo - >> {at}/log; exec \"$0\" \"$@\"");
    let slow = |n: usize| {
        let args = [
            vec!["-c".to_owned(), script.clone(), fixture.command.clone()],
            fixture.args.clone(),
        ];
        let entry = Program::new("sh", args.concat()).entry(&format!("slow{n:02}"));
        format!("{}\n{BRIEF}\n", entry.trim_end())
    };
    let servers: String = (0..12).map(slow).collect();
    let kernel = Kernel::start(&format!("{servers}{}", server("last", &[], BRIEF))).await;
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let begun = || read().lines().filter(|line| *line == "+").count();
    wait_until("four start", DEADLINE, async || begun() >= 4).await;
    let mut agent = agent(&kernel).await;
    let said = agent.call("last__echo", json!({"text": "hello"})).await;
    assert!(said.text().contains("hello"), "{}", said.text());
    // Whoever reads the gate goes on when it is opened and closed, the next ones then.
    let opening = gate.clone();
    let opened = std::thread::spawn(move || {
        while std::fs::OpenOptions::new()
            .write(true)
            .open(&opening)
            .is_ok()
        {}
    });
    wait_until("all have started", DEADLINE, async || {
        read().lines().filter(|line| *line == "-").count() == 12
    })
    .await;
    let mut most = 0;
    read().lines().fold(0_i32, |now, line| {
        let now = now + if line == "+" { 1 } else { -1 };
        most = most.max(now);
        now
    });
    assert_eq!(most, 4, "{}", read());
    // The opener may wait for a reader; after that the gate has another name.
    let moved = folder.path().join("moved");
    std::fs::rename(&gate, &moved).unwrap();
    let mut reading = std::fs::OpenOptions::new();
    reading.read(true).custom_flags(nix::libc::O_NONBLOCK);
    let _reader = reading.open(&moved).unwrap();
    opened.join().unwrap();
}

/// EXT-208: a subscription to events wakes no server. With a standard pattern it follows one that sleeps from its next start
/// on, which a call causes, and the server then runs as long as it is followed.
#[tokio::test]
async fn an_event_subscription_wakes_no_server() {
    let declared = declaration(&["events"]).to_string();
    let flags = [
        "--mgp",
        &declared,
        "--mgp-events",
        "model.token_usage,acme.x",
    ];
    let it = Counted::new();
    let kernel = Kernel::start(&it.entry(&flags, BRIEF)).await;
    let mut operator = owner(&kernel).await;
    wait_asleep(&mut operator, "it").await;
    let mut agent = speaker(&kernel, &["events"]).await;
    let channels = json!({"channels": ["model.*", "acme.x"]});
    let subscribed = agent
        .request("mgp/events/subscribe", channels)
        .await
        .result();
    // Which channels it has is known while it runs.
    assert_eq!(subscribed["subscribed"], json!(["model.*"]));
    assert_eq!(subscribed["unsupported"], json!(["acme.x"]));
    let server = shown(&mut operator, "it").await;
    assert_eq!((&server["sleeping"], it.starts()), (&json!(true), 1));
    let event = json!({"channel": "model.token_usage", "data": 7});
    wait_until("its events arrive", DEADLINE, async || {
        operator.call("it__tell", event.clone()).await.result();
        agent.request("ping", json!({})).await.result();
        !agent.heard("notifications/mgp.event").is_empty()
    })
    .await;
    assert_eq!(it.starts(), 2);
    let ended = json!({"subscription_id": subscribed["subscription_id"]});
    agent
        .request("mgp/events/unsubscribe", ended)
        .await
        .result();
    wait_asleep(&mut operator, "it").await;
    assert_eq!(it.starts(), 2, "it ran as long as it was followed");
}

/// PRJ-018: while something is open it stays, however long: a call, a question, a subscription.
#[tokio::test]
async fn a_server_in_use_is_not_stopped() {
    let servers = ["calls", "asks", "follows", "idles"]
        .map(|id| server(id, &["--era", "legacy"], BRIEF))
        .concat();
    let kernel = Kernel::start(&servers).await;
    let mut operator = owner(&kernel).await;
    for id in ["calls", "asks", "follows", "idles"] {
        wait_asleep(&mut operator, id).await;
    }
    let mut agent = agent(&kernel).await;
    agent.leave_unanswered("elicitation/create");
    let hang = json!({"name": "calls__hang", "arguments": {}});
    let _hangs = agent.start("tools/call", hang).await;
    let ask = json!({"name": "asks__test_elicitation", "arguments": {"message": "well?"}});
    let asked = agent.start("tools/call", ask).await;
    let question = agent.wait_for_request("elicitation/create", 1).await;
    let uri = json!({"uri": "mcpk://follows/test%3A%2F%2Fwatched-resource"});
    agent.request("resources/subscribe", uri).await;
    agent
        .call("idles__echo", json!({"text": "x"}))
        .await
        .result();
    // What idles as long as the others are in use sleeps, twice.
    for _ in 0..2 {
        wait_asleep(&mut operator, "idles").await;
        agent
            .call("idles__echo", json!({"text": "x"}))
            .await
            .result();
    }
    wait_asleep(&mut operator, "idles").await;
    for id in ["calls", "asks", "follows"] {
        let server = shown(&mut operator, id).await;
        assert_eq!(server["state"], "connected", "{server}");
    }
    agent.reply(&question, json!({"action": "decline"})).await;
    agent.answer_to(&asked).await.result();
    wait_asleep(&mut operator, "asks").await;
}

/// PRJ-019: one that has state is not stopped, unless its operator gave it a time.
#[tokio::test]
async fn a_stateful_server_is_stopped_only_by_its_operators_word() {
    let brief = "[limits]\nidle_stop_secs = 1\n";
    let servers = [
        server("keeps", &[], "start = \"on-demand\"\nstateful = true"),
        server("never", &[], "start = \"on-demand\"\nidle_stop_secs = 0"),
        server("ordered", &[], &format!("{BRIEF}\nstateful = true")),
        server("plain", &[], "start = \"on-demand\""),
    ]
    .concat();
    let kernel = Kernel::start(&format!("{brief}{servers}")).await;
    let mut operator = owner(&kernel).await;
    kernel.connected(&["keeps", "never"]).await;
    let mut agent = agent(&kernel).await;
    for id in ["keeps", "never", "ordered", "plain"] {
        let echo = format!("{id}__echo");
        agent.call(&echo, json!({"text": "x"})).await.result();
    }
    for _ in 0..2 {
        wait_asleep(&mut operator, "ordered").await;
        wait_asleep(&mut operator, "plain").await;
        agent
            .call("plain__echo", json!({"text": "x"}))
            .await
            .result();
    }
    wait_asleep(&mut operator, "plain").await;
    for id in ["keeps", "never"] {
        let server = shown(&mut operator, id).await;
        assert_eq!(server["state"], "connected", "{server}");
    }
}

/// PRJ-020: a call that starts a server which fails gets the reason, and the next call tries again.
#[tokio::test]
async fn a_failed_start_is_the_answer_of_its_call() {
    let it = Counted::new();
    let kernel = Kernel::start(&it.entry(&[], BRIEF)).await;
    let mut operator = owner(&kernel).await;
    let mut agent = agent(&kernel).await;
    wait_asleep(&mut operator, "it").await;
    std::fs::write(it.path("broken"), "").unwrap();
    let echo = json!({"text": "x"});
    let begun = Instant::now();
    let refused = agent.call("it__echo", echo.clone()).await.error();
    let words = refused["message"].as_str().unwrap();
    assert!(words.contains("exited with code 3"), "{words}");
    assert!(
        begun.elapsed() < Duration::from_secs(9),
        "it waits for no retry"
    );
    let server = shown(&mut operator, "it").await;
    assert_eq!((&server["state"], it.starts()), (&json!("error"), 2));
    let listed = names(&mut agent, "tools/list", "tools", "name").await;
    assert!(listed.iter().any(|name| name == "it__echo"));
    std::fs::remove_file(it.path("broken")).unwrap();
    agent.call("it__echo", echo).await.result();
    assert_eq!(it.starts(), 3);
}

/// PRJ-021: people read how many sleep, and health counts them as well.
#[tokio::test]
async fn sleeping_servers_are_shown_and_count_as_healthy() {
    let it = Counted::new();
    let kernel = Kernel::start(&it.entry(&[], BRIEF)).await;
    let mut operator = owner(&kernel).await;
    wait_asleep(&mut operator, "it").await;
    let health = operator.request("mgp/health/status", json!({})).await;
    let health = health.result();
    assert_eq!(health["status"], "healthy");
    assert_eq!(health["checks"]["it"], true);
    assert_eq!(health["tools_available"], health["tools_total"]);
    let status = kernel.mgp(&["status"]).await;
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(
        status.contains("1 server, 0 running, 1 sleeping"),
        "{status}"
    );
    let doctor = kernel.mgp(&["doctor"]).await;
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("1 of them sleeping"), "{doctor}");
}

/// PRJ-022: imported servers start on demand, and only those that are known to have no state are stopped after a call.
#[tokio::test]
async fn imported_servers_start_on_demand() {
    let kernel = Kernel::start("").await;
    let file = kernel.folder().join("claude_desktop_config.json");
    let servers = json!({"mcpServers": {
        "context7": {"command": "npx", "args": ["-y", "@upstash/context7-mcp"]},
        "browser": {"command": "npx", "args": ["@playwright/mcp@latest"]},
        "off": {"command": "npx", "args": ["off"], "disabled": true},
    }});
    std::fs::write(&file, servers.to_string()).unwrap();
    let file = file.display().to_string();
    let shown = async |more: &[&str]| {
        let import = [&["import", &file, "--dry-run"], more].concat();
        let shown = kernel.mgp(&import).await;
        String::from_utf8(shown.stdout).unwrap()
    };
    let text = shown(&["--only", "context7"]).await;
    assert!(text.contains("start = \"on-demand\""), "{text}");
    assert!(!text.contains("idle_stop_secs"), "{text}");
    let text = shown(&["--only", "browser"]).await;
    assert!(text.contains("start = \"on-demand\""), "{text}");
    assert!(text.contains("idle_stop_secs = 0"), "{text}");
    let text = shown(&["--only", "browser", "--idle-stop"]).await;
    assert!(!text.contains("idle_stop_secs"), "{text}");
}

/// A small server for Node, in the older version of the protocol.
const NODE_SERVER: &str = r#"
const lines = require('readline').createInterface({ input: process.stdin });
const tool = { name: 'hi', inputSchema: { type: 'object' } };
const results = {
  'initialize': { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'n', version: '1' } },
  'tools/list': { tools: [tool] },
  'tools/call': { content: [{ type: 'text', text: 'hi' }] },
  'ping': {},
};
lines.on('line', (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const result = results[method];
  const answer = result ? { result } : { error: { code: -32601, message: 'no such method' } };
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, ...answer }) + '\n');
});
"#;

/// The time from the start of the server to the answer of its first call, without a kernel.
async fn own_start(script: &Path) -> Duration {
    let begun = Instant::now();
    let program = Program::new("node", [script.display().to_string()]);
    let mut agent = Agent::over_stdio(&program);
    agent.initialize("2025-06-18", "{}").await.result();
    agent.request("tools/list", json!({})).await.result();
    agent.call("hi", json!({})).await.result();
    begun.elapsed()
}

/// PRJ-023: the first call of a sleeping Node server takes at most 100 ms more than the server's own start.
#[tokio::test]
async fn the_first_call_of_a_sleeping_node_server_adds_at_most_100_ms() {
    let node = std::process::Command::new("node").arg("--version").output();
    if node.is_err() {
        eprintln!("skipped: there is no node");
        return;
    }
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("server.js");
    std::fs::write(&script, NODE_SERVER).unwrap();
    let entry = Program::new("node", [script.display().to_string()]).entry("it");
    let kernel = Kernel::start(&format!("{}\n{BRIEF}\n", entry.trim_end())).await;
    let mut operator = owner(&kernel).await;
    let mut agent = agent(&kernel).await;
    let (mut alone, mut asleep) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        wait_asleep(&mut operator, "it").await;
        alone.push(own_start(&script).await);
        let begun = Instant::now();
        agent.call("it__hi", json!({})).await.result();
        asleep.push(begun.elapsed());
    }
    alone.sort();
    asleep.sort();
    eprintln!("own start {alone:?}, first call of a sleeping server {asleep:?}");
    assert!(asleep[0] <= alone[0] + Duration::from_millis(100));
}
