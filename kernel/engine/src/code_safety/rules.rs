//! Holds imports, paths and texts against a policy. What does the same as a blocked thing under another
//! name is blocked with it.

use super::Language;
use super::javascript::danger as javascript;
use super::policy::{Level, Policy, within};
use super::python::danger as python;
use super::rejection::Rule;
use super::value::{Root, Value};

/// A rule that was broken: which, by what, and what to do instead.
pub(super) type Broken = (Rule, String, String);

/// What a language can do that must not be done.
pub(super) struct Danger {
    /// Modules that reach what is blocked, with the reason.
    pub(super) modules: &'static [(&'static str, &'static str)],
    /// Modules with dangerous members: they may be used, and not handed on.
    pub(super) watched: &'static [&'static str],
    /// Paths that are dangerous wherever they end; one name alone is a global.
    pub(super) paths: &'static [&'static str],
    /// Members that are dangerous on anything.
    pub(super) members: &'static [&'static str],
    /// At `readonly`: paths that write.
    pub(super) writing_paths: &'static [&'static str],
    /// At `readonly`: members that write, on anything.
    pub(super) writing_members: &'static [&'static str],
}

/// A blocked pattern, read as what it means.
#[derive(Debug)]
enum Pattern {
    /// `eval(`, `os.system`: a name or the end of a path.
    Path(Vec<String>),
    /// `.system(`: a member of anything.
    Member(String),
    /// Any other text: looked for in the code without its comments.
    Text(String),
}

impl Pattern {
    fn read(written: &str) -> Self {
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
            Some(_) | None => Self::Text(squeezed(written)),
        }
    }
}

