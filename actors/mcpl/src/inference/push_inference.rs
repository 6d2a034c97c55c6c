//! Inferences for push events: answered by a provider, and published.

use mgp_mcpl_engine::inference::routes::Destination;
use mgp_mcpl_engine::names;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::inference::{InferencePreferences, PromptPart, PromptRole, PromptTurn};
use mgp_runtime::{Reply, task};

use super::parts::AnswerParts;
use super::{InferenceHandle, InferenceJob, new_id};

/// The method in the audit records of such inferences.
const METHOD: &str = "push/event";

/// A request for an inference of the kernel about an event.
#[derive(Debug)]
pub struct PushInferenceRequest {
    /// The server.
    pub server: ServerId,
    /// The feature set.
    pub set: String,
    /// The text of the event.
    pub text: String,
    /// Answered with the id of the inference once it starts, or with the reason why it does not.
    pub started: Reply<Result<String, String>>,
}

/// An answer to publish to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedAnswer {
    /// The channel, by its name at agents.
    pub(crate) channel: String,
    /// The inference.
    pub(crate) inference: String,
    /// The server that pushed the event.
    pub server: ServerId,
    /// The text.
    pub text: String,
}

impl InferenceHandle {
    /// Runs an inference about an event. Only a provider answers one: agents receive the events themselves.
    pub fn run_push(&self, request: PushInferenceRequest) {
        let PushInferenceRequest {
            server,
            set,
            text,
            started,
        } = request;
        let active = self.0.active_rules();
        let rules = &active.rules;
        let to = rules.routes.route(&server, &set, None);
        if !matches!(to, Destination::Provider(_)) {
            let name = names::set_name(&server.server(), &set);
            started.send(Err(format!(
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
        let job = InferenceJob {
            active_rules: active.clone(),
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
            started.send(Ok(id));
            let parts = AnswerParts::new(&inference.deps.host, &job.server, None);
            let answered = Box::pin(inference.run(&job, METHOD, parts)).await;
            let channel = job.active_rules.rules.channel(&job.server, &job.set);
            // The outcome is in the audit log.
            let (Ok(answered), Some(channel)) = (answered, channel) else {
                return;
            };
            inference.deps.publish.send(PublishedAnswer {
                channel: channel.to_string(),
                inference: job.id.clone(),
                server: job.server.clone(),
                text: answered.answer.content,
            });
        });
    }
}
