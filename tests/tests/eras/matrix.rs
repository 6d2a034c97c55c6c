//! Five client versions times five server versions, over the kernel's HTTP door and its socket, with
//! the server over stdio and over HTTP (MCP-088).

use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{Client, Kernel, Program, Upstream};

use crate::story::Story;
use crate::versions::{VERSIONS, Version};

#[tokio::test]
async fn servers_of_2024_11_05_serve_clients_of_every_version() {
    serves(VERSIONS[0]).await;
}

#[tokio::test]
async fn servers_of_2025_03_26_serve_clients_of_every_version() {
    serves(VERSIONS[1]).await;
}

#[tokio::test]
async fn servers_of_2025_06_18_serve_clients_of_every_version() {
    serves(VERSIONS[2]).await;
}

#[tokio::test]
async fn servers_of_2025_11_25_serve_clients_of_every_version() {
    serves(VERSIONS[3]).await;
}

#[tokio::test]
async fn servers_of_2026_07_28_serve_clients_of_every_version() {
    serves(VERSIONS[4]).await;
}

/// One kernel in front of two servers of this version, and clients of every version one after
/// another: at each of the servers alone, and at the socket, which shows all under their prefixes.
async fn serves(of_server: Version) {
    let flags = of_server.server();
    let upstream = Upstream::start(&flags).await;
    let pipe = Program::fixture(&flags).entry("pipe");
    let kernel = Kernel::start(&(pipe + &remote_entry("far", &upstream.url()))).await;
    kernel.connected(&["pipe", "far"]).await;
    for of_client in VERSIONS {
        let (name, able) = (of_client.name, of_client.client());
        for server in ["pipe", "far"] {
            eprintln!("{name} at {server} of {}", of_server.name);
            let client = Client::over_http(&kernel.server_url(server), name, able).await;
            tell(client, "", of_client, of_server).await;
        }
        eprintln!("{name} at the socket before {}", of_server.name);
        let client = Client::over_socket(&kernel.socket(), name, able).await;
        tell(client, "pipe:", of_client, of_server).await;
    }
}

/// Tells the whole story.
pub(crate) async fn tell(mut client: Client, prefix: &str, of_client: Version, of_server: Version) {
    let mut story = Story {
        client: &mut client,
        prefix,
        of_client,
        of_server,
    };
    story.tell().await;
    client.close().await;
}
