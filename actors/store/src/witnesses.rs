//! Witnesses: the last contents of files of the data folder, recorded outside of them. A file that is missing or
//! shorter than its witness is reported at the start, and what it decided stays closed.
//!
//! A decision comes first and its witness second, so a witness may lag behind its file and never leads. Where a file
//! is replaced as a whole, the new contents are proposed before and settled after: after a crash either counts.
//!
//! There are two files. A record is written to both when it begins and then to one of them in turn: a change costs
//! one small write, a torn one leaves the record before it, and neither file can go unnoticed. Once it is synced there
//! it is written to the other one, too, so that the loss of one file loses no record but those of the last second.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::atomic_file;
use crate::regular_file;

/// The files, in the data folder.
pub const WITNESS_FILES: [&str; 2] = ["files.witness", "files.witness.2"];
/// The size of a record: a sector, which a disk writes whole.
const SLOT: usize = 512;
/// Records at most: some files, and a log for each node that ever wrote to one. What finds no room has no witness.
const SLOTS_MAX: usize = 1024;
/// The digits of a record's checksum.
const CHECKSUM_DIGITS: usize = 16;
/// The record that the files begin with: an empty one is one that somebody emptied.
const HEADER_RECORD: &str = "files.witness";
/// The contents of a file of which it only counts that it is there.
const PRESENT: &str = "there";
/// What begins the name of a record which says that the operator accepted a file as it is.
const ACCEPTED: &str = "accepted ";

/// The witnesses of a data folder. All clones write to the same files.
#[derive(Clone, Debug)]
pub struct Witnesses(Arc<Mutex<WitnessFiles>>);

/// The witness of one file. The default one records nothing.
#[derive(Clone, Debug, Default)]
pub struct Witness(Option<(Witnesses, Arc<str>)>);

/// The witnesses as they were found.
#[derive(Debug)]
pub struct OpenedWitnesses {
    /// The witnesses.
    pub witnesses: Witnesses,
    /// There were none.
    pub is_new: bool,
    /// What is wrong with their files, in words.
    pub faults: Vec<String>,
}

/// The last contents of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessedContents {
    /// What it certainly held.
    pub settled: Option<String>,
    /// What it was being replaced with.
    pub(crate) proposed: Option<String>,
}

