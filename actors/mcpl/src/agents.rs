//! The connected agents that are MCPL hosts: for them the kernel is one MCPL server that combines all (MCPL-151).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_callers::agent::{Agent, CallbackError, CallbackResult};
use mgp_callers::request::Caller;
use mgp_callers::{Delivery, Directory};
use mgp_engine::clock::MonotonicTime;
use mgp_json::{quote, set_members};
use mgp_mcpl_engine::feature_sets::{AgentSets, FeatureSets};
use mgp_mcpl_engine::{manifest, names, scopes};
use mgp_protocol::ids::{AgentId, ConnectionId, ServerId};
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::feature_sets::{Capability, Changed, FeatureSet, Update};
use mgp_protocol::mcpl::grants::{ReceivedGrant, render_receipt};
use mgp_protocol::mcpl::negotiation::FeatureSetForm;
use mgp_protocol::mcpl::{HostCapabilities, ManifestChanged, McplError, McplVersion};
use mgp_runtime::time::monotonic_now;
use mgp_sync::Snapshot;
use serde::Serialize;
use serde_json::{Value, json};

/// The kernel's declaration besides the sets: servers come and go, while an agent reads this once.
const DECLARED: &str = r#""version":"0.4","pushEvents":true,"contextHooks":{"beforeInference":true,"afterInference":{"blocking":true}},"inferenceRequest":{"streaming":true},"modelInfo":true,"channels":{"register":true,"publish":true,"observe":true,"lifecycle":true,"streaming":true}"#;

/// The same for a host that expects plain booleans ([`FeatureSetForm::List`]).
const DECLARED_BOOLEANS: &str = r#""version":"0.4","pushEvents":true,"contextHooks":{"beforeInference":true,"afterInference":{"blocking":true}},"inferenceRequest":true,"modelInfo":true,"channels":true"#;

/// The same for a host that speaks 0.5, without what 0.5 removed.
const DECLARED_0_5: &str = r#""version":"0.5","pushEvents":true,"contextHooks":{"beforeInference":{"observe":true,"inject":{"system":true,"beforeUser":true,"afterUser":true}}},"inferenceLifecycle":true,"inferenceRequest":{"streaming":true},"modelInfo":true,"channels":{"register":true,"publish":true,"incoming":true,"lifecycle":true,"streaming":true}"#;

/// A set with its name, for hosts that expect a list.
#[derive(Serialize)]
struct SetInList<'a> {
    name: &'a str,
    #[serde(flatten)]
    set: &'a FeatureSet,
}

impl<'a> From<(&'a String, &'a FeatureSet)> for SetInList<'a> {
    fn from((name, set): (&'a String, &'a FeatureSet)) -> Self {
        Self { name, set }
    }
}

fn version_of(caller: &Caller) -> McplVersion {
    let declared = caller.mcpl.as_ref();
    declared.map_or(McplVersion::V0_4, |declared| declared.features.version)
}

fn sets_form(caller: &Caller) -> FeatureSetForm {
    let declared = caller.mcpl.as_ref();
    declared.map_or(FeatureSetForm::ByName, |declared| declared.form)
}

/// How long a host that did not answer is asked last, unless it answers before.
const SILENCE_DURATION: Duration = Duration::from_secs(300);

/// The agents that are hosts.
#[derive(Debug)]
pub struct McplAgents {
    directory: Arc<Directory>,
    sets: Arc<Snapshot<FeatureSets>>,
    /// Bounded by the connections: an entry is removed with its connection.
    hosts: Mutex<HashMap<ConnectionId, HostState>>,
}

/// The state of one host.
#[derive(Clone, Debug, Default)]
struct HostState {
    /// The sets that it accepts.
    filter: AgentSets,
    /// The sets announced to it, by their names at agents.
    announced: BTreeMap<String, FeatureSet>,
    silent_until: Arc<SilentUntil>,
}

/// Until when a host counts as silent.
#[derive(Debug, Default)]
struct SilentUntil(Mutex<Option<MonotonicTime>>);

impl SilentUntil {
    fn set_until(&self, until: Option<MonotonicTime>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn is_active(&self, now: MonotonicTime) -> bool {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| until > now)
    }
}

/// One of the hosts, as of now.
#[derive(Clone, Debug)]
pub struct McplAgent {
    /// Its identity.
    pub id: AgentId,
    /// Its connection.
    pub connection: ConnectionId,
    agent: Arc<Agent>,
    caller: Arc<Caller>,
    capabilities: Arc<HostCapabilities>,
    filter: AgentSets,
    silent_until: Arc<SilentUntil>,
    directory: Arc<Directory>,
}

