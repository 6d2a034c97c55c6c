//! The files of the data folder that have a witness, with the effect and remedy of their loss. Journals check their
//! own witnesses; the other files are checked here, before replacements are created.

use std::io::ErrorKind;
use std::path::Path;

use mgp_cluster::replication;
use mgp_mcpl::push::{JOURNAL as PUSHES, StoredPushes};
use mgp_policy::GrantStore;
use mgp_store::audit::LogFolder;
use mgp_store::backup::{RESTORED, RESTORED_LOGS};
use mgp_store::{OpenedWitnesses, WITNESS_FILES, Witnesses, regular_file};
use mgp_tools::registrar::Registrations;

use super::data_folder::{
    GRANTS_JOURNAL, REGISTRATIONS_JOURNAL, SCOPES_FILE, SETS_FILE, grants_file,
};
use crate::cluster::{LAN_FILE, LOG_PREFIX, SHARES_FILE, logs_folder};

/// Prefix of the witnesses of the cluster's logs, which are accepted together with the file.
const LOG_TIP_PREFIX: &str = "cluster/logs/tip ";
/// The journals that have their own witnesses.
const JOURNALS: [&str; 7] = [
    GRANTS_JOURNAL,
    REGISTRATIONS_JOURNAL,
    PUSHES,
    LOG_PREFIX,
    "cluster/logs/owed",
    "cluster/logs/twice",
    RESTORED_LOGS,
];

/// Which changes are noticed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchMode {
    /// Absence.
    Presence,
    /// Absence and replacement: the file is created once and never changes.
    Contents,
}

/// The effect on the start.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnLoss {
    Report,
    Abort,
}

/// A file with a witness.
struct WatchedFile {
    name: &'static str,
    watch: WatchMode,
    on_loss: OnLoss,
    /// The effect of its loss.
    loss_effect: &'static str,
}

const fn watched_file(
    name: &'static str,
    watch: WatchMode,
    on_loss: OnLoss,
    means: &'static str,
) -> WatchedFile {
    WatchedFile {
        name,
        watch,
        on_loss,
        loss_effect: means,
    }
}

const WATCHED_FILES: [WatchedFile; 9] = [
    watched_file(
        "node.key",
        WatchMode::Presence,
        OnLoss::Abort,
        "it is who this node is, and it signed grants.journal, which has to be moved away and accepted, too",
    ),
    watched_file(
        "seal.key",
        WatchMode::Contents,
        OnLoss::Report,
        "what was sealed with it cannot be opened: tasks and suspended calls that clients hold, and ids of conversations",
    ),
    watched_file(
        "audit.key",
        WatchMode::Contents,
        OnLoss::Report,
        "digests of arguments in the audit log cannot be compared with later ones",
    ),
    watched_file(
        "metrics.token",
        WatchMode::Presence,
        OnLoss::Report,
        "a new one is made, and whoever reads /metrics needs it",
    ),
    watched_file(
        SHARES_FILE,
        WatchMode::Presence,
        OnLoss::Report,
        "nothing is shared with other nodes until it is shared anew",
    ),
    watched_file(
        SETS_FILE,
        WatchMode::Presence,
        OnLoss::Abort,
        "nobody knows which feature sets were switched off",
    ),
    watched_file(
        SCOPES_FILE,
        WatchMode::Presence,
        OnLoss::Report,
        "a person is asked again about every scope that was approved for good",
    ),
    watched_file(
        "mcpl/tokens.json",
        WatchMode::Presence,
        OnLoss::Report,
        "the tokens that servers took today are counted from 0",
    ),
    watched_file(
        LAN_FILE,
        WatchMode::Presence,
        OnLoss::Report,
        "this node is not seen on the local network until `mgp lan on`",
    ),
];

