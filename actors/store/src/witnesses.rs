//! Witnesses: the last contents of files of the data folder, recorded outside of them. A file that is missing or
//! shorter than its witness is reported at startup, and what it decides stays closed.
//!
//! A decision is written before its witness, so a witness may lag behind its file but is never ahead of it. Where a
//! file is replaced as a whole, the new contents are proposed before and settled afterwards: after a crash either is
//! accepted.
//!
//! There are two files. A new record is written to both, then to each alternately: a change costs one small write, a
//! torn write leaves the previous record, and the loss of either file is noticed. After a sync of one file its records
//! are copied to the other, so that losing a file loses only records of the last second.

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

/// The witness files, in the data folder.
pub const WITNESS_FILES: [&str; 2] = ["files.witness", "files.witness.2"];
/// The size of a record: one sector, which disks write atomically.
const SLOT: usize = 512;
/// Maximum number of records: some files, and a log for each node that ever wrote to one. Further files have no
/// witness.
const SLOTS_MAX: usize = 1024;
/// The number of digits of a record's checksum.
const CHECKSUM_DIGITS: usize = 16;
/// The first record of each file, which shows that the file was not emptied.
const HEADER_RECORD: &str = "files.witness";
/// The contents of a witness that records only the existence of its file.
const PRESENT: &str = "there";
/// The name prefix of records that say that the operator accepted a file as it is.
const ACCEPTED: &str = "accepted ";

/// The witnesses of a data folder. All clones write to the same files.
#[derive(Clone, Debug)]
pub struct Witnesses(Arc<Mutex<WitnessFiles>>);

/// The witness of one file. The default records nothing.
#[derive(Clone, Debug, Default)]
pub struct Witness(Option<(Witnesses, Arc<str>)>);

/// The witnesses as found at startup.
#[derive(Debug)]
pub struct OpenedWitnesses {
    /// The witnesses.
    pub witnesses: Witnesses,
    /// Whether there were no witness files.
    pub is_new: bool,
    /// Descriptions of faults of the witness files.
    pub faults: Vec<String>,
}

/// The last known contents of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessedContents {
    /// The confirmed contents.
    pub settled: Option<String>,
    /// The contents of a replacement that is not confirmed.
    pub(crate) proposed: Option<String>,
}

