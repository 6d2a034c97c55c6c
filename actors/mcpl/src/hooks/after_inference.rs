//! `context/afterInference`: a chain of servers whose answer is awaited, then notifications to the others (§10.5,
//! §13.3).

use std::borrow::Cow;

use mgp_json::{quote, render_object};
use mgp_mcpl_engine::hooks::answers::evaluate_after;
use mgp_mcpl_engine::names;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::context::AfterInference;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mgp::audit::Outcome;
use mgp_runtime::time::monotonic_now;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    AfterVerdict, GateKey, HookOrigin, HookRecord, Hooks, MappedIdKind, Participant, SharedHooks,
};

/// The result of the chain.
#[derive(Debug)]
pub struct AfterChain {
    /// The text that is sent.
    pub verdict: AfterVerdict,
    /// For each server that approved it, in order: the set as agents know it, and its metadata.
    pub answers: Vec<(String, Option<Box<str>>)>,
    /// The set that changed the text last, as agents know it.
    pub(crate) changed_by: Option<String>,
}

impl AfterChain {
    /// The answer to an agent (§10.5). `metadata` is that of the only server with some; of several, each is under the name of
    /// its set. `None` if the text is withheld.
    #[must_use]
    pub fn to_json(&self) -> Option<String> {
        let modified = match &self.verdict {
            AfterVerdict::Unchanged => String::new(),
            AfterVerdict::Modified(text) => format!(r#","modifiedResponse":{}"#, quote(text)),
            AfterVerdict::Withheld(_) => return None,
        };
        let set = self
            .changed_by
            .as_ref()
            .or(self.answers.first().map(|(set, _)| set));
        let Some(set) = set else {
            return Some("{}".into());
        };
        let all = self.answers.iter();
        let all = all.filter_map(|(set, metadata)| Some((set, metadata.as_deref()?)));
        let all: Vec<_> = all.collect();
        let metadata = match &all[..] {
            [] => String::new(),
            [(_, only)] => format!(r#","metadata":{only}"#),
            several => {
                let several = several.iter().map(|(set, of)| (&**set, *of));
                format!(r#","metadata":{}"#, render_object(several))
            }
        };
        Some(format!(
            r#"{{"featureSet":{}{modified}{metadata}}}"#,
            quote(set)
        ))
    }
}

impl Hooks {
    /// Asks the servers after an inference, within one timeout for all of them, and notifies the others. Then
    /// [`Hooks::gate`] has the verdict.
    pub async fn after_inference(
        &self,
        origin: &HookOrigin,
        hook: &AfterInference<'_>,
    ) -> AfterChain {
        let hooks = &*self.0;
        let key = GateKey::new(origin, &hook.inference_id);
        let _gated = hooks.gate.begin(&key);
        let chain = hooks.run_chain(origin, hook).await;
        hooks.gate.conclude(&key, chain.verdict.clone());
        hooks.notify_others(origin, hook, &chain.verdict);
        chain
    }
}

impl SharedHooks {
    async fn run_chain(&self, origin: &HookOrigin, hook: &AfterInference<'_>) -> AfterChain {
        let policy = self.policy();
        let mut taking = self.participants(origin, Capability::AfterInference);
        taking.retain(|taking| taking.sets.abilities.blocking);
        let mut chain = AfterChain {
            verdict: AfterVerdict::Unchanged,
            answers: Vec::new(),
            changed_by: None,
        };
        // A required server does not participate now: nobody sees the text.
        let missing = policy.fail_closed.iter().find(|server| {
            let takes_part = taking
                .iter()
                .any(|taking| taking.server.server() == **server);
            origin.can_show_to(server) && !takes_part
        });
        if let Some(server) = missing {
            let why = "it is not there, or has no enabled feature set for it";
            self.record(
                origin,
                HookRecord {
                    outcome: Outcome::Failure,
                    reason: Some(why),
                    ..hook_record(server, hook, None)
                },
            );
            chain.verdict = withheld_verdict(server, why);
            return chain;
        }
        let deadline = Instant::now() + policy.after;
        let mut text: Cow<'_, str> = Cow::Borrowed(&hook.assistant_message);
        for (index, participant) in taking.iter().enumerate() {
            let server = &participant.server;
            let left = deadline.saturating_duration_since(Instant::now());
            let remaining = taking[index + 1..].iter().map(|taking| &taking.server);
            let deadline = Instant::now() + policy.time_share(left, remaining);
            let answered = self
                .ask_after(origin, hook, (participant, &text), deadline)
                .await;
            let answered = answered.and_then(|result| {
                let may_use =
                    |set: &str| self.check_set(origin, server, set, Capability::AfterInference);
                evaluate_after(&result, &may_use).map_err(|why| (Outcome::Failure, why))
            });
            match answered {
                Ok(answer) => {
                    self.record(
                        origin,
                        HookRecord {
                            feature_set: Some(&answer.set),
                            details: json!({"modified": answer.modified.is_some()}),
                            ..hook_record(server, hook, Some(&text))
                        },
                    );
                    let set = names::set_name(&server.server(), &answer.set);
                    if let Some(modified) = answer.modified {
                        text = Cow::Owned(modified);
                        chain.verdict = AfterVerdict::Modified(text.as_ref().into());
                        chain.changed_by = Some(set.clone());
                    }
                    chain.answers.push((set, answer.metadata));
                }
                Err((outcome, why)) => {
                    self.record(
                        origin,
                        HookRecord {
                            outcome,
                            reason: Some(&why),
                            ..hook_record(server, hook, Some(&text))
                        },
                    );
                    if policy.is_fail_closed(server) {
                        chain.verdict = withheld_verdict(server, &why);
                        return chain;
                    }
                }
            }
        }
        chain
    }

    async fn ask_after(
        &self,
        origin: &HookOrigin,
        hook: &AfterInference<'_>,
        (taking, text): (&Participant, &str),
        deadline: Instant,
    ) -> Result<String, (Outcome, String)> {
        // The chain's timeout has passed: the server does not see the text.
        if Instant::now() >= deadline {
            return Err((Outcome::Timeout, "the time of all is over".into()));
        }
        let params = self.after_params(origin, hook, &taking.server, text);
        let _pending = self.begin_wait(origin, &taking.server);
        self.ask_server(&taking.server, AfterInference::METHOD, &params, deadline)
            .await
    }

    fn after_params(
        &self,
        origin: &HookOrigin,
        hook: &AfterInference<'_>,
        server: &ServerId,
        text: &str,
    ) -> String {
        let map_id = |kind, id: &str| self.deps.ids.map(origin, server, kind, id).into();
        let hook = AfterInference {
            inference_id: map_id(MappedIdKind::Inference, &hook.inference_id),
            conversation_id: map_id(MappedIdKind::Conversation, &hook.conversation_id),
            assistant_message: Cow::Borrowed(text),
            ..hook.clone()
        };
        serde_json::to_string(&hook).expect("what was read is JSON")
    }

    /// Notifies servers that are not awaited of the final text, unless it is withheld.
    fn notify_others(
        &self,
        origin: &HookOrigin,
        hook: &AfterInference<'_>,
        verdict: &AfterVerdict,
    ) {
        let text = match verdict {
            AfterVerdict::Unchanged => &*hook.assistant_message,
            AfterVerdict::Modified(text) => text,
            AfterVerdict::Withheld(_) => return,
        };
        let all = self.participants(origin, Capability::AfterInference);
        for taking in all.iter().filter(|taking| !taking.sets.abilities.blocking) {
            let server = &taking.server;
            let params = self.after_params(origin, hook, server, text);
            self.depths()
                .record_notice(server, origin.depth(), monotonic_now());
            let sent = self
                .deps
                .host
                .notify(server, AfterInference::METHOD, &params);
            let why = sent.err().map(|refusal| refusal.to_string());
            self.record(
                origin,
                HookRecord {
                    outcome: match why {
                        None => Outcome::Success,
                        Some(_) => Outcome::Failure,
                    },
                    reason: why.as_deref(),
                    ..hook_record(server, hook, Some(text))
                },
            );
        }
    }
}

fn hook_record<'a>(
    server: &'a ServerId,
    hook: &'a AfterInference<'_>,
    text: Option<&'a str>,
) -> HookRecord<'a> {
    HookRecord {
        server,
        method: AfterInference::METHOD,
        inference: &hook.inference_id,
        feature_set: None,
        outcome: Outcome::Success,
        reason: None,
        text,
        details: Value::Null,
    }
}

fn withheld_verdict(server: &ServerId, why: &str) -> AfterVerdict {
    let server = server.server();
    AfterVerdict::Withheld(
        format!(
            "the answer is withheld: server {server} has to let it through, and did not ({why})"
        )
        .into(),
    )
}
