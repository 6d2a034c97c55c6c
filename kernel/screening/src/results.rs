//! Guards the text of servers on its way to clients: masks secrets and personal data, strips unseen characters, and
//! finds text that reads like instructions.
//!
//! In the words of MCP's interceptors draft, masking and stripping are mutations, and instructions are a validation.

mod findings;
mod instructions;
mod json;
mod matches;
mod personal;
mod places;
mod secrets;
mod stream;
mod text;
mod unseen;

use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};

pub use self::findings::{FindingKind, Findings};
pub(crate) use self::instructions::{find_signs, fold};
pub use self::json::{Flagging, GuardedJson, Place};
pub use self::personal::PersonalKind;
pub use self::stream::TextStream;
pub(crate) use self::unseen::UnseenFilter;

/// Bytes that a compiled pattern of the operator may take.
const PATTERN_BYTES_MAX: usize = 256 << 10;
/// Longest pattern of the operator, in bytes.
const PATTERN_LEN_MAX: usize = 1024;
/// Most patterns of the operator for one server: each is searched for in every line.
pub const PATTERNS_MAX: usize = 32;

/// What is done about text that reads like instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstructionRule {
    /// Nothing.
    Off,
    /// It is fenced, and what was found is named.
    #[default]
    Warn,
    /// An answer waits for the operator's approval; in other messages the text is withheld.
    Hold,
}

impl InstructionRule {
    /// The word in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Hold => "hold",
        }
    }
}

/// The settings for one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRules {
    /// Secrets are masked.
    pub secrets: bool,
    /// Personal data of these kinds is masked.
    pub personal: Vec<PersonalKind>,
    /// Unseen characters are stripped.
    pub unseen: bool,
    /// Instructions.
    pub instructions: InstructionRule,
    /// What else is masked: regular expressions, each within one line.
    pub patterns: Vec<String>,
}

impl Default for ResultRules {
    fn default() -> Self {
        Self {
            secrets: true,
            personal: PersonalKind::CHECKED.to_vec(),
            unseen: true,
            instructions: InstructionRule::Warn,
            patterns: Vec::new(),
        }
    }
}

impl ResultRules {
    /// What it does, in the words of the configuration.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        if self.secrets {
            parts.push("secrets".to_owned());
        }
        parts.extend(self.personal.iter().map(|kind| kind.as_str().to_owned()));
        if !self.patterns.is_empty() {
            parts.push(format!("{} patterns", self.patterns.len()));
        }
        if self.unseen {
            parts.push("unseen".to_owned());
        }
        if self.instructions != InstructionRule::Off {
            parts.push(format!("instructions = {}", self.instructions.as_str()));
        }
        if parts.is_empty() {
            parts.push("nothing".to_owned());
        }
        parts.join(", ")
    }
}

/// Compiles a pattern of the operator.
///
/// # Errors
/// What is wrong with it.
pub fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > PATTERN_LEN_MAX {
        return Err(format!("it is longer than {PATTERN_LEN_MAX} bytes"));
    }
    let compiled = RegexBuilder::new(pattern)
        .multi_line(true)
        .crlf(true)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| error.to_string().replace('\n', " "))?;
    if compiled.is_match("") {
        return Err("it matches the empty text".to_owned());
    }
    Ok(compiled)
}

/// The compiled settings of one server.
#[derive(Clone, Debug)]
pub struct ResultGuard {
    rules: ResultRules,
    patterns: Vec<Regex>,
}

impl ResultGuard {
    /// Compiles the settings. Patterns that do not compile, which the configuration rejects, are left out.
    #[must_use]
    pub fn new(rules: ResultRules) -> Self {
        // Compiled when the server is connected, so that its first result does not wait for it.
        if rules.secrets {
            LazyLock::force(&secrets::TOKENS);
        }
        if rules.instructions != InstructionRule::Off {
            LazyLock::force(&instructions::SIGN_SET);
        }
        let patterns = rules.patterns.iter();
        let patterns = patterns.filter_map(|pattern| compile_pattern(pattern).ok());
        Self {
            patterns: patterns.take(PATTERNS_MAX).collect(),
            rules,
        }
    }

    /// The settings.
    #[must_use]
    pub fn rules(&self) -> &ResultRules {
        &self.rules
    }
}

#[cfg(test)]
mod tests;
