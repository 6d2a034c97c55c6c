//! Storage: journals, the audit log, views of it, atomic files, secrets. The only crate that names files of the data
//! folder.

pub mod atomic_file;
pub mod audit;
mod background;
pub mod backup;
pub mod health;
pub mod journal;
pub mod regular_file;
pub mod removal;
pub mod secrets;
pub mod views;
pub mod witnesses;
