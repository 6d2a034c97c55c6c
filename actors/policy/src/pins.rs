//! Pins of tool definitions on disk: one file for each server, read when the server first lists its tools.
//! Used by supervisors and calls; asks the operator through approvals, and writes to the audit log.
//!
//! A server's tools are compared with its file before agents see them. Files are read and written on the threads that
//! read lists, not on those that carry calls.

mod last_lists;
mod listing;
mod pin_file;
mod scan;

use mgp_runtime::task::SupervisedTask;
use mgp_runtime::{EventSink, TaskSupervisorHandle, randomness, task};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mgp_engine::policy::approvals::{PendingEntry, Requester};
use mgp_engine::policy::pins::{
    Definition, DefinitionKind, DefinitionPart, Effect, Pin, PinApprovalError, PinMode, PinRules,
};
use mgp_engine::tool_names;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::feature_sets::tool_feature_set;
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::mgp::audit::{EventType, Outcome, Target, TraceId};
use mgp_protocol::mgp::permission::Verdict;
use mgp_screening::definitions::Judgement;
use mgp_sync::Snapshot;
use serde_json::json;

pub use self::last_lists::LastLists;
use self::pin_file::PinFile;
use self::scan::{Scan, ToolNames};
use crate::approvals::{ApprovalsHandle, Decider, OperatorAnswer, PendingEntryGuard};
use mgp_store::audit::{self, AuditHandle};

/// Most characters of a definition at first sight that are shown; `mgp servers scan` has all.
const SHOWN_MAX: usize = 2_000;
/// Most findings of a definition that are shown.
const REASONS_MAX: usize = 5;

/// A shared handle to the pins.
#[derive(Debug, Clone)]
pub struct PinsHandle(Arc<SharedPins>);

#[derive(Debug)]
struct SharedPins {
    folder: PathBuf,
    servers: Mutex<HashMap<ServerId, Arc<Mutex<ServerPins>>>>,
    blocked: Snapshot<Blocked>,
    /// Changes of `blocked`, counted after they are published.
    block_changes: AtomicU64,
    earlier_sets: Snapshot<HashMap<ServerId, Arc<EarlierSets>>>,
    /// What persons confirmed of tools; read by each call through a finding tool.
    effects: Snapshot<HashMap<ServerId, Arc<Effects>>>,
    /// What servers' tools are called, without blocked ones: names of others that are almost the same are held.
    tool_names: Snapshot<ToolNames>,
    /// Servers whose tools are not pinned.
    unpinned: Snapshot<BTreeSet<ServerId>>,
    approvals: ApprovalsHandle,
    audit: AuditHandle,
    on_decided: EventSink<ServerId>,
    supervisor: TaskSupervisorHandle,
}

/// Tools that are neither listed nor callable, by server and own name. Published, so that calls never wait for a file.
type Blocked = HashMap<ServerId, Arc<BTreeSet<String>>>;

/// Confirmed effects, by the tools' own names.
type Effects = BTreeMap<String, Effect>;

/// The feature set that a tool belongs to until its new definition is approved (MCPL §6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlierSet {
    /// The set in its approved definition, if that names one.
    Approved(Option<String>),
    /// The approved definition was too long to store.
    Unknown,
}

/// By the tools' own names.
type EarlierSets = BTreeMap<String, EarlierSet>;

#[derive(Debug, Default)]
struct ServerPins {
    pin_file: Option<PinFile>,
    /// How changes are handled; set once the tools were listed.
    rules: Option<PinRules>,
    /// The current definitions of the changed tools.
    changed: BTreeMap<String, Definition>,
    /// All definitions that were compared last, shared with the catalog; none before the first list.
    listed: Option<Vec<Definition>>,
    /// The pending entry.
    open_entry: Option<OpenPinEntry>,
}

#[derive(Debug)]
struct OpenPinEntry {
    changed: BTreeMap<String, Pin>,
    /// Dropping it withdraws the entry.
    _task: SupervisedTask<()>,
}

/// A changed tool, with its current definition.
struct ToolChange {
    tool: Definition,
    pin: Pin,
    changed: Vec<DefinitionPart>,
    is_new: bool,
    is_blocked: bool,
    /// No definition of it was ever approved.
    is_first: bool,
    /// What the scan found.
    judged: Judgement,
}

