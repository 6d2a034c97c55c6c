//! `channels/incoming`: each message is offered to agents, one after the other, until one accepts it.

use std::collections::BTreeMap;
use std::time::Duration;

use mgp_json::{Splice, quote, remove_members, set_members};
use mgp_mcpl_engine::channels::moderation::{MessageDirection, moderate};
use mgp_mcpl_engine::channels::permits;
use mgp_mcpl_engine::channels::registry::is_id;
use mgp_mcpl_engine::conversations::Side;
use mgp_mcpl_engine::names;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mcpl::channels::{
    BATCH_MAX, Incoming, IncomingMessage, IncomingOutcome, IncomingResult,
};
use mgp_protocol::mcpl::content::Content;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mcpl::tags::EventTags;
use mgp_protocol::mcpl::{McplError, McplVersion};
use mgp_protocol::mgp::audit::Outcome;
use mgp_servers::link::McplAnswer;
use serde_json::json;

use super::{Channels, caller_side, is_allowed_by};
use crate::agents::McplAgent;
use crate::audit::{self, McplActor, McplRecord};

/// How long an agent may take to accept or reject messages.
const OFFER_TIMEOUT: Duration = Duration::from_secs(10);
/// Agents that one message is offered to.
const MAX_OFFERS: usize = 8;

/// A message that is offered to agents.
#[derive(Debug)]
struct OfferedMessage {
    id: String,
    channel: String,
    thread: Option<String>,
    /// The message in its form for agents, without the conversation.
    json: String,
    /// Its tags as JSON, for hosts of 0.5.
    tags: Option<String>,
    set: String,
    bytes: usize,
    /// The hosts that it may be offered to, the first one last, by their index among all hosts.
    candidates: Vec<usize>,
    outcome: Option<IncomingOutcome>,
    /// The latest reason of a rejection.
    reason: String,
}

/// What is left of a message that is admitted.
struct AdmittedMessage {
    /// The set that admits it.
    set: String,
    /// Its form for agents.
    json: String,
    tags: Option<String>,
}

impl Channels {
    /// Offers each message of a batch.
    pub(super) async fn incoming(&self, server: &ServerId, params: &str) -> McplAnswer {
        let incoming_message: Incoming<'_> =
            mcp::parse_params(Some(params)).map_err(McplError::bad_params)?;
        if incoming_message.messages.len() > BATCH_MAX {
            let words = format!("more than {BATCH_MAX} messages");
            return Err(McplError::bad_params(words));
        }
        let agents = self.agents.list_reachable();
        let mut messages = Vec::with_capacity(incoming_message.messages.len());
        for raw in incoming_message.messages {
            messages.push(self.prepare(server, raw.get(), &agents)?);
        }
        loop {
            // Messages for the same agent are sent together.
            let mut next: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for (index, message) in messages.iter_mut().enumerate() {
                if message.outcome.is_none()
                    && let Some(to) = message.candidates.pop()
                {
                    next.entry(to).or_default().push(index);
                }
            }
            if next.is_empty() {
                break;
            }
            for (to, indices) in next {
                self.offer(server, &agents[to], &mut messages, &indices)
                    .await;
            }
        }
        let results = messages.into_iter().map(|message| {
            let refused = IncomingOutcome {
                message_id: message.id.clone(),
                accepted: false,
                conversation_id: None,
                reason: Some(message.reason),
            };
            message.outcome.unwrap_or(refused)
        });
        let batch = IncomingResult {
            results: results.collect(),
        };
        Ok(serde_json::to_string(&batch).expect("an answer is always JSON"))
    }

