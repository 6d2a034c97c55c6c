//! Consent for callbacks that the operator has disabled or wants to approve first (CMCP-084, CMCP-085).

use mgp_engine::policy::approvals::{PendingEntry, Requester};
use mgp_engine::servers::consent::Consent;
use mgp_json::{member, members, unquote};
use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::elicitation::Create;
use mgp_protocol::mcp::{Method as _, tasks};
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::refusal::Refusal;

use super::{check_url_support, input_requests};
use crate::link::{Call, Link, LinkEvent};
use mgp_callers::agent::ANSWER_DEADLINE;
use mgp_callers::request::{Caller, Outcome};
use mgp_policy::escape_for_display;
use mgp_runtime::time::unix_ms;

impl Link {
    /// True for a callback that is disabled for this server.
    pub(in crate::link) fn is_forbidden(&self, method: &str) -> bool {
        self.limits.consents.for_method(method) == Consent::Deny
    }

    /// Resolves when the callback may be sent.
    ///
    /// # Errors
    /// The reason for a rejection, as text.
    pub(crate) async fn obtain_consent(
        &self,
        agent: &AgentId,
        method: &str,
        params: Option<&str>,
    ) -> Result<(), String> {
        match self.limits.consents.for_method(method) {
            Consent::Allow => Ok(()),
            Consent::Deny => Err(format!(
                "{method} is switched off for server {}",
                self.server
            )),
            Consent::Ask => self.wait_for_operator(agent, method, params).await,
        }
    }

    /// Waits for the operator's decision.
    async fn wait_for_operator(
        &self,
        agent: &AgentId,
        method: &str,
        params: Option<&str>,
    ) -> Result<(), String> {
        let timeout_ms = u64::try_from(ANSWER_DEADLINE.as_millis()).unwrap_or(u64::MAX);
        let entry = PendingEntry {
            subject: Subject::Callback,
            requester: Requester::Server(self.server.clone()),
            server: Some(self.server.clone()),
            text: format!(
                "{} wants to ask the client of {agent}: {method}",
                self.server
            ),
            details: vec![format!(
                "params: {}",
                escape_for_display(params.unwrap_or("{}"))
            )],
            parts: Vec::new(),
            options: None,
            expires_ms: Some(unix_ms().saturating_add(timeout_ms)),
        };
        let event = |reply| LinkEvent::ConsentRequested(Box::new(entry), reply);
        let Some(answer) = self.ask_supervisor(event).await else {
            return Err(format!(
                "{method} needs the operator's yes, and cannot be asked about"
            ));
        };
        match answer {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => Err(format!("the operator said no to {method}")),
            Ok(None) => Err(format!(
                "{method} requires the operator's approval, and nobody answered within {} s",
                ANSWER_DEADLINE.as_secs()
            )),
            Err(full) => Err(full.to_string()),
        }
    }

    /// The outcome of a call, once the callbacks in it are approved. Callbacks outside of answers go through
    /// [`Self::obtain_consent`].
    pub(in crate::link) async fn check_outcome_consent(
        &self,
        call: &Call<'_>,
        outcome: Outcome,
    ) -> Outcome {
        let Some(caller) = call.caller else {
            return outcome;
        };
        match &outcome {
            Ok(result) if self.limits.consents.is_restricted() && !caller.version.is_legacy() => {
                let text = String::from_utf8_lossy(result);
                self.check_result_consent(call, caller, &text).await?;
            }
            Err(Refusal::Peer(error) | Refusal::Unattributed(error)) => {
                self.check_url_consent(call, caller, error.get()).await?;
            }
            Ok(_) | Err(_) => {}
        }
        outcome
    }

    /// Resolves when all callbacks in a result may be sent.
    async fn check_result_consent(
        &self,
        call: &Call<'_>,
        caller: &Caller,
        text: &str,
    ) -> Result<(), Refusal> {
        let requests =
            input_requests::parse(text).map_err(|why| self.invalid_answer_refusal(&why))?;
        for (_, request) in &requests {
            self.wait_for_consent(call, caller, &request.method, request.params())
                .await?;
        }
        if call.metadata_headers.method != tasks::Get::METHOD {
            return Ok(());
        }
        if let Some(error) = member(text, "error") {
            self.check_url_consent(call, caller, error).await?;
        }
        if let Some(task) = call.metadata_headers.name {
            let keys = requests.iter().map(|(key, _)| &**key);
            self.answer_permits.allow(task, keys);
        }
        Ok(())
    }

