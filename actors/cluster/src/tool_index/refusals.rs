//! What is not taken of another node's index: told to that node, the log and the audit, not more often than people read.

use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::tool_index::{IndexReport, RefusedEntry};
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::audit::{Actor, ActorKind, EventType, Outcome, Target, TraceId};
use mgp_runtime::randomness;
use mgp_store::audit::event;
use serde_json::json;

use super::ToolIndexEvent;
use super::peers::IndexPeer;
use super::state::ToolIndexState;

/// How often the log tells of the same node's index.
const NEWS: Duration = Duration::from_secs(60);

impl ToolIndexState {
    /// Not everything was taken of what a node told, or now it is.
    pub(super) fn refused(&mut self, node: NodeId, report: IndexReport) {
        let now = self.now();
        let peer = self.peers.get_mut(&node);
        if peer.is_some_and(|peer| is_news(peer, now)) && !report.examples.is_empty() {
            let refused = report.refused;
            let (entry, reason) = report.examples.first().map_or(("", ""), |example| {
                (example.entry.as_str(), example.reason.as_str())
            });
            let short = node.short();
            tracing::warn!(
                node = short,
                refused,
                entry,
                reason,
                "not all that another node shares is taken"
            );
            self.start.audit.tell(event(
                EventType::INDEX_REFUSED,
                Actor {
                    kind: ActorKind::Node,
                    id: node.to_string(),
                },
                Target::default(),
                &TraceId::mint(randomness::bytes()),
                Outcome::Blocked,
                json!({"refused": refused, "entry": entry, "reason": reason}),
            ));
        }
        let told = Control::IndexReport(report.clone());
        self.start.control.send((node, told));
        let event = ToolIndexEvent::Refused(node, report);
        self.start.events.send(event);
    }
}

/// What a node is told that shares although it may not.
pub(super) fn of_a_leaf() -> IndexReport {
    IndexReport {
        refused: 0,
        examples: vec![RefusedEntry {
            entry: "the index".to_owned(),
            reason: "a leaf calls the servers of others and shares none".to_owned(),
        }],
    }
}

/// Whether the log is to be told of a peer: not more often than people read it.
pub(super) fn is_news(peer: &mut IndexPeer, now: MonotonicTime) -> bool {
    let news = peer.news.is_none_or(|told| now >= told + NEWS);
    if news {
        peer.news = Some(now);
    }
    news
}
