//! The registry of channels, and the messages in and out (MCPL §14).
//!
//! Servers and agents each know a channel by a name of their own: a server its id, agents `SERVER:CHANNEL`. So an id
//! of one server never reaches another one, and equal ids of two servers never collide.

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
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::task;
use mgp_servers::link::McplAnswer;

use self::threads::Threads;
use crate::agents::{McplAgent, McplAgents};
use crate::conversations::Conversations;
use crate::host::{HostEvent, McplHandler, McplHost, McplServerMessage};

pub use self::lifecycle::ChannelError;
pub use self::observers::OutgoingCompletion;
pub use self::publishing::PreparedMessage;

/// How long a server may take to open, close or publish: it talks to a platform.
const PLATFORM_TIMEOUT: Duration = Duration::from_secs(30);

/// What servers say of channels.
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
    /// By server; bounded as servers are.
    servers: Mutex<BTreeMap<ServerId, ServerChannels>>,
    /// The sets of each server that speaks MCPL: who may know its channels after it disconnected.
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
    /// No channels yet.
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

    /// The configuration changed: it holds from the next message on.
    pub fn configure(&self, rules: ChannelRules) {
        let mut held = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Arc::new(rules);
    }

    /// This part of MCPL, for the host. Holds the channels weakly.
    #[must_use]
    pub fn handler(self: &Arc<Self>) -> McplHandler {
        let (takes, hears) = (Arc::downgrade(self), Arc::downgrade(self));
        McplHandler {
            methods: METHODS,
            messages: EventSink::new(move |said| {
                if let Some(channels) = takes.upgrade() {
                    channels.handle_message(said);
                }
            }),
            events: EventSink::new(move |event| {
                if let Some(channels) = hears.upgrade() {
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

    fn handle_message(self: &Arc<Self>, said: McplServerMessage) {
        let McplServerMessage {
            server, message, ..
        } = said;
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
                    tracing::warn!(%server, %error, method = message.method, "not taken");
                }
            }
        }
    }

    fn handle_event(self: &Arc<Self>, event: HostEvent) {
        match event {
            HostEvent::Connected(server) => {
                self.save_sets(&server);
                let again = {
                    let mut servers = self.servers();
                    let channels = servers.entry(server.clone()).or_default();
                    channels.disconnect();
                    channels.reopen_params()
                };
                if !again.is_empty() {
                    let channels = self.clone();
                    task::spawn_detached("mcpl.reopen", async move {
                        channels.reopen(&server, again).await;
                    });
                }
            }
            HostEvent::Disconnected(server) => {
                if !self.host.is_connected(&server) {
                    let gone = self.channel_ids(&server);
                    let mut servers = self.servers();
                    if let Some(channels) = servers.get_mut(&server) {
                        channels.disconnect();
                        if channels.reopen_params().is_empty() {
                            servers.remove(&server);
                        }
                    }
                    drop(servers);
                    self.notify_agents(&server, &[], &gone);
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
        channels.map(|one| one.id.clone()).collect()
    }

    /// `channels/register` of a server that declares it.
    fn register(&self, server: &ServerId, params: &str) -> McplAnswer {
        self.check_declared(server, Register::METHOD)?;
        let said: Register<'_> = mcp::parse_params(Some(params)).map_err(McplError::bad_params)?;
        let ids = {
            let mut servers = self.servers();
            let channels = servers.entry(server.clone()).or_default();
            let all = said.channels.iter().map(|one| one.get());
            channels.register(all).map_err(McplError::bad_params)?
        };
        self.notify_agents(server, &ids, &[]);
        let ids: Vec<String> = ids.iter().map(|id| quote(id)).collect();
        Ok(format!(r#"{{"registered":[{}]}}"#, ids.join(",")))
    }

    /// `channels/changed` of a server.
    fn apply_changes(&self, server: &ServerId, params: &str) -> McplAnswer {
        self.check_declared(server, Changed::METHOD)?;
        let said: Changed<'_> = mcp::parse_params(Some(params)).map_err(McplError::bad_params)?;
        let (ids, gone) = {
            let mut servers = self.servers();
            let channels = servers.entry(server.clone()).or_default();
            let mut gone = Vec::new();
            for id in &said.removed {
                if let Some(channel) = channels.get(id) {
                    gone.push(channel.id.clone());
                    channels.remove(id);
                }
            }
            let all: Vec<&str> = said
                .added
                .iter()
                .chain(&said.updated)
                .map(|one| one.get())
                .collect();
            let ids = channels
                .register(all.into_iter())
                .map_err(McplError::bad_params);
            (ids, gone)
        };
        self.notify_agents(server, ids.as_deref().unwrap_or_default(), &gone);
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

    /// `channels/list` of a caller: the channels that it may publish to or observe, by the names it knows.
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
            all.extend(open.map(|one| one.describe_as(&names::channel_name(server, &one.id))));
        }
        format!(r#"{{"channels":[{}]}}"#, all.join(","))
    }

    /// The checks of every method that names a channel: the caller sees its server, and an enabled set of the server
    /// with one of these uses lets it through, as the caller does.
    ///
    /// # Errors
    /// -32023 for a channel that is not there for this caller, -32017 for one that is not open to this.
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

    /// The channel of this name, for one who sees these servers. One of a server that is not seen is not there.
    pub(crate) fn find_channel(
        &self,
        name: &str,
        sees: impl Fn(&ServerId) -> bool,
    ) -> Result<(ServerId, RegisteredChannel), McplError> {
        let unknown = || McplError::unknown_channel(name);
        if permits::is_pseudo(name) {
            return Err(McplError::channel_not_permitted(name));
        }
        let (server, own) = names::parse_channel(name).ok_or_else(unknown)?;
        if !sees(&server) {
            return Err(unknown());
        }
        let servers = self.servers();
        let channel = servers.get(&server).and_then(|channels| channels.get(own));
        Ok((server.clone(), channel.ok_or_else(unknown)?.clone()))
    }

    /// Notifies the agents that follow the list which of the channels that are open to them came and went.
    fn notify_agents(&self, server: &ServerId, came: &[Arc<str>], gone: &[Arc<str>]) {
        if came.is_empty() && gone.is_empty() {
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
                let came = came.iter().filter_map(|id| channels?.get(id));
                came.filter(|one| is_open(&one.id).is_some())
                    .map(|one| one.describe_as(&names::channel_name(server, &one.id)))
                    .collect()
            };
            let removed = gone.iter().filter(|id| is_open(id).is_some());
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

    /// Where is published what does not say where (MCPL-147): by the name agents know.
    #[must_use]
    pub(crate) fn default_outgoing(&self) -> Option<String> {
        self.rules().default_outgoing.clone()
    }
}

/// The set that opens a channel to a caller for one of these uses. One that is no MCPL host narrows nothing.
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

/// Whether an agent lets this be done at a channel; one that is no MCPL host has nothing to say.
fn is_allowed_by(host: Option<&McplAgent>, server: &ServerId, set: &str, channel: &str) -> bool {
    host.is_none_or(|host| host.allows_set(server, set) && host.allows_scope(server, set, channel))
}

/// The side of a caller in the table of ids.
fn caller_side(caller: &Caller) -> mgp_mcpl_engine::conversations::Side {
    mgp_mcpl_engine::conversations::Side::agent(&caller.agent, caller.connection)
}
