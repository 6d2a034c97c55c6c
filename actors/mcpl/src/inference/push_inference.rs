//! Inferences that push events lead to, answered by a provider, and where the answer goes.

use mgp_mcpl_engine::inference::routes::Destination;
use mgp_mcpl_engine::names;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::inference::{InferencePreferences, PromptPart, PromptRole, PromptTurn};
use mgp_runtime::mailbox::Reply;
use mgp_runtime::task;

use super::parts::AnswerParts;
use super::{InferenceHandle, InferenceJob, new_id};

/// The method that is written down for such an inference.
const METHOD: &str = "push/event";

/// An event that is to lead to an inference of the kernel's own.
#[derive(Debug)]
pub struct PushInferenceRequest {
    /// Who pushed it.
    pub server: ServerId,
    /// In the name of which of its sets.
    pub set: String,
    /// What it says.
    pub text: String,
    /// AnsweredOrder with the kernel's id of the inference as soon as it begins, or with why there is none.
    pub started: Reply<Result<String, String>>,
}

/// An answer on its way to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedAnswer {
    /// The channel, by the name that agents know.
    pub(crate) channel: String,
    /// Which inference it is of.
    pub inference: String,
    /// Who pushed the event.
    pub server: ServerId,
    /// The text.
    pub text: String,
}

impl InferenceHandle {
    /// Runs an inference about an event. Only a provider answers one: agents are told events themselves.
    pub fn run_push(&self, pushed: PushInferenceRequest) {
        let PushInferenceRequest {
            server,
            set,
            text,
            started: begun,
        } = pushed;
        let ruled = self.0.active_rules();
        let rules = &ruled.rules;
        let to = rules.routes.route(&server, &set, None);
        if !matches!(to, Destination::Provider(_)) {
            let name = names::set_name(&server.server(), &set);
            begun.send(Err(format!(
                "no provider is configured for the events of {name}"
            )));
            return;
        }
        let id = new_id();
        let prompt = rules.push_prompt(server.as_str(), &text);
        let turn = PromptTurn {
            role: PromptRole::User,
            parts: vec![PromptPart::Text(prompt)],
        };
        let order = InferenceJob {
            active_rules: ruled.clone(),
            id: id.clone(),
            server,
            set,
            conversation: None,
            turns: vec![turn],
            messages: String::new(),
            preferences: None,
            parsed_preferences: InferencePreferences::default(),
        };
        let inference = self.0.clone();
        task::spawn_detached("mcpl.pushed_inference", async move {
            begun.send(Ok(id));
            let parts = AnswerParts::new(&inference.deps.host, &order.server, None);
            let answered = Box::pin(inference.run(&order, METHOD, parts)).await;
            let channel = order.active_rules.rules.channel(&order.server, &order.set);
            // What became of it is in the audit log.
            let (Ok(answered), Some(channel)) = (answered, channel) else {
                return;
            };
            inference.deps.publish.send(PublishedAnswer {
                channel: channel.to_string(),
                inference: order.id.clone(),
                server: order.server.clone(),
                text: answered.answer.content,
            });
        });
    }
}
