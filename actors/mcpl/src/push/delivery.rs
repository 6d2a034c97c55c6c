//! Delivers an event to a recipient that may start an inference, and to the subscribers of its channel.

use std::time::Duration;

use mgp_callers::agent::CallbackError;
use mgp_json::{lookalike, quote};
use mgp_mcpl_engine::names;
use mgp_mcpl_engine::push::hosts::{HandOverOutcome, HostQueue, HostReply};
use mgp_mcpl_engine::push::{PushPolicy, channel_name};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::McplVersion;
use mgp_protocol::mcpl::push::{Event, PushAnswer};
use mgp_protocol::mcpl::tags::EventTags;
use mgp_protocol::mgp::audit::Outcome;
use mgp_runtime::Reply;
use mgp_tools::PushedEvent;
use serde_json::json;

use super::{NewPush, PushInference, PushTargets};
use crate::agents::McplAgent;
use crate::audit::{self, McplRecord};
use crate::hooks::{HookOrigin, MappedIdKind, is_server_of};

/// How long starting the kernel's own inference may take.
const INFERENCE_START_TIMEOUT: Duration = Duration::from_secs(10);

/// The outcome of an event.
pub(super) struct DeliveryOutcome {
    pub(super) answer: PushAnswer,
    /// Nobody has received it: the same event may be sent again.
    pub(super) is_released: bool,
}

impl DeliveryOutcome {
    fn new(answer: PushAnswer) -> Self {
        Self {
            answer: answer.truncate(),
            is_released: false,
        }
    }

    pub(super) fn not_delivered(why: impl Into<String>) -> Self {
        Self {
            answer: PushAnswer::reject(why),
            is_released: true,
        }
    }

    /// Somebody may have accepted it: it is never delivered again.
    pub(super) fn unknown_outcome(why: &str) -> Self {
        Self::new(PushAnswer::reject(format!(
            "{why}; whether somebody took it is not known, and it is not handed on again"
        )))
    }
}

/// The answer of a recipient that may start an inference.
enum TakeOutcome {
    /// It accepted, and perhaps started an inference.
    Accepted(Option<String>),
    /// It rejected it, with this reason.
    Rejected(String),
    /// It did not answer.
    Unknown(String),
}

impl PushTargets {
    pub(super) async fn deliver(&self, policy: &PushPolicy, new: &NewPush) -> DeliveryOutcome {
        let event = Event::parse(&new.params).expect("it was read before");
        let subscribers = self.publish(new, &event, false).await;
        let accepted = if new.rule.inference {
            Some(self.begin_inference(new, &event).await)
        } else {
            self.ask_agents(policy, new, &event).await
        };
        if subscribers == 0
            && matches!(
                accepted,
                Some(TakeOutcome::Accepted(_) | TakeOutcome::Unknown(_))
            )
        {
            self.publish(new, &event, true).await;
        }
        let delivered = match (accepted, subscribers) {
            (Some(TakeOutcome::Accepted(inference)), _) => {
                DeliveryOutcome::new(PushAnswer::accept(inference))
            }
            (Some(TakeOutcome::Rejected(_)) | None, 1..) => {
                DeliveryOutcome::new(PushAnswer::accept(None))
            }
            (Some(TakeOutcome::Rejected(why)), 0) => DeliveryOutcome::new(PushAnswer::reject(why)),
            (Some(TakeOutcome::Unknown(why)), _) => DeliveryOutcome::unknown_outcome(&why),
            (None, 0) => DeliveryOutcome::not_delivered(format!(
                "nobody takes events of this feature set now: no MCPL agent that may use this server can be asked (over HTTP, it needs the GET stream of its session), and nobody follows {}",
                channel_name(&new.server.server(), &event.feature_set)
            )),
        };
        let outcome = if delivered.answer.accepted {
            Outcome::Success
        } else {
            Outcome::Failure
        };
        self.record(
            &new.server,
            &event,
            outcome,
            delivered.answer.reason.as_deref(),
        );
        delivered
    }

