//! Checksums.

use sha2::{Digest as _, Sha256};

/// The SHA-256 of some bytes, as hexadecimal text.
pub(super) fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
