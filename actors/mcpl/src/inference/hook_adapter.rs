//! Adapts context hooks to the kernel's own inferences, and maps the ids for them.

use std::borrow::Cow;

use mgp_mcpl_engine::conversations::Side;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::context::{AfterInference, BeforeInference, Position};
use mgp_protocol::mcpl::inference::InferenceAnswer;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::inference_hooks::{
    AnswerVerdict, HookFuture, InferenceHooks, KernelInference, PromptAdditions,
};
use crate::conversations::Conversations;
use crate::hooks::{AfterVerdict, HookOrigin, Hooks, IdMapper, MappedIdKind};

impl InferenceHooks for Hooks {
    fn depth(&self, server: &ServerId) -> Result<u8, String> {
        self.inference_depth(server).map_err(|why| why.to_string())
    }

    fn before_inference<'a>(
        &'a self,
        inference: &'a KernelInference,
    ) -> HookFuture<'a, PromptAdditions> {
        Box::pin(async move {
            let model = to_raw(&inference.model);
            let hook = BeforeInference {
                inference_id: Cow::Borrowed(&inference.id),
                conversation_id: Cow::Borrowed(&inference.conversation),
                turn_index: inference.turn_index as u64,
                user_message: inference.user.as_deref().map(Cow::Borrowed),
                model: &model,
                channels: None,
            };
            let verdict = Hooks::before_inference(self, &hook_origin(inference), &hook).await;
            let mut added = PromptAdditions::default();
            for injection in verdict.injections {
                let additions = match injection.position {
                    Position::System => &mut added.system,
                    Position::BeforeUser => &mut added.before_user,
                    Position::AfterUser => &mut added.after_user,
                };
                // Providers receive the texts.
                let text = injection.content.joined_text();
                additions.extend(Some(text).filter(|text| !text.is_empty()));
            }
            added
        })
    }

    fn should_wait_after(&self, inference: &KernelInference) -> bool {
        self.should_wait_after(&hook_origin(inference))
    }

    fn after_inference<'a>(
        &'a self,
        inference: &'a KernelInference,
        answer: &'a InferenceAnswer,
    ) -> HookFuture<'a, AnswerVerdict> {
        Box::pin(async move {
            let (model, usage) = (to_raw(&inference.model), to_raw(&answer.usage));
            let hook = AfterInference {
                inference_id: Cow::Borrowed(&inference.id),
                conversation_id: Cow::Borrowed(&inference.conversation),
                turn_index: inference.turn_index as u64,
                user_message: inference.user.as_deref().map(Cow::Borrowed),
                assistant_message: Cow::Borrowed(&answer.content),
                model: &model,
                usage: Some(&usage),
            };
            match Hooks::after_inference(self, &hook_origin(inference), &hook)
                .await
                .verdict
            {
                AfterVerdict::Unchanged => AnswerVerdict::Unchanged,
                AfterVerdict::Modified(text) => AnswerVerdict::Modified(text.to_string()),
                AfterVerdict::Withheld(why) => AnswerVerdict::Withheld(why.to_string()),
            }
        })
    }
}

fn hook_origin(inference: &KernelInference) -> HookOrigin {
    HookOrigin::Server {
        server: inference.server.clone(),
        depth: inference.depth,
    }
}

fn to_raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("what the kernel says is always JSON")
}

/// Maps the ids of hooks and events for servers. Inferences of the kernel belong to the kernel; their conversation belongs
/// to the server that requested them.
#[must_use]
pub fn id_mapper(ids: &Conversations) -> IdMapper {
    let ids = ids.clone();
    IdMapper::new(move |origin, server, kind, id| {
        let to = Side::Server(server.clone());
        let from = match (origin, kind) {
            (HookOrigin::Agent(agent), _) => Side::agent(&agent.id, agent.connection),
            (HookOrigin::Server { .. }, MappedIdKind::Inference) => Side::Kernel,
            (HookOrigin::Server { server, .. }, MappedIdKind::Conversation) => {
                Side::Server(server.clone())
            }
        };
        match kind {
            MappedIdKind::Inference => ids.map_inference_id(&from, &to, id),
            MappedIdKind::Conversation => ids.map_conversation_id(&from, &to, id),
        }
    })
}
