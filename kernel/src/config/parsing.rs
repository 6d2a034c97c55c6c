//! Reads the tables of a file key by key, each problem with its location.

mod keys;
mod lookup;
mod problem;
mod problems;
mod section;
mod source_file;
mod suggestions;
mod values;

pub(crate) use lookup::NAME_PLACEHOLDER;
pub(super) use lookup::PlaceholderLookup;
pub(crate) use lookup::{Lookup, SecretsConfig};
pub(crate) use problem::{Location, Problem, Severity};
pub(super) use problems::{Problems, StartOrder};
pub(super) use section::Section;
pub(super) use source_file::SourceFile;
pub(super) use suggestions::{nearest, render_list};
pub(super) use values::Values;

/// Looks up variables only.
pub(crate) type VariableLookup<'e> = dyn Fn(&str) -> Option<String> + 'e;

/// Looks up variables and secrets.
pub(crate) type Env<'e> = dyn Lookup + 'e;
