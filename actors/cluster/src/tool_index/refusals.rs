//! Rejected parts of another node's index: reported to that node, the log and the audit, at a rate that
//! people can read.

use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::tool_index::{IndexReport, RefusedEntry};
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::audit::{Actor, ActorKind, EventType, Outcome, Target, TraceId};
use mgp_runtime::randomness;
use mgp_store::audit::new_event;
use serde_json::json;

use super::ToolIndexEvent;
use super::state::ToolIndexState;

impl ToolIndexState {
    /// Records that parts of a node's index were rejected, or no longer are.
    pub(super) fn record_refusals(&mut self, node: NodeId, report: IndexReport) {
        let now = self.elapsed();
        let peer = self.peers.get_mut(&node);
        if peer.is_some_and(|peer| peer.should_log(now)) && !report.examples.is_empty() {
            let refused = report.refused;
            let (entry, reason) = report.examples.first().map_or(("", ""), |example| {
                (example.entry.as_str(), example.reason.as_str())
            });
            let short = node.short_id();
            tracing::warn!(
                node = short,
                refused,
                entry,
                reason,
                "not all that another node shares is taken"
            );
            self.start.audit.record(new_event(
                EventType::INDEX_REFUSED,
                Actor {
                    kind: ActorKind::Node,
                    id: node.to_string(),
                },
                Target::default(),
                &TraceId::from_random(randomness::random_bytes()),
                Outcome::Blocked,
                json!({"refused": refused, "entry": entry, "reason": reason}),
            ));
        }
        let message = Control::IndexReport(report.clone());
        self.start.control.send((node, message));
        let event = ToolIndexEvent::Refused(node, report);
        self.start.events.send(event);
    }

    /// Records that a node shares tools without the right to do so.
    pub(super) fn record_leaf_refusal(&mut self, node: NodeId) {
        let leaf = RefusedEntry {
            entry: "the index".to_owned(),
            reason: "a leaf calls the servers of others and shares none".to_owned(),
        };
        let report = IndexReport {
            refused: 0,
            examples: vec![leaf],
        };
        self.record_refusals(node, report);
    }
}
