//! What a view of the log holds, so that records are found without reading the log: inverted lists, in blocks.
//!
//! A block is a run of records of one file of the log, ordered by time. It has a table of where they stand
//! ([`positions`]), for each agent, server, tool and result a list of its records ([`postings`]), and the hashes of their
//! traces ([`traces`]). A block is written once and never changed: records that do not fill one yet are in an
//! [`open::OpenBlock`] in memory. All lists say hashes of names, so whoever looks reads each record and judges it.

pub mod open;
mod positions;
mod postings;
pub mod sealed;
mod traces;
mod varint;

pub use self::positions::RecordLocation;

/// Most records of a block. More make fewer lists to look through, and more records to be read again when a
/// view is opened: those of one block at most, a tenth of a second.
pub const BLOCK_RECORDS_MAX: usize = 16_384;
