//! The format of append-only journals: each entry has its length, a checksum and the hash of the previous entry.
//!
//! An entry is `length, previous, hash, check, payload`: the hash covers length, previous and payload; the check covers
//! the three fields before it. So a length is used only if it is intact, and a file that ends within an entry (an
//! unfinished write, which was never acknowledged) is distinguished from a changed one.
//!
//! Entries that share one sync are a group. At a power cut, sectors of a group may have reached the disk in any order;
//! missing ones read as zeros. The next group is written only once this one is on disk, so only the last group can have
//! such holes. The check of each entry but the first of a group includes its distance from the beginning of the group:
//! so an entry after a hole shows whether it belongs to the same group (which is torn, and was never acknowledged) or to
//! a later one (then the hole is damage).

use std::fmt;
use std::ops::Range;

/// Longest payload, in bytes: the largest operation of grants names 1,024 of them.
pub const PAYLOAD_MAX: usize = 256 << 10;
/// Largest journal, in bytes: it is read whole at start. Further entries are rejected.
pub const JOURNAL_MAX: u64 = 1 << 30;
const CHECKSUM_LEN: usize = 4;
/// The smallest unit that a disk writes atomically, in bytes: holes begin and end at a multiple of this.
const SECTOR_LEN: usize = 512;
const HASHES_LEN: usize = 2 * blake3::OUT_LEN;
const HEADER_LEN: usize = 4 + HASHES_LEN + CHECKSUM_LEN;
const HASH_CONTEXT: &str = "mgp 2026-11 journal entry";

/// The hash of an entry, which the next one repeats.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EntryHash([u8; blake3::OUT_LEN]);

impl EntryHash {
    /// The previous hash of the first entry. It depends on the kind of journal, so that files of other kinds are
    /// rejected.
    #[must_use]
    pub fn genesis(kind: &str) -> Self {
        Self(blake3::derive_key("mgp 2026-11 journal", kind.as_bytes()))
    }

    fn next_link(self, length: [u8; 4], payload: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(HASH_CONTEXT);
        hasher.update(&length).update(&self.0).update(payload);
        Self(hasher.finalize().into())
    }
}

/// All hexadecimal digits, as witnesses of the journal record them.
impl fmt::Display for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |byte: &u8| write!(f, "{byte:02x}");
        self.0.iter().take(8).try_for_each(hex)
    }
}

/// A payload over [`PAYLOAD_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry of {0} bytes is over the limit of {PAYLOAD_MAX}")]
pub struct PayloadTooLong(pub usize);

/// Writes entries, each linked to the previous one.
#[derive(Clone, Copy, Debug)]
pub struct JournalWriter {
    last: EntryHash,
}

impl JournalWriter {
    /// Continues after this entry.
    #[must_use]
    pub fn resume(last: EntryHash) -> Self {
        Self { last }
    }

    /// The hash of the last entry.
    #[must_use]
    pub fn head(&self) -> EntryHash {
        self.last
    }

    /// Appends an entry to `out` as a group of its own.
    ///
    /// # Errors
    /// [`PayloadTooLong`]; then nothing was appended.
    pub fn write(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), PayloadTooLong> {
        self.write_entry(0, payload, out)
    }

    /// Appends an entry to a group, which is written and synced as a whole.
    ///
    /// # Errors
    /// [`PayloadTooLong`]; then nothing was appended.
    pub fn write_to_group(
        &mut self,
        payload: &[u8],
        group: &mut Vec<u8>,
    ) -> Result<(), PayloadTooLong> {
        self.write_entry(group.len(), payload, group)
    }

    fn write_entry(
        &mut self,
        distance: usize,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), PayloadTooLong> {
        if payload.len() > PAYLOAD_MAX {
            return Err(PayloadTooLong(payload.len()));
        }
        let length = (payload.len() as u32).to_le_bytes();
        let hash = self.last.next_link(length, payload);
        let from = out.len();
        out.extend_from_slice(&length);
        out.extend_from_slice(&self.last.0);
        out.extend_from_slice(&hash.0);
        let check = checksum(&out[from..], distance);
        out.extend_from_slice(&check);
        out.extend_from_slice(payload);
        self.last = hash;
        Ok(())
    }
}

