//! Storage: journals, the audit log, views of it, atomic files, secrets. The only crate that names files of the data
//! folder.

pub mod atomic_file;
pub mod audit;
mod background;
pub mod backup;
mod health;
pub mod journal;
pub mod regular_file;
pub mod removal;
pub mod secrets;
mod views;
mod witnesses;

// Failures of the disk, for reports on the kernel's state.
pub use self::health::{DiskHealth, StorageHealth, explain_io_error, with_path};

// Views of the audit log: an index by agent, server, tool, trace and time.
pub use self::views::AuditViews;

// Witnesses: the last contents of files of the data folder, recorded outside of them.
pub use self::witnesses::{OpenedWitnesses, WITNESS_FILES, Witness, Witnesses};
