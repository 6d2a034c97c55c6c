//! The index of the log: inverted lists in blocks, so that records are found without reading the log.
//!
//! A block covers consecutive records of one file of the log, ordered by time. It has a table of their positions
//! ([`positions`]), for each agent, server, tool and result a list of its records ([`postings`]), and the hashes of their
//! traces ([`traces`]). A block is written once and never changed: records that do not fill one yet are in an
//! [`open::OpenBlock`] in memory. Lists contain hashes of names, so a reader has to check each record it finds.

pub mod open;
mod positions;
mod postings;
pub mod sealed;
mod traces;
mod varint;

pub use self::positions::RecordLocation;

/// Most records of a block. Larger blocks mean fewer lists to search, but more records to read again when the index is
/// opened: at most one block, a tenth of a second.
pub const BLOCK_RECORDS_MAX: usize = 16_384;
