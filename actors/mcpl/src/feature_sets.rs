//! The enabled feature sets of each server, published (MCPL §6).
//!
//! A server is notified in the order of the changes: each change of its sets is published and sent under one lock, which
//! is never held across an await.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mgp_json::lookalike;
use mgp_mcpl_engine::feature_sets::{ChangeBudget, FeatureSets, ServerSets};
use mgp_mcpl_engine::grants::ManifestImpact;
use mgp_mcpl_engine::policy::{ApprovedSets, McplServerRules, SetPattern, Switches};
use mgp_mcpl_engine::rules::McplRules;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::feature_sets::{Changed, DeclaredSets, FeatureSet, Update};
use mgp_protocol::mcpl::grants::{GrantReceipt, GrantUpdate};
use mgp_protocol::mcpl::{McplVersion, ServerCapabilities};
use mgp_protocol::mgp::audit::{Actor, EventType, Outcome, TraceId};
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{randomness, task};
use mgp_servers::link::Link;
use mgp_store::audit::{AuditHandle, AuditWriteError, new_event, operator_actor};
use mgp_store::{Witness, atomic_file, explain_io_error, regular_file};
use mgp_sync::Snapshot;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::audit::server_target;

/// Switches of all servers together. Each was made by a person.
const SWITCHES_MAX: usize = 4096;
/// Concurrent connections of one server: the current instance, its replacement, and one spare.
const CONNECTIONS_MAX: usize = 4;

/// The enabled sets, and the settings that decide it.
#[derive(Debug)]
pub struct FeatureSetStore {
    sets: Arc<Snapshot<FeatureSets>>,
    has_connections: AtomicBool,
    state: Mutex<FeatureSetState>,
    /// Serializes writes of switches.
    write_lock: tokio::sync::Mutex<()>,
    file: PathBuf,
    witness: Witness,
    audit: AuditHandle,
}

#[derive(Debug, Default)]
struct FeatureSetState {
    rules: McplRules,
    switches: BTreeMap<ServerId, Switches>,
    approved: BTreeMap<ServerId, ApprovedSets>,
    /// Something was approved since the file was written.
    unsaved: bool,
    connections: BTreeMap<ServerId, Vec<McplConnection>>,
}

/// A connection of an MCPL server; the last one is in force.
#[derive(Debug)]
struct McplConnection {
    number: u64,
    link: Weak<Link>,
    /// As the operator decided.
    sets: Arc<ServerSets>,
    /// The part of them that is in force: of a server of 0.5 what it has accepted.
    in_force: Arc<ServerSets>,
    grant: GrantExchange,
    changes: ChangeBudget,
    warned: bool,
}

/// The exchange of grants with a server of 0.5. One request is in flight at a time, so that the server gets them in
/// order.
#[derive(Debug, Default)]
struct GrantExchange {
    /// The last grant that the server accepted, less what was revoked since.
    accepted: Option<GrantUpdate>,
    /// The grant in force was not sent yet.
    is_unsent: bool,
    in_flight: Option<GrantUpdate>,
    /// A request for its manifest is in flight, and whether another change was reported meanwhile.
    fetching: Option<bool>,
}

/// A grant that has to be sent.
#[derive(Debug)]
pub(crate) struct UnsentGrant {
    pub(crate) link: Arc<Link>,
    pub(crate) update: GrantUpdate,
}

impl McplConnection {
    /// Replaces the sets. What is revoked is out of force at once; what is added waits for the server's receipt.
    fn set_sets(&mut self, sets: Arc<ServerSets>) {
        if let Some(accepted) = &mut self.grant.accepted {
            let now = sets.grant_update();
            accepted.enabled.retain(|set| now.enabled.contains(set));
            accepted
                .effective_capabilities
                .retain(|capability| now.effective_capabilities.contains(capability));
        }
        self.grant.is_unsent = sets.abilities.version == McplVersion::V0_5;
        self.sets = sets;
        self.refresh_in_force();
    }

    fn refresh_in_force(&mut self) {
        self.in_force = match self.sets.abilities.version {
            McplVersion::V0_4 => self.sets.clone(),
            McplVersion::V0_5 => {
                let accepted = self.grant.accepted.as_ref();
                Arc::new(self.sets.limit_to_accepted(accepted))
            }
        };
    }
}

