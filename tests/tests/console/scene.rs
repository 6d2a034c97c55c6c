//! A kernel with a console, and a browser that is signed in to it.

use http::header::AUTHORIZATION;
use mgp_tests::harness::{HttpClient, Kernel, Program};
use serde_json::{Value, json};

use crate::browser::Browser;

/// The version that sessions speak.
pub(crate) const VERSION: &str = "2025-11-25";

/// A kernel whose door wants a token, in front of these servers.
pub(crate) async fn kernel(servers: &str) -> Kernel {
    Kernel::with_config(&format!("[http]\nlisten = \"127.0.0.1:0\"\n{servers}")).await
}

/// A scripted server as an entry.
pub(crate) fn fixture(id: &str, flags: &[&str]) -> String {
    Program::fixture(flags).entry(id)
}

/// The address of the console, without anything behind it.
pub(crate) fn at(kernel: &Kernel) -> String {
    kernel.url().trim_end_matches("mcp").to_owned()
}

/// A link that signs one browser in.
pub(crate) async fn link(kernel: &Kernel) -> String {
    let link = kernel.mgp_json(&["console", "--print"]).await;
    link["url"].as_str().unwrap().to_owned()
}

/// A browser that is signed in, on its first page.
pub(crate) async fn signed_in(kernel: &Kernel, switches: &[String]) -> Browser {
    let browser = Browser::open(switches).await;
    browser.go(&link(kernel).await).await;
    browser.shows("Calls a second").await;
    browser
}

/// An agent with a token of its own.
pub(crate) async fn agent(kernel: &Kernel, name: &str) -> HttpClient {
    let made = kernel.mgp_json(&["agents", "add", name]).await;
    let mut client = HttpClient::new(kernel.url());
    let token = made["token"].as_str().unwrap();
    client.set(AUTHORIZATION, &format!("Bearer {token}"));
    client.open_session(VERSION, "{}").await;
    client
}

/// What an agent is answered.
pub(crate) async fn asked(client: &HttpClient, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let frames = client.post(request.to_string()).await.frames().await;
    serde_json::from_str(frames.last().unwrap()).unwrap()
}
