//! The lists for each language: what is blocked beside the lists of the specification.

pub(super) mod javascript;
pub(super) mod python;

use super::Language;

/// What a language can do that must not be done. Words stand with spaces between them.
pub(super) struct LanguageLists {
    /// Modules that reach what is blocked, with the reason.
    pub(super) modules: &'static [(&'static str, &'static str)],
    /// Paths that are dangerous wherever they end; one name alone is a global.
    pub(super) paths: &'static str,
    /// Members that are dangerous on anything.
    pub(super) members: &'static str,
    /// At `readonly`: members that write, on anything.
    pub(super) writing_members: &'static str,
    /// At `readonly`: members of modules that write.
    pub(super) writing_paths: &'static str,
    /// From `strict` on: members that lead to what is blocked, on anything.
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
