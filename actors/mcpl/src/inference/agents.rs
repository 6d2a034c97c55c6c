//! Inferences that agents answer: hosts by `inference/request` (MCPL-155), and plain clients by
//! `sampling/createMessage`, which asks their person (MCPL-143).

use bytes::Bytes;
use mgp_callers::agent::{Agent, ClientAnswer, Unanswered};
use mgp_mcpl_engine::conversations::Side;
use mgp_mcpl_engine::inference::budget::ceiling;
use mgp_mcpl_engine::inference::provider::CONTENT_MAX;
use mgp_mcpl_engine::names;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcp::sampling::CreateMessage;
use mgp_protocol::mcpl::inference::{
    Chunk, FinishReason, InferenceAnswer, NotInferred, PromptPart, PromptRole, TokenUsage,
};
use mgp_protocol::splice::quoted;
use mgp_runtime::event_sink::EventSink;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::sync::mpsc;

use super::parts::AnswerParts;
use super::prompt::texts;
use super::providers::NoAnswer;
use super::{AnsweredOrder, InferenceOrder, STAYING_MAX, SharedInference, lock};
use crate::agents::McplAgent;

/// AnswerParts of an agent that wait to be passed on; one that sends more at once is not waited for.
const WAITING: usize = 1024;
/// Longest answer read of an agent, in bytes: its text, escaped, and what stands around it.
const ANSWER_MAX: usize = 6 * CONTENT_MAX + (64 << 10);

impl SharedInference {
    /// Asks an agent that is a host: this one, or any.
    pub(super) async fn by_agent(
        &self,
        order: &InferenceOrder,
        named: Option<&AgentId>,
        max_tokens: u64,
        parts: &mut AnswerParts<'_>,
    ) -> Result<AnsweredOrder, NoAnswer> {
        let agent = self.host_for(order, named).ok_or_else(|| {
            let words = "no agent that answers inferences for this feature set is connected";
            NoAnswer::before(NotInferred::NotThere, words)
        })?;
        let params = self.for_agent(order, &agent, max_tokens, parts.wanted());
        let (sender, mut heard) = mpsc::channel::<String>(WAITING);
        // Whoever fills it has more parts than its answer can have: the one that is missing is noticed.
        let sink = EventSink::new(move |part: String| drop(sender.try_send(part)));
        let exchange = agent.agent().outside();
        let asking = agent.agent().infer(&exchange, sink, &params);
        let deadline = order.ruled.rules.agent_timeout;
        let asking = tokio::time::timeout(deadline, asking);
        tokio::pin!(asking);
        let mut next = 0;
        let answered = loop {
            tokio::select! {
                biased;
                Some(part) = heard.recv() => {
                    let part = Chunk::read(&part).ok().filter(|part| part.index == next);
                    let failed = |words: &str| NoAnswer::after(NotInferred::Failed, words);
                    let part = part.ok_or_else(|| failed("the agent's parts are not in their order"))?;
                    next += 1;
                    parts.add(&part.delta).map_err(|_| failed("the agent's parts are too long, or nobody takes them"))?;
                }
                answered = &mut asking => break answered,
            }
        };
        let answered = answered.unwrap_or(Err(Unanswered::TimedOut(deadline)));
        agent.note_answer(&answered);
        if matches!(answered, Err(Unanswered::TimedOut(_))) {
            self.release_conversation(order);
        }
        let answer = told(answered)?;
        let answer = std::str::from_utf8(&answer).ok();
        let answer = answer.and_then(|text| InferenceAnswer::read(text).ok());
        let answer = answer.filter(|answer| answer.content.len() <= CONTENT_MAX);
        let answer = answer.ok_or_else(|| {
            NoAnswer::after(
                NotInferred::Failed,
                "the agent's answer is none of an inference",
            )
        })?;
        parts.whole(&answer.content)?;
        Ok(AnsweredOrder {
            answer,
            counted: true,
            agent: Some(agent.id.clone()),
        })
    }

    /// The host that answers: the one that the conversation stays with, else the one that is connected longest. One
    /// that cannot be asked, as it has no GET stream, is none; silent ones come last.
    fn host_for(&self, order: &InferenceOrder, named: Option<&AgentId>) -> Option<McplAgent> {
        let able = |agent: &McplAgent| {
            named.is_none_or(|named| *named == agent.id)
                && agent.declares().abilities.inference_request
                && agent.is_reachable()
                && agent.admits(&order.server, &order.set)
        };
        let mut all = self.from.agents.all();
        all.retain(able);
        let place = order
            .conversation
            .clone()
            .map(|id| (order.server.clone(), id));
        let mut staying = lock(&self.staying);
        let stays = place.as_ref().and_then(|place| staying.get(place));
        let at = all
            .iter()
            .position(|agent| Some(&agent.connection) == stays);
        let found = (!all.is_empty()).then(|| all.swap_remove(at.unwrap_or(0)))?;
        if let Some(place) = place {
            if staying.len() >= STAYING_MAX {
                staying.clear();
            }
            staying.insert(place, found.connection);
        }
        Some(found)
    }

    /// Its host did not answer: the next request of the conversation may go to another one.
    fn release_conversation(&self, order: &InferenceOrder) {
        if let Some(id) = order.conversation.clone() {
            lock(&self.staying).remove(&(order.server.clone(), id));
        }
    }

