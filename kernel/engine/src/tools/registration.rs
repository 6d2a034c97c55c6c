//! Checks the registration of a server while the kernel runs (MGP §15.4), by the operator or by an agent that has just
//! written it. This module starts, reads and writes nothing.
//!
//! An agent's registration is used literally: no variable or secret of the kernel is interpolated. The server runs without a
//! shell and with the lowest trust. Its code is checked before it runs; if it cannot be read, it needs approval.

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

/// Longest name of an extension or a permission, in bytes.
const WORD_MAX: usize = 128;
/// Most extensions, and most permissions.
const WORDS_MAX: usize = 64;
/// Longest justification, in bytes: a person reads it before deciding.
const JUSTIFICATION_MAX: usize = 2_000;
/// Modules that servers need, and modules that only compute, in addition to those of the specification.
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

/// The context that a registration is checked in.
#[derive(Clone, Debug)]
pub struct RegistrationContext<'a> {
    /// The caller, identified by its connection.
    pub caller: &'a Principal,
    /// Whether agents may register servers.
    pub allow_agents: bool,
    /// Whether the calling agent may run code.
    pub can_run_code: bool,
    /// The highest trust level of a server that an agent registers.
    pub trust_max: TrustLevel,
    /// The ids of all servers, and ids that must not be reused.
    pub reserved_ids: &'a [ServerId],
    /// The caller's registered servers and their limit.
    pub count: RegistrationCount,
    /// Folders its program and its arguments may name, absolute.
    pub roots: &'a [String],
    /// The rules for code.
    pub code_floor: &'a Floor,
}

/// A number with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationCount {
    /// The current number.
    pub current: usize,
    /// The limit.
    pub max: usize,
}

/// The rules for code that agents register: strict, regardless of their declaration.
#[must_use]
pub fn strict_floor() -> Floor {
    let imports = ALLOWED_IMPORTS.iter().chain(&SERVER_IMPORTS);
    Floor {
        level: Level::Strict,
        allowed_imports: Some(imports.map(ToString::to_string).collect()),
        ..Floor::default()
    }
}

/// An accepted registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationPlan {
    /// Its name.
    pub id: ServerId,
    /// Its transport. The arguments do not have the path of an inline program yet.
    pub transport: ServerTransport,
    /// Its trust level.
    pub trust: TrustLevel,
    /// Its code.
    pub script: ScriptSource,
    /// Its declared extensions.
    pub extensions: Vec<String>,
    /// The permissions it needs, in its own spelling.
    pub permissions: Vec<String>,
    /// Those of them that need approval under any policy.
    pub required_approvals: Vec<PermissionType>,
    /// The creator for the audit log, never taken from the request.
    pub created_by: String,
    /// Descriptions of adjustments to the request.
    pub adjustments: Vec<String>,
}

impl RegistrationPlan {
    /// Why it needs approval before its first start, if it does.
    #[must_use]
    pub fn approval_reason(&self) -> Option<&str> {
        match &self.script {
            ScriptSource::Unreadable(why) if self.trust.is_sandboxed() => Some(why),
            ScriptSource::Unreadable(_) | ScriptSource::Inline { .. } | ScriptSource::File(_) => {
                None
            }
        }
    }
}

/// Why a registration is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationRefusal {
    /// This caller may not register it.
    #[error("{0}")]
    Forbidden(String),
    /// A member is missing or contradicts another one.
    #[error("{0}")]
    Malformed(String),
    /// A rule is violated.
    #[error("{0}")]
    RuleViolation(RegistrationViolation),
    /// The limit of registered servers is reached.
    #[error("{max} servers are registered, and no more can be; deregister one first")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// The code is rejected.
    #[error("its code is refused: {}", .0.violations().join("; "))]
    Code(Box<Rejection>),
}

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {reason} ({hint})")]
pub struct RegistrationViolation {
    /// The requested name.
    pub server: String,
    /// The stable name of the rule.
    pub(crate) rule: &'static str,
    /// JSON pointer into the request.
    pub(crate) pointer: String,
    /// What is wrong, without values of variables.
    pub(crate) reason: String,
    /// What to do instead.
    pub(crate) hint: &'static str,
}

impl RegistrationRefusal {
    /// The refusal for the caller.
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
                next: None,
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