impl WitnessedContents {
    /// What it may hold.
    pub fn possible_contents(&self) -> impl Iterator<Item = &str> {
        [&self.settled, &self.proposed]
            .into_iter()
            .filter_map(Option::as_deref)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WitnessRecord {
    name: String,
    /// Which writing of this slot it is.
    number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settled: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proposed: Option<String>,
}

impl WitnessRecord {
    /// A slot that is free.
    fn empty() -> Self {
        Self {
            name: String::new(),
            number: 0,
            settled: None,
            proposed: None,
        }
    }

    fn is_forgotten(&self) -> bool {
        self.settled.is_none() && self.proposed.is_none()
    }

    fn contents(&self) -> WitnessedContents {
        WitnessedContents {
            settled: self.settled.clone(),
            proposed: self.proposed.clone(),
        }
    }

    /// None where it is too long for a slot.
    fn to_slot(&self) -> Option<[u8; SLOT]> {
        let text = serde_json::to_string(self).ok()?;
        let line = format!("{} {text}\n", checksum(&text));
        let mut slot = [0; SLOT];
        slot.get_mut(..line.len())?.copy_from_slice(line.as_bytes());
        Some(slot)
    }

    fn from_slot(slot: &[u8]) -> Option<Self> {
        let line = slot.split(|byte| *byte == b'\n').next()?;
        let line = std::str::from_utf8(line).ok()?;
        let (sum, text) = line.split_at_checked(CHECKSUM_DIGITS)?;
        let text = text.strip_prefix(' ')?;
        (checksum(text) == sum).then(|| serde_json::from_str(text).ok())?
    }
}

fn checksum(text: &str) -> String {
    let mut hex = blake3::hash(text.as_bytes()).to_hex().to_string();
    hex.truncate(CHECKSUM_DIGITS);
    hex
}

#[derive(Debug)]
struct WitnessFiles {
    /// None where they are only read.
    files: Option<[WitnessFile; 2]>,
    slots: Vec<WitnessRecord>,
    by_name: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct WitnessFile {
    file: Arc<File>,
    /// It has records that may not survive a power cut.
    dirty: bool,
    /// Slots whose newest records are in the other file only.
    stale_slots: BTreeSet<usize>,
}

/// Which writing of which slot.
type SlotVersion = (usize, u64);

/// The records of one file; None where there is none, or it is empty.
fn read_slots(path: &Path) -> io::Result<Option<Vec<Option<WitnessRecord>>>> {
    let file = match regular_file::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take((SLOT * SLOTS_MAX) as u64)
        .read_to_end(&mut bytes)?;
    let slots: Vec<_> = bytes.chunks(SLOT).map(WitnessRecord::from_slot).collect();
    Ok((!slots.is_empty()).then_some(slots))
}

/// Both files as one: of each record the newer one.
struct LoadedSlots {
    slots: Vec<WitnessRecord>,
    /// None in the place of a file that is missing.
    is_complete: [bool; 2],
    lost: usize,
}

fn load_slots(paths: &[PathBuf; 2]) -> io::Result<LoadedSlots> {
    let [first, second] = [read_slots(&paths[0])?, read_slots(&paths[1])?];
    let whole = [first.is_some(), second.is_some()];
    let (first, second) = (first.unwrap_or_default(), second.unwrap_or_default());
    let mut found = LoadedSlots {
        slots: Vec::new(),
        is_complete: whole,
        lost: 0,
    };
    for at in 0..first.len().max(second.len()) {
        let both = [&first, &second].map(|slots| slots.get(at).cloned().flatten());
        let newer = both.into_iter().flatten().max_by_key(|it| it.number);
        found.lost += usize::from(newer.is_none());
        found.slots.push(newer.unwrap_or_else(WitnessRecord::empty));
    }
    Ok(found)
}

impl Witnesses {
    /// Opens the witnesses of a data folder, and makes their files where there are none; blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn open(data_dir: &Path) -> io::Result<OpenedWitnesses> {
        let paths = WITNESS_FILES.map(|name| data_dir.join(name));
        let found = load_slots(&paths)?;
        let is_none = |it: &WitnessRecord| it.is_forgotten() || it.name == HEADER_RECORD;
        let is_new = found.slots.iter().all(is_none);
        let mut faults = Vec::new();
        for (path, _) in paths
            .iter()
            .zip(found.is_complete)
            .filter(|(_, whole)| !whole)
        {
            if !is_new {
                let path = path.display();
                faults.push(format!(
                    "{path} is missing or empty: it was made again from the other one, which has all but what was decided in the last second before"
                ));
            }
        }
        if found.lost > 0 {
            let lost = found.lost;
            let path = paths[0].display();
            faults.push(format!("{lost} records of {path} cannot be read: what these files hold now is taken as it is"));
        }
        let mut slots = found.slots;
        if slots.is_empty() {
            slots.push(WitnessRecord {
                name: HEADER_RECORD.into(),
                settled: Some(PRESENT.into()),
                ..WitnessRecord::empty()
            });
        }
        let bytes = slots.iter().filter_map(WitnessRecord::to_slot);
        let bytes: Vec<u8> = bytes.flatten().collect();
        for (path, whole) in paths.iter().zip(found.is_complete) {
            if !whole {
                atomic_file::write(path, &bytes)?;
            }
        }
        let open = |path: &PathBuf| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = Arc::new(regular_file::open_with(path, &mut options)?);
            let (dirty, behind) = (false, BTreeSet::new());
            Ok::<_, io::Error>(WitnessFile {
                file,
                dirty,
                stale_slots: behind,
            })
        };
        let files = [open(&paths[0])?, open(&paths[1])?];
        let witnesses = Self::from_files(Some(files), slots);
        Ok(OpenedWitnesses {
            witnesses,
            is_new,
            faults,
        })
    }

    /// Reads the witnesses of a data folder, and changes nothing; None where there are none.
    ///
    /// # Errors
    /// The system's.
    pub fn read(data_dir: &Path) -> io::Result<Option<Self>> {
        let found = load_slots(&WITNESS_FILES.map(|name| data_dir.join(name)))?;
        let there = found.is_complete.contains(&true);
        Ok(there.then(|| Self::from_files(None, found.slots)))
    }

    fn from_files(files: Option<[WitnessFile; 2]>, slots: Vec<WitnessRecord>) -> Self {
        let live = slots.iter().enumerate();
        let live = live.filter(|(_, record)| !record.is_forgotten());
        let by_name = live.map(|(at, record)| (record.name.clone(), at)).collect();
        Self(Arc::new(Mutex::new(WitnessFiles {
            files,
            slots,
            by_name,
        })))
    }

    fn files(&self) -> MutexGuard<'_, WitnessFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The witness of this file.
    #[must_use]
    pub fn witness(&self, name: impl Into<String>) -> Witness {
        Witness(Some((self.clone(), name.into().into())))
    }

    /// The records whose names begin so, without that beginning.
    #[must_use]
    pub fn records_with_prefix(&self, beginning: &str) -> Vec<(String, WitnessedContents)> {
        let files = self.files();
        let all = files.by_name.iter();
        let all = all.filter_map(|(name, at)| {
            let rest = name.strip_prefix(beginning)?;
            Some((rest.to_owned(), files.slots[*at].contents()))
        });
        all.collect()
    }

    /// The operator accepts these files as they are: they have no witness until the next start, which reports that
    /// with [`Self::take_accepted`]. False where none of them has one.
    ///
    /// # Errors
    /// The system's.
    pub fn accept(&self, file: &str, records: &[String]) -> io::Result<bool> {
        let mut any = false;
        for record in records {
            let witness = self.witness(record.clone());
            if witness.contents().is_some() {
                any = true;
                self.witness(format!("{ACCEPTED}{file}")).settle(PRESENT);
                witness.forget()?;
            }
        }
        Ok(any)
    }

    /// The files that the operator accepted since the last start.
    #[must_use]
    pub fn take_accepted(&self) -> Vec<String> {
        let accepted = self.records_with_prefix(ACCEPTED).into_iter();
        let accepted = accepted.map(|(name, _)| name).inspect(|name| {
            if let Err(error) = self.witness(format!("{ACCEPTED}{name}")).forget() {
                tracing::warn!(%error, name, "an accepted file is reported again at the next start");
            }
        });
        accepted.collect()
    }
}

impl WitnessFiles {
    /// The slot of this name; None if all are taken.
    fn slot_for(&mut self, name: &str) -> Option<usize> {
        if let Some(at) = self.by_name.get(name) {
            return Some(*at);
        }
        let free = self.slots.iter().position(WitnessRecord::is_forgotten);
        let at = free.unwrap_or(self.slots.len());
        if at == SLOTS_MAX {
            return None;
        }
        if at == self.slots.len() {
            self.slots.push(WitnessRecord::empty());
        }
        self.slots[at].name = name.to_owned();
        self.by_name.insert(name.to_owned(), at);
        Some(at)
    }

