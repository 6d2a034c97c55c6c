//! Denials by policy: permissions, access, credentials, validators, limits. Each has a code of its own for
//! an MGP caller (MGP §14.3), and a JSON-RPC code for others.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::code::Code;
use super::owner_refusal::OwnerRefusalCause;
use super::spec::{BLOCKED, DENIED, INTERNAL, PARAMS, REQUEST, row};
use super::{CallOutcome, RefusalReason, RefusalSpec};

/// Why a valid request was denied.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Denial {
    /// The tool needs a permission that its server does not have (MGP-043).
    #[error("Tool {tool} needs the permission {permission}, which has not been granted")]
    Permission {
        /// The caller's name of the tool.
        tool: String,
        /// The permission's standard name.
        permission: String,
    },
    /// The call needed a person's confirmation, and got none (MGP-054, MGP-057).
    #[error("Tool {tool} was not called: {why}")]
    Unconfirmed {
        /// The caller's name of the tool.
        tool: String,
        /// The outcome of the confirmation, as text.
        why: String,
    },
    /// The agent has no access to this tool. A caller without MGP gets the same error as for an unknown
    /// tool.
    #[error("Unknown tool: {tool}")]
    NotGranted {
        /// The caller's name of the tool.
        tool: String,
        /// The rule that denies it, for the log: not sent to callers.
        rule: String,
    },
    /// The tool is granted on a condition that the arguments do not meet.
    #[error("Access denied: {tool} with these arguments{}", render_allowed(.allowed.as_deref()))]
    Condition {
        /// The caller's name of the tool.
        tool: String,
        /// What denies it, for the audit log.
        rule: String,
        /// The condition, if the caller may know it.
        allowed: Option<String>,
    },
    /// The caller is not authenticated, and authentication is required.
    #[error("Authentication is required: {0}")]
    NoCredentials(String),
    /// The credentials have expired.
    #[error("The credentials have expired: {0}")]
    CredentialsExpired(String),
    /// A validator rejected the call.
    #[error("Blocked by the validator {validator}: {reason}{}", render_hint(.hint.as_deref()))]
    Validator {
        /// Its name (MGP §4.5).
        validator: String,
        /// JSON pointer into the arguments.
        path: String,
        /// The stable identifier of the rule.
        rule: String,
        /// The problem, as text, without parts of the argument that could be secret.
        reason: String,
        /// The suggested fix.
        hint: Option<String>,
    },
    /// The code check rejected code (MGP §7).
    #[error("Code validation failed: {}", .violations.join("; "))]
    UnsafeCode {
        /// One sentence for each violation.
        violations: Vec<String>,
        /// JSON pointer to the code in the arguments.
        path: String,
        /// The object of MGP §7.4: the violations, and hints for fixing them.
        body: Box<RawValue>,
    },
    /// A rejected registration of a server (MGP §15.4).
    #[error("Server {server} is not registered: {reason} ({hint})")]
    Registration {
        /// The requested id.
        server: String,
        /// The code of the refusal.
        code: Code,
        /// The stable identifier of the rule.
        rule: &'static str,
        /// The member of the request.
        at: String,
        /// The problem, as text.
        reason: String,
        /// The suggested fix.
        hint: &'static str,
    },
    /// The rate limit was exceeded.
    #[error("Rate limited: {limit} requests per {window_secs} s exceeded{}", describe_next(next.as_ref()))]
    RateLimited {
        /// The limit within the window.
        limit: u64,
        /// The window, in seconds.
        window_secs: u64,
        /// The number of requests.
        current: u64,
        /// The time until the next request is allowed, in milliseconds.
        retry_after_ms: u64,
        /// Whose limit it is, and when the next call is possible.
        next: Option<NextCall>,
    },
    /// A budget is exhausted.
    #[error("Quota exceeded: {what}; at most {limit}{}", describe_next(next.as_ref()))]
    OverQuota {
        /// The budget, as text.
        what: String,
        /// The limit.
        limit: u64,
        /// Whose budget it is, and when the next call is possible.
        next: Option<NextCall>,
    },
    /// The tool exists and is disabled.
    #[error("Tool {tool} is disabled: {reason}")]
    Disabled {
        /// The caller's name of the tool.
        tool: String,
        /// The reason, as text.
        reason: String,
    },
    /// An agent asks one that waits for it.
    #[error("{0}")]
    AskCycle(String),
    /// Agents that ask each other in too long a chain.
    #[error("{0}")]
    AskDepth(String),
    /// The subscription does not exist, or belongs to another connection.
    #[error(
        "Unknown subscription: {id}; it has ended, or is not of this connection: subscribe again with mgp/events/subscribe"
    )]
    NoSubscription {
        /// The caller's id of it.
        id: String,
    },
}

fn render_hint(hint: Option<&str>) -> String {
    hint.map(|h| format!(" ({h})")).unwrap_or_default()
}

fn render_allowed(condition: Option<&str>) -> String {
    condition.map_or_else(String::new, |condition| {
        format!("; allowed is: {condition}")
    })
}

