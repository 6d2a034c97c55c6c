//! What lasts: journals, the audit log, and what is said while the disk fails. The only room that names
//! files of the data folder.

pub mod atomic_file;
pub mod audit;
pub mod journal;
pub mod removal;
pub mod trouble;
