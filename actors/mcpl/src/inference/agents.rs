//! Inferences that agents answer: hosts by `inference/request` (MCPL-155), and plain clients by
//! `sampling/createMessage`, which asks their user (MCPL-143).

use bytes::Bytes;
use mgp_callers::agent::{Agent, CallbackError, CallbackResult};
use mgp_json::quote;
use mgp_mcpl_engine::conversations::Side;
use mgp_mcpl_engine::inference::budget::max_usage;
use mgp_mcpl_engine::inference::provider::CONTENT_MAX;
use mgp_mcpl_engine::names;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcp::sampling::CreateMessage;
use mgp_protocol::mcpl::inference::{
    Chunk, FinishReason, InferenceAnswer, InferenceFailure, PromptPart, PromptRole, TokenUsage,
};
use mgp_runtime::EventSink;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::sync::mpsc;

use super::parts::AnswerParts;
use super::prompt::join_texts;
use super::providers::InferenceError;
use super::{InferenceJob, InferenceResult, STICKY_MAX, SharedInference, lock};
use crate::agents::McplAgent;

/// Queued chunks of an agent; an agent that sends more at once is not waited for.
const WAITING: usize = 1024;
/// Longest answer of an agent, in bytes: its text, escaped, with its envelope.
const ANSWER_MAX: usize = 6 * CONTENT_MAX + (64 << 10);

impl SharedInference {
    /// Asks an agent that is a host: this one, or any.
    pub(super) async fn ask_agent(
        &self,
        job: &InferenceJob,
        named: Option<&AgentId>,
        max_tokens: u64,
        parts: &mut AnswerParts<'_>,
    ) -> Result<InferenceResult, InferenceError> {
        let agent = self.find_host(job, named).ok_or_else(|| {
            let words = "no agent that answers inferences for this feature set is connected";
            InferenceError::not_started(InferenceFailure::NotThere, words)
        })?;
        let params = self.agent_params(job, &agent, max_tokens, parts.is_wanted());
        let (sender, mut chunks) = mpsc::channel::<String>(WAITING);
        // An agent that fills the queue has more chunks than an answer may have; the missing one is noticed.
        let sink = EventSink::new(move |part: String| drop(sender.try_send(part)));
        let call = agent.agent().new_kernel_call();
        let asking = agent.agent().infer(&call, sink, &params);
        let deadline = job.active_rules.rules.agent_timeout;
        let asking = tokio::time::timeout(deadline, asking);
        tokio::pin!(asking);
        let mut next = 0;
        let answered = loop {
            tokio::select! {
                biased;
                Some(part) = chunks.recv() => {
                    let part = Chunk::parse(&part).ok().filter(|part| part.index == next);
                    let failed = |words: &str| InferenceError::started(InferenceFailure::Failed, words);
                    let part = part.ok_or_else(|| failed("the agent's parts are not in their order"))?;
                    next += 1;
                    parts.add(&part.delta).map_err(|_| failed("the agent's parts are too long, or nobody takes them"))?;
                }
                answered = &mut asking => break answered,
            }
        };
        let answered = answered.unwrap_or(Err(CallbackError::TimedOut(deadline)));
        agent.record_answer(&answered);
        if matches!(answered, Err(CallbackError::TimedOut(_))) {
            self.release_conversation(job);
        }
        let answer = to_answer(answered)?;
        let answer = std::str::from_utf8(&answer).ok();
        let answer = answer.and_then(|text| InferenceAnswer::parse(text).ok());
        let answer = answer.filter(|answer| answer.content.len() <= CONTENT_MAX);
        let answer = answer.ok_or_else(|| {
            InferenceError::started(
                InferenceFailure::Failed,
                "the agent's answer is none of an inference",
            )
        })?;
        parts.send_rest(&answer.content)?;
        Ok(InferenceResult {
            answer,
            is_usage_reported: true,
            agent: Some(agent.id.clone()),
        })
    }

