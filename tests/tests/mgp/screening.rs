//! Calls that are looked at before they leave the kernel.

mod code_safety;
mod confirmation;
mod security;
mod validators;
