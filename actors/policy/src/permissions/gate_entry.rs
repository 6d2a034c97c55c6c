//! One question of a gate, until its last answer.

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

/// How often a full list is tried again. The server waits meanwhile.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// A question that waits for its answer.
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
    pub(super) async fn run(self, asked: Option<PendingEntryGuard>) {
        let Some(mut asked) = self.wait_for_slot(asked).await else {
            return;
        };
        let mut heard = self.shared.upgrade().map(|shared| {
            let (server, ask) = (self.server.clone(), self.ask.clone());
            let telling = async move { shared.notify_awaiting(&server, ask).await };
            task::spawn_supervised("permissions.ask_server", telling)
        });
        while let Some(answer) = asked.next_answer().await {
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
                        // First, so that the question is gone from the list when the decision is announced.
                        true => asked.close(),
                        false => asked.narrow(&open),
                    }
                    answer.report_applied();
                    // The server is told of the question before it is told of the decision.
                    if let Some(heard) = heard.take() {
                        let _ = heard.await;
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

    /// The question in the operator's list, once there is room for it.
    async fn wait_for_slot(&self, asked: Option<PendingEntryGuard>) -> Option<PendingEntryGuard> {
        if asked.is_some() {
            return asked;
        }
        loop {
            tokio::time::sleep(RETRY_INTERVAL).await;
            let shared = self.shared.upgrade()?;
            if let Ok(asked) = shared.approvals.add(self.entry.clone()) {
                shared.set_entry_id(
                    &self.server,
                    self.generation,
                    &self.ask.request_id,
                    asked.id(),
                );
                return Some(asked);
            }
        }
    }

    /// Recorded in the log first, then applied to the gate.
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
        let mut posts = shared.lock_gates();
        let post = posts.get_mut(&self.server);
        let post = post.filter(|post| post.generation == self.generation);
        let post = post.ok_or_else(|| "the server has gone".to_owned())?;
        let request = &self.ask.request_id;
        let decided = post.gate.decide(
            request,
            &verdicts,
            &answer.decider.name,
            answer.until_ms,
            unix_ms(),
        );
        decided.map_err(|no| no.to_string())
    }

    /// The parts of it that are still open.
    fn open_parts(&self, shared: &SharedGates) -> Vec<String> {
        let posts = shared.lock_gates();
        let post = posts
            .get(&self.server)
            .filter(|p| p.generation == self.generation);
        let open = post.map(|post| post.gate.open_permissions(&self.ask.request_id));
        open.unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}
