//! The directory of connected agents, for messages that belong to no request.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use mgp_engine::callers::tasks::{TaskHandle, TaskRef};
use mgp_engine::policy::access::{ClaimedGroups, GrantTable};
use mgp_engine::servers::log_levels::LogLevel;
use mgp_engine::tools::catalog::{CatalogView, ListKind};
use mgp_json::{Splice, member, quote};
use mgp_protocol::dialect::Version;
use mgp_protocol::ids::{AgentId, ConnectionId, ServerId};
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp;
use mgp_protocol::mgp::kernel::Client;
use mgp_protocol::mgp::negotiation::Features;
use mgp_sync::Snapshot;

use crate::agent::stateless_clients::StatelessClients;
use crate::agent::{Agent, list_changed_method};
use crate::agent_requests::AgentRequests;
use crate::callbacks::Callbacks;
use crate::in_flight_call::Delivery;
use crate::in_flight_call::forwarded_headers::ForwardedNames;
use crate::issued_tasks::IssuedTasks;
use crate::request::Caller;
use crate::responses::UnreadResponses;
use mgp_runtime::time::unix_ms;

/// The connected agents. Bounded by the limits on connections and sessions.
#[derive(Debug)]
pub struct Directory {
    /// Clients that send stateless requests.
    pub stateless_clients: StatelessClients,
    /// The recipient of each task of a 2025-11-25 server.
    pub issued_tasks: IssuedTasks,
    /// The open callbacks to agents.
    pub callbacks: Callbacks,
    /// The in-flight requests between agents.
    pub agent_requests: AgentRequests,
    /// The request headers that are forwarded to servers.
    pub forwarded_names: ForwardedNames,
    /// Responses that agents have not read.
    pub responses: UnreadResponses,
    agents: RwLock<HashMap<ConnectionId, Arc<Agent>>>,
    /// The grants, which decide which servers an agent may see.
    access: Arc<Snapshot<GrantTable>>,
}

impl Directory {
    /// An empty directory.
    #[must_use]
    pub fn new(access: Arc<Snapshot<GrantTable>>) -> Self {
        Self {
            stateless_clients: StatelessClients::default(),
            issued_tasks: IssuedTasks::default(),
            callbacks: Callbacks::default(),
            agent_requests: AgentRequests::default(),
            forwarded_names: ForwardedNames::default(),
            responses: UnreadResponses::default(),
            agents: RwLock::default(),
            access,
        }
    }

    /// Adds an agent.
    pub fn insert(&self, agent: Arc<Agent>) {
        let mut agents = self.agents.write().unwrap_or_else(PoisonError::into_inner);
        agents.insert(agent.connection, agent);
    }

    /// Removes an agent.
    pub fn remove(&self, connection: ConnectionId) {
        let mut agents = self.agents.write().unwrap_or_else(PoisonError::into_inner);
        agents.remove(&connection);
    }

