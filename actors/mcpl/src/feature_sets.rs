//! Which feature sets are enabled at which server, published (MCPL §6).
//!
//! A server is told in the order in which things change: whatever changes its sets publishes them and tells it
//! under one lock, in which nothing waits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mgp_mcpl_engine::feature_sets::{ChangeBudget, FeatureSets, ServerSets};
use mgp_mcpl_engine::policy::{McplServerRules, SetPattern, Switches};
use mgp_mcpl_engine::rules::McplRules;
use mgp_protocol::ids::ServerId;
use mgp_protocol::lookalike;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::feature_sets::{Changed, DeclaredSets, Update};
use mgp_protocol::mgp::audit::{Actor, EventType, Outcome, TraceId};
use mgp_runtime::time::moment;
use mgp_runtime::{randomness, task};
use mgp_servers::link::Link;
use mgp_store::audit::{AuditHandle, NotWritten, event};
use mgp_store::{atomic_file, trouble::explained, witnesses::Witness};
use mgp_sync::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::audit::target;

/// Switches of all servers together. A person made each.
const SWITCHES_MAX: usize = 4096;
/// Lives of one server that may be connected at once: one that leaves and one that comes, and one to spare.
const LIVES_MAX: usize = 4;

/// Which sets are enabled where, and what decides it.
#[derive(Debug)]
pub struct SetKeeper {
    sets: Arc<Snapshot<FeatureSets>>,
    any: AtomicBool,
    book: Mutex<SetBook>,
    /// Held while switches are written, so that one change follows another.
    writing: tokio::sync::Mutex<()>,
    file: PathBuf,
    witness: Witness,
    audit: AuditHandle,
}

#[derive(Debug, Default)]
struct SetBook {
    rules: McplRules,
    switches: BTreeMap<ServerId, Switches>,
    lives: BTreeMap<ServerId, Vec<ConnectedLife>>,
}

/// A connection of a server that speaks MCPL; the last one is in force.
#[derive(Debug)]
struct ConnectedLife {
    number: u64,
    link: Weak<Link>,
    sets: Arc<ServerSets>,
    changes: ChangeBudget,
    warned: bool,
}

/// The file of switches.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchFile {
    version: u32,
    servers: BTreeMap<ServerId, BTreeMap<String, bool>>,
}

/// The version of the file that this kernel writes.
const FILE_VERSION: u32 = 1;

