//! Judges a server that is to be registered while the kernel runs (MGP §15.4): by the operator, or by
//! an agent that has just written it. Nothing is started, read or written here.
//!
//! What an agent registers is taken to the letter: no variable and no secret of the kernel is put in.
//! It runs without a shell, is trusted least, and its code is read before it runs; where it cannot be
//! read, a person is asked.

mod environment;
mod identity;
mod program;

#[cfg(test)]
mod tests;

use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::discovery::security::RiskLevel;
use mgp_protocol::mgp::discovery::{Register, Transport};
use mgp_protocol::mgp::permission::PermissionType;
use mgp_protocol::refusal::mgp::Code;
use mgp_protocol::refusal::{Denial, Refusal};

use crate::policy::access::Principal;
use crate::policy::risk;
use crate::policy::trust::TrustLevel;
use crate::servers::spec::{ServerTransport, UrlProtocol};
use mgp_screening::code_safety::{ALLOWED_IMPORTS, Floor, Level, Rejection};

pub use self::program::{ScriptSource, check_code};

/// Longest word of a registration: a name of an extension or a permission, in bytes.
const WORD_MAX: usize = 128;
/// Most extensions, and most permissions.
const WORDS_MAX: usize = 64;
/// Longest justification, in bytes: a person reads it before deciding.
const JUSTIFICATION_MAX: usize = 2_000;
/// Modules that a server needs to be one, and those that only compute, beside those of the document.
const SERVER_IMPORTS: [&str; 36] = [
    "mcp",
    "mgp",
    "pydantic",
    "sys",
    "__future__",
    "abc",
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "collections",
    "contextlib",
    "csv",
    "dataclasses",
    "decimal",
    "difflib",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "html",
    "itertools",
    "math",
    "pathlib",
    "random",
    "re",
    "secrets",
    "statistics",
    "string",
    "textwrap",
    "time",
    "unicodedata",
    "urllib.parse",
    "uuid",
    "zoneinfo",
];

/// What a registration is judged by besides itself.
#[derive(Clone, Debug)]
pub struct RegistrationContext<'a> {
    /// Who asks, by its connection.
    pub caller: &'a Principal,
    /// Agents may register servers at all.
    pub allow_agents: bool,
    /// The agent that asks may run code.
    pub can_run_code: bool,
    /// How far a server that an agent registers can be trusted.
    pub trust_max: TrustLevel,
    /// Every server there is, and every id that must not be used again.
    pub reserved_ids: &'a [ServerId],
    /// How many servers the one who asks has registered already, and how many it may.
    pub count: RegistrationCount,
    /// Folders its program and its arguments may name, absolute.
    pub roots: &'a [String],
    /// What code is held against.
    pub code_floor: &'a Floor,
}

/// A number with its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationCount {
    /// How many there are.
    pub current: usize,
    /// How many there may be.
    pub max: usize,
}

/// The floor for code that agents register: strict, whatever they declare.
#[must_use]
pub fn strict_floor() -> Floor {
    let imports = ALLOWED_IMPORTS.iter().chain(&SERVER_IMPORTS);
    Floor {
        level: Level::Strict,
        undeclared: Level::Strict,
        allowed_imports: Some(imports.map(ToString::to_string).collect()),
        ..Floor::default()
    }
}

/// A registration that can be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationPlan {
    /// Its name.
    pub id: ServerId,
    /// How it is reached. The path of a program that came along is still missing in the arguments.
    pub transport: ServerTransport,
    /// How far it is trusted.
    pub trust: TrustLevel,
    /// Its code, and who has to look at it.
    pub script: ScriptSource,
    /// The extensions it is said to speak.
    pub extensions: Vec<String>,
    /// What it needs, in its own spelling.
    pub permissions: Vec<String>,
    /// Of these, what a person decides on under each policy.
    pub required_approvals: Vec<PermissionType>,
    /// By whom, for the audit: never taken from the request.
    pub created_by: String,
    /// What was changed of what was asked for, line by line.
    pub adjustments: Vec<String>,
}

impl RegistrationPlan {
    /// A person has to say yes before it is started for the first time, and why.
    #[must_use]
    pub fn approval_reason(&self) -> Option<&str> {
        match &self.script {
            ScriptSource::Unreadable(why) if self.trust == TrustLevel::Sandboxed => Some(why),
            ScriptSource::Unreadable(_) | ScriptSource::Inline { .. } | ScriptSource::File(_) => {
                None
            }
        }
    }
}