    /// The agent with this connection number.
    #[must_use]
    pub fn get(&self, connection: ConnectionId) -> Option<Arc<Agent>> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        agents.get(&connection).cloned()
    }

    /// The newest connection of an agent that can receive a callback outside a call.
    #[must_use]
    pub fn callback_connection(&self, id: &AgentId) -> Option<Arc<Agent>> {
        let is_candidate = |agent: &Arc<Agent>| {
            let caller = agent.caller().filter(|_| !agent.is_listener());
            let agreed = caller.is_some_and(|c| c.mgp.features().contains(Features::CALLBACKS));
            agent.id() == id && !agent.is_operator() && agent.is_ready() && agreed
        };
        let all = self.all_agents().into_iter().filter(is_candidate);
        all.max_by_key(|agent| agent.connection)
    }

    /// The newest connection of an agent whose client supports `sampling/createMessage`.
    #[must_use]
    pub fn sampling_connection(&self, id: &AgentId) -> Option<Arc<Agent>> {
        let is_candidate = |agent: &Arc<Agent>| {
            let caller = agent.caller().filter(|_| !agent.is_listener());
            let samples = caller.is_some_and(|caller| caller.capabilities.sampling);
            agent.id() == id && agent.is_ready() && samples
        };
        let all = self.all_agents().into_iter().filter(is_candidate);
        all.max_by_key(|agent| agent.connection)
    }

    /// The ids of the connected agents, without the operator.
    pub fn ids(&self) -> impl Iterator<Item = AgentId> + use<> {
        let agents = self.all_agents().into_iter();
        let agents = agents.filter(|agent| !agent.is_operator());
        agents.map(|agent| agent.id().clone())
    }

    /// Closes every connection of an agent whose credential was revoked.
    pub fn disconnect_agent(&self, id: &AgentId) {
        for agent in self.all_agents() {
            if agent.id() == id {
                agent.disconnect();
            }
        }
    }

    /// The connected clients without the requesting one, the oldest connection first.
    #[must_use]
    pub fn list_clients(&self, requester: ConnectionId) -> Vec<Client> {
        let others = self.all_agents().into_iter();
        let others = others.filter(|agent| agent.connection != requester && !agent.is_listener());
        let mut clients: Vec<_> = others.map(|agent| agent.to_client()).collect();
        clients.extend(self.stateless_clients.list_clients());
        clients.sort_by_key(|client| std::cmp::Reverse(client.since_ms));
        clients
    }

    /// The connected MCPL hosts that can receive requests and notifications, the oldest connection first.
    #[must_use]
    pub fn mcpl_hosts(&self) -> Vec<Arc<Agent>> {
        let mut hosts = self.all_agents();
        hosts.retain(|agent| {
            let caller = agent.caller().filter(|_| !agent.is_listener());
            agent.is_ready() && caller.is_some_and(|caller| caller.mcpl.is_some())
        });
        hosts.sort_by_key(|agent| agent.connection);
        hosts
    }

    /// The number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.agents
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// True when no agent is connected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The groups that the token of a connected session gives this agent.
    #[must_use]
    pub fn claimed_groups(&self, agent: &AgentId) -> ClaimedGroups {
        let all = self.connections_of(Some(agent)).into_iter();
        let mut claimed = all.map(|agent| agent.groups());
        claimed
            .find(|groups| !groups.is_empty())
            .unwrap_or_default()
    }

    /// Returns a filter: may a caller use this server now?
    pub fn open_server_filter(&self, server: &ServerId) -> impl Fn(&Caller) -> bool + use<> {
        let (table, now, server) = (self.access.load(), unix_ms(), server.clone());
        move |caller| table.is_server_open(&caller.identity(), &server, now)
    }

    /// Returns a filter: may a caller subscribe to resources of this server now?
    pub fn follow_filter(&self, server: &ServerId) -> impl Fn(&Caller) -> bool + use<> {
        let (table, now, server) = (self.access.load(), unix_ms(), server.clone());
        move |caller| table.can_subscribe(&caller.identity(), &server, now)
    }

    /// Returns a filter: may a caller keep its subscriptions to resources of this server?
    pub fn keep_following_filter(&self, server: &ServerId) -> impl Fn(&Caller) -> bool + use<> {
        let (table, now, server) = (self.access.load(), unix_ms(), server.clone());
        move |caller| table.can_stay_subscribed(&caller.identity(), &server, now)
    }

    /// Returns a filter: may a caller call the tool of this task now?
    fn task_call_filter(&self) -> impl Fn(&Caller, &TaskHandle) -> bool + use<> {
        let (table, now) = (self.access.load(), unix_ms());
        move |caller, TaskHandle { task, tool }| {
            let identity = caller.identity();
            let decision = table.decide(&identity, &task.server, Some(tool), now);
            table.lease(&decision).is_some() || decision.is_conditional
        }
    }

    fn all_agents(&self) -> Vec<Arc<Agent>> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        agents.values().cloned().collect()
    }

    /// All agents, or the connections of one agent: notifications of an instance go to its agent only.
    fn connections_of(&self, owner: Option<&AgentId>) -> Vec<Arc<Agent>> {
        let mut all = self.all_agents();
        all.retain(|agent| owner.is_none_or(|owner| agent.id() == owner));
        all
    }

    /// Notifies every agent with this view that a list changed, if it may see one of the servers.
    pub fn notify_list_changed(&self, view: &CatalogView, kind: ListKind, servers: &[ServerId]) {
        let (table, now) = (self.access.load(), unix_ms());
        let concerns = |caller: &Caller| {
            let identity = caller.identity();
            servers
                .iter()
                .any(|server| table.is_server_visible(&identity, server, now))
        };
        let frame = Bytes::from(jsonrpc::notification(list_changed_method(kind), None));
        for agent in self.all_agents() {
            let concerned = |c: &Arc<Caller>| c.view.is_part_of(view) && concerns(c);
            if agent.wants_list_changes(kind) && agent.caller().is_some_and(concerned) {
                agent.send(frame.clone(), Delivery::Reliable);
            }
        }
    }

    /// Notifies agents whose rights have changed that their lists changed.
    pub fn notify_access_changed(&self, before: &GrantTable, after: &GrantTable) {
        for agent in self.all_agents() {
            let Some(caller) = agent.caller() else {
                continue;
            };
            let identity = caller.identity();
            if before.audience(&identity) != after.audience(&identity) {
                for kind in [ListKind::Tools, ListKind::Prompts, ListKind::Resources] {
                    if agent.wants_list_changes(kind) {
                        let frame = jsonrpc::notification(list_changed_method(kind), None);
                        agent.send(frame.into(), Delivery::Reliable);
                    }
                }
            }
        }
    }

    /// Sends a task's new state to its listeners, under each client's id of it.
    pub fn notify_task_changed(&self, task: &TaskRef, params: &str, owner: Option<&AgentId>) {
        let may_call = self.task_call_filter();
        for agent in self.connections_of(owner) {
            if let Some((named, id)) = agent.followed_task(task)
                && agent.caller().is_some_and(|caller| may_call(caller, named))
            {
                let mut splice = Splice::new(params);
                if let Some(own) = member(params, "taskId") {
                    splice.replace(own, quote(id));
                }
                let params = splice.finish();
                let frame = jsonrpc::notification("notifications/tasks", Some(&params));
                agent.send(frame.into(), Delivery::Reliable);
            }
        }
    }

    /// Sends a task's new state to the 2025-11-25 clients that received the task.
    pub fn notify_task_status(&self, task: &TaskRef, params: &str, owner: Option<&AgentId>) {
        let may_call = self.task_call_filter();
        for agent in self.connections_of(owner) {
            let Some(caller) = agent.caller() else {
                continue;
            };
            if caller.version == Version::V2025_11_25
                && let Some((named, id)) = self.issued_tasks.find(task, &caller.principal())
                && may_call(caller, &named)
            {
                let mut splice = Splice::new(params);
                if let Some(own) = member(params, "taskId") {
                    splice.replace(own, quote(&id));
                }
                let params = splice.finish();
                let frame = jsonrpc::notification("notifications/tasks/status", Some(&params));
                agent.send(frame.into(), Delivery::Reliable);
            }
        }
    }

    /// Notifies agents that negotiated `lifecycle` and may see the server that its state changed. Stateless
    /// listeners are left out: they have no such subscription.
    pub fn notify_lifecycle(&self, server: &ServerId, step: &mgp::Lifecycle) {
        let mut frame: Option<Bytes> = None;
        for agent in self.all_agents() {
            let is_affected = agent.caller().is_some_and(|caller| {
                caller.mgp.features().contains(Features::LIFECYCLE)
                    && self.is_visible(caller, server)
            });
            if is_affected && !agent.is_listener() {
                let frame = frame.get_or_insert_with(|| {
                    let params = serde_json::to_string(step).expect("a step is always JSON");
                    jsonrpc::notification(mgp::Lifecycle::METHOD, Some(&params)).into()
                });
                agent.send(frame.clone(), Delivery::Reliable);
            }
        }
    }

    /// The grants in force.
    #[must_use]
    pub fn access(&self) -> Arc<GrantTable> {
        self.access.load()
    }

    /// True when the server is in the caller's view and access control does not hide it.
    #[must_use]
    pub fn is_visible(&self, caller: &Caller, server: &ServerId) -> bool {
        let table = self.access.load();
        caller.view.includes(server)
            && table.is_server_visible(&caller.identity(), server, unix_ms())
    }

    /// Sends a log message to all agents that may see the server and want this level.
    pub fn send_log(&self, server: &ServerId, params: &str, owner: Option<&AgentId>) {
        let level = mcp::parse_params::<mcp::Message<'_>>(Some(params))
            .ok()
            .and_then(|m| m.level.parse().ok())
            .unwrap_or(LogLevel::Info);
        let open = self.open_server_filter(server);
        let mut rendered: [Option<Bytes>; 2] = [None, None];
        for agent in self.connections_of(owner) {
            let Some(caller) = agent.caller() else {
                continue;
            };
            let is_in_view = caller.view.includes(server);
            if is_in_view
                && open(caller)
                && !agent.is_listener()
                && level.is_at_least(agent.level())
            {
                let slot = &mut rendered[usize::from(caller.view.is_merged())];
                let frame =
                    slot.get_or_insert_with(|| render_log_frame(server, &caller.view, params));
                agent.send(frame.clone(), Delivery::Lossy);
            }
        }
    }

    /// The agents whose roots a server may get outside their own calls: ready, with roots, and allowed to
    /// see the server. Stops after `most`.
    #[must_use]
    pub fn agents_with_roots(
        &self,
        server: &ServerId,
        most: usize,
        owner: Option<&AgentId>,
    ) -> Vec<Arc<Agent>> {
        let open = self.open_server_filter(server);
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        let rooted = agents.values().filter(|agent| {
            owner.is_none_or(|owner| agent.id() == owner)
                && agent.is_ready()
                && !agent.is_listener()
                && agent
                    .caller()
                    .filter(|caller| open(caller))
                    .is_some_and(|c| c.capabilities.roots && c.view.includes(server))
        });
        rooted.take(most).cloned().collect()
    }

    /// The most verbose level that an agent who may see the server wants; without a level set an agent
    /// wants everything (CMCP-094). `None` when no agent set one.
    #[must_use]
    pub fn most_verbose_level(&self, server: &ServerId) -> Option<LogLevel> {
        let open = self.open_server_filter(server);
        let mut agents = self.all_agents();
        agents.retain(|a| {
            !a.is_listener()
                && a.caller()
                    .filter(|caller| open(caller))
                    .is_some_and(|c| c.view.includes(server))
        });
        let floor = agents.iter().map(|a| a.level()).min();
        floor.filter(|_| agents.iter().any(|a| a.has_set_level()))
    }
}

/// Renders a log message for a client; in a view of several servers `logger` names the server.
#[must_use]
pub fn render_log_frame(server: &ServerId, view: &CatalogView, params: &str) -> Bytes {
    let tagged = match view {
        CatalogView::One(_) => params.into(),
        CatalogView::All | CatalogView::Set(_) => {
            let mut splice = Splice::new(params);
            match member(params, "logger") {
                Some(logger) => {
                    let name: String = serde_json::from_str(logger).unwrap_or_default();
                    splice.replace(logger, quote(&format!("{server}/{name}")));
                }
                None => splice.insert_member(params, "logger", &quote(server.as_str())),
            }
            splice.finish()
        }
    };
    jsonrpc::notification("notifications/message", Some(&tagged)).into()
}
