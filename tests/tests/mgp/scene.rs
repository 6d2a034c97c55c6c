//! What stories of MGP begin with: a kernel in front of scripted servers, and clients of both kinds.

pub(crate) mod made;

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::mgp::{NINE, declaration, speaks_mgp};
use mgp_tests::harness::{Client, Kernel, Program};
use serde_json::{Value, json};

/// The newest version of each era.
pub(crate) const ERAS: [&str; 2] = ["2025-11-25", MODERN];

/// Both doors.
pub(crate) const DOORS: [Door; 2] = [Door::Http, Door::Socket];

/// Where a client comes in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Door {
    /// Streamable HTTP.
    Http,
    /// The owner's socket.
    Socket,
}

/// A kernel in front of one scripted server, `it`, connected.
pub(crate) async fn kernel_with(sections: &str, flags: &[&str]) -> Kernel {
    let entry = Program::fixture(flags).entry("it");
    let kernel = Kernel::start(&format!("{entry}{sections}")).await;
    kernel.connected(&["it"]).await;
    kernel
}

/// A server that speaks all of MGP in one era.
pub(crate) fn speaking(era: &str) -> Vec<String> {
    let said = declaration(&NINE).to_string();
    ["--era", era, "--mgp", &said].map(str::to_owned).to_vec()
}

/// A client that comes in at this door.
pub(crate) async fn client(
    kernel: &Kernel,
    door: Door,
    version: &str,
    capabilities: &str,
) -> Client {
    match door {
        Door::Http => Client::over_http(kernel.url(), version, capabilities).await,
        Door::Socket => Client::over_socket(&kernel.socket(), version, capabilities).await,
    }
}

/// One that speaks MGP, or one that does not.
pub(crate) async fn of_kind(kernel: &Kernel, door: Door, version: &str, mgp: bool) -> Client {
    let capabilities = if mgp {
        speaks_mgp(version)
    } else {
        "{}".to_owned()
    };
    client(kernel, door, version, &capabilities).await
}

/// The frames that reached the server behind a tool `received`.
pub(crate) async fn received(client: &mut Client, tool: &str) -> Vec<String> {
    let received = client.call(tool, json!({})).await.result();
    serde_json::from_value(received["structuredContent"]["frames"].clone())
        .expect("frames are texts")
}

/// What the kernel tells the operator of a server.
pub(crate) async fn reported(kernel: &Kernel, id: &str) -> Value {
    let servers = kernel.mgp_json(&["servers", "list"]).await;
    let mut all = servers["servers"].as_array().into_iter().flatten();
    all.find(|server| server["id"] == id)
        .cloned()
        .expect("the server is configured")
}
