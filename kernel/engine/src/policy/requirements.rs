//! What must be checked before a call of a tool is sent. Computed when the tool's definition is parsed, and looked up
//! at each call (MGP §4, §7, §8.2).
//!
//! A server can request stricter checks, but hardly weaker ones: its declarations are combined with its trust level,
//! the tool's name and the operator's rules.

mod rules;

use std::sync::Arc;

use mgp_json::member;
use mgp_protocol::mgp::discovery::security::{MEMBER, Security};
use serde_json::Value;

pub use self::rules::{ToolRule, ToolRules};
use crate::policy::risk::{self, Risk};
use crate::policy::trust::TrustLevel;
use mgp_screening::code_safety::{CodePolicy, Declaration, Floor, Level};
use mgp_screening::{
    ScreenedCall, ScreeningRejection, Validator, Validators, has_known_role, is_code_argument,
};

/// The inputs besides a tool's definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequirementInputs {
    /// The trust level of the server ([`risk::effective_trust`]).
    pub trust: TrustLevel,
    /// The operator's rules for its tools.
    pub rules: Arc<ToolRules>,
}

/// The requirements of one tool.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRequirements {
    /// Its risk, and the reasons.
    pub risk: Risk,
    /// A dangerous call needs a person's confirmation. False if the operator disabled that for the server.
    pub needs_confirmation: bool,
    /// Permissions a call needs, as the server spells them.
    pub permissions: Vec<String>,
    /// The validators of the arguments.
    pub validators: Validators,
    /// The code policy, where code is checked.
    pub code: Option<Arc<CodeRules>>,
    /// The operator declared the tool idempotent. What its server declares does not count.
    pub idempotent: bool,
    /// Declarations that were invalid and got their strictest interpretation; for the operator.
    pub(crate) warnings: Vec<String>,
    runs_commands: bool,
    side_effects: Vec<String>,
    read_only_hint: Option<bool>,
    code_arguments: Vec<String>,
    /// Arguments whose purpose follows from their names, and those that are code.
    declared_arguments: Vec<String>,
    rules: Arc<ToolRules>,
}

/// How the code of a tool is checked.
#[derive(Clone, Debug, PartialEq)]
pub struct CodeRules {
    /// The policy it is checked against.
    pub policy: CodePolicy,
    key: [u8; blake3::KEY_LEN],
}

impl CodeRules {
    fn new(policy: CodePolicy) -> Self {
        let key = *blake3::hash(format!("{policy:?}").as_bytes()).as_bytes();
        Self { policy, key }
    }

    /// Identifies the verdict on this code under this policy.
    #[must_use]
    pub fn digest(&self, code: &str) -> [u8; blake3::OUT_LEN] {
        *blake3::keyed_hash(&self.key, code.as_bytes()).as_bytes()
    }
}

impl CallRequirements {
    /// The requirements of a tool, from its definition and its own name.
    #[must_use]
    pub(crate) fn from_definition(definition: &str, name: &str, terms: &RequirementInputs) -> Self {
        let said = Security::from_definition(definition);
        let rule = terms.rules.for_tool(name);
        let arguments = CodeArguments::from_schema(member(definition, "inputSchema"));
        let declared = said.as_ref().and_then(|said| said.code_safety.as_ref());
        let declared = declared.map(Declaration::parse);
        let validators = effective_validators(name, said.as_ref(), arguments.has_code(), terms);
        let code = validators.active().contains(&Validator::CodeSafety);
        let code = code.then(|| {
            let declaration = declared.clone().unwrap_or_default();
            code_policy(&declaration, rule.and_then(|r| r.code_safety), terms)
        });
        let warnings = collect_warnings(&validators, said.as_ref(), declared.as_ref());
        let operator = rule.and_then(|rule| rule.risk_level);
        let risk = risk::assess(terms.trust, said.as_ref(), operator);
        let said = said.unwrap_or_default();
        Self {
            risk,
            needs_confirmation: terms.rules.confirm_dangerous,
            permissions: said.permissions_required,
            validators,
            code: code.map(|policy| Arc::new(CodeRules::new(policy))),
            idempotent: rule.is_some_and(|rule| rule.idempotent),
            warnings,
            runs_commands: ScreenedCall::is_command_tool(name, &said.side_effects),
            side_effects: said.side_effects,
            read_only_hint: read_only_hint(definition),
            code_arguments: arguments.formatted,
            declared_arguments: arguments.all,
            rules: Arc::clone(&terms.rules),
        }
    }

    /// The operator's rules for all tools of the server.
    #[must_use]
    pub fn rules(&self) -> &ToolRules {
        &self.rules
    }

    /// Validates the arguments of one call of the tool; `code` checks each argument that is code.
    ///
    /// # Errors
    /// The first violation.
    pub fn validate<R>(
        &self,
        tool: &str,
        args: &str,
        code: impl Fn(&str) -> Result<(), R>,
    ) -> Result<(), ScreeningRejection<R>> {
        let call = ScreenedCall {
            tool,
            runs_commands: Some(self.runs_commands),
            side_effects: &self.side_effects,
            read_only_hint: self.read_only_hint,
            roots: &self.rules.roots,
            code_arguments: &self.code_arguments,
            declared: &self.declared_arguments,
            args,
        };
        self.validators.check(&call, code)
    }
}

