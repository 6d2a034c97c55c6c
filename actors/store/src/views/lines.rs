//! Reads the log for the view: all records from a position on, and single records.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::record::{AuditRecord, EVENT_MAX};

use super::keys::RecordLine;
use crate::audit::LogFolder;

/// The read buffer size in bytes; lines are shorter. A query waits for at most one such read.
const CHUNK: u64 = 256 << 10;
/// Exceeds the maximum line length.
const LINE_MAX: u32 = 2 * EVENT_MAX as u32;

/// A reading position in the log.
pub(super) struct IndexedLines {
    pub(super) folder: LogFolder,
    number: u64,
    offset: u64,
}

impl IndexedLines {
    /// Continues after this record, or starts at the beginning.
    pub(super) fn start_after(folder: LogFolder, last: Option<&RecordLine>) -> Self {
        let (number, offset) = last.map_or((0, 0), |last| {
            (last.number, last.offset + u64::from(last.len) + 1)
        });
        Self {
            folder,
            number,
            offset,
        }
    }

    /// Reads the next chunk; returns whether there was any.
    pub(super) fn read_chunk(
        &mut self,
        files: &[u64],
        mut take: impl FnMut(RecordLine, &AuditRecord<'_>),
    ) -> io::Result<bool> {
        let read = match self.read(&mut take) {
            Err(e) if e.kind() == ErrorKind::NotFound => 0,
            read => read?,
        };
        self.offset += read;
        if read > 0 {
            return Ok(true);
        }
        // The files were listed before this read, so records in the next file come after all of this one.
        let Some(later) = files.iter().find(|n| **n > self.number) else {
            return Ok(false);
        };
        (self.number, self.offset) = (*later, 0);
        Ok(true)
    }

    fn read(&self, take: &mut impl FnMut(RecordLine, &AuditRecord<'_>)) -> io::Result<u64> {
        let mut file = File::open(self.folder.file_path(self.number))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(CHUNK).read_to_end(&mut bytes)?;
        let mut read = 0;
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            let Some(record) = line.strip_suffix(b"\n") else {
                break;
            };
            let offset = self.offset + read;
            read += line.len() as u64;
            if let (Some(parsed), Ok(len)) = (AuditRecord::parse(record), record.len().try_into()) {
                let place = RecordLine {
                    head: record_head(&parsed),
                    number: self.number,
                    offset,
                    len,
                };
                take(place, &parsed);
            }
        }
        // Skip a line that exceeds the maximum length.
        if read == 0 && bytes.len() as u64 == CHUNK {
            read = CHUNK;
        }
        Ok(read)
    }
}

/// The sequence and hash of a record.
pub(super) fn record_head(record: &AuditRecord<'_>) -> Head {
    Head {
        sequence: record.sequence,
        hash: record.hash,
    }
}

/// Reads single records; the file of the last one stays open.
pub(super) struct RecordReader<'a> {
    folder: &'a LogFolder,
    open: Option<(u64, File)>,
}

impl<'a> RecordReader<'a> {
    pub(super) fn new(folder: &'a LogFolder) -> Self {
        Self { folder, open: None }
    }

    /// The bytes of the line at this offset; `None` if the log has none.
    pub(super) fn read_line(&mut self, number: u64, offset: u64, len: u32) -> Option<Vec<u8>> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            self.open = Some((number, File::open(self.folder.file_path(number)).ok()?));
        }
        let (_, file) = self.open.as_ref()?;
        let mut bytes = vec![0; len.min(LINE_MAX) as usize];
        file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}
