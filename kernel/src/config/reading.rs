//! How the tables of a file are read: key by key, each problem with its place.

mod keys;
mod lookup;
mod nearest;
mod problem;
mod problems;
mod section;
mod source_file;
mod values;

pub(crate) use lookup::NAME;
pub(super) use lookup::Unread;
pub use lookup::{Lookup, SecretsConfig};
pub(super) use nearest::{listed, nearest};
pub use problem::{Location, Problem, Severity};
pub(super) use problems::{Problems, WrittenOrder};
pub(super) use section::Section;
pub(super) use source_file::SourceFile;
pub(super) use values::Values;

/// How variables alone are looked up.
pub type Variables<'e> = dyn Fn(&str) -> Option<String> + 'e;

/// Where variables and secrets are looked up.
pub type Env<'e> = dyn Lookup + 'e;
