//! Reads the log from a record on while it is being written.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use mgp_engine::store::audit::record::AuditRecord;

use super::files::LogFolder;

/// The read buffer size in bytes; lines are shorter.
const CHUNK: u64 = 256 << 10;

/// A reading position in the log.
pub(super) struct Tail {
    folder: LogFolder,
    number: u64,
    offset: u64,
    /// The sequence of the last record read.
    sequence: u64,
}

impl Tail {
    /// The position after this record: in its file or, if that was trimmed, in the oldest one.
    pub(super) fn open_after(folder: LogFolder, sequence: u64) -> io::Result<Self> {
        let numbers = folder.numbers()?;
        let mut number = numbers.first().copied().unwrap_or(1);
        for candidate in numbers.into_iter().rev() {
            let begins = first_sequence(&folder, candidate)?;
            if begins.is_some_and(|first| first <= sequence.saturating_add(1)) {
                number = candidate;
                break;
            }
        }
        Ok(Self {
            folder,
            number,
            offset: 0,
            sequence,
        })
    }

    /// At most `max_records` of the next records, as `(sequence, event)`; empty if there are no more yet.
    pub(super) fn next(&mut self, max_records: usize) -> io::Result<Vec<(u64, String)>> {
        let mut out = Vec::new();
        while out.len() < max_records {
            // Read before the file, so that records written before the next file was opened are not
            // missed.
            let later = self
                .folder
                .numbers()?
                .into_iter()
                .find(|n| *n > self.number);
            let read = match self.read_lines(max_records, &mut out) {
                // The file was trimmed meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
                read => read?,
            };
            match later {
                _ if read > 0 => {}
                Some(later) => (self.number, self.offset) = (later, 0),
                None => break,
            }
        }
        Ok(out)
    }

    /// Reads complete lines of the current file; returns their length in bytes.
    fn read_lines(&mut self, max_records: usize, out: &mut Vec<(u64, String)>) -> io::Result<u64> {
        let mut file = File::open(self.folder.file_path(self.number))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(CHUNK).read_to_end(&mut bytes)?;
        let mut read = 0;
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            let Some(line_only) = line.strip_suffix(b"\n").filter(|_| out.len() < max_records)
            else {
                break;
            };
            read += line.len() as u64;
            if let Some(record) = AuditRecord::parse(line_only)
                && record.sequence > self.sequence
            {
                self.sequence = record.sequence;
                out.push((record.sequence, record.event.to_owned()));
            }
        }
        // Skip a line that exceeds the maximum length.
        if read == 0 && bytes.len() as u64 == CHUNK {
            read = CHUNK;
        }
        self.offset += read;
        Ok(read)
    }
}

/// The number of the first record of a file.
fn first_sequence(folder: &LogFolder, number: u64) -> io::Result<Option<u64>> {
    let mut bytes = Vec::new();
    File::open(folder.file_path(number))?
        .take(CHUNK)
        .read_to_end(&mut bytes)?;
    let mut lines = bytes.split(|b| *b == b'\n').filter_map(AuditRecord::parse);
    Ok(lines.next().map(|record| record.sequence))
}