    /// Parses a message and returns the hosts it may be offered to: none, with the reason, if it is rejected.
    fn prepare(
        &self,
        server: &ServerId,
        raw: &str,
        agents: &[McplAgent],
    ) -> Result<OfferedMessage, McplError> {
        let incoming_message: IncomingMessage<'_> =
            mcp::parse_params(Some(raw)).map_err(McplError::bad_params)?;
        if !is_id(&incoming_message.message_id) {
            return Err(McplError::bad_params("`messageId` is no id"));
        }
        let mut message = OfferedMessage {
            id: incoming_message.message_id.to_string(),
            channel: incoming_message.channel_id.to_string(),
            thread: incoming_message.thread_id.as_deref().map(str::to_owned),
            json: String::new(),
            tags: None,
            set: String::new(),
            bytes: incoming_message.content.get().len(),
            candidates: Vec::new(),
            outcome: None,
            reason: "no agent takes messages of this channel".into(),
        };
        match self.admit(server, raw, &incoming_message) {
            Ok(admitted) => {
                message.candidates = self.candidates(server, &admitted.set, &message, agents);
                (message.set, message.json) = (admitted.set, admitted.json);
                message.tags = admitted.tags;
            }
            Err(why) => {
                message.reason = why.clone();
                self.record(server, &message, None, Outcome::Denied, Some(&why));
            }
        }
        Ok(message)
    }

    /// A message that a set admits; or the reason of its rejection. Tags decide nothing (0.5 §16.6).
    fn admit(
        &self,
        server: &ServerId,
        raw: &str,
        incoming_message: &IncomingMessage<'_>,
    ) -> Result<AdmittedMessage, String> {
        let unknown = || "Unknown channel".to_owned();
        let is_incoming = {
            let servers = self.servers();
            let channel = servers
                .get(server)
                .and_then(|all| all.get(&incoming_message.channel_id));
            channel.ok_or_else(unknown)?.is_incoming()
        };
        let sets = self.host.sets().load();
        let of_server = sets.get(server).ok_or_else(unknown)?;
        let set_for = |uses| permits::permitting_set(of_server, uses, &incoming_message.channel_id);
        let set =
            set_for(Capability::ChannelsIncoming).or_else(|| set_for(Capability::ChannelsPublish));
        let set = set.filter(|_| is_incoming);
        let set = set.ok_or_else(|| "Channel not permitted".to_owned())?;
        let content = Content::parse(incoming_message.content.get())?;
        let name = names::channel_name(server, &incoming_message.channel_id);
        let content = moderate(
            &self.rules().moderation,
            &name,
            MessageDirection::In,
            content,
        );
        let content = content.ok_or_else(|| "a rule of the operator drops it".to_owned())?;
        let replaced = [
            ("channelId", &*quote(&name)),
            ("content", &*content.to_json()),
        ];
        // In 0.4 it is a member like any other.
        let read_apart: &[&str] = match of_server.has_tags() {
            true => &["conversationId", "tags"],
            false => &["conversationId"],
        };
        let tags = EventTags::read(incoming_message.tags.filter(|_| of_server.has_tags()));
        let rest = remove_members(raw, read_apart);
        Ok(AdmittedMessage {
            set: set.to_owned(),
            json: set_members(&rest, &replaced),
            tags: tags.to_json(),
        })
    }

    /// The hosts a message is offered to, the first one last: the one that accepted the thread before, then the operator's
    /// order, then the oldest connection. Silent hosts come after all others.
    fn candidates(
        &self,
        server: &ServerId,
        set: &str,
        message: &OfferedMessage,
        agents: &[McplAgent],
    ) -> Vec<usize> {
        let thread = (
            server.clone(),
            message.channel.clone(),
            message.thread.clone(),
        );
        let rules = self.rules();
        let before = self.threads().agent(&thread).cloned();
        let mut all: Vec<_> = agents
            .iter()
            .enumerate()
            .filter(|(_, agent)| {
                agent.capabilities().features.channels.has_any() && agent.can_see(server)
            })
            .filter(|(_, agent)| is_allowed_by(Some(agent), server, set, &message.channel))
            .filter_map(|(index, agent)| {
                let position = rules.incoming_position(&agent.id)?;
                let is_same_agent = before.as_ref() == Some(&agent.id);
                Some((agent.is_silent(), !is_same_agent, position, index))
            })
            .collect();
        all.sort();
        all.truncate(MAX_OFFERS);
        all.into_iter().rev().map(|(.., to)| to).collect()
    }