impl PinsHandle {
    /// Stores pins in `folder`, which is created when needed. `on_decided` receives each server about whose tools the
    /// operator has decided. Pending entries are tasks of `supervisor`.
    #[must_use]
    pub fn new(
        folder: PathBuf,
        approvals: ApprovalsHandle,
        audit: AuditHandle,
        decided: EventSink<ServerId>,
        supervisor: TaskSupervisorHandle,
    ) -> Self {
        Self(Arc::new(SharedPins {
            folder,
            servers: Mutex::default(),
            blocked: Snapshot::new(Blocked::new()),
            block_changes: AtomicU64::default(),
            earlier_sets: Snapshot::new(HashMap::new()),
            effects: Snapshot::new(HashMap::new()),
            tool_names: Snapshot::new(ToolNames::new()),
            unpinned: Snapshot::new(BTreeSet::new()),
            approvals,
            audit,
            on_decided: decided,
            supervisor,
        }))
    }

    /// Compares the listed tools of a server with its pins. Blocks: not for a thread that carries calls.
    ///
    /// # Errors
    /// The server's file cannot be used, so its tools are unknown.
    pub fn compare(
        &self,
        server: &ServerId,
        tools: impl IntoIterator<Item = impl Into<Definition>>,
        rules: &PinRules,
    ) -> Result<(), String> {
        let tools: Vec<Definition> = tools.into_iter().map(Into::into).collect();
        let tools = &*tools;
        let server_pins = self.0.server_pins(server);
        let mut server_pins = lock(&server_pins);
        server_pins.listed = Some(tools.to_vec());
        let mode = rules.mode;
        server_pins.rules = Some(rules.clone());
        server_pins.changed.clear();
        self.0.set_unpinned(server, mode == PinMode::Off);
        if mode == PinMode::Off {
            self.0.block(server, BTreeSet::new());
            self.0.set_earlier(server, EarlierSets::new());
            self.0.set_effects(server, Effects::new());
            server_pins.open_entry = None;
            return Ok(());
        }
        if server_pins.pin_file.is_none() {
            server_pins.pin_file = Some(PinFile::read(&self.0.folder, server)?);
        }
        let pin_file = server_pins.pin_file.as_mut().expect("it was read");
        let known_names = self.0.tool_names.load();
        let scan = Scan::new(server, &known_names);
        let (changes, mut names) = pin_file.compare(server, tools, rules, &scan);
        if let Err(error) = pin_file.save(tools, rules) {
            tracing::error!(%server, %error, "cannot write the pins; changes while the kernel is down are not detected");
        }
        let blocked = changes.iter().filter(|change| change.is_blocked);
        names.extend(blocked.map(|change| change.tool.own_name.to_string()));
        self.0.set_tool_names(server, tools, &names);
        self.0.block(server, names);
        self.0
            .set_earlier(server, earlier_sets(&changes, || pin_file.texts()));
        self.0.set_effects(server, pin_file.effects());
        let current = |change: &ToolChange| (change.tool.own_name.to_string(), change.tool.clone());
        server_pins.changed = changes.iter().map(current).collect();
        for change in changes.iter().filter(|change| change.is_new) {
            self.0.report_change(server, change);
        }
        self.0.ask_operator(server, &mut server_pins, &changes);
        Ok(())
    }

    /// The approved definitions among the tools that a server listed last; none if tools are not pinned. Blocks: not for
    /// a thread that carries calls.
    #[must_use]
    pub fn last_list(&self, server: &ServerId, rules: &PinRules) -> Vec<Arc<str>> {
        if rules.mode == PinMode::Off {
            return Vec::new();
        }
        // Errors of the file are reported when the server lists its tools.
        PinFile::last_list(&self.0.folder, server).unwrap_or_default()
    }

    /// The lists of the last run of a server that starts on demand, if it has this command line or URL. Blocks: not for
    /// a thread that carries calls.
    #[must_use]
    pub fn last_lists(&self, server: &ServerId, command: &[String]) -> Option<LastLists> {
        LastLists::read(&self.0.folder, server, command)
    }

