//! Validates a call's arguments before they leave the kernel (MGP §4.5, §8.2).
//!
//! Only text is checked: no name is resolved, no link followed. So a public name that resolves to a private
//! address, a redirect, and a symbolic link inside an allowed root are not detected here; the code that
//! connects or opens must check again. Texts are checked verbatim and in normal form (NFKC, no invisible
//! characters, percent-decoded), because the server's interpretation is unknown.

mod addresses;
mod arguments;
mod command_rules;
mod commands;
mod dangerous_commands;
mod fast_path;
mod network;
mod normalization;
mod paths;
mod patterns;
mod programs;
mod readonly;
mod roles;
mod sandbox;
mod scripts;
mod split_commands;
mod sql;

use serde_json::{Value, json};

pub use fast_path::is_trivially_safe;
pub(crate) use normalization::is_invisible;

use arguments::{CallArguments, Leaf};
use roles::Role;

/// The longest excerpt of an argument in a refusal, in characters.
const ECHO_MAX: usize = 80;

/// A standard validator of MGP §4.5. `none` is the absence of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Validator {
    /// No shell injection, no destructive commands, no paths outside the allowed folders.
    Sandbox,
    /// Nothing that writes.
    Readonly,
    /// No requests to this machine, its networks or its cloud's metadata.
    NetworkRestricted,
    /// Code arguments comply with §7.
    CodeSafety,
}

impl Validator {
    /// Its name in MGP.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Readonly => "readonly",
            Self::NetworkRestricted => "network_restricted",
            Self::CodeSafety => "code_safety",
        }
    }

    /// The validator with exactly this name; `none` is not one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::Sandbox,
            Self::Readonly,
            Self::NetworkRestricted,
            Self::CodeSafety,
        ]
        .into_iter()
        .find(|v| v.name() == name)
    }
}

/// True for the names under which tools take code.
#[must_use]
pub fn is_code_argument(argument: &str) -> bool {
    roles::role_for_key(argument) == Role::Code
}

/// True for names with a known meaning.
#[must_use]
pub fn has_known_role(argument: &str) -> bool {
    roles::role_for_key(argument) != Role::Other
}

/// Checks a program and its arguments before a start without a shell. Paths must stay inside `roots`, or
/// without roots outside of system folders.
///
/// # Errors
/// The forbidden effect.
pub fn check_start_command(words: &[String], roots: &[String]) -> Result<(), BlockedArgument> {
    let plain: Vec<String> = words
        .iter()
        .map(|word| normalization::normalize(word))
        .collect();
    let found = sandbox::check_start_command(words, roots)
        .or_else(|| sandbox::check_start_command(&plain, roots));
    match found {
        Some(finding) => {
            let line = words.join(" ");
            Err(BlockedArgument::new(
                Validator::Sandbox,
                "/args",
                &line,
                finding,
            ))
        }
        None => Ok(()),
    }
}

/// The validators of one tool: created from its definition, used at each call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    active: Vec<Validator>,
    unknown_names: Vec<String>,
}

impl Validators {
    /// Creates the validators with these names. Several add up, and `none` removes no other. An unknown
    /// name is recorded for the audit and counts as `sandbox` and `network_restricted`.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut validators = Self::default();
        for name in names {
            match Validator::from_name(name) {
                Some(one) => validators.add(one),
                None if name == "none" => {}
                None => validators.add_unknown(name.to_owned()),
            }
        }
        validators
    }

    /// Creates the validators for a tool without declared ones, by the words of its name (MGP-272). The
    /// operator may disable this with `none`.
    #[must_use]
    pub fn for_tool_name(tool: &str) -> Self {
        let words = roles::split_words(tool);
        let mut validators = Self::default();
        if roles::is_command_name(&words) {
            validators.add(Validator::Sandbox);
        }
        if roles::is_code_name(&words) {
            validators.add(Validator::CodeSafety);
        }
        validators
    }

    /// The union of the server's and the operator's validators.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        other.active.into_iter().for_each(|one| self.add(one));
        self.unknown_names.extend(other.unknown_names);
        self
    }

    /// Adds a validator if a condition holds.
    #[must_use]
    pub fn with_if(mut self, holds: bool, one: Validator) -> Self {
        if holds {
            self.add(one);
        }
        self
    }

    /// The validators in force, in order of evaluation.
    #[must_use]
    pub fn active(&self) -> &[Validator] {
        &self.active
    }

    /// Unknown names, for the audit.
    #[must_use]
    pub fn unknown_names(&self) -> &[String] {
        &self.unknown_names
    }

    fn add(&mut self, one: Validator) {
        if let Err(at) = self.active.binary_search(&one) {
            self.active.insert(at, one);
        }
    }

    fn add_unknown(&mut self, name: String) {
        self.add(Validator::Sandbox);
        self.add(Validator::NetworkRestricted);
        self.unknown_names.push(name);
    }

    /// Checks one call; `code` checks each code argument, if `code_safety` is in force.
    ///
    /// # Errors
    /// The first violation.
    pub fn check<R>(
        &self,
        call: &ScreenedCall<'_>,
        code: impl Fn(&str) -> Result<(), R>,
    ) -> Result<(), ScreeningRejection<R>> {
        let Some(first) = self.active.first() else {
            return Ok(());
        };
        let args = match CallArguments::parse(call.args, call.declared) {
            Ok(args) => args,
            Err(finding) => {
                return Err(ScreeningRejection::Blocked(BlockedArgument::new(
                    *first, "", "", finding,
                )));
            }
        };
        for &validator in &self.active {
            match validator {
                Validator::Sandbox => sandbox::check(call, &args)?,
                Validator::Readonly => readonly::check(call, &args)?,
                Validator::NetworkRestricted => network::check(call, &args)?,
                Validator::CodeSafety => check_code(call, &args, &code)?,
            }
        }
        Ok(())
    }
}

