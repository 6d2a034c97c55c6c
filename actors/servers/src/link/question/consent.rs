//! Questions of a server that the operator has disabled or wants to see first (CMCP-084, CMCP-085).

use mgp_engine::policy::approvals::{ApprovalQuestion, Asker};
use mgp_engine::servers::consent::Consent;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::elicitation::Create;
use mgp_protocol::mcp::{Method as _, tasks};
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{member, members};

use super::{can_visit, input_requests};
use crate::link::{Call, Link, LinkEvent};
use mgp_callers::agent::ANSWER_DEADLINE;
use mgp_callers::request::{Caller, Outcome};
use mgp_policy::approvals::legible;
use mgp_runtime::time::unix_ms;

impl Link {
    /// True for a question that is disabled for this server.
    pub(in crate::link) fn forbids(&self, method: &str) -> bool {
        self.limits.consents.to(method) == Consent::Off
    }

    /// Resolves when the question may be asked.
    ///
    /// # Errors
    /// Why it may not, in words.
    pub async fn consented(
        &self,
        agent: &AgentId,
        method: &str,
        params: Option<&str>,
    ) -> Result<(), String> {
        match self.limits.consents.to(method) {
            Consent::On => Ok(()),
            Consent::Off => Err(format!(
                "{method} is switched off for server {}",
                self.server
            )),
            Consent::Ask => self.seen(agent, method, params).await,
        }
    }

    /// Waits for the operator's answer.
    async fn seen(
        &self,
        agent: &AgentId,
        method: &str,
        params: Option<&str>,
    ) -> Result<(), String> {
        let patience = u64::try_from(ANSWER_DEADLINE.as_millis()).unwrap_or(u64::MAX);
        let question = ApprovalQuestion {
            subject: Subject::Callback,
            asker: Asker::Server(self.server.clone()),
            server: Some(self.server.clone()),
            text: format!(
                "{} wants to ask the client of {agent}: {method}",
                self.server
            ),
            details: vec![format!("params: {}", legible(params.unwrap_or("{}")))],
            parts: Vec::new(),
            options: None,
            until_ms: Some(unix_ms().saturating_add(patience)),
        };
        let asked = |reply| LinkEvent::ConsentAsked(Box::new(question), reply);
        let Some(answer) = self.asks(asked).await else {
            return Err(format!(
                "{method} needs the operator's yes, and cannot be asked about"
            ));
        };
        match answer {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => Err(format!("the operator said no to {method}")),
            Ok(None) => Err(format!(
                "{method} needs the operator's yes, and nobody answered within {} s",
                ANSWER_DEADLINE.as_secs()
            )),
            Err(full) => Err(full.to_string()),
        }
    }

    /// The outcome of a call, after the questions in it were allowed. Questions outside of answers
    /// go through [`Self::consented`].
    pub(in crate::link) async fn judged(&self, call: &Call<'_>, outcome: Outcome) -> Outcome {
        let Some(caller) = call.caller else {
            return outcome;
        };
        match &outcome {
            Ok(result) if self.limits.consents.restrict() && !caller.version.is_legacy() => {
                let text = String::from_utf8_lossy(result);
                self.permitted(call, caller, &text).await?;
            }
            Err(Refusal::Peer(error) | Refusal::Unattributed(error)) => {
                self.visits_permitted(call, caller, error.get()).await?;
            }
            Ok(_) | Err(_) => {}
        }
        outcome
    }

    /// Resolves when all questions in a result may be asked.
    async fn permitted(&self, call: &Call<'_>, caller: &Caller, text: &str) -> Result<(), Refusal> {
        let asked = input_requests::read(text).map_err(|why| self.faulty(&why))?;
        for (_, wanted) in &asked {
            self.yes_in(call, caller, &wanted.method, wanted.params())
                .await?;
        }
        if call.mirror.method != tasks::Get::METHOD {
            return Ok(());
        }
        if let Some(error) = member(text, "error") {
            self.visits_permitted(call, caller, error).await?;
        }
        if let Some(task) = call.mirror.name {
            let keys = asked.iter().map(|(key, _)| &**key);
            self.permits.allow(task, keys);
        }
        Ok(())
    }

