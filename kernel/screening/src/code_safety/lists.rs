//! The lists for each language: what is blocked, and what is allowed from `strict` on.

pub(super) mod javascript;
pub(super) mod python;

use super::Language;

/// What a language can do that must not be done, and what it can do from `strict` on. Words stand with
/// spaces between them.
pub(super) struct LanguageLists {
    /// Modules that reach what is blocked, with the reason.
    pub(super) modules: &'static [(&'static str, &'static str)],
    /// Paths that are dangerous wherever they end; one name alone is a global.
    pub(super) paths: &'static str,
    /// Members that are dangerous on anything.
    pub(super) members: &'static str,
    /// At `readonly`: members that write, on anything.
    pub(super) writing_members: &'static str,
    /// From `strict` on: members of no value.
    pub(super) leading: &'static str,
    /// From `strict` on: names that cannot be read even where the code makes one of that name.
    pub(super) refused: &'static str,
    /// From `strict` on: names that the language provides (under `""`), and members of those that have
    /// some.
    pub(super) globals: &'static [(&'static str, &'static str)],
    /// From `strict` on: members of modules. `name!` writes, and `name(1)` is only called, with one plain
    /// argument at most.
    pub(super) listed: &'static [(&'static str, &'static str)],
}

impl LanguageLists {
    pub(super) fn of(language: Language) -> &'static Self {
        match language {
            Language::Python => &python::LISTS,
            Language::JavaScript => &javascript::LISTS,
        }
    }
}