/// Without white space at all, so that spacing hides nothing.
pub(super) fn squeezed(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// A policy, made ready for one language.
pub(super) struct Rules<'p> {
    policy: &'p Policy,
    danger: &'static Danger,
    patterns: Vec<(&'p str, Pattern)>,
}

impl<'p> Rules<'p> {
    pub(super) fn new(policy: &'p Policy, language: Language) -> Self {
        let danger = match language {
            Language::Python => &python::DANGER,
            Language::JavaScript => &javascript::DANGER,
        };
        let patterns = policy
            .blocked_patterns
            .iter()
            .map(|p| (p.as_str(), Pattern::read(p)));
        Self {
            policy,
            danger,
            patterns: patterns.collect(),
        }
    }

    pub(super) fn level(&self) -> Level {
        self.policy.level
    }

    /// May the module be imported? `names` are those that are taken from it.
    pub(super) fn import(&self, module: &str, names: &[String]) -> Option<Broken> {
        let whole = names.iter().map(|n| format!("{module}.{n}"));
        for path in std::iter::once(module.to_owned()).chain(whole) {
            if within(&path, &self.policy.blocked_imports) {
                let hint = format!(
                    "do without {path}, or use one of the allowed imports: {}",
                    self.allowed()
                );
                return Some((Rule::BlockedImport, path, hint));
            }
        }
        let reason = self
            .danger
            .modules
            .iter()
            .find(|(name, _)| within(module, &[*name]));
        if let Some((_, why)) = reason {
            return Some((Rule::BlockedImport, module.to_owned(), (*why).to_owned()));
        }
        if self.policy.level < Level::Strict || self.is_allowed(module, names) {
            return None;
        }
        let hint = format!("only these may be imported: {}", self.allowed());
        Some((Rule::ImportNotAllowed, module.to_owned(), hint))
    }

    fn is_allowed(&self, module: &str, names: &[String]) -> bool {
        let list = &self.policy.allowed_imports;
        let each = || names.iter().all(|n| within(&format!("{module}.{n}"), list));
        within(module, list) || (!names.is_empty() && each())
    }

    fn allowed(&self) -> String {
        self.policy.allowed_imports.join(", ")
    }

    /// Is this very path dangerous? A longer one was judged where its dangerous part ended.
    pub(super) fn path(&self, root: Root, names: &[String]) -> Option<Broken> {
        let last = names.last()?;
        for (written, pattern) in &self.patterns {
            let hit = match pattern {
                Pattern::Path(path) => ends(root, names, path.iter().map(String::as_str)),
                Pattern::Member(member) => {
                    last == member && (root != Root::Global || names.len() > 1)
                }
                Pattern::Text(_) => false,
            };
            if hit {
                let hint = format!("{} is not allowed here; do it without", names.join("."));
                return Some((Rule::BlockedPattern, (*written).to_owned(), hint));
            }
        }
        if self
            .danger
            .paths
            .iter()
            .any(|p| ends(root, names, p.split('.')))
            || (names.len() > usize::from(root != Root::Unknown)
                && self.danger.members.contains(&last.as_str()))
        {
            let hint = "it runs code, starts processes or reaches what is blocked under another name; do it without";
            return Some((Rule::BlockedPattern, names.join("."), hint.to_owned()));
        }
        self.within_module(root, names)
            .or_else(|| self.writing(root, names))
    }

    /// A blocked module, reached as a member of another one.
    fn within_module(&self, root: Root, names: &[String]) -> Option<Broken> {
        let last = names.last()?.trim_start_matches('_');
        let blocked = self.policy.blocked_imports.iter().any(|m| m == last);
        (root == Root::Module && names.len() > 1 && blocked && !last.is_empty()).then(|| {
            let hint = format!("it is the module {last}, which is blocked; do without it");
            (Rule::BlockedImport, names.join("."), hint)
        })
    }

    fn writing(&self, root: Root, names: &[String]) -> Option<Broken> {
        if self.policy.level < Level::Readonly {
            return None;
        }
        let last = names.last()?;
        let hit = self
            .danger
            .writing_paths
            .iter()
            .any(|p| ends(root, names, p.split('.')))
            || (names.len() > usize::from(root != Root::Unknown)
                && self.danger.writing_members.contains(&last.as_str()));
        hit.then(|| write(&names.join(".")))
    }

    /// May a dangerous path go on from this name?
    pub(super) fn leads_on(&self, name: &str) -> bool {
        let name = name.trim_start_matches('_');
        let inner = |path: &&str| path.rsplit('.').skip(1).any(|n| n == name);
        let (paths, writing) = (self.danger.paths.iter(), self.danger.writing_paths.iter());
        self.danger.watched.contains(&name)
            || paths.chain(writing).any(inner)
            || self
                .policy
                .blocked_patterns
                .iter()
                .any(|p| inner(&p.as_str()))
    }

    /// Is it a module that may be used and not handed on?
    pub(super) fn watched(&self, value: &Value) -> bool {
        let Value::Path(root, names) = value else {
            return false;
        };
        let Some(last) = names.last().map(|n| n.trim_start_matches('_')) else {
            return false;
        };
        match root {
            Root::Unknown => false,
            Root::Global => names.len() == 1 && self.is_watched(last, &names[0]),
            Root::Module => self.is_watched(last, &names.join(".")),
        }
    }

    fn is_watched(&self, last: &str, whole: &str) -> bool {
        let watched = |name: &str| self.danger.watched.contains(&name);
        let roots = self.patterns.iter().any(|(_, pattern)| match pattern {
            Pattern::Path(path) if path.len() > 1 => path[..path.len() - 1].join(".") == whole,
            Pattern::Path(_) | Pattern::Member(_) | Pattern::Text(_) => false,
        });
        watched(last) || watched(whole) || roots
    }

    /// Patterns that are neither names nor paths, in text without white space.
    pub(super) fn text(&self, squeezed: &str) -> impl Iterator<Item = (Broken, usize)> {
        self.patterns
            .iter()
            .filter_map(move |(written, pattern)| match pattern {
                Pattern::Text(text) => {
                    let at = squeezed.find(text.as_str()).filter(|_| !text.is_empty())?;
                    let hint = format!("the text {written:?} is not allowed in the code");
                    Some(((Rule::BlockedPattern, (*written).to_owned(), hint), at))
                }
                Pattern::Path(_) | Pattern::Member(_) => None,
            })
    }
}

/// A write at `readonly`.
pub(super) fn write(construct: &str) -> Broken {
    let hint = "code at this level may only read".to_owned();
    (Rule::Write, construct.to_owned(), hint)
}

/// Does the path end in this one? A single name only matches a global of that name. Modules such as
/// `_os` are the ones without the underscore.
fn ends<'a>(
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
