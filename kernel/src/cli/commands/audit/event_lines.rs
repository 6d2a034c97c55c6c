//! Renders an event as one line, with names of nodes instead of their ids.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::NodeId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{Cluster, List};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::call_timing;
use crate::cli::client::{KernelClient, name_resolution, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::print_line;
use crate::cli::text_format::sanitize_line;

/// Ids of unknown nodes, remembered so that each is looked up once: those of earlier clusters.
const UNKNOWN_MAX: usize = 1024;

/// Prints events.
#[derive(Default)]
pub(super) struct EventPrinter {
    json: bool,
    /// Whether the timing of calls is shown.
    include_timing: bool,
    nodes: BTreeMap<NodeId, String>,
    unknown_nodes: BTreeSet<NodeId>,
}

impl EventPrinter {
    pub(super) fn new(json: bool, include_timing: bool) -> Self {
        Self {
            json,
            include_timing,
            ..Self::default()
        }
    }

    /// Prints the event as the kernel wrote it, or in one line.
    pub(super) async fn show(
        &mut self,
        client: &mut KernelClient,
        event: &RawValue,
    ) -> Result<(), Failure> {
        if self.json {
            return print_line(event.get());
        }
        let event: Value = serde_json::from_str(event.get()).unwrap_or_default();
        self.learn_node_names(client, &event).await;
        print_line(sanitize_line(&self.render_event(&event)))?;
        if self.include_timing {
            call_timing::timing_lines(&event["details"])
                .iter()
                .try_for_each(|line| print_line(sanitize_line(line)))
        } else {
            Ok(())
        }
    }

    /// Fetches the names of nodes if the event has an unknown one.
    async fn learn_node_names(&mut self, client: &mut KernelClient, event: &Value) {
        let new = mentioned_ids(event)
            .into_iter()
            .flat_map(|id| node_in_id(&id));
        let new = new.filter(|node| !self.nodes.contains_key(node));
        let new: Vec<NodeId> = new
            .filter(|node| !self.unknown_nodes.contains(node))
            .collect();
        if new.is_empty() {
            return;
        }
        let answer = client.request(List::METHOD, &json!({}), &mut ()).await;
        // Without names ids are shown.
        let told: Option<Cluster> = answer.ok().and_then(|answer| parse_result(&answer).ok());
        for node in told.into_iter().flat_map(|cluster| cluster.nodes) {
            self.nodes
                .extend(NodeId::parse(&node.id).map(|id| (id, node.name)));
        }
        if self.unknown_nodes.len() >= UNKNOWN_MAX {
            self.unknown_nodes.clear();
        }
        self.unknown_nodes.extend(new);
    }

    /// Time, event, result, actor, target, and reason.
    fn render_event(&self, event: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let target = &event["target"];
        let server = target["server_id"]
            .as_str()
            .map(|id| self.with_node_name(id));
        let place = match (server, target["tool_name"].as_str()) {
            (Some(server), tool) => name_resolution::render_target(&server, tool),
            (None, tool) => tool.unwrap_or_default().to_owned(),
        };
        let details = &event["details"];
        let agent = self.with_node_name(&text(&target["agent_id"]));
        let targets = [place, agent, self.render_node_change(details)];
        let targets = targets.into_iter().filter(|name| !name.is_empty());
        let targets: Vec<String> = targets.collect();
        let why = ["reason", "failure"]
            .into_iter()
            .find_map(|name| details[name].as_str());
        let mut why = why.map(|why| format!("  {why}")).unwrap_or_default();
        if let Some(times) = details["repeated"].as_u64() {
            why += &format!("  {times} times since {}", text(&details["first"]));
        }
        // The author at the node that wrote the entry.
        let author = details["author"].as_str().map(|by| self.with_node_name(by));
        let author = author.map(|by| format!(" ({by})")).unwrap_or_default();
        format!(
            "{} {:>6} {} {}  {} {}{author}  {}{why}",
            text(&event["timestamp"]),
            event["_mgp"]["seq"].as_u64().unwrap_or_default(),
            text(&event["event_type"]),
            text(&event["result"]),
            text(&event["actor"]["type"]),
            self.with_node_name(&text(&event["actor"]["id"])),
            targets.join(" "),
        )
    }

    /// A change of a node.
    fn render_node_change(&self, details: &Value) -> String {
        let Some(change) = details["change"].as_str() else {
            return String::new();
        };
        let node = details["node"].as_str().map(|id| self.with_node_name(id));
        let node = details["name"].as_str().map(str::to_owned).or(node);
        [Some(change.to_owned()), node]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// An id with the name of its node: `nas`, `agent.alice@nas`, `nas/files`.
    fn with_node_name(&self, id: &str) -> String {
        let name = |node: &str| {
            let node = NodeId::parse(node)?;
            self.nodes.get(&node).cloned()
        };
        if let Some(name) = name(id) {
            return name;
        }
        if let Some((agent, home)) = id.split_once('@') {
            let home = name(home).unwrap_or_else(|| home.to_owned());
            return format!("{agent}@{home}");
        }
        if let Some((short, server)) = id.split_once('/') {
            let mut nodes = self.nodes.iter();
            if let Some((_, name)) = nodes.find(|(node, _)| node.short_id() == short) {
                return format!("{name}/{server}");
            }
        }
        id.to_owned()
    }
}

/// The members of an event that may name nodes.
fn mentioned_ids(event: &Value) -> Vec<String> {
    let (target, details) = (&event["target"], &event["details"]);
    let places = [
        &event["actor"]["id"],
        &target["agent_id"],
        &details["node"],
        &details["author"],
    ];
    let texts = places.into_iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn node_in_id(id: &str) -> Option<NodeId> {
    NodeId::parse(id.rsplit('@').next().unwrap_or(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_nodes_are_shown_by_name_and_others_by_id() {
        let (desk, stranger) = (NodeId([7; 32]), NodeId([8; 32]));
        let mut lines = EventPrinter::new(false, false);
        lines.nodes.insert(desk, "desk".to_owned());
        let granted = json!({
            "event_type": "ACCESS_GRANTED",
            "actor": {"type": "node", "id": desk.to_string()},
            "target": {"server_id": "demo", "agent_id": format!("agent.alice@{desk}")},
            "details": {"author": "root"},
        });
        let line = lines.render_event(&granted);
        assert!(
            line.contains("node desk (root)  demo agent.alice@desk"),
            "{line}"
        );
        let cut = json!({"details": {"change": "cut", "node": stranger.to_string()}});
        let line = lines.render_event(&cut);
        assert!(line.ends_with(&format!("cut {stranger}")), "{line}");
        assert_eq!(
            lines.with_node_name(&format!("{}/files", desk.short_id())),
            "desk/files"
        );
        assert_eq!(lines.with_node_name("agent.alice"), "agent.alice");
        assert_eq!(node_in_id(&format!("agent.a@{stranger}")), Some(stranger));
    }
}
