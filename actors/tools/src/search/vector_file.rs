//! The file of vectors, so that texts are not embedded again after a restart.
//!
//! One file: the model's name, then a record with a checksum for each vector. Everything in it can be recomputed, so
//! damaged records are dropped.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mgp_engine::tools::index::{DIMENSIONS_MAX, Vector};

use super::embedding_queue::CACHED_TOOLS_MAX;

const HEADER: &[u8] = b"mgp vectors 1\n";
/// Bytes of a record's checksum.
const CHECKSUM_BYTES: usize = 8;
/// The maximum number of records; beyond it the file is rewritten without those that are no longer in memory.
const RECORDS_MAX: usize = 2 * CACHED_TOOLS_MAX;

/// The file.
#[derive(Debug)]
pub(super) struct VectorFile {
    path: PathBuf,
    model: String,
    /// `None` after a disk failure: nothing is stored then.
    file: Option<File>,
    records: usize,
}

impl VectorFile {
    /// Opens the file and passes its vectors to `learn`.
    pub(super) fn open(
        path: PathBuf,
        model: &str,
        mut learn: impl FnMut([u8; 32], Vector),
    ) -> Self {
        let mut vector_file = Self {
            path,
            model: model.to_owned(),
            file: None,
            records: 0,
        };
        let mut good = Vec::new();
        let is_intact = vector_file.read_vectors(&mut |hash, vector| good.push((hash, vector)));
        if is_intact.is_ok_and(|is_intact| is_intact) {
            vector_file.records = good.len();
            vector_file.file = vector_file
                .open_for_append()
                .inspect_err(|e| vector_file.log_failure(e))
                .ok();
        } else {
            vector_file.rewrite(&good);
        }
        for (hash, vector) in good {
            learn(hash, vector);
        }
        vector_file
    }

    /// Adds a vector. `known` returns all vectors in memory, for a rewrite.
    pub(super) fn add(
        &mut self,
        hash: &[u8; 32],
        vector: &Vector,
        known: impl FnOnce() -> Vec<([u8; 32], Vector)>,
    ) {
        if self.records >= RECORDS_MAX {
            self.rewrite(&known());
        }
        let Some(file) = &mut self.file else { return };
        match file.write_all(&encode_record(hash, vector)) {
            Ok(()) => self.records += 1,
            Err(error) => {
                self.log_failure(&error);
                self.file = None;
            }
        }
    }

    fn log_failure(&self, error: &io::Error) {
        let path = self.path.display();
        tracing::warn!(%error, "{path}: tools are embedded again at the next start");
    }

    /// Reads the vectors; whether the file is intact and of this model.
    fn read_vectors(&self, good: &mut dyn FnMut([u8; 32], Vector)) -> io::Result<bool> {
        let mut file = BufReader::new(File::open(&self.path)?);
        let head = self.render_header();
        let mut read_head = vec![0; head.len()];
        if file.read_exact(&mut read_head).is_err() || read_head != head {
            return Ok(false);
        }
        for _ in 0..RECORDS_MAX {
            match read_record(&mut file)? {
                NextVector::Record(hash, vector) => good(hash, vector),
                NextVector::End => return Ok(true),
                NextVector::Damaged => return Ok(false),
            }
        }
        Ok(false)
    }

    fn render_header(&self) -> Vec<u8> {
        let mut head = HEADER.to_vec();
        head.extend_from_slice(blake3::hash(self.model.as_bytes()).as_bytes());
        head
    }

    fn open_for_append(&self) -> io::Result<File> {
        OpenOptions::new().append(true).open(&self.path)
    }

    /// Rewrites the file; readers see the old one until it is complete.
    fn rewrite(&mut self, known: &[([u8; 32], Vector)]) {
        self.file = None;
        let written = self.write(known, &self.path.with_extension("new"));
        match written.and_then(|()| self.open_for_append()) {
            Ok(file) => {
                self.file = Some(file);
                self.records = known.len();
            }
            Err(error) => self.log_failure(&error),
        }
    }

    fn write(&self, known: &[([u8; 32], Vector)], new: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = BufWriter::new(options.open(new)?);
        file.write_all(&self.render_header())?;
        for (hash, vector) in known {
            file.write_all(&encode_record(hash, vector))?;
        }
        file.flush()?;
        fs::rename(new, &self.path)
    }
}

