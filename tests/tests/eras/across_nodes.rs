//! The same story with the server at another node: for its client nothing differs but the name.

use mgp_tests::harness::kernel::nodes::JoinedNodes;
use mgp_tests::harness::{Client, Program};

use crate::matrix::tell;
use crate::versions::{VERSIONS, Version};

/// PRJ-005, PRJ-013, FED-064: at a door of one server of another node.
#[tokio::test(flavor = "multi_thread")]
async fn clients_of_every_version_use_servers_of_every_version_at_another_node() {
    let nodes = nodes().await;
    for (of_server, id) in servers() {
        for of_client in VERSIONS {
            let name = of_client.name;
            eprintln!("{name} at {id} of {}", of_server.name);
            let url = nodes.desk.server_url(&format!("nas/{id}"));
            let client = Client::over_http(&url, name, of_client.client()).await;
            tell(client, "", of_client, of_server).await;
        }
    }
}

/// PRJ-005, PRJ-013: among all servers, under their prefixes.
#[tokio::test(flavor = "multi_thread")]
async fn clients_of_every_version_use_servers_of_every_version_among_those_of_other_nodes() {
    let nodes = nodes().await;
    for (of_server, id) in servers() {
        for of_client in VERSIONS {
            let name = of_client.name;
            eprintln!("{name} at the socket before {id} of {}", of_server.name);
            let client = Client::over_socket(&nodes.desk.socket(), name, of_client.client()).await;
            tell(client, &format!("nas/{id}:"), of_client, of_server).await;
        }
    }
}

/// A server of each version, and what it is called.
fn servers() -> impl Iterator<Item = (Version, &'static str)> {
    VERSIONS.into_iter().zip(["v1", "v2", "v3", "v4", "v5"])
}

async fn nodes() -> JoinedNodes {
    let entries = servers().map(|(version, id)| Program::fixture(&version.server()).entry(id));
    let ids: Vec<&str> = servers().map(|(_, id)| id).collect();
    JoinedNodes::sharing(&entries.collect::<String>(), &ids).await
}
