//! Routes a callback (A-32): to the agent whose call caused it, as a callback or an equivalent it supports, or
//! to the operator.

use std::sync::Arc;

use mgp_engine::callers::callbacks::{self, CallbackAnswer, OpenCallback, OpenCallbackError};
use mgp_engine::policy::approvals::{PendingEntry, Requester};
use mgp_engine::servers::log_levels::LogLevel;
use mgp_json::quote;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::mgp::callback::{self, CallbackKind, Request};
use mgp_protocol::mgp::negotiation::Features;

use super::{ReceivedCallback, RoutingOutcome};
use crate::link::callback::{ask_client, client_capabilities};
use crate::link::{Callback, Link, LinkEvent};
use mgp_callers::{Delivery, render_log_frame};
use mgp_policy::escape_for_display;
use mgp_runtime::ids::new_session_id;
use mgp_runtime::time::unix_ms;

impl ReceivedCallback {
    /// The equivalent MCP callback, whose consent this one also needs.
    fn mcp_equivalent(&self) -> Callback {
        match self.form.kind() {
            CallbackKind::LlmCompletion => Callback::Sampling,
            CallbackKind::Confirmation
            | CallbackKind::Input
            | CallbackKind::Selection
            | CallbackKind::Notification => Callback::Elicitation,
        }
    }

    /// True if the client negotiated callbacks and can receive one now, or on its return with the answer to
    /// another.
    async fn can_receive_callback(&self) -> bool {
        if !self.caller.mgp.features().contains(Features::CALLBACKS) {
            return false;
        }
        if let Some(rounds) = self.call.rounds() {
            return rounds.is_reachable();
        }
        match self.caller.live_connection() {
            Some(agent) => agent.wait_until_ready(&self.call).await.is_ok(),
            None => false,
        }
    }
}

impl Link {
    /// Routes a callback to its recipient.
    pub(super) async fn route_callback(
        self: &Arc<Self>,
        callback: &ReceivedCallback,
    ) -> RoutingOutcome {
        let method = callback.mcp_equivalent().method();
        if self.is_forbidden(method) {
            return RoutingOutcome::Declined("switched_off");
        }
        if callback.can_receive_callback().await {
            let (agent, params) = (&callback.caller.agent, Some(callback.params.as_str()));
            if self.obtain_consent(agent, method, params).await.is_err() {
                return RoutingOutcome::Declined("not_consented");
            }
            if let Some(outcome) = self.send_callback_to_agent(callback).await {
                return outcome;
            }
        }
        match callback.mcp_equivalent() {
            Callback::Sampling => self.sample_answer(callback).await,
            Callback::Elicitation | Callback::Roots => match self.elicit_answer(callback).await {
                Some(answer) => outcome_from_answer(answer),
                None => self.ask_operator(callback).await,
            },
        }
    }

    /// Sends `notifications/mgp.callback.request` with an id issued by the kernel for this agent. `None` if the
    /// agent does not return for it because its call became a task.
    async fn send_callback_to_agent(
        self: &Arc<Self>,
        callback: &ReceivedCallback,
    ) -> Option<RoutingOutcome> {
        let pending = OpenCallback {
            client: callback.caller.connection,
            origin_call: (callback.caller.connection, callback.call.started_at()),
            form: callback.form.clone(),
            cascades: callback.form.kind() == CallbackKind::LlmCompletion,
            requester: self.server.to_string(),
            request_id: callback.call.request_id(),
            message: callback.message.clone(),
            opened_at: callback.arrived,
            expires_at: callback.arrived + callback.timeout.duration,
        };
        let open = |reply| LinkEvent::CallbackRequested(Box::new(pending), reply);
        let mut open = match self.ask_supervisor(open).await {
            Some(Ok(open)) => open,
            Some(Err(OpenCallbackError::TooDeep)) => {
                return Some(RoutingOutcome::Declined("too_deep"));
            }
            Some(Err(OpenCallbackError::TooMany)) | None => {
                return Some(RoutingOutcome::Declined("too_many"));
            }
        };
        let id = open.id().to_owned();
        let delivery = async {
            if self.notify_agent(callback, &id, Delivery::Reliable).await {
                std::future::pending().await
            } else {
                None
            }
        };
        // The agent may find the callback in the list before it is notified.
        tokio::select! {
            answer = open.wait_for_answer() => Some(outcome_from_answer(answer)),
            gone = delivery => gone,
        }
    }

    /// Notifies the agent as soon as it is connected; false if it does not return.
    async fn notify_agent(&self, callback: &ReceivedCallback, id: &str, class: Delivery) -> bool {
        let frame = || self.render_callback(callback, id).into();
        callback.call.send_when_reachable(frame, class).await
    }