    async fn publish(&self, new: &NewPush, event: &Event<'_>, accepted: bool) -> usize {
        let server = new.server.server();
        let (id, set) = (quote(&event.event_id), quote(&event.feature_set));
        let origin = event.origin.map(|origin| format!(r#","origin":{origin}"#));
        let data = format!(
            r#"{{"server_id":{},"feature_set":{set},"event_id":{id}{},"content":{}}}"#,
            quote(server.as_str()),
            origin.unwrap_or_default(),
            new.content.to_json()
        );
        let pushed = self.events.publish_push(PushedEvent {
            server: new.server.clone(),
            channel: channel_name(&server, &event.feature_set),
            timestamp: event.timestamp.to_string(),
            data,
            is_delivered: accepted,
        });
        pushed.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "a push event is not published on the bus");
            0
        })
    }

    /// Starts an inference of the kernel.
    async fn begin_inference(&self, new: &NewPush, event: &Event<'_>) -> TakeOutcome {
        let (started, answer) = Reply::new();
        self.inference.send(PushInference {
            server: new.server.clone(),
            set: event.feature_set.to_string(),
            origin: event.origin.map(|origin| origin.get().to_owned()),
            content: new.content.clone(),
            started,
        });
        match tokio::time::timeout(INFERENCE_START_TIMEOUT, answer).await {
            Ok(Ok(Ok(inference))) => TakeOutcome::Accepted(Some(inference)),
            Ok(Ok(Err(why))) => TakeOutcome::Rejected(why),
            Ok(Err(_)) => {
                TakeOutcome::Rejected("the kernel has nobody to begin an inference".into())
            }
            Err(_) => TakeOutcome::Unknown("the inference did not begin in time".into()),
        }
    }

    /// Offers the event to agents until one accepts. `None` if there is no agent to ask.
    async fn ask_agents(
        &self,
        policy: &PushPolicy,
        new: &NewPush,
        event: &Event<'_>,
    ) -> Option<TakeOutcome> {
        let server = new.server.server();
        let mut agents = self.agents.list_reachable();
        agents.retain(|agent| {
            agent.capabilities().features.push_events
                && is_server_of(&self.servers, agent, &new.server)
                && agent.allows_set(&server, &event.feature_set)
        });
        let render = |tags: &EventTags| {
            event.render_with_names(
                &names::set_name(&server, &event.feature_set),
                &names::channel_name(&server, &event.event_id),
                &new.content.to_json(),
                tags,
            )
        };
        let sets = self.host.sets().load();
        let is_tagged = sets.get(&new.server).is_some_and(|sets| sets.has_tags());
        drop(sets);
        let tags = EventTags::read(event.tags.filter(|_| is_tagged));
        let (params, tagged) = (render(&EventTags::default()), render(&tags));
        let mut queue = HostQueue::new(agents.len());
        while let Some(attempt) = queue.pop() {
            let agent = &agents[attempt.host];
            // Earlier hosts may have taken a while.
            let reply = if agent.allows_set(&server, &event.feature_set) {
                let features = &agent.capabilities().features;
                let is_0_5 = features.version == McplVersion::V0_5;
                ask_agent(policy, agent, if is_0_5 { &tagged } else { &params }).await
            } else {
                HostReply::NotSent
            };
            queue.record_reply(attempt, reply);
        }
        match queue.into_outcome() {
            HandOverOutcome::Accepted(host, inference) => {
                let inference_id = inference.map(|id| {
                    let origin = HookOrigin::Agent(agents[host].clone());
                    self.ids
                        .map(&origin, &new.server, MappedIdKind::Inference, &id)
                });
                Some(TakeOutcome::Accepted(inference_id))
            }
            HandOverOutcome::Refused(why) => Some(TakeOutcome::Rejected(why)),
            HandOverOutcome::Unknown(why) => Some(TakeOutcome::Unknown(why.to_owned())),
            HandOverOutcome::NotSent => None,
        }
    }

    /// Records the outcome of an event.
    pub(super) fn record(
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
            details: json!({"eventId": &*event.event_id}),
            ..McplRecord::from_server(server, Event::METHOD)
        };
        audit::record(self.host.audit(), &record);
    }
}

async fn ask_agent(policy: &PushPolicy, agent: &McplAgent, params: &str) -> HostReply {
    match agent.request(Event::METHOD, params, policy.agent).await {
        Ok(Ok(result)) => read_reply(&result),
        Ok(Err(error)) => {
            let error = String::from_utf8_lossy(&error);
            HostReply::Refused(format!("the agent answered an error: {error}"))
        }
        Err(CallbackError::NotReady | CallbackError::Unreachable | CallbackError::Overloaded) => {
            HostReply::NotSent
        }
        Err(CallbackError::TimedOut(_)) => HostReply::Silent,
        Err(CallbackError::Disconnected | CallbackError::Cancelled) => {
            HostReply::Lost("the agent went away before it answered")
        }
    }
}

fn read_reply(result: &[u8]) -> HostReply {
    let read = std::str::from_utf8(result).ok();
    let read = read.and_then(|text| lookalike::from_object::<PushAnswer>(text).ok());
    match read.map(PushAnswer::truncate) {
        Some(answer) if answer.accepted => HostReply::Accepted(answer.inference_id),
        Some(answer) => HostReply::Refused(answer.reason.unwrap_or_default()),
        None => HostReply::Lost("the agent's answer cannot be read"),
    }
}
