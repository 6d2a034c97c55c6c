//! Unavailable nodes, whose tools are listed as last known.

use std::collections::HashMap;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{Cluster, List, NodeStatus};
use mgp_protocol::mgp::names::ToolNames;
use serde::Serialize;
use serde_json::json;

use crate::cli::client::{KernelClient, parse_result};
use crate::cli::failure::Failure;
use crate::cli::text_format::format_duration;

/// An unavailable node.
#[derive(Debug, Serialize)]
pub(super) struct UnavailableNode {
    /// Its name: the first part of the ids of its servers.
    node: String,
    /// Time since its last message, in milliseconds.
    age_ms: u64,
}

/// The unavailable nodes of these tools. Sends no request if there are no tools of other nodes.
pub(super) async fn list_unavailable(
    client: &mut KernelClient,
    names: &HashMap<String, ToolNames>,
) -> Result<Vec<UnavailableNode>, Failure> {
    let is_of = |node: &str| {
        let mut servers = names.values().map(|named| named.server_id.as_str());
        servers.any(|server| server.split_once('/').is_some_and(|(of, _)| of == node))
    };
    let any = names.values().any(|named| named.server_id.contains('/'));
    if !any {
        return Ok(Vec::new());
    }
    let answer = client.request(List::METHOD, &json!({}), &mut ()).await?;
    let nodes = parse_result::<Cluster>(&answer)?.nodes.into_iter();
    let away = nodes.filter(|node| node.standing == NodeStatus::Away && is_of(&node.name));
    let away = away.map(|node| UnavailableNode {
        age_ms: node.index_age_ms.unwrap_or_default(),
        node: node.name,
    });
    Ok(away.collect())
}

/// The last known shares of unavailable nodes whose servers are no longer listed, a line each.
pub(in crate::cli::commands) async fn hidden_shares(
    client: &mut KernelClient,
    shown: &[String],
) -> Result<Vec<String>, Failure> {
    let answer = client.request(List::METHOD, &json!({}), &mut ()).await?;
    Ok(hidden_shares_in(&parse_result(&answer)?, shown))
}

fn hidden_shares_in(cluster: &Cluster, shown: &[String]) -> Vec<String> {
    let away = cluster.nodes.iter();
    let away = away.filter(|node| node.standing == NodeStatus::Away);
    let lines = away.filter_map(|node| {
        let name = &node.name;
        let ids = node.servers.iter();
        let ids = ids.map(|server| format!("{name}/{}", server.id));
        let hidden: Vec<String> = ids.filter(|id| !shown.contains(id)).collect();
        if hidden.is_empty() {
            return None;
        }
        let heard = node.index_age_ms.or(node.since_ms);
        let heard = heard.map(|age| format!(", last heard {} ago", format_duration(age)));
        let heard = heard.unwrap_or_default();
        let hidden = hidden.join(", ");
        Some(format!(
            "{name} is away{heard}: {hidden} comes back when it is linked again (`mgp cluster status`)"
        ))
    });
    lines.collect()
}

/// `nas/demo`, or `nas/demo (away, 12 s old)`.
pub(super) fn server_label(server: &str, away: &[UnavailableNode]) -> String {
    let node = server.split_once('/').map(|(node, _)| node);
    match away.iter().find(|away| Some(away.node.as_str()) == node) {
        Some(away) => format!("{server} (away, {} old)", format_duration(away.age_ms)),
        None => server.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::kernel::nodes::{Node, SharedServer};

    use super::*;

    #[test]
    fn tools_of_unavailable_nodes_are_shown_with_their_age() {
        let away = [UnavailableNode {
            node: "nas".into(),
            age_ms: 12_000,
        }];
        assert_eq!(server_label("nas/demo", &away), "nas/demo (away, 12 s old)");
        assert_eq!(server_label("den/demo", &away), "den/demo");
        assert_eq!(server_label("nas", &away), "nas");
    }

    #[test]
    fn servers_of_unavailable_nodes_are_named_and_not_missing() {
        let nas = Node {
            name: "nas".into(),
            standing: NodeStatus::Away,
            index_age_ms: Some(42_000),
            servers: vec![SharedServer {
                id: "demo".into(),
                ..SharedServer::default()
            }],
            ..Node::default()
        };
        let cluster = Cluster {
            nodes: vec![nas],
            ..Cluster::default()
        };
        let rendered = hidden_shares_in(&cluster, &[]);
        assert!(
            rendered[0].starts_with("nas is away, last heard 42 s ago: nas/demo comes back"),
            "{rendered:?}"
        );
        assert!(
            hidden_shares_in(&cluster, &["nas/demo".into()]).is_empty(),
            "it is listed still"
        );
    }
}