impl WatchedFile {
    /// The contents that its witness records; `None` if the file is missing.
    fn read_witnessed(&self, data_dir: &Path) -> Option<String> {
        let path = data_dir.join(self.name);
        match self.watch {
            // What cannot be examined is there; an empty file holds as little as a missing one.
            WatchMode::Presence => {
                let has_contents = path
                    .metadata()
                    .map(|file| file.len() > 0 || !file.is_file());
                let is_there =
                    has_contents.unwrap_or_else(|error| error.kind() != ErrorKind::NotFound);
                is_there.then(String::new)
            }
            WatchMode::Contents => {
                let bytes = regular_file::read(&path).ok()?;
                let hash = blake3::derive_key("mgp 2026-11 witness of a key", &bytes);
                Some(super::secrets::to_hex(&hash))
            }
        }
    }

    /// Describes a difference from its witness.
    fn check_loss(&self, data_dir: &Path, witnesses: &Witnesses) -> Option<String> {
        let before = witnesses.witness(self.name).contents()?;
        let now = self.read_witnessed(data_dir);
        let how = match (&now, self.watch) {
            (None, _) if data_dir.join(self.name).exists() => "is empty",
            (None, _) => "is missing",
            (Some(_), WatchMode::Presence) => return None,
            (Some(now), WatchMode::Contents) if before.possible_contents().any(|it| it == now) => {
                return None;
            }
            (Some(_), WatchMode::Contents) => "is another one than it was",
        };
        let (path, means) = (data_dir.join(self.name), self.loss_effect);
        let way = match self.on_loss {
            OnLoss::Report => "put a copy back and start the kernel again, or run `mgp down`, then",
            OnLoss::Abort => "put a copy back; or, to go on without it, run",
        };
        let (path, name) = (path.display(), self.name);
        Some(format!("{path} {how}: {means}; {way} `mgp accept {name}`"))
    }

    fn record_current(&self, data_dir: &Path, witnesses: &Witnesses) {
        let witness = witnesses.witness(self.name);
        match (self.read_witnessed(data_dir), self.watch) {
            (None, _) => {}
            // A folder that cannot be entered now says nothing of what is in it.
            (Some(_), WatchMode::Presence) if data_dir.join(self.name).metadata().is_ok() => {
                witness.settle_presence()
            }
            (Some(_), WatchMode::Presence) => {}
            // A replaced file is reported until the operator accepts it.
            (Some(now), WatchMode::Contents) if witness.contents().is_none() => {
                witness.settle(&now)
            }
            (Some(_), WatchMode::Contents) => {}
        }
    }
}

/// The result of the check at the start.
pub(super) struct WitnessReport {
    pub(super) witnesses: Witnesses,
    /// The operator accepted the journal of grants as it is.
    pub(super) has_accepted_grants: bool,
    /// Problems, with remedies.
    pub(super) failures: Vec<String>,
    /// Notes for the audit log that are no problems.
    pub(super) audit_notes: Vec<String>,
}

/// Opens the witnesses, and checks the files that do not check their own.
///
/// # Errors
/// Describes what prevents the start.
pub(super) fn open_and_check(data_dir: &Path) -> Result<WitnessReport, String> {
    let was_used = LogFolder::new(data_dir).marker().is_some();
    let opened = Witnesses::open(data_dir);
    let opened =
        opened.map_err(|e| format!("{}: {e}", data_dir.join(WITNESS_FILES[0]).display()))?;
    let OpenedWitnesses {
        witnesses,
        is_new,
        mut faults,
    } = opened;
    for file in &WATCHED_FILES {
        match (file.check_loss(data_dir, &witnesses), file.on_loss) {
            (None, _) => {}
            (Some(why), OnLoss::Report) => faults.push(why),
            (Some(why), OnLoss::Abort) => return Err(why),
        }
    }
    let accepted = witnesses.take_accepted();
    let mut notes: Vec<String> = accepted
        .iter()
        .map(|name| format!("the operator accepted {name} as it is"))
        .collect();
    let restored = witnesses.witness(RESTORED);
    if let Some(from) = restored.contents().and_then(|it| it.settled) {
        notes.push(format!("this folder was {from}"));
        restored.forget().map_err(|e| e.to_string())?;
    }
    if is_new && was_used {
        notes.push(format!(
            "the files of this folder have no witness yet: what they hold now is taken as it is, and recorded in {} and {}",
            WITNESS_FILES[0], WITNESS_FILES[1]
        ));
    }
    Ok(WitnessReport {
        witnesses,
        has_accepted_grants: accepted.iter().any(|name| name == GRANTS_JOURNAL),
        failures: faults,
        audit_notes: notes,
    })
}

