//! The channels of each server, and who may publish to and observe them (MCPL §14).