/// Why sets were not switched.
#[derive(Debug, thiserror::Error)]
pub enum NotSwitched {
    /// Too many.
    #[error("there are {SWITCHES_MAX} switches already; `mgp mcpl sets reset` takes one back")]
    TooMany,
    /// The audit log.
    #[error(transparent)]
    NotAudited(#[from] NotWritten),
    /// The disk.
    #[error("{0}")]
    Disk(String),
}

impl SetKeeper {
    /// Reads what was switched before. The file is made at the first switch.
    ///
    /// # Errors
    /// A file that cannot be read, in words: nobody knows what was switched off.
    pub fn open(file: PathBuf, witness: Witness, audit: AuditHandle) -> Result<Self, String> {
        let switches = match std::fs::read_to_string(&file) {
            Ok(text) => switches(&text).map_err(|why| {
                format!(
                    "{}: {why}; put a copy back, or remove it: then only [mcpl] of mgp.toml counts",
                    file.display()
                )
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(explained(&file, &error)),
        };
        Ok(Self {
            sets: Arc::new(Snapshot::new(FeatureSets::default())),
            any: AtomicBool::new(false),
            book: Mutex::new(SetBook {
                rules: McplRules::default(),
                switches,
                lives: BTreeMap::new(),
            }),
            writing: tokio::sync::Mutex::default(),
            file,
            witness,
            audit,
        })
    }

    /// The sets of the servers that speak MCPL now.
    #[must_use]
    pub fn published(&self) -> &Arc<Snapshot<FeatureSets>> {
        &self.sets
    }

    /// False while no server speaks MCPL.
    #[must_use]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> McplRules {
        self.book().rules.clone()
    }

    /// What was switched at the command line.
    #[must_use]
    pub fn switches(&self) -> BTreeMap<ServerId, Switches> {
        self.book().switches.clone()
    }

    /// The connection over which a server is spoken to in MCPL.
    #[must_use]
    pub fn link(&self, server: &ServerId) -> Option<Arc<Link>> {
        self.book().lives.get(server)?.last()?.link.upgrade()
    }

    /// Whether this connection is one of those it is spoken to over.
    #[must_use]
    pub fn knows(&self, server: &ServerId, number: u64) -> bool {
        let book = self.book();
        let lives = book.lives.get(server);
        lives.is_some_and(|lives| lives.iter().any(|life| life.number == number))
    }

    /// A server said who it is: its sets are decided, published and told, before anything else is.
    pub(crate) fn met(&self, server: &ServerId, link: &Arc<Link>) {
        let Some(said) = link.mcpl() else {
            return;
        };
        let mut book = self.book();
        let (rules, switches) = book.of(server);
        let sets = Arc::new(ServerSets::new(said, rules, switches));
        let life = ConnectedLife {
            number: link.number,
            link: Arc::downgrade(link),
            sets: sets.clone(),
            changes: ChangeBudget::full(now_ms()),
            warned: false,
        };
        let lives = book.lives.entry(server.clone()).or_default();
        if lives.len() >= LIVES_MAX {
            lives.remove(0);
        }
        lives.push(life);
        self.publish(&book);
        tell(link, &sets.update());
    }

    /// A connection is over. False when it was not known.
    pub(crate) fn gone(&self, server: &ServerId, number: u64) -> bool {
        let mut book = self.book();
        let Some(lives) = book.lives.get_mut(server) else {
            return false;
        };
        let before = lives.len();
        lives.retain(|life| life.number != number);
        let known = lives.len() < before;
        if lives.is_empty() {
            book.lives.remove(server);
        }
        self.publish(&book);
        known
    }

    /// The server declares other sets. False when nothing changed.
    pub(crate) fn changed(&self, server: &ServerId, number: u64, params: &str) -> bool {
        let mut guard = self.book();
        let book = &mut *guard;
        let (rules, switches) = (book.rules.servers.get(server), book.switches.get(server));
        let lives = book.lives.get_mut(server);
        let life = lives.and_then(|lives| lives.iter_mut().find(|life| life.number == number));
        let Some(life) = life else { return false };
        let Some(link) = life.link.upgrade() else {
            return false;
        };
        if !life.changes.take(now_ms()) {
            if !std::mem::replace(&mut life.warned, true) {
                link.log
                    .note("its feature sets change too often: these changes are not taken");
            }
            return false;
        }
        let changed: Changed<'_> = match lookalike::from_str(params) {
            Ok(changed) => changed,
            Err(error) => {
                link.log
                    .note(&format!("featureSets/changed cannot be read: {error}"));
                return false;
            }
        };
        let added = changed.added.map(|added| DeclaredSets::read(added.get()));
        let added = added.unwrap_or_default();
        added.rejected.iter().for_each(|why| link.log.note(why));
        let mut sets = ServerSets::clone(&life.sets);
        let left_out = sets.change(added.sets, changed.removed.iter());
        for name in left_out.iter().take(8) {
            link.log
                .note(&format!("feature set {name} is one too many"));
        }
        sets.judged(rules, switches);
        if sets == *life.sets {
            return false;
        }
        life.sets = Arc::new(sets);
        let update = life.sets.update();
        self.publish(book);
        tell(&link, &update);
        true
    }

    /// The configuration says something else; answers the servers for which it does.
    pub fn configure(&self, rules: McplRules) -> Vec<ServerId> {
        let mut book = self.book();
        book.rules = rules;
        self.judge_again(&mut book)
    }

