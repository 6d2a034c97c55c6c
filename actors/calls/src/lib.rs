//! A call on its way: the checks before it leaves and its forwarding, one file for each family of methods.

pub mod listener;
pub mod naming;
pub mod relay;
pub mod validation;
