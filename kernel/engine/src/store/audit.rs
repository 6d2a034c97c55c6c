//! The audit log: records of what was done, which cannot be changed unnoticed (MGP §6).
//!
//! Each event is one line, with a hash that covers the line before. [`reader`] finds lines in bytes,
//! [`verify`] finds faults of a log, [`segments`] bounds its size, [`redact`] removes secrets, [`commit`] decides when
//! it is synced and [`repeats`] which events are only counted; [`query`] filters records and [`index`] finds them.
//!
//! A hash is no signature: whoever can write the files can write a new chain. A [`chain::Head`] stored
//! elsewhere reveals that.

pub mod chain;
pub mod commit;
pub mod index;
pub mod query;
pub mod reader;
pub mod record;
pub mod redact;
pub mod repeats;
pub mod segments;
pub mod successful_call;
pub mod verify;
