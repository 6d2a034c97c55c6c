//! The channels of each server, and who may publish to and observe them (MCPL §14).

pub mod moderation;
pub mod permits;
pub mod registry;
pub mod rules;
