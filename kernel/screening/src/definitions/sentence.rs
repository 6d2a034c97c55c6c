//! A sentence of a definition, and what is found in it.

use std::collections::BTreeSet;

use super::Act;
use super::texts::Role;
use super::words::Words;

/// A sentence, with what is known about its place.
pub(super) struct Sentence<'a> {
    /// Folded.
    pub(super) text: &'a str,
    pub(super) role: Role,
    /// The first sentence of a description: it says what the tool does.
    pub(super) is_function: bool,
    /// Its names of arguments, in lower case.
    pub(super) arguments: &'a BTreeSet<String>,
    /// What the tool is for: its name and first sentence.
    pub(super) purpose: &'a Words,
}

/// An act with its weight.
pub(super) type ActWeight = (Act, u32);