    /// Stores the lists of a server that starts on demand. On disk when this returns. Blocks: not for a thread that
    /// carries calls.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_last_lists(&self, server: &ServerId, lists: &LastLists) -> std::io::Result<()> {
        let server_pins = self.0.server_pins(server);
        let _one_writer = lock(&server_pins);
        lists.save(&self.0.folder, server)
    }

    /// The rules with which the server's list was compared last. Blocks: not for a thread that carries calls.
    #[must_use]
    pub fn rules(&self, server: &ServerId) -> PinRules {
        let server_pins = self.0.server_pins(server);
        let rules = lock(&server_pins).rules.clone();
        rules.unwrap_or_default()
    }

    /// Deletes the pins of a removed server, so that they do not apply to another server with its name. Blocks: not for
    /// a thread that carries calls.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn forget(&self, server: &ServerId) -> std::io::Result<()> {
        let server_pins = self.0.lock_servers().remove(server);
        let mut server_pins = server_pins.as_ref().map(|server_pins| lock(server_pins));
        if let Some(server_pins) = &mut server_pins {
            **server_pins = ServerPins::default();
        }
        self.0.block(server, BTreeSet::new());
        self.0.set_earlier(server, EarlierSets::new());
        self.0.set_effects(server, Effects::new());
        self.0.set_unpinned(server, false);
        self.0.set_tool_names(server, &[], &BTreeSet::new());
        LastLists::remove(&self.0.folder, server)?;
        PinFile::remove(&self.0.folder, server)
    }

    /// The blocked tools of a server, by their own names. They are neither listed nor callable.
    #[must_use]
    pub fn blocked(&self, server: &ServerId) -> Arc<BTreeSet<String>> {
        self.0.blocked(server)
    }

    /// Whether anything is blocked.
    #[must_use]
    pub fn has_blocked(&self) -> bool {
        !self.0.blocked.load().is_empty()
    }

    /// How often what is blocked has changed.
    #[must_use]
    pub fn block_changes(&self) -> u64 {
        self.0.block_changes.load(Ordering::Acquire)
    }

    /// Whether a tool is blocked.
    #[must_use]
    pub fn is_blocked(&self, server: &ServerId, tool: &str) -> bool {
        let blocked = self.0.blocked.load();
        !blocked.is_empty()
            && blocked
                .get(server)
                .is_some_and(|names| names.contains(tool))
    }

    /// Whether changed tools of a server are accepted unchecked, with any feature set they name.
    #[must_use]
    pub fn is_unpinned(&self, server: &ServerId) -> bool {
        self.0.unpinned.load().contains(server)
    }

    /// The approved feature set of a changed tool; `None` if its current definition counts.
    #[must_use]
    pub fn earlier_set(&self, server: &ServerId, tool: &str) -> Option<EarlierSet> {
        self.0.earlier_sets.load().get(server)?.get(tool).cloned()
    }

    /// What a person confirmed of a tool; `None` if it may destroy.
    #[must_use]
    pub fn effect(&self, server: &ServerId, tool: &str) -> Option<Effect> {
        self.0.effects.load().get(server)?.get(tool).copied()
    }

    /// Whether the effect of any tool was confirmed.
    #[must_use]
    pub fn has_effects(&self) -> bool {
        !self.0.effects.load().is_empty()
    }

    /// The server and own name of the blocked tool that `name` refers to.
    #[must_use]
    pub fn find_blocked_tool(&self, view: &CatalogView, name: &str) -> Option<(ServerId, String)> {
        let blocked = self.0.blocked.load();
        let matches_name = |server: &ServerId, tool: &str| match view {
            CatalogView::One(one) => one == server && tool == name,
            CatalogView::All | CatalogView::Set(_) => {
                tool_names::canonical_name(server, tool) == name
                    || tool_names::visible_name(server, tool) == name
            }
        };
        blocked.iter().find_map(|(server, tools)| {
            let tool = tools.iter().find(|tool| matches_name(server, tool))?;
            Some((server.clone(), tool.clone()))
        })
    }
}

