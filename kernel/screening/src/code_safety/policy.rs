//! The strictness of code checks: the declaration of a server, the operator's floor, and the policy that
//! results (MGP §7.2, §7.3, A-24).

use serde_json::Value;

use super::Language;

/// The default limit of code bytes, from the example of MGP §7.3.
pub(super) const DEFAULT_CODE_BYTES: usize = 10_000;
/// Imports that are always blocked.
pub(super) const BLOCKED_IMPORTS: [&str; 4] = ["subprocess", "shutil", "socket", "ctypes"];
/// Patterns that are always blocked.
pub(super) const BLOCKED_PATTERNS: [&str; 4] = ["eval(", "exec(", "__import__(", "os.system"];
/// Imports that are allowed when a server declares none.
pub const ALLOWED_IMPORTS: [&str; 6] = ["asyncio", "json", "httpx", "os", "datetime", "typing"];

/// The level of checks (MGP §7.2), in increasing strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No checks.
    Unrestricted,
    /// Blocked imports and patterns.
    Standard,
    /// Allowed imports only, blocked patterns, size. A lint, not a boundary.
    Strict,
    /// As `strict`, and nothing that writes.
    Readonly,
}

impl Level {
    /// The level of this wire name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [
            Self::Unrestricted,
            Self::Standard,
            Self::Strict,
            Self::Readonly,
        ]
        .into_iter()
        .find(|level| level.as_str() == name)
    }

    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unrestricted => "unrestricted",
            Self::Standard => "standard",
            Self::Strict => "strict",
            Self::Readonly => "readonly",
        }
    }
}

/// The parsed `security.code_safety` of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declaration {
    /// `level`; an unknown one is the strictest.
    pub level: Option<Level>,
    /// `language`, as written.
    pub language: Option<String>,
    /// `max_code_size_bytes`; an unreadable one is 0.
    pub max_code_size_bytes: Option<usize>,
    /// `blocked_imports`.
    pub blocked_imports: Vec<String>,
    /// `blocked_patterns`.
    pub blocked_patterns: Vec<String>,
    /// `allowed_imports`; an unreadable one allows nothing.
    pub allowed_imports: Option<Vec<String>>,
    /// Members that could not be parsed, for the log. Each was taken in its strictest sense.
    pub parse_errors: Vec<String>,
}

impl Declaration {
    /// Parses the declaration of a tool; a member that is absent or null is not declared.
    #[must_use]
    pub fn parse(declared: &Value) -> Self {
        let mut out = Self::default();
        let member = |name: &str| declared.get(name).filter(|v| !v.is_null());
        if !declared.is_object() {
            out.parse_errors
                .push("code_safety is not an object".to_owned());
            out.level = Some(Level::Readonly);
        }
        if let Some(level) = member("level") {
            let known = level.as_str().and_then(Level::parse);
            out.level = Some(
                out.or_record_error(known, "level", level)
                    .unwrap_or(Level::Readonly),
            );
        }
        if let Some(language) = member("language") {
            let name = out.or_record_error(language.as_str(), "language", language);
            out.language = Some(name.map_or_else(|| language.to_string(), str::to_owned));
        }
        if let Some(size) = member("max_code_size_bytes") {
            let bytes = size.as_u64().and_then(|n| usize::try_from(n).ok());
            out.max_code_size_bytes = Some(
                out.or_record_error(bytes, "max_code_size_bytes", size)
                    .unwrap_or(0),
            );
        }
        for (name, into) in [
            ("blocked_imports", 0),
            ("blocked_patterns", 1),
            ("allowed_imports", 2),
        ] {
            let Some(list) = member(name) else { continue };
            let words = out
                .or_record_error(parse_word_list(list), name, list)
                .unwrap_or_default();
            match into {
                0 => out.blocked_imports = words,
                1 => out.blocked_patterns = words,
                _ => out.allowed_imports = Some(words),
            }
        }
        out
    }

    fn or_record_error<T>(&mut self, read: Option<T>, name: &str, written: &Value) -> Option<T> {
        if read.is_none() {
            self.parse_errors
                .push(format!("code_safety.{name} cannot be {written}"));
        }
        read
    }
}

fn parse_word_list(list: &Value) -> Option<Vec<String>> {
    let words = list
        .as_array()?
        .iter()
        .map(|w| w.as_str().map(str::to_owned));
    words.collect()
}

