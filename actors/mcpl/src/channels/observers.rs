//! `channels/outgoing/*`: sends an agent's output to the observers of the channel (MCPL §14.3).

use std::borrow::Cow;

use mgp_callers::request::Caller;
use mgp_json::quote;
use mgp_mcpl_engine::channels::moderation::{MessageDirection, is_moderated, moderate};
use mgp_mcpl_engine::channels::permits;
use mgp_mcpl_engine::conversations::Side;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::channels::outgoing::{Chunk, Complete};
use mgp_protocol::mcpl::content::Content;
use mgp_protocol::mcpl::error::CHANNEL_NOT_PERMITTED;
use mgp_protocol::mcpl::feature_sets::Capability;
use serde_json::json;

use super::{Channels, caller_side, permitting_set};
use crate::audit::{self, McplActor, McplRecord};

/// An observer of a channel, and its name for the channel.
#[derive(Debug)]
struct Observer {
    server: ServerId,
    set: String,
    channel: String,
}

/// The complete output of an agent to a channel, for its observers.
#[derive(Debug)]
pub struct OutgoingCompletion {
    observers: Vec<Observer>,
    /// The inference.
    pub inference: String,
    conversation: Option<String>,
    channel: String,
    /// The output.
    pub content: Content,
}

impl Channels {
    /// `channels/outgoing/chunk` of a caller that sees these servers. If a rule moderates the channel, no chunk is sent before
    /// the complete output: a match may span two chunks.
    ///
    /// # Errors
    /// Those of MCPL §14.6, or invalid params. The agent gets none, since it sent a notification.
    pub fn outgoing_chunk(
        &self,
        caller: &Caller,
        sees: impl Fn(&ServerId) -> bool,
        params: Option<&str>,
    ) -> Result<(), McplError> {
        let outgoing: Chunk<'_> = mcp::parse_params(params).map_err(McplError::bad_params)?;
        if is_moderated(
            &self.rules().moderation,
            &outgoing.channel_id,
            MessageDirection::Out,
        ) {
            return Ok(());
        }
        let observers = self.find_observers(caller, sees, &outgoing.channel_id, true)?;
        for observer in observers {
            let ids = self.message_ids(
                caller,
                &observer,
                &outgoing.inference_id,
                outgoing.conversation_id.as_deref(),
            );
            let params = format!(
                r#"{{{ids},"index":{},"delta":{}}}"#,
                outgoing.index,
                quote(&outgoing.delta)
            );
            let _ = self.host.notify(&observer.server, Chunk::METHOD, &params);
            // One record for all chunks; the complete output has its own.
            if outgoing.index == 0 {
                self.record_observation(
                    caller,
                    &observer,
                    Chunk::METHOD,
                    &outgoing.inference_id,
                    &outgoing.delta,
                );
            }
        }
        Ok(())
    }

    /// Checks `channels/outgoing/complete`.
    ///
    /// # Errors
    /// As [`Self::outgoing_chunk`].
    pub fn prepare_completion(
        &self,
        caller: &Caller,
        sees: impl Fn(&ServerId) -> bool,
        params: Option<&str>,
    ) -> Result<OutgoingCompletion, McplError> {
        let outgoing: Complete<'_> = mcp::parse_params(params).map_err(McplError::bad_params)?;
        Ok(OutgoingCompletion {
            observers: self.find_observers(caller, sees, &outgoing.channel_id, false)?,
            content: Content::parse(outgoing.content.get()).map_err(McplError::bad_params)?,
            inference: outgoing.inference_id.into_owned(),
            conversation: outgoing.conversation_id.map(Cow::into_owned),
            channel: outgoing.channel_id.into_owned(),
        })
    }

    /// Sends the observers the complete output, after moderation.
    pub fn deliver_completion(&self, caller: &Caller, completing: OutgoingCompletion) {
        let OutgoingCompletion {
            observers,
            inference,
            conversation,
            channel,
            content,
        } = completing;
        let rules = self.rules();
        let Some(content) = moderate(&rules.moderation, &channel, MessageDirection::Out, content)
        else {
            return;
        };
        let content = content.to_json();
        for observer in observers {
            let ids = self.message_ids(caller, &observer, &inference, conversation.as_deref());
            let params = format!(r#"{{{ids},"content":{content}}}"#);
            let _ = self
                .host
                .notify(&observer.server, Complete::METHOD, &params);
            self.record_observation(caller, &observer, Complete::METHOD, &inference, &content);
        }
    }

    /// The observers of a channel: its own server alone; of a channel without a server, all that may observe it.
    fn find_observers(
        &self,
        caller: &Caller,
        sees: impl Fn(&ServerId) -> bool,
        name: &str,
        in_parts: bool,
    ) -> Result<Vec<Observer>, McplError> {
        let observe = &[Capability::ChannelsStreaming];
        let sets = self.host.sets().load();
        let observes = |server: &ServerId| {
            let channels = sets.get(server).map(|sets| sets.abilities.channels);
            channels.is_some_and(|it| it.observe && (it.streaming || !in_parts))
        };
        if permits::is_pseudo(name) {
            let host = self.agents.get(caller.connection);
            let seen = sets.servers.keys().filter(|server| sees(server));
            let observers = seen.filter(|server| observes(server)).filter_map(|server| {
                let set = permitting_set(&sets, host.as_ref(), (server, name), observe)?;
                Some(Observer {
                    server: server.clone(),
                    set,
                    channel: name.to_owned(),
                })
            });
            return Ok(observers.collect());
        }
        let permit = match self.check_permit(caller, sees, name, observe) {
            Ok(permit) => permit,
            // The channel is only for publishing: chunks have no observer.
            Err(error) if error.code == CHANNEL_NOT_PERMITTED => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let observer = Observer {
            channel: permit.channel.id.to_string(),
            server: permit.server,
            set: permit.set,
        };
        Ok(Some(observer)
            .filter(|observer| observes(&observer.server))
            .into_iter()
            .collect())
    }

    /// The ids of a message for its observer.
    fn message_ids(
        &self,
        caller: &Caller,
        observer: &Observer,
        inference: &str,
        conversation: Option<&str>,
    ) -> String {
        let (from, to) = (caller_side(caller), Side::Server(observer.server.clone()));
        let inference = self.conversations.map_inference_id(&from, &to, inference);
        let conversation = conversation.unwrap_or(&observer.channel);
        let conversation = self
            .conversations
            .map_conversation_id(&from, &to, conversation);
        format!(
            r#""inferenceId":{},"conversationId":{},"channelId":{}"#,
            quote(&inference),
            quote(&conversation),
            quote(&observer.channel)
        )
    }

    fn record_observation(
        &self,
        caller: &Caller,
        observer: &Observer,
        method: &str,
        inference: &str,
        text: &str,
    ) {
        let record = McplRecord {
            feature_set: Some(&observer.set),
            inference: Some(inference),
            agent: Some(&caller.agent),
            actor: McplActor::Agent,
            text: Some(text.as_bytes()),
            details: json!({"channel": observer.channel}),
            ..McplRecord::from_server(&observer.server, method)
        };
        audit::record(self.host.audit(), &record);
    }
}