/// The sets of changed tools, by their approved definitions.
fn earlier_sets(
    changes: &[ToolChange],
    texts: impl FnOnce() -> BTreeMap<String, Box<str>>,
) -> EarlierSets {
    if changes.is_empty() {
        return EarlierSets::new();
    }
    let texts = texts();
    let sets = changes.iter().filter_map(|change| {
        let name = &*change.tool.own_name;
        let earlier = match texts.get(name) {
            Some(text) => EarlierSet::Approved(tool_feature_set(text)),
            None if change.changed.contains(&DefinitionPart::Other) => EarlierSet::Unknown,
            None => return None,
        };
        Some((name.to_owned(), earlier))
    });
    sets.collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedPins {
    fn lock_servers(&self) -> MutexGuard<'_, HashMap<ServerId, Arc<Mutex<ServerPins>>>> {
        lock(&self.servers)
    }

    /// Bounded by the number of servers.
    fn server_pins(&self, server: &ServerId) -> Arc<Mutex<ServerPins>> {
        self.lock_servers()
            .entry(server.clone())
            .or_default()
            .clone()
    }

    fn blocked(&self, server: &ServerId) -> Arc<BTreeSet<String>> {
        self.blocked.load().get(server).cloned().unwrap_or_default()
    }

    /// Blocks exactly these tools of the server. Its pins must be locked.
    fn block(&self, server: &ServerId, names: BTreeSet<String>) {
        if *self.blocked(server) == names {
            return;
        }
        self.blocked.update(|blocked| {
            let mut blocked = blocked.clone();
            if names.is_empty() {
                blocked.remove(server)
            } else {
                blocked.insert(server.clone(), Arc::new(names))
            };
            blocked
        });
        self.block_changes.fetch_add(1, Ordering::Release);
    }

    /// Publishes the sets of the server's changed tools. Its pins must be locked.
    fn set_earlier(&self, server: &ServerId, sets: EarlierSets) {
        let known = self.earlier_sets.load();
        if known
            .get(server)
            .map_or(sets.is_empty(), |known| **known == sets)
        {
            return;
        }
        self.earlier_sets.update(|earlier| {
            let mut earlier = earlier.clone();
            if sets.is_empty() {
                earlier.remove(server)
            } else {
                earlier.insert(server.clone(), Arc::new(sets))
            };
            earlier
        });
    }

    /// Publishes the confirmed effects of the server's tools. Its pins must be locked.
    fn set_effects(&self, server: &ServerId, effects: Effects) {
        let known = self.effects.load();
        if known
            .get(server)
            .map_or(effects.is_empty(), |known| **known == effects)
        {
            return;
        }
        self.effects.update(|known| {
            let mut known = known.clone();
            if effects.is_empty() {
                known.remove(server)
            } else {
                known.insert(server.clone(), Arc::new(effects))
            };
            known
        });
    }

    /// Publishes what the server's tools are called. Its pins must be locked.
    fn set_tool_names(&self, server: &ServerId, tools: &[Definition], blocked: &BTreeSet<String>) {
        let tools = tools
            .iter()
            .filter(|tool| tool.kind == DefinitionKind::Tool);
        let names = tools.map(|tool| tool.own_name.to_string());
        let names: BTreeSet<String> = names.filter(|name| !blocked.contains(name)).collect();
        let known = self.tool_names.load();
        if known
            .get(server)
            .map_or(names.is_empty(), |known| **known == names)
        {
            return;
        }
        self.tool_names.update(|known| {
            let mut known = known.clone();
            if names.is_empty() {
                known.remove(server)
            } else {
                known.insert(server.clone(), Arc::new(names))
            };
            known
        });
    }

    fn set_unpinned(&self, server: &ServerId, is_unpinned: bool) {
        if self.unpinned.load().contains(server) == is_unpinned {
            return;
        }
        self.unpinned.update(|unpinned| {
            let mut unpinned = unpinned.clone();
            if is_unpinned {
                unpinned.insert(server.clone())
            } else {
                unpinned.remove(server)
            };
            unpinned
        });
    }

    /// Reports a new change in the kernel's log and the audit log.
    fn report_change(&self, server: &ServerId, change: &ToolChange) {
        let parts: Vec<String> = change.changed.iter().map(ToString::to_string).collect();
        let (tool, parts) = (&change.tool.own_name, parts.join(", "));
        tracing::warn!(%server, %tool, changed = parts, blocked = change.is_blocked, "a definition changed");
        let mut details = json!({"changed": parts, "blocked": change.is_blocked});
        match change.tool.kind {
            DefinitionKind::Tool => {}
            DefinitionKind::Skill | DefinitionKind::NestedSkill => details["kind"] = "skill".into(),
            DefinitionKind::Prompt => details["kind"] = "prompt".into(),
            DefinitionKind::Instructions => details["kind"] = "instructions".into(),
        }
        if change.judged.is_held() {
            details["score"] = change.judged.score.into();
            details["acts"] = change.judged.acts().collect();
        }
        let result = if change.is_blocked {
            Outcome::Blocked
        } else {
            Outcome::Success
        };
        self.record_event(
            EventType::TOOL_CHANGED,
            audit::kernel_actor(),
            (server, tool),
            &TraceId::from_random(randomness::random_bytes()),
            result,
            details,
        );
    }

    fn record_event(
        &self,
        event_type: EventType,
        actor: mgp_protocol::mgp::audit::Actor,
        (server, tool): (&ServerId, &str),
        trace: &TraceId,
        result: Outcome,
        details: serde_json::Value,
    ) {
        let target = Target {
            server_id: Some(server.to_string()),
            tool_name: Some(tool.to_owned()),
            agent_id: None,
        };
        self.audit.record(audit::new_event(
            event_type, actor, target, trace, result, details,
        ));
    }

    /// Adds one entry for each server, with its tools as parts. An entry's id stands for definitions that the operator
    /// read: when they change, the entry is replaced by a new one.
    fn ask_operator(
        self: &Arc<Self>,
        server: &ServerId,
        server_pins: &mut ServerPins,
        changes: &[ToolChange],
    ) {
        let pin_file = server_pins.pin_file.as_ref().expect("it was read");
        let open = changes
            .iter()
            .filter(|c| pin_file.is_pending(server, &c.tool.own_name));
        let open: Vec<&ToolChange> = open.collect();
        let changed: BTreeMap<String, Pin> = open
            .iter()
            .map(|change| (change.tool.own_name.to_string(), change.pin))
            .collect();
        if server_pins
            .open_entry
            .as_ref()
            .is_some_and(|entry| entry.changed == changed)
        {
            return;
        }
        server_pins.open_entry = None;
        if changed.is_empty() {
            return;
        }
        let old = pin_file.texts();
        let meanwhile = if open.iter().any(|change| !change.is_blocked) {
            "until you decide, agents use the new definition"
        } else {
            "until you decide, agents cannot use it"
        };
        let differences = open.iter().flat_map(|change| {
            let tool = &*change.tool.own_name;
            let old = old.get(tool).map(|text| &**text);
            render_change(change, old)
        });
        let details = std::iter::once(meanwhile.to_owned()).chain(differences);
        let entry = PendingEntry {
            subject: Subject::Pins,
            requester: Requester::Server(server.clone()),
            server: Some(server.clone()),
            text: describe_changes(server, &open),
            details: details.collect(),
            parts: changed.keys().cloned().collect(),
            options: None,
            expires_ms: None,
        };
        match self.approvals.add(entry.clone()) {
            // The entry is added again when the tools are listed next.
            Err(error) => {
                tracing::warn!(%server, full = %error, "cannot ask the operator about changed tools")
            }
            Ok(guard) => {
                let waiter = PinEntryTask {
                    shared: Arc::downgrade(self),
                    server: server.clone(),
                    changed: changed.clone(),
                    texts: open
                        .iter()
                        .map(|c| (c.tool.own_name.to_string(), c.tool.clone()))
                        .collect(),
                };
                let (approvals, mut guard) = (self.approvals.clone(), Some(guard));
                let start = move || {
                    let guard = guard.take().or_else(|| approvals.add(entry.clone()).ok());
                    let waiter = waiter.clone();
                    async move {
                        if let Some(guard) = guard {
                            waiter.run(guard).await;
                        }
                    }
                };
                // Lists are read on a thread of the same runtime.
                let _task = self.supervisor.start_child("pins.question", start);
                server_pins.open_entry = Some(OpenPinEntry { changed, _task });
            }
        }
    }
}

