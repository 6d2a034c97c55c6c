//! Publishes answers of the kernel's own inferences to the configured channel.

use mgp_json::quote;
use mgp_mcpl_engine::channels::moderation::{MessageDirection, moderate};
use mgp_mcpl_engine::channels::permits;
use mgp_mcpl_engine::conversations::Side;
use mgp_mcpl_engine::names;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::channels::Publish;
use mgp_protocol::mcpl::content::Content;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mgp::audit::Outcome;
use serde_json::json;

use super::{Channels, PLATFORM_TIMEOUT};
use crate::audit::{self, McplActor, McplRecord};
use crate::inference::PublishedAnswer;

impl Channels {
    /// Publishes an answer, by the same rules as agents' messages. The outcome is in the audit log.
    pub async fn publish_kernel_answer(&self, answer: &PublishedAnswer) {
        let (server, channel) = match self.find_channel(&answer.channel, |_| true) {
            Ok(found) => found,
            Err(error) => return self.record_failure(answer, &error),
        };
        let set = {
            let sets = self.host.sets().load();
            let of_server = sets.get(&server);
            let set = of_server.and_then(|of| {
                permits::permitting_set(of, Capability::ChannelsPublish, &channel.id)
            });
            set.filter(|_| channel.is_outgoing()).map(str::to_owned)
        };
        let Some(set) = set else {
            let error = McplError::channel_not_permitted(&answer.channel);
            return self.record_failure(answer, &error);
        };
        let name = names::channel_name(&server, &channel.id);
        let content = moderate(
            &self.rules().moderation,
            &name,
            MessageDirection::Out,
            Content::text(&answer.text),
        );
        let (from, to) = (
            Side::Server(answer.server.clone()),
            Side::Server(server.clone()),
        );
        let conversation = self
            .conversations
            .map_conversation_id(&from, &to, &answer.inference);
        let (outcome, text) = match content {
            None => (Outcome::Denied, None),
            Some(content) => {
                let content = content.to_json();
                let params = format!(
                    r#"{{"conversationId":{},"channelId":{},"stream":false,"content":{content}}}"#,
                    quote(&conversation),
                    quote(&channel.id),
                );
                let asked = self
                    .host
                    .request(&server, Publish::METHOD, &params, PLATFORM_TIMEOUT);
                let outcome = match asked.await {
                    Ok(_) => Outcome::Success,
                    Err(refusal) => audit::outcome_of_refusal(&refusal),
                };
                (outcome, Some(content))
            }
        };
        let record = McplRecord {
            feature_set: Some(&set),
            inference: Some(&answer.inference),
            actor: McplActor::Kernel,
            outcome,
            text: text.as_deref().map(str::as_bytes),
            details: json!({"channel": &*channel.id}),
            ..McplRecord::from_server(&server, Publish::METHOD)
        };
        audit::record(self.host.audit(), &record);
    }

    fn record_failure(&self, answer: &PublishedAnswer, error: &McplError) {
        tracing::warn!(channel = %answer.channel, "the answer to an event is not published: {error}");
        let record = McplRecord {
            inference: Some(&answer.inference),
            actor: McplActor::Kernel,
            outcome: audit::outcome_of_error(error),
            reason: Some(&error.message),
            details: json!({"channel": answer.channel}),
            ..McplRecord::from_server(&answer.server, Publish::METHOD)
        };
        audit::record(self.host.audit(), &record);
    }
}
