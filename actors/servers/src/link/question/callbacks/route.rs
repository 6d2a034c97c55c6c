//! To whom a callback is put (A-32): the agent whose call caused it, by a callback or by what else it knows,
//! or the operator.

use std::sync::Arc;

use mgp_engine::callers::callbacks::{self, CallbackAnswer, NotOpened, OpenCallback};
use mgp_engine::policy::approvals::{ApprovalQuestion, Asker};
use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::mgp::callback::{self, CallbackKind, Request};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::splice::quoted;

use super::{AskedCallback, AskedOutcome};
use crate::link::question::{declared, put};
use crate::link::{ClientQuestion, Link, LinkEvent};
use mgp_callers::directory::log_frame;
use mgp_callers::exchange::Delivery;
use mgp_policy::approvals::legible;
use mgp_runtime::ids::new_id;
use mgp_runtime::time::unix_ms;

impl AskedCallback {
    /// The question of MCP that a client is asked instead, and whose consent this one needs, too.
    fn question(&self) -> ClientQuestion {
        match self.form.kind() {
            CallbackKind::LlmCompletion => ClientQuestion::Sampling,
            CallbackKind::Confirmation
            | CallbackKind::Input
            | CallbackKind::Selection
            | CallbackKind::Notification => ClientQuestion::Elicitation,
        }
    }

    /// True when the client agreed to callbacks, and can be sent one, now or when it is back with the answer
    /// to another question.
    async fn can_be_called_back(&self) -> bool {
        if !self.caller.mgp.features().contains(Features::CALLBACKS) {
            return false;
        }
        if let Some(rounds) = self.exchange.rounds() {
            return rounds.is_heard();
        }
        match self.caller.standing() {
            Some(agent) => agent.may_be_asked(&self.exchange).await.is_ok(),
            None => false,
        }
    }
}

impl Link {
    /// Puts a callback to who can be asked.
    pub(super) async fn put_callback(self: &Arc<Self>, asked: &AskedCallback) -> AskedOutcome {
        let method = asked.question().method();
        if self.forbids(method) {
            return AskedOutcome::Declined("switched_off");
        }
        if asked.can_be_called_back().await {
            let (agent, params) = (&asked.caller.agent, Some(asked.params.as_str()));
            if self.consented(agent, method, params).await.is_err() {
                return AskedOutcome::Declined("not_consented");
            }
            if let Some(outcome) = self.call_agent_back(asked).await {
                return outcome;
            }
        }
        match asked.question() {
            ClientQuestion::Sampling => self.complete(asked).await,
            ClientQuestion::Elicitation | ClientQuestion::Roots => match self.elicit(asked).await {
                Some(answer) => said(answer),
                None => self.ask_operator(asked).await,
            },
        }
    }

    /// By `notifications/mgp.callback.request`, under ids that are the kernel's and the agent's own. `None`
    /// where the agent does not come back for it: its call went on as a task.
    async fn call_agent_back(self: &Arc<Self>, asked: &AskedCallback) -> Option<AskedOutcome> {
        let callback = OpenCallback {
            party: asked.caller.connection,
            within: (asked.caller.connection, asked.exchange.began()),
            form: asked.form.clone(),
            cascades: asked.form.kind() == CallbackKind::LlmCompletion,
            asker: self.server.to_string(),
            request: asked.exchange.request_id(),
            message: asked.message.clone(),
            since: asked.arrived,
            until: asked.arrived + asked.patience.lasts,
        };
        let open = |reply| LinkEvent::CallbackAsked(Box::new(callback), reply);
        let mut open = match self.asks(open).await {
            Some(Ok(open)) => open,
            Some(Err(NotOpened::TooDeep)) => return Some(AskedOutcome::Declined("too_deep")),
            Some(Err(NotOpened::TooMany)) | None => {
                return Some(AskedOutcome::Declined("too_many"));
            }
        };
        let id = open.id().to_owned();
        let told = async {
            match self.tell_agent(asked, &id, Delivery::Reliable).await {
                true => std::future::pending().await,
                false => None,
            }
        };
        // It may be found in the list before it is told.
        tokio::select! {
            answer = open.answered() => Some(said(answer)),
            gone = told => gone,
        }
    }

    /// Tells the agent as soon as it hears; false when it does not come back.
    async fn tell_agent(&self, asked: &AskedCallback, id: &str, class: Delivery) -> bool {
        let frame = || self.put_to_agent(asked, id).into();
        asked.exchange.send_when_heard(frame, class).await
    }

