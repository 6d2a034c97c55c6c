//! Holds imports, paths and texts against a policy. What does the same as a blocked thing under another
//! name is blocked with it.

use super::Language;
use super::lists::LanguageLists;
use super::path::{Path, Root};
use super::policy::{CodePolicy, Level, within};
use super::rejection::CodeRule;

/// A rule that was broken: which, by what, and what to do instead.
pub(super) type Broken = (CodeRule, String, String);

/// Is the word one of these?
pub(super) fn has(words: &str, wanted: &str) -> bool {
    words.split_ascii_whitespace().any(|word| word == wanted)
}

/// What may be done with what is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Anything.
    Value,
    /// It is a module itself: its members.
    Module,
    /// It writes.
    Writes,
    /// It is called, with so many plain arguments at most.
    Called(usize),
}

/// What may be done with the word of this list.
fn listed_use(words: &str, wanted: &str) -> Option<Use> {
    words
        .split_ascii_whitespace()
        .find_map(|word| match word.strip_prefix(wanted)? {
            "" => Some(Use::Value),
            "!" => Some(Use::Writes),
            arguments => {
                let arguments = arguments.strip_prefix('(')?.strip_suffix(')')?;
                arguments.parse().ok().map(Use::Called)
            }
        })
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
pub(super) struct LanguageRules<'p> {
    policy: &'p CodePolicy,
    lists: &'static LanguageLists,
    patterns: Vec<(&'p str, Pattern)>,
}

impl<'p> LanguageRules<'p> {
    pub(super) fn new(policy: &'p CodePolicy, language: Language) -> Self {
        let lists = LanguageLists::of(language);
        let patterns = policy
            .blocked_patterns
            .iter()
            .map(|p| (p.as_str(), Pattern::read(p)));
        Self {
            policy,
            lists,
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
                return Some((CodeRule::BlockedImport, path, hint));
            }
        }
        let names_it = |names: &str| names.split_whitespace().any(|name| within(module, &[name]));
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
            return self.within_listed(module);
        }
        let hint = format!("only these may be imported: {}", self.allowed());
        Some((CodeRule::ImportNotAllowed, module.to_owned(), hint))
    }

    /// A part of a listed module that is not listed itself.
    fn within_listed(&self, module: &str) -> Option<Broken> {
        let listed = self.lists.listed.iter();
        let mut above = listed.filter(|(listed, _)| within(module, &[*listed]));
        let above = above.next().filter(|_| self.words(module).is_none());
        above.map(|(above, words)| {
            let hint = format!("of {above} these may be used: {}", plain(words));
            (CodeRule::NotListed, module.to_owned(), hint)
        })
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
    pub(super) fn path(&self, path: &Path) -> Option<Broken> {
        let (root, names) = (path.root, path.whole());
        let last = names.last()?;
        let inner = names.len() > usize::from(root != Root::Value);
        for (written, pattern) in &self.patterns {
            let hit = match pattern {
                Pattern::Path(path) => ends(root, &names, path.iter().map(String::as_str)),
                Pattern::Member(member) => last == member && inner,
                Pattern::Text(_) => false,
            };
            if hit {
                let hint = format!("{} is not allowed here; do it without", names.join("."));
                return Some((CodeRule::BlockedPattern, (*written).to_owned(), hint));
            }
        }
        let mut paths = self.lists.paths.split_ascii_whitespace();
        if paths.any(|p| ends(root, &names, p.split('.'))) || inner && has(self.lists.members, last)
        {
            let hint = "it runs code, starts processes or reaches what is blocked under another name; do it without";
            return Some((CodeRule::BlockedPattern, names.join("."), hint.to_owned()));
        }
        self.within_module(root, &names)
    }

    /// A blocked module, reached as a member of another one.
    fn within_module(&self, root: Root, names: &[String]) -> Option<Broken> {
        let last = names.last()?.trim_start_matches('_');
        let blocked = self.policy.blocked_imports.iter().any(|m| m == last);
        (root == Root::Module && names.len() > 1 && blocked && !last.is_empty()).then(|| {
            let hint = format!("it is the module {last}, which is blocked; do without it");
            (CodeRule::BlockedImport, names.join("."), hint)
        })
    }

    /// From `strict` on: may the last of these names be used, and how? `Ok(None)`: as any member of a
    /// value, or what it stands on was judged before.
    pub(super) fn listed(&self, path: &Path) -> Result<Option<Use>, Broken> {
        if path.root != Root::Module {
            return self.value(path).map(|()| None);
        }
        let mut module = path.module.clone();
        for (at, name) in path.names.iter().enumerate() {
            let last = at + 1 == path.names.len();
            match self.member(&module, name) {
                Ok(Use::Module) if !last => {
                    module = self.below(&module, name).unwrap_or_default();
                }
                found if last => return found.map(Some),
                Ok(_) => return self.value(path).map(|()| None),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(Use::Module))
    }

    /// The listed module of this name in another one.
    fn below(&self, module: &str, name: &str) -> Option<String> {
        let paths = [format!("{module}.{name}"), format!("{module}/{name}")];
        let is_listed = |path: &String| self.words(path).is_some();
        paths.into_iter().find(is_listed)
    }

    fn words(&self, module: &str) -> Option<&'static str> {
        let listed = self.lists.listed.iter();
        let mut listed = listed.filter(|(listed, _)| *listed == module);
        listed.next().map(|(_, words)| *words)
    }

    fn member(&self, module: &str, name: &str) -> Result<Use, Broken> {
        let whole = format!("{module}.{name}");
        let Some(words) = self.words(module) else {
            // Who allows a module that is not listed here vouches for its public members.
            return match has(self.lists.leading, name) || name.starts_with('_') {
                true => Err(leads_on(&whole)),
                false => Ok(Use::Value),
            };
        };
        let found = listed_use(words, name);
        let below = self.below(module, name);
        match found {
            found if below.is_some_and(|below| found.is_some() || self.is_allowed(&below, &[])) => {
                Ok(Use::Module)
            }
            Some(Use::Writes) if self.policy.level >= Level::Readonly => Err(write(&whole)),
            Some(Use::Writes) => Ok(Use::Value),
            Some(found) => Ok(found),
            None => {
                let hint = format!("of {module} these may be used: {}", plain(words));
                Err((CodeRule::NotListed, whole, hint))
            }
        }
    }

    /// From `strict` on: may the last of these be taken of a value?
    fn value(&self, path: &Path) -> Result<(), Broken> {
        let Some(last) = path.names.last() else {
            return Ok(());
        };
        let writes =
            || self.policy.level >= Level::Readonly && has(self.lists.writing_members, last);
        match has(self.lists.leading, last) {
            true => Err(leads_on(last)),
            false if writes() => Err(write(last)),
            false => Ok(()),
        }
    }

    /// From `strict` on: may this name be read, which the code does not make, and what of it?
    pub(super) fn provided(&self, name: &str, members: &[String]) -> Result<Use, Broken> {
        let mut with_members = self
            .lists
            .globals
            .iter()
            .filter(|(name, _)| !name.is_empty());
        let alone = self.lists.globals.iter().find(|(name, _)| name.is_empty());
        let alone = alone.and_then(|(_, words)| listed_use(words, name));
        let own = with_members.find(|(global, _)| *global == name);
        match (own, members, alone) {
            (Some((_, words)), [member, ..], _) => {
                let whole = format!("{name}.{member}");
                let hint = format!("of {name} these may be used: {}", plain(words));
                let found = listed_use(words, member);
                found.ok_or((CodeRule::NotListed, whole, hint))
            }
            (_, _, Some(found)) => Ok(found),
            (Some(_), [], None) => Ok(Use::Module),
            (None, _, None) => {
                let hint = "it is neither made here nor one of the names that only compute; define or import what you need";
                Err((CodeRule::NotListed, name.to_owned(), hint.to_owned()))
            }
        }
    }

    /// Is this the name of a module, listed or one that leads to others?
    pub(super) fn is_module(&self, name: &str) -> bool {
        self.words(name).is_some() || has(self.lists.leading, name)
    }

    /// From `strict` on: a name that must not be read, whoever makes it.
    pub(super) fn refused(&self, name: &str) -> Option<Broken> {
        has(self.lists.refused, name).then(|| {
            let hint = "it reaches what is not listed; name what you need, or choose another name";
            (CodeRule::NotListed, name.to_owned(), hint.to_owned())
        })
    }

    /// Patterns that are neither names nor paths, in text without white space.
    pub(super) fn text(&self, squeezed: &str) -> impl Iterator<Item = (Broken, usize)> {
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

fn leads_on(name: &str) -> Broken {
    let hint = "it leads to modules, frames or functions that are not listed; do it without, or choose another name";
    (CodeRule::NotListed, name.to_owned(), hint.to_owned())
}

/// A list as it is told.
fn plain(words: &str) -> String {
    let words = words.split_ascii_whitespace();
    let words = words.map(|word| word.trim_end_matches('!').split('(').next().unwrap_or(word));
    words.collect::<Vec<_>>().join(", ")
}

/// A write at `readonly`.
pub(super) fn write(construct: &str) -> Broken {
    let hint = "code at this level may only read".to_owned();
    (CodeRule::Write, construct.to_owned(), hint)
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
