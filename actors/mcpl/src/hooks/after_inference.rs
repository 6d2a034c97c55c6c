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

/// What the chain made of an answer.
#[derive(Debug)]
pub struct AfterChain {
    /// The text that is sent on.
    pub verdict: AfterVerdict,
    /// Of those that let it through, in their order: the set as agents know it, and what else it said.
    pub answers: Vec<(String, Option<Box<str>>)>,
    /// The set that changed it last, as agents know it.
    pub(crate) changed_by: Option<String>,
}

impl AfterChain {
    /// The answer to an agent (§10.5). `metadata` is that of the only server that has some; of several, each is under
    /// the name of its set. None if the text is withheld.
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
    /// Asks the servers after an inference, within one timeout for all of them, and notifies the others.
    /// [`Hooks::gate`] knows the verdict from then on.
    pub async fn after_inference(
        &self,
        origin: &HookOrigin,
        told: &AfterInference<'_>,
    ) -> AfterChain {
        let hooks = &*self.0;
        let key = GateKey::new(origin, &told.inference_id);
        let _held = hooks.gate.begin(&key);
        let chain = hooks.run_chain(origin, told).await;
        hooks.gate.conclude(&key, chain.verdict.clone());
        hooks.notify_others(origin, told, &chain.verdict);
        chain
    }
}

impl SharedHooks {
    async fn run_chain(&self, origin: &HookOrigin, told: &AfterInference<'_>) -> AfterChain {
        let policy = self.policy();
        let mut taking = self.participants(origin, Capability::AfterInference);
        taking.retain(|taking| taking.sets.abilities.blocking);
        let mut chain = AfterChain {
            verdict: AfterVerdict::Unchanged,
            answers: Vec::new(),
            changed_by: None,
        };
        // A required server does not participate now: nobody sees the text.
        let absent = policy.fail_closed.iter().find(|server| {
            let takes_part = taking
                .iter()
                .any(|taking| taking.server.server() == **server);
            origin.can_show_to(server) && !takes_part
        });
        if let Some(server) = absent {
            let why = "it is not there, or has no enabled feature set for it";
            self.record(
                origin,
                HookRecord {
                    outcome: Outcome::Failure,
                    reason: Some(why),
                    ..hook_record(server, told, None)
                },
            );
            chain.verdict = withheld_verdict(server, why);
            return chain;
        }
        let until = Instant::now() + policy.after;
        let mut text: Cow<'_, str> = Cow::Borrowed(&told.assistant_message);
        for (place, one) in taking.iter().enumerate() {
            let server = &one.server;
            let left = until.saturating_duration_since(Instant::now());
            let behind = taking[place + 1..].iter().map(|taking| &taking.server);
            let until = Instant::now() + policy.time_share(left, behind);
            let answered = self.ask_after(origin, told, (one, &text), until).await;
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
                            ..hook_record(server, told, Some(&text))
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
                            ..hook_record(server, told, Some(&text))
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
        told: &AfterInference<'_>,
        (taking, text): (&Participant, &str),
        until: Instant,
    ) -> Result<String, (Outcome, String)> {
        // The chain's timeout has passed: it sees nothing.
        if Instant::now() >= until {
            return Err((Outcome::Timeout, "the time of all is over".into()));
        }
        let params = self.after_params(origin, told, &taking.server, text);
        let _pending = self.begin_wait(origin, &taking.server);
        self.ask_server(&taking.server, AfterInference::METHOD, &params, until)
            .await
    }

    fn after_params(
        &self,
        origin: &HookOrigin,
        told: &AfterInference<'_>,
        server: &ServerId,
        text: &str,
    ) -> String {
        let passed = |kind, id: &str| self.deps.ids.map(origin, server, kind, id).into();
        let told = AfterInference {
            inference_id: passed(MappedIdKind::Inference, &told.inference_id),
            conversation_id: passed(MappedIdKind::Conversation, &told.conversation_id),
            assistant_message: Cow::Borrowed(text),
            ..told.clone()
        };
        serde_json::to_string(&told).expect("what was read is JSON")
    }

    /// Servers that are not awaited get the final text, and nothing if it is withheld.
    fn notify_others(
        &self,
        origin: &HookOrigin,
        told: &AfterInference<'_>,
        verdict: &AfterVerdict,
    ) {
        let text = match verdict {
            AfterVerdict::Unchanged => &*told.assistant_message,
            AfterVerdict::Modified(text) => text,
            AfterVerdict::Withheld(_) => return,
        };
        let all = self.participants(origin, Capability::AfterInference);
        for taking in all.iter().filter(|taking| !taking.sets.abilities.blocking) {
            let server = &taking.server;
            let params = self.after_params(origin, told, server, text);
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
                    ..hook_record(server, told, Some(text))
                },
            );
        }
    }
}

fn hook_record<'a>(
    server: &'a ServerId,
    told: &'a AfterInference<'_>,
    text: Option<&'a str>,
) -> HookRecord<'a> {
    HookRecord {
        server,
        method: AfterInference::METHOD,
        inference: &told.inference_id,
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
