//! How what must last stands in a file: entries that are only ever appended, each with its length, a
//! checksum and the hash of the one before.
//!
//! An entry is `length, previous, hash, check, payload`: the hash covers length, previous and payload,
//! the check covers the three before it. So a length is believed only when it is as it was written,
//! and a file that ends within an entry (a write that never finished, and so was never acknowledged)
//! is told from one that was changed. So is a last entry of which some sectors never came to the disk
//! before the power went: they read as zeros.

use std::fmt;

/// Longest payload, in bytes: the largest operation of grants names 1,024 of them.
pub const PAYLOAD_MAX: usize = 256 << 10;
/// Largest journal, in bytes: it is read whole at start. Beyond, nothing more is taken.
pub const JOURNAL_MAX: u64 = 1 << 30;
const CHECK: usize = 4;
/// The least a disk writes whole, in bytes: what it lost begins and ends at a multiple of this.
const SECTOR: usize = 512;
const HEADER: usize = 4 + blake3::OUT_LEN + blake3::OUT_LEN + CHECK;
const CONTEXT: &str = "mgp 2026-11 journal entry";

/// The hash of an entry, which the next one repeats.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JournalLink([u8; blake3::OUT_LEN]);

impl JournalLink {
    /// What the first entry of a journal of this kind has before it: a file of another kind is not
    /// mistaken for this one.
    #[must_use]
    pub fn start(kind: &str) -> Self {
        Self(blake3::derive_key("mgp 2026-11 journal", kind.as_bytes()))
    }

    fn next(self, length: [u8; 4], payload: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&length).update(&self.0).update(payload);
        Self(hasher.finalize().into())
    }
}

/// In hexadecimal digits, whole: what a witness of the journal records.
impl fmt::Display for JournalLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for JournalLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |byte: &u8| write!(f, "{byte:02x}");
        self.0.iter().take(8).try_for_each(hex)
    }
}

/// A payload over [`PAYLOAD_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry of {0} bytes is over the limit of {PAYLOAD_MAX}")]
pub struct TooLong(pub usize);

/// Writes entries, each tied to the one before.
#[derive(Clone, Copy, Debug)]
pub struct JournalWriter {
    last: JournalLink,
}

impl JournalWriter {
    /// Goes on after this entry.
    #[must_use]
    pub fn after(last: JournalLink) -> Self {
        Self { last }
    }

    /// The last entry that was written.
    #[must_use]
    pub fn head(&self) -> JournalLink {
        self.last
    }

    /// Appends an entry to `out`.
    ///
    /// # Errors
    /// [`TooLong`]; then nothing was appended.
    pub fn write(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
        if payload.len() > PAYLOAD_MAX {
            return Err(TooLong(payload.len()));
        }
        let length = (payload.len() as u32).to_le_bytes();
        let hash = self.last.next(length, payload);
        let from = out.len();
        out.extend_from_slice(&length);
        out.extend_from_slice(&self.last.0);
        out.extend_from_slice(&hash.0);
        let check = check(&out[from..]);
        out.extend_from_slice(&check);
        out.extend_from_slice(payload);
        self.last = hash;
        Ok(())
    }
}

fn check(header: &[u8]) -> [u8; CHECK] {
    let mut check = [0; CHECK];
    check.copy_from_slice(&blake3::hash(header).as_bytes()[..CHECK]);
    check
}

/// What stands where no entry can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalFault {
    /// The file ends within an entry that begins here, or was made longer and never written, in whole or
    /// in part: nothing from here on was acknowledged.
    #[error("from byte {at} on it holds {bytes} bytes of an entry that was never finished")]
    Torn {
        /// Where the unfinished entry begins.
        at: u64,
        /// How much there is of it.
        bytes: u64,
    },
    /// It was changed after it was written.
    #[error("entry {entry}, at byte {at}, is damaged: {what}")]
    Damaged {
        /// Which entry, from 1.
        entry: u64,
        /// Where it begins.
        at: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Reads a journal from its beginning.
#[derive(Clone, Debug)]
pub struct JournalReader<'a> {
    bytes: &'a [u8],
    at: usize,
    entries: u64,
    last: JournalLink,
}

impl<'a> JournalReader<'a> {
    /// Reads `bytes` as a journal of this kind.
    #[must_use]
    pub fn new(kind: &str, bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            entries: 0,
            last: JournalLink::start(kind),
        }
    }

    /// The last entry that was read, for a [`JournalWriter`] to go on after.
    #[must_use]
    pub fn head(&self) -> JournalLink {
        self.last
    }

    /// Where the next entry begins.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at as u64
    }

    fn entry(&self, rest: &'a [u8]) -> Result<(&'a [u8], JournalLink), JournalFault> {
        let torn = JournalFault::Torn {
            at: self.position(),
            bytes: rest.len() as u64,
        };
        if rest.iter().all(|byte| *byte == 0) {
            return Err(torn);
        }
        let Some((header, after)) = rest.split_at_checked(HEADER) else {
            return Err(torn);
        };
        let (told, its_check) = header.split_at(HEADER - CHECK);
        if check(told) != its_check {
            return Err(match self.lost(rest, 0..HEADER) && !has_entry(&rest[1..]) {
                true => torn,
                false => self.damaged("its header is not as it was written"),
            });
        }
        let (length, hashes) = told.split_at(4);
        let length: [u8; 4] = length.try_into().expect("split at 4");
        let (previous, hash) = hashes.split_at(blake3::OUT_LEN);
        let size = u32::from_le_bytes(length) as usize;
        if size > PAYLOAD_MAX {
            return Err(self.damaged("it is longer than any entry can be"));
        }
        if previous != self.last.0 {
            return Err(self.damaged("it does not belong behind the one before it"));
        }
        let (payload, behind) = after.split_at_checked(size).ok_or(torn.clone())?;
        let link = self.last.next(length, payload);
        if link.0 != hash {
            let is_last = behind.iter().all(|byte| *byte == 0);
            return Err(match is_last && self.lost(rest, HEADER..HEADER + size) {
                true => torn,
                false => self.damaged("its payload is not as it was written"),
            });
        }
        Ok((payload, link))
    }

    /// Whether one of the sectors with these bytes of `rest` reads as zeros, as far as it is in `rest`: the
    /// part of it before was there already.
    fn lost(&self, rest: &[u8], bytes: std::ops::Range<usize>) -> bool {
        let into = self.at % SECTOR;
        let sectors = (into + bytes.start) / SECTOR..(into + bytes.end).div_ceil(SECTOR);
        sectors.into_iter().any(|sector| {
            let from = (sector * SECTOR).saturating_sub(into);
            let to = ((sector + 1) * SECTOR - into).min(rest.len());
            rest.get(from..to)
                .is_some_and(|lost| !lost.is_empty() && lost.iter().all(|byte| *byte == 0))
        })
    }

    fn damaged(&self, what: &'static str) -> JournalFault {
        JournalFault::Damaged {
            entry: self.entries + 1,
            at: self.position(),
            what,
        }
    }
}