/// The validators that the server declares, that the tool's name suggests, and that the operator adds. If the
/// operator configured a tool's validators, only those.
fn effective_validators(
    name: &str,
    said: Option<&Security>,
    takes_code: bool,
    terms: &RequirementInputs,
) -> Validators {
    let rules = &terms.rules;
    if !rules.validate_arguments {
        return Validators::default();
    }
    let rule = rules.for_tool(name);
    let code_set = rule.and_then(|rule| rule.code_safety).is_some();
    let operators = |names: &[String]| Validators::from_names(names.iter().map(String::as_str));
    if let Some(names) = rule.and_then(|rule| rule.validators.as_deref()) {
        return operators(names).with_if(code_set, Validator::CodeSafety);
    }
    let declared = said.map(declared_validators).unwrap_or_default();
    let silent = said.is_none_or(|said| said.validators.is_empty() && !is_unreadable(said));
    let sandboxed = terms.trust.is_sandboxed();
    // A server that is not trusted cannot drop validators that its tools' names suggest.
    let by_name = (silent || sandboxed) && !rules.validators.iter().any(|name| name == "none");
    let guessed = by_name.then(|| Validators::for_tool_name(name));
    let judged = said.is_some_and(|said| said.code_safety.is_some());
    let code = judged || code_set || sandboxed && takes_code;
    declared
        .merge(guessed.unwrap_or_default())
        .merge(operators(&rules.validators))
        .with_if(code, Validator::CodeSafety)
}

/// The validators a server declares. A member that is neither a name nor a list counts as an unknown name.
fn declared_validators(said: &Security) -> Validators {
    let unreadable = is_unreadable(said).then_some("(unreadable)");
    let names = said.validators.iter().map(String::as_str);
    Validators::from_names(names.chain(unreadable))
}

fn is_unreadable(said: &Security) -> bool {
    let members = ["validator", MEMBER];
    members
        .iter()
        .any(|member| said.unreadable.contains(member))
}

fn code_policy(
    declared: &Declaration,
    operators: Option<Level>,
    terms: &RequirementInputs,
) -> CodePolicy {
    let trusted = match terms.trust {
        TrustLevel::Sandboxed | TrustLevel::Experimental => Floor::for_sandboxed_server(),
        TrustLevel::Standard | TrustLevel::Trusted => Floor::default(),
    };
    let floor = Floor {
        level: terms.rules.code_safety.max(trusted.level),
        ..trusted
    };
    match operators {
        Some(level) => CodePolicy::with_level(level, declared, &floor),
        None => CodePolicy::new(declared, &floor),
    }
}

fn collect_warnings(
    validators: &Validators,
    said: Option<&Security>,
    code: Option<&Declaration>,
) -> Vec<String> {
    let unknown = validators.unknown_names().iter().map(|name| {
        format!(
            "nobody knows its validator {name:?}; sandbox and network_restricted take its place"
        )
    });
    let unreadable = said
        .map(|said| said.unreadable.as_slice())
        .unwrap_or_default();
    let unreadable = unreadable
        .iter()
        .map(|member| format!("its security.{member} cannot be read"));
    let faults = code
        .map(|code| code.parse_errors.as_slice())
        .unwrap_or_default();
    unknown
        .chain(unreadable)
        .chain(faults.iter().cloned())
        .collect()
}

fn read_only_hint(definition: &str) -> Option<bool> {
    let hint = member(member(definition, "annotations")?, "readOnlyHint")?;
    hint.parse().ok()
}

/// Which arguments are code according to the schema.
#[derive(Default)]
struct CodeArguments {
    /// Those with `format: "code"`, at any depth.
    formatted: Vec<String>,
    /// One whose name suggests that it is code.
    has_code_name: bool,
    /// Both kinds.
    all: Vec<String>,
}

impl CodeArguments {
    fn from_schema(input_schema: Option<&str>) -> Self {
        let schema: Value = input_schema
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let mut found = Self::default();
        found.scan(&schema);
        found
    }

    /// Parsed JSON has at most 128 levels.
    fn scan(&mut self, schema: &Value) {
        match schema {
            Value::Object(members) => {
                let own = members.get("properties").and_then(Value::as_object);
                for (name, property) in own.into_iter().flatten() {
                    self.has_code_name |= is_code_argument(name);
                    let format = property.get("format").and_then(Value::as_str);
                    let tells = format == Some("code") || has_known_role(name);
                    if tells && !self.all.contains(name) {
                        self.all.push(name.clone());
                    }
                    if format == Some("code") && !self.formatted.contains(name) {
                        self.formatted.push(name.clone());
                    }
                }
                members.values().for_each(|inner| self.scan(inner));
            }
            Value::Array(list) => list.iter().for_each(|inner| self.scan(inner)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn has_code(&self) -> bool {
        self.has_code_name || !self.formatted.is_empty()
    }
}

#[cfg(test)]
mod tests;
