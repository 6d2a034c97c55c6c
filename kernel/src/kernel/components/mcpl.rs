//! The parts of MCPL.

use std::sync::{Arc, OnceLock};

use mgp_callers::directory::Directory;
use mgp_mcpl::agents::McplAgents;
use mgp_mcpl::channels::Channels;
use mgp_mcpl::conversations::Conversations;
use mgp_mcpl::hooks::{HookDeps, Hooks, ObservedModel};
use mgp_mcpl::host::{McplHandler, McplHost};
use mgp_mcpl::inference::{
    InferenceDeps, InferenceHandle, ObservedModels, PublishedAnswer, PushInferenceRequest,
    id_mapper,
};
use mgp_mcpl::push::{PushHandle, PushInference, PushTargets};
use mgp_mcpl::scopes::ScopeStore;
use mgp_mcpl::state::States;
use mgp_mcpl_engine::rules::McplRules;
use mgp_policy::approvals::ApprovalsHandle;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::task;
use mgp_servers::server::{ServerEvent, ServerTable};
use mgp_store::audit::AuditHandle;
use mgp_tools::events::EventsHandle;

use super::super::data_folder::StoredMcpl;
use crate::config::KernelConfig;

/// The host of MCPL servers, and the agents that are hosts themselves.
pub(super) struct McplComponents {
    pub(super) host: Arc<McplHost>,
    pub(super) agents: Arc<McplAgents>,
    pub(super) hooks: Hooks,
    push: PushHandle,
    inference: InferenceHandle,
    pub(super) states: Arc<States>,
    pub(super) channels: Arc<Channels>,
}

impl McplComponents {
    /// Starts what MCPL needs. The agents that are hosts are put where
    /// they are looked for when grants change.
    pub(super) fn start(
        kernel: &KernelConfig,
        kept: StoredMcpl,
        (directory, hosts): (&Arc<Directory>, &OnceLock<Arc<McplAgents>>),
        approvals: &ApprovalsHandle,
        (servers, events): (&Arc<ServerTable>, &EventsHandle),
        audit: &AuditHandle,
    ) -> Self {
        let scopes = ScopeStore::new(
            kept.scopes,
            kept.folder.join("scopes.json"),
            kept.scopes_witness,
            approvals.clone(),
        );
        let host = McplHost::new(kept.sets, scopes, audit.clone());
        host.configure(kernel.mcpl.clone());
        let agents = McplAgents::new(directory.clone(), host.sets().clone());
        let conversations = Conversations::new(kept.id_key);
        let states = States::new(kept.folder.join("state"), kernel.mcpl.state.clone());
        task::spawn_detached(
            "mcpl.states",
            States::run_maintenance(Arc::downgrade(&states)),
        );
        let rules = kernel.mcpl.channels.clone();
        let channels = Channels::new(host.clone(), agents.clone(), conversations.clone(), rules);
        let models = ObservedModels::default();
        let seen = models.clone();
        let hooks = Hooks::new(
            kernel.mcpl.hooks.clone(),
            HookDeps {
                host: host.clone(),
                ids: id_mapper(&conversations),
                models: EventSink::new(move |it: ObservedModel| {
                    seen.record(it.agent.connection, &it.model);
                }),
                servers: servers.clone(),
            },
        );
        let inference = InferenceHandle::new(
            kept.tokens,
            kernel.mcpl.inference.clone(),
            InferenceDeps {
                host: host.clone(),
                agents: agents.clone(),
                directory: directory.clone(),
                ids: conversations.clone(),
                models,
                hooks: Arc::new(hooks.clone()),
                publish: publish_sink(&channels),
            },
        );
        let push = PushHandle::new(
            kept.push,
            kernel.mcpl.push.clone(),
            PushTargets {
                host: host.clone(),
                agents: agents.clone(),
                events: events.clone(),
                inference: push_inference_sink(&inference),
                ids: id_mapper(&conversations),
                servers: servers.clone(),
            },
        );
        let mut nouns = event_handlers(&agents);
        nouns.push(push.handler());
        nouns.push(channels.handler());
        nouns.push(inference.handler());
        host.set_handlers(nouns);
        let _ = hosts.set(agents.clone());
        Self {
            host,
            agents,
            hooks,
            push,
            inference,
            states,
            channels,
        }
    }

    /// Takes what of the events of servers is of MCPL, and passes on all others.
    pub(super) fn intercept_events(&self, below: EventSink<ServerEvent>) -> EventSink<ServerEvent> {
        let states = self.states.clone();
        self.host.intercept(EventSink::new(move |event| {
            if let ServerEvent::Removed(server) = &event {
                states.server_removed(server);
            }
            below.send(event);
        }))
    }

    /// Takes up what the configuration says.
    pub(super) fn config_sink(&self) -> EventSink<McplRules> {
        let (host, inference) = (self.host.clone(), self.inference.clone());
        let (hooks, push) = (self.hooks.clone(), self.push.clone());
        let (states, channels) = (self.states.clone(), self.channels.clone());
        EventSink::new(move |rules: McplRules| {
            hooks.set_policy(rules.hooks.clone());
            push.set_policy(rules.push.clone());
            inference.configure(rules.inference.clone());
            states.configure(rules.state.clone());
            channels.configure(rules.channels.clone());
            host.configure(rules);
        })
    }
}

/// Who takes what servers say of MCPL.
fn event_handlers(agents: &Arc<McplAgents>) -> Vec<McplHandler> {
    let agents = agents.clone();
    vec![
        // Agents that are hosts are told of sets that come and go.
        McplHandler {
            methods: &[],
            messages: EventSink::new(drop),
            events: EventSink::new(move |_| agents.refresh_all()),
        },
    ]
}

/// Publishes the answers to push events.
fn publish_sink(channels: &Arc<Channels>) -> EventSink<PublishedAnswer> {
    let channels = channels.clone();
    EventSink::new(move |answer: PublishedAnswer| {
        let channels = channels.clone();
        task::spawn_detached("mcpl.publish", async move {
            channels.publish_kernel_answer(&answer).await;
        });
    })
}

/// Runs the inferences that push events lead to.
fn push_inference_sink(inference: &InferenceHandle) -> EventSink<PushInference> {
    let inference = inference.clone();
    EventSink::new(move |pushed: PushInference| {
        inference.run_push(PushInferenceRequest {
            server: pushed.server,
            set: pushed.set,
            text: pushed.content.joined_text(),
            started: pushed.started,
        });
    })
}
