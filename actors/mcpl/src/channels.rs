//! The registry of channels, and their messages in both directions (MCPL §14).
//!
//! Servers and agents have different names for a channel: a server its id, agents `SERVER:CHANNEL`. So an id of one server
//! never reaches another one, and equal ids of two servers never collide.

mod incoming;
mod kernel_answers;
mod lifecycle;
mod observers;
mod publishing;
mod threads;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_callers::request::Caller;
use mgp_json::quote;
use mgp_mcpl_engine::channels::permits;
use mgp_mcpl_engine::channels::registry::{RegisteredChannel, ServerChannels};
use mgp_mcpl_engine::channels::rules::ChannelRules;
use mgp_mcpl_engine::feature_sets::{FeatureSets, ServerSets};
use mgp_mcpl_engine::names;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::channels::{Changed, Incoming, List, Register};
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_runtime::{EventSink, task};
use mgp_servers::link::McplAnswer;

use self::threads::Threads;
use crate::agents::{McplAgent, McplAgents};
use crate::conversations::Conversations;
use crate::host::{HostEvent, McplHandler, McplHost, McplServerMessage};

pub use self::lifecycle::ChannelError;
pub use self::observers::OutgoingCompletion;

/// How long a server may take to open, close or publish: it talks to a platform.
const PLATFORM_TIMEOUT: Duration = Duration::from_secs(30);

/// The handled methods of servers.
const METHODS: &[&str] = &[
    Register::METHOD,
    Changed::METHOD,
    List::METHOD,
    Incoming::METHOD,
];

/// All channels.
#[derive(Debug)]
pub struct Channels {
    host: Arc<McplHost>,
    agents: Arc<McplAgents>,
    conversations: Conversations,
    rules: Mutex<Arc<ChannelRules>>,
    /// By server; bounded by the number of servers.
    servers: Mutex<BTreeMap<ServerId, ServerChannels>>,
    /// The last sets of each MCPL server: they decide who may know its channels after it disconnected.
    last_sets: Mutex<BTreeMap<ServerId, Arc<ServerSets>>>,
    threads: Mutex<Threads>,
}

/// A channel that a caller may use, after all checks.
#[derive(Debug)]
pub(crate) struct ChannelPermit {
    pub(crate) server: ServerId,
    pub(crate) channel: RegisteredChannel,
    /// The feature set that allows it.
    pub(crate) set: String,
}

impl Channels {
    /// Starts without channels.
    #[must_use]
    pub fn new(
        host: Arc<McplHost>,
        agents: Arc<McplAgents>,
        conversations: Conversations,
        rules: ChannelRules,
    ) -> Arc<Self> {
        Arc::new(Self {
            host,
            agents,
            conversations,
            rules: Mutex::new(Arc::new(rules)),
            servers: Mutex::default(),
            last_sets: Mutex::default(),
            threads: Mutex::default(),
        })
    }

