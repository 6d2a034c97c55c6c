//! The block lists of each language, in addition to those of the specification.

pub(super) mod javascript;
pub(super) mod python;

use super::Language;

/// The dangerous names of a language, separated by spaces.
pub(super) struct LanguageLists {
    /// Modules that give access to blocked functions, with the reason.
    pub(super) modules: &'static [(&'static str, &'static str)],
    /// Dangerous paths, matched at their end; a single name is a global.
    pub(super) paths: &'static str,
    /// Members that are dangerous on any value.
    pub(super) members: &'static str,
    /// At `readonly`: members that write, on any value.
    pub(super) writing_members: &'static str,
    /// At `readonly`: members of modules that write.
    pub(super) writing_paths: &'static str,
    /// From `strict` on: members that give access to blocked objects, on any value.
    pub(super) escape_members: &'static str,
    /// From `strict` on: names of the language that do.
    pub(super) escape_names: &'static str,
}

impl LanguageLists {
    pub(super) fn for_language(language: Language) -> &'static Self {
        match language {
            Language::Python => &python::LISTS,
            Language::JavaScript => &javascript::LISTS,
        }
    }
}