    /// Enables or disables sets of a server for good, or takes back what was switched (`None`). It is written down
    /// before it is in force. Answers the servers whose sets changed.
    ///
    /// # Errors
    /// [`NotSwitched`]: then nothing has changed.
    pub async fn switch(
        &self,
        server: &ServerId,
        patterns: &[SetPattern],
        enabled: Option<bool>,
        by: Actor,
    ) -> Result<Vec<ServerId>, NotSwitched> {
        let _turn = self.writing.lock().await;
        let mut switches = self.switches();
        let of_server = switches.entry(server.clone()).or_default();
        for pattern in patterns {
            match enabled {
                Some(enabled) => of_server.insert(pattern.clone(), enabled),
                None => of_server.remove(pattern),
            };
        }
        switches.retain(|_, of_server| !of_server.is_empty());
        if switches.values().map(BTreeMap::len).sum::<usize>() > SWITCHES_MAX {
            return Err(NotSwitched::TooMany);
        }
        let named: Vec<&str> = patterns.iter().map(SetPattern::as_str).collect();
        let details = json!({"sets": named, "enabled": enabled});
        let trace = TraceId::mint(randomness::bytes());
        let record = event(
            EventType::FEATURE_SETS_SWITCHED,
            by,
            target(server),
            &trace,
            Outcome::Success,
            details,
        );
        self.audit.decided(record).await?;
        let (file, text) = (self.file.clone(), written(&switches));
        let wrote = task::blocking("mcpl.switch", move || write(&file, &text)).await;
        match wrote {
            Ok(Ok(())) => self.witness.settle_presence(),
            Ok(Err(why)) => return Err(NotSwitched::Disk(why)),
            Err(broken) => return Err(NotSwitched::Disk(broken.to_string())),
        }
        let mut book = self.book();
        book.switches = switches;
        Ok(self.judge_again(&mut book))
    }

    fn judge_again(&self, book: &mut SetBook) -> Vec<ServerId> {
        let mut changed = Vec::new();
        let mut told = Vec::new();
        for (server, lives) in &mut book.lives {
            let (rules, switches) = (book.rules.servers.get(server), book.switches.get(server));
            for life in lives.iter_mut() {
                let mut sets = ServerSets::clone(&life.sets);
                sets.judged(rules, switches);
                if sets == *life.sets {
                    continue;
                }
                life.sets = Arc::new(sets);
                told.extend(life.link.upgrade().map(|link| (link, life.sets.update())));
                if changed.last() != Some(server) {
                    changed.push(server.clone());
                }
            }
        }
        self.publish(book);
        for (link, update) in told {
            tell(&link, &update);
        }
        changed
    }

    fn publish(&self, book: &SetBook) {
        let servers = book.lives.iter();
        let servers =
            servers.filter_map(|(id, lives)| Some((id.clone(), lives.last()?.sets.clone())));
        let servers: BTreeMap<_, _> = servers.collect();
        self.any.store(!servers.is_empty(), Ordering::Relaxed);
        self.sets.store(Arc::new(FeatureSets { servers }));
    }

    fn book(&self) -> MutexGuard<'_, SetBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SetBook {
    fn of(&self, server: &ServerId) -> (Option<&McplServerRules>, Option<&Switches>) {
        (self.rules.servers.get(server), self.switches.get(server))
    }
}

fn tell(link: &Arc<Link>, update: &Update) {
    let params = serde_json::to_string(update).expect("an update is always JSON");
    link.notify(Update::METHOD, Some(&params));
}

fn now_ms() -> u64 {
    u64::try_from(moment().since_start().as_millis()).unwrap_or(u64::MAX)
}

fn switches(text: &str) -> Result<BTreeMap<ServerId, Switches>, String> {
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
    servers.collect()
}

fn written(switches: &BTreeMap<ServerId, Switches>) -> String {
    let servers = switches.iter().map(|(server, switches)| {
        let switches = switches
            .iter()
            .map(|(pattern, on)| (pattern.as_str().to_owned(), *on));
        (server.clone(), switches.collect())
    });
    let file = SwitchFile {
        version: FILE_VERSION,
        servers: servers.collect(),
    };
    serde_json::to_string_pretty(&file).expect("switches are always JSON")
}

fn write(file: &std::path::Path, text: &str) -> Result<(), String> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(|error| explained(folder, &error))?;
    }
    atomic_file::write(file, text.as_bytes()).map_err(|error| explained(file, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_switched_is_read_again() {
        let text = r#"{"version":1,"servers":{"memory":{"memory.*":true,"memory.secret":false}}}"#;
        let read = switches(text).unwrap();
        let again = switches(&written(&read)).unwrap();
        assert_eq!(read, again);
        assert_eq!(read[&ServerId::new("memory")].len(), 2);
        for bad in [
            "",
            "{}",
            r#"{"version":2,"servers":{}}"#,
            r#"{"version":1,"servers":{"a":{"b*":true}}}"#,
        ] {
            assert!(switches(bad).is_err(), "{bad}");
        }
    }
}
