//! Checks imports, paths and strings against a policy. Equivalents of a blocked name are blocked with it.

use super::Language;
use super::lists::LanguageLists;
use super::path::{Path, Root};
use super::policy::{CodePolicy, Level, is_module_in};
use super::rejection::CodeRule;

/// A violated rule: the rule, the construct, and the hint.
pub(super) type RuleViolation = (CodeRule, String, String);

/// True if the word is in the list.
pub(super) fn contains_word(words: &str, wanted: &str) -> bool {
    words.split_ascii_whitespace().any(|word| word == wanted)
}

/// A parsed blocked pattern.
#[derive(Debug)]
enum Pattern {
    /// `eval(`, `os.system`: a name or the end of a path.
    Path(Vec<String>),
    /// `.system(`: a member of any value.
    Member(String),
    /// Any other text, searched in the code without comments.
    Text(String),
}

impl Pattern {
    fn parse(written: &str) -> Self {
        let name = written.trim().trim_end_matches([')', '(']).trim_end();
        let word = |w: &str| {
            !w.is_empty()
                && w.chars()
                    .all(|c| c.is_alphanumeric() || matches!(c, '_' | '$'))
                && !w.starts_with(|c: char| c.is_ascii_digit())
        };
        match name.strip_prefix('.') {
            Some(member) if word(member) => Self::Member(member.to_owned()),
            None if name.split('.').all(word) => {
                Self::Path(name.split('.').map(str::to_owned).collect())
            }
            Some(_) | None => Self::Text(strip_whitespace(written)),
        }
    }
}