    fn render_callback(&self, callback: &ReceivedCallback, id: &str) -> Vec<u8> {
        let request = callback.call.request_id();
        let request = request.as_ref().map_or("null", |id| id.as_json());
        let timeout = callback.timeout.duration.as_millis().to_string();
        let (id, server) = (quote(id), quote(self.server.as_str()));
        let own = [
            ("callback_id", id.as_str()),
            ("request_id", request),
            ("server_id", server.as_str()),
            ("timeout_ms", timeout.as_str()),
        ];
        let params = callback::params_for_agent(&callback.params, &own);
        jsonrpc::notification(Request::METHOD, Some(&params))
    }

    /// Sends the callback as a form elicitation. `None` if the client does not support forms. A client that
    /// supports them and does not answer has declined.
    async fn elicit_answer(
        self: &Arc<Self>,
        callback: &ReceivedCallback,
    ) -> Option<CallbackAnswer> {
        if !client_capabilities(&callback.caller, &callback.call).elicitation_form {
            return None;
        }
        let params = callback.form.render_elicitation_params(&callback.message);
        let (caller, in_flight) = (&callback.caller, &callback.call);
        let form = Callback::Elicitation;
        let answer = ask_client(self, caller, in_flight, form, Some(&params)).await;
        Some(match answer {
            Ok(result) => callback
                .form
                .parse_elicitation_result(&String::from_utf8_lossy(&result)),
            Err(_) => CallbackAnswer::Declined,
        })
    }

    /// Sends the callback as `sampling/createMessage`. No person answers in place of a model.
    async fn sample_answer(self: &Arc<Self>, callback: &ReceivedCallback) -> RoutingOutcome {
        let can = client_capabilities(&callback.caller, &callback.call).sampling;
        let read = mcp::parse_params::<Request<'_>>(Some(&callback.params)).ok();
        let params = read.as_ref().and_then(callbacks::to_sampling_params);
        let Some(params) = params.filter(|_| can) else {
            return RoutingOutcome::Declined("unsupported");
        };
        let (caller, in_flight) = (&callback.caller, &callback.call);
        let sampling = Callback::Sampling;
        let answer = ask_client(self, caller, in_flight, sampling, Some(&params)).await;
        let result = answer.ok();
        let response = result
            .and_then(|result| callbacks::from_sampling_result(&String::from_utf8_lossy(&result)));
        response.map_or(
            RoutingOutcome::Declined("declined"),
            RoutingOutcome::Response,
        )
    }

    /// Adds the callback to the operator's pending list, within the callback's timeout.
    async fn ask_operator(self: &Arc<Self>, callback: &ReceivedCallback) -> RoutingOutcome {
        let timeout_ms = u64::try_from(callback.timeout.duration.as_millis()).unwrap_or(u64::MAX);
        let (server, agent) = (&self.server, &callback.caller.agent);
        let entry = PendingEntry {
            subject: Subject::Callback,
            requester: Requester::Server(server.clone()),
            server: Some(server.clone()),
            text: format!(
                "{server} asks in a call of {agent}: {}",
                escape_for_display(&callback.message)
            ),
            details: Vec::new(),
            parts: Vec::new(),
            options: Some(callback.form.options().to_vec()),
            expires_ms: Some(unix_ms().saturating_add(timeout_ms)),
        };
        let event = |reply| LinkEvent::OperatorInputRequested(Box::new(entry), reply);
        match self.ask_supervisor(event).await {
            Some(Ok(Some(Some(value)))) => match callback.form.parse_text(&value) {
                Ok(answer) => outcome_from_answer(answer),
                Err(_) => RoutingOutcome::Declined("declined"),
            },
            Some(Ok(Some(None))) => RoutingOutcome::Declined("declined"),
            // The entry expired; the callback's own timeout decides.
            Some(Ok(None)) => std::future::pending().await,
            Some(Err(_)) | None => RoutingOutcome::Declined("nobody"),
        }
    }

    /// Delivers a callback that needs no answer: as a callback, or as a log record to a client without
    /// callbacks.
    pub(super) async fn display_callback(self: &Arc<Self>, callback: &ReceivedCallback) {
        let method = callback.mcp_equivalent().method();
        let (agent, params) = (&callback.caller.agent, Some(callback.params.as_str()));
        if self.obtain_consent(agent, method, params).await.is_err() {
            return;
        }
        if callback.can_receive_callback().await {
            let id = format!("cb-{}", new_session_id().as_str());
            if self.notify_agent(callback, &id, Delivery::Lossy).await {
                return;
            }
        }
        let level = callback.caller.log_level(&callback.call);
        if level.is_some_and(|floor| LogLevel::Info.is_at_least(floor)) {
            let text = quote(&callback.message);
            let params = format!(r#"{{"level":"info","data":{text}}}"#);
            let frame = render_log_frame(&self.server, &callback.caller.view, &params);
            callback.call.send(frame, Delivery::Lossy);
        }
    }
}

fn outcome_from_answer(answer: CallbackAnswer) -> RoutingOutcome {
    match answer {
        CallbackAnswer::Response(response) => RoutingOutcome::Response(response),
        CallbackAnswer::Declined => RoutingOutcome::Declined("declined"),
    }
}