/// The file of switches and of approved declarations.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchFile {
    version: u32,
    servers: BTreeMap<ServerId, BTreeMap<String, bool>>,
    /// Absent in files of older kernels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    approved: BTreeMap<ServerId, ApprovedSets>,
}

/// The contents of the file.
type StoredSets = (
    BTreeMap<ServerId, Switches>,
    BTreeMap<ServerId, ApprovedSets>,
);

/// The version of the file that this kernel writes.
const FILE_VERSION: u32 = 1;

/// Why sets were not switched.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// Too many switches.
    #[error("there are {SWITCHES_MAX} switches already; `mgp mcpl sets reset` takes one back")]
    TooMany,
    /// The audit log failed.
    #[error(transparent)]
    Audit(#[from] AuditWriteError),
    /// The disk failed.
    #[error("{0}")]
    Disk(String),
}

impl FeatureSetStore {
    /// Reads the stored switches. The first switch creates the file.
    ///
    /// # Errors
    /// The file cannot be read, so that disabled sets are unknown.
    pub fn open(file: PathBuf, witness: Witness, audit: AuditHandle) -> Result<Self, String> {
        let (switches, approved) = match regular_file::read_to_string(&file) {
            Ok(text) => parse_file(&text).map_err(|why| {
                format!(
                    "{}: {why}; put a copy back, or remove it: then only [mcpl] of mgp.toml counts",
                    file.display()
                )
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => StoredSets::default(),
            Err(error) => return Err(explain_io_error(&file, &error)),
        };
        Ok(Self {
            sets: Arc::new(Snapshot::new(FeatureSets::default())),
            has_connections: AtomicBool::new(false),
            state: Mutex::new(FeatureSetState {
                rules: McplRules::default(),
                switches,
                approved,
                unsaved: false,
                connections: BTreeMap::new(),
            }),
            write_lock: tokio::sync::Mutex::default(),
            file,
            witness,
            audit,
        })
    }

    /// The sets of the connected MCPL servers.
    #[must_use]
    pub(crate) fn published(&self) -> &Arc<Snapshot<FeatureSets>> {
        &self.sets
    }

    /// False while no MCPL server is connected.
    #[must_use]
    pub(crate) fn has_connections(&self) -> bool {
        self.has_connections.load(Ordering::Relaxed)
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> McplRules {
        self.lock_state().rules.clone()
    }

    /// The switches of the command line.
    #[must_use]
    pub fn switches(&self) -> BTreeMap<ServerId, Switches> {
        self.lock_state().switches.clone()
    }

    /// The MCPL connection of a server.
    #[must_use]
    pub(crate) fn link(&self, server: &ServerId) -> Option<Arc<Link>> {
        self.lock_state()
            .connections
            .get(server)?
            .last()?
            .link
            .upgrade()
    }

    /// Whether a server has this MCPL connection.
    #[must_use]
    pub(crate) fn has_connection(&self, server: &ServerId, number: u64) -> bool {
        let state = self.lock_state();
        let connections = state.connections.get(server);
        connections.is_some_and(|connections| {
            connections
                .iter()
                .any(|connection| connection.number == number)
        })
    }

    /// Adds a connection after its handshake: its sets are evaluated, published and sent before anything else.
    pub(crate) fn add_connection(&self, server: &ServerId, link: &Arc<Link>) {
        let Some(declared) = link.mcpl() else {
            return;
        };
        let mut state = self.lock_state();
        let sets = state.evaluate_with(server, |rules, switches, approved| {
            Arc::new(ServerSets::new(declared, rules, switches, approved))
        });
        let mut connection = McplConnection {
            number: link.number,
            link: Arc::downgrade(link),
            sets: sets.clone(),
            in_force: sets.clone(),
            grant: GrantExchange::default(),
            changes: ChangeBudget::new(now_ms()),
            warned: false,
        };
        connection.set_sets(sets.clone());
        let connections = state.connections.entry(server.clone()).or_default();
        if connections.len() >= CONNECTIONS_MAX {
            connections.remove(0);
        }
        connections.push(connection);
        self.publish(&state);
        send_update(link, &sets);
    }

    /// Removes a connection that has ended. False when it was unknown.
    pub(crate) fn remove_connection(&self, server: &ServerId, number: u64) -> bool {
        let mut state = self.lock_state();
        let Some(connections) = state.connections.get_mut(server) else {
            return false;
        };
        let before = connections.len();
        connections.retain(|connection| connection.number != number);
        let known = connections.len() < before;
        if connections.is_empty() {
            state.connections.remove(server);
        }
        self.publish(&state);
        known
    }

    /// Applies changed declarations of a server. False when nothing changed.
    pub(crate) fn change_sets(&self, server: &ServerId, number: u64, params: &str) -> bool {
        let mut guard = self.lock_state();
        let state = &mut *guard;
        let connections = state.connections.get_mut(server);
        let connection = connections.and_then(|connections| {
            connections
                .iter_mut()
                .find(|connection| connection.number == number)
        });
        let Some(connection) = connection else {
            return false;
        };
        let Some(link) = connection.link.upgrade() else {
            return false;
        };
        if !connection.changes.try_take(now_ms()) {
            if !std::mem::replace(&mut connection.warned, true) {
                link.log
                    .push_note("its feature sets change too often: these changes are ignored");
            }
            return false;
        }
        let changed: Changed<'_> = match lookalike::from_str(params) {
            Ok(changed) => changed,
            Err(error) => {
                link.log
                    .push_note(&format!("featureSets/changed cannot be read: {error}"));
                return false;
            }
        };
        let added = changed.added.map(|added| DeclaredSets::parse(added.get()));
        let added = added.unwrap_or_default();
        added
            .rejected
            .iter()
            .for_each(|why| link.log.push_note(why));
        let mut sets = ServerSets::clone(&connection.sets);
        let left_out = sets.change(added.sets, changed.removed.iter());
        for name in left_out.iter().take(8) {
            link.log
                .push_note(&format!("feature set {name} exceeds the limit"));
        }
        let before = connection.sets.clone();
        state.evaluate_with(server, |rules, switches, approved| {
            sets.reevaluate(rules, switches, approved);
        });
        if sets == *before {
            return false;
        }
        let sets = Arc::new(sets);
        let connections = state.connections.get_mut(server).into_iter().flatten();
        let connection = connections.filter(|connection| connection.number == number);
        connection.for_each(|connection| connection.set_sets(sets.clone()));
        self.publish(state);
        send_update(&link, &sets);
        true
    }

    /// The grants of a server's connections that have to be sent now. Each is followed by [`Self::finish_grant`].
    pub(crate) fn take_unsent_grants(&self, server: &ServerId) -> Vec<UnsentGrant> {
        let mut state = self.lock_state();
        let connections = state.connections.get_mut(server).into_iter().flatten();
        let unsent = connections.filter_map(|connection| {
            let grant = &mut connection.grant;
            if !grant.is_unsent || grant.in_flight.is_some() {
                return None;
            }
            let link = connection.link.upgrade()?;
            let update = connection.sets.grant_update();
            grant.is_unsent = false;
            grant.in_flight = Some(update.clone());
            Some(UnsentGrant { link, update })
        });
        unsent.collect()
    }

    /// Applies a server's receipt; `None` if it gave none. A receipt never widens anything. True if another grant has to
    /// be sent, or what is in force changed.
    pub(crate) fn finish_grant(
        &self,
        server: &ServerId,
        number: u64,
        receipt: Option<&GrantReceipt>,
    ) -> bool {
        let mut state = self.lock_state();
        let connections = state.connections.get_mut(server).into_iter().flatten();
        let mut connections = connections.filter(|connection| connection.number == number);
        let Some(connection) = connections.next() else {
            return false;
        };
        let sent = connection.grant.in_flight.take();
        if connection.grant.is_unsent {
            // It was about a grant that is no longer the current one.
            return true;
        }
        connection.grant.accepted = match receipt {
            Some(GrantReceipt::Accepted { .. }) => sent,
            Some(GrantReceipt::Refused { .. }) => None,
            // Nothing is added without a receipt.
            None => connection.grant.accepted.take(),
        };
        let before = connection.in_force.clone();
        connection.refresh_in_force();
        let is_changed = before != connection.in_force;
        self.publish(&state);
        is_changed
    }

    /// Begins a fetch of the server's manifest, if its rate allows one and none is in flight.
    pub(crate) fn begin_fetch(&self, server: &ServerId, number: u64) -> Option<Arc<Link>> {
        let mut state = self.lock_state();
        let connections = state.connections.get_mut(server).into_iter().flatten();
        let mut connections = connections.filter(|connection| connection.number == number);
        let connection = connections.next()?;
        let link = connection.link.upgrade()?;
        if let Some(again) = &mut connection.grant.fetching {
            *again = true;
            return None;
        }
        if !connection.changes.try_take(now_ms()) {
            if !std::mem::replace(&mut connection.warned, true) {
                link.log
                    .push_note("its manifest changes too often: these changes are ignored");
            }
            return None;
        }
        connection.grant.fetching = Some(false);
        Some(link)
    }

    /// Applies a fetched manifest, if there is one; the comparison with what was in force decides. Returns its impacts,
    /// and true if the manifest changed again meanwhile.
    pub(crate) fn finish_fetch(
        &self,
        server: &ServerId,
        number: u64,
        manifest: Option<&ServerCapabilities>,
    ) -> (Vec<ManifestImpact>, bool) {
        let mut guard = self.lock_state();
        let state = &mut *guard;
        let evaluated = manifest.map(|manifest| {
            state.evaluate_with(server, |rules, switches, approved| {
                Arc::new(ServerSets::new(manifest, rules, switches, approved))
            })
        });
        let connections = state.connections.get_mut(server).into_iter().flatten();
        let mut connections = connections.filter(|connection| connection.number == number);
        let Some(connection) = connections.next() else {
            return (Vec::new(), false);
        };
        let again = connection.grant.fetching.take() == Some(true);
        let Some(sets) = evaluated.filter(|sets| *sets != connection.sets) else {
            return (Vec::new(), again);
        };
        let impacts = ServerSets::impacts_of_change(&connection.sets, &sets);
        connection.set_sets(sets);
        self.publish(state);
        (impacts, again)
    }

    /// Applies a changed configuration; returns the affected servers.
    pub(crate) fn configure(&self, rules: McplRules) -> Vec<ServerId> {
        let mut state = self.lock_state();
        state.rules = rules;
        self.reevaluate(&mut state)
    }

    /// Enables or disables sets of a server permanently, or resets the switch (`None`). It is persisted before it takes
    /// effect. Returns the servers whose sets changed.
    ///
    /// # Errors
    /// [`SwitchError`]: nothing has changed then.
    pub async fn switch(
        &self,
        server: &ServerId,
        patterns: &[SetPattern],
        enabled: Option<bool>,
        by: Actor,
    ) -> Result<Vec<ServerId>, SwitchError> {
        let _lock = self.write_lock.lock().await;
        let (mut switches, mut approved) = self.snapshot();
        let server_switches = switches.entry(server.clone()).or_default();
        for pattern in patterns {
            match enabled {
                Some(enabled) => server_switches.insert(pattern.clone(), enabled),
                None => server_switches.remove(pattern),
            };
            // Enabling a set by its name approves its current declaration.
            if let Some(approved) = approved.get_mut(server).filter(|_| enabled == Some(true)) {
                approved.retain(|name, _| !pattern.is_exact() || name != pattern.as_str());
            }
        }
        switches.retain(|_, server_switches| !server_switches.is_empty());
        if switches.values().map(BTreeMap::len).sum::<usize>() > SWITCHES_MAX {
            return Err(SwitchError::TooMany);
        }
        let named: Vec<&str> = patterns.iter().map(SetPattern::as_str).collect();
        let details = json!({"sets": named, "enabled": enabled});
        let trace = TraceId::from_random(randomness::random_bytes());
        let record = new_event(
            EventType::FEATURE_SETS_SWITCHED,
            by,
            server_target(server),
            &trace,
            Outcome::Success,
            details,
        );
        self.audit.record_decision(record).await?;
        self.write(render_file(&switches, &approved)).await?;
        let mut state = self.lock_state();
        state.switches = switches;
        if enabled == Some(true)
            && let Some(server_switches) = state.approved.get_mut(server)
        {
            let exact = |name: &String| {
                patterns
                    .iter()
                    .any(|it| it.is_exact() && it.as_str() == name)
            };
            server_switches.retain(|name, _| !exact(name));
        }
        Ok(self.reevaluate(&mut state))
    }

    /// The pending declarations of a server's sets: the current and the approved one of each.
    #[must_use]
    pub(crate) fn pending_declarations(
        &self,
        server: &ServerId,
    ) -> BTreeMap<String, (FeatureSet, FeatureSet)> {
        let state = self.lock_state();
        let connection = state
            .connections
            .get(server)
            .and_then(|connections| connections.last());
        let sets = connection
            .iter()
            .flat_map(|connection| &connection.sets.sets);
        let waits = sets.filter_map(|(name, held)| {
            let approved = held.approved.clone()?;
            Some((name.clone(), (held.declared.clone(), approved)))
        });
        waits.collect()
    }

    /// Applies the operator's decision about these declarations. An approval is persisted before it takes effect. Returns the
    /// servers whose sets changed.
    ///
    /// # Errors
    /// [`SwitchError`]: nothing has changed then.
    pub(crate) async fn decide(
        &self,
        server: &ServerId,
        declared: ApprovedSets,
        is_approved: bool,
    ) -> Result<Vec<ServerId>, SwitchError> {
        let _lock = self.write_lock.lock().await;
        let names: Vec<&String> = declared.keys().collect();
        let record = new_event(
            EventType::FEATURE_SETS_SWITCHED,
            operator_actor(),
            server_target(server),
            &TraceId::from_random(randomness::random_bytes()),
            if is_approved {
                Outcome::Success
            } else {
                Outcome::Denied
            },
            json!({"declared_anew": names, "approved": is_approved}),
        );
        self.audit.record_decision(record).await?;
        if !is_approved {
            return Ok(Vec::new());
        }
        let (switches, mut approved) = self.snapshot();
        approved
            .entry(server.clone())
            .or_default()
            .extend(declared.clone());
        self.write(render_file(&switches, &approved)).await?;
        let mut state = self.lock_state();
        state
            .approved
            .entry(server.clone())
            .or_default()
            .extend(declared);
        Ok(self.reevaluate(&mut state))
    }

    /// Stores the declarations that were approved with the first ones of enabled sets, if they changed.
    pub(crate) async fn save(&self) {
        if !self.lock_state().unsaved {
            return;
        }
        let _lock = self.write_lock.lock().await;
        if !std::mem::take(&mut self.lock_state().unsaved) {
            return;
        }
        let (switches, approved) = self.snapshot();
        if let Err(error) = self.write(render_file(&switches, &approved)).await {
            self.lock_state().unsaved = true;
            tracing::error!(%error, "cannot store the declarations of feature sets; changes while the kernel is down are not detected");
        }
    }

    async fn write(&self, text: String) -> Result<(), SwitchError> {
        let file = self.file.clone();
        let wrote = task::run_blocking("mcpl.switch", move || write_file(&file, &text)).await;
        match wrote {
            Ok(Ok(())) => {
                self.witness.settle_presence();
                Ok(())
            }
            Ok(Err(why)) => Err(SwitchError::Disk(why)),
            Err(broken) => Err(SwitchError::Disk(broken.to_string())),
        }
    }

    fn snapshot(&self) -> StoredSets {
        let state = self.lock_state();
        (state.switches.clone(), state.approved.clone())
    }

    fn reevaluate(&self, state: &mut FeatureSetState) -> Vec<ServerId> {
        let mut changed = Vec::new();
        let mut updates = Vec::new();
        let mut all = std::mem::take(&mut state.connections);
        for (server, connections) in &mut all {
            for connection in connections.iter_mut() {
                let mut sets = ServerSets::clone(&connection.sets);
                state.evaluate_with(server, |rules, switches, approved| {
                    sets.reevaluate(rules, switches, approved);
                });
                if sets == *connection.sets {
                    continue;
                }
                connection.set_sets(Arc::new(sets));
                let link = connection.link.upgrade();
                updates.extend(link.map(|link| (link, connection.sets.clone())));
                if changed.last() != Some(server) {
                    changed.push(server.clone());
                }
            }
        }
        state.connections = all;
        self.publish(state);
        for (link, sets) in updates {
            send_update(&link, &sets);
        }
        changed
    }

    fn publish(&self, state: &FeatureSetState) {
        let servers = state.connections.iter();
        let servers = servers.filter_map(|(id, connections)| {
            Some((id.clone(), connections.last()?.in_force.clone()))
        });
        let servers: BTreeMap<_, _> = servers.collect();
        self.has_connections
            .store(!servers.is_empty(), Ordering::Relaxed);
        self.sets.store(Arc::new(FeatureSets { servers }));
    }

    fn lock_state(&self) -> MutexGuard<'_, FeatureSetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FeatureSetState {
    /// Evaluates a server's sets against the operator's settings, and records the approvals that these imply.
    fn evaluate_with<T>(
        &mut self,
        server: &ServerId,
        evaluate: impl FnOnce(Option<&McplServerRules>, Option<&Switches>, &mut ApprovedSets) -> T,
    ) -> T {
        let before = self.approved.get(server).cloned().unwrap_or_default();
        let mut approved = before.clone();
        let (rules, switches) = (self.rules.servers.get(server), self.switches.get(server));
        let evaluated = evaluate(rules, switches, &mut approved);
        if approved != before {
            self.unsaved = true;
            self.approved.insert(server.clone(), approved);
            self.approved.retain(|_, approved| !approved.is_empty());
        }
        evaluated
    }
}

/// Notifies a server of 0.4. One of 0.5 gets a request, for [`FeatureSetStore::take_unsent_grants`].
fn send_update(link: &Arc<Link>, sets: &ServerSets) {
    if sets.abilities.version == McplVersion::V0_5 {
        return;
    }
    let params = serde_json::to_string(&sets.update()).expect("an update is always JSON");
    link.notify(Update::METHOD, Some(&params));
}

fn now_ms() -> u64 {
    u64::try_from(monotonic_now().since_start().as_millis()).unwrap_or(u64::MAX)
}

fn parse_file(text: &str) -> Result<StoredSets, String> {
    let file: SwitchFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if file.version != FILE_VERSION {
        return Err(format!(
            "it is of version {}, this kernel reads {FILE_VERSION}",
            file.version
        ));
    }
    let servers = file.servers.into_iter().map(|(server, switches)| {
        let switches = switches.into_iter().map(|(pattern, enabled)| {
            let pattern = SetPattern::parse(&pattern).map_err(|error| error.to_string())?;
            Ok((pattern, enabled))
        });
        Ok((server, switches.collect::<Result<_, String>>()?))
    });
    Ok((servers.collect::<Result<_, String>>()?, file.approved))
}

fn render_file(
    switches: &BTreeMap<ServerId, Switches>,
    approved: &BTreeMap<ServerId, ApprovedSets>,
) -> String {
    let servers = switches.iter().map(|(server, switches)| {
        let switches = switches
            .iter()
            .map(|(pattern, on)| (pattern.as_str().to_owned(), *on));
        (server.clone(), switches.collect())
    });
    let file = SwitchFile {
        version: FILE_VERSION,
        servers: servers.collect(),
        approved: approved.clone(),
    };
    serde_json::to_string_pretty(&file).expect("switches are always JSON")
}

fn write_file(file: &std::path::Path, text: &str) -> Result<(), String> {
    if let Some(folder) = file.parent() {
        atomic_file::create_folder(folder).map_err(|error| explain_io_error(folder, &error))?;
    }
    atomic_file::write(file, text.as_bytes()).map_err(|error| explain_io_error(file, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_switches_round_trip() {
        let text = r#"{"version":1,"servers":{"memory":{"memory.*":true,"memory.secret":false}}}"#;
        let (switches, approved) = parse_file(text).unwrap();
        let again = parse_file(&render_file(&switches, &approved)).unwrap();
        assert_eq!((&switches, &approved), (&again.0, &again.1));
        assert_eq!(switches[&ServerId::new("memory")].len(), 2);
        for bad in [
            "",
            "{}",
            r#"{"version":2,"servers":{}}"#,
            r#"{"version":1,"servers":{"a":{"b*":true}}}"#,
        ] {
            assert!(parse_file(bad).is_err(), "{bad}");
        }
    }
}
