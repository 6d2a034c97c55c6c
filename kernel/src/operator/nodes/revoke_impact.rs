//! `mgp/kernel/nodes/impact`: the effects of cutting a node off.

use mgp_callers::request::{Outcome, Request};
use mgp_engine::cluster::shares::ShareAudience;
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::access::{Entry, Permission};
use mgp_protocol::mgp::kernel::nodes::{IMPACT_NAMED, Impact, RevokeImpact};

use crate::operator::{Operator, json, read};

impl Operator {
    /// `mgp/kernel/nodes/impact`.
    ///
    /// # Errors
    /// Unknown node; logs that are not reachable.
    pub(crate) async fn revoke_impact(&self, request: &Request) -> Outcome {
        let impact: Impact = read(request)?;
        let node = self.find_peer(&impact.node)?;
        let names = self.cluster.names.load().names.clone();
        let name = move |node: NodeId| names.render(node);
        let entries = self.cluster.replication.list_entries(name).await?;
        let name = self.cluster.node_label(node);
        let shares = self.cluster.shares.current();
        let alone = shares
            .iter()
            .filter(|share| share.to == ShareAudience::Node(node));
        let shared_with = alone.map(|share| share.server.to_string());
        let mut shared_with: Vec<String> = shared_with.collect();
        shared_with.sort();
        shared_with.dedup();
        let view = self.cluster.replication.view();
        let nodes = self.all_nodes(&view).await?;
        let id = node.to_string();
        let shown = nodes.into_iter().find(|node| node.id == id);
        let shown = shown.unwrap_or_default();
        let (granted_to, granted_to_count) =
            allowed_entries(&entries, |entry| is_agent_at_node(entry, &name));
        let (granted_at, granted_at_count) =
            allowed_entries(&entries, |entry| is_server_at_node(entry, &name));
        json(&RevokeImpact {
            id,
            words: node.words(),
            role: shown.role,
            granted_to,
            granted_to_count,
            granted_at,
            granted_at_count,
            shared_with,
            servers: shown.servers,
            name,
        })
    }
}

fn is_agent_at_node(entry: &Entry, node: &str) -> bool {
    let home = entry.agent_id.rsplit_once('@');
    home.is_some_and(|(_, home)| home == node)
}

fn is_server_at_node(entry: &Entry, node: &str) -> bool {
    let owner = entry.server_id.split_once('/');
    owner.is_some_and(|(owner, _)| owner == node)
}

/// The first allowed entries, and their number.
fn allowed_entries(entries: &[Entry], is_meant: impl Fn(&Entry) -> bool) -> (Vec<String>, u64) {
    let allowed = entries
        .iter()
        .filter(|entry| entry.permission == Permission::Allow && is_meant(entry));
    let entries_text = allowed.map(|entry| {
        let tool = entry.tool_name.as_deref();
        let tool = tool.map(|tool| format!(":{tool}")).unwrap_or_default();
        format!("{}: {}{tool}", entry.agent_id, entry.server_id)
    });
    let mut entries_text: Vec<String> = entries_text.collect();
    let count = entries_text.len() as u64;
    entries_text.truncate(IMPACT_NAMED);
    (entries_text, count)
}
