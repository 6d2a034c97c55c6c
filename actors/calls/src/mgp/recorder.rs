//! `mgp/kernel/recorder/*`: the operator looks on at the messages of a server or an agent.

mod play;

use std::sync::Arc;
use std::time::Duration;

use mgp_callers::exchange::SendError;
use mgp_callers::request::{Outcome, Request};
use mgp_engine::calls::recorder::{PassedMessage, PassedText, Recorder, began, missed};
use mgp_engine::store::masks::Masks;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::audit::{Event, EventType, Outcome as Ending, Target};
use mgp_protocol::mgp::kernel::recorder::{Follow, Heard};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::tap::{OpenTap, TAPS_MAX, TapNews, TapSubject, TappedMessage};
use mgp_runtime::time::unix_ms;
use mgp_servers::login::Logins;
use mgp_store::audit::{AuditHandle, by_operator, event};
use serde::de::DeserializeOwned;
use serde_json::json;

pub use self::play::play;
use crate::Context;

/// How long a reader that is behind is left alone: meanwhile the tap fills, and counts what it misses.
const PAUSE: Duration = Duration::from_millis(20);

/// `mgp/kernel/recorder/follow`: tells what passes until it is cancelled.
///
/// # Errors
/// Neither a server nor an agent, an unknown server, or too many look on.
pub async fn follow(cx: &Context, logins: &Logins, request: &Request) -> Outcome {
    let asked: Follow = read(request)?;
    let subject = subject(cx, &asked)?;
    let tap = OpenTap::on(subject).ok_or_else(|| Refusal::Overloaded {
        what: format!("the list of {TAPS_MAX} commands that follow messages"),
    })?;
    let _record = LookingOn::begin(&cx.audit, request, &asked);
    let mut following = FollowedMessages {
        cx,
        logins,
        request,
        recorder: Recorder::new(asked),
        masks: masks(cx, logins),
        known: (cx.audit.masks(), logins.tokens()),
    };
    tokio::select! {
        biased;
        () = request.exchange.cancelled() => Err(Refusal::Cancelled),
        () = cx.closing.cancelled() => Ok(crate::nothing()),
        () = following.run(&tap) => Ok(crate::nothing()),
    }
}

/// The params; `_meta` and `trace_id`, which any request may carry, are none of its own.
fn read<T: DeserializeOwned>(request: &Request) -> Result<T, Refusal> {
    let mut params: serde_json::Map<String, serde_json::Value> =
        mcp::read(request.params.as_deref())?;
    params.remove("_meta");
    params.remove("trace_id");
    serde_json::from_value(params.into()).map_err(|e| Refusal::BadParams(e.to_string()))
}

fn subject(cx: &Context, asked: &Follow) -> Result<TapSubject, Refusal> {
    match (&asked.server, &asked.agent) {
        (Some(server), None) => {
            let id = ServerId::parse_of_any_node(server).ok();
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
fn masks(cx: &Context, logins: &Logins) -> Masks {
    let mut masks = Masks::clone(&cx.audit.masks());
    masks.learn(logins.tokens());
    masks
}

struct FollowedMessages<'a> {
    cx: &'a Context,
    logins: &'a Logins,
    request: &'a Request,
    recorder: Recorder,
    /// All that was a secret since this began.
    masks: Masks,
    /// What it was made from last: the configuration's, and the tokens, which are renewed.
    known: (Arc<Masks>, Vec<String>),
}

impl FollowedMessages<'_> {
    /// Resolves when nobody reads any more.
    async fn run(&mut self, tap: &OpenTap) {
        if !self.send(&began(unix_ms())).await {
            return;
        }
        loop {
            let heard = match tap.next().await {
                TapNews::Message(message) => self.heard(&message),
                TapNews::Missed(many) => Some(missed(many, unix_ms())),
            };
            if let Some(heard) = heard
                && !self.send(&heard).await
            {
                return;
            }
        }
    }

    fn heard(&mut self, message: &TappedMessage) -> Option<Heard> {
        let id = String::from_utf8_lossy(&message.frame);
        let passed = PassedMessage {
            at_ms: message.at_ms,
            at: message.at,
            connection: message.connection,
            from: message.from,
            what: match &message.given_up {
                Some(why) => PassedText::GivenUp(&id, why),
                None => PassedText::Frame(&message.frame),
            },
        };
        let now = (self.cx.audit.masks(), self.logins.tokens());
        if !Arc::ptr_eq(&now.0, &self.known.0) || now.1 != self.known.1 {
            self.masks.join(&now.0);
            self.masks.learn(now.1.iter().cloned());
            self.known = now;
        }
        self.recorder.hear(&passed, &self.masks)
    }

    /// Waits for a reader that is behind. False when there is none any more.
    async fn send(&self, heard: &Heard) -> bool {
        let Ok(params) = serde_json::to_string(heard) else {
            return true;
        };
        let frame = bytes::Bytes::from(jsonrpc::notification(Heard::METHOD, Some(&params)));
        loop {
            match self.request.exchange.offer_later(frame.clone()) {
                Ok(()) => return true,
                Err(SendError::Closed) => return false,
                Err(SendError::Full) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// In the audit log: who looked on, at what, and until when.
struct LookingOn {
    audit: AuditHandle,
    event: Event,
}

impl LookingOn {
    fn begin(audit: &AuditHandle, request: &Request, asked: &Follow) -> Self {
        let event = event(
            EventType::MESSAGES_FOLLOWED,
            by_operator(),
            Target {
                server_id: asked.server.clone(),
                tool_name: None,
                agent_id: asked.agent.clone(),
            },
            &request.trace.id,
            Ending::Success,
            json!({"step": "began", "bodies": asked.bodies}),
        );
        audit.tell(event.clone());
        Self {
            audit: audit.clone(),
            event,
        }
    }
}

impl Drop for LookingOn {
    fn drop(&mut self) {
        let mut event = self.event.clone();
        event.timestamp = mgp_engine::timestamps::rfc3339_ms(unix_ms());
        event.details.insert("step".into(), "ended".into());
        self.audit.tell(event);
    }
}