/// Why a registration is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationRefusal {
    /// Not by this caller.
    #[error("{0}")]
    Forbidden(String),
    /// It is none: a member is missing, or does not go with another one.
    #[error("{0}")]
    Malformed(String),
    /// Against a rule.
    #[error("{0}")]
    RuleViolation(RegistrationViolation),
    /// There are too many.
    #[error("{max} servers are registered, and no more can be; deregister one first")]
    TooMany {
        /// The bound.
        max: usize,
    },
    /// Code that is not run.
    #[error("its code is refused: {}", .0.violations().join("; "))]
    Code(Box<Rejection>),
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {reason} ({hint})")]
pub struct RegistrationViolation {
    /// Under which name it was to be.
    pub server: String,
    /// The rule, as one word that does not change.
    pub(crate) rule: &'static str,
    /// JSON pointer into the request.
    pub(crate) pointer: String,
    /// What is wrong. Holds no value of a variable.
    pub(crate) reason: String,
    /// What to do instead.
    pub(crate) hint: &'static str,
}

impl RegistrationRefusal {
    /// As it is said to the one who asked.
    #[must_use]
    pub fn into_refusal(self) -> Refusal {
        let text = self.to_string();
        let code = self.error_code();
        let denial = match self {
            Self::Forbidden(_) => return Refusal::Forbidden(text),
            Self::Malformed(_) => return Refusal::BadParams(text),
            Self::TooMany { max } => Denial::OverQuota {
                what: "registered servers (deregister one first)".into(),
                limit: max as u64,
            },
            Self::RuleViolation(broken) => Denial::Registration {
                server: broken.server,
                code: code.unwrap_or(Code::ValidationBlocked),
                rule: broken.rule,
                at: broken.pointer,
                reason: broken.reason,
                hint: broken.hint,
            },
            Self::Code(rejection) => Denial::UnsafeCode {
                violations: rejection.violations(),
                path: "/code".into(),
                body: serde_json::value::to_raw_value(&rejection.body())
                    .expect("a value is always JSON"),
            },
        };
        Refusal::Denied(Box::new(denial))
    }

    /// Its code of MGP §14.3; `None` for what JSON-RPC has -32602 for.
    #[must_use]
    pub(crate) fn error_code(&self) -> Option<Code> {
        match self {
            Self::Forbidden(_) => Some(Code::PermissionDenied),
            Self::Malformed(_) => None,
            Self::RuleViolation(broken) if matches!(broken.rule, "duplicate" | "imitation") => {
                Some(Code::ServerExists)
            }
            Self::RuleViolation(_) => Some(Code::ValidationBlocked),
            Self::TooMany { .. } => Some(Code::QuotaExceeded),
            Self::Code(_) => Some(Code::CodeSafetyViolation),
        }
    }
}

impl From<RegistrationViolation> for RegistrationRefusal {
    fn from(broken: RegistrationViolation) -> Self {
        Self::RuleViolation(broken)
    }
}

/// A finding without the name of the server, which only [`check`] knows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RuleFinding {
    rule: &'static str,
    pointer: String,
    reason: String,
    hint: &'static str,
}

impl RuleFinding {
    fn new(
        rule: &'static str,
        at: impl Into<String>,
        reason: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        Self {
            rule,
            pointer: at.into(),
            reason: reason.into(),
            hint,
        }
    }
}