    async fn offer(
        &self,
        server: &ServerId,
        agent: &McplAgent,
        messages: &mut [OfferedMessage],
        indices: &[usize],
    ) {
        let to = caller_side(agent.caller());
        let is_0_5 = agent.capabilities().features.version == McplVersion::V0_5;
        let suggested: Vec<String> = indices
            .iter()
            .map(|index| self.suggest_conversation(server, &to, &messages[*index]))
            .collect();
        let offered = indices.iter().zip(&suggested).map(|(index, conversation)| {
            let OfferedMessage { json, tags, .. } = &messages[*index];
            let mut splice = Splice::new(json);
            splice.insert_member(json, "conversationId", &quote(conversation));
            if let Some(tags) = tags.as_deref().filter(|_| is_0_5) {
                splice.insert_member(json, "tags", tags);
            }
            splice.finish().into_owned()
        });
        let offered: Vec<String> = offered.collect();
        let params = format!(r#"{{"messages":[{}]}}"#, offered.join(","));
        let answer = agent
            .request(Incoming::METHOD, &params, OFFER_TIMEOUT)
            .await;
        let batch = match answer {
            Ok(Ok(result)) => {
                let text = std::str::from_utf8(&result).unwrap_or_default();
                mcp::parse_params::<IncomingResult>(Some(text)).map_err(|why| why.to_string())
            }
            Ok(Err(_)) => Err("the agent answered with an error".to_owned()),
            Err(why) => Err(why.to_string()),
        };
        let mut answers = match batch {
            Ok(batch) => batch.results,
            Err(why) => {
                for index in indices {
                    messages[*index].reason = why.clone();
                    self.record(
                        server,
                        &messages[*index],
                        Some(agent),
                        Outcome::Failure,
                        Some(&why),
                    );
                }
                return;
            }
        };
        for (index, conversation) in indices.iter().zip(suggested) {
            let message = &mut messages[*index];
            let answer = answers.iter().position(|one| one.message_id == message.id);
            let Some(answer) = answer.map(|index| answers.remove(index)) else {
                message.reason = "the agent did not say that it takes it".into();
                continue;
            };
            if !answer.accepted {
                message.reason = answer
                    .reason
                    .unwrap_or_else(|| "the agent does not take it".into());
                self.record(server, message, Some(agent), Outcome::Denied, None);
                continue;
            }
            let conversation = answer.conversation_id.unwrap_or(conversation);
            let server_side = Side::Server(server.clone());
            message.outcome = Some(IncomingOutcome {
                message_id: message.id.clone(),
                accepted: true,
                conversation_id: Some(self.conversations.map_conversation_id(
                    &to,
                    &server_side,
                    &conversation,
                )),
                reason: None,
            });
            let thread = (
                server.clone(),
                message.channel.clone(),
                message.thread.clone(),
            );
            self.threads().set_agent(thread, agent.id.clone());
            self.record(server, message, Some(agent), Outcome::Success, None);
        }
    }

    /// The conversation of a thread for an agent: the same each time, also after a restart.
    fn suggest_conversation(
        &self,
        server: &ServerId,
        to: &Side,
        message: &OfferedMessage,
    ) -> String {
        let thread = json!([server.as_str(), message.channel, message.thread]).to_string();
        self.conversations
            .map_conversation_id(&Side::Kernel, to, &thread)
    }

    fn record(
        &self,
        server: &ServerId,
        message: &OfferedMessage,
        agent: Option<&McplAgent>,
        outcome: Outcome,
        reason: Option<&str>,
    ) {
        let record = McplRecord {
            feature_set: Some(&message.set)
                .filter(|set| !set.is_empty())
                .map(String::as_str),
            agent: agent.map(|agent| &agent.id),
            actor: McplActor::Server,
            outcome,
            reason,
            text: Some(message.json.as_bytes()).filter(|text| !text.is_empty()),
            details: json!({"channel": message.channel, "bytes": message.bytes}),
            ..McplRecord::from_server(server, Incoming::METHOD)
        };
        audit::record(self.host.audit(), &record);
    }
}