impl WitnessedContents {
    /// All contents that the file may have.
    pub fn possible_contents(&self) -> impl Iterator<Item = &str> {
        [&self.settled, &self.proposed]
            .into_iter()
            .filter_map(Option::as_deref)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WitnessRecord {
    name: String,
    /// The version of this slot, counted by its writes.
    number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settled: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proposed: Option<String>,
}

impl WitnessRecord {
    /// A free slot.
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

    /// `None` if the record does not fit into a slot.
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
    /// `None` if they are read only.
    files: Option<[WitnessFile; 2]>,
    slots: Vec<WitnessRecord>,
    by_name: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct WitnessFile {
    file: Arc<File>,
    /// Whether it has records that may not survive a power cut.
    dirty: bool,
    /// Slots whose newest records are only in the other file.
    stale_slots: BTreeSet<usize>,
}

/// A version of a slot.
type SlotVersion = (usize, u64);

/// The records of one file; `None` if it is missing or empty.
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

/// Both files merged: the newer version of each record.
struct LoadedSlots {
    slots: Vec<WitnessRecord>,
    /// Whether each file was present.
    is_complete: [bool; 2],
    lost: usize,
}

fn load_slots(paths: &[PathBuf; 2]) -> io::Result<LoadedSlots> {
    let [first, second] = [read_slots(&paths[0])?, read_slots(&paths[1])?];
    let is_complete = [first.is_some(), second.is_some()];
    let (first, second) = (first.unwrap_or_default(), second.unwrap_or_default());
    let mut found = LoadedSlots {
        slots: Vec::new(),
        is_complete,
        lost: 0,
    };
    for slot_index in 0..first.len().max(second.len()) {
        let both = [&first, &second].map(|slots| slots.get(slot_index).cloned().flatten());
        let newer = both.into_iter().flatten().max_by_key(|it| it.number);
        found.lost += usize::from(newer.is_none());
        found.slots.push(newer.unwrap_or_else(WitnessRecord::empty));
    }
    Ok(found)
}

impl Witnesses {
    /// Opens the witnesses of a data folder and creates missing files; blocks.
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
            .filter(|(_, is_complete)| !is_complete)
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
        for (path, is_complete) in paths.iter().zip(found.is_complete) {
            if !is_complete {
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

    /// Reads the witnesses of a data folder without changing anything; `None` if there are none.
    ///
    /// # Errors
    /// The system's.
    pub fn read(data_dir: &Path) -> io::Result<Option<Self>> {
        let found = load_slots(&WITNESS_FILES.map(|name| data_dir.join(name)))?;
        let any_complete = found.is_complete.contains(&true);
        Ok(any_complete.then(|| Self::from_files(None, found.slots)))
    }

    fn from_files(files: Option<[WitnessFile; 2]>, slots: Vec<WitnessRecord>) -> Self {
        let live = slots.iter().enumerate();
        let live = live.filter(|(_, record)| !record.is_forgotten());
        let by_name = live
            .map(|(slot_index, record)| (record.name.clone(), slot_index))
            .collect();
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

    /// The records with this name prefix; the prefix is removed from the names.
    #[must_use]
    pub fn records_with_prefix(&self, beginning: &str) -> Vec<(String, WitnessedContents)> {
        let files = self.files();
        let all = files.by_name.iter();
        let all = all.filter_map(|(name, slot_index)| {
            let rest = name.strip_prefix(beginning)?;
            Some((rest.to_owned(), files.slots[*slot_index].contents()))
        });
        all.collect()
    }

    /// Records that the operator accepts these files as they are: they have no witness until the next start, which reports
    /// that with [`Self::take_accepted`]. False if none of them has a witness.
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

    /// Takes the names of the files that the operator accepted since the last start.
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
    /// The slot for this name; `None` if all are taken.
    fn slot_for(&mut self, name: &str) -> Option<usize> {
        if let Some(slot_index) = self.by_name.get(name) {
            return Some(*slot_index);
        }
        let free = self.slots.iter().position(WitnessRecord::is_forgotten);
        let slot_index = free.unwrap_or(self.slots.len());
        if slot_index == SLOTS_MAX {
            return None;
        }
        if slot_index == self.slots.len() {
            self.slots.push(WitnessRecord::empty());
        }
        self.slots[slot_index].name = name.to_owned();
        self.by_name.insert(name.to_owned(), slot_index);
        Some(slot_index)
    }

    /// Writes a record: to both files if it is new or ends, otherwise to the two alternately.
    fn write_record(&mut self, name: &str, contents: WitnessedContents) -> io::Result<()> {
        let begins = !self.by_name.contains_key(name);
        let slot_index = self.slot_for(name);
        let slot_index = slot_index
            .ok_or_else(|| io::Error::other(format!("{SLOTS_MAX} files have a witness")))?;
        let record = &mut self.slots[slot_index];
        record.number += 1;
        record.settled = contents.settled;
        record.proposed = contents.proposed;
        let (ends, next_file) = (record.is_forgotten(), usize::from(record.number % 2 == 1));
        let slot = record.to_slot();
        let slot = slot.ok_or_else(|| io::Error::other("the record is too long"))?;
        if ends {
            self.by_name.remove(name);
        }
        for (number, file) in self.files.iter_mut().flatten().enumerate() {
            if begins || ends || number == next_file {
                file.dirty = true;
                file.stale_slots.remove(&slot_index);
                file.file.write_all_at(&slot, (slot_index * SLOT) as u64)?;
            } else {
                file.stale_slots.insert(slot_index);
            }
        }
        Ok(())
    }

    /// The file with this number if it has unsynced records, and the records that the other file lacks.
    fn take_dirty(&mut self, number: usize) -> Option<(Arc<File>, Vec<SlotVersion>)> {
        let files = self.files.as_mut()?;
        if !std::mem::take(&mut files[number].dirty) {
            return None;
        }
        let missing = files[1 - number].stale_slots.iter();
        let missing = missing
            .map(|slot_index| (*slot_index, self.slots[*slot_index].number))
            .collect();
        Some((files[number].file.clone(), missing))
    }

    /// Copies records to this file that are synced in the other one. Skips records that were changed since: one of their
    /// last two versions must be on disk.
    fn catch_up(&mut self, number: usize, synced: &[SlotVersion]) -> io::Result<()> {
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        let file = &mut files[number];
        for (slot_index, writing) in synced {
            let record = &self.slots[*slot_index];
            let is_behind = file.stale_slots.contains(slot_index) && record.number == *writing;
            if let Some(slot) = record.to_slot().filter(|_| is_behind) {
                file.dirty = true;
                file.file.write_all_at(&slot, (slot_index * SLOT) as u64)?;
                file.stale_slots.remove(slot_index);
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
    /// The last contents of the file; `None` if unknown.
    #[must_use]
    pub fn contents(&self) -> Option<WitnessedContents> {
        let (witnesses, name) = self.0.as_ref()?;
        let files = witnesses.files();
        let slot_index = files.by_name.get(&**name)?;
        Some(files.slots[*slot_index].contents())
    }

    /// Records the contents that the file has on disk. If this write fails, the next change records them.
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

    /// Records that the file exists, regardless of its contents.
    pub fn settle_presence(&self) {
        self.settle(PRESENT);
    }

    /// Syncs all records, including those of other files, and copies them to the other witness file. Writers are not
    /// blocked meanwhile.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let Some((witnesses, _)) = &self.0 else {
            return Ok(());
        };
        // The third pass is for what one file caught up from the other.
        for number in [0, 1, 0] {
            let dirty = witnesses.files().take_dirty(number);
            let Some((file, missing)) = dirty else {
                continue;
            };
            if let Err(error) = file.sync_data() {
                witnesses.files().mark_dirty(number);
                return Err(error);
            }
            witnesses.files().catch_up(1 - number, &missing)?;
        }
        Ok(())
    }

    /// Records the contents that the file is about to be replaced with: on disk when this returns.
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
        // If this record is torn, the one in the other file is used.
        files.sync()?;
        files.write_record(name, WitnessedContents { settled, proposed })?;
        files.sync()
    }

    /// Removes the witness of the file: on disk when this returns.
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

    /// The witness of another file of the same folder.
    #[must_use]
    pub fn sibling(&self, name: impl Into<String>) -> Self {
        match &self.0 {
            Some((witnesses, _)) => witnesses.witness(name),
            None => Self::default(),
        }
    }

    /// The records of the same folder with this name prefix; the prefix is removed from the names.
    #[must_use]
    pub fn records_with_prefix(&self, beginning: &str) -> Vec<(String, WitnessedContents)> {
        match &self.0 {
            Some((witnesses, _)) => witnesses.records_with_prefix(beginning),
            None => Vec::new(),
        }
    }
}
