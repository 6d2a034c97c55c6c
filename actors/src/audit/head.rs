//! The last record known to be on disk, kept outside the log: without it, records cut off the end of the
//! log would leave no trace.
//!
//! Two places are written in turn, so that one of them is whole whenever the power goes.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use mgp_engine::audit::chain::Head;
use mgp_engine::audit::record::Digest;

/// One place: a sector of its own.
const PLACE: u64 = 512;

/// The file, open to be written.
#[derive(Debug)]
pub(super) struct HeadFile {
    file: File,
    turn: u64,
}

impl HeadFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut open = OpenOptions::new();
        let file = open
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        // The older of the two is written next.
        let places = [0, 1].map(|turn| place(&file, turn).map_or(0, |head| head.sequence));
        let turn = u64::from(places[0] > places[1]);
        Ok(Self { file, turn })
    }

    /// Writes the head. It is on disk after [`Self::sync`] at the latest.
    pub(super) fn write(&mut self, head: Head) -> io::Result<()> {
        let text = format!("{} {} {}\n", head.sequence, head.hash, check(head));
        self.file.write_all_at(text.as_bytes(), self.turn * PLACE)?;
        self.turn = 1 - self.turn;
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// The head that was written last; `None` when none ever was.
///
/// # Errors
/// When the file cannot be read, or holds none any more.
pub fn read(path: &Path) -> io::Result<Option<Head>> {
    let file = match File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let newest = [0, 1].into_iter().filter_map(|turn| place(&file, turn));
    match newest.max_by_key(|head| head.sequence) {
        Some(head) => Ok(Some(head)),
        None if file.metadata()?.len() == 0 => Ok(None),
        None => Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("{} does not hold the log's last record", path.display()),
        )),
    }
}

fn place(file: &File, turn: u64) -> Option<Head> {
    let mut bytes = [0; PLACE as usize];
    let len = file.read_at(&mut bytes, turn * PLACE).ok()?;
    let line = bytes[..len].split(|b| *b == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let head = Head {
        sequence: words.next()?.parse().ok()?,
        hash: Digest::parse(words.next()?)?,
    };
    (words.next() == Some(&check(head))).then_some(head)
}

/// A place that was being written when the power went has another one.
fn check(head: Head) -> String {
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
    fn one_of_two_places_is_always_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head");
        assert_eq!(read(&path).unwrap(), None);
        let mut file = HeadFile::open(&path).unwrap();
        assert_eq!(read(&path).unwrap(), None);
        (1..=3).for_each(|n| file.write(head(n)).unwrap());
        assert_eq!(read(&path).unwrap(), Some(head(3)));
        let mut file = HeadFile::open(&path).unwrap();
        file.write(head(4)).unwrap();
        assert_eq!(read(&path).unwrap(), Some(head(4)));
        file.file.write_all_at(b"x", PLACE).unwrap();
        assert_eq!(read(&path).unwrap(), Some(head(3)));
        file.file.write_all_at(b"x", 0).unwrap();
        assert!(read(&path).is_err());
    }
}
