//! The programs people use agents in, and how each of them writes down its MCP servers: what is to be taken
//! over from them, how that goes back to them, and how this kernel gets an entry there.
//!
//! Nothing here opens a file: texts go in, texts come out.

mod client;
mod document;
mod edit;
mod entry;
mod export;
mod found;
mod kernel_entry;
mod own_entry;
mod places;
mod plan;
mod render;
mod secret_values;
mod tables;
mod text;
mod variables;

pub use client::{Client, UnknownClient};
pub use document::{DOCUMENT_MAX, DocumentError, DocumentForm};
pub use edit::undo::{BlockedEntry, ConnectedFile, UndoneFile, undo};
pub use edit::{ClientEditError, EntryPlace, TableForm, append, keep_line_ends, put, remove};
pub use export::{
    ConfiguredPiece, ConfiguredServer, ConfiguredText, ExportRefused, ExportedServer, Exporter,
};
pub use found::{FoundDocument, FoundInput, FoundReach, FoundServer, KeyLeftOut, ToolLimits};
pub use kernel_entry::{address, command_words, leads_to_kernel};
pub use own_entry::{NoUrls, OwnReach};
pub use places::{ClientFile, Platform, Reader, UserFolders, files};
pub use plan::{
    ClientFileRead, Plan, PlannedReach, PlannedServer, PlannedValue, Planner, ProjectStarts,
    ServerOrigin, Unplanned, UrlPiece, WhyLeft,
};
pub use render::{InputAnswer, Unrendered};
pub use secret_values::{is_random, is_secret, is_secret_name, is_secret_word};
pub use tables::read;
pub use text::FoundText;
pub use variables::TextPiece;
