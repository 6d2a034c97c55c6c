//! Checks data before it leaves the kernel: the arguments of calls and the code in them (MGP §4.5, §7).
//!
//! Pure like the engine: text in, verdict out.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod code_safety;
pub mod validators;
