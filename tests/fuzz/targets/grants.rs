//! A signed entry is kept and passed on as the bytes it came as, and read again it is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_engine::policy::grants::Signed;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(signed) = Signed::from_bytes(bytes) {
        assert_eq!(signed.to_bytes(), bytes, "what is relayed is what came");
        let _ = signed.claim().is_some();
        let again = Signed::from_bytes(&signed.entry()).expect("what is kept is read");
        assert_eq!(again.written().operation(), signed.written().operation());
    }
});
