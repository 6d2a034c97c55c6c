//! Refusals of those who watch: permissions, access, credentials, validators, limits. Each has a code
//! of its own for an MGP caller (MGP §14.3); a plain one reads it in the codes of JSON-RPC.

use serde_json::json;
use serde_json::value::RawValue;

use super::code::Code;
use super::owner_refusal::OwnerRefusalCause;
use super::spec::{BLOCKED, DENIED, INTERNAL, PARAMS, REQUEST, row};
use super::{CallOutcome, RefusalReason, RefusalSpec};

/// Why a request was kept from being done, though it could be understood.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Denial {
    /// The tool needs a permission that its server was not given (MGP-043).
    #[error("Tool {tool} needs the permission {permission}, which has not been granted")]
    Permission {
        /// As the caller named it.
        tool: String,
        /// The permission's standard name.
        permission: String,
    },
    /// A person had to say yes to the call first, and none did (MGP-054, MGP-057).
    #[error("Tool {tool} was not called: {why}")]
    Unconfirmed {
        /// As the caller named it.
        tool: String,
        /// What came of the question, in words.
        why: String,
    },
    /// The agent has no access to this tool. A plain caller reads what it reads of an unknown tool.
    #[error("Unknown tool: {tool}")]
    NotGranted {
        /// As the caller named it.
        tool: String,
        /// What denies it, for the log: no caller reads it.
        rule: String,
    },
    /// Nobody in particular asks, and this is not for everybody.
    #[error("Authentication is required: {0}")]
    NoCredentials(String),
    /// Credentials that were good once.
    #[error("The credentials have expired: {0}")]
    CredentialsExpired(String),
    /// A validator kept the call in the kernel.
    #[error("Blocked by the validator {validator}: {reason}{}", render_hint(.hint.as_deref()))]
    Validator {
        /// Its name (MGP §4.5).
        validator: String,
        /// JSON pointer into the arguments.
        path: String,
        /// The rule, as one word that does not change.
        rule: String,
        /// What is wrong, in words; holds nothing of the argument that could be a secret.
        reason: String,
        /// What would pass.
        hint: Option<String>,
    },
    /// Code that the safety framework does not let through (MGP §7).
    #[error("Code validation failed: {}", .violations.join("; "))]
    UnsafeCode {
        /// One sentence for each.
        violations: Vec<String>,
        /// JSON pointer to the code in the arguments.
        path: String,
        /// The object of MGP §7.4: the violations, and hints by which to write it otherwise.
        body: Box<RawValue>,
    },
    /// A server that is not registered as it was asked for (MGP §15.4).
    #[error("Server {server} is not registered: {reason} ({hint})")]
    Registration {
        /// Under which name it was to be.
        server: String,
        /// What kind of refusal it is.
        code: Code,
        /// The rule, as one word that does not change.
        rule: &'static str,
        /// The member of the request it is about.
        at: String,
        /// What is wrong, in words.
        reason: String,
        /// What to do instead.
        hint: &'static str,
    },
    /// Too many requests in too short a time.
    #[error("Rate limited: {limit} requests per {window_secs} s exceeded")]
    RateLimited {
        /// How many are allowed within the window.
        limit: u64,
        /// The window, in seconds.
        window_secs: u64,
        /// How many there were.
        current: u64,
        /// When the next one is taken, in milliseconds from now.
        retry_after_ms: u64,
    },
    /// A budget is used up.
    #[error("Quota exceeded: {what}; at most {limit}")]
    OverQuota {
        /// Of what, in words.
        what: String,
        /// How much there was.
        limit: u64,
    },
    /// The tool is there and switched off.
    #[error("Tool {tool} is disabled: {reason}")]
    Disabled {
        /// As the caller named it.
        tool: String,
        /// Why, in words.
        reason: String,
    },
    /// No event subscription of this connection: the same for one of another connection.
    #[error(
        "Unknown subscription: {id}; it has ended, or is not of this connection: subscribe again with mgp/events/subscribe"
    )]
    NoSubscription {
        /// As the caller named it.
        id: String,
    },
}

fn render_hint(hint: Option<&str>) -> String {
    hint.map(|h| format!(" ({h})")).unwrap_or_default()
}

impl Denial {
    /// Its row.
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
            // Only missing credentials are HTTP's own affair.
            Self::NoCredentials(_) =>         row(REQUEST,  401, Code::AuthRequired,        DENIED,  Reason::Credentials,  Cause::Denied),
            Self::CredentialsExpired(_) =>    row(REQUEST,  401, Code::AuthExpired,         DENIED,  Reason::Credentials,  Cause::Denied),
            Self::Validator { .. } =>         row(PARAMS,   200, Code::ValidationBlocked,   BLOCKED, Reason::Validator,    Cause::Blocked),
            Self::UnsafeCode { .. } =>        row(PARAMS,   200, Code::CodeSafetyViolation, BLOCKED, Reason::UnsafeCode,   Cause::Blocked),
            Self::Registration { code, .. } => row(PARAMS,  200, *code,                     BLOCKED, Reason::Registration, Cause::Blocked),
            Self::RateLimited { .. } =>       row(INTERNAL, 200, Code::RateLimited,         BLOCKED, Reason::RateLimit,    Cause::Blocked),
            Self::OverQuota { .. } =>         row(INTERNAL, 200, Code::QuotaExceeded,       BLOCKED, Reason::Quota,        Cause::Blocked),
            Self::Disabled { .. } =>          row(PARAMS,   200, Code::ToolDisabled,        BLOCKED, Reason::Disabled,     Cause::Blocked),
            Self::NoSubscription { .. } =>    row(PARAMS,   200, Code::ToolNotFound,        BLOCKED, Reason::Disabled,     Cause::Blocked),
        }
    }

    /// What a model can mend, or must know before it goes on, as the text of a tool's result.
    pub(crate) fn model_message(&self) -> Option<String> {
        match self {
            Self::Validator { .. } | Self::Unconfirmed { .. } | Self::Registration { .. } => {
                Some(self.to_string())
            }
            Self::UnsafeCode { .. } => self.data().map(|rejection| rejection.to_string()),
            Self::Permission { .. }
            | Self::NotGranted { .. }
            | Self::NoCredentials(_)
            | Self::CredentialsExpired(_)
            | Self::RateLimited { .. }
            | Self::OverQuota { .. }
            | Self::Disabled { .. }
            | Self::NoSubscription { .. } => None,
        }
    }

    /// For programs; `None` where the words say it all. A hidden tool's denial has none, as an unknown
    /// tool has none.
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
                ..
            } => Some(json!({"limit": limit, "window_secs": window_secs, "current": current})),
            Self::OverQuota { what, limit } => Some(json!({"quota": what, "limit": limit})),
            Self::Unconfirmed { .. }
            | Self::NotGranted { .. }
            | Self::NoCredentials(_)
            | Self::CredentialsExpired(_)
            | Self::Disabled { .. }
            | Self::NoSubscription { .. } => None,
        }
    }
}
