//! How an event is shown: one line, with the names of nodes where the log has their ids.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::NodeId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{Cluster, List};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::parts;
use crate::cli::client::{KernelClient, names, read};
use crate::cli::failure::Failure;
use crate::cli::print::say;
use crate::cli::words::plain;

/// Ids that no node of this cluster has, remembered so that each is looked for once: those of clusters before.
const UNKNOWN_MAX: usize = 1024;

/// Prints events.
#[derive(Default)]
pub(super) struct AuditLines {
    json: bool,
    /// Where the time of each call went is shown, too.
    parts: bool,
    nodes: BTreeMap<NodeId, String>,
    unknown: BTreeSet<NodeId>,
}

impl AuditLines {
    pub(super) fn new(json: bool, parts: bool) -> Self {
        Self {
            json,
            parts,
            ..Self::default()
        }
    }

    /// As the kernel wrote it, or in one line.
    pub(super) async fn show(
        &mut self,
        client: &mut KernelClient,
        event: &RawValue,
    ) -> Result<(), Failure> {
        if self.json {
            return say(event.get());
        }
        let event: Value = serde_json::from_str(event.get()).unwrap_or_default();
        self.learn(client, &event).await;
        say(plain(&self.line(&event)))?;
        match self.parts {
            true => parts::lines(&event["details"])
                .iter()
                .try_for_each(|line| say(plain(line))),
            false => Ok(()),
        }
    }

    /// Asks for the names of nodes where the event has one that is not known.
    async fn learn(&mut self, client: &mut KernelClient, event: &Value) {
        let new = ids(event).into_iter().flat_map(|id| node_of(&id));
        let new = new.filter(|node| !self.nodes.contains_key(node));
        let new: Vec<NodeId> = new.filter(|node| !self.unknown.contains(node)).collect();
        if new.is_empty() {
            return;
        }
        let answer = client.request(List::METHOD, &json!({}), &mut ()).await;
        // Without names there are ids.
        let told: Option<Cluster> = answer.ok().and_then(|answer| read(&answer).ok());
        for node in told.into_iter().flat_map(|cluster| cluster.nodes) {
            self.nodes
                .extend(NodeId::parse(&node.id).map(|id| (id, node.name)));
        }
        if self.unknown.len() >= UNKNOWN_MAX {
            self.unknown.clear();
        }
        self.unknown.extend(new);
    }

    /// When, what, how it ended, who, to what, and why.
    fn line(&self, event: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let target = &event["target"];
        let server = target["server_id"].as_str().map(|id| self.named(id));
        let place = match (server, target["tool_name"].as_str()) {
            (Some(server), tool) => names::place(&server, tool),
            (None, tool) => tool.unwrap_or_default().to_owned(),
        };
        let details = &event["details"];
        let agent = self.named(&text(&target["agent_id"]));
        let targets = [place, agent, self.change(details)];
        let targets = targets.into_iter().filter(|name| !name.is_empty());
        let targets: Vec<String> = targets.collect();
        let why = ["reason", "failure"]
            .into_iter()
            .find_map(|name| details[name].as_str());
        let mut why = why.map(|why| format!("  {why}")).unwrap_or_default();
        if let Some(times) = details["repeated"].as_u64() {
            why += &format!("  {times} times since {}", text(&details["first"]));
        }
        // Who asked at the node that wrote it.
        let author = details["author"].as_str().map(|by| self.named(by));
        let author = author.map(|by| format!(" ({by})")).unwrap_or_default();
        format!(
            "{} {:>6} {} {}  {} {}{author}  {}{why}",
            text(&event["timestamp"]),
            event["_mgp"]["seq"].as_u64().unwrap_or_default(),
            text(&event["event_type"]),
            text(&event["result"]),
            text(&event["actor"]["type"]),
            self.named(&text(&event["actor"]["id"])),
            targets.join(" "),
        )
    }

    /// What happened to which node.
    fn change(&self, details: &Value) -> String {
        let Some(change) = details["change"].as_str() else {
            return String::new();
        };
        let node = details["node"].as_str().map(|id| self.named(id));
        let node = details["name"].as_str().map(str::to_owned).or(node);
        [Some(change.to_owned()), node]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// An id with the name of the node in it: `nas`, `agent.alice@nas`, `nas/files`.
    fn named(&self, id: &str) -> String {
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
            if let Some((_, name)) = nodes.find(|(node, _)| node.short() == short) {
                return format!("{name}/{server}");
            }
        }
        id.to_owned()
    }
}

/// Where an event may name nodes.
fn ids(event: &Value) -> Vec<String> {
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

fn node_of(id: &str) -> Option<NodeId> {
    NodeId::parse(id.rsplit('@').next().unwrap_or(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_shown_by_their_names_and_strangers_by_their_ids() {
        let (desk, stranger) = (NodeId([7; 32]), NodeId([8; 32]));
        let mut lines = AuditLines::new(false, false);
        lines.nodes.insert(desk, "desk".to_owned());
        let granted = json!({
            "event_type": "ACCESS_GRANTED",
            "actor": {"type": "node", "id": desk.to_string()},
            "target": {"server_id": "demo", "agent_id": format!("agent.alice@{desk}")},
            "details": {"author": "root"},
        });
        let line = lines.line(&granted);
        assert!(
            line.contains("node desk (root)  demo agent.alice@desk"),
            "{line}"
        );
        let cut = json!({"details": {"change": "cut", "node": stranger.to_string()}});
        let line = lines.line(&cut);
        assert!(line.ends_with(&format!("cut {stranger}")), "{line}");
        assert_eq!(
            lines.named(&format!("{}/files", desk.short())),
            "desk/files"
        );
        assert_eq!(lines.named("agent.alice"), "agent.alice");
        assert_eq!(node_of(&format!("agent.a@{stranger}")), Some(stranger));
    }
}
