//! One pending entry of a gate, until it is fully decided.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mgp_engine::policy::approvals::PendingEntry;
use mgp_engine::policy::permissions::PermissionEffect;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::permission::{Ask, PermissionType, Verdict};

use super::{PendingEntryGuard, SharedGates};
use crate::approvals::OperatorAnswer;
use mgp_runtime::task;
use mgp_runtime::time::unix_ms;

/// How often adding to a full list is retried. The server waits meanwhile.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Waits for the answers to one entry.
#[derive(Clone)]
pub(super) struct GateEntryTask {
    pub(super) shared: Weak<SharedGates>,
    pub(super) server: ServerId,
    pub(super) generation: u64,
    pub(super) ask: Ask,
    /// In the server's own spelling.
    pub(super) permissions: Vec<String>,
    pub(super) entry: PendingEntry,
}

impl GateEntryTask {
    pub(super) async fn run(self, guard: Option<PendingEntryGuard>) {
        let Some(mut guard) = self.wait_for_slot(guard).await else {
            return;
        };
        let mut awaiting_notice = self.shared.upgrade().map(|shared| {
            let (server, ask) = (self.server.clone(), self.ask.clone());
            let notice = async move { shared.notify_awaiting(&server, ask).await };
            task::spawn_supervised("permissions.ask_server", notice)
        });
        while let Some(answer) = guard.next_answer().await {
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            match self.decide(&shared, &answer).await {
                Err(why) => answer.report_failed(why),
                Ok(effects) => {
                    shared.publish(&self.server);
                    shared.record_effects(&self.server, effects, None);
                    let open = self.open_parts(&shared);
                    match open.is_empty() {
                        // Close before the announcement, so that the list no longer shows the entry then.
                        true => guard.close(),
                        false => guard.narrow(&open),
                    }
                    answer.report_applied();
                    // The server is notified of the entry before the decision.
                    if let Some(notice) = awaiting_notice.take() {
                        let _ = notice.await;
                    }
                    let request = &self.ask.request_id;
                    shared
                        .notify_decided(&self.server, request, &self.permissions)
                        .await;
                    if open.is_empty() {
                        return;
                    }
                }
            }
        }
    }

    /// The entry in the operator's list, once the list has a free slot.
    async fn wait_for_slot(&self, guard: Option<PendingEntryGuard>) -> Option<PendingEntryGuard> {
        if guard.is_some() {
            return guard;
        }
        loop {
            tokio::time::sleep(RETRY_INTERVAL).await;
            let shared = self.shared.upgrade()?;
            if let Ok(guard) = shared.approvals.add(self.entry.clone()) {
                shared.set_entry_id(
                    &self.server,
                    self.generation,
                    &self.ask.request_id,
                    guard.id(),
                );
                return Some(guard);
            }
        }
    }

    /// Records the answer first, then applies it to the gate.
    async fn decide(
        &self,
        shared: &Arc<SharedGates>,
        answer: &OperatorAnswer,
    ) -> Result<Vec<PermissionEffect>, String> {
        let parts = answer.parts.iter();
        let verdicts: BTreeMap<PermissionType, Verdict> = parts
            .flat_map(|part| PermissionType::parse_all(part))
            .map(|permission| (permission, answer.verdict))
            .collect();
        for permission in verdicts.keys() {
            let OperatorAnswer {
                verdict,
                until_ms,
                decider,
                ..
            } = answer;
            shared
                .records
                .record(&self.server, permission, *verdict, *until_ms, decider)
                .await
                .map_err(|error| error.to_string())?;
        }
        let mut gates = shared.lock_gates();
        let open_gate = gates.get_mut(&self.server);
        let open_gate = open_gate.filter(|open_gate| open_gate.generation == self.generation);
        let open_gate = open_gate.ok_or_else(|| "the server has gone".to_owned())?;
        let request = &self.ask.request_id;
        let decided = open_gate.gate.decide(
            request,
            &verdicts,
            &answer.decider.name,
            answer.until_ms,
            unix_ms(),
        );
        decided.map_err(|error| error.to_string())
    }

    /// The parts of the entry that are still open.
    fn open_parts(&self, shared: &SharedGates) -> Vec<String> {
        let gates = shared.lock_gates();
        let open_gate = gates
            .get(&self.server)
            .filter(|p| p.generation == self.generation);
        let open = open_gate.map(|open_gate| open_gate.gate.open_permissions(&self.ask.request_id));
        open.unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}
