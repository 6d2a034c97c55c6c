//! `context/beforeInference`: all at once, within one time for all (§10.6).

use futures_util::future::join_all;
use mgp_json::quote;
use mgp_mcpl_engine::hooks::answers::{FencedInjection, ServerInjections, evaluate_before, merge};
use mgp_mcpl_engine::hooks::channels;
use mgp_mcpl_engine::hooks::fence::FenceMark;
use mgp_mcpl_engine::names;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::context::BeforeInference;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mgp::audit::Outcome;
use mgp_runtime::randomness;
use mgp_runtime::time::timeout_with_grace;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{HookOrigin, HookRecord, Hooks, MappedIdKind, ObservedModel, Participant, SharedHooks};
use crate::audit::outcome_of_refusal;

/// What goes into a context.
#[derive(Debug, Default)]
pub struct BeforeVerdict {
    /// Grouped by position, in the order in which they go there.
    pub(crate) injections: Vec<FencedInjection>,
    /// The set that the answer to an agent comes in the name of, as the agent knows it: that of the first injection,
    /// else of the first server that took part.
    pub(crate) set: Option<String>,
}

impl BeforeVerdict {
    /// The answer to an agent (§10.2).
    #[must_use]
    pub fn to_json(&self) -> String {
        let set = self.set.as_deref().map(quote);
        let set = set.map(|set| format!(r#""featureSet":{set},"#));
        let all: Vec<_> = self
            .injections
            .iter()
            .map(FencedInjection::to_json)
            .collect();
        format!(
            r#"{{{}"contextInjections":[{}]}}"#,
            set.unwrap_or_default(),
            all.join(",")
        )
    }
}

impl Hooks {
    /// Asks all participating servers for additions to a context. The policy's timeout covers all of them together;
    /// later answers are dropped, and the audit log names their servers.
    pub async fn before_inference(
        &self,
        origin: &HookOrigin,
        asked: &BeforeInference<'_>,
    ) -> BeforeVerdict {
        let hooks = &*self.0;
        if let HookOrigin::Agent(agent) = origin {
            hooks.deps.models.send(ObservedModel {
                agent: agent.clone(),
                model: asked.model.get().to_owned(),
            });
        }
        let policy = hooks.policy();
        let taking = hooks.participants(origin, Capability::BeforeInference);
        let until = Instant::now() + policy.before;
        let mark = FenceMark::new(randomness::random_bytes());
        let asks = taking
            .iter()
            .map(|taking| hooks.ask_before(origin, asked, taking, until));
        let answers = join_all(asks).await;
        let mut judged = Vec::new();
        for (taking, answer) in taking.iter().zip(answers) {
            let server = &taking.server;
            let of_server = answer.and_then(|result| {
                let may_use =
                    |set: &str| hooks.check_set(origin, server, set, Capability::BeforeInference);
                let read = evaluate_before(server, &result, &may_use, (&policy, &mark));
                read.map_err(|why| (Outcome::Failure, why))
            });
            let mut seen = HookRecord {
                server,
                method: BeforeInference::METHOD,
                inference: &asked.inference_id,
                feature_set: None,
                outcome: Outcome::Success,
                reason: None,
                text: asked.user_message.as_deref(),
                details: Value::Null,
            };
            match of_server {
                Ok(of_server) => {
                    let bytes = of_server.injections.iter().map(|of| of.content.size());
                    seen.feature_set = Some(&of_server.set);
                    seen.details = json!({
                        "injections": of_server.injections.len(),
                        "injected_bytes": bytes.sum::<usize>(),
                        "left_out": of_server.omitted,
                    });
                    hooks.record(origin, seen);
                    judged.push(of_server);
                }
                Err((outcome, why)) => {
                    seen.outcome = outcome;
                    seen.reason = Some(&why);
                    hooks.record(origin, seen);
                }
            }
        }
        let first = judged
            .iter()
            .min_by_key(|of| taking.iter().position(|taking| taking.server == of.server));
        let first =
            first.map(|of: &ServerInjections| names::set_name(&of.server.server(), &of.set));
        let merged = merge(judged, &policy);
        for server in &merged.over_limit {
            tracing::warn!(%server, "what it adds to a context is left out: all together it is too much");
        }
        let of_injection = merged
            .injections
            .first()
            .map(|of| names::set_name(&of.server.server(), &of.set));
        BeforeVerdict {
            injections: merged.injections,
            set: of_injection.or(first),
        }
    }
}

impl SharedHooks {
    async fn ask_before(
        &self,
        origin: &HookOrigin,
        asked: &BeforeInference<'_>,
        taking: &Participant,
        until: Instant,
    ) -> Result<String, (Outcome, String)> {
        let server = &taking.server;
        let passed = |kind, id: &str| self.deps.ids.map(origin, server, kind, id).into();
        let own = asked.channels.filter(|_| self.policy().channels);
        let own = own.and_then(|all| channels::for_server(server, all.get()));
        let own = own.and_then(|own| RawValue::from_string(own).ok());
        let told = BeforeInference {
            inference_id: passed(MappedIdKind::Inference, &asked.inference_id),
            conversation_id: passed(MappedIdKind::Conversation, &asked.conversation_id),
            channels: own.as_deref(),
            ..asked.clone()
        };
        let params = serde_json::to_string(&told).expect("what was read is JSON");
        let _pending = self.begin_wait(origin, server);
        self.ask_server(server, BeforeInference::METHOD, &params, until)
            .await
    }

    /// Asks one server; the time ends with the hook's.
    pub(super) async fn ask_server(
        &self,
        server: &ServerId,
        method: &'static str,
        params: &str,
        until: Instant,
    ) -> Result<String, (Outcome, String)> {
        let left = until.saturating_duration_since(Instant::now());
        let asked = self.deps.host.request(server, method, params, left);
        match timeout_with_grace(left, asked).await {
            None => Err((Outcome::Timeout, "it did not answer in time".into())),
            Some(Err(refusal)) => Err((outcome_of_refusal(&refusal), refusal.to_string())),
            Some(Ok(result)) => String::from_utf8(result.to_vec())
                .map_err(|_| (Outcome::Failure, "its answer is no text".into())),
        }
    }
}