/// The data of a call that the validators check.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScreenedCall<'a> {
    /// The tool's own name on its server.
    pub tool: &'a str,
    /// True if it runs commands, if known; otherwise derived from its name and effects.
    pub runs_commands: Option<bool>,
    /// `security.side_effects`, as the server declares them.
    pub side_effects: &'a [String],
    /// `annotations.readOnlyHint`, if the server gives it.
    pub read_only_hint: Option<bool>,
    /// Absolute folders that the tool may name. If empty, only system folders and paths that lead upwards
    /// are rejected.
    pub roots: &'a [String],
    /// Properties whose schema has `format: "code"`, by name.
    pub code_arguments: &'a [String],
    /// Properties with known names, as spelled in the schema.
    pub declared: &'a [String],
    /// The `arguments` of the call, as JSON text.
    pub args: &'a str,
}

impl ScreenedCall<'_> {
    /// True if a tool of this name and these effects runs commands.
    #[must_use]
    pub fn is_command_tool(tool: &str, side_effects: &[String]) -> bool {
        roles::is_command_name(&roles::split_words(tool))
            || side_effects.iter().any(|e| e == "process")
    }

    fn can_run_commands(&self) -> bool {
        self.runs_commands
            .unwrap_or_else(|| Self::is_command_tool(self.tool, self.side_effects))
    }
}

/// The rejection of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScreeningRejection<R> {
    /// By a rule of this module: 1010 `VALIDATION_BLOCKED`.
    Blocked(BlockedArgument),
    /// By the code check: 1011 `CODE_SAFETY_VIOLATION`.
    UnsafeCode {
        /// JSON pointer to the argument.
        path: String,
        /// The code check's error.
        rejection: R,
    },
}

impl<R> From<BlockedArgument> for ScreeningRejection<R> {
    fn from(blocked: BlockedArgument) -> Self {
        Self::Blocked(blocked)
    }
}

impl<R> ScreeningRejection<R> {
    /// The error code of MGP §14.3.
    #[must_use]
    pub fn code(&self) -> i64 {
        match self {
            Self::Blocked(_) => 1010,
            Self::UnsafeCode { .. } => 1011,
        }
    }
}

/// A rejected argument, with enough detail for an agent to fix its call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Validator {} blocked the call at {}: {reason}; {hint}", validator.name(), render_location(path))]
pub struct BlockedArgument {
    /// The validator of the rule.
    pub validator: Validator,
    /// JSON pointer into the arguments; empty for the call as a whole.
    pub path: String,
    /// The rule's stable identifier.
    pub rule: &'static str,
    /// The violation, as text.
    pub reason: String,
    /// The suggested fix.
    pub hint: &'static str,
    /// The truncated argument. Not for the audit, which stores no arguments.
    pub(crate) excerpt: String,
}

fn render_location(path: &str) -> &str {
    if path.is_empty() { "its root" } else { path }
}

impl BlockedArgument {
    fn new(validator: Validator, path: &str, found: &str, finding: ArgumentFinding) -> Self {
        Self {
            validator,
            path: path.to_owned(),
            rule: finding.rule,
            reason: finding.reason,
            hint: finding.hint,
            excerpt: echo(found),
        }
    }

    fn for_leaf(validator: Validator, leaf: &Leaf, finding: ArgumentFinding) -> Self {
        Self::new(validator, &leaf.path, &leaf.text, finding)
    }

    /// The `data._mgp.details` of the error (MGP §14.4).
    #[must_use]
    pub fn details(&self) -> Value {
        json!({
            "validator": self.validator.name(),
            "argument": self.path,
            "rule": self.rule,
            "reason": self.reason,
            "hint": self.hint,
            "found": self.excerpt,
        })
    }
}

/// The finding of a rule in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ArgumentFinding {
    rule: &'static str,
    reason: String,
    hint: &'static str,
}

impl ArgumentFinding {
    fn new(rule: &'static str, reason: impl Into<String>, hint: &'static str) -> Self {
        Self {
            rule,
            reason: reason.into(),
            hint,
        }
    }
}

/// Truncates a text, and removes control and bidirectional characters.
fn echo(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() || normalization::is_invisible(c) {
            '\u{fffd}'
        } else {
            c
        }
    };
    let mut out: String = text.chars().take(ECHO_MAX).map(shown).collect();
    if text.chars().nth(ECHO_MAX).is_some() {
        out.push('…');
    }
    out
}

/// Checks each code argument. If none is declared as code, all texts without a known role count: otherwise
/// the validator would check nothing.
fn check_code<R>(
    call: &ScreenedCall<'_>,
    args: &CallArguments,
    check: &impl Fn(&str) -> Result<(), R>,
) -> Result<(), ScreeningRejection<R>> {
    let marked = |leaf: &Leaf| {
        leaf.role == Role::Code || call.code_arguments.iter().any(|name| **name == *leaf.key)
    };
    let unmarked = |leaf: &Leaf| {
        use Role::{Args, Command, Other, Prose, Sql};
        matches!(leaf.role, Args | Command | Other | Prose | Sql)
    };
    let mut texts = args.join_texts(marked);
    if texts.is_empty() {
        texts = args.join_texts(unmarked);
    }
    for (path, text) in texts {
        check(&text).map_err(|rejection| ScreeningRejection::UnsafeCode { path, rejection })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
