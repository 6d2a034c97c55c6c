//! The parts of MCPL.

use std::sync::{Arc, OnceLock};

use mgp_callers::directory::Directory;
use mgp_mcpl::agents::McplAgents;
use mgp_mcpl::channels::Channels;
use mgp_mcpl::conversations::Conversations;
use mgp_mcpl::hooks::{Hooks, HooksFrom, ModelSeen};
use mgp_mcpl::host::{McplHost, McplNoun};
use mgp_mcpl::inference::{
    InferenceFrom, InferenceHandle, PublishedAnswer, PushedInference, SeenModels, passed_ids,
};
use mgp_mcpl::push::{PushHandle, PushInference, PushTo};
use mgp_mcpl::scopes::ScopeKeeper;
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
pub(super) struct McplParts {
    pub(super) host: Arc<McplHost>,
    pub(super) agents: Arc<McplAgents>,
    pub(super) hooks: Hooks,
    push: PushHandle,
    inference: InferenceHandle,
    pub(super) states: Arc<States>,
    pub(super) channels: Arc<Channels>,
}

impl McplParts {
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
        let scopes = ScopeKeeper::new(
            kept.scopes,
            kept.folder.join("scopes.json"),
            kept.scopes_witness,
            approvals.clone(),
        );
        let host = McplHost::new(kept.sets, scopes, audit.clone());
        host.configure(kernel.mcpl.clone());
        let agents = McplAgents::new(directory.clone(), host.sets().clone());
        let conversations = Conversations::new(kept.ids);
        let states = States::new(kept.folder.join("state"), kernel.mcpl.state.clone());
        task::detached("mcpl.states", States::looked_over(Arc::downgrade(&states)));
        let rules = kernel.mcpl.channels.clone();
        let channels = Channels::new(host.clone(), agents.clone(), conversations.clone(), rules);
        let models = SeenModels::default();
        let seen = models.clone();
        let hooks = Hooks::new(
            kernel.mcpl.hooks.clone(),
            HooksFrom {
                host: host.clone(),
                ids: passed_ids(&conversations),
                models: EventSink::new(move |it: ModelSeen| {
                    seen.seen(it.agent.connection, &it.model);
                }),
                servers: servers.clone(),
            },
        );
        let inference = InferenceHandle::new(
            kept.tokens,
            kernel.mcpl.inference.clone(),
            InferenceFrom {
                host: host.clone(),
                agents: agents.clone(),
                directory: directory.clone(),
                ids: conversations.clone(),
                models,
                around: Arc::new(hooks.clone()),
                publish: publishing(&channels),
            },
        );
        let push = PushHandle::new(
            kept.push,
            kernel.mcpl.push.clone(),
            PushTo {
                host: host.clone(),
                agents: agents.clone(),
                events: events.clone(),
                inference: pushed(&inference),
                ids: passed_ids(&conversations),
                servers: servers.clone(),
            },
        );
        let mut nouns = nouns(&agents);
        nouns.push(push.noun());
        nouns.push(channels.noun());
        nouns.push(inference.noun());
        host.attend(nouns);
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
    pub(super) fn taken_by(&self, below: EventSink<ServerEvent>) -> EventSink<ServerEvent> {
        let states = self.states.clone();
        self.host.taken_by(EventSink::new(move |event| {
            if let ServerEvent::Removed(server) = &event {
                states.server_removed(server);
            }
            below.send(event);
        }))
    }

    /// Takes up what the configuration says.
    pub(super) fn configured(&self) -> EventSink<McplRules> {
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
fn nouns(agents: &Arc<McplAgents>) -> Vec<McplNoun> {
    let agents = agents.clone();
    vec![
        // Agents that are hosts are told of sets that come and go.
        McplNoun {
            methods: &[],
            takes: EventSink::new(drop),
            hears: EventSink::new(move |_| agents.refresh()),
        },
    ]
}

/// Publishes the answers to push events.
fn publishing(channels: &Arc<Channels>) -> EventSink<PublishedAnswer> {
    let channels = channels.clone();
    EventSink::new(move |answer: PublishedAnswer| {
        let channels = channels.clone();
        task::detached("mcpl.publish", async move {
            channels.publish_own(&answer).await;
        });
    })
}

/// Runs the inferences that push events lead to.
fn pushed(inference: &InferenceHandle) -> EventSink<PushInference> {
    let inference = inference.clone();
    EventSink::new(move |pushed: PushInference| {
        inference.push(PushedInference {
            server: pushed.server,
            set: pushed.set,
            text: pushed.content.texts(),
            begun: pushed.begun,
        });
    })
}
