//! A signed entry is kept and passed on as the bytes it came as, and read again it is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_engine::policy::grants::SignedOperation;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(signed) = SignedOperation::from_bytes(bytes) {
        assert_eq!(signed.to_bytes(), bytes, "what is relayed is what came");
        let _ = signed.signature_claim().is_some();
        let again =
            SignedOperation::from_bytes(&signed.entry_bytes()).expect("what is kept is read");
        assert_eq!(again.encoded().operation(), signed.encoded().operation());
    }
});
