//! A journal is read to its end or to one fault, whatever is in the file; what is appended is read back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_engine::store::journal::{JournalReader, JournalWriter};

fuzz_target!(|bytes: &[u8]| {
    for acknowledged in [None, Some(0), Some(1), Some(u64::MAX)] {
        let mut reader = JournalReader::new("fuzz", bytes).with_acknowledged(acknowledged);
        let mut read = 0;
        loop {
            match reader.next() {
                None => break,
                Some(Ok(_)) => read += 1,
                Some(Err(fault)) => {
                    assert_eq!(
                        reader.next(),
                        Some(Err(fault)),
                        "after a fault, the same again"
                    );
                    break;
                }
            }
            assert!(read <= bytes.len());
        }
        let end = reader.position() as usize;
        assert!(end <= bytes.len());
        // It goes on behind the last whole entry.
        let mut file = bytes[..end].to_vec();
        let mut writer = JournalWriter::resume(reader.head());
        writer.write(b"one more", &mut file).expect("it is short");
        let mut again = JournalReader::new("fuzz", &file);
        let all: Vec<_> = again.by_ref().collect();
        assert_eq!(all.len(), read + 1);
        assert_eq!(all.last(), Some(&Ok(&b"one more"[..])));
    }
});