/// Whether an entry begins somewhere in these bytes, or more follows than one can have.
fn has_entry(bytes: &[u8]) -> bool {
    let begins = |header: &[u8]| {
        let (told, its_check) = header.split_at(HEADER - CHECK);
        check(told) == its_check
    };
    bytes.len() > HEADER + PAYLOAD_MAX || bytes.windows(HEADER).any(begins)
}

impl<'a> Iterator for JournalReader<'a> {
    type Item = Result<&'a [u8], JournalFault>;

    /// The next payload; after a fault, the same fault again.
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..)?;
        if rest.is_empty() {
            return None;
        }
        let (payload, link) = match self.entry(rest) {
            Ok(read) => read,
            Err(fault) => return Some(Err(fault)),
        };
        self.at += HEADER + payload.len();
        self.entries += 1;
        self.last = link;
        Some(Ok(payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = JournalWriter::after(JournalLink::start("test"));
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
        let refused = JournalWriter::after(JournalLink::start("t"))
            .write(&vec![0; PAYLOAD_MAX + 1], &mut out);
        assert_eq!((refused, out.len()), (Err(TooLong(PAYLOAD_MAX + 1)), 0));
    }

    /// FED-001: entries that change places, or one that is gone from the middle, break the chain.
    #[test]
    fn an_entry_that_was_taken_out_is_missed() {
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

    /// Sectors of the last entry that never came to the disk, at its beginning, in its middle or at its
    /// end, with what was there before them untouched: the entry is torn. Zeros that no disk leaves so,
    /// and a hole with a whole entry behind it, are damage.
    #[test]
    fn a_last_entry_torn_at_a_sector_is_no_damage() {
        let payload = |byte: u8, len: usize| vec![byte; len];
        let whole = written(&[payload(1, 300), payload(2, 300)]);
        let bytes = written(&[payload(1, 300), payload(2, 300), payload(3, 1_500)]);
        let begins = whole.len();
        assert_eq!((begins / SECTOR, begins.is_multiple_of(SECTOR)), (1, false));
        let torn = Some(JournalFault::Torn {
            at: begins as u64,
            bytes: (bytes.len() - begins) as u64,
        });
        let edges: Vec<usize> = (2..5).map(|n| n * SECTOR).collect();
        let ends = [edges.clone(), vec![bytes.len()]].concat();
        for from in [vec![begins], edges.clone()].concat() {
            for to in ends.iter().copied().filter(|to| *to > from) {
                let mut hurt = bytes.clone();
                hurt[from..to].fill(0);
                let (read, fault) = read("test", &hurt);
                assert_eq!((read.len(), fault), (2, torn.clone()), "{from}..{to}");
            }
        }
        for (from, to) in [(begins, begins + 90), (1_100, 1_530), (1_030, 1_400)] {
            let mut hurt = bytes.clone();
            hurt[from..to].fill(0);
            let (_, fault) = read("test", &hurt);
            assert!(
                matches!(fault, Some(JournalFault::Damaged { .. })),
                "{from}..{to}"
            );
        }
        let more = written(&[payload(1, 300), payload(2, 1_500), payload(3, 9)]);
        for (from, to) in [(372, 512), (512, 1_024)] {
            let mut hurt = more.clone();
            hurt[from..to].fill(0);
            let (read, fault) = read("test", &hurt);
            assert_eq!(read.len(), 1);
            assert!(
                matches!(fault, Some(JournalFault::Damaged { entry: 2, .. })),
                "{from}..{to}"
            );
        }
    }

    proptest! {
        /// Wherever the file ends, all entries that were finished are read and the rest is torn.
        #[test]
        fn a_torn_tail_is_told_from_damage(
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
            // A file that was made longer before its bytes were written.
            let mut longer = bytes.clone();
            longer.resize(bytes.len() + zeros, 0);
            let (whole, fault) = read("test", &longer);
            prop_assert_eq!(whole, payloads);
            prop_assert_eq!(fault.is_some(), zeros > 0);
        }

        /// No byte of a whole journal can be another without being named with its entry.
        #[test]
        fn a_flipped_byte_is_damage_and_not_a_torn_tail(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..6),
            at in any::<prop::sample::Index>(),
            mask in 1u8..,
        ) {
            let mut bytes = written(&payloads);
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
            // The only byte in its sector, and zero now: a disk may have lost it.
            prop_assume!(at + 1 < bytes.len() || at % SECTOR > 0 || bytes[at] > 0);
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