/// The check of a header at this distance from the beginning of its group.
fn checksum(header: &[u8], distance: usize) -> [u8; CHECKSUM_LEN] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(header);
    if distance > 0 {
        hasher.update(&(distance as u64).to_le_bytes());
    }
    let mut check = [0; CHECKSUM_LEN];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..CHECKSUM_LEN]);
    check
}

/// Why an entry cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalFault {
    /// The file ends within a group, or parts of the group never reached the disk: nothing from here on was
    /// acknowledged.
    #[error("from byte {at} on it holds {bytes} bytes of an unfinished write")]
    Torn {
        /// Where the first unfinished entry begins.
        at: u64,
        /// The bytes from there on.
        bytes: u64,
    },
    /// It was changed after it was written.
    #[error("entry {entry}, at byte {at}, is damaged: {what}")]
    Damaged {
        /// The number of the entry, from 1.
        entry: u64,
        /// The offset of the entry.
        at: u64,
        /// The reason.
        what: &'static str,
    },
}

/// Reads a journal from its beginning.
#[derive(Clone, Debug)]
pub struct JournalReader<'a> {
    bytes: &'a [u8],
    position: usize,
    /// The offset of the group of the last entry.
    group_start: usize,
    entries: u64,
    last: EntryHash,
    /// The number of entries that a witness confirms as acknowledged.
    acknowledged: Option<u64>,
}

