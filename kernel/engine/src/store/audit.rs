//! What was done, written down so that nothing can be changed unseen (MGP §6).
//!
//! Each event is one line, sealed by a hash that covers the line before it. [`reader`] finds lines in
//! bytes, [`verify`] names what is wrong with a log, [`segments`] keeps it bounded, [`redact`] keeps
//! secrets out, [`commit`] decides when it is put on disk, [`repeats`] what is written one by one.
//!
//! A hash is no signature: who can write the files can write a whole new chain. What gives that away is
//! a [`chain::Head`] kept elsewhere, with which the log is verified.

pub mod chain;
pub mod commit;
pub mod reader;
pub mod record;
pub mod redact;
pub mod repeats;
pub mod segments;
pub mod verify;