impl Denial {
    /// The row of this denial.
    #[rustfmt::skip]
    pub(super) fn spec(&self) -> RefusalSpec {
        use OwnerRefusalCause as Cause;
        use RefusalReason as Reason;
        let row = |jsonrpc, http, code, ended, reason, cause| {
            row(jsonrpc, http, Some(code), ended, reason, cause, CallOutcome::NotExecuted)
        };
        match self {
            //                                    JSON-RPC  HTTP  MGP                        audit    metric                owner's cause
            Self::Permission { .. } =>        row(INTERNAL, 200, Code::PermissionDenied,    DENIED,  Reason::Permission,   Cause::Denied),
            Self::Unconfirmed { .. } =>       row(INTERNAL, 200, Code::PermissionDenied,    DENIED,  Reason::Confirmation, Cause::Denied),
            Self::NotGranted { .. } =>        row(PARAMS,   200, Code::AccessDenied,        DENIED,  Reason::Access,       Cause::Denied),
            Self::Condition { .. } =>         row(PARAMS,   200, Code::AccessDenied,        DENIED,  Reason::Access,       Cause::Denied),
            // Only missing credentials have an HTTP status of their own.
            Self::NoCredentials(_) =>         row(REQUEST,  401, Code::AuthRequired,        DENIED,  Reason::Credentials,  Cause::Denied),
            Self::CredentialsExpired(_) =>    row(REQUEST,  401, Code::AuthExpired,         DENIED,  Reason::Credentials,  Cause::Denied),
            Self::Validator { .. } =>         row(PARAMS,   200, Code::ValidationBlocked,   BLOCKED, Reason::Validator,    Cause::Blocked),
            Self::UnsafeCode { .. } =>        row(PARAMS,   200, Code::CodeSafetyViolation, BLOCKED, Reason::UnsafeCode,   Cause::Blocked),
            Self::Registration { code, .. } => row(PARAMS,  200, *code,                     BLOCKED, Reason::Registration, Cause::Blocked),
            Self::RateLimited { .. } =>       row(INTERNAL, 200, Code::RateLimited,         BLOCKED, Reason::RateLimit,    Cause::Blocked),
            Self::OverQuota { .. } =>         row(INTERNAL, 200, Code::QuotaExceeded,       BLOCKED, Reason::Quota,        Cause::Blocked),
            Self::Disabled { .. } =>          row(PARAMS,   200, Code::ToolDisabled,        BLOCKED, Reason::Disabled,     Cause::Blocked),
            Self::AskCycle(_) | Self::AskDepth(_) => row(INTERNAL, 200, Code::PermissionDenied, DENIED, Reason::Forbidden, Cause::Denied),
            Self::NoSubscription { .. } =>    row(PARAMS,   200, Code::ToolNotFound,        BLOCKED, Reason::Disabled,     Cause::Blocked),
        }
    }

    /// The message of a denial that a model can correct, or must know, as the text of a tool's result.
    pub(crate) fn model_message(&self) -> Option<String> {
        match self {
            Self::Validator { .. }
            | Self::Condition { .. }
            | Self::Unconfirmed { .. }
            | Self::Registration { .. } => Some(self.to_string()),
            Self::UnsafeCode { .. } => self.data().map(|rejection| rejection.to_string()),
            Self::Permission { .. }
            | Self::NotGranted { .. }
            | Self::NoCredentials(_)
            | Self::CredentialsExpired(_)
            | Self::RateLimited { .. }
            | Self::OverQuota { .. }
            | Self::Disabled { .. }
            | Self::AskCycle(_)
            | Self::AskDepth(_)
            | Self::NoSubscription { .. } => None,
        }
    }

    /// The tool that a caller knows to be denied by the code, while the message says that it is unknown.
    pub(super) fn shown_as_denied(&self) -> Option<&str> {
        if let Self::NotGranted { tool, .. } = self {
            return Some(tool);
        }
        None
    }

    /// The data for programs; `None` if the message is enough. The denial of a hidden tool has none, like
    /// an unknown tool.
    pub(crate) fn data(&self) -> Option<serde_json::Value> {
        match self {
            Self::Permission { permission, .. } => Some(json!({"permission": permission})),
            Self::Validator {
                validator,
                path,
                rule,
                reason,
                hint,
            } => Some(json!({
                "validator": validator, "path": path, "rule": rule, "reason": reason, "hint": hint
            })),
            Self::UnsafeCode { body, .. } => serde_json::from_str(body.get()).ok(),
            Self::Registration {
                rule,
                at,
                reason,
                hint,
                ..
            } => Some(json!({"rule": rule, "path": at, "reason": reason, "hint": hint})),
            Self::RateLimited {
                limit,
                window_secs,
                current,
                next,
                ..
            } => {
                let details =
                    json!({"limit": limit, "window_secs": window_secs, "current": current});
                Some(add_next(details, next.as_ref()))
            }
            Self::Condition { allowed, .. } => allowed
                .as_ref()
                .map(|condition| json!({"allowed_when": condition})),
            Self::OverQuota { what, limit, next } => {
                let details = json!({"quota": what, "limit": limit});
                Some(add_next(details, next.as_ref()))
            }
            Self::Unconfirmed { .. }
            | Self::NotGranted { .. }
            | Self::NoCredentials(_)
            | Self::CredentialsExpired(_)
            | Self::Disabled { .. }
            | Self::AskCycle(_)
            | Self::AskDepth(_)
            | Self::NoSubscription { .. } => None,
        }
    }
}

/// When a call is possible that a limit refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextCall {
    /// The group whose members share the limit.
    pub group: Option<String>,
    /// The key of the limit.
    pub limit: &'static str,
    /// RFC 3339.
    pub at: String,
    /// The time until then, in milliseconds.
    pub after_ms: u64,
}

fn describe_next(next: Option<&NextCall>) -> String {
    let Some(next) = next else {
        return String::new();
    };
    let whose = next.group.as_ref();
    let whose = whose.map(|group| format!(" (`{}` of {group})", next.limit));
    let whose = whose.unwrap_or_else(|| format!(" (`{}`)", next.limit));
    format!("{whose}; the next call is possible at {}", next.at)
}

fn add_next(mut details: Value, next: Option<&NextCall>) -> Value {
    if let Some(next) = next {
        details["limit_name"] = json!(next.limit);
        details["group"] = json!(next.group);
        details["next_call_at"] = json!(next.at);
        details["next_call_after_ms"] = json!(next.after_ms);
    }
    details
}
