//! Events for an agent of another node: its request stays open for them, is decided here for that agent, and ends with its
//! asker or with the agent's right.

use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::audit::{Event, EventType, Outcome as Ending, Target};
use mgp_protocol::mgp::events::{Subscribe, Subscribed};
use mgp_protocol::refusal::Refusal;
use serde_json::json;
use tokio::sync::oneshot;

use crate::answer::json;
use crate::{Context, listener};
use mgp_callers::agent::Agent;
use mgp_callers::exchange::Delivery;
use mgp_callers::request::{Outcome, Request};
use mgp_engine::tools::catalog::CatalogView;
use mgp_store::audit::{AuditHandle, by_agent, event};
use mgp_tools::events::{EventsRequest, FollowingAgent, FollowingOver};

/// Tells it the events of one channel; answered when there are none, or no more.
///
/// # Errors
/// Params that cannot be read; a bound; the server is not open to the agent any more.
pub(super) async fn follow(cx: &Context, request: &Request, params: Option<&str>) -> Outcome {
    let asked: Subscribe = mcp::read(params)?;
    if asked.channels.len() != 1 || asked.cursor.is_some() {
        let words = "another node follows one channel with each request, from now on";
        return Err(Refusal::BadParams(words.into()));
    }
    let channel = asked.channels[0].clone();
    let agent = Agent::following(&request.caller, &request.exchange);
    let actors = (&cx.subscriptions, &cx.events);
    let mut listener = listener::begin(&cx.agents, &cx.directory, actors, &agent).await?;
    let (over, mut ended) = oneshot::channel();
    let subscribed = cx.events.subscribe(EventsRequest {
        caller: request.caller.clone(),
        exchange: request.exchange.clone(),
        asked,
        following: Some(FollowingAgent {
            agent: agent.clone(),
            over,
        }),
    });
    let subscribed = subscribed.await?;
    if subscribed.subscribed.is_empty() {
        return json(&subscribed);
    }
    let mut record = FollowingRecord::begin(cx, request, &channel);
    request
        .exchange
        .send(agreed(&subscribed), Delivery::Reliable);
    agent.set_ready();
    let (why, outcome) = tokio::select! {
        () = request.exchange.cancelled() => ("left", Err(Refusal::Cancelled)),
        () = listener.lost() => ("lost", Err(Refusal::Broken("the subscription is lost".into()))),
        over = &mut ended => match over {
            Ok(FollowingOver::Closed) => ("closed", Err(closed(request))),
            Ok(FollowingOver::TooSlow) => ("too_slow", json(&subscribed)),
            Err(_) => ("lost", json(&subscribed)),
        },
        () = cx.closing.cancelled() => ("stopped", json(&subscribed)),
    };
    record.why = why;
    outcome
}

fn agreed(subscribed: &Subscribed) -> bytes::Bytes {
    let params = serde_json::to_string(subscribed).expect("what is subscribed is plain data");
    jsonrpc::notification(Subscribed::METHOD, Some(&params)).into()
}

fn closed(request: &Request) -> Refusal {
    let (agent, view) = (&request.caller.agent, &request.caller.view);
    Refusal::Forbidden(format!(
        "{view} is not open to {agent} any more: a grant for this agent opens it (`mgp grants add`)"
    ))
}

/// Its beginning and its end in the audit log; the end is written however that comes.
struct FollowingRecord {
    audit: AuditHandle,
    /// That it began.
    event: Event,
    /// Why it ends, where its node does not just leave.
    why: &'static str,
}

impl FollowingRecord {
    fn begin(cx: &Context, request: &Request, channel: &str) -> Self {
        let caller = &request.caller;
        let server = match &caller.view {
            CatalogView::One(server) => Some(server.to_string()),
            CatalogView::All | CatalogView::Set(_) => None,
        };
        let event = event(
            EventType::EVENTS_FOLLOWED,
            by_agent(caller.agent.as_str()),
            Target {
                server_id: server,
                tool_name: None,
                agent_id: None,
            },
            &request.trace.id,
            Ending::Success,
            json!({"channel": channel, "step": "began"}),
        );
        cx.audit.tell(event.clone());
        Self {
            audit: cx.audit.clone(),
            event,
            why: "left",
        }
    }
}

impl Drop for FollowingRecord {
    fn drop(&mut self) {
        let mut event = self.event.clone();
        event.timestamp = mgp_engine::timestamps::rfc3339_ms(mgp_runtime::time::unix_ms());
        event.details.insert("step".into(), "ended".into());
        event.details.insert("reason".into(), self.why.into());
        self.audit.tell(event);
    }
}
