//! Answers of the kernel's own inferences, published where the operator says.

use mgp_mcpl_engine::channels::moderation::{MessageWay, moderated};
use mgp_mcpl_engine::channels::permits;
use mgp_mcpl_engine::conversations::Side;
use mgp_mcpl_engine::names;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::channels::Publish;
use mgp_protocol::mcpl::content::Content;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mgp::audit::Outcome;
use mgp_protocol::splice::quoted;
use serde_json::json;

use super::{AT_THE_PLATFORM, Channels};
use crate::audit::{self, McplActor, McplRecord};
use crate::inference::PublishedAnswer;

impl Channels {
    /// Publishes one, under the same rules as what agents publish. What came of it is in the audit log.
    pub async fn publish_own(&self, answer: &PublishedAnswer) {
        let (server, channel) = match self.named(&answer.channel, |_| true) {
            Ok(found) => found,
            Err(error) => return self.not_published(answer, &error),
        };
        let set = {
            let sets = self.host.sets().load();
            let of_server = sets.of(&server);
            let set = of_server
                .and_then(|of| permits::permitted(of, Capability::ChannelsPublish, &channel.id));
            set.filter(|_| channel.goes_out()).map(str::to_owned)
        };
        let Some(set) = set else {
            let error = McplError::channel_not_permitted(&answer.channel);
            return self.not_published(answer, &error);
        };
        let name = names::channel(&server, &channel.id);
        let content = moderated(
            &self.rules().moderation,
            &name,
            MessageWay::Out,
            Content::text(&answer.text),
        );
        let (from, to) = (
            Side::Server(answer.server.clone()),
            Side::Server(server.clone()),
        );
        let conversation = self
            .conversations
            .conversation(&from, &to, &answer.inference);
        let (outcome, text) = match content {
            None => (Outcome::Denied, None),
            Some(content) => {
                let content = content.to_json();
                let params = format!(
                    r#"{{"conversationId":{},"channelId":{},"stream":false,"content":{content}}}"#,
                    quoted(&conversation),
                    quoted(&channel.id),
                );
                let asked = self
                    .host
                    .asks(&server, Publish::METHOD, &params, AT_THE_PLATFORM);
                let outcome = match asked.await {
                    Ok(_) => Outcome::Success,
                    Err(refusal) => audit::of_refusal(&refusal),
                };
                (outcome, Some(content))
            }
        };
        let record = McplRecord {
            feature_set: Some(&set),
            inference: Some(&answer.inference),
            by: McplActor::Kernel,
            outcome,
            text: text.as_deref().map(str::as_bytes),
            more: json!({"channel": &*channel.id}),
            ..McplRecord::of_server(&server, Publish::METHOD)
        };
        audit::record(self.host.audit(), &record);
    }

    fn not_published(&self, answer: &PublishedAnswer, error: &McplError) {
        tracing::warn!(channel = %answer.channel, "the answer to an event is not published: {error}");
        let record = McplRecord {
            inference: Some(&answer.inference),
            by: McplActor::Kernel,
            outcome: audit::of_error(error),
            reason: Some(&error.message),
            more: json!({"channel": answer.channel}),
            ..McplRecord::of_server(&answer.server, Publish::METHOD)
        };
        audit::record(self.host.audit(), &record);
    }
}
