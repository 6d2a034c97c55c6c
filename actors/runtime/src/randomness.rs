//! The only source of randomness. Engines are given what they need of it.

/// Bytes nobody can guess.
///
/// # Panics
/// When the system has no randomness.
#[must_use]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}
