//! The error codes of MGP §14.3 and their categories.

use serde::{Deserialize, Serialize};

/// The category of an error: the thousands of its code (MGP §14.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// 1000 to 1099.
    Security,
    /// 2000 to 2099.
    Lifecycle,
    /// 3000 to 3099.
    Resource,
    /// 4000 to 4099, and 4100 to 4199 of later drafts.
    Validation,
    /// 5000 to 5099.
    External,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $number:literal $name:literal),* $(,)?) => {
        /// One of the standard codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code { $($(#[$doc])* $code),* }

        impl Code {
            /// All codes, in order.
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// The number on the wire.
            #[must_use]
            pub fn number(self) -> i64 {
                match self { $(Self::$code => $number),* }
            }

            /// The name in the document.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$code => $name),* }
            }
        }
    };
}

codes! {
    /// The caller or the server lacks a permission.
    PermissionDenied = 1000 "PERMISSION_DENIED",
    /// The agent has no access to this tool.
    AccessDenied = 1001 "ACCESS_DENIED",
    /// The caller is not authenticated.
    AuthRequired = 1002 "AUTH_REQUIRED",
    /// The credentials have expired.
    AuthExpired = 1003 "AUTH_EXPIRED",
    /// A validator of the kernel blocked the request.
    ValidationBlocked = 1010 "VALIDATION_BLOCKED",
    /// The code safety framework rejected the code.
    CodeSafetyViolation = 1011 "CODE_SAFETY_VIOLATION",
    /// The server is not connected.
    ServerNotReady = 2000 "SERVER_NOT_READY",
    /// The server is shutting down.
    ServerDraining = 2001 "SERVER_DRAINING",
    /// The server is restarting.
    ServerRestarting = 2002 "SERVER_RESTARTING",
    /// Too many requests.
    RateLimited = 3000 "RATE_LIMITED",
    /// A limit of the kernel or of a server is reached.
    ResourceExhausted = 3001 "RESOURCE_EXHAUSTED",
    /// A budget is used up.
    QuotaExceeded = 3002 "QUOTA_EXCEEDED",
    /// The deadline passed.
    Timeout = 3003 "TIMEOUT",
    /// The arguments do not match the tool's schema.
    InvalidToolArgs = 4000 "INVALID_TOOL_ARGS",
    /// The tool does not exist.
    ToolNotFound = 4001 "TOOL_NOT_FOUND",
    /// The tool is disabled.
    ToolDisabled = 4002 "TOOL_DISABLED",
    /// No object has the requested id, or no longer (later drafts).
    ResourceNotFound = 4004 "RESOURCE_NOT_FOUND",
    /// A server of that name exists already (later drafts).
    ServerExists = 4101 "SERVER_ALREADY_EXISTS",
    /// An upstream answered with an error, or an invalid answer.
    UpstreamError = 5000 "UPSTREAM_ERROR",
    /// An upstream did not answer.
    UpstreamTimeout = 5001 "UPSTREAM_TIMEOUT",
    /// An upstream is unreachable.
    UpstreamUnavailable = 5002 "UPSTREAM_UNAVAILABLE",
}

impl Code {
    /// Parses a number; `None` for one that is not in the document.
    #[must_use]
    pub(crate) fn parse(number: i64) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.number() == number)
    }

    /// The category of its range.
    #[must_use]
    pub(crate) fn category(self) -> Category {
        match self.number() {
            1000..=1099 => Category::Security,
            2000..=2099 => Category::Lifecycle,
            3000..=3099 => Category::Resource,
            4000..=4199 => Category::Validation,
            _ => Category::External,
        }
    }
}
