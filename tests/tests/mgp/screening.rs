//! Calls that are looked at before they leave the kernel.

mod code_safety;
mod confirmation;
mod interceptors;
mod results;
mod security;
mod validators;