    /// Writes a record: to both files if it begins or ends, else to the two alternately.
    fn write_record(&mut self, name: &str, contents: WitnessedContents) -> io::Result<()> {
        let begins = !self.by_name.contains_key(name);
        let at = self.slot_for(name);
        let at = at.ok_or_else(|| io::Error::other(format!("{SLOTS_MAX} files have a witness")))?;
        let record = &mut self.slots[at];
        record.number += 1;
        record.settled = contents.settled;
        record.proposed = contents.proposed;
        let (ends, turn) = (record.is_forgotten(), usize::from(record.number % 2 == 1));
        let slot = record.to_slot();
        let slot = slot.ok_or_else(|| io::Error::other("the record is too long"))?;
        if ends {
            self.by_name.remove(name);
        }
        for (number, file) in self.files.iter_mut().flatten().enumerate() {
            if begins || ends || number == turn {
                file.dirty = true;
                file.stale_slots.remove(&at);
                file.file.write_all_at(&slot, (at * SLOT) as u64)?;
            } else {
                file.stale_slots.insert(at);
            }
        }
        Ok(())
    }

    /// The file with this number, if it has records that are not synced, and those of them that the other lacks.
    fn take_dirty(&mut self, number: usize) -> Option<(Arc<File>, Vec<SlotVersion>)> {
        let files = self.files.as_mut()?;
        if !std::mem::take(&mut files[number].dirty) {
            return None;
        }
        let lacked = files[1 - number].stale_slots.iter();
        let lacked = lacked.map(|at| (*at, self.slots[*at].number)).collect();
        Some((files[number].file.clone(), lacked))
    }

