//! `inference/lifecycle`: servers of 0.5 are notified of the phases of an inference, and of nothing that was said
//! (0.5 §10.5).

use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mcpl::inference::Lifecycle;
use mgp_protocol::mgp::audit::Outcome;
use mgp_runtime::time::monotonic_now;
use serde_json::json;

use super::{HookOrigin, HookRecord, Hooks, MappedIdKind};

impl Hooks {
    /// Notifies the servers that take part. Best-effort: nothing is repeated, and no answer is awaited.
    pub fn notify_phase(&self, origin: &HookOrigin, phase: &Lifecycle<'_>) {
        let hooks = &*self.0;
        for taking in hooks.participants(origin, Capability::InferenceLifecycle) {
            let server = &taking.server;
            let map_id = |kind, id: &str| hooks.deps.ids.map(origin, server, kind, id).into();
            let told = Lifecycle {
                inference_id: map_id(MappedIdKind::Inference, &phase.inference_id),
                conversation_id: map_id(MappedIdKind::Conversation, &phase.conversation_id),
                model: phase
                    .model
                    .filter(|_| taking.sets.is_granted(Capability::ModelInfo)),
                ..phase.clone()
            };
            let params = serde_json::to_string(&told).expect("what was read is JSON");
            hooks
                .depths()
                .record_notice(server, origin.depth(), monotonic_now());
            let sent = hooks.deps.host.notify(server, Lifecycle::METHOD, &params);
            let why = sent.err().map(|refusal| refusal.to_string());
            let record = HookRecord {
                server,
                method: Lifecycle::METHOD,
                inference: &phase.inference_id,
                feature_set: None,
                outcome: match why {
                    None => Outcome::Success,
                    Some(_) => Outcome::Failure,
                },
                reason: why.as_deref(),
                text: None,
                details: json!({"phase": phase.phase}),
            };
            hooks.record(origin, record);
        }
    }
}
