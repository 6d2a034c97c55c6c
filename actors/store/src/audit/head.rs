//! The last record known to be on disk, stored outside the log, because truncating the log would otherwise leave no
//! trace. It is stored in two files, so that the removal of one is detected by the other.
//!
//! Each file has two slots that are written alternately, so that one of them is intact after a power cut.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::record::RecordDigest;

use super::files::LogFolder;
use crate::regular_file;

/// The size of a slot: one sector.
const SLOT: u64 = 512;

/// Both head files, open for writing.
#[derive(Debug)]
pub(super) struct HeadFiles([HeadFile; 2]);

impl HeadFiles {
    /// Opens both files; creates a missing one with the contents of the other.
    pub(super) fn open(folder: &LogFolder) -> io::Result<Self> {
        let head = folder.head();
        let known = read(&head).ok().flatten();
        let known = [known, read(&folder.witness()).ok().flatten()];
        let known = known.into_iter().flatten().max_by_key(|head| head.sequence);
        let known = known.unwrap_or(Head::START);
        let open = |path: &Path| HeadFile::open(path, known);
        Ok(Self([open(&head)?, open(&folder.witness())?]))
    }

    /// Writes the head to both files. [`Self::sync`] makes it durable.
    pub(super) fn write(&mut self, head: Head) -> io::Result<()> {
        self.0.iter_mut().try_for_each(|file| file.write(head))
    }

    /// Syncs the first file: after a power cut one up-to-date file is enough.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.0[0].sync()
    }

    /// Syncs both files.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        self.0.iter().try_for_each(HeadFile::sync)
    }

    /// Recreates a file that was removed meanwhile; returns its path.
    pub(super) fn restore_missing(&mut self, head: Head) -> io::Result<Option<PathBuf>> {
        let gone = |file: &&mut HeadFile| matches!(file.path.try_exists(), Ok(false));
        let Some(gone) = self.0.iter_mut().find(gone) else {
            return Ok(None);
        };
        let path = gone.path.clone();
        *gone = HeadFile::open(&path, head)?;
        Ok(Some(path))
    }
}

/// One of the two head files.
#[derive(Debug)]
struct HeadFile {
    path: PathBuf,
    file: File,
    next_slot: u64,
}

impl HeadFile {
    fn open(path: &Path, known: Head) -> io::Result<Self> {
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true).truncate(false);
        let file = regular_file::open_with(path, open.mode(0o600))?;
        // The older slot is written next.
        let sequences =
            [0, 1].map(|slot_index| read_slot(&file, slot_index).map_or(0, |head| head.sequence));
        let slot_index = u64::from(sequences[0] > sequences[1]);
        let path = path.to_owned();
        let mut opened = Self {
            path,
            file,
            next_slot: slot_index,
        };
        if read(&opened.path).ok().flatten().is_none() {
            // An empty file must have been emptied by somebody.
            opened.write(known)?;
            opened.file.sync_all()?;
        }
        Ok(opened)
    }

    fn write(&mut self, head: Head) -> io::Result<()> {
        let text = format!("{} {} {}\n", head.sequence, head.hash, checksum(head));
        self.file
            .write_all_at(text.as_bytes(), self.next_slot * SLOT)?;
        self.next_slot = 1 - self.next_slot;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// The last written head; `None` if none was ever written.
///
/// # Errors
/// When the file cannot be read or holds no valid head.
pub(crate) fn read(path: &Path) -> io::Result<Option<Head>> {
    let file = match regular_file::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let newest = [0, 1]
        .into_iter()
        .filter_map(|slot_index| read_slot(&file, slot_index));
    match newest.max_by_key(|head| head.sequence) {
        Some(head) => Ok(Some(head)),
        None if file.metadata()?.len() == 0 => Ok(None),
        None => Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("{} does not hold the log's last record", path.display()),
        )),
    }
}

fn read_slot(file: &File, slot_index: u64) -> Option<Head> {
    let mut bytes = [0; SLOT as usize];
    let len = file.read_at(&mut bytes, slot_index * SLOT).ok()?;
    let line = bytes[..len].split(|b| *b == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let head = Head {
        sequence: words.next()?.parse().ok()?,
        hash: RecordDigest::parse(words.next()?)?,
    };
    (words.next() == Some(&checksum(head))).then_some(head)
}

/// Detects a slot that was torn by a power cut; the other slot is intact then.
fn checksum(head: Head) -> String {
    let text = format!("{} {}", head.sequence, head.hash);
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(sequence: u64) -> Head {
        Head {
            sequence,
            ..Head::START
        }
    }

    #[test]
    fn one_slot_is_always_intact() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head");
        assert_eq!(read(&path).unwrap(), None);
        let mut file = HeadFile::open(&path, head(0)).unwrap();
        assert_eq!(read(&path).unwrap(), Some(head(0)));
        (1..=3).for_each(|n| file.write(head(n)).unwrap());
        assert_eq!(read(&path).unwrap(), Some(head(3)));
        let mut file = HeadFile::open(&path, head(0)).unwrap();
        file.write(head(4)).unwrap();
        assert_eq!(read(&path).unwrap(), Some(head(4)));
        file.file.write_all_at(b"x", 0).unwrap();
        assert_eq!(read(&path).unwrap(), Some(head(3)));
        file.file.write_all_at(b"x", SLOT).unwrap();
        assert!(read(&path).is_err());
    }
}
