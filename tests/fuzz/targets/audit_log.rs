//! A file of the audit log is read item by item without a gap, and blocks of its index are read as they were written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_engine::store::audit::index::sealed::BlockSummary;
use mgp_engine::store::audit::reader::LogReader;
use mgp_engine::store::audit::record::AuditRecord;
use mgp_engine::store::audit::verify::Verifier;

fuzz_target!(|bytes: &[u8]| {
    let _ = AuditRecord::parse(bytes).is_some();
    let mut verifier = Verifier::new(None);
    let mut end = 0;
    for item in LogReader::new(bytes) {
        assert!(item.end() >= end && item.end() <= bytes.len() as u64);
        end = item.end();
        verifier.add_item(1, &item);
    }
    assert_eq!(end, bytes.len() as u64, "nothing is left out");
    let _ = verifier.finish();
    if let Some(summary) = BlockSummary::decode(bytes) {
        let again = BlockSummary::decode(&summary.encode());
        assert_eq!(again, Some(summary));
    }
});
