//! `[mcpl]`: push events and hooks.
