//! Hands an event on: to the one who may begin an inference, and to all who follow its channel.

use std::time::Duration;

use mgp_callers::agent::Unanswered;
use mgp_mcpl_engine::names;
use mgp_mcpl_engine::push::hosts::{HandedOver, HostQueue, HostReply};
use mgp_mcpl_engine::push::{PushPolicy, channel};
use mgp_protocol::ids::ServerId;
use mgp_protocol::lookalike;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::push::{Event, PushAnswer};
use mgp_protocol::mgp::audit::Outcome;
use mgp_protocol::splice::quoted;
use mgp_runtime::mailbox::Reply;
use mgp_tools::events::PushedEvent;
use serde_json::json;

use super::{NewPush, PushInference, PushTo};
use crate::agents::McplAgent;
use crate::audit::{self, McplRecord};
use crate::hooks::{HookOrigin, PassedId, is_for};

/// How long the kernel's own inference may take to begin.
const BEGINS: Duration = Duration::from_secs(10);

/// What became of an event.
pub(super) struct Delivered {
    pub(super) answer: PushAnswer,
    /// Nobody has heard of it: the same event may come again.
    pub(super) released: bool,
}

impl Delivered {
    fn of(answer: PushAnswer) -> Self {
        Self {
            answer: answer.bounded(),
            released: false,
        }
    }

    pub(super) fn released(why: impl Into<String>) -> Self {
        Self {
            answer: PushAnswer::refused(why),
            released: true,
        }
    }

    /// Somebody may have taken it: it is never handed on again.
    pub(super) fn unknown(why: &str) -> Self {
        Self::of(PushAnswer::refused(format!(
            "{why}; whether somebody took it is not known, and it is not handed on again"
        )))
    }
}

/// What one who may begin an inference said.
enum PushTaken {
    /// It took it, and perhaps began an inference.
    Yes(Option<String>),
    /// It did not, for this reason.
    No(String),
    /// It did not answer.
    Unknown(String),
}

impl PushTo {
    pub(super) async fn deliver(&self, policy: &PushPolicy, new: &NewPush) -> Delivered {
        let event = Event::read(&new.params).expect("it was read before");
        let following = self.publish(new, &event, false).await;
        let taken = match new.rule.inference {
            true => Some(self.infer(new, &event).await),
            false => self.ask_agents(policy, new, &event).await,
        };
        if following == 0 && matches!(taken, Some(PushTaken::Yes(_) | PushTaken::Unknown(_))) {
            self.publish(new, &event, true).await;
        }
        let delivered = match (taken, following) {
            (Some(PushTaken::Yes(inference)), _) => Delivered::of(PushAnswer::accepted(inference)),
            (Some(PushTaken::No(_)) | None, 1..) => Delivered::of(PushAnswer::accepted(None)),
            (Some(PushTaken::No(why)), 0) => Delivered::of(PushAnswer::refused(why)),
            (Some(PushTaken::Unknown(why)), _) => Delivered::unknown(&why),
            (None, 0) => Delivered::released(format!(
                "nobody takes events of this feature set now: no MCPL agent that may use this server can be asked (over HTTP, it needs the GET stream of its session), and nobody follows {}",
                channel(&new.server.server(), &event.feature_set)
            )),
        };
        let outcome = match delivered.answer.accepted {
            true => Outcome::Success,
            false => Outcome::Failure,
        };
        self.recorded(
            &new.server,
            &event,
            outcome,
            delivered.answer.reason.as_deref(),
        );
        delivered
    }

