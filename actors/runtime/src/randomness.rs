//! The only source of randomness. Engines get it as arguments.

/// Random bytes that cannot be guessed.
///
/// # Panics
/// The system has no randomness.
#[must_use]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}