/// What changed, and what the scan found. Of a definition that was never approved the text is shown.
fn render_change(change: &ToolChange, old: Option<&str>) -> Vec<String> {
    let mut lines = match change.is_first && change.tool.kind != DefinitionKind::NestedSkill {
        true => {
            let shown: String = change.tool.text.chars().take(SHOWN_MAX).collect();
            vec![format!("{}: {shown}", change.tool.own_name)]
        }
        false => change.tool.render_diff(old, &change.changed),
    };
    if change.judged.is_held() {
        lines.push(format!("  scan: {}", change.judged.score));
        lines.extend(
            change
                .judged
                .reasons()
                .take(REASONS_MAX)
                .map(|it| format!("  {it}")),
        );
    }
    lines
}

/// What waits for the operator, in one sentence.
fn describe_changes(server: &ServerId, open: &[&ToolChange]) -> String {
    let names: Vec<&str> = open.iter().map(|change| &*change.tool.own_name).collect();
    let names = names.join(", ");
    let is_new = |change: &&ToolChange| change.tool.kind == DefinitionKind::NestedSkill;
    match open {
        _ if open.iter().all(|change| change.is_first && !is_new(change)) => {
            format!("server {server} offers what reads like orders beyond its own calls: {names}")
        }
        _ if open.iter().any(is_new) => {
            format!("server {server} has changed or nested skills that were not approved: {names}")
        }
        [_] => format!("server {server} has changed {names} since it was approved"),
        _ => format!("server {server} has changed {names} since they were approved"),
    }
}

