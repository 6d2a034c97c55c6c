//! The scenarios of authorization: the kernel stands before a server that wants a login, and a person types
//! `mgp logins add` when the kernel says so, and as often as it says so.

use http::Method;
use http::header::LOCATION;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Era;
use crate::harness::envelope::MODERN;
use crate::harness::program::remote_entry;
use crate::harness::{Client, DEADLINE, HttpClient, Kernel, Process, wait_until};

/// Logins of one scenario at most; more than any asks for.
const MOST: usize = 4;

/// Plays one of them, by its name without `auth/`.
///
/// # Panics
/// When a login or a call does not come about. Some scenarios want that.
pub(super) async fn play(name: &str, context: &Value, era: Era, url: &str) {
    let home = TempDir::new().expect("a temporary folder");
    let folder = home.path().display().to_string();
    let variables = [
        ("HOME", folder.as_str()),
        ("XDG_CONFIG_HOME", folder.as_str()),
    ];
    let door = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n";
    let config = format!("{door}{}{}", remote_entry("it", url), keys(name, context));
    let kernel = Kernel::with_environment(&config, &variables).await;
    for login in 0..=MOST {
        settled(&kernel).await;
        if calls(&kernel, era).await {
            return;
        }
        let server = server(&kernel).await;
        let why = server["login"]["why"].as_str().unwrap_or_default();
        assert!(
            why.contains("`mgp logins add it`"),
            "no login helps: {server:#}"
        );
        assert!(
            login < MOST,
            "one login after the other is wanted: {server:#}"
        );
        log_in(&kernel, &variables).await;
    }
}

/// What a person has written into the entry, for the scenarios that need more than an address.
fn keys(name: &str, context: &Value) -> String {
    let text = |key: &str| context[key].as_str().unwrap_or_default().to_owned();
    let mut keys = toml::Table::new();
    let mut set = |key: &str, value: String| keys.insert(key.to_owned(), value.into());
    match name {
        "basic-cimd" => {
            set(
                "client_id",
                "https://conformance-test.local/client-metadata.json".to_owned(),
            );
        }
        "pre-registration" => {
            set("client_id", text("client_id"));
            set("client_secret", text("client_secret"));
            set("issuer", text("issuer"));
        }
        "client-credentials-basic" => {
            set("grant", "client_credentials".to_owned());
            set("client_id", text("client_id"));
            set("client_secret", text("client_secret"));
        }
        "client-credentials-jwt" => {
            set("grant", "client_credentials".to_owned());
            set("client_id", text("client_id"));
            set("client_key", text("private_key_pem"));
        }
        "wif-jwt-bearer" => {
            set("grant", "assertion".to_owned());
            set("client_id", text("client_id"));
            set("assertion", text("valid_jwt"));
        }
        "enterprise-managed-authorization" => {
            set("grant", "exchange".to_owned());
            set("client_id", text("client_id"));
            set("client_secret", text("client_secret"));
            set("assertion", text("idp_id_token"));
            set("exchange_at", text("idp_token_endpoint"));
            set("exchange_client_id", text("idp_client_id"));
        }
        _ => return String::new(),
    }
    format!("[servers.login]\n{keys}\n")
}

/// The server as the operator sees it.
async fn server(kernel: &Kernel) -> Value {
    let status = kernel.mgp_json(&["status"]).await;
    status["servers"][0].clone()
}

/// Waits until it is connected and its lists are known, or it is parked.
async fn settled(kernel: &Kernel) {
    wait_until("the server has settled", DEADLINE, async || {
        let server = server(kernel).await;
        let listed = server["tools"].as_u64() > Some(0)
            || server["left_out"]
                .as_array()
                .is_some_and(|all| !all.is_empty());
        match server["state"].as_str() {
            Some("connected") => listed,
            state => state == Some("error"),
        }
    })
    .await;
}

/// Does what an agent would, twice, so that a token that became bad after the first is noticed; false when the
/// server does not let it.
async fn calls(kernel: &Kernel, era: Era) -> bool {
    if server(kernel).await["state"] != "connected" {
        return false;
    }
    let version = match era {
        Era::Legacy => "2025-11-25",
        Era::Modern => MODERN,
    };
    let mut client = Client::over_http(&kernel.server_url("it"), version, "{}").await;
    let mut good = true;
    for _ in 0..2 {
        let called = client.call("test-tool", json!({})).await;
        good = good && !called.is_error() && called.result()["isError"] != true;
    }
    client.close().await;
    good
}

/// Types `mgp logins add it`, and plays the browser.
async fn log_in(kernel: &Kernel, variables: &[(&str, &str)]) {
    let program = kernel.program(&["logins", "add", "it", "--json"]);
    let program = variables
        .iter()
        .fold(program, |program, (name, value)| program.env(name, *value));
    let mut login = Process::start("mgp logins add", &program);
    let url = login.says("where to sign in", DEADLINE, opened).await;
    let to = location(&url).await;
    let answer = HttpClient::new(&to).send(Method::GET, "").await;
    let _ = answer.expect("the command listens").text().await;
    let status = login.end(DEADLINE).await;
    // The server may want still more than this login gave, which is seen at the next call.
    let kept = login.stdout().contains("\"server\"");
    assert!(
        kept,
        "mgp logins add ended with {status}: {}",
        login.stderr()
    );
}

fn opened(said: &str) -> Option<String> {
    let line = said
        .lines()
        .find(|line| line.starts_with("{\"open\"") && line.ends_with('}'))?;
    let read: Value = serde_json::from_str(line).ok()?;
    Some(read["open"].as_str()?.to_owned())
}

/// Where the browser is sent on to.
async fn location(url: &str) -> String {
    let answer = HttpClient::new(url)
        .send(Method::GET, "")
        .await
        .expect("an answer");
    let to = answer.headers.get(LOCATION).and_then(|to| to.to_str().ok());
    to.unwrap_or_else(|| panic!("no redirect: {}", answer.status))
        .to_owned()
}
