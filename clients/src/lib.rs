//! The configuration files of MCP clients: importing their servers, exporting servers to them, and adding this kernel's
//! entry.
//!
//! Nothing here opens a file: functions take and return texts.

mod client;
mod client_files;
mod client_servers;
mod document;
mod edit;
mod entry;
mod export;
mod kernel_entry;
mod kernel_entry_for;
mod plan;
mod render;
mod secret_values;
mod tables;
mod text;
mod variables;
mod windows;

pub use client::{Client, UnknownClient};
pub use client_files::{ClientFile, FileScope, Platform, UserFolders, client_files};
pub use client_servers::{
    ClientConnection, ClientDocument, ClientInput, ClientServer, SkippedKey, ToolLimits,
};
pub use document::{DocumentError, DocumentForm};
pub use edit::undo::{BlockedEntry, ConnectedFile, UndoResult, undo};
pub use edit::{
    ClientEditError, EntryLocation, TableForm, append_to_list, keep_line_ends, put_entry,
    remove_entry,
};
pub use export::{
    ConfiguredPiece, ConfiguredServer, ConfiguredText, ExportError, ExportedServer, Exporter,
};
pub use kernel_entry::{command_words, entry_url, is_kernel_entry};
pub use kernel_entry_for::{KernelConnection, UrlsUnsupported};
pub use plan::{
    ParsedClientFile, Plan, PlannedConnection, PlannedServer, PlannedValue, Planner, ProjectStarts,
    ServerOrigin, SkipReason, SkippedServer, UrlPiece,
};
pub use render::{InputAnswer, RenderError};
pub use secret_values::{is_random, is_secret, is_secret_name, is_secret_word};
pub use tables::read_document;
pub use text::ClientText;
pub use variables::TextPiece;
pub use windows::{WindowsDrives, through_wsl};