impl<'a> JournalReader<'a> {
    /// Reads `bytes` as a journal of this kind.
    #[must_use]
    pub fn new(kind: &str, bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            position: 0,
            group_start: 0,
            entries: 0,
            last: EntryHash::genesis(kind),
            acknowledged: None,
        }
    }

    /// Sets the number of entries that a witness confirms as acknowledged: a hole in them is no torn write. Later ones
    /// may be torn in any way, not only by sectors that read as zeros.
    #[must_use]
    pub fn with_acknowledged(self, entries: Option<u64>) -> Self {
        Self {
            acknowledged: entries,
            ..self
        }
    }

    /// The hash of the last entry, for a [`JournalWriter`] to continue.
    #[must_use]
    pub fn head(&self) -> EntryHash {
        self.last
    }

    /// The offset of the next entry.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position as u64
    }

    fn read_entry(&self, rest: &'a [u8]) -> Result<JournalEntry<'a>, JournalFault> {
        if rest.iter().all(|byte| *byte == 0) {
            return Err(self.torn_fault(rest));
        }
        let Some((header, after)) = rest.split_at_checked(HEADER_LEN) else {
            return Err(self.torn_fault(rest));
        };
        let Some(group) = self.find_group_start(header, self.position) else {
            return Err(self.classify_fault(rest, 0..HEADER_LEN, 1, "its header was changed"));
        };
        let (length, hashes) = header.split_at(4);
        let length: [u8; 4] = length.try_into().expect("split at 4");
        let (previous, hash) = hashes[..HASHES_LEN].split_at(blake3::OUT_LEN);
        let size = u32::from_le_bytes(length) as usize;
        if size > PAYLOAD_MAX {
            return Err(self.damaged_fault("it is longer than any entry can be"));
        }
        if previous != self.last.0 {
            return Err(self.damaged_fault("it does not follow the entry before it"));
        }
        let payload = after.get(..size).ok_or_else(|| self.torn_fault(rest))?;
        let link = self.last.next_link(length, payload);
        if link.0 != hash {
            let end = HEADER_LEN + size;
            let what = "its payload was changed";
            return Err(self.classify_fault(rest, HEADER_LEN..end, end, what));
        }
        Ok(JournalEntry {
            payload,
            link,
            group_start: group,
        })
    }

    /// The offset of the group to which the header at `at` belongs, if the header is intact: `at`, the group of the last
    /// entry, or the next entry to be read.
    fn find_group_start(&self, header: &[u8], at: usize) -> Option<usize> {
        let (fields, check) = header.split_at(HEADER_LEN - CHECKSUM_LEN);
        let groups = [at, self.group_start, self.position];
        let matches = |group: &usize| checksum(fields, at - group) == check;
        groups.into_iter().find(matches)
    }

    /// Decides whether unreadable bytes of `rest` are torn or damaged. Later groups are searched from `search_from` on.
    fn classify_fault(
        &self,
        rest: &'a [u8],
        bytes: Range<usize>,
        search_from: usize,
        what: &'static str,
    ) -> JournalFault {
        let may_be_torn = match self.acknowledged {
            Some(acknowledged) => self.entries >= acknowledged,
            None => self.has_zero_sector(rest, bytes),
        };
        if may_be_torn && !self.has_later_group(rest, search_from) {
            self.torn_fault(rest)
        } else {
            self.damaged_fault(what)
        }
    }

    /// Whether one of the sectors with these bytes reads as zeros, as far as it is in `rest`: the part before was
    /// written earlier.
    fn has_zero_sector(&self, rest: &[u8], bytes: Range<usize>) -> bool {
        let sector_offset = self.position % SECTOR_LEN;
        let sectors = (sector_offset + bytes.start) / SECTOR_LEN
            ..(sector_offset + bytes.end).div_ceil(SECTOR_LEN);
        sectors.into_iter().any(|sector| {
            let from = (sector * SECTOR_LEN).saturating_sub(sector_offset);
            let to = ((sector + 1) * SECTOR_LEN - sector_offset).min(rest.len());
            rest.get(from..to)
                .is_some_and(|sector| !sector.is_empty() && sector.iter().all(|byte| *byte == 0))
        })
    }

    /// Whether a group begins in `rest` from this byte on. If so, all bytes before it had reached the disk.
    fn has_later_group(&self, rest: &[u8], from: usize) -> bool {
        let mut offset = from;
        while let Some(header) = rest.get(offset..offset + HEADER_LEN) {
            let (length, hashes) = header.split_at(4);
            let size = u32::from_le_bytes(length.try_into().expect("split at 4")) as usize;
            let (previous, hash) = hashes[..HASHES_LEN].split_at(blake3::OUT_LEN);
            // Rules out most offsets, and is cheaper than the check.
            let is_plausible = size <= PAYLOAD_MAX && previous.iter().any(|byte| *byte > 0);
            let position = self.position + offset;
            match is_plausible
                .then(|| self.find_group_start(header, position))
                .flatten()
            {
                Some(group) if group == position => return true,
                Some(_) => {
                    let previous: [u8; blake3::OUT_LEN] = previous.try_into().expect("one half");
                    let payload = rest.get(offset + HEADER_LEN..offset + HEADER_LEN + size);
                    let is_intact = payload.is_some_and(|payload| {
                        let length = (size as u32).to_le_bytes();
                        EntryHash(previous).next_link(length, payload).0 == hash
                    });
                    offset += if is_intact { HEADER_LEN + size } else { 1 };
                }
                None => offset += 1,
            }
        }
        false
    }

    fn torn_fault(&self, rest: &[u8]) -> JournalFault {
        JournalFault::Torn {
            at: self.position(),
            bytes: rest.len() as u64,
        }
    }

    fn damaged_fault(&self, what: &'static str) -> JournalFault {
        JournalFault::Damaged {
            entry: self.entries + 1,
            at: self.position(),
            what,
        }
    }
}

struct JournalEntry<'a> {
    payload: &'a [u8],
    link: EntryHash,
    /// The offset of its group.
    group_start: usize,
}

impl<'a> Iterator for JournalReader<'a> {
    type Item = Result<&'a [u8], JournalFault>;