/// Length, hash, unit and numbers of a vector, and a checksum over them.
fn encode_record(hash: &[u8; 32], vector: &Vector) -> Vec<u8> {
    let (unit, numbers) = vector.parts();
    let length = u16::try_from(numbers.len()).expect("a vector has at most 4096 numbers");
    let mut out = length.to_le_bytes().to_vec();
    out.extend_from_slice(hash);
    out.extend_from_slice(&unit.to_le_bytes());
    out.extend(numbers.iter().map(|n| n.cast_unsigned()));
    let check = blake3::hash(&out);
    out.extend_from_slice(&check.as_bytes()[..CHECKSUM_BYTES]);
    out
}

enum NextVector {
    Record([u8; 32], Vector),
    End,
    Damaged,
}

fn read_record(file: &mut impl Read) -> io::Result<NextVector> {
    let mut length = [0; 2];
    match file.read(&mut length[..1])? {
        0 => return Ok(NextVector::End),
        _ => {
            if file.read_exact(&mut length[1..]).is_err() {
                return Ok(NextVector::Damaged);
            }
        }
    }
    let numbers = usize::from(u16::from_le_bytes(length));
    if !(1..=DIMENSIONS_MAX).contains(&numbers) {
        return Ok(NextVector::Damaged);
    }
    let mut rest = vec![0; 32 + 4 + numbers + CHECKSUM_BYTES];
    if file.read_exact(&mut rest).is_err() {
        return Ok(NextVector::Damaged);
    }
    let (body, check) = rest.split_at(36 + numbers);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&length).update(body);
    let is_valid = hasher.finalize().as_bytes()[..CHECKSUM_BYTES] == *check;
    let (hash, body) = body.split_at(32);
    let (unit, numbers) = body.split_at(4);
    let unit = f32::from_le_bytes(unit.try_into().expect("four bytes"));
    let numbers: Vec<i8> = numbers.iter().map(|n| n.cast_signed()).collect();
    let vector = Vector::from_parts(unit, &numbers).filter(|_| is_valid);
    let hash = hash.try_into().expect("32 bytes");
    Ok(vector.map_or(NextVector::Damaged, |vector| {
        NextVector::Record(hash, vector)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(n: u8) -> Vector {
        Vector::quantize(&[f32::from(n), 1.0, -1.0]).unwrap()
    }

    fn read(path: &Path, model: &str) -> Vec<[u8; 32]> {
        let mut found = Vec::new();
        drop(VectorFile::open(path.to_owned(), model, |hash, read| {
            assert_eq!(read, vector(hash[0]));
            found.push(hash);
        }));
        found
    }

    fn fill_file(path: &Path) {
        let mut vector_file = VectorFile::open(path.to_owned(), "m", |_, _| panic!("it is new"));
        for n in 0..3 {
            vector_file.add(&[n; 32], &vector(n), || panic!("it is short"));
        }
    }

    #[test]
    fn vectors_are_restored_for_the_same_model() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors");
        fill_file(&path);
        assert_eq!(read(&path, "m"), [[0; 32], [1; 32], [2; 32]]);
        assert_eq!(read(&path, "m").len(), 3);
        assert!(read(&path, "other").is_empty());
        assert!(
            read(&path, "m").is_empty(),
            "the other model has replaced the file"
        );
    }

    #[test]
    fn damaged_records_are_dropped_and_the_file_is_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors");
        fill_file(&path);
        let intact = fs::read(&path).unwrap();
        let size = (intact.len() - HEADER.len() - 32) / 3;
        for offset in 0..intact.len() {
            let mut damaged = intact.clone();
            damaged[offset] ^= 0x40;
            fs::write(&path, &damaged).unwrap();
            let before = offset
                .checked_sub(HEADER.len() + 32)
                .map_or(0, |offset| offset / size);
            assert_eq!(read(&path, "m").len(), before, "byte {offset}");
            let reopened = VectorFile::open(path.clone(), "m", |_, _| {});
            assert_eq!(reopened.records, before);
            assert!(reopened.file.is_some());
            fs::write(&path, &intact[..offset]).unwrap();
            assert!(read(&path, "m").len() <= before, "truncated at {offset}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(read(&path, "m").is_empty(), "a folder is no file");
    }

    #[test]
    fn a_file_with_too_many_records_is_rewritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors");
        fill_file(&path);
        let mut vector_file = VectorFile::open(path.clone(), "m", |_, _| {});
        vector_file.records = RECORDS_MAX;
        vector_file.add(&[9; 32], &vector(9), || vec![([1; 32], vector(1))]);
        assert_eq!(read(&path, "m"), [[1; 32], [9; 32]]);
    }
}