/// Judges a registration, for a preview as for the thing itself.
///
/// # Errors
/// The first thing that stands against it: who asks before what is asked, so that who may not learns
/// nothing of what there is.
pub fn check(
    ask: &Register,
    terms: &RegistrationContext<'_>,
) -> Result<RegistrationPlan, RegistrationRefusal> {
    let created_by = identity::check_caller(ask, terms)?;
    let named = |finding: RuleFinding| RegistrationViolation {
        server: ask.id.chars().take(ServerId::MAX_LEN).collect(),
        rule: finding.rule,
        pointer: finding.pointer,
        reason: finding.reason,
        hint: finding.hint,
    };
    let id = identity::check_id(&ask.id, terms.reserved_ids).map_err(named)?;
    check_texts(ask).map_err(named)?;
    if terms.count.current >= terms.count.max {
        return Err(RegistrationRefusal::TooMany {
            max: terms.count.max,
        });
    }
    let (reach, script) = match ask.transport {
        Transport::Stdio => {
            let command = program::stdio_command(ask)?;
            environment::check(&ask.env).map_err(named)?;
            let script = program::check(command, ask, terms.roots).map_err(named)?;
            (program::build_transport(command, ask), script)
        }
        Transport::Http => {
            let url = program::http_url(ask)?;
            program::check_url(url).map_err(named)?;
            let headers = std::collections::BTreeMap::new();
            let url = url.to_owned();
            let why = "it runs elsewhere, where its code cannot be read";
            let speaks = UrlProtocol::Mcp;
            let reach = ServerTransport::Http {
                url,
                headers,
                protocol: speaks,
            };
            (reach, ScriptSource::Unreadable(why))
        }
    };
    if let ScriptSource::Inline { language, text } = &script {
        check_code(language, text, terms.code_floor).map_err(RegistrationRefusal::Code)?;
    }
    let (trust, remarks) = effective_trust(ask, terms);
    Ok(RegistrationPlan {
        id,
        transport: reach,
        trust,
        script,
        extensions: ask.mgp.extensions.clone(),
        required_approvals: permissions_to_approve(ask, trust),
        permissions: ask.mgp.permissions_required.clone(),
        created_by,
        adjustments: remarks,
    })
}

/// What the operator allows, or less where less is asked for.
fn effective_trust(ask: &Register, terms: &RegistrationContext<'_>) -> (TrustLevel, Vec<String>) {
    let said = ask.mgp.trust_level.as_deref();
    let agent = terms.caller.agent().is_some();
    // What an agent does not ask for it does not get.
    let asked = said.or(agent.then_some(TrustLevel::Sandboxed.as_str()));
    let most = match (terms.caller, asked) {
        (Principal::Agent(_) | Principal::InSet(..), _) => terms.trust_max,
        (Principal::Operator { .. }, Some(_)) => TrustLevel::Trusted,
        (Principal::Operator { .. }, None) => TrustLevel::Standard,
    };
    let given = risk::effective_trust(most, asked);
    let wanted = asked.map(|word| risk::effective_trust(TrustLevel::Trusted, Some(word)));
    let lowered = wanted.is_some_and(|wanted| wanted > given);
    let remark = lowered.then(|| {
        let asked = asked.unwrap_or_default();
        let given = given.as_str();
        format!("trust_level {asked} is for the operator to give; it is {given}")
    });
    (given, remark.into_iter().collect())
}

/// Dangerous permissions of a server that is trusted least are never given without a person.
fn permissions_to_approve(ask: &Register, trust: TrustLevel) -> Vec<PermissionType> {
    let needs = ask.mgp.permissions_required.iter();
    let needs = needs.flat_map(|word| PermissionType::parse_all(word));
    let dangerous = |p: &PermissionType| p.risk() == RiskLevel::Dangerous;
    let mut asks: Vec<PermissionType> = needs.filter(dangerous).collect();
    asks.retain(|_| trust == TrustLevel::Sandboxed);
    asks.sort();
    asks.dedup();
    asks
}

/// Lists and texts that other people will read.
fn check_texts(ask: &Register) -> Result<(), RuleFinding> {
    let lists = [
        ("/mgp/extensions", &ask.mgp.extensions),
        ("/mgp/permissions_required", &ask.mgp.permissions_required),
    ];
    for (at, list) in lists {
        if list.len() > WORDS_MAX {
            let reason = format!("{} entries, over the limit of {WORDS_MAX}", list.len());
            return Err(RuleFinding::new(
                "size",
                at,
                reason,
                "name what it really needs",
            ));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '*');
        let fits = |word: &String| (1..=WORD_MAX).contains(&word.len()) && word.chars().all(plain);
        if let Some(n) = list.iter().position(|word| !fits(word)) {
            let reason = format!("no name of at most {WORD_MAX} letters, digits and ._-/*");
            let hint = "use the names of the specification, or com.example.name";
            return Err(RuleFinding::new("name", format!("{at}/{n}"), reason, hint));
        }
    }
    let why = ask.justification.as_deref().unwrap_or_default();
    if why.len() > JUSTIFICATION_MAX {
        let reason = format!("{} bytes, over the limit of {JUSTIFICATION_MAX}", why.len());
        return Err(RuleFinding::new(
            "size",
            "/justification",
            reason,
            "say it in a few sentences",
        ));
    }
    Ok(())
}