    /// Its code of MGP §14.3; `None` for -32602 of JSON-RPC.
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

/// Checks a registration, for a preview or for the registration itself.
///
/// # Errors
/// The first violation. The caller is checked first, so that a caller without the right learns nothing about existing
/// servers.
pub fn check(
    request: &Register,
    context: &RegistrationContext<'_>,
) -> Result<RegistrationPlan, RegistrationRefusal> {
    let created_by = identity::check_caller(request, context)?;
    let named = |finding: RuleFinding| RegistrationViolation {
        server: request.id.chars().take(ServerId::MAX_LEN).collect(),
        rule: finding.rule,
        pointer: finding.pointer,
        reason: finding.reason,
        hint: finding.hint,
    };
    let id = identity::check_id(&request.id, context.reserved_ids).map_err(named)?;
    check_texts(request).map_err(named)?;
    if context.count.current >= context.count.max {
        return Err(RegistrationRefusal::TooMany {
            max: context.count.max,
        });
    }
    let (transport, script) = match request.transport {
        Transport::Stdio => {
            let command = program::stdio_command(request)?;
            environment::check(&request.env).map_err(named)?;
            let script = program::check(command, request, context.roots).map_err(named)?;
            (program::build_transport(command, request), script)
        }
        Transport::Http => {
            let url = program::http_url(request)?;
            program::check_url(url).map_err(named)?;
            let headers = std::collections::BTreeMap::new();
            let url = url.to_owned();
            let why = "it runs elsewhere, where its code cannot be read";
            let transport = ServerTransport::Http {
                url,
                headers,
                protocol: UrlProtocol::Mcp,
            };
            (transport, ScriptSource::Unreadable(why))
        }
    };
    if let ScriptSource::Inline { language, text } = &script {
        check_code(language, text, context.code_floor).map_err(RegistrationRefusal::Code)?;
    }
    let (trust, adjustments) = effective_trust(request, context);
    Ok(RegistrationPlan {
        id,
        transport,
        trust,
        script,
        extensions: request.mgp.extensions.clone(),
        required_approvals: permissions_to_approve(request, trust),
        permissions: request.mgp.permissions_required.clone(),
        created_by,
        adjustments,
    })
}

/// The requested trust level, up to what the operator allows.
fn effective_trust(
    request: &Register,
    context: &RegistrationContext<'_>,
) -> (TrustLevel, Vec<String>) {
    let declared = request.mgp.trust_level.as_deref();
    let is_agent = context.caller.agent().is_some();
    // An agent gets only what it requests.
    let requested = declared.or(is_agent.then_some(TrustLevel::Sandboxed.as_str()));
    let max = match (context.caller, requested) {
        (Principal::Agent(_) | Principal::InSet(..) | Principal::InGroups(..), _) => {
            context.trust_max
        }
        (Principal::Operator { .. }, Some(_)) => TrustLevel::Trusted,
        (Principal::Operator { .. }, None) => TrustLevel::Standard,
    };
    let effective = risk::effective_trust(max, requested);
    let wanted = requested.map(|word| risk::effective_trust(TrustLevel::Trusted, Some(word)));
    let is_lowered = wanted.is_some_and(|wanted| wanted > effective);
    let adjustment = is_lowered.then(|| {
        let requested = requested.unwrap_or_default();
        let effective = effective.as_str();
        format!("trust_level {requested} is for the operator to give; it is {effective}")
    });
    (effective, adjustment.into_iter().collect())
}

/// Dangerous permissions of a server with the lowest trust always need approval.
fn permissions_to_approve(request: &Register, trust: TrustLevel) -> Vec<PermissionType> {
    let permissions = request.mgp.permissions_required.iter();
    let permissions = permissions.flat_map(|word| PermissionType::parse_all(word));
    let is_dangerous = |p: &PermissionType| p.risk() == RiskLevel::Dangerous;
    let mut to_approve: Vec<PermissionType> = permissions.filter(is_dangerous).collect();
    to_approve.retain(|_| trust.is_sandboxed());
    to_approve.sort();
    to_approve.dedup();
    to_approve
}

/// Lists and texts that other people will read.
fn check_texts(request: &Register) -> Result<(), RuleFinding> {
    let lists = [
        ("/mgp/extensions", &request.mgp.extensions),
        (
            "/mgp/permissions_required",
            &request.mgp.permissions_required,
        ),
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
    let why = request.justification.as_deref().unwrap_or_default();
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