    /// `inference/request` as the agent reads it: the set by the name it knows, the conversation by an id of its own.
    fn for_agent(
        &self,
        order: &InferenceOrder,
        agent: &McplAgent,
        max_tokens: u64,
        stream: bool,
    ) -> String {
        let (from, to) = (
            Side::Server(order.server.clone()),
            Side::agent(&agent.id, agent.connection),
        );
        let conversation = order.conversation.as_deref().map(|id| {
            let id = self.from.ids.conversation(&from, &to, id);
            format!(r#""conversationId":{},"#, quoted(&id))
        });
        let wishes = order.preferences.as_deref();
        let wishes = wishes.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
        let mut wishes = wishes.unwrap_or_default();
        wishes.insert("maxTokens".to_owned(), max_tokens.into());
        format!(
            r#"{{"featureSet":{},{}"stream":{stream},"messages":{},"preferences":{}}}"#,
            quoted(&names::set(&order.server.server(), &order.set)),
            conversation.unwrap_or_default(),
            order.messages,
            Value::Object(wishes),
        )
    }

    /// Asks the client of an agent, and so its person.
    pub(super) async fn by_sampling(
        &self,
        order: &InferenceOrder,
        agent: &AgentId,
        max_tokens: u64,
        parts: &mut AnswerParts<'_>,
    ) -> Result<AnsweredOrder, NoAnswer> {
        let client = self.from.directory.sampling(agent).ok_or_else(|| {
            let words = "no client that can be asked for sampling is connected";
            NoAnswer::before(NotInferred::NotThere, words)
        })?;
        let params = sampling_params(order, max_tokens)?;
        let exchange = client.outside();
        let asking = Agent::ask(
            &client,
            &exchange,
            None,
            CreateMessage::METHOD,
            Some(&params),
        );
        let deadline = order.ruled.rules.agent_timeout;
        let answered = tokio::time::timeout(deadline, asking).await;
        let answer = told(answered.unwrap_or(Err(Unanswered::TimedOut(deadline))))?;
        let read: Option<Sampled> = serde_json::from_slice(&answer).ok();
        let answer = read
            .and_then(|it| it.answer(ceiling(&order.turns, 0)))
            .ok_or_else(|| {
                NoAnswer::after(NotInferred::Failed, "the client's answer is no text")
            })?;
        parts.whole(&answer.content)?;
        // Nobody said what it took: all that was set aside.
        Ok(AnsweredOrder {
            answer,
            counted: false,
            agent: Some(agent.clone()),
        })
    }
}

/// An agent's answer, or why there is none, in words that hold none of its own.
fn told(answered: Result<ClientAnswer, Unanswered>) -> Result<Arc<[u8]>, NoAnswer> {
    let failed = |words: String| NoAnswer::after(NotInferred::Failed, words);
    match answered {
        Ok(Ok(answer)) if answer.len() <= ANSWER_MAX => Ok(Arc::from(&answer[..])),
        Ok(Ok(_)) => Err(failed("the agent's answer is too long".to_owned())),
        Ok(Err(error)) => Err(failed(format!("the agent refused ({})", code(&error)))),
        Err(why @ Unanswered::TimedOut(_)) => {
            Err(NoAnswer::after(NotInferred::TimedOut, why.to_string()))
        }
        Err(why @ (Unanswered::Unready | Unanswered::Unreachable | Unanswered::Overloaded)) => {
            Err(NoAnswer::before(NotInferred::NotThere, why.to_string()))
        }
        Err(why @ (Unanswered::Gone | Unanswered::Cancelled)) => Err(failed(why.to_string())),
    }
}

fn code(error: &Bytes) -> i64 {
    #[derive(Deserialize)]
    struct RefusalCode {
        code: i64,
    }
    serde_json::from_slice(error).map_or(0, |it: RefusalCode| it.code)
}

/// `sampling/createMessage`: one block a message, and what the model is to hold to beside them.
fn sampling_params(order: &InferenceOrder, max_tokens: u64) -> Result<String, NoAnswer> {
    let mut messages = Vec::new();
    let mut system = Vec::new();
    for turn in &order.turns {
        let role = match turn.role {
            PromptRole::System => {
                system.push(texts(turn));
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
                    return Err(NoAnswer::before(NotInferred::Failed, words));
                }
            };
            messages.push(json!({"role": role, "content": content}));
        }
    }
    let mut params = json!({"messages": messages, "maxTokens": max_tokens});
    if !system.is_empty() {
        params["systemPrompt"] = system.join("\n\n").into();
    }
    if let Some(temperature) = order.wishes.temperature {
        params["temperature"] = temperature.into();
    }
    Ok(params.to_string())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    content: Value,
    model: String,
    #[serde(default)]
    stop_reason: Option<String>,
}

impl Sampled {
    /// The answer, where it is a text. The numbers are a guess: a token of four bytes.
    fn answer(self, input: u64) -> Option<InferenceAnswer> {
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
        let fits = content.len() <= CONTENT_MAX;
        fits.then_some(InferenceAnswer {
            content,
            model: self.model,
            finish_reason,
            usage,
        })
    }
}