    /// Returns the next payload; after a fault, the same fault again.
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.position..)?;
        if rest.is_empty() {
            return None;
        }
        let read = match self.read_entry(rest) {
            Ok(read) => read,
            Err(fault) => return Some(Err(fault)),
        };
        self.position += HEADER_LEN + read.payload.len();
        self.entries += 1;
        self.group_start = read.group_start;
        self.last = read.link;
        Some(Ok(read.payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = JournalWriter::resume(EntryHash::genesis("test"));
        let mut out = Vec::new();
        for payload in payloads {
            writer.write(payload, &mut out).unwrap();
        }
        out
    }

    fn read(kind: &str, bytes: &[u8]) -> (Vec<Vec<u8>>, Option<JournalFault>) {
        let mut payloads = Vec::new();
        for entry in JournalReader::new(kind, bytes) {
            match entry {
                Ok(payload) => payloads.push(payload.to_vec()),
                Err(fault) => return (payloads, Some(fault)),
            }
        }
        (payloads, None)
    }

    #[test]
    fn a_journal_of_another_kind_is_not_read() {
        let bytes = written(&[b"one".to_vec()]);
        assert!(matches!(
            read("other", &bytes).1,
            Some(JournalFault::Damaged {
                entry: 1,
                at: 0,
                ..
            })
        ));
        let mut out = Vec::new();
        let refused = JournalWriter::resume(EntryHash::genesis("t"))
            .write(&vec![0; PAYLOAD_MAX + 1], &mut out);
        assert_eq!(
            (refused, out.len()),
            (Err(PayloadTooLong(PAYLOAD_MAX + 1)), 0)
        );
    }

    /// FED-001: a missing entry breaks the chain.
    #[test]
    fn a_removed_entry_is_detected() {
        let three = [b"one".to_vec(), b"two".to_vec(), b"six".to_vec()];
        let bytes = written(&three);
        let size = bytes.len() / 3;
        let without = [&bytes[..size], &bytes[2 * size..]].concat();
        let (payloads, fault) = read("test", &without);
        assert_eq!(payloads, three[..1]);
        let entry_2_at = size as u64;
        assert!(
            matches!(fault, Some(JournalFault::Damaged { entry: 2, at, .. }) if at == entry_2_at),
            "{fault:?}"
        );
    }

    /// An entry with missing sectors at its beginning, middle or end is torn. Zeros that are not aligned to sectors, and
    /// a hole before an intact entry, are damage.
    #[test]
    fn a_last_entry_with_missing_sectors_is_torn() {
        let payload = |byte: u8, len: usize| vec![byte; len];
        let whole = written(&[payload(1, 300), payload(2, 300)]);
        let bytes = written(&[payload(1, 300), payload(2, 300), payload(3, 1_500)]);
        let begins = whole.len();
        assert_eq!(
            (begins / SECTOR_LEN, begins.is_multiple_of(SECTOR_LEN)),
            (1, false)
        );
        let torn = Some(JournalFault::Torn {
            at: begins as u64,
            bytes: (bytes.len() - begins) as u64,
        });
        let edges: Vec<usize> = (2..5).map(|n| n * SECTOR_LEN).collect();
        let ends = [edges.clone(), vec![bytes.len()]].concat();
        for from in [vec![begins], edges.clone()].concat() {
            for to in ends.iter().copied().filter(|to| *to > from) {
                let mut damaged_bytes = bytes.clone();
                damaged_bytes[from..to].fill(0);
                let (read, fault) = read("test", &damaged_bytes);
                assert_eq!((read.len(), fault), (2, torn.clone()), "{from}..{to}");
            }
        }
        for (from, to) in [(begins, begins + 90), (1_100, 1_530), (1_030, 1_400)] {
            let mut damaged_bytes = bytes.clone();
            damaged_bytes[from..to].fill(0);
            let (_, fault) = read("test", &damaged_bytes);
            assert!(
                matches!(fault, Some(JournalFault::Damaged { .. })),
                "{from}..{to}"
            );
        }
        let more = written(&[payload(1, 300), payload(2, 1_500), payload(3, 9)]);
        for (from, to) in [(372, 512), (512, 1_024)] {
            let mut damaged_bytes = more.clone();
            damaged_bytes[from..to].fill(0);
            let (read, fault) = read("test", &damaged_bytes);
            assert_eq!(read.len(), 1);
            assert!(
                matches!(fault, Some(JournalFault::Damaged { entry: 2, .. })),
                "{from}..{to}"
            );
        }
    }

    /// The first entry stands where no sector begins before it.
    #[test]
    fn a_first_entry_with_missing_sectors_is_torn() {
        let bytes = written(&[vec![1; 1_500]]);
        let bytes_len = bytes.len() as u64;
        for from in [0, SECTOR_LEN, 2 * SECTOR_LEN] {
            let mut torn_bytes = bytes.clone();
            torn_bytes[from..from + SECTOR_LEN].fill(0);
            let torn = JournalFault::Torn {
                at: 0,
                bytes: bytes_len,
            };
            assert_eq!(read("test", &torn_bytes).1, Some(torn), "{from}");
        }
        let mut damaged_bytes = bytes;
        damaged_bytes[700] ^= 1;
        let (_, fault) = read("test", &damaged_bytes);
        assert!(matches!(fault, Some(JournalFault::Damaged { .. })));
    }

    /// What looks like a journal within a payload is no later group, wherever the torn entry before it stands.
    #[test]
    fn a_journal_within_a_payload_is_no_group() {
        for before in [0, 1, 2] {
            let mut writer = JournalWriter::resume(EntryHash::genesis("test"));
            let earlier = vec![vec![5; 130]; before];
            let mut bytes = group(&mut writer, &earlier);
            let begins = bytes.len();
            let mut other = JournalWriter::resume(writer.head());
            let within = group(&mut other, &[vec![9; 40], vec![8; 40]]);
            bytes.extend(group(&mut writer, &[vec![7; 900], within, vec![6; 30]]));
            let lost = (begins / SECTOR_LEN + 1) * SECTOR_LEN;
            bytes[lost..lost + 100].fill(0);
            let reader = JournalReader::new("test", &bytes).with_acknowledged(Some(before as u64));
            let fault = reader.filter_map(Result::err).next();
            assert!(
                matches!(fault, Some(JournalFault::Torn { at, .. }) if at == begins as u64),
                "{before}: {fault:?}"
            );
        }
    }

    fn group(writer: &mut JournalWriter, payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for payload in payloads {
            writer.write_to_group(payload, &mut out).unwrap();
        }
        out
    }

    /// Two groups that were acknowledged, and one that was not, with entries shorter and longer than a sector.
    fn groups() -> (Vec<u8>, Vec<u8>, JournalWriter) {
        let payload = |byte: u8| vec![byte; 90 + 613 * usize::from(byte % 4)];
        let mut writer = JournalWriter::resume(EntryHash::genesis("test"));
        let first: Vec<_> = (1..4).map(payload).collect();
        let second: Vec<_> = (4..6).map(payload).collect();
        let before = [group(&mut writer, &first), group(&mut writer, &second)].concat();
        let last: Vec<_> = (6..17).map(payload).collect();
        let last = group(&mut writer, &last);
        (before, last, writer)
    }

    /// States of the last group after a power cut: one sector or page lost, all from one on, or truncated there.
    fn torn_states(before: usize, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut states = Vec::new();
        for unit in [SECTOR_LEN, 4_096] {
            for sector in (before / unit..).take_while(|n| n * unit < bytes.len()) {
                let from = (sector * unit).max(before);
                let to = ((sector + 1) * unit).min(bytes.len());
                for to in [to, bytes.len()] {
                    let mut damaged_bytes = bytes.to_vec();
                    damaged_bytes[from..to].fill(0);
                    states.push(damaged_bytes);
                }
                states.push(bytes[..from].to_vec());
            }
        }
        states
    }

    #[test]
    fn a_last_group_may_be_torn_anywhere() {
        let (before, last, _) = groups();
        let bytes = [&*before, &last].concat();
        assert_eq!(read("test", &bytes), (read("test", &bytes).0, None));
        for damaged_bytes in torn_states(before.len(), &bytes) {
            let (read, fault) = read("test", &damaged_bytes);
            assert!(read.len() >= 5, "nothing before it is lost");
            match fault {
                None => assert_eq!((read.len(), damaged_bytes.len()), (5, before.len())),
                Some(fault) => {
                    assert!(matches!(fault, JournalFault::Torn { .. }), "{fault:?}");
                }
            }
        }
    }

    /// The later group proves that this one was on disk, so a hole in it is damage, also at its end.
    #[test]
    fn a_hole_before_a_later_group_is_damage() {
        let (before, last, writer) = groups();
        let bytes = [&*before, &last].concat();
        for count in [1, 3] {
            let mut writer = writer;
            let more = group(&mut writer, &vec![vec![7; 700]; count]);
            for damaged_bytes in torn_states(before.len(), &bytes) {
                if damaged_bytes.len() == bytes.len() {
                    let (_, fault) = read("test", &[&*damaged_bytes, &more].concat());
                    assert!(
                        matches!(fault, Some(JournalFault::Damaged { .. })),
                        "{fault:?}"
                    );
                }
            }
        }
    }

    /// Acknowledged entries can only be damaged. Later ones may be torn in any form, except in groups before the last.
    #[test]
    fn a_witness_distinguishes_torn_from_damaged() {
        let (before, last, _) = groups();
        let bytes = [&*before, &last].concat();
        let fault = |damaged_bytes: &[u8], acknowledged| {
            let reader =
                JournalReader::new("test", damaged_bytes).with_acknowledged(Some(acknowledged));
            reader.filter_map(Result::err).next()
        };
        for damaged_bytes in torn_states(before.len(), &bytes) {
            if damaged_bytes.len() == bytes.len() && !damaged_bytes.ends_with(&[0]) {
                let found = fault(&damaged_bytes, 16);
                assert!(
                    matches!(found, Some(JournalFault::Damaged { .. })),
                    "{found:?}"
                );
            }
        }
        for at in (0..bytes.len()).step_by(37) {
            let mut damaged_bytes = bytes.clone();
            damaged_bytes[at] ^= 0x55;
            let is_torn = matches!(fault(&damaged_bytes, 5), Some(JournalFault::Torn { .. }));
            assert_eq!(is_torn, at >= before.len(), "byte {at}");
            assert!(matches!(
                fault(&damaged_bytes, 16),
                Some(JournalFault::Damaged { .. })
            ));
        }
    }

    /// The longest entries are read, and a rejected payload does not change the group.
    #[test]
    fn a_writer_continues_after_the_last_entry() {
        let longest = vec![7; PAYLOAD_MAX];
        let mut bytes = written(std::slice::from_ref(&longest));
        let mut reader = JournalReader::new("test", &bytes);
        assert_eq!(
            (reader.position(), reader.head()),
            (0, EntryHash::genesis("test"))
        );
        assert_eq!(reader.next(), Some(Ok(longest.as_slice())));
        assert_eq!(reader.next(), None);
        assert_eq!(reader.position(), bytes.len() as u64);
        let mut writer = JournalWriter::resume(reader.head());
        let mut more = group(&mut writer, &[vec![1; 9]]);
        let (head, length) = (writer.head(), more.len());
        let too_long = vec![0; PAYLOAD_MAX + 1];
        let refused = writer.write_to_group(&too_long, &mut more);
        assert_eq!(refused, Err(PayloadTooLong(PAYLOAD_MAX + 1)));
        assert!(writer.head() == head && more.len() == length);
        writer.write_to_group(b"two", &mut more).unwrap();
        bytes.extend(more);
        let (payloads, fault) = read("test", &bytes);
        assert_eq!(
            (payloads, fault),
            (vec![longest, vec![1; 9], b"two".to_vec()], None)
        );
    }

    /// Journals of older versions have no groups: only later entries of a group add their distance to the check.
    #[test]
    fn the_first_entry_of_a_group_has_the_old_format() {
        let mut writer = JournalWriter::resume(EntryHash::genesis("test"));
        let bytes = group(&mut writer, &[b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(bytes[..HEADER_LEN + 3], written(&[b"one".to_vec()]));
        let second = HEADER_LEN + 3;
        let fields = HEADER_LEN - CHECKSUM_LEN;
        let first = blake3::hash(&bytes[..fields]);
        assert_eq!(bytes[fields..HEADER_LEN], first.as_bytes()[..CHECKSUM_LEN]);
        let distance = (second as u64).to_le_bytes();
        let with_distance = [&bytes[second..second + fields], &distance].concat();
        let check = &bytes[second + fields..second + HEADER_LEN];
        assert_eq!(
            *check,
            blake3::hash(&with_distance).as_bytes()[..CHECKSUM_LEN]
        );
    }

    /// Such an intact header was not written by a [`JournalWriter`].
    #[test]
    fn an_impossible_length_is_damage() {
        let last = EntryHash::genesis("test");
        for (size, what) in [
            (PAYLOAD_MAX + 1, "it is longer than any entry can be"),
            (u32::MAX as usize, "it is longer than any entry can be"),
        ] {
            let length = (size as u32).to_le_bytes();
            let fields = [&length[..], &last.0, &last.next_link(length, b"").0].concat();
            let bytes = [&fields[..], &checksum(&fields, 0), &[1; 9]].concat();
            let (_, fault) = read("test", &bytes);
            let damaged = JournalFault::Damaged {
                entry: 1,
                at: 0,
                what,
            };
            assert_eq!(fault, Some(damaged));
        }
    }

    #[test]
    fn reading_stops_at_a_fault() {
        let mut bytes = written(&[b"one".to_vec(), b"two".to_vec()]);
        bytes[HEADER_LEN] ^= 1;
        let mut reader = JournalReader::new("test", &bytes);
        let first = reader.next();
        assert!(matches!(
            first,
            Some(Err(JournalFault::Damaged {
                entry: 1,
                at: 0,
                ..
            }))
        ));
        assert_eq!(reader.next(), first);
        assert_eq!(
            (reader.position(), reader.head()),
            (0, EntryHash::genesis("test"))
        );
    }

    proptest! {
        /// Wherever the file ends, all complete entries are read and the rest is torn.
        #[test]
        fn a_truncated_file_is_torn(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..6),
            cut in any::<prop::sample::Index>(),
            zeros in 0usize..200,
        ) {
            let bytes = written(&payloads);
            let cut = cut.index(bytes.len() + 1);
            let (whole, fault) = read("test", &bytes[..cut]);
            prop_assert!(payloads.starts_with(&whole));
            let end = written(&whole).len();
            let torn = JournalFault::Torn { at: end as u64, bytes: (cut - end) as u64 };
            prop_assert_eq!(fault, (cut > end).then_some(torn));
            // The file system extended the file before it wrote the bytes.
            let mut longer = bytes.clone();
            longer.resize(bytes.len() + zeros, 0);
            let (whole, fault) = read("test", &longer);
            prop_assert_eq!(whole, payloads);
            prop_assert_eq!(fault.is_some(), zeros > 0);
        }

        /// Every changed byte is reported with its entry.
        #[test]
        fn a_flipped_byte_is_damage(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..6),
            at in any::<prop::sample::Index>(),
            mask in 1u8..,
        ) {
            let mut bytes = written(&payloads);
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
            // The only byte in its sector, and zero now: a disk may have lost it.
            prop_assume!(at + 1 < bytes.len() || at % SECTOR_LEN > 0 || bytes[at] > 0);
            let (whole, fault) = read("test", &bytes);
            prop_assert!(payloads.starts_with(&whole));
            let begins = written(&whole).len();
            let Some(JournalFault::Damaged { entry, at: named, .. }) = fault else {
                return Err(TestCaseError::fail(format!("{fault:?}")));
            };
            prop_assert_eq!((entry, named), (whole.len() as u64 + 1, begins as u64));
            prop_assert!(at >= begins);
        }
    }
}