    fn put_to_agent(&self, asked: &AskedCallback, id: &str) -> Vec<u8> {
        let request = asked.exchange.request_id();
        let request = request.as_ref().map_or("null", |id| id.as_json());
        let timeout = asked.patience.lasts.as_millis().to_string();
        let (id, server) = (quoted(id), quoted(self.server.as_str()));
        let own = [
            ("callback_id", id.as_str()),
            ("request_id", request),
            ("server_id", server.as_str()),
            ("timeout_ms", timeout.as_str()),
        ];
        let params = callback::put_to_agent(&asked.params, &own);
        jsonrpc::notification(Request::METHOD, Some(&params))
    }

    /// As a form; `None` where the client cannot be asked one. One that can and does not answer has declined.
    async fn elicit(self: &Arc<Self>, asked: &AskedCallback) -> Option<CallbackAnswer> {
        if !declared(&asked.caller, &asked.exchange).elicitation_form {
            return None;
        }
        let params = asked.form.elicitation(&asked.message);
        let (caller, exchange) = (&asked.caller, &asked.exchange);
        let form = ClientQuestion::Elicitation;
        let answer = put(self, caller, exchange, form, Some(&params)).await;
        Some(match answer {
            Ok(result) => asked.form.elicited(&String::from_utf8_lossy(&result)),
            Err(_) => CallbackAnswer::Declined,
        })
    }

    /// By `sampling/createMessage`. No person answers in the place of a model.
    async fn complete(self: &Arc<Self>, asked: &AskedCallback) -> AskedOutcome {
        let can = declared(&asked.caller, &asked.exchange).sampling;
        let read = mcp::read::<Request<'_>>(Some(&asked.params)).ok();
        let params = read.as_ref().and_then(callbacks::sampling);
        let Some(params) = params.filter(|_| can) else {
            return AskedOutcome::Declined("unsupported");
        };
        let (caller, exchange) = (&asked.caller, &asked.exchange);
        let sampling = ClientQuestion::Sampling;
        let answer = put(self, caller, exchange, sampling, Some(&params)).await;
        let result = answer.ok();
        let response =
            result.and_then(|result| callbacks::completed(&String::from_utf8_lossy(&result)));
        response.map_or(AskedOutcome::Declined("declined"), AskedOutcome::Said)
    }

    /// In the operator's list, within the time of the callback.
    async fn ask_operator(self: &Arc<Self>, asked: &AskedCallback) -> AskedOutcome {
        let patience = u64::try_from(asked.patience.lasts.as_millis()).unwrap_or(u64::MAX);
        let (server, agent) = (&self.server, &asked.caller.agent);
        let question = ApprovalQuestion {
            subject: Subject::Callback,
            asker: Asker::Server(server.clone()),
            server: Some(server.clone()),
            text: format!(
                "{server} asks in a call of {agent}: {}",
                legible(&asked.message)
            ),
            details: Vec::new(),
            parts: Vec::new(),
            options: Some(asked.form.options().to_vec()),
            until_ms: Some(unix_ms().saturating_add(patience)),
        };
        let asking = |reply| LinkEvent::OperatorAsked(Box::new(question), reply);
        match self.asks(asking).await {
            Some(Ok(Some(Some(value)))) => match asked.form.takes(&value) {
                Ok(answer) => said(answer),
                Err(_) => AskedOutcome::Declined("declined"),
            },
            Some(Ok(Some(None))) => AskedOutcome::Declined("declined"),
            // Its time is over, which the clock of the callback tells.
            Some(Ok(None)) => std::future::pending().await,
            Some(Err(_)) | None => AskedOutcome::Declined("nobody"),
        }
    }

    /// Shows what needs no answer: as a callback, or as a log record to a client that knows none.
    pub(super) async fn show_callback(self: &Arc<Self>, asked: &AskedCallback) {
        let method = asked.question().method();
        let (agent, params) = (&asked.caller.agent, Some(asked.params.as_str()));
        if self.consented(agent, method, params).await.is_err() {
            return;
        }
        if asked.can_be_called_back().await {
            let id = format!("cb-{}", new_id().as_str());
            if self.tell_agent(asked, &id, Delivery::Lossy).await {
                return;
            }
        }
        let level = asked.caller.log_level(&asked.exchange);
        if level.is_some_and(|floor| LogLevel::Info.passes(floor)) {
            let text = quoted(&asked.message);
            let params = format!(r#"{{"level":"info","data":{text}}}"#);
            let frame = log_frame(&self.server, &asked.caller.view, &params);
            asked.exchange.send(frame, Delivery::Lossy);
        }
    }
}

fn said(answer: CallbackAnswer) -> AskedOutcome {
    match answer {
        CallbackAnswer::Said(response) => AskedOutcome::Said(response),
        CallbackAnswer::Declined => AskedOutcome::Declined("declined"),
    }
}