/// Updates the witnesses of all present files.
pub(super) fn record_all(data_dir: &Path, witnesses: &Witnesses) {
    for file in &WATCHED_FILES {
        file.record_current(data_dir, witnesses);
    }
}

/// Describes losses in a folder without a running kernel. Changes nothing; `None` without witnesses.
pub(crate) fn examine(data_dir: &Path) -> Option<Vec<String>> {
    let witnesses = match Witnesses::read(data_dir) {
        Ok(found) => found?,
        Err(error) => return Some(vec![error.to_string()]),
    };
    let files = WATCHED_FILES.iter();
    let mut lost: Vec<String> = files
        .filter_map(|file| file.check_loss(data_dir, &witnesses))
        .collect();
    let witness = |name: &str| witnesses.witness(name);
    let grants = GrantStore::compare(&grants_file(data_dir), &witness(GRANTS_JOURNAL));
    lost.extend(grants.err().map(|e| e.to_string()));
    let registered = Registrations::compare(
        &data_dir.join(REGISTRATIONS_JOURNAL),
        &witness(REGISTRATIONS_JOURNAL),
    );
    lost.extend(registered.unwrap_or_else(Some));
    let pushes = StoredPushes::compare(data_dir, &witness(PUSHES));
    lost.extend(pushes.unwrap_or_else(|e| Some(e.to_string())));
    let logs = replication::check_witnesses(&logs_folder(data_dir), &witness(LOG_PREFIX));
    lost.extend(logs.unwrap_or_else(|e| vec![e.to_string()]));
    Some(lost)
}

/// Accepts a file as it is; false if it has no witness.
///
/// # Errors
/// An unknown name, or the system's error.
pub(crate) fn accept_file(data_dir: &Path, name: &str) -> Result<bool, String> {
    let names = WATCHED_FILES.iter().map(|file| file.name).chain(JOURNALS);
    if !names.clone().any(|known| known == name) {
        let names: Vec<&str> = names.collect();
        return Err(format!(
            "no file with a witness is called {name}; there are {}",
            names.join(", ")
        ));
    }
    let explain = |e: std::io::Error| format!("{}: {e}", data_dir.join(WITNESS_FILES[0]).display());
    let witnesses = Witnesses::open(data_dir).map_err(explain)?.witnesses;
    let tips = match name {
        LOG_PREFIX => witnesses.records_with_prefix(LOG_TIP_PREFIX),
        _ => Vec::new(),
    };
    let tips = tips
        .into_iter()
        .map(|(node, _)| format!("{LOG_TIP_PREFIX}{node}"));
    let records: Vec<String> = tips.chain([name.to_owned()]).collect();
    witnesses.accept(name, &records).map_err(explain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that cannot be examined is not known to exist: otherwise its absence stops the next start.
    #[test]
    fn file_that_cannot_be_examined_gets_no_witness() {
        let folder = tempfile::tempdir().unwrap();
        let opened = || open_and_check(folder.path());
        // A path below a file cannot be examined, whoever asks.
        let in_the_way = folder.path().join("mcpl");
        std::fs::write(&in_the_way, "").unwrap();
        record_all(folder.path(), &opened().unwrap().witnesses);
        std::fs::remove_file(in_the_way).unwrap();
        assert!(opened().is_ok());
    }

    #[test]
    fn missing_file_with_a_witness_stops_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let sets = folder.path().join(SETS_FILE);
        std::fs::create_dir(sets.parent().unwrap()).unwrap();
        std::fs::write(&sets, "{}").unwrap();
        let witnesses = open_and_check(folder.path()).unwrap().witnesses;
        record_all(folder.path(), &witnesses);
        drop(witnesses);
        std::fs::remove_file(sets).unwrap();
        assert!(open_and_check(folder.path()).is_err());
    }
}
