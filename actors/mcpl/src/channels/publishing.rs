//! `channels/publish`, to the one server that has the channel.

use std::sync::Arc;

use mgp_callers::request::Caller;
use mgp_json::quote;
use mgp_mcpl_engine::channels::moderation::{MessageDirection, moderate};
use mgp_mcpl_engine::conversations::Side;
use mgp_mcpl_engine::names;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::channels::{Publish, PublishResult};
use mgp_protocol::mcpl::content::Content;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mgp::audit::Outcome;
use mgp_protocol::refusal::Refusal;
use serde_json::json;

use super::{ChannelPermit, Channels, PLATFORM_TIMEOUT, caller_side};
use crate::audit::{self, McplActor, McplRecord};

/// A checked message for a channel.
#[derive(Debug)]
pub struct PreparedMessage {
    server: ServerId,
    set: String,
    channel: Arc<str>,
    /// `None` when a rule drops it.
    content: Option<String>,
    params: String,
}

impl Channels {
    /// Checks a caller's message. The caller sees these servers.
    ///
    /// # Errors
    /// Those of MCPL §14.6, or invalid params.
    pub fn prepare_publish(
        &self,
        caller: &Caller,
        sees: impl Fn(&ServerId) -> bool,
        params: Option<&str>,
    ) -> Result<PreparedMessage, McplError> {
        let publish: Publish<'_> = mcp::parse_params(params).map_err(McplError::bad_params)?;
        let default = self.default_outgoing();
        let named = publish.channel_id.as_deref().or(default.as_deref());
        let name = named.ok_or_else(|| {
            McplError::bad_params(
                "`channelId` is missing, and the operator named no default channel",
            )
        })?;
        let permit = self.check_permit(caller, sees, name, &[Capability::ChannelsPublish])?;
        let ChannelPermit {
            server,
            channel,
            set,
        } = permit;
        if !channel.is_outgoing() {
            return Err(McplError::channel_not_permitted(name));
        }
        let content = Content::parse(publish.content.get()).map_err(McplError::bad_params)?;
        let visible_name = names::channel_name(&server, &channel.id);
        let content = moderate(
            &self.rules().moderation,
            &visible_name,
            MessageDirection::Out,
            content,
        );
        let content = content.map(|content| content.to_json());
        let to = Side::Server(server.clone());
        let conversation = publish.conversation_id.as_deref().unwrap_or(name);
        let conversation =
            self.conversations
                .map_conversation_id(&caller_side(caller), &to, conversation);
        let params = format!(
            r#"{{"conversationId":{},"channelId":{},"stream":{},"content":{}}}"#,
            quote(&conversation),
            quote(&channel.id),
            publish.stream,
            content.as_deref().unwrap_or("[]"),
        );
        Ok(PreparedMessage {
            server,
            set,
            channel: channel.id,
            content,
            params,
        })
    }

    /// Publishes, and waits for the server's confirmation of delivery.
    ///
    /// # Errors
    /// The server's own error, or whatever kept the answer from coming.
    pub async fn publish(
        &self,
        caller: &Caller,
        publishing: PreparedMessage,
    ) -> Result<PublishResult, Refusal> {
        if publishing.content.is_none() {
            self.record_publish(
                caller,
                &publishing,
                Outcome::Denied,
                Some("dropped by a rule"),
            );
            return Ok(dropped_result());
        }
        let asked = self.host.request(
            &publishing.server,
            Publish::METHOD,
            &publishing.params,
            PLATFORM_TIMEOUT,
        );
        let answer = asked.await.and_then(|answer| {
            let text = std::str::from_utf8(&answer).unwrap_or_default();
            mcp::parse_params::<PublishResult>(Some(text)).map_err(|why| Refusal::InvalidAnswer {
                server: publishing.server.clone(),
                reason: format!("its answer to channels/publish is none: {why}"),
            })
        });
        let outcome = match &answer {
            Ok(published) if published.delivered => Outcome::Success,
            Ok(_) => Outcome::Failure,
            Err(refusal) => audit::outcome_of_refusal(refusal),
        };
        self.record_publish(caller, &publishing, outcome, None);
        answer
    }

    /// Publishes without waiting.
    ///
    /// # Errors
    /// The server is not connected.
    pub fn publish_without_wait(
        &self,
        caller: &Caller,
        publishing: &PreparedMessage,
    ) -> Result<(), Refusal> {
        if publishing.content.is_none() {
            self.record_publish(
                caller,
                publishing,
                Outcome::Denied,
                Some("dropped by a rule"),
            );
            return Ok(());
        }
        self.host
            .notify(&publishing.server, Publish::METHOD, &publishing.params)?;
        self.record_publish(caller, publishing, Outcome::Success, None);
        Ok(())
    }

    fn record_publish(
        &self,
        caller: &Caller,
        publishing: &PreparedMessage,
        outcome: Outcome,
        reason: Option<&str>,
    ) {
        let record = McplRecord {
            feature_set: Some(&publishing.set),
            agent: Some(&caller.agent),
            actor: McplActor::Agent,
            outcome,
            reason,
            text: publishing.content.as_deref().map(str::as_bytes),
            details: json!({"channel": &*publishing.channel}),
            ..McplRecord::from_server(&publishing.server, Publish::METHOD)
        };
        audit::record(self.host.audit(), &record);
    }
}

fn dropped_result() -> PublishResult {
    PublishResult {
        delivered: false,
        message_id: None,
        reason: Some("a rule of the operator drops it".into()),
    }
}
