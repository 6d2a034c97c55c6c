//! The components of MCPL.

use std::sync::Arc;

use mgp_mcpl::push::{PushHandle, PushInference, PushTargets};
use mgp_mcpl::scopes::ScopeStore;
use mgp_mcpl::state::States;
use mgp_mcpl::{
    Channels, Conversations, HookDeps, Hooks, InferenceDeps, InferenceHandle, McplAgents,
    McplHandler, McplHost, ObservedModel, ObservedModels, PublishedAnswer, PushInferenceRequest,
    id_mapper,
};
use mgp_mcpl_engine::rules::McplRules;
use mgp_runtime::{EventSink, task};
use mgp_servers::ServerEvent;

use super::super::data_folder::StoredMcpl;
use super::shared::SharedComponents;
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
    pub(super) fn start(
        kernel: &KernelConfig,
        stored: StoredMcpl,
        shared: &SharedComponents,
    ) -> Self {
        let (directory, servers) = (&shared.directory, &shared.servers);
        let scopes = ScopeStore::new(
            stored.scopes,
            stored.folder.join("scopes.json"),
            stored.scopes_witness,
            shared.approvals.clone(),
        );
        let host = McplHost::new(stored.sets, scopes, shared.audit.clone());
        host.configure(kernel.mcpl.clone());
        let agents = McplAgents::new(directory.clone(), host.sets().clone());
        let conversations = Conversations::new(stored.id_key);
        let states = States::new(stored.folder.join("state"), kernel.mcpl.state.clone());
        task::spawn_detached(
            "mcpl.states",
            States::run_maintenance(Arc::downgrade(&states)),
        );
        let rules = kernel.mcpl.channels.clone();
        let channels = Channels::new(host.clone(), agents.clone(), conversations.clone(), rules);
        let models = ObservedModels::default();
        let observed = models.clone();
        let hooks = Hooks::new(
            kernel.mcpl.hooks.clone(),
            HookDeps {
                host: host.clone(),
                ids: id_mapper(&conversations),
                models: EventSink::new(move |model: ObservedModel| {
                    observed.record(model.agent.connection, &model.model);
                }),
                servers: servers.clone(),
            },
        );
        let inference = InferenceHandle::new(
            stored.tokens,
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
            stored.push,
            kernel.mcpl.push.clone(),
            PushTargets {
                host: host.clone(),
                agents: agents.clone(),
                events: shared.events.clone(),
                inference: push_inference_sink(&inference),
                ids: id_mapper(&conversations),
                servers: servers.clone(),
            },
        );
        let mut handlers = event_handlers(&agents);
        handlers.push(push.handler());
        handlers.push(channels.handler());
        handlers.push(inference.handler());
        host.set_handlers(handlers);
        let _ = shared.mcpl_agents.set(agents.clone());
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

    /// Handles the MCPL events of servers, and passes all others to `next`.
    pub(super) fn intercept_events(&self, next: EventSink<ServerEvent>) -> EventSink<ServerEvent> {
        let states = self.states.clone();
        self.host.intercept(EventSink::new(move |event| {
            if let ServerEvent::Removed(server) = &event {
                states.server_removed(server);
            }
            next.send(event);
        }))
    }

    /// Applies changes of the configuration.
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

fn event_handlers(agents: &Arc<McplAgents>) -> Vec<McplHandler> {
    let agents = agents.clone();
    vec![
        // Agents that are hosts learn which sets were added and removed.
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

/// Runs the inferences that push events request.
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
