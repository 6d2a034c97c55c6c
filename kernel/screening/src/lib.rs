//! Screens what is about to leave the kernel: the arguments of calls and the code in them (MGP §4.5, §7).
//!
//! Pure as the engine is: text goes in, a verdict comes out.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod code_safety;
pub mod validators;
