//! Context hooks around the kernel's own inferences, and the ids that hooks tell.

use std::borrow::Cow;

use mgp_mcpl_engine::conversations::Side;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::context::{AfterInference, BeforeInference, Position};
use mgp_protocol::mcpl::inference::InferenceAnswer;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::around::{Added, Around, AroundInference, OwnInference, Passage};
use crate::conversations::Conversations;
use crate::hooks::{AfterVerdict, HookOrigin, Hooks, PassId, PassedId};

impl AroundInference for Hooks {
    fn depth(&self, server: &ServerId) -> Result<u8, String> {
        self.inference_depth(server).map_err(|why| why.to_string())
    }

    fn before<'a>(&'a self, own: &'a OwnInference) -> Around<'a, Added> {
        Box::pin(async move {
            let model = raw(&own.model);
            let asked = BeforeInference {
                inference_id: Cow::Borrowed(&own.id),
                conversation_id: Cow::Borrowed(&own.conversation),
                turn_index: own.turn as u64,
                user_message: own.user.as_deref().map(Cow::Borrowed),
                model: &model,
                channels: None,
            };
            let verdict = Hooks::before(self, &origin(own), &asked).await;
            let mut added = Added::default();
            for injection in verdict.injections {
                let place = match injection.position {
                    Position::System => &mut added.system,
                    Position::BeforeUser => &mut added.before_user,
                    Position::AfterUser => &mut added.after_user,
                };
                // Providers are told the texts.
                let text = injection.content.texts();
                place.extend(Some(text).filter(|text| !text.is_empty()));
            }
            added
        })
    }

    fn is_due(&self, own: &OwnInference) -> bool {
        self.is_after_due(&origin(own))
    }

    fn after<'a>(
        &'a self,
        own: &'a OwnInference,
        answer: &'a InferenceAnswer,
    ) -> Around<'a, Passage> {
        Box::pin(async move {
            let (model, usage) = (raw(&own.model), raw(&answer.usage));
            let told = AfterInference {
                inference_id: Cow::Borrowed(&own.id),
                conversation_id: Cow::Borrowed(&own.conversation),
                turn_index: own.turn as u64,
                user_message: own.user.as_deref().map(Cow::Borrowed),
                assistant_message: Cow::Borrowed(&answer.content),
                model: &model,
                usage: Some(&usage),
            };
            match Hooks::after(self, &origin(own), &told).await.verdict {
                AfterVerdict::Unchanged => Passage::Unchanged,
                AfterVerdict::Modified(text) => Passage::Modified(text.to_string()),
                AfterVerdict::Withheld(why) => Passage::Withheld(why.to_string()),
            }
        })
    }
}

fn origin(own: &OwnInference) -> HookOrigin {
    HookOrigin::Server {
        server: own.server.clone(),
        depth: own.depth,
    }
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("what the kernel says is always JSON")
}

/// The ids that hooks and events tell servers. An inference of the kernel's own is the kernel's; what it belongs to is
/// the word of the server that asked for it.
#[must_use]
pub fn passed_ids(ids: &Conversations) -> PassId {
    let ids = ids.clone();
    PassId::new(move |of, server, kind, id| {
        let to = Side::Server(server.clone());
        let from = match (of, kind) {
            (HookOrigin::Agent(agent), _) => Side::agent(&agent.id, agent.connection),
            (HookOrigin::Server { .. }, PassedId::Inference) => Side::Kernel,
            (HookOrigin::Server { server, .. }, PassedId::Conversation) => {
                Side::Server(server.clone())
            }
        };
        match kind {
            PassedId::Inference => ids.inference(&from, &to, id),
            PassedId::Conversation => ids.conversation(&from, &to, id),
        }
    })
}