    /// The host that answers: that of the conversation, otherwise the oldest connection. A host without a GET stream is not
    /// reachable; silent ones come last.
    fn find_host(&self, job: &InferenceJob, named: Option<&AgentId>) -> Option<McplAgent> {
        let is_usable = |agent: &McplAgent| {
            named.is_none_or(|named| *named == agent.id)
                && agent.capabilities().features.inference_request
                && agent.is_reachable()
                && agent.allows_set(&job.server, &job.set)
        };
        let mut all = self.deps.agents.list_reachable();
        all.retain(is_usable);
        let key = job.conversation.clone().map(|id| (job.server.clone(), id));
        let mut sticky = lock(&self.sticky_agents);
        let connection = key.as_ref().and_then(|key| sticky.get(key));
        let index = all
            .iter()
            .position(|agent| Some(&agent.connection) == connection);
        let found = (!all.is_empty()).then(|| all.swap_remove(index.unwrap_or(0)))?;
        if let Some(key) = key {
            if sticky.len() >= STICKY_MAX {
                sticky.clear();
            }
            sticky.insert(key, found.connection);
        }
        Some(found)
    }

    /// Forgets the host of a conversation, which did not answer: the next request may go to another one.
    fn release_conversation(&self, job: &InferenceJob) {
        if let Some(id) = job.conversation.clone() {
            lock(&self.sticky_agents).remove(&(job.server.clone(), id));
        }
    }

