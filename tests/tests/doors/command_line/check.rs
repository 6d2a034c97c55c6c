//! `mgp check`: what is ready, what waits for whom, and what is wrong, by exit codes.

use mgp_tests::harness::{DEADLINE, Kernel, Program, wait_until};
use serde_json::Value;

async fn check(kernel: &Kernel, args: &[&str]) -> (i32, Value) {
    let output = kernel.mgp(&[&["check", "--json"], args].concat()).await;
    let checked: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (output.status.code().unwrap(), checked)
}

/// The worst check.
fn first(checked: &Value) -> (&str, &str) {
    let first = &checked["checks"][0];
    (
        first["readiness"].as_str().unwrap(),
        first["command"].as_str().unwrap_or_default(),
    )
}

/// EXT-150
#[tokio::test]
async fn check_tells_what_waits_for_time_from_what_waits_for_a_person() {
    let servers = Program::fixture(&[]).entry("it") + &Program::fixture(&[]).entry("other");
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["it", "other"]).await;
    let (code, ready) = check(&kernel, &[]).await;
    assert_eq!(
        (code, &ready["readiness"]),
        (0, &Value::from("ready")),
        "{ready}"
    );
    kernel.mgp(&["agents", "add", "nightly"]).await;
    let nightly = ["--agent", "nightly", "--tool", "it:echo"];
    let (code, ready) = check(&kernel, &nightly).await;
    assert_eq!(code, 0, "{ready}");

    let deny = ["grants", "add", "nightly", "it:echo", "--deny"];
    kernel.mgp(&deny).await;
    let (code, blocked) = check(&kernel, &nightly).await;
    assert_eq!(code, 77, "{blocked}");
    let explained = "mgp explain agent.nightly it:echo";
    assert_eq!(first(&blocked), ("blocked", explained));
    // What was not asked for may be denied.
    kernel
        .mgp(&["grants", "add", "nightly", "it", "--deny"])
        .await;
    let (code, others) = check(&kernel, &["--agent", "nightly"]).await;
    assert_eq!(code, 0, "{others}");

    for args in [
        &["--tool", "it:ecko"][..],
        &["--tool", "elsewhere:echo"],
        &["--agent", "nightli"],
    ] {
        let (code, wrong) = check(&kernel, args).await;
        assert_eq!(code, 78, "{args:?}: {wrong}");
        assert_eq!(first(&wrong).0, "misconfigured", "{wrong}");
    }

    kernel.mgp(&["servers", "stop", "other"]).await;
    let (code, stopped) = check(&kernel, &["--tool", "other"]).await;
    assert_eq!(code, 77, "{stopped}");
    assert_eq!(first(&stopped).1, "mgp servers start other");
    let (code, elsewhere) = check(&kernel, &["--tool", "it"]).await;
    assert_eq!(code, 0, "only what was asked for: {elsewhere}");
}

#[tokio::test]
async fn check_tells_a_server_that_does_not_start_from_one_that_starts_again() {
    let gone =
        "[[servers]]\nid = \"gone\"\ncommand = \"no-such-program\"\nrestart_policy = \"never\"\n";
    let kernel = Kernel::start(&format!("{gone}{}", Program::fixture(&[]).entry("it"))).await;
    kernel.connected(&["it"]).await;
    wait_until("the server is given up", DEADLINE, async || {
        check(&kernel, &[]).await.0 == 78
    })
    .await;
    let (code, other) = check(&kernel, &["--tool", "it:echo"]).await;
    assert_eq!(code, 0, "another server is none of this tool: {other}");
    let text = kernel.mgp(&["check"]).await;
    let text = String::from_utf8(text.stdout).unwrap();
    let worst = text.lines().next().unwrap();
    assert!(
        worst.starts_with("misconfigured  gone: error")
            && worst.ends_with("→ mgp servers logs gone"),
        "{text}"
    );
    assert!(text.lines().any(|line| line.starts_with("ready")), "{text}");
    let socket = kernel.folder().join("nowhere.sock");
    let none = Program::ours("mgp", ["check", "--socket", &socket.display().to_string()]);
    assert_eq!(none.output(DEADLINE).await.status.code(), Some(3));
}
