//! `mgp/kernel/recorder/*`: the operator looks on at the messages of a server or an agent.

mod play;

use std::sync::Arc;
use std::time::Duration;

use mgp_callers::SendError;
use mgp_callers::request::{Outcome, Request};
use mgp_engine::calls::recorder::{
    ObservedMessage, ObservedText, Recorder, missed_entry, started_entry,
};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::audit::{Event, EventType, Outcome as Ending, Target};
use mgp_protocol::mgp::kernel::recorder::{Follow, Heard};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::tap::{OpenTap, TAPS_MAX, TapEvent, TapSubject, TappedMessage};
use mgp_runtime::time::unix_ms;
use mgp_screening::masks::Masks;
use mgp_store::audit::{AuditHandle, new_event, operator_actor};
use serde::de::DeserializeOwned;
use serde_json::json;

pub use self::play::play;
use crate::Context;

/// How long to wait for a slow reader: meanwhile the tap fills, and counts what it drops.
const SLOW_READER_WAIT: Duration = Duration::from_millis(20);

/// `mgp/kernel/recorder/follow`: tells what passes until it is cancelled.
///
/// # Errors
/// Neither a server nor an agent, an unknown server, or too many look on.
pub async fn follow(cx: &Context, request: &Request) -> Outcome {
    let asked: Follow = parse_params(request)?;
    let subject = resolve_subject(cx, &asked)?;
    let tap = OpenTap::open(subject).ok_or_else(|| Refusal::Overloaded {
        what: format!("the list of {TAPS_MAX} commands that follow messages"),
    })?;
    let _record = TapAuditGuard::begin(&cx.audit, request, &asked);
    let mut following = FollowedMessages {
        cx,
        request,
        recorder: Recorder::new(asked),
        masks: current_masks(cx),
        mask_sources: (cx.audit.masks(), cx.logins.tokens()),
    };
    tokio::select! {
        biased;
        () = request.call.wait_until_cancelled() => Err(Refusal::Cancelled),
        () = cx.shutdown.cancelled() => Ok(crate::empty_result()),
        () = following.run(&tap) => Ok(crate::empty_result()),
    }
}

/// The params; `_meta` and `trace_id`, which any request may carry, are none of its own.
fn parse_params<T: DeserializeOwned>(request: &Request) -> Result<T, Refusal> {
    let mut params: serde_json::Map<String, serde_json::Value> =
        mcp::parse_params(request.params.as_deref())?;
    params.remove("_meta");
    params.remove("trace_id");
    serde_json::from_value(params.into()).map_err(|e| Refusal::BadParams(e.to_string()))
}

fn resolve_subject(cx: &Context, asked: &Follow) -> Result<TapSubject, Refusal> {
    match (&asked.server, &asked.agent) {
        (Some(server), None) => {
            let id = ServerId::parse_local_or_remote(server).ok();
            let known = id.filter(|id| cx.servers.load().contains_key(id));
            let known = known.ok_or_else(|| Refusal::UnknownServer(server.clone()));
            known.map(TapSubject::Server)
        }
        // Who is not there now may come.
        (None, Some(agent)) => Ok(TapSubject::Agent(AgentId::new(agent.as_str()))),
        (None, None) | (Some(_), Some(_)) => {
            let words = "either `server` or `agent` is followed";
            Err(Refusal::BadParams(words.into()))
        }
    }
}

/// What is a secret right now, also of other servers than the one that is asked: a server says what it was told.
fn current_masks(cx: &Context) -> Masks {
    let mut masks = Masks::clone(&cx.audit.masks());
    masks.add_secrets(cx.logins.tokens());
    masks
}

struct FollowedMessages<'a> {
    cx: &'a Context,
    request: &'a Request,
    recorder: Recorder,
    /// All that was a secret since this began.
    masks: Masks,
    /// What it was made from last: the configuration's, and the tokens, which are renewed.
    mask_sources: (Arc<Masks>, Vec<String>),
}

impl FollowedMessages<'_> {
    /// Resolves when there is no reader any more.
    async fn run(&mut self, tap: &OpenTap) {
        if !self.send(&started_entry(unix_ms())).await {
            return;
        }
        loop {
            let heard = match tap.next().await {
                TapEvent::Message(message) => self.next_notification(&message),
                TapEvent::Missed(many) => Some(missed_entry(many, unix_ms())),
            };
            if let Some(heard) = heard
                && !self.send(&heard).await
            {
                return;
            }
        }
    }

    fn next_notification(&mut self, message: &TappedMessage) -> Option<Heard> {
        let id = String::from_utf8_lossy(&message.frame);
        let passed = ObservedMessage {
            unix_ms: message.sent_unix_ms,
            observed_at: message.sent_at,
            connection: message.connection,
            sender: message.from,
            text: match &message.abandon_reason {
                Some(why) => ObservedText::Abandoned(&id, why),
                None => ObservedText::Frame(&message.frame),
            },
        };
        let now = (self.cx.audit.masks(), self.cx.logins.tokens());
        if !Arc::ptr_eq(&now.0, &self.mask_sources.0) || now.1 != self.mask_sources.1 {
            self.masks.merge(&now.0);
            self.masks.add_secrets(now.1.iter().cloned());
            self.mask_sources = now;
        }
        self.recorder.record(&passed, &self.masks)
    }

    /// Waits for a slow reader. False when there is none any more.
    async fn send(&self, heard: &Heard) -> bool {
        let Ok(params) = serde_json::to_string(heard) else {
            return true;
        };
        let frame = bytes::Bytes::from(jsonrpc::notification(Heard::METHOD, Some(&params)));
        loop {
            match self.request.call.try_send(frame.clone()) {
                Ok(()) => return true,
                Err(SendError::Closed) => return false,
                Err(SendError::Full) => tokio::time::sleep(SLOW_READER_WAIT).await,
            }
        }
    }
}

/// In the audit log: who looked on, at what, and until when.
struct TapAuditGuard {
    audit: AuditHandle,
    event: Event,
}

impl TapAuditGuard {
    fn begin(audit: &AuditHandle, request: &Request, asked: &Follow) -> Self {
        let event = new_event(
            EventType::MESSAGES_FOLLOWED,
            operator_actor(),
            Target {
                server_id: asked.server.clone(),
                tool_name: None,
                agent_id: asked.agent.clone(),
            },
            &request.trace.id,
            Ending::Success,
            json!({"step": "began", "bodies": asked.bodies}),
        );
        audit.record(event.clone());
        Self {
            audit: audit.clone(),
            event,
        }
    }
}

impl Drop for TapAuditGuard {
    fn drop(&mut self) {
        let mut event = self.event.clone();
        event.timestamp = mgp_engine::timestamps::render_rfc3339_ms(unix_ms());
        event.details.insert("step".into(), "ended".into());
        self.audit.record(event);
    }
}