    /// `inference/request` for the agent: with the set's name at agents, and a conversation id of its own.
    fn agent_params(
        &self,
        job: &InferenceJob,
        agent: &McplAgent,
        max_tokens: u64,
        stream: bool,
    ) -> String {
        let (from, to) = (
            Side::Server(job.server.clone()),
            Side::agent(&agent.id, agent.connection),
        );
        let conversation = job.conversation.as_deref().map(|id| {
            let id = self.deps.ids.map_conversation_id(&from, &to, id);
            format!(r#""conversationId":{},"#, quote(&id))
        });
        let preferences = job.preferences.as_deref();
        let preferences =
            preferences.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
        let mut preferences = preferences.unwrap_or_default();
        preferences.insert("maxTokens".to_owned(), max_tokens.into());
        format!(
            r#"{{"featureSet":{},{}"stream":{stream},"messages":{},"preferences":{}}}"#,
            quote(&names::set_name(&job.server.server(), &job.set)),
            conversation.unwrap_or_default(),
            job.messages,
            Value::Object(preferences),
        )
    }

    /// Asks the client of an agent, and so its user.
    pub(super) async fn ask_client(
        &self,
        job: &InferenceJob,
        agent: &AgentId,
        max_tokens: u64,
        parts: &mut AnswerParts<'_>,
    ) -> Result<InferenceResult, InferenceError> {
        let client = self
            .deps
            .directory
            .sampling_connection(agent)
            .ok_or_else(|| {
                let words = "no client that can be asked for sampling is connected";
                InferenceError::not_started(InferenceFailure::NotThere, words)
            })?;
        let params = sampling_params(job, max_tokens)?;
        let call = client.new_kernel_call();
        let asking =
            Agent::send_callback(&client, &call, None, CreateMessage::METHOD, Some(&params));
        let deadline = job.active_rules.rules.agent_timeout;
        let answered = tokio::time::timeout(deadline, asking).await;
        let answer = to_answer(answered.unwrap_or(Err(CallbackError::TimedOut(deadline))))?;
        let read: Option<SamplingAnswer> = serde_json::from_slice(&answer).ok();
        let answer = read
            .and_then(|it| it.into_answer(max_usage(&job.turns, 0)))
            .ok_or_else(|| {
                InferenceError::started(InferenceFailure::Failed, "the client's answer is no text")
            })?;
        parts.send_rest(&answer.content)?;
        // No usage was reported: the whole reservation is charged.
        Ok(InferenceResult {
            answer,
            is_usage_reported: false,
            agent: Some(agent.clone()),
        })
    }
}

/// An agent's answer, or an error that contains no text of the agent.
fn to_answer(answered: Result<CallbackResult, CallbackError>) -> Result<Arc<[u8]>, InferenceError> {
    let failed = |words: String| InferenceError::started(InferenceFailure::Failed, words);
    match answered {
        Ok(Ok(answer)) if answer.len() <= ANSWER_MAX => Ok(Arc::from(&answer[..])),
        Ok(Ok(_)) => Err(failed("the agent's answer is too long".to_owned())),
        Ok(Err(error)) => Err(failed(format!(
            "the agent refused ({})",
            error_code(&error)
        ))),
        Err(why @ CallbackError::TimedOut(_)) => Err(InferenceError::started(
            InferenceFailure::TimedOut,
            why.to_string(),
        )),
        Err(
            why
            @ (CallbackError::NotReady | CallbackError::Unreachable | CallbackError::Overloaded),
        ) => Err(InferenceError::not_started(
            InferenceFailure::NotThere,
            why.to_string(),
        )),
        Err(why @ (CallbackError::Disconnected | CallbackError::Cancelled)) => {
            Err(failed(why.to_string()))
        }
    }
}

fn error_code(error: &Bytes) -> i64 {
    #[derive(Deserialize)]
    struct RefusalCode {
        code: i64,
    }
    serde_json::from_slice(error).map_or(0, |it: RefusalCode| it.code)
}

/// `sampling/createMessage`: one block for each message, and the system prompt.
fn sampling_params(job: &InferenceJob, max_tokens: u64) -> Result<String, InferenceError> {
    let mut messages = Vec::new();
    let mut system = Vec::new();
    for turn in &job.turns {
        let role = match turn.role {
            PromptRole::System => {
                system.push(join_texts(turn));
                continue;
            }
            PromptRole::User => "user",
            PromptRole::Assistant => "assistant",
        };
        for part in &turn.parts {
            let content = match part {
                PromptPart::Text(text) => json!({"type": "text", "text": text}),
                PromptPart::Image { data, mime_type } => {
                    json!({"type": "image", "data": data, "mimeType": mime_type})
                }
                PromptPart::Other(_) => {
                    let words = "a client can be asked with texts and images only";
                    return Err(InferenceError::not_started(InferenceFailure::Failed, words));
                }
            };
            messages.push(json!({"role": role, "content": content}));
        }
    }
    let mut params = json!({"messages": messages, "maxTokens": max_tokens});
    if !system.is_empty() {
        params["systemPrompt"] = system.join("\n\n").into();
    }
    if let Some(temperature) = job.parsed_preferences.temperature {
        params["temperature"] = temperature.into();
    }
    Ok(params.to_string())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SamplingAnswer {
    content: Value,
    model: String,
    #[serde(default)]
    stop_reason: Option<String>,
}

impl SamplingAnswer {
    /// The answer, if it is a text. The usage is an estimate: four bytes for each token.
    fn into_answer(self, input: u64) -> Option<InferenceAnswer> {
        let blocks = match self.content {
            Value::Array(blocks) => blocks,
            block @ (Value::Object(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)) => vec![block],
        };
        let text = |block: &Value| Some(block.get("text")?.as_str()?.to_owned());
        let content: String = blocks.iter().map(text).collect::<Option<_>>()?;
        let finish_reason = match self.stop_reason.as_deref() {
            Some("maxTokens") => FinishReason::MaxTokens,
            Some("stopSequence") => FinishReason::StopSequence,
            Some(_) | None => FinishReason::EndTurn,
        };
        let usage = TokenUsage {
            input_tokens: input / 4,
            output_tokens: content.len() as u64 / 4,
        };
        let is_short_enough = content.len() <= CONTENT_MAX;
        is_short_enough.then_some(InferenceAnswer {
            content,
            model: self.model,
            finish_reason,
            usage,
        })
    }
}