impl McplAgents {
    /// Starts without hosts.
    #[must_use]
    pub fn new(directory: Arc<Directory>, sets: Arc<Snapshot<FeatureSets>>) -> Arc<Self> {
        Arc::new(Self {
            directory,
            sets,
            hosts: Mutex::default(),
        })
    }

    /// Hosts that are reachable now, the oldest connection first. Hosts that left a request without an answer come last.
    #[must_use]
    pub(crate) fn list_reachable(&self) -> Vec<McplAgent> {
        let hosts = self.directory.mcpl_hosts().into_iter();
        let mut hosts: Vec<_> = hosts.filter_map(|agent| self.to_host(agent)).collect();
        hosts.sort_by_cached_key(McplAgent::is_silent);
        hosts
    }

    /// The host of this connection.
    #[must_use]
    pub fn get(&self, connection: ConnectionId) -> Option<McplAgent> {
        self.to_host(self.directory.get(connection)?)
    }

    fn to_host(&self, agent: Arc<Agent>) -> Option<McplAgent> {
        let caller = agent.caller()?.clone();
        let hosts = self.lock_hosts().get(&agent.connection).cloned();
        let hosts = hosts.unwrap_or_default();
        Some(McplAgent {
            id: agent.id().clone(),
            connection: agent.connection,
            capabilities: caller.mcpl.clone()?,
            filter: hosts.filter,
            silent_until: hosts.silent_until,
            directory: self.directory.clone(),
            caller,
            agent,
        })
    }

    /// Whether this caller accepts a set: it is a host that did not disable it, or no host.
    #[must_use]
    pub fn allows_set(&self, caller: &Caller, server: &ServerId, set: &str) -> bool {
        let hosts = self.lock_hosts();
        let hosts = hosts.get(&caller.connection);
        hosts.is_none_or(|hosts| hosts.filter.allows(&names::set_name(server, set)))
    }

    /// Whether this caller admits a scope: it is no host, or a host whose lists admit it.
    #[must_use]
    pub fn allows_scope(&self, caller: &Caller, server: &ServerId, set: &str, label: &str) -> bool {
        let hosts = self.lock_hosts();
        let scope_rules = hosts.get(&caller.connection);
        let scope_rules =
            scope_rules.and_then(|hosts| hosts.filter.scopes(&names::set_name(server, set)));
        scope_rules.is_none_or(|scope_rules| scopes::is_allowed_by(label, scope_rules))
    }

