//! One question of a gate, until its last answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mgp_engine::policy::approvals::ApprovalQuestion;
use mgp_engine::policy::permissions::PermissionEffect;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::permission::{Ask, PermissionType, Verdict};

use super::{AwaitedApproval, SharedGates};
use crate::approvals::OperatorAnswer;
use mgp_runtime::task;
use mgp_runtime::time::unix_ms;

/// How often a full list is tried again. The server waits meanwhile.
const LOOK: Duration = Duration::from_secs(5);

/// A question that waits for its answer.
#[derive(Clone)]
pub(super) struct GateQuestionTask {
    pub(super) shared: Weak<SharedGates>,
    pub(super) server: ServerId,
    pub(super) life: u64,
    pub(super) ask: Ask,
    /// In the server's own spelling.
    pub(super) words: Vec<String>,
    pub(super) question: ApprovalQuestion,
}

impl GateQuestionTask {
    pub(super) async fn run(self, asked: Option<AwaitedApproval>) {
        let Some(mut asked) = self.room(asked).await else {
            return;
        };
        let mut heard = self.shared.upgrade().map(|shared| {
            let (server, ask) = (self.server.clone(), self.ask.clone());
            let telling = async move { shared.ask_server(&server, ask).await };
            task::supervised("permissions.ask_server", telling)
        });
        while let Some(answer) = asked.answer().await {
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            match self.decide(&shared, &answer).await {
                Err(why) => answer.failed(why),
                Ok(effects) => {
                    shared.publish(&self.server);
                    shared.told(&self.server, effects, None);
                    let open = self.open(&shared);
                    match open.is_empty() {
                        // First, so that the question is gone from the list when the decision is announced.
                        true => asked.close(),
                        false => asked.narrow(&open),
                    }
                    answer.taken();
                    // The server is told of the question before it is told of the decision.
                    if let Some(heard) = heard.take() {
                        let _ = heard.await;
                    }
                    let request = &self.ask.request_id;
                    shared.tell_server(&self.server, request, &self.words).await;
                    if open.is_empty() {
                        return;
                    }
                }
            }
        }
    }

    /// The question in the operator's list, once there is room for it.
    async fn room(&self, asked: Option<AwaitedApproval>) -> Option<AwaitedApproval> {
        if asked.is_some() {
            return asked;
        }
        loop {
            tokio::time::sleep(LOOK).await;
            let shared = self.shared.upgrade()?;
            if let Ok(asked) = shared.approvals.ask(self.question.clone()) {
                shared.named(&self.server, self.life, &self.ask.request_id, asked.id());
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
            .flat_map(|part| PermissionType::read(part))
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
        let mut posts = shared.posts();
        let post = posts.get_mut(&self.server);
        let post = post.filter(|post| post.life == self.life);
        let post = post.ok_or_else(|| "the server has gone".to_owned())?;
        let request = &self.ask.request_id;
        let decided = post.gate.decide(
            request,
            &verdicts,
            &answer.decider.by,
            answer.until_ms,
            unix_ms(),
        );
        decided.map_err(|no| no.to_string())
    }

    /// The parts of it that are still open.
    fn open(&self, shared: &SharedGates) -> Vec<String> {
        let posts = shared.posts();
        let post = posts.get(&self.server).filter(|p| p.life == self.life);
        let open = post.map(|post| post.gate.open(&self.ask.request_id));
        open.unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}