/// The operator's minimum for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Floor {
    /// The minimum level.
    pub level: Level,
    /// The level of a tool that declares none.
    pub undeclared: Level,
    /// The maximum size in bytes.
    pub max_code_size_bytes: Option<usize>,
    /// Blocked in addition to the server's list.
    pub blocked_imports: Vec<String>,
    /// Blocked in addition to the server's list.
    pub blocked_patterns: Vec<String>,
    /// If set, a server's own list only narrows it.
    pub allowed_imports: Option<Vec<String>>,
}

impl Default for Floor {
    fn default() -> Self {
        Self {
            level: Level::Unrestricted,
            undeclared: Level::Standard,
            max_code_size_bytes: None,
            blocked_imports: Vec::new(),
            blocked_patterns: Vec::new(),
            allowed_imports: None,
        }
    }
}

impl Floor {
    /// The floor for a server of trust level `sandboxed`: at least `strict` (MGP §15.4).
    #[must_use]
    pub fn for_sandboxed_server() -> Self {
        Self {
            level: Level::Strict,
            ..Self::default()
        }
    }
}

/// The policy that code is checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodePolicy {
    /// The level.
    pub level: Level,
    /// The declared language; code of a language without a parser is rejected above `unrestricted`.
    pub language: String,
    /// Inclusive. At `standard` only a declared limit applies.
    pub max_code_size_bytes: Option<usize>,
    /// The limit named in hints.
    pub hint_code_bytes: usize,
    /// Modules, including their submodules.
    pub blocked_imports: Vec<String>,
    /// `name(`, `dotted.name`, `.member`, or any other text.
    pub blocked_patterns: Vec<String>,
    /// Modules and submodules that may be imported from `strict` on. Blocked ones stay blocked.
    pub allowed_imports: Vec<String>,
}

impl CodePolicy {
    /// Combines a declaration with a floor. Defaults and floor are added to the server's block lists; a
    /// server can add restrictions and never remove them.
    #[must_use]
    pub fn new(declared: &Declaration, floor: &Floor) -> Self {
        let level = declared.level.unwrap_or(floor.undeclared).max(floor.level);
        Self::with_level(level, declared, floor)
    }

    /// Combines them at a given level.
    #[must_use]
    pub fn with_level(level: Level, declared: &Declaration, floor: &Floor) -> Self {
        let narrowest = [declared.max_code_size_bytes, floor.max_code_size_bytes];
        let narrowest = narrowest.into_iter().flatten().min();
        let default = (level >= Level::Strict).then_some(DEFAULT_CODE_BYTES);
        let max_code_size_bytes = narrowest.or(default);
        Self {
            level,
            language: declared
                .language
                .clone()
                .unwrap_or_else(|| "python".to_owned()),
            max_code_size_bytes,
            hint_code_bytes: max_code_size_bytes.unwrap_or(DEFAULT_CODE_BYTES),
            blocked_imports: union(
                &BLOCKED_IMPORTS,
                &[&floor.blocked_imports, &declared.blocked_imports],
            ),
            blocked_patterns: union(
                &BLOCKED_PATTERNS,
                &[&floor.blocked_patterns, &declared.blocked_patterns],
            ),
            allowed_imports: allowed_imports(declared, floor),
        }
    }

    /// The parser for the language, if there is one.
    #[must_use]
    pub(crate) fn parser(&self) -> Option<Language> {
        Language::from_name(&self.language)
    }
}

fn union(defaults: &[&str], lists: &[&Vec<String>]) -> Vec<String> {
    let mut out: Vec<String> = defaults.iter().map(|&w| w.to_owned()).collect();
    for word in lists.iter().flat_map(|l| l.iter()) {
        if !out.contains(word) {
            out.push(word.clone());
        }
    }
    out
}

fn allowed_imports(declared: &Declaration, floor: &Floor) -> Vec<String> {
    match (&declared.allowed_imports, &floor.allowed_imports) {
        (Some(declared_list), Some(floor_list)) => {
            let floor_list: Vec<&str> = floor_list.iter().map(String::as_str).collect();
            declared_list
                .iter()
                .filter(|m| is_module_in(m, &floor_list))
                .cloned()
                .collect()
        }
        (Some(list), None) | (None, Some(list)) => list.clone(),
        (None, None) => union(&ALLOWED_IMPORTS, &[]),
    }
}

/// True if the module is one of these, or a submodule of one. `.` and `/` separate the parts of a path.
pub(super) fn is_module_in<S: AsRef<str>>(module: &str, list: &[S]) -> bool {
    list.iter().map(AsRef::as_ref).any(|entry| {
        module.strip_prefix(entry).is_some_and(|rest| {
            !entry.is_empty() && (rest.is_empty() || rest.starts_with(['.', '/']))
        })
    })
}
