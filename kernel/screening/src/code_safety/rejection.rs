//! The rejection of a piece of code, in the form of MGP §7.4.

use serde_json::{Value, json};

use super::policy::CodePolicy;

/// The most findings in one rejection. The first ones are enough to fix the code; the others are counted.
pub(super) const MAX_FINDINGS: usize = 50;

/// The most bytes of a construct that are returned to the caller.
const MAX_CONSTRUCT: usize = 120;

/// The limits of the check, stated in each rejection.
const NOTE: &str =
    "This check is a lint. The boundary is the sandbox of the server that runs the code.";

/// The violated rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CodeRule {
    /// A blocked import, or one that is equivalent.
    BlockedImport,
    /// From `strict` on: an import that is not on the allow list.
    ImportNotAllowed,
    /// An import whose module is only known when the code runs.
    DynamicImport,
    /// A blocked pattern, or an equivalent construct.
    BlockedPattern,
    /// From `strict` on: a construct that is used to get around the lists.
    Construct,
    /// From `strict` on: a name that is only known when the code runs.
    DynamicName,
    /// At `readonly`: something that writes.
    Write,
    /// Characters that make code look like other code than it is.
    HiddenText,
    /// The parser does not accept the code as code of the language.
    Syntax,
    /// No parser for the language.
    UnknownLanguage,
    /// More bytes than allowed.
    TooLarge,
    /// Above the limits of the parser.
    TooComplex,
}

impl CodeRule {
    /// The name in `findings[].rule`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BlockedImport => "blocked_import",
            Self::ImportNotAllowed => "import_not_allowed",
            Self::DynamicImport => "dynamic_import",
            Self::BlockedPattern => "blocked_pattern",
            Self::Construct => "construct",
            Self::DynamicName => "dynamic_name",
            Self::Write => "write_operation",
            Self::HiddenText => "hidden_text",
            Self::Syntax => "syntax",
            Self::UnknownLanguage => "unknown_language",
            Self::TooLarge => "too_large",
            Self::TooComplex => "too_complex",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::BlockedImport => "Blocked import",
            Self::ImportNotAllowed => "Import not allowed",
            Self::DynamicImport => "Dynamic import",
            Self::BlockedPattern => "Blocked pattern",
            Self::Construct => "Construct not allowed",
            Self::DynamicName => "Dynamic name",
            Self::Write => "Write operation",
            Self::HiddenText => "Hidden text",
            Self::Syntax => "Syntax",
            Self::UnknownLanguage => "Unknown language",
            Self::TooLarge => "Code too large",
            Self::TooComplex => "Code too complex",
        }
    }
}

/// One violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeFinding {
    /// Which rule it breaks.
    pub rule: CodeRule,
    /// The construct that violates the rule: a module, a pattern, or the code itself.
    pub(crate) construct: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    /// What to do instead.
    pub hint: String,
}

impl CodeFinding {
    /// The line in `violations`, as in MGP §7.4.
    #[must_use]
    pub(crate) fn violation(&self) -> String {
        format!("{}: '{}'", self.rule.description(), self.construct)
    }
}

/// The rejection of code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Code validation failed: {}", self.violations().join(", "))]
pub struct Rejection {
    /// Ordered by position, at most [`MAX_FINDINGS`].
    pub findings: Vec<CodeFinding>,
    /// The number of further findings.
    pub(crate) omitted: usize,
    blocked_imports: Vec<String>,
    allowed_imports: Vec<String>,
    max_code_size_bytes: usize,
}

impl Rejection {
    pub(super) fn new(findings: Vec<CodeFinding>, more: usize, policy: &CodePolicy) -> Box<Self> {
        Box::new(Self {
            findings,
            omitted: more,
            blocked_imports: policy.blocked_imports.clone(),
            allowed_imports: policy.allowed_imports.clone(),
            max_code_size_bytes: policy.hint_code_bytes,
        })
    }

    /// Each violation once, as text.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for violation in self.findings.iter().map(CodeFinding::violation) {
            if !out.contains(&violation) {
                out.push(violation);
            }
        }
        if self.omitted > 0 {
            out.push(format!("and {} more", self.omitted));
        }
        out
    }

    /// The body of MGP §7.4, and in addition `findings` with positions, rules and hints, and the limits of
    /// the check.
    #[must_use]
    pub fn body(&self) -> Value {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|f| {
                json!({
                    "rule": f.rule.as_str(), "construct": f.construct,
                    "line": f.line, "column": f.column, "hint": f.hint,
                })
            })
            .collect();
        json!({
            "status": "rejected",
            "reason": "Code validation failed",
            "violations": self.violations(),
            "hints": {
                "blocked_imports": self.blocked_imports,
                "allowed_imports": self.allowed_imports,
                "max_code_size_bytes": self.max_code_size_bytes,
            },
            "findings": findings,
            "note": NOTE,
        })
    }
}

/// Collects findings, each construct at a position once.
#[derive(Debug, Default)]
pub(super) struct Findings {
    list: Vec<CodeFinding>,
    omitted: usize,
}

impl Findings {
    /// True if further findings are only counted.
    pub(super) fn is_full(&self) -> bool {
        self.list.len() == MAX_FINDINGS
    }

    /// Counts a finding above the limit.
    pub(super) fn count_omitted(&mut self) {
        self.omitted += 1;
    }

    pub(super) fn add(&mut self, mut finding: CodeFinding) {
        if finding.construct.len() > MAX_CONSTRUCT {
            let cut = (0..=MAX_CONSTRUCT)
                .rev()
                .find(|&i| finding.construct.is_char_boundary(i));
            finding.construct.truncate(cut.unwrap_or(0));
            finding.construct.push('…');
        }
        if self.list.contains(&finding) {
            return;
        }
        if self.list.len() == MAX_FINDINGS {
            self.omitted += 1;
            return;
        }
        self.list.push(finding);
    }

    pub(super) fn into_verdict(mut self, policy: &CodePolicy) -> Result<(), Box<Rejection>> {
        if self.list.is_empty() {
            return Ok(());
        }
        self.list.sort_by_key(|f| (f.line, f.column, f.rule));
        Err(Rejection::new(self.list, self.omitted, policy))
    }
}