    async fn publish(&self, new: &NewPush, event: &Event<'_>, taken: bool) -> usize {
        let server = new.server.server();
        let (id, set) = (quoted(&event.event_id), quoted(&event.feature_set));
        let origin = event.origin.map(|origin| format!(r#","origin":{origin}"#));
        let data = format!(
            r#"{{"server_id":{},"feature_set":{set},"event_id":{id}{},"content":{}}}"#,
            quoted(server.as_str()),
            origin.unwrap_or_default(),
            new.content.to_json()
        );
        let pushed = self.events.pushed(PushedEvent {
            server: new.server.clone(),
            channel: channel(&server, &event.feature_set),
            timestamp: event.timestamp.to_string(),
            data,
            taken,
        });
        pushed.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "a push event is not on the bus");
            0
        })
    }

    /// Begins an inference of the kernel's own.
    async fn infer(&self, new: &NewPush, event: &Event<'_>) -> PushTaken {
        let (begun, answer) = Reply::new();
        self.inference.send(PushInference {
            server: new.server.clone(),
            set: event.feature_set.to_string(),
            event_id: event.event_id.to_string(),
            origin: event.origin.map(|origin| origin.get().to_owned()),
            content: new.content.clone(),
            begun,
        });
        match tokio::time::timeout(BEGINS, answer).await {
            Ok(Ok(Ok(inference))) => PushTaken::Yes(Some(inference)),
            Ok(Ok(Err(why))) => PushTaken::No(why),
            Ok(Err(_)) => PushTaken::No("the kernel has nobody to begin an inference".into()),
            Err(_) => PushTaken::Unknown("the inference did not begin in time".into()),
        }
    }

    /// Asks agents until one takes it. None where there is nobody who could be asked.
    async fn ask_agents(
        &self,
        policy: &PushPolicy,
        new: &NewPush,
        event: &Event<'_>,
    ) -> Option<PushTaken> {
        let server = new.server.server();
        let mut agents = self.agents.all();
        agents.retain(|agent| {
            agent.declares().abilities.push_events
                && is_for(&self.servers, agent, &new.server)
                && agent.admits(&server, &event.feature_set)
        });
        let params = event.renamed(
            &names::set(&server, &event.feature_set),
            &names::channel(&server, &event.event_id),
            &new.content.to_json(),
        );
        let mut queue = HostQueue::new(agents.len());
        while let Some(turn) = queue.pop() {
            let agent = &agents[turn.host];
            // Earlier hosts took their time.
            let reply = match agent.admits(&server, &event.feature_set) {
                true => ask_agent(policy, agent, &params).await,
                false => HostReply::NotSent,
            };
            queue.note(turn, reply);
        }
        match queue.end() {
            HandedOver::Accepted(host, inference) => {
                let told = inference.map(|id| {
                    let origin = HookOrigin::Agent(agents[host].clone());
                    self.ids
                        .told(&origin, &new.server, PassedId::Inference, &id)
                });
                Some(PushTaken::Yes(told))
            }
            HandedOver::Refused(why) => Some(PushTaken::No(why)),
            HandedOver::Unknown(why) => Some(PushTaken::Unknown(why.to_owned())),
            HandedOver::NotSent => None,
        }
    }

    /// Writes down what became of an event.
    pub(super) fn recorded(
        &self,
        server: &ServerId,
        event: &Event<'_>,
        outcome: Outcome,
        reason: Option<&str>,
    ) {
        let record = McplRecord {
            feature_set: Some(&event.feature_set),
            outcome,
            reason,
            text: Some(event.content().get().as_bytes()),
            more: json!({"eventId": &*event.event_id}),
            ..McplRecord::of_server(server, Event::METHOD)
        };
        audit::record(self.host.audit(), &record);
    }
}

async fn ask_agent(policy: &PushPolicy, agent: &McplAgent, params: &str) -> HostReply {
    match agent.ask(Event::METHOD, params, policy.agent).await {
        Ok(Ok(result)) => read_reply(&result),
        Ok(Err(error)) => {
            let error = String::from_utf8_lossy(&error);
            HostReply::Refused(format!("the agent answered an error: {error}"))
        }
        Err(Unanswered::Unready | Unanswered::Unreachable | Unanswered::Overloaded) => {
            HostReply::NotSent
        }
        Err(Unanswered::TimedOut(_)) => HostReply::Silent,
        Err(Unanswered::Gone | Unanswered::Cancelled) => {
            HostReply::Lost("the agent went away before it answered")
        }
    }
}

fn read_reply(result: &[u8]) -> HostReply {
    let read = std::str::from_utf8(result).ok();
    let read = read.and_then(|text| lookalike::from_object::<PushAnswer>(text).ok());
    match read.map(PushAnswer::bounded) {
        Some(answer) if answer.accepted => HostReply::Accepted(answer.inference_id),
        Some(answer) => HostReply::Refused(answer.reason.unwrap_or_default()),
        None => HostReply::Lost("the agent's answer cannot be read"),
    }
}