/// Removes all white space, so that spacing hides nothing.
pub(super) fn strip_whitespace(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// A policy, prepared for one language.
pub(super) struct LanguageRules<'p> {
    policy: &'p CodePolicy,
    lists: &'static LanguageLists,
    patterns: Vec<(&'p str, Pattern)>,
}

impl<'p> LanguageRules<'p> {
    pub(super) fn new(policy: &'p CodePolicy, language: Language) -> Self {
        let lists = LanguageLists::for_language(language);
        let patterns = policy
            .blocked_patterns
            .iter()
            .map(|p| (p.as_str(), Pattern::parse(p)));
        Self {
            policy,
            lists,
            patterns: patterns.collect(),
        }
    }

    pub(super) fn level(&self) -> Level {
        self.policy.level
    }

    /// Checks an import. `names` are the imported members.
    pub(super) fn check_import(&self, module: &str, names: &[String]) -> Option<RuleViolation> {
        let whole = names.iter().map(|n| format!("{module}.{n}"));
        for path in std::iter::once(module.to_owned()).chain(whole) {
            if is_module_in(&path, &self.policy.blocked_imports) {
                let hint = format!(
                    "do without {path}, or use one of the allowed imports: {}",
                    self.render_allowed()
                );
                return Some((CodeRule::BlockedImport, path, hint));
            }
        }
        let names_it = |names: &str| {
            names
                .split_whitespace()
                .any(|name| is_module_in(module, &[name]))
        };
        let reason = self.lists.modules.iter().find(|(names, _)| names_it(names));
        if let Some((_, why)) = reason {
            return Some((
                CodeRule::BlockedImport,
                module.to_owned(),
                (*why).to_owned(),
            ));
        }
        if self.policy.level < Level::Strict {
            return None;
        }
        if self.is_allowed(module, names) {
            return None;
        }
        let hint = format!("only these may be imported: {}", self.render_allowed());
        Some((CodeRule::ImportNotAllowed, module.to_owned(), hint))
    }

    fn is_allowed(&self, module: &str, names: &[String]) -> bool {
        let list = &self.policy.allowed_imports;
        let each = || {
            names
                .iter()
                .all(|n| is_module_in(&format!("{module}.{n}"), list))
        };
        is_module_in(module, list) || (!names.is_empty() && each())
    }

    fn render_allowed(&self) -> String {
        self.policy.allowed_imports.join(", ")
    }

    /// Checks exactly this path. A longer one was checked at the end of its dangerous part.
    pub(super) fn check_path(&self, path: &Path) -> Option<RuleViolation> {
        let (root, names) = (path.root, path.all_names());
        let last = names.last()?;
        let inner = names.len() > usize::from(root != Root::Value);
        for (written, pattern) in &self.patterns {
            let hit = match pattern {
                Pattern::Path(path) => {
                    ends_with_path(root, &names, path.iter().map(String::as_str))
                }
                Pattern::Member(member) => last == member && inner,
                Pattern::Text(_) => false,
            };
            if hit {
                let hint = format!("{} is not allowed here; do it without", names.join("."));
                return Some((CodeRule::BlockedPattern, (*written).to_owned(), hint));
            }
        }
        let mut paths = self.lists.paths.split_ascii_whitespace();
        if paths.any(|p| ends_with_path(root, &names, p.split('.')))
            || inner && contains_word(self.lists.members, last)
        {
            let hint = "it runs code, starts processes or reaches what is blocked under another name; do it without";
            return Some((CodeRule::BlockedPattern, names.join("."), hint.to_owned()));
        }
        self.check_nested_module(root, &names)
    }

    /// A blocked module, accessed as a member of another one.
    fn check_nested_module(&self, root: Root, names: &[String]) -> Option<RuleViolation> {
        let last = names.last()?.trim_start_matches('_');
        let blocked = self.policy.blocked_imports.iter().any(|m| m == last);
        (root == Root::Module && names.len() > 1 && blocked && !last.is_empty()).then(|| {
            let hint = format!("it is the module {last}, which is blocked; do without it");
            (CodeRule::BlockedImport, names.join("."), hint)
        })
    }

    /// From `strict` on: members that give access to blocked objects; at `readonly`, those that write.
    pub(super) fn check_member(&self, path: &Path) -> Option<RuleViolation> {
        let last = path.names.last()?;
        let names = path.all_names();
        let private = path.root == Root::Module && last.starts_with('_') && !last.ends_with('_');
        if private || contains_word(self.lists.escape_members, last) {
            return Some(escape_violation(last));
        }
        let mut paths = self.lists.writing_paths.split_ascii_whitespace();
        let mut of_module = || {
            path.root == Root::Module
                && paths.any(|p| ends_with_path(path.root, &names, p.split('.')))
        };
        let writes = contains_word(self.lists.writing_members, last) || of_module();
        (self.policy.level >= Level::Readonly && writes).then(|| write_violation(&names.join(".")))
    }

    /// True for a member that is blocked on any value.
    pub(super) fn is_blocked_member(&self, member: &str) -> bool {
        contains_word(self.lists.members, member)
    }

    /// From `strict` on: a name of the language that gives access to blocked objects.
    pub(super) fn check_name(&self, name: &str) -> Option<RuleViolation> {
        contains_word(self.lists.escape_names, name).then(|| escape_violation(name))
    }

    /// Matches patterns that are neither names nor paths, in text without white space.
    pub(super) fn match_text(
        &self,
        squeezed: &str,
    ) -> impl Iterator<Item = (RuleViolation, usize)> {
        self.patterns
            .iter()
            .filter_map(move |(written, pattern)| match pattern {
                Pattern::Text(text) => {
                    let at = squeezed.find(text.as_str()).filter(|_| !text.is_empty())?;
                    let hint = format!("the text {written:?} is not allowed in the code");
                    Some(((CodeRule::BlockedPattern, (*written).to_owned(), hint), at))
                }
                Pattern::Path(_) | Pattern::Member(_) => None,
            })
    }
}

pub(super) fn escape_violation(name: &str) -> RuleViolation {
    let hint = "it leads to modules, frames or functions that are blocked; name what you need, or choose another name";
    (CodeRule::BlockedPattern, name.to_owned(), hint.to_owned())
}

/// The violation of a write at `readonly`.
pub(super) fn write_violation(construct: &str) -> RuleViolation {
    let hint = "code at this level may only read".to_owned();
    (CodeRule::Write, construct.to_owned(), hint)
}

/// True if the path ends with this one. A single name only matches a global of that name. Modules such as
/// `_os` count as those without the underscore.
fn ends_with_path<'a>(
    root: Root,
    names: &[String],
    path: impl DoubleEndedIterator<Item = &'a str> + Clone,
) -> bool {
    let wanted = path.clone().count();
    if wanted == 1 {
        return root == Root::Global
            && names.len() == 1
            && path.clone().next() == Some(names[0].as_str());
    }
    names.len() >= wanted
        && path
            .rev()
            .zip(names.iter().rev())
            .enumerate()
            .all(|(i, (want, name))| {
                name == want || (i + 1 == wanted && name.trim_start_matches('_') == want)
            })
}
