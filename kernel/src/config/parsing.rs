//! Reads the tables of a file key by key, each problem with its location.
//!
//! One line declares a key: its reader (the form of its value), its name, its bounds and where it goes. Everything else
//! follows from the lines: unknown keys with suggestions, the keys that the example must have, and what is masked.

mod context;
mod keys;
mod lookup;
mod problem;
mod references;
mod section;
mod source_file;
mod suggestions;
mod tuning;

pub(super) use context::{FileContext, StartOrder};
pub(crate) use lookup::NAME_PLACEHOLDER;
pub(super) use lookup::PlaceholderLookup;
pub(crate) use lookup::{Lookup, SecretsConfig};
pub(crate) use problem::{Problem, Severity};
pub(super) use section::{ReadSection, Section, table_key};
pub(super) use source_file::SourceFile;
pub(super) use suggestions::{nearest, render_list};
pub(crate) use tuning::tuning_path;

/// Looks up variables only.
pub(crate) type VariableLookup<'e> = dyn Fn(&str) -> Option<String> + 'e;

/// Looks up variables and secrets.
pub(crate) type Env<'e> = dyn Lookup + 'e;
