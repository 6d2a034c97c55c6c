//! What must be checked before a call of a tool may leave. Computed when the tool's definition is read, and
//! looked up at each call (MGP §4, §7, §8.2).
//!
//! A server can ask for stricter checks, but hardly for weaker ones: its declarations are combined with its
//! trust level, the tool's name and the operator's rules.

mod rules;

use std::sync::Arc;

use mgp_protocol::mgp::discovery::security::{MEMBER, Security};
use mgp_protocol::splice::member;
use serde_json::Value;

pub use self::rules::{ToolRule, ToolRules};
use crate::policy::risk::{self, Risk};
use crate::policy::trust::TrustLevel;
use mgp_screening::code_safety::{CodePolicy, Declaration, Floor, Level};
use mgp_screening::validators::{self, No, ScreenedCall, Validator, Validators};

/// The inputs besides a tool's definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequirementTerms {
    /// The trust level of the server ([`risk::trust`]).
    pub trust: TrustLevel,
    /// The operator's rules for its tools.
    pub rules: Arc<ToolRules>,
}

/// The requirements of one tool.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRequirements {
    /// Its risk, and the reasons.
    pub risk: Risk,
    /// A dangerous call needs a person's confirmation. False if the operator switched that off for the
    /// server.
    pub confirms: bool,
    /// Permissions a call needs, as the server spells them.
    pub permissions: Vec<String>,
    /// The validators of the arguments.
    pub validators: Validators,
    /// The code policy, where code is checked.
    pub code: Option<Arc<CodeRules>>,
    /// The operator says that calling it twice does what calling it once does. What its server says of that
    /// does not count.
    pub idempotent: bool,
    /// Declarations that could not be understood and were read in their strictest sense; for the operator.
    pub odd: Vec<String>,
    runs: bool,
    side_effects: Vec<String>,
    read_only_hint: Option<bool>,
    code_arguments: Vec<String>,
    /// Arguments whose purpose follows from their names, and those that are code.
    declared: Vec<String>,
    rules: Arc<ToolRules>,
}

/// How the code of a tool is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct CodeRules {
    /// The policy it is judged by.
    pub policy: CodePolicy,
    key: [u8; blake3::KEY_LEN],
}

impl CodeRules {
    fn new(policy: CodePolicy) -> Self {
        let key = *blake3::hash(format!("{policy:?}").as_bytes()).as_bytes();
        Self { policy, key }
    }

    /// Identifies the judgement of this code under this policy.
    #[must_use]
    pub fn name(&self, code: &str) -> [u8; blake3::OUT_LEN] {
        *blake3::keyed_hash(&self.key, code.as_bytes()).as_bytes()
    }
}

impl CallRequirements {
    /// The requirements of a tool, from its definition and its own name.
    #[must_use]
    pub fn read(definition: &str, name: &str, terms: &RequirementTerms) -> Self {
        let said = Security::of(definition);
        let rule = terms.rules.of(name);
        let arguments = CodeArguments::of(member(definition, "inputSchema"));
        let declared = said.as_ref().and_then(|said| said.code_safety.as_ref());
        let declared = declared.map(Declaration::read);
        let validators = in_force(name, said.as_ref(), arguments.any(), terms);
        let code = validators.chosen().contains(&Validator::CodeSafety);
        let code = code.then(|| {
            let declaration = declared.clone().unwrap_or_default();
            policy(&declaration, rule.and_then(|r| r.code_safety), terms)
        });
        let odd = odd(&validators, said.as_ref(), declared.as_ref());
        let operator = rule.and_then(|rule| rule.risk_level);
        let risk = risk::judge(terms.trust, said.as_ref(), operator);
        let said = said.unwrap_or_default();
        Self {
            risk,
            confirms: terms.rules.confirms,
            permissions: said.permissions_required,
            validators,
            code: code.map(|policy| Arc::new(CodeRules::new(policy))),
            idempotent: rule.is_some_and(|rule| rule.idempotent),
            odd,
            runs: ScreenedCall::runs_commands(name, &said.side_effects),
            side_effects: said.side_effects,
            read_only_hint: read_only_hint(definition),
            code_arguments: arguments.formatted,
            declared: arguments.telling,
            rules: Arc::clone(&terms.rules),
        }
    }

    /// The operator's rules for all tools of the server.
    #[must_use]
    pub fn rules(&self) -> &ToolRules {
        &self.rules
    }

