//! `channels/outgoing/*`: what an agent writes, told to who may observe the channel (MCPL §14.3).

use std::borrow::Cow;

use mgp_callers::request::Caller;
use mgp_mcpl_engine::channels::moderation::{MessageWay, moderated, moderates};
use mgp_mcpl_engine::channels::permits;
use mgp_mcpl_engine::conversations::Side;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::channels::outgoing::{Chunk, Complete};
use mgp_protocol::mcpl::content::Content;
use mgp_protocol::mcpl::error::CHANNEL_NOT_PERMITTED;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::splice::quoted;
use serde_json::json;

use super::{Channels, permitted_set, side};
use crate::audit::{self, McplActor, McplRecord};

/// Who observes a channel, and what it is called there.
#[derive(Debug)]
struct Observer {
    server: ServerId,
    set: String,
    channel: String,
}

/// The whole of what an agent wrote to a channel, on its way to who observes it.
#[derive(Debug)]
pub struct Completing {
    observers: Vec<Observer>,
    /// Of which inference.
    pub inference: String,
    conversation: Option<String>,
    channel: String,
    /// What is told.
    pub content: Content,
}

impl Channels {
    /// `channels/outgoing/chunk` of a caller who sees these servers. Where a rule moderates the channel, no part is
    /// told before the whole: what a rule finds may stand across two parts.
    ///
    /// # Errors
    /// Those of MCPL §14.6, or invalid params: the agent is told none, as it asked nothing.
    pub fn outgoing_chunk(
        &self,
        caller: &Caller,
        sees: impl Fn(&ServerId) -> bool,
        params: Option<&str>,
    ) -> Result<(), McplError> {
        let said: Chunk<'_> = mcp::read(params).map_err(McplError::bad_params)?;
        if moderates(&self.rules().moderation, &said.channel_id, MessageWay::Out) {
            return Ok(());
        }
        let observers = self.observers(caller, sees, &said.channel_id, true)?;
        for observer in observers {
            let ids = self.ids(
                caller,
                &observer,
                &said.inference_id,
                said.conversation_id.as_deref(),
            );
            let params = format!(
                r#"{{{ids},"index":{},"delta":{}}}"#,
                said.index,
                quoted(&said.delta)
            );
            let _ = self.host.tells(&observer.server, Chunk::METHOD, &params);
            // One record for what is written in parts; the whole has its own.
            if said.index == 0 {
                self.observed(
                    caller,
                    &observer,
                    Chunk::METHOD,
                    &said.inference_id,
                    &said.delta,
                );
            }
        }
        Ok(())
    }

    /// Judges `channels/outgoing/complete`.
    ///
    /// # Errors
    /// As [`Self::outgoing_chunk`].
    pub fn completing(
        &self,
        caller: &Caller,
        sees: impl Fn(&ServerId) -> bool,
        params: Option<&str>,
    ) -> Result<Completing, McplError> {
        let said: Complete<'_> = mcp::read(params).map_err(McplError::bad_params)?;
        Ok(Completing {
            observers: self.observers(caller, sees, &said.channel_id, false)?,
            content: Content::read(said.content.get()).map_err(McplError::bad_params)?,
            inference: said.inference_id.into_owned(),
            conversation: said.conversation_id.map(Cow::into_owned),
            channel: said.channel_id.into_owned(),
        })
    }

    /// Tells the observers the whole, or what was made of it.
    pub fn completed(&self, caller: &Caller, completing: Completing) {
        let Completing {
            observers,
            inference,
            conversation,
            channel,
            content,
        } = completing;
        let rules = self.rules();
        let Some(content) = moderated(&rules.moderation, &channel, MessageWay::Out, content) else {
            return;
        };
        let content = content.to_json();
        for observer in observers {
            let ids = self.ids(caller, &observer, &inference, conversation.as_deref());
            let params = format!(r#"{{{ids},"content":{content}}}"#);
            let _ = self.host.tells(&observer.server, Complete::METHOD, &params);
            self.observed(caller, &observer, Complete::METHOD, &inference, &content);
        }
    }

    /// Who may observe a channel: its own server alone; of a channel that is no server's, all that may.
    fn observers(
        &self,
        caller: &Caller,
        sees: impl Fn(&ServerId) -> bool,
        name: &str,
        in_parts: bool,
    ) -> Result<Vec<Observer>, McplError> {
        let observe = &[Capability::ChannelsObserve];
        let sets = self.host.sets().load();
        let takes = |server: &ServerId| {
            let channels = sets.of(server).map(|sets| sets.abilities.channels);
            channels.is_some_and(|it| it.observe && (it.streaming || !in_parts))
        };
        if permits::is_pseudo(name) {
            let host = self.agents.get(caller.connection);
            let seen = sets.servers.keys().filter(|server| sees(server));
            let observers = seen.filter(|server| takes(server)).filter_map(|server| {
                let set = permitted_set(&sets, host.as_ref(), (server, name), observe)?;
                Some(Observer {
                    server: server.clone(),
                    set,
                    channel: name.to_owned(),
                })
            });
            return Ok(observers.collect());
        }
        let permit = match self.permit(caller, sees, name, observe) {
            Ok(permit) => permit,
            // A channel that is only published to: parts of an answer are for nobody there.
            Err(error) if error.code == CHANNEL_NOT_PERMITTED => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let observer = Observer {
            channel: permit.channel.id.to_string(),
            server: permit.server,
            set: permit.set,
        };
        Ok(Some(observer)
            .filter(|observer| takes(&observer.server))
            .into_iter()
            .collect())
    }

    /// The ids of a message, as its observer is told them.
    fn ids(
        &self,
        caller: &Caller,
        observer: &Observer,
        inference: &str,
        conversation: Option<&str>,
    ) -> String {
        let (from, to) = (side(caller), Side::Server(observer.server.clone()));
        let inference = self.conversations.inference(&from, &to, inference);
        let conversation = conversation.unwrap_or(&observer.channel);
        let conversation = self.conversations.conversation(&from, &to, conversation);
        format!(
            r#""inferenceId":{},"conversationId":{},"channelId":{}"#,
            quoted(&inference),
            quoted(&conversation),
            quoted(&observer.channel)
        )
    }

    fn observed(
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
            by: McplActor::Agent,
            text: Some(text.as_bytes()),
            more: json!({"channel": observer.channel}),
            ..McplRecord::of_server(&observer.server, method)
        };
        audit::record(self.host.audit(), &record);
    }
}