    /// Checks consent for an error that sends the client to URLs.
    async fn check_url_consent(
        &self,
        call: &Call<'_>,
        caller: &Caller,
        error: &str,
    ) -> Result<(), Refusal> {
        let visits = match input_requests::parse_url_elicitations(error) {
            Ok(visits) => visits,
            Err(why) if self.limits.consents.is_restricted() => {
                return Err(self.invalid_answer_refusal(&why));
            }
            Err(_) => return Ok(()),
        };
        if visits.is_empty() {
            return Ok(());
        }
        if caller.can_declare() {
            check_url_support(caller, call.in_flight)?;
        }
        for params in visits {
            self.wait_for_consent(call, caller, Create::METHOD, Some(params))
                .await?;
        }
        Ok(())
    }

    /// Resolves when the callback may be sent, or fails if its call is cancelled before.
    async fn wait_for_consent(
        &self,
        call: &Call<'_>,
        caller: &Caller,
        method: &str,
        params: Option<&str>,
    ) -> Result<(), Refusal> {
        tokio::select! {
            may = self.obtain_consent(&caller.agent, method, params) => may.map_err(Refusal::Forbidden),
            () = call.in_flight.wait_until_cancelled() => Err(Refusal::Cancelled),
        }
    }

    /// True for a task event that clients may receive. Callbacks that need consent first are left to
    /// `tasks/get`.
    pub(in crate::link) fn can_forward_task_event(&self, params: &str) -> bool {
        let consents = self.limits.consents;
        if !consents.is_restricted() {
            return true;
        }
        let Ok(requests) = input_requests::parse(params) else {
            return false;
        };
        let on = |method: &str| consents.for_method(method) == Consent::Allow;
        let sends = member(params, "error").is_some_and(|error| {
            input_requests::parse_url_elicitations(error).map_or(true, |visits| !visits.is_empty())
                && !on(Create::METHOD)
        });
        let can_forward = !sends && requests.iter().all(|(_, request)| on(&request.method));
        let task = member(params, "taskId").and_then(unquote);
        if let Some(task) = task.filter(|_| can_forward) {
            self.answer_permits
                .allow(&task, requests.iter().map(|(key, _)| &**key));
        }
        can_forward
    }

    /// Checks that a client's answer to a task may be sent; `task` is the server's own id.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] if it answers a callback that the client may not receive.
    pub(crate) fn check_task_answer(&self, task: &str, params: &str) -> Result<(), Refusal> {
        if !self.limits.consents.is_restricted() {
            return Ok(());
        }
        let responses = member(params, "inputResponses").and_then(members);
        let mut keys = responses.iter().flatten().map(|(key, _)| &**key);
        match keys.find(|key| !self.answer_permits.allows(task, key)) {
            None => Ok(()),
            Some(key) => Err(Refusal::Forbidden(format!(
                "server {} was not allowed to ask {key:?}: `tasks/get` tells what it may ask",
                self.server
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use mgp_engine::servers::consent::ConsentPolicy;
    use mgp_engine::servers::spec::ServerLimits;
    use mgp_protocol::dialect::Version;
    use serde_json::json;

    use super::*;
    use crate::link::scripted::ScriptedServer;

    /// CMCP-084: a disabled callback is refused at once and does not serialize the calls of clients.
    #[tokio::test]
    async fn disabled_callback_is_refused_at_once() {
        let consents = ConsentPolicy {
            sampling: Consent::Deny,
            elicitation: Consent::Ask,
        };
        let mut server = ScriptedServer::with_limits(ServerLimits {
            consents,
            ..ServerLimits::default()
        });
        server.complete_handshake(Version::LATEST_LEGACY, "{}");
        let method = "sampling/createMessage";
        server.send(&json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": {}}));
        let answer = server.next_message().await;
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("switched off"), "{message}");
        assert!(!server.link.call_queue.is_serialized());
        let agent = AgentId::new("agent.test");
        let rejected = server.link.obtain_consent(&agent, method, None).await;
        assert!(rejected.unwrap_err().contains("switched off"));
        let late = server
            .link
            .obtain_consent(&agent, "elicitation/create", None)
            .await;
        assert!(late.unwrap_err().contains("nobody answered"));
        assert_eq!(
            server.link.obtain_consent(&agent, "roots/list", None).await,
            Ok(())
        );
    }
}
