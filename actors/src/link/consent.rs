//! Questions of a server that the operator has switched off, or wants to see first (CMCP-084, CMCP-085).

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use mgp_engine::approvals::{Asker, Question};
use mgp_engine::consent::Consent;
use mgp_protocol::dialect::Era;
use mgp_protocol::ids::AgentId;
use mgp_protocol::lookalike;
use mgp_protocol::mention::may_mention;
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::refusal::Refusal;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Call, Link};
use crate::agent::ANSWER_DEADLINE;
use crate::approvals::legible;
use crate::request::Outcome;
use crate::time::unix_ms;

/// What a modern server wants to know, before it answers or while it works on a task.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Needs<'a> {
    #[serde(borrow, default)]
    input_requests: BTreeMap<Cow<'a, str>, Wanted<'a>>,
}

#[derive(Deserialize)]
struct Wanted<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

impl Link {
    /// True for a question that is switched off for this server.
    pub(super) fn forbids(&self, method: &str) -> bool {
        self.limits.consents.to(method) == Consent::Off
    }

    /// Resolves when the question may be put to the agent's client.
    ///
    /// # Errors
    /// In words, why it may not.
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

    /// Waits for the operator.
    async fn seen(
        &self,
        agent: &AgentId,
        method: &str,
        params: Option<&str>,
    ) -> Result<(), String> {
        let patience = u64::try_from(ANSWER_DEADLINE.as_millis()).unwrap_or(u64::MAX);
        let question = Question {
            subject: Subject::Callback,
            asker: Asker::Server(self.server.clone()),
            server: Some(self.server.clone()),
            text: format!(
                "{} wants to ask the client of {agent}: {method}",
                self.server
            ),
            details: vec![format!("params: {}", legible(params.unwrap_or("{}")))],
            parts: Vec::new(),
            until_ms: Some(unix_ms().saturating_add(patience)),
        };
        match self.upward.consented(question).await {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => Err(format!("the operator said no to {method}")),
            Ok(None) => Err(format!(
                "{method} needs the operator's yes, and nobody answered within {} s",
                ANSWER_DEADLINE.as_secs()
            )),
            Err(full) => Err(full.to_string()),
        }
    }

    /// What a modern server answered a modern client, once all that it asks there may be asked. Other
    /// questions go by [`Self::consented`] one by one.
    pub(super) async fn consented_result(&self, call: &Call<'_>, result: Bytes) -> Outcome {
        let Some(caller) = call.caller.filter(|_| call.era == Era::Modern) else {
            return Ok(result);
        };
        let nothing_asked = !may_mention(&result, "\"inputRequests\"");
        if caller.version.is_legacy() || nothing_asked {
            return Ok(result);
        }
        let text = String::from_utf8_lossy(&result);
        let needs: Needs<'_> = lookalike::from_object(&text)
            .map_err(|error| self.lost(&format!("its questions cannot be read: {error}")))?;
        for wanted in needs.input_requests.values() {
            let params = wanted.params.map(RawValue::get);
            let asked = self.consented(&caller.agent, &wanted.method, params);
            tokio::select! {
                may = asked => may.map_err(Refusal::Forbidden)?,
                () = call.exchange.cancelled() => return Err(Refusal::Cancelled),
            }
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use mgp_engine::consent::Consents;
    use mgp_engine::spec::ServerLimits;
    use mgp_protocol::dialect::Version;
    use serde_json::json;

    use super::*;
    use crate::link::scripted::Scripted;

    /// CMCP-084: a server that asks what it was told it cannot is refused at once, and the calls of
    /// other clients do not wait in turns because of it.
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
