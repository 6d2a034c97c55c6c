//! `mgp version`: what this is, and whether a release index on loopback has a newer one.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Output;
use std::sync::mpsc;
use std::thread;

use mgp_tests::harness::{DEADLINE, Program};
use serde_json::{Value, json};

/// An index that answers with this text until the test ends, and says what it is asked.
fn serve(body: String) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/latest.json", listener.local_addr().unwrap());
    let (asked, asks) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let _ = asked.send(head[0].clone());
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = (&stream).write_all((head + &body).as_bytes());
        }
    });
    (url, asks)
}

async fn mgp(config: &str, args: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mgp.toml");
    std::fs::write(&file, config).unwrap();
    let program = Program::ours("mgp", args.iter().copied());
    let program = program.arg("--config").arg(file.display().to_string());
    let home = home.path().display().to_string();
    program.env("HOME", home).output(DEADLINE).await
}

/// PRJ-043: a newer release is found at the configured address, and nothing is asked without one.
#[tokio::test]
async fn newer_release_is_found_at_the_configured_address() {
    let own = env!("CARGO_PKG_VERSION");
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(text(&mgp("", &["version"]).await), format!("mgp {own}\n"));
    let without = mgp("", &["version", "--check"]).await;
    let told = String::from_utf8(without.stderr).unwrap();
    assert!(
        !without.status.success() && told.contains("`url` in [updates]"),
        "{told}"
    );
    let far = mgp(
        "[updates]\nurl = \"http://a.example/latest.json\"\n",
        &["version", "--check"],
    )
    .await;
    assert!(
        String::from_utf8(far.stderr)
            .unwrap()
            .contains("with https")
    );
    let index =
        |version: &str| json!({"version": version, "url": "https://a.example/\u{1b}[2Jnotes"});
    for (newest, newer) in [("999.0.0", true), (own, false), ("0.0.1", false)] {
        let (url, asks) = serve(index(newest).to_string());
        let config = format!("[updates]\nurl = \"{url}\"\n");
        // Nothing else asks.
        mgp(&config, &["version"]).await;
        let said = text(&mgp(&config, &["version", "--check"]).await);
        assert_eq!(
            said.contains("999.0.0 is there: https://a.example/"),
            newer,
            "{said}"
        );
        assert_eq!(said.contains("is the newest version"), !newer, "{said}");
        assert!(!said.contains('\u{1b}'), "{said}");
        let json = text(&mgp(&config, &["version", "--check", "--json"]).await);
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&json["newer"], &json["version"]),
            (&json!(newer), &json!(own))
        );
        assert_eq!(asks.try_iter().count(), 2);
    }
    for odd in ["{}", "[]", r#"{"version": "newest"}"#, "<html>"] {
        let (url, _asks) = serve(odd.to_owned());
        let config = format!("[updates]\nurl = \"{url}\"\n");
        let refused = mgp(&config, &["version", "--check"]).await;
        assert_eq!(refused.status.code(), Some(1), "{odd}: {refused:?}");
    }
}
