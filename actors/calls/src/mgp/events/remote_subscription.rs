//! Events for an agent of another node: its request stays open for them, is decided here for that agent, and ends with its
//! asker or with the agent's right.

use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::audit::{Event, EventType, Outcome as Ending, Target};
use mgp_protocol::mgp::events::{Subscribe, Subscribed};
use mgp_protocol::refusal::Refusal;
use serde_json::json;
use tokio::sync::oneshot;

use crate::answer::json_outcome;
use crate::{Context, listener};
use mgp_callers::Delivery;
use mgp_callers::agent::Agent;
use mgp_callers::request::{Outcome, Request};
use mgp_engine::tools::catalog::CatalogView;
use mgp_store::audit::{AuditHandle, agent_actor, new_event};
use mgp_tools::{EventsRequest, FollowingAgent, FollowingEnd};

/// Tells it the events of one channel; answered when there are none, or no more.
///
/// # Errors
/// Params that cannot be read; a bound; the server is not open to the agent any more.
pub(super) async fn follow(cx: &Context, request: &Request, params: Option<&str>) -> Outcome {
    let asked: Subscribe = mcp::parse_params(params)?;
    if asked.channels.len() != 1 || asked.cursor.is_some() {
        let words = "another node follows one channel with each request, from now on";
        return Err(Refusal::BadParams(words.into()));
    }
    let channel = asked.channels[0].clone();
    let agent = Agent::new_follower(&request.caller, &request.call);
    let actors = (&cx.subscriptions, &cx.events);
    let mut listener = listener::start(&cx.agents, &cx.directory, actors, &agent).await?;
    let (over, mut ended) = oneshot::channel();
    let subscribed = cx.events.subscribe(EventsRequest {
        caller: request.caller.clone(),
        call: request.call.clone(),
        request: asked,
        following: Some(FollowingAgent {
            agent: agent.clone(),
            end: over,
        }),
    });
    let subscribed = subscribed.await?;
    if subscribed.subscribed.is_empty() {
        return json_outcome(&subscribed);
    }
    let mut record = FollowAuditGuard::begin(cx, request, &channel);
    request
        .call
        .send(render_subscribed(&subscribed), Delivery::Reliable);
    agent.set_ready();
    let (why, outcome) = tokio::select! {
        () = request.call.wait_until_cancelled() => ("left", Err(Refusal::Cancelled)),
        () = listener.wait_until_lost() => ("lost", Err(Refusal::Internal("the subscription is lost".into()))),
        over = &mut ended => match over {
            Ok(FollowingEnd::Closed) => ("closed", Err(closed_refusal(request))),
            Ok(FollowingEnd::TooSlow) => ("too_slow", json_outcome(&subscribed)),
            Err(_) => ("lost", json_outcome(&subscribed)),
        },
        () = cx.shutdown.cancelled() => ("stopped", json_outcome(&subscribed)),
    };
    record.end_reason = why;
    outcome
}

fn render_subscribed(subscribed: &Subscribed) -> bytes::Bytes {
    let params = serde_json::to_string(subscribed).expect("what is subscribed is plain data");
    jsonrpc::notification(Subscribed::METHOD, Some(&params)).into()
}

fn closed_refusal(request: &Request) -> Refusal {
    let (agent, view) = (&request.caller.agent, &request.caller.view);
    Refusal::Forbidden(format!(
        "{view} is not open to {agent} any more: a grant for this agent opens it (`mgp grants add`)"
    ))
}

/// Its beginning and its end in the audit log; the end is written however that comes.
struct FollowAuditGuard {
    audit: AuditHandle,
    /// That it began.
    event: Event,
    /// Why it ends, where its node does not just leave.
    end_reason: &'static str,
}

impl FollowAuditGuard {
    fn begin(cx: &Context, request: &Request, channel: &str) -> Self {
        let caller = &request.caller;
        let server = match &caller.view {
            CatalogView::One(server) => Some(server.to_string()),
            CatalogView::All | CatalogView::Set(_) => None,
        };
        let event = new_event(
            EventType::EVENTS_FOLLOWED,
            agent_actor(caller.agent.as_str()),
            Target {
                server_id: server,
                tool_name: None,
                agent_id: None,
            },
            &request.trace.id,
            Ending::Success,
            json!({"channel": channel, "step": "began"}),
        );
        cx.audit.record(event.clone());
        Self {
            audit: cx.audit.clone(),
            event,
            end_reason: "left",
        }
    }
}

impl Drop for FollowAuditGuard {
    fn drop(&mut self) {
        let mut event = self.event.clone();
        event.timestamp = mgp_engine::timestamps::render_rfc3339_ms(mgp_runtime::time::unix_ms());
        event.details.insert("step".into(), "ended".into());
        event
            .details
            .insert("reason".into(), self.end_reason.into());
        self.audit.record(event);
    }
}