    /// The kernel's declaration to an agent that is a host, as JSON text; stores the announced sets.
    #[must_use]
    pub fn declaration(&self, caller: &Caller) -> String {
        let visible_sets = self.visible_sets(caller);
        if version_of(caller) == McplVersion::V0_5 {
            let manifest = render_manifest(&visible_sets);
            let host = HostState {
                filter: AgentSets::closed(),
                announced: visible_sets,
                ..HostState::default()
            };
            self.lock_hosts().insert(caller.connection, host);
            return manifest;
        }
        let declaration = match sets_form(caller) {
            FeatureSetForm::ByName => {
                let sets = serde_json::to_string(&visible_sets).expect("sets are always JSON");
                format!(r#"{{{DECLARED},"featureSets":{sets}}}"#)
            }
            FeatureSetForm::List => {
                let sets: Vec<SetInList<'_>> = visible_sets.iter().map(SetInList::from).collect();
                let sets = serde_json::to_string(&sets).expect("sets are always JSON");
                format!(r#"{{{DECLARED_BOOLEANS},"featureSets":{sets}}}"#)
            }
        };
        let mut hosts = self.lock_hosts();
        hosts.entry(caller.connection).or_default().announced = visible_sets;
        declaration
    }

    /// The enabled sets of the servers that the caller sees, by their names at agents.
    fn visible_sets(&self, caller: &Caller) -> BTreeMap<String, FeatureSet> {
        let sets = self.sets.load();
        let seen = sets.servers.iter().filter(|(server, _)| {
            caller.view.includes(server) && self.directory.open_server_filter(server)(caller)
        });
        let all = seen.flat_map(|(server, sets)| {
            let enabled = sets.sets.iter().filter(|(_, held)| held.enabled);
            let version = sets.abilities.version;
            enabled
                .map(move |(name, held)| (names::set_name(server, name), version, held.set.clone()))
        });
        let spoken = version_of(caller);
        let all =
            all.filter_map(|(name, version, set)| Some((name, in_words_of(spoken, version, set)?)));
        all.collect()
    }

    /// `featureSets/update` of a host that speaks 0.5, as a request (0.5 §6.7); answers with the receipt. It can only narrow
    /// the operator's settings, too. `None` for another host.
    ///
    /// # Errors
    /// The policy is malformed: nothing is granted until the next one.
    pub fn grant(
        &self,
        caller: &Caller,
        params: Option<&str>,
    ) -> Option<Result<String, McplError>> {
        if version_of(caller) != McplVersion::V0_5 {
            return None;
        }
        let mut hosts = self.lock_hosts();
        let host = hosts.get_mut(&caller.connection)?;
        Some(match ReceivedGrant::parse(params.unwrap_or("{}")) {
            Ok(received) => {
                let lacking = host.filter.apply_grant(&received, host.announced.iter());
                Ok(render_receipt(&lacking))
            }
            Err(why) => {
                host.filter.revoke();
                Err(McplError::bad_params(why))
            }
        })
    }

    /// `mcpl/manifest` of a host that speaks 0.5: the whole manifest as it is now, which counts as announced. `None` for
    /// another host.
    #[must_use]
    pub fn manifest(&self, caller: &Caller) -> Option<String> {
        if version_of(caller) != McplVersion::V0_5 {
            return None;
        }
        let visible_sets = self.visible_sets(caller);
        let manifest = render_manifest(&visible_sets);
        let mut hosts = self.lock_hosts();
        hosts.get_mut(&caller.connection)?.announced = visible_sets;
        Some(manifest)
    }

    /// `featureSets/update` of an agent: it can only narrow the operator's settings (MCPL-157).
    pub fn update(&self, caller: &Caller, params: Option<&str>) {
        if version_of(caller) == McplVersion::V0_5 {
            // A notification alters no grant (0.5 §6.7): only what it disables counts.
            let (update, _) = Update::parse(params.unwrap_or("{}"));
            let narrowing = Update {
                disabled: update.disabled,
                ..Update::default()
            };
            self.apply_update(caller, &narrowing);
            return;
        }
        let (update, refused) = Update::parse(params.unwrap_or("{}"));
        if !refused.is_empty() {
            let refused = refused.join("; ");
            tracing::warn!(agent = %caller.agent, refused, "a part of featureSets/update cannot be read");
        }
        self.apply_update(caller, &update);
    }

    fn apply_update(&self, caller: &Caller, update: &Update) {
        let mut hosts = self.lock_hosts();
        if let Some(host) = hosts.get_mut(&caller.connection) {
            let names: Vec<String> = host.announced.keys().cloned().collect();
            host.filter.update(update, names.iter().map(String::as_str));
        }
    }

    /// Notifies each host of sets added and removed since its last notification: after a change of servers, sets or
    /// grants.
    pub fn refresh_all(&self) {
        for agent in self.directory.mcpl_hosts() {
            self.refresh_agent(&agent);
        }
    }

    /// Notifies one host, which is ready now.
    pub fn refresh_agent(&self, agent: &Arc<Agent>) {
        let Some(caller) = agent.caller().filter(|caller| caller.mcpl.is_some()) else {
            return;
        };
        // Sent under the lock, so that frames keep their order.
        let mut hosts = self.lock_hosts();
        let Some(host) = hosts.get_mut(&agent.connection) else {
            return;
        };
        let now = self.visible_sets(caller);
        let added: BTreeMap<&String, &FeatureSet> = now
            .iter()
            .filter(|(name, set)| host.announced.get(*name) != Some(*set))
            .collect();
        let removed: Vec<&String> = host
            .announced
            .keys()
            .filter(|name| !now.contains_key(*name))
            .collect();
        if added.is_empty() && removed.is_empty() {
            return;
        }
        if version_of(caller) == McplVersion::V0_5 {
            let manifest = |sets| serde_json::from_str(&render_manifest(sets)).unwrap_or_default();
            let (before, after): (Value, Value) = (manifest(&host.announced), manifest(&now));
            let params = json!({
                "revision": after["revision"],
                "domains": manifest::changed_domains(&before, &after),
            });
            let params = params.to_string();
            let frame = jsonrpc::notification(ManifestChanged::METHOD, Some(&params));
            agent.send(frame.into(), Delivery::Reliable);
            host.announced = now;
            return;
        }
        let params = match sets_form(caller) {
            FeatureSetForm::ByName => json!({"added": added, "removed": removed}),
            // The names are keys here, and are members of the sets, too.
            FeatureSetForm::List => {
                let added = added.into_iter();
                let added: BTreeMap<_, _> = added
                    .map(|(name, set)| (name, SetInList::from((name, set))))
                    .collect();
                json!({"added": added, "removed": removed})
            }
        };
        let params = params.to_string();
        let frame = jsonrpc::notification(Changed::METHOD, Some(&params));
        agent.send(frame.into(), Delivery::Reliable);
        host.announced = now;
    }

    /// Removes a connection that has ended.
    pub fn remove(&self, connection: ConnectionId) {
        self.lock_hosts().remove(&connection);
    }

    fn lock_hosts(&self) -> MutexGuard<'_, HashMap<ConnectionId, HostState>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kernel's manifest for a host of 0.5, with its revision.
fn render_manifest(sets: &BTreeMap<String, FeatureSet>) -> String {
    let sets = serde_json::to_string(sets).expect("sets are always JSON");
    let manifest = format!(r#"{{{DECLARED_0_5},"featureSets":{sets}}}"#);
    let digest = serde_json::from_str(&manifest).map(|manifest| manifest::digest(&manifest));
    match digest {
        Ok(Ok(revision)) => set_members(&manifest, &[("revision", &quote(&revision))]),
        // The name of a set or server is no identifier of a manifest: it has no revision then.
        Ok(Err(_)) | Err(_) => manifest,
    }
}

/// A server's set in the words of the version that an agent speaks; `None` if it uses only what that version does not
/// have.
fn in_words_of(spoken: McplVersion, own: McplVersion, set: FeatureSet) -> Option<FeatureSet> {
    if spoken == own {
        return Some(set);
    }
    let words = Capability::all(spoken).iter().copied();
    let uses: BTreeSet<Capability> = words
        .filter(|word| {
            set.uses
                .iter()
                .any(|used| word.is_part_of(*used) || used.is_part_of(*word))
        })
        .collect();
    let scoped = set.scoped && spoken == McplVersion::V0_4;
    (!uses.is_empty()).then_some(FeatureSet {
        uses,
        scoped,
        ..set
    })
}

impl McplAgent {
    /// Its declared capabilities.
    #[must_use]
    pub(crate) fn capabilities(&self) -> &HostCapabilities {
        &self.capabilities
    }

    /// The caller of its requests.
    #[must_use]
    pub(crate) fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Its connection, for more than a single callback.
    #[must_use]
    pub(crate) fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// Sends it a request, which is cancelled on timeout.
    ///
    /// # Errors
    /// [`CallbackError`] says why there is no answer.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &str,
        deadline: Duration,
    ) -> Result<CallbackResult, CallbackError> {
        if !self.agent.is_reachable() {
            return Err(CallbackError::Unreachable);
        }
        let call = self.agent.new_kernel_call();
        let asked = self.agent.send_callback(&call, None, method, Some(params));
        let answered = tokio::time::timeout(deadline, asked).await;
        let answered = answered.unwrap_or(Err(CallbackError::TimedOut(deadline)));
        self.record_answer(&answered);
        answered
    }

    /// Whether a request reaches it now.
    #[must_use]
    pub(crate) fn is_reachable(&self) -> bool {
        self.agent.is_reachable()
    }

    /// Whether it recently left a request without an answer.
    #[must_use]
    pub(crate) fn is_silent(&self) -> bool {
        self.silent_until.is_active(monotonic_now())
    }

    /// Records whether it answers: silent hosts come last.
    pub(crate) fn record_answer(&self, answered: &Result<CallbackResult, CallbackError>) {
        match answered {
            Ok(_) => self.silent_until.set_until(None),
            Err(CallbackError::TimedOut(_)) => self
                .silent_until
                .set_until(Some(monotonic_now() + SILENCE_DURATION)),
            Err(
                CallbackError::NotReady
                | CallbackError::Unreachable
                | CallbackError::Disconnected
                | CallbackError::Overloaded
                | CallbackError::Cancelled,
            ) => {}
        }
    }

    /// Sends it a notification.
    pub(crate) fn notify(&self, method: &str, params: &str) {
        let frame = jsonrpc::notification(method, Some(params));
        self.agent.send(frame.into(), Delivery::Reliable);
    }

    /// Whether it may know of the server.
    #[must_use]
    pub(crate) fn can_see(&self, server: &ServerId) -> bool {
        self.caller.view.includes(server) && self.directory.open_server_filter(server)(&self.caller)
    }

    /// Whether it accepts this set; the operator's decision is checked elsewhere.
    #[must_use]
    pub(crate) fn allows_set(&self, server: &ServerId, set: &str) -> bool {
        self.can_see(server) && self.filter.allows(&names::set_name(server, set))
    }

    /// Whether it admits this scope of the set.
    #[must_use]
    pub(crate) fn allows_scope(&self, server: &ServerId, set: &str, label: &str) -> bool {
        let scope_rules = self.filter.scopes(&names::set_name(server, set));
        scope_rules.is_none_or(|scope_rules| scopes::is_allowed_by(label, scope_rules))
    }
}