/// Waits for the answers about changed tools.
#[derive(Clone)]
struct PinEntryTask {
    shared: Weak<SharedPins>,
    server: ServerId,
    changed: BTreeMap<String, Pin>,
    texts: BTreeMap<String, Definition>,
}

impl PinEntryTask {
    async fn run(mut self, mut guard: PendingEntryGuard) {
        while let Some(answer) = guard.next_answer().await {
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            if answer.verdict == Verdict::Deferred {
                answer.report_applied();
                continue;
            }
            let decided = self.decide(&shared, &answer).await;
            if let Err(why) = decided {
                answer.report_failed(why);
                continue;
            }
            for part in &answer.parts {
                self.changed.remove(part);
            }
            let left: Vec<String> = self.changed.keys().cloned().collect();
            if left.is_empty() {
                guard.close()
            } else {
                guard.narrow(&left)
            }
            answer.report_applied();
            shared.on_decided.send(self.server.clone());
            if left.is_empty() {
                return;
            }
        }
    }

    async fn decide(
        &self,
        shared: &Arc<SharedPins>,
        answer: &OperatorAnswer,
    ) -> Result<(), String> {
        let pins = answer.parts.iter().filter_map(|part| {
            let pin = self.changed.get(part)?;
            Some((self.texts.get(part)?.clone(), *pin))
        });
        let pins: Vec<(Definition, Pin)> = pins.collect();
        let (shared, server) = (shared.clone(), self.server.clone());
        let (verdict, Decider { name: by, trace }) = (answer.verdict, answer.decider.clone());
        let deciding = task::run_blocking("pins.decide", move || {
            let server_pins = shared.server_pins(&server);
            let mut server_pins = lock(&server_pins);
            let ServerPins {
                pin_file,
                open_entry: pending,
                rules,
                ..
            } = &mut *server_pins;
            let rules = rules.clone().unwrap_or_default();
            let pin_file = pin_file.as_mut().ok_or("its tools are not known")?;
            for (tool, pin) in &pins {
                let decided: Result<(), PinApprovalError> = match verdict {
                    Verdict::Approved => pin_file.approve(&server, &tool.own_name, *pin, &by),
                    Verdict::Denied | Verdict::Deferred => {
                        pin_file.deny(&server, &tool.own_name, *pin)
                    }
                };
                decided.map_err(|error| error.to_string())?;
            }
            let tools: Vec<_> = pins.iter().map(|(tool, _)| tool.clone()).collect();
            pin_file
                .save(&tools, &rules)
                .map_err(|e| format!("cannot write the pins: {e}"))?;
            let mut blocked = BTreeSet::clone(&shared.blocked(&server));
            let earlier = shared.earlier_sets.load().get(&server).cloned();
            let mut earlier = earlier
                .map(|sets| EarlierSets::clone(&sets))
                .unwrap_or_default();
            for (tool, _) in &pins {
                let name = tool.own_name.to_string();
                if let Some(pending) = pending {
                    pending.changed.remove(&name);
                }
                let (event_type, result) = match verdict {
                    Verdict::Approved => (EventType::TOOL_APPROVED, Outcome::Success),
                    Verdict::Denied | Verdict::Deferred => {
                        (EventType::TOOL_DENIED, Outcome::Denied)
                    }
                };
                let details = json!({"decided_by": by});
                shared.record_event(
                    event_type,
                    audit::operator_actor(),
                    (&server, &name),
                    &trace,
                    result,
                    details,
                );
                match verdict {
                    Verdict::Approved => {
                        earlier.remove(&name);
                        blocked.remove(&name)
                    }
                    Verdict::Denied | Verdict::Deferred => blocked.insert(name),
                };
            }
            shared.block(&server, blocked);
            shared.set_earlier(&server, earlier);
            shared.set_effects(&server, pin_file.effects());
            Ok::<(), String>(())
        });
        deciding.await.map_err(|e| e.to_string())?
    }
}