    /// `[mcpl.channels]`.
    #[must_use]
    pub fn rules(&self) -> Arc<ChannelRules> {
        let rules = self.rules.lock();
        rules.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies a changed configuration from the next message on.
    pub fn configure(&self, rules: ChannelRules) {
        let mut current = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(rules);
    }

    /// The handler for the host. Holds the channels weakly.
    #[must_use]
    pub fn handler(self: &Arc<Self>) -> McplHandler {
        let (for_messages, for_events) = (Arc::downgrade(self), Arc::downgrade(self));
        McplHandler {
            methods: METHODS,
            messages: EventSink::new(move |parsed| {
                if let Some(channels) = for_messages.upgrade() {
                    channels.handle_message(parsed);
                }
            }),
            events: EventSink::new(move |event| {
                if let Some(channels) = for_events.upgrade() {
                    channels.handle_event(event);
                }
            }),
        }
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<ServerId, ServerChannels>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last_sets(&self) -> MutexGuard<'_, BTreeMap<ServerId, Arc<ServerSets>>> {
        self.last_sets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle_message(self: &Arc<Self>, parsed: McplServerMessage) {
        let McplServerMessage {
            server, message, ..
        } = parsed;
        if message.method == Incoming::METHOD {
            if let Some((_, mut reply)) = message.request {
                let channels = self.clone();
                task::spawn_detached("mcpl.incoming", async move {
                    let answer = tokio::select! {
                        answer = channels.incoming(&server, &message.params) => answer,
                        () = reply.closed() => return,
                    };
                    reply.send(answer);
                });
            }
            return;
        }
        let answer = match message.method {
            Register::METHOD => self.register(&server, &message.params),
            List::METHOD => self.list_for_server(&server),
            _ => self.apply_changes(&server, &message.params),
        };
        match message.request {
            Some((_, reply)) => reply.send(answer),
            None => {
                if let Err(error) = answer {
                    tracing::warn!(%server, %error, method = message.method, "a notification is rejected");
                }
            }
        }
    }

    fn handle_event(self: &Arc<Self>, event: HostEvent) {
        match event {
            HostEvent::Connected(server) => {
                self.save_sets(&server);
                let reopened = {
                    let mut servers = self.servers();
                    let channels = servers.entry(server.clone()).or_default();
                    channels.disconnect();
                    channels.reopen_params()
                };
                if !reopened.is_empty() {
                    let channels = self.clone();
                    task::spawn_detached("mcpl.reopen", async move {
                        channels.reopen(&server, reopened).await;
                    });
                }
            }
            HostEvent::Disconnected(server) => {
                if !self.host.is_connected(&server) {
                    let removed = self.channel_ids(&server);
                    let mut servers = self.servers();
                    if let Some(channels) = servers.get_mut(&server) {
                        channels.disconnect();
                        if channels.reopen_params().is_empty() {
                            servers.remove(&server);
                        }
                    }
                    drop(servers);
                    self.notify_agents(&server, &[], &removed);
                    self.last_sets().remove(&server);
                }
            }
            HostEvent::SetsChanged(server) => self.save_sets(&server),
        }
    }

    fn save_sets(&self, server: &ServerId) {
        if let Some(sets) = self.host.sets().load().get(server) {
            self.last_sets().insert(server.clone(), sets.clone());
        }
    }

    fn channel_ids(&self, server: &ServerId) -> Vec<Arc<str>> {
        let servers = self.servers();
        let channels = servers.get(server).into_iter();
        let channels = channels.flat_map(ServerChannels::iter);
        channels.map(|channel| channel.id.clone()).collect()
    }

    /// `channels/register` of a server that declares it.
    fn register(&self, server: &ServerId, params: &str) -> McplAnswer {
        self.check_declared(server, Register::METHOD)?;
        let parsed: Register<'_> =
            mcp::parse_params(Some(params)).map_err(McplError::bad_params)?;
        let ids = {
            let mut servers = self.servers();
            let channels = servers.entry(server.clone()).or_default();
            let all = parsed.channels.iter().map(|channel| channel.get());
            channels.register(all).map_err(McplError::bad_params)?
        };
        self.notify_agents(server, &ids, &[]);
        let ids: Vec<String> = ids.iter().map(|id| quote(id)).collect();
        Ok(format!(r#"{{"registered":[{}]}}"#, ids.join(",")))
    }

    /// `channels/changed` of a server.
    fn apply_changes(&self, server: &ServerId, params: &str) -> McplAnswer {
        self.check_declared(server, Changed::METHOD)?;
        let parsed: Changed<'_> = mcp::parse_params(Some(params)).map_err(McplError::bad_params)?;
        let (ids, removed) = {
            let mut servers = self.servers();
            let channels = servers.entry(server.clone()).or_default();
            let mut removed = Vec::new();
            for id in &parsed.removed {
                if let Some(channel) = channels.get(id) {
                    removed.push(channel.id.clone());
                    channels.remove(id);
                }
            }
            let all: Vec<&str> = parsed
                .added
                .iter()
                .chain(&parsed.updated)
                .map(|channel| channel.get())
                .collect();
            let ids = channels
                .register(all.into_iter())
                .map_err(McplError::bad_params);
            (ids, removed)
        };
        self.notify_agents(server, ids.as_deref().unwrap_or_default(), &removed);
        ids.map(|_| "{}".to_owned())
    }

    fn check_declared(&self, server: &ServerId, method: &str) -> Result<(), McplError> {
        let sets = self.host.sets().load();
        let declared = sets.get(server).map(|sets| sets.abilities.channels);
        if declared.is_some_and(|channels| channels.register) {
            Ok(())
        } else {
            Err(McplError::method_not_found(method))
        }
    }

    /// `channels/list` of a server: its own.
    fn list_for_server(&self, server: &ServerId) -> McplAnswer {
        let servers = self.servers();
        let channels = servers.get(server).into_iter();
        let channels = channels.flat_map(ServerChannels::iter);
        let channels: Vec<&str> = channels.map(RegisteredChannel::json).collect();
        Ok(format!(r#"{{"channels":[{}]}}"#, channels.join(",")))
    }

    /// `channels/list` of a caller: the channels that it may publish to or observe, by their names at agents.
    #[must_use]
    pub fn list(&self, caller: &Caller, sees: impl Fn(&ServerId) -> bool) -> String {
        let sets = self.host.sets().load();
        let host = self.agents.get(caller.connection);
        let servers = self.servers();
        let mut all = Vec::new();
        for (server, channels) in servers.iter().filter(|(server, _)| sees(server)) {
            let open = channels.iter().filter(|channel| {
                permitting_set(
                    &sets,
                    host.as_ref(),
                    (server, &channel.id),
                    permits::ANY_USE,
                )
                .is_some()
            });
            all.extend(
                open.map(|channel| channel.describe_as(&names::channel_name(server, &channel.id))),
            );
        }
        format!(r#"{{"channels":[{}]}}"#, all.join(","))
    }

    /// The checks of every method that names a channel: the caller sees its server, and an enabled set of the server with one
    /// of these uses permits it, as does the caller.
    ///
    /// # Errors
    /// -32023 for a channel that does not exist for this caller, -32017 for one that does not permit these uses.
    pub(crate) fn check_permit(
        &self,
        caller: &Caller,
        sees: impl Fn(&ServerId) -> bool,
        name: &str,
        uses: &[Capability],
    ) -> Result<ChannelPermit, McplError> {
        let (server, channel) = self.find_channel(name, sees)?;
        let sets = self.host.sets().load();
        let host = self.agents.get(caller.connection);
        let set = permitting_set(&sets, host.as_ref(), (&server, &channel.id), uses);
        let set = set.ok_or_else(|| McplError::channel_not_permitted(name))?;
        Ok(ChannelPermit {
            server,
            channel,
            set,
        })
    }

    /// The channel of this name, for a caller that sees these servers. Channels of other servers do not exist for it.
    pub(crate) fn find_channel(
        &self,
        name: &str,
        sees: impl Fn(&ServerId) -> bool,
    ) -> Result<(ServerId, RegisteredChannel), McplError> {
        let unknown = || McplError::unknown_channel(name);
        if permits::is_pseudo(name) {
            return Err(McplError::channel_not_permitted(name));
        }
        let (server, id) = names::parse_channel(name).ok_or_else(unknown)?;
        if !sees(&server) {
            return Err(unknown());
        }
        let servers = self.servers();
        let channel = servers.get(&server).and_then(|channels| channels.get(id));
        Ok((server.clone(), channel.ok_or_else(unknown)?.clone()))
    }

    /// Notifies agents that receive list changes of added and removed channels, as far as they may use them.
    fn notify_agents(&self, server: &ServerId, added_ids: &[Arc<str>], removed: &[Arc<str>]) {
        if added_ids.is_empty() && removed.is_empty() {
            return;
        }
        let Some(sets) = self.last_sets().get(server).cloned() else {
            return;
        };
        for agent in self.agents.list_reachable() {
            if !agent.capabilities().features.channels.register || !agent.can_see(server) {
                continue;
            }
            let is_open =
                |id: &str| find_permitting_set(&sets, Some(&agent), (server, id), permits::ANY_USE);
            let added: Vec<String> = {
                let servers = self.servers();
                let channels = servers.get(server);
                let added_ids = added_ids.iter().filter_map(|id| channels?.get(id));
                added_ids
                    .filter(|channel| is_open(&channel.id).is_some())
                    .map(|channel| channel.describe_as(&names::channel_name(server, &channel.id)))
                    .collect()
            };
            let removed = removed.iter().filter(|id| is_open(id).is_some());
            let removed: Vec<String> = removed
                .map(|id| quote(&names::channel_name(server, id)))
                .collect();
            if !added.is_empty() || !removed.is_empty() {
                let params = format!(
                    r#"{{"added":[{}],"removed":[{}],"updated":[]}}"#,
                    added.join(","),
                    removed.join(",")
                );
                agent.notify(Changed::METHOD, &params);
            }
        }
    }

    /// The default channel for publishing (MCPL-147), by its name at agents.
    #[must_use]
    pub(crate) fn default_outgoing(&self) -> Option<String> {
        self.rules().default_outgoing.clone()
    }
}

/// The set that permits a caller one of these uses of a channel. A caller that is no MCPL host restricts nothing.
fn permitting_set(
    sets: &FeatureSets,
    host: Option<&McplAgent>,
    (server, channel): (&ServerId, &str),
    uses: &[Capability],
) -> Option<String> {
    find_permitting_set(sets.get(server)?, host, (server, channel), uses)
}

fn find_permitting_set(
    sets: &ServerSets,
    host: Option<&McplAgent>,
    (server, channel): (&ServerId, &str),
    uses: &[Capability],
) -> Option<String> {
    let admits = |set: &str| is_allowed_by(host, server, set, channel);
    permits::find_permitting_set(sets, uses, channel, admits).map(str::to_owned)
}

/// Whether an agent permits this use of a channel; one that is no MCPL host restricts nothing.
fn is_allowed_by(host: Option<&McplAgent>, server: &ServerId, set: &str, channel: &str) -> bool {
    host.is_none_or(|host| host.allows_set(server, set) && host.allows_scope(server, set, channel))
}

/// The caller's side in the table of ids.
fn caller_side(caller: &Caller) -> mgp_mcpl_engine::conversations::Side {
    mgp_mcpl_engine::conversations::Side::agent(&caller.agent, caller.connection)
}
