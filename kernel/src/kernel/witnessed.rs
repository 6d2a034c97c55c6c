//! The files of the data folder that have a witness, what the loss of each means, and what to do. Journals compare
//! themselves with theirs; the other files are looked at here, before anything is made in their place.

use std::path::Path;

use mgp_cluster::replication;
use mgp_mcpl::push::{JOURNAL as PUSHES, KeptPushes};
use mgp_policy::access::Books;
use mgp_store::audit::Folder;
use mgp_store::backup::{RESTORED, RESTORED_LOGS};
use mgp_store::regular_file;
use mgp_store::witnesses::{OpenedWitnesses, WITNESS_FILES, Witnesses};
use mgp_tools::registrar::Registrations;

use super::data_folder::{GRANTS, REGISTERED, SCOPES, SETS, grants_file};
use crate::cluster::{LAN, LOGS, SHARES, logs_folder};

/// The witnesses of the ends of the cluster's logs begin so: they are accepted together with the file.
const LOGS_TIPS: &str = "cluster/logs/tip ";
/// The files with a witness of their own that are journals.
const JOURNALS: [&str; 7] = [
    GRANTS,
    REGISTERED,
    PUSHES,
    LOGS,
    "cluster/logs/owed",
    "cluster/logs/twice",
    RESTORED_LOGS,
];

/// What is noticed of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchedPart {
    /// That it is missing.
    Presence,
    /// That it is another one, too. It is made once and stays as it is.
    Contents,
}

/// What becomes of a start.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnLoss {
    Report,
    Stop,
}

/// A file with a witness.
struct WatchedFile {
    name: &'static str,
    watch: WatchedPart,
    on_loss: OnLoss,
    /// What its loss means.
    means: &'static str,
}

const fn watched(
    name: &'static str,
    watch: WatchedPart,
    on_loss: OnLoss,
    means: &'static str,
) -> WatchedFile {
    WatchedFile {
        name,
        watch,
        on_loss,
        means,
    }
}

const WATCHED: [WatchedFile; 9] = [
    watched(
        "node.key",
        WatchedPart::Presence,
        OnLoss::Stop,
        "it is who this node is, and signs what it decides",
    ),
    watched(
        "seal.key",
        WatchedPart::Contents,
        OnLoss::Report,
        "what was sealed with it cannot be opened: tasks and suspended calls that clients hold, and ids of conversations",
    ),
    watched(
        "audit.key",
        WatchedPart::Contents,
        OnLoss::Report,
        "digests of arguments in the audit log cannot be compared with later ones",
    ),
    watched(
        "metrics.token",
        WatchedPart::Presence,
        OnLoss::Report,
        "a new one is made, and whoever reads /metrics needs it",
    ),
    watched(
        SHARES,
        WatchedPart::Presence,
        OnLoss::Report,
        "nothing is shared with other nodes until it is shared anew",
    ),
    watched(
        SETS,
        WatchedPart::Presence,
        OnLoss::Stop,
        "nobody knows which feature sets were switched off",
    ),
    watched(
        SCOPES,
        WatchedPart::Presence,
        OnLoss::Report,
        "a person is asked again about every scope that was approved for good",
    ),
    watched(
        "mcpl/tokens.json",
        WatchedPart::Presence,
        OnLoss::Report,
        "the tokens that servers took today are counted from 0",
    ),
    watched(
        LAN,
        WatchedPart::Presence,
        OnLoss::Report,
        "this node is not seen on the local network until `mgp lan on`",
    ),
];

impl WatchedFile {
    /// What its witness records of it; None where it is missing.
    fn contents(&self, data_dir: &Path) -> Option<String> {
        let path = data_dir.join(self.name);
        match self.watch {
            WatchedPart::Presence => path.try_exists().unwrap_or(true).then(String::new),
            WatchedPart::Contents => {
                let bytes = regular_file::read(&path).ok()?;
                let hash = blake3::derive_key("mgp 2026-11 witness of a key", &bytes);
                Some(super::secrets::hex(&hash))
            }
        }
    }

