//! The database of the view. sled may panic wherever it meets what it does not expect, so each of its
//! operations is guarded, and none of them is trusted to have lasted.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use mgp_engine::store::audit::record::AuditRecord;
use mgp_runtime::time::unix_ms;
use sled::Batch;

use super::keys::{BUILT_TO, BuiltTo, RecordPlace};
use super::lines::{RecordReader, head};
use crate::audit::Folder;
use crate::removal;

/// Memory for what was read, in bytes.
const CACHE: u64 = 16 << 20;
/// A database that an earlier kernel of this process still closes is tried again so often, at this distance.
const TRIES: usize = 50;
const AGAIN: Duration = Duration::from_millis(100);
/// What sled says of one.
const IN_USE: &str = "could not acquire lock";
/// Keys removed at once.
const REMOVED: usize = 4_096;

/// Opens a database at a path.
pub(super) type OpenSled = fn(&Path) -> sled::Result<sled::Db>;

pub(super) fn open_sled(path: &Path) -> sled::Result<sled::Db> {
    let config = sled::Config::new().path(path).cache_capacity(CACHE);
    config.flush_every_ms(None).open()
}

/// The open database.
pub(super) struct ViewDatabase(Option<sled::Db>);

impl Drop for ViewDatabase {
    fn drop(&mut self) {
        let db = self.0.take();
        let _ = guarded(|| {
            drop(db);
            Ok(())
        });
    }
}

impl ViewDatabase {
    /// Opens it, and says how far it was built; with why it is of no use, in words.
    pub(super) fn open(
        path: &Path,
        folder: &Folder,
        open: OpenSled,
    ) -> Result<(Self, Option<BuiltTo>), String> {
        // A database that was there says how far it was built; sled takes most damage for an empty one.
        let was_there = path.exists();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|e| e.to_string())?;
        let mut tries = 0;
        let db = loop {
            tries += 1;
            match guarded(|| open(path)) {
                Err(why) if tries < TRIES && why.contains(IN_USE) => std::thread::sleep(AGAIN),
                opened => break opened?,
            }
        };
        let database = Self(Some(db));
        if !was_there {
            database.add(Vec::new(), &BuiltTo::START)?;
            database.flush()?;
        }
        let built = database.built(folder)?;
        Ok((database, built))
    }

    /// How far it was built, where that is still how the log is.
    fn built(&self, folder: &Folder) -> Result<Option<BuiltTo>, String> {
        let said = self.with(|db| db.get(BUILT_TO))?;
        let said = said.ok_or("it does not say how far it was built")?;
        let built = BuiltTo::parse(&said).ok_or("it is none of this kernel's")?;
        if built == BuiltTo::START {
            return Ok(None);
        }
        let mut reader = RecordReader::new(folder);
        let line = reader.line(built.number, built.offset, built.len);
        let found = line.and_then(|line| AuditRecord::parse(&line).map(|record| head(&record)));
        match found == Some(built.head) {
            true => Ok(Some(built)),
            false => Err(format!(
                "record {} is not where the log had it",
                built.head.sequence
            )),
        }
    }

    fn with<T>(&self, what: impl FnOnce(&sled::Db) -> sled::Result<T>) -> Result<T, String> {
        let db = self.0.as_ref().ok_or("it is closed")?;
        guarded(|| what(db))
    }

    /// Adds keys, each with the length of its record, together with how far that is.
    pub(super) fn add(&self, keys: Vec<(Vec<u8>, u32)>, built: &BuiltTo) -> Result<(), String> {
        let mut batch = Batch::default();
        for (key, len) in keys {
            batch.insert(key, &len.to_be_bytes());
        }
        batch.insert(BUILT_TO, built.text().into_bytes());
        self.with(|db| db.apply_batch(batch))
    }

    /// Removes some keys of files before this one; answers whether there were any.
    pub(super) fn remove_before(&self, number: u64) -> Result<bool, String> {
        self.with(|db| {
            let mut batch = Batch::default();
            let mut some = false;
            let before = db.range(..number.to_be_bytes().to_vec());
            for entry in before.take(REMOVED) {
                batch.remove(entry?.0);
                some = true;
            }
            db.apply_batch(batch)?;
            Ok(some)
        })
    }

    /// Places between two keys of one file, the last one first, each with the length of its record; at most
    /// `most`.
    pub(super) fn places(
        &self,
        low: Vec<u8>,
        high: Vec<u8>,
        most: usize,
    ) -> Result<Vec<(RecordPlace, u32)>, String> {
        if low >= high {
            return Ok(Vec::new());
        }
        self.with(|db| {
            let mut out = Vec::new();
            for entry in db.range(low..high).rev().take(most) {
                let (key, len) = entry?;
                let len = len.as_ref().try_into().map(u32::from_be_bytes);
                out.extend(RecordPlace::of_key(&key).zip(len.ok()));
            }
            Ok(out)
        })
    }

    /// Writes what is in memory. What is lost all the same is read from the log again.
    pub(super) fn flush(&self) -> Result<(), String> {
        self.with(|db| db.flush().map(drop))
    }
}

/// Runs an operation of sled; a panic is an error.
fn guarded<T>(what: impl FnOnce() -> sled::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(what)) {
        Ok(done) => done.map_err(|e| e.to_string()),
        Err(panic) => {
            // Not dropped: what it carries may panic again.
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            std::mem::forget(panic);
            Err(format!("sled panicked: {}", words.unwrap_or_default()))
        }
    }
}

/// Moves a view that is of no use aside, in place of the one before.
pub(super) fn put_aside(path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = format!("{name}.damaged-");
    for entry in fs::read_dir(path.parent().unwrap_or(path))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&aside) {
            removal::remove(&entry.path())?;
        }
    }
    match fs::rename(path, path.with_file_name(format!("{aside}{}", unix_ms()))) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}
