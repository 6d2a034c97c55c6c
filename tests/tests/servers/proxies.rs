//! Servers behind a proxy that looks into https, as those of companies do: everything that goes out of the kernel
//! and the command line goes through it, and nothing that stays on this machine.

mod scripted_proxy;

use std::fs;

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{DEADLINE, Kernel, Upstream, wait_until};
use serde_json::json;
use tempfile::TempDir;

use self::scripted_proxy::ScriptedProxy;

/// Each of those that go out, with the login of the proxy, and nobody else.
fn what_the_proxy_was_asked(proxy: &ScriptedProxy) {
    let asked = proxy.asked();
    let has = |line: &str| asked.iter().any(|asked| asked == line);
    for line in [
        "CONNECT guarded.test:443",
        "guarded.test GET /.well-known/oauth-protected-resource/mcp",
        "guarded.test POST /token",
        "guarded.test POST /mcp",
        "POST http://plain.test/mcp",
        "CONNECT registry.test:443",
        "CONNECT refused.test:443",
    ] {
        assert!(has(line), "{line}: {asked:#?}");
    }
    let other = |line: &&String| line.contains("127.0.0.1") || line.contains("direct.test");
    assert_eq!(asked.iter().find(other), None);
    // Every request to the proxy had its login, and no request through it.
    assert_eq!(proxy.strangers(), [""; 0]);
}

/// Decision 0058: calls, metadata, tokens and the registry go through the proxy of the configuration, with an
/// authority of its own; loopback and what is excepted do not; a refusal of the proxy is the reason; its password
/// is nowhere.
#[tokio::test]
async fn everything_that_goes_out_goes_through_the_proxy() {
    let upstream = Upstream::start(&[]).await;
    let proxy = ScriptedProxy::start(upstream.port()).await;
    let home = TempDir::new().unwrap();
    let ca = home.path().join("ca.pem");
    fs::write(&ca, &proxy.authority).unwrap();
    let login = "[servers.login]\ngrant = \"client_credentials\"\nclient_id = \"us\"\nclient_secret = \"s3cr3t-of-us\"\n";
    let entries = [
        remote_entry("guarded", "https://guarded.test/mcp") + login,
        remote_entry("plain", "http://plain.test/mcp"),
        remote_entry("own", &upstream.url()),
        remote_entry("refused", "https://refused.test/mcp"),
        remote_entry("direct", "http://direct.test/mcp"),
    ];
    let config = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n[network]\nproxy = \"http://ada:${{PROXY_PASSWORD}}@{}\"\n\
         no_proxy = [\"direct.test\"]\nca_file = {ca:?}\n{}",
        proxy.at,
        entries.concat()
    );
    let folder = home.path().display().to_string();
    let variables = [
        ("HOME", folder.as_str()),
        ("XDG_CONFIG_HOME", folder.as_str()),
        ("PROXY_PASSWORD", "hush-hush"),
        // What is written goes before what the shell has.
        ("HTTPS_PROXY", "http://127.0.0.1:1"),
    ];
    let kernel = Kernel::with_environment(&config, &variables).await;
    kernel.connected(&["guarded", "plain", "own"]).await;
    for id in ["guarded", "plain", "own"] {
        let mut agent = kernel.http_agent(Some(id));
        agent.initialize("2025-11-25", "{}").await.result();
        let called = agent.call("echo", json!({"text": id})).await;
        assert!(!called.is_error(), "{id}: {}", called.frame);
    }
    let reason = async |id: &str| {
        let status = kernel.mgp_json(&["status"]).await;
        let servers = status["servers"].as_array().unwrap().clone();
        let server = servers.into_iter().find(|server| server["id"] == id);
        server.unwrap()["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let shown = format!("http://***@{}", proxy.at);
    wait_until("the proxy's refusal is the reason", DEADLINE, async || {
        let told = format!(
            "the proxy {shown} is of no use: it gives no way to refused.test:443 (HTTP 403)"
        );
        reason("refused").await.contains(&told)
    })
    .await;
    wait_until("what is excepted is looked up here", DEADLINE, async || {
        reason("direct")
            .await
            .contains("the host name of direct.test:80 could not be resolved")
    })
    .await;

    let run = async |args: &[&str]| {
        let program = kernel.program(args);
        let program = variables
            .iter()
            .fold(program, |program, (name, value)| program.env(name, *value));
        let output = program.output(DEADLINE).await;
        String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
    };
    let found = run(&[
        "servers",
        "search",
        "weather",
        "--registry",
        "https://registry.test",
    ])
    .await;
    assert!(found.contains("io.github.acme/weather"), "{found}");
    let doctor = run(&["doctor"]).await;
    let line = format!("network: http and https goes through {shown}, which answers");
    assert!(doctor.contains(&line), "{doctor}");
    assert!(doctor.contains("ca.pem count, too"), "{doctor}");

    what_the_proxy_was_asked(&proxy);
    let said = [
        run(&["status", "--json"]).await,
        run(&["audit", "tail", "--json"]).await,
        run(&["servers", "logs", "refused"]).await,
        doctor,
    ];
    for text in said {
        assert!(!text.contains("hush-hush"), "{text}");
    }
}