    /// The same for an error that sends the client to URLs.
    async fn visits_permitted(
        &self,
        call: &Call<'_>,
        caller: &Caller,
        error: &str,
    ) -> Result<(), Refusal> {
        let visits = match input_requests::visits(error) {
            Ok(visits) => visits,
            Err(why) if self.limits.consents.restrict() => return Err(self.faulty(&why)),
            Err(_) => return Ok(()),
        };
        if visits.is_empty() {
            return Ok(());
        }
        if caller.can_declare() {
            can_visit(caller, call.exchange)?;
        }
        for params in visits {
            self.yes_in(call, caller, Create::METHOD, Some(params))
                .await?;
        }
        Ok(())
    }

    /// Resolves when the question may be asked, unless its call is cancelled before.
    async fn yes_in(
        &self,
        call: &Call<'_>,
        caller: &Caller,
        method: &str,
        params: Option<&str>,
    ) -> Result<(), Refusal> {
        tokio::select! {
            may = self.consented(&caller.agent, method, params) => may.map_err(Refusal::Forbidden),
            () = call.exchange.cancelled() => Err(Refusal::Cancelled),
        }
    }

    /// True for an event of a task that clients may have; questions that need consent first are left to
    /// `tasks/get`.
    pub(in crate::link) fn may_tell(&self, params: &str) -> bool {
        let consents = self.limits.consents;
        if !consents.restrict() {
            return true;
        }
        let Ok(asked) = input_requests::read(params) else {
            return false;
        };
        let on = |method: &str| consents.to(method) == Consent::On;
        let sends = member(params, "error").is_some_and(|error| {
            input_requests::visits(error).map_or(true, |visits| !visits.is_empty())
                && !on(Create::METHOD)
        });
        let tells = !sends && asked.iter().all(|(_, wanted)| on(&wanted.method));
        let task =
            member(params, "taskId").and_then(|own| serde_json::from_str::<String>(own).ok());
        if let Some(task) = task.filter(|_| tells) {
            self.permits
                .allow(&task, asked.iter().map(|(key, _)| &**key));
        }
        tells
    }

    /// Checks that an answer of a client to a task may be sent; `task` is the server's own id.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] when it answers a question that the client may not be asked.
    pub fn may_answer(&self, task: &str, params: &str) -> Result<(), Refusal> {
        if !self.limits.consents.restrict() {
            return Ok(());
        }
        let responses = member(params, "inputResponses").and_then(members);
        let mut keys = responses.iter().flatten().map(|(key, _)| &**key);
        match keys.find(|key| !self.permits.allows(task, key)) {
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
    use mgp_engine::servers::consent::Consents;
    use mgp_engine::servers::spec::ServerLimits;
    use mgp_protocol::dialect::Version;
    use serde_json::json;

    use super::*;
    use crate::link::scripted::Scripted;

    /// CMCP-084: a server that asks a disabled question is refused at once, and does not cause the calls of
    /// other clients to take turns.
    #[tokio::test]
    async fn a_question_that_is_off_is_refused_at_once() {
        let consents = Consents {
            sampling: Consent::Off,
            elicitation: Consent::Ask,
        };
        let mut it = Scripted::bounded(ServerLimits {
            consents,
            ..ServerLimits::default()
        });
        it.meets(Version::LATEST_LEGACY, "{}");
        let method = "sampling/createMessage";
        it.say(&json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": {}}));
        let answer = it.next().await;
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        let words = answer["error"]["message"].as_str().unwrap();
        assert!(words.contains("switched off"), "{words}");
        assert!(!it.link.turns.asks());
        let agent = AgentId::new("agent.test");
        let no = it.link.consented(&agent, method, None).await;
        assert!(no.unwrap_err().contains("switched off"));
        let late = it.link.consented(&agent, "elicitation/create", None).await;
        assert!(late.unwrap_err().contains("nobody answered"));
        assert_eq!(it.link.consented(&agent, "roots/list", None).await, Ok(()));
    }
}