    /// Validates the arguments of one call of the tool; `code` judges each argument that is code.
    ///
    /// # Errors
    /// The first violation.
    pub fn judge<R>(
        &self,
        tool: &str,
        args: &str,
        code: impl Fn(&str) -> Result<(), R>,
    ) -> Result<(), No<R>> {
        let call = ScreenedCall {
            tool,
            runs: Some(self.runs),
            side_effects: &self.side_effects,
            read_only_hint: self.read_only_hint,
            roots: &self.rules.roots,
            code_arguments: &self.code_arguments,
            declared: &self.declared,
            args,
        };
        self.validators.judge(&call, code)
    }
}

/// The validators that the server declares, that the tool's name suggests, and that the operator adds. If
/// the operator named a tool's validators, only those.
fn in_force(
    name: &str,
    said: Option<&Security>,
    takes_code: bool,
    terms: &RequirementTerms,
) -> Validators {
    let rules = &terms.rules;
    if !rules.validates {
        return Validators::default();
    }
    let rule = rules.of(name);
    let code_set = rule.and_then(|rule| rule.code_safety).is_some();
    let operators = |names: &[String]| Validators::of(names.iter().map(String::as_str));
    if let Some(names) = rule.and_then(|rule| rule.validators.as_deref()) {
        return operators(names).and_if(code_set, Validator::CodeSafety);
    }
    let declared = said.map(declared).unwrap_or_default();
    let silent = said.is_none_or(|said| said.validators.is_empty() && !is_unreadable(said));
    let sandboxed = terms.trust == TrustLevel::Sandboxed;
    // A server that is not trusted cannot drop validators that its tools' names suggest.
    let by_name = (silent || sandboxed) && !rules.validators.iter().any(|name| name == "none");
    let guessed = by_name.then(|| Validators::by_name(name));
    let judged = said.is_some_and(|said| said.code_safety.is_some());
    let code = judged || code_set || sandboxed && takes_code;
    declared
        .and(guessed.unwrap_or_default())
        .and(operators(&rules.validators))
        .and_if(code, Validator::CodeSafety)
}

/// The validators a server names. A member that is neither a name nor a list counts as an unknown name.
/// nobody knows.
fn declared(said: &Security) -> Validators {
    let unreadable = is_unreadable(said).then_some("(unreadable)");
    let names = said.validators.iter().map(String::as_str);
    Validators::of(names.chain(unreadable))
}

fn is_unreadable(said: &Security) -> bool {
    let members = ["validator", MEMBER];
    members
        .iter()
        .any(|member| said.unreadable.contains(member))
}

fn policy(
    declared: &Declaration,
    operators: Option<Level>,
    terms: &RequirementTerms,
) -> CodePolicy {
    let trusted = match terms.trust {
        TrustLevel::Sandboxed => Floor::sandboxed(),
        TrustLevel::Standard | TrustLevel::Trusted => Floor::default(),
    };
    let floor = Floor {
        level: terms.rules.code_safety.max(trusted.level),
        ..trusted
    };
    match operators {
        Some(level) => CodePolicy::at(level, declared, &floor),
        None => CodePolicy::new(declared, &floor),
    }
}

fn odd(
    validators: &Validators,
    said: Option<&Security>,
    code: Option<&Declaration>,
) -> Vec<String> {
    let unknown = validators.unknown().iter().map(|name| {
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
    let faults = code.map(|code| code.faults.as_slice()).unwrap_or_default();
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
    /// One whose name says that it is code.
    named: bool,
    /// Both kinds.
    telling: Vec<String>,
}

impl CodeArguments {
    fn of(input_schema: Option<&str>) -> Self {
        let schema: Value = input_schema
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let mut found = Self::default();
        found.look(&schema);
        found
    }

    /// JSON that was read has at most 128 levels.
    fn look(&mut self, schema: &Value) {
        match schema {
            Value::Object(members) => {
                let own = members.get("properties").and_then(Value::as_object);
                for (name, property) in own.into_iter().flatten() {
                    self.named |= validators::is_code(name);
                    let format = property.get("format").and_then(Value::as_str);
                    let tells = format == Some("code") || validators::is_telling(name);
                    if tells && !self.telling.contains(name) {
                        self.telling.push(name.clone());
                    }
                    if format == Some("code") && !self.formatted.contains(name) {
                        self.formatted.push(name.clone());
                    }
                }
                members.values().for_each(|inner| self.look(inner));
            }
            Value::Array(list) => list.iter().for_each(|inner| self.look(inner)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn any(&self) -> bool {
        self.named || !self.formatted.is_empty()
    }
}

#[cfg(test)]
mod tests;