    /// Its witness says something else: in words.
    fn loss(&self, data_dir: &Path, witnesses: &Witnesses) -> Option<String> {
        let before = witnesses.witness(self.name).contents()?;
        let now = self.contents(data_dir);
        let how = match (&now, self.watch) {
            (None, _) => "is missing",
            (Some(_), WatchedPart::Presence) => return None,
            (Some(now), WatchedPart::Contents) if before.either().any(|it| it == now) => {
                return None;
            }
            (Some(_), WatchedPart::Contents) => "is another one than it was",
        };
        let (path, means) = (data_dir.join(self.name), self.means);
        let way = match self.on_loss {
            OnLoss::Report => "put a copy back and start the kernel again, or run `mgp down`, then",
            OnLoss::Stop => "put a copy back; or, to go on without it, run",
        };
        let (path, name) = (path.display(), self.name);
        Some(format!("{path} {how}: {means}; {way} `mgp accept {name}`"))
    }

    fn settle(&self, data_dir: &Path, witnesses: &Witnesses) {
        let witness = witnesses.witness(self.name);
        match (self.contents(data_dir), self.watch) {
            (None, _) => {}
            (Some(_), WatchedPart::Presence) => witness.settle_presence(),
            // Of another one than it was the loss is reported until the operator accepts it.
            (Some(now), WatchedPart::Contents) if witness.contents().is_none() => {
                witness.settle(&now)
            }
            (Some(_), WatchedPart::Contents) => {}
        }
    }
}

/// What was found at the start.
pub(super) struct FoundWitnesses {
    pub(super) witnesses: Witnesses,
    /// What is wrong, with what to do.
    pub(super) faults: Vec<String>,
    /// What is worth a record in the audit log, and no fault.
    pub(super) notes: Vec<String>,
}

/// Opens the witnesses, and looks at the files that do not compare themselves.
///
/// # Errors
/// In words, what keeps the kernel from starting.
pub(super) fn open(data_dir: &Path) -> Result<FoundWitnesses, String> {
    let was_used = Folder::of(data_dir).beside().is_some();
    let opened = Witnesses::open(data_dir);
    let opened =
        opened.map_err(|e| format!("{}: {e}", data_dir.join(WITNESS_FILES[0]).display()))?;
    let OpenedWitnesses {
        witnesses,
        is_new,
        mut faults,
    } = opened;
    for file in &WATCHED {
        match (file.loss(data_dir, &witnesses), file.on_loss) {
            (None, _) => {}
            (Some(why), OnLoss::Report) => faults.push(why),
            (Some(why), OnLoss::Stop) => return Err(why),
        }
    }
    let accepted = witnesses.take_accepted().into_iter();
    let mut notes: Vec<String> = accepted
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
    Ok(FoundWitnesses {
        witnesses,
        faults,
        notes,
    })
}

/// Has all files witnessed that are there now.
pub(super) fn settle(data_dir: &Path, witnesses: &Witnesses) {
    for file in &WATCHED {
        file.settle(data_dir, witnesses);
    }
}

/// What is lost by the witnesses of a folder that no kernel runs on: in words. Changes nothing; None where there are
/// no witnesses.
pub(crate) fn examine(data_dir: &Path) -> Option<Vec<String>> {
    let witnesses = match Witnesses::read(data_dir) {
        Ok(found) => found?,
        Err(error) => return Some(vec![error.to_string()]),
    };
    let files = WATCHED.iter();
    let mut lost: Vec<String> = files
        .filter_map(|file| file.loss(data_dir, &witnesses))
        .collect();
    let witness = |name: &str| witnesses.witness(name);
    let grants = Books::compare(&grants_file(data_dir), &witness(GRANTS));
    lost.extend(grants.err().map(|e| e.to_string()));
    let registered = Registrations::compare(&data_dir.join(REGISTERED), &witness(REGISTERED));
    lost.extend(registered.unwrap_or_else(Some));
    let pushes = KeptPushes::compare(data_dir, &witness(PUSHES));
    lost.extend(pushes.unwrap_or_else(|e| Some(e.to_string())));
    let logs = replication::examine(&logs_folder(data_dir), &witness(LOGS));
    lost.extend(logs.unwrap_or_else(|e| vec![e.to_string()]));
    Some(lost)
}

/// Accepts a file as it is; false where it has no witness.
///
/// # Errors
/// In words: a name that no file with a witness has, or the system's error.
pub(crate) fn accept(data_dir: &Path, name: &str) -> Result<bool, String> {
    let names = WATCHED.iter().map(|file| file.name).chain(JOURNALS);
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
        LOGS => witnesses.begin_with(LOGS_TIPS),
        _ => Vec::new(),
    };
    let tips = tips
        .into_iter()
        .map(|(node, _)| format!("{LOGS_TIPS}{node}"));
    let records: Vec<String> = tips.chain([name.to_owned()]).collect();
    witnesses.accept(name, &records).map_err(explain)
}
