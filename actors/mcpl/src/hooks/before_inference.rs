//! `context/beforeInference`: all servers at once, within one timeout for all (§10.6).

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
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

/// The additions to a context.
#[derive(Debug, Default)]
pub struct BeforeVerdict {
    /// Grouped by position, in their order there.
    pub(crate) injections: Vec<FencedInjection>,
    /// The set that the answer to an agent names, as the agent knows it: that of the first injection, otherwise of the first
    /// participating server.
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
    /// Asks all participating servers for additions to a context. The policy's timeout covers all of them together; late
    /// answers are dropped, and the audit log names their servers.
    pub async fn before_inference(
        &self,
        origin: &HookOrigin,
        hook: &BeforeInference<'_>,
    ) -> BeforeVerdict {
        let hooks = &*self.0;
        if let HookOrigin::Agent(agent) = origin {
            hooks.deps.models.send(ObservedModel {
                agent: agent.clone(),
                model: hook.model.get().to_owned(),
            });
        }
        let policy = hooks.policy();
        let taking = hooks.participants(origin, Capability::BeforeInference);
        let deadline = Instant::now() + policy.before;
        let fence_mark = FenceMark::new(randomness::random_bytes());
        let asks = taking
            .iter()
            .map(|taking| hooks.ask_before(origin, hook, taking, deadline));
        // Only those that were woken are polled: with all of them, the cost grows with the square of the servers.
        let asks: FuturesOrdered<_> = asks.collect();
        let answers: Vec<_> = asks.collect().await;
        let mut evaluated = Vec::new();
        for (taking, answer) in taking.iter().zip(answers) {
            let server = &taking.server;
            let of_server = answer.and_then(|result| {
                let may_use =
                    |set: &str| hooks.check_set(origin, server, set, Capability::BeforeInference);
                let may_add = |position| hooks.check_position(server, position);
                let checks: (_, _) = (&may_use as _, &may_add as _);
                let read = evaluate_before(server, &result, checks, (&policy, &fence_mark));
                read.map_err(|why| (Outcome::Failure, why))
            });
            let mut record = HookRecord {
                server,
                method: BeforeInference::METHOD,
                inference: &hook.inference_id,
                feature_set: None,
                outcome: Outcome::Success,
                reason: None,
                text: hook.user_message.as_deref(),
                details: Value::Null,
            };
            match of_server {
                Ok(of_server) => {
                    let bytes = of_server.injections.iter().map(|of| of.content.size());
                    record.feature_set = Some(&of_server.set);
                    record.details = json!({
                        "injections": of_server.injections.len(),
                        "injected_bytes": bytes.sum::<usize>(),
                        "left_out": of_server.omitted,
                    });
                    hooks.record(origin, record);
                    evaluated.push(of_server);
                }
                Err((outcome, why)) => {
                    record.outcome = outcome;
                    record.reason = Some(&why);
                    hooks.record(origin, record);
                }
            }
        }
        let first = evaluated
            .iter()
            .min_by_key(|of| taking.iter().position(|taking| taking.server == of.server));
        let first =
            first.map(|of: &ServerInjections| names::set_name(&of.server.server(), &of.set));
        let merged = merge(evaluated, &policy);
        for server in &merged.over_limit {
            tracing::warn!(%server, "its additions to a context are dropped: all together exceed the limit");
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
        hook: &BeforeInference<'_>,
        taking: &Participant,
        deadline: Instant,
    ) -> Result<String, (Outcome, String)> {
        let server = &taking.server;
        let map_id = |kind, id: &str| self.deps.ids.map(origin, server, kind, id).into();
        let channels_for_server = hook.channels.filter(|_| self.policy().channels);
        let channels_for_server =
            channels_for_server.and_then(|all| channels::for_server(server, all.get()));
        let channels_for_server = channels_for_server
            .and_then(|channels_for_server| RawValue::from_string(channels_for_server).ok());
        let told = BeforeInference {
            inference_id: map_id(MappedIdKind::Inference, &hook.inference_id),
            conversation_id: map_id(MappedIdKind::Conversation, &hook.conversation_id),
            channels: channels_for_server.as_deref(),
            user_message: hook
                .user_message
                .clone()
                .filter(|_| taking.sets.is_granted(Capability::BeforeObserve)),
            ..hook.clone()
        };
        let params = serde_json::to_string(&told).expect("what was read is JSON");
        let _pending = self.begin_wait(origin, server);
        self.ask_server(server, BeforeInference::METHOD, &params, deadline)
            .await
    }

    /// Asks one server, until the hook's deadline.
    pub(super) async fn ask_server(
        &self,
        server: &ServerId,
        method: &'static str,
        params: &str,
        deadline: Instant,
    ) -> Result<String, (Outcome, String)> {
        let left = deadline.saturating_duration_since(Instant::now());
        let hook = self.deps.host.request(server, method, params, left);
        match timeout_with_grace(left, hook).await {
            None => Err((Outcome::Timeout, "it did not answer in time".into())),
            Some(Err(refusal)) => Err((outcome_of_refusal(&refusal), refusal.to_string())),
            Some(Ok(result)) => String::from_utf8(result.to_vec())
                .map_err(|_| (Outcome::Failure, "its answer is no text".into())),
        }
    }
}
