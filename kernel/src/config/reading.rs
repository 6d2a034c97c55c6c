//! How the tables of a file are read: key by key, each problem with its place.

mod keys;
mod nearest;
mod problem;
mod problems;
mod section;
mod source_file;
mod values;

pub(super) use nearest::{listed, nearest};
pub use problem::{Location, Problem, Severity};
pub(super) use problems::{Problems, WrittenOrder};
pub(super) use section::Section;
pub(super) use source_file::SourceFile;
pub(super) use values::{Values, read_secret};

/// How a variable of the kernel's environment is looked up.
pub type Env<'e> = dyn Fn(&str) -> Option<String> + 'e;