    /// Writes records to this file that are synced in the other one. One that was written anew since then is not: of
    /// its last two writings one has to be on disk.
    fn catch_up(&mut self, number: usize, synced: &[SlotVersion]) -> io::Result<()> {
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        let file = &mut files[number];
        for (at, writing) in synced {
            let record = &self.slots[*at];
            let is_behind = file.stale_slots.contains(at) && record.number == *writing;
            if let Some(slot) = record.to_slot().filter(|_| is_behind) {
                file.dirty = true;
                file.file.write_all_at(&slot, (at * SLOT) as u64)?;
                file.stale_slots.remove(at);
            }
        }
        Ok(())
    }

    fn mark_dirty(&mut self, number: usize) {
        if let Some(files) = &mut self.files {
            files[number].dirty = true;
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        for file in self.files.iter_mut().flatten().filter(|file| file.dirty) {
            file.file.sync_data()?;
            file.dirty = false;
        }
        Ok(())
    }
}

impl Witness {
    /// The last contents of the file; None if unknown.
    #[must_use]
    pub fn contents(&self) -> Option<WitnessedContents> {
        let (witnesses, name) = self.0.as_ref()?;
        let files = witnesses.files();
        let at = files.by_name.get(&**name)?;
        Some(files.slots[*at].contents())
    }

    /// The file holds this, on disk. What the disk does not take is recorded with the next change.
    pub fn settle(&self, contents: &str) {
        let Some((witnesses, name)) = &self.0 else {
            return;
        };
        let settled = WitnessedContents {
            settled: Some(contents.to_owned()),
            proposed: None,
        };
        if self.contents().as_ref() == Some(&settled) {
            return;
        }
        if let Err(error) = witnesses.files().write_record(name, settled) {
            tracing::warn!(%error, file = &**name, "the witness of a file is not written");
        }
    }

    /// The file is there, whatever it holds.
    pub fn settle_presence(&self) {
        self.settle(PRESENT);
    }

    /// Syncs what was recorded, of other files too, and writes it to the other file of the two. Other records are not
    /// held up by the disk meanwhile.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let Some((witnesses, _)) = &self.0 else {
            return Ok(());
        };
        // The third is for what the second file caught up with the first, or the first with the second.
        for number in [0, 1, 0] {
            let dirty = witnesses.files().take_dirty(number);
            let Some((file, lacked)) = dirty else {
                continue;
            };
            if let Err(error) = file.sync_data() {
                witnesses.files().mark_dirty(number);
                return Err(error);
            }
            witnesses.files().catch_up(1 - number, &lacked)?;
        }
        Ok(())
    }

    /// The file is about to be replaced, and then holds this: on disk when this returns.
    ///
    /// # Errors
    /// The system's; then the file must not be replaced.
    pub(crate) fn propose(&self, contents: &str) -> io::Result<()> {
        let Some((witnesses, name)) = &self.0 else {
            return Ok(());
        };
        let settled = self.contents().and_then(|it| it.settled);
        let mut files = witnesses.files();
        let proposed = Some(contents.to_owned());
        // What stands in the other file counts should this record be torn.
        files.sync()?;
        files.write_record(name, WitnessedContents { settled, proposed })?;
        files.sync()
    }

    /// The file has no witness any more: on disk when this returns.
    ///
    /// # Errors
    /// The system's.
    pub fn forget(&self) -> io::Result<()> {
        let Some((witnesses, name)) = &self.0 else {
            return Ok(());
        };
        let mut files = witnesses.files();
        if !files.by_name.contains_key(&**name) {
            return Ok(());
        }
        let nothing = WitnessedContents {
            settled: None,
            proposed: None,
        };
        files.write_record(name, nothing)?;
        files.sync()
    }

    /// Another record of the same folder.
    #[must_use]
    pub fn sibling(&self, name: impl Into<String>) -> Self {
        match &self.0 {
            Some((witnesses, _)) => witnesses.witness(name),
            None => Self::default(),
        }
    }

    /// The records of the same folder whose names begin so, without that beginning.
    #[must_use]
    pub fn records_with_prefix(&self, beginning: &str) -> Vec<(String, WitnessedContents)> {
        match &self.0 {
            Some((witnesses, _)) => witnesses.records_with_prefix(beginning),
            None => Vec::new(),
        }
    }
}
