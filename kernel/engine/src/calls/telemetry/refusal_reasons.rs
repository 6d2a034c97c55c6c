//! The reasons for refused calls, as a bounded set of label values.

use mgp_protocol::refusal::owner_refusal::OwnerRefusalCause;
use mgp_protocol::refusal::{Denial, Refusal};

/// One reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The agent has no access to it.
    Access,
    /// The server lacks a permission.
    Permission,
    /// A person did not approve.
    Confirmation,
    /// A validator rejected the arguments.
    Validator,
    /// Code in the arguments is unsafe.
    UnsafeCode,
    /// The limit of calls a minute is reached.
    RateLimit,
    /// The limit of calls a day is reached.
    Quota,
    /// The server has no login, or an expired one.
    Credentials,
    /// It is registered, but not in a way that allows calls.
    Registration,
    /// It is disabled.
    Disabled,
    /// The caller was not authenticated or authorized.
    Forbidden,
    /// The target does not exist.
    Unknown,
    /// The request is invalid.
    BadRequest,
    /// The arguments do not match the schema.
    Schema,
    /// The result does not match the schema.
    BadResult,
    /// The server is not ready yet.
    NotReady,
    /// The server was lost.
    Lost,
    /// The server's answer is invalid.
    Faulty,
    /// The deadline expired.
    Timeout,
    /// It waited in a queue and timed out.
    QueueTimeout,
    /// No capacity is left.
    Overloaded,
    /// The caller cancelled it, or disconnected.
    Cancelled,
    /// The server answered with an error.
    PeerError,
    /// The kernel failed.
    Internal,
}

impl RefusalReason {
    /// Every reason, at the index of its variant.
    pub const ALL: [Self; 24] = [
        Self::Access,
        Self::Permission,
        Self::Confirmation,
        Self::Validator,
        Self::UnsafeCode,
        Self::RateLimit,
        Self::Quota,
        Self::Credentials,
        Self::Registration,
        Self::Disabled,
        Self::Forbidden,
        Self::Unknown,
        Self::BadRequest,
        Self::Schema,
        Self::BadResult,
        Self::NotReady,
        Self::Lost,
        Self::Faulty,
        Self::Timeout,
        Self::QueueTimeout,
        Self::Overloaded,
        Self::Cancelled,
        Self::PeerError,
        Self::Internal,
    ];

    /// The reason of a refusal. It comes from the type, not from the message, which may repeat what was sent.
    #[must_use]
    pub fn from_refusal(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Denied(denial) => from_denial(denial),
            Refusal::Unanswered(call) => Self::from_refusal(&call.refusal),
            Refusal::Forbidden(_) | Refusal::ClosedByOwner(_) => Self::Forbidden,
            Refusal::UnknownMethod(_)
            | Refusal::UnknownTool(_)
            | Refusal::UnknownPrompt(_)
            | Refusal::UnknownResource(_)
            | Refusal::UnknownServer(_)
            | Refusal::UnknownId(_)
            | Refusal::WindowExpired(_)
            | Refusal::Expired(_)
            | Refusal::BadCursor => Self::Unknown,
            Refusal::BadParams(_)
            | Refusal::BadMeta(_)
            | Refusal::HeaderMismatch(_)
            | Refusal::MissingCapability { .. }
            | Refusal::UnsupportedVersion { .. }
            | Refusal::BadRequest(_) => Self::BadRequest,
            Refusal::BadArguments { .. } => Self::Schema,
            Refusal::BadResult { .. } => Self::BadResult,
            Refusal::NotReady { .. } => Self::NotReady,
            Refusal::ServerLost { .. } => Self::Lost,
            Refusal::InvalidAnswer { .. } | Refusal::TooLarge { .. } => Self::Faulty,
            Refusal::TimedOut { .. } => Self::Timeout,
            Refusal::QueueTimeout { .. } => Self::QueueTimeout,
            Refusal::Overloaded { .. } | Refusal::Undelivered { .. } => Self::Overloaded,
            Refusal::Cancelled => Self::Cancelled,
            Refusal::Owner(refusal) => from_owner_refusal(refusal.cause),
            Refusal::Peer(_) | Refusal::Unattributed(_) => Self::PeerError,
            Refusal::Internal(_) => Self::Internal,
        }
    }

    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Permission => "permission",
            Self::Confirmation => "confirmation",
            Self::Validator => "validator",
            Self::UnsafeCode => "unsafe_code",
            Self::RateLimit => "rate_limit",
            Self::Quota => "quota",
            Self::Credentials => "credentials",
            Self::Registration => "registration",
            Self::Disabled => "disabled",
            Self::Forbidden => "forbidden",
            Self::Unknown => "unknown",
            Self::BadRequest => "bad_request",
            Self::Schema => "schema",
            Self::BadResult => "bad_result",
            Self::NotReady => "not_ready",
            Self::Lost => "lost",
            Self::Faulty => "faulty",
            Self::Timeout => "timeout",
            Self::QueueTimeout => "held_up",
            Self::Overloaded => "overloaded",
            Self::Cancelled => "cancelled",
            Self::PeerError => "peer_error",
            Self::Internal => "internal",
        }
    }
}

fn from_owner_refusal(cause: OwnerRefusalCause) -> RefusalReason {
    match cause {
        OwnerRefusalCause::Closed | OwnerRefusalCause::Denied => RefusalReason::Forbidden,
        OwnerRefusalCause::NotFound => RefusalReason::Unknown,
        OwnerRefusalCause::Blocked => RefusalReason::BadRequest,
        OwnerRefusalCause::Unavailable => RefusalReason::NotReady,
        OwnerRefusalCause::TimedOut => RefusalReason::Timeout,
        OwnerRefusalCause::Failed => RefusalReason::Faulty,
    }
}

fn from_denial(denial: &Denial) -> RefusalReason {
    match denial {
        Denial::NotGranted { .. } => RefusalReason::Access,
        Denial::Permission { .. } => RefusalReason::Permission,
        Denial::Unconfirmed { .. } => RefusalReason::Confirmation,
        Denial::Validator { .. } => RefusalReason::Validator,
        Denial::UnsafeCode { .. } => RefusalReason::UnsafeCode,
        Denial::RateLimited { .. } => RefusalReason::RateLimit,
        Denial::OverQuota { .. } => RefusalReason::Quota,
        Denial::NoCredentials(_) | Denial::CredentialsExpired(_) => RefusalReason::Credentials,
        Denial::Registration { .. } => RefusalReason::Registration,
        Denial::Disabled { .. } | Denial::NoSubscription { .. } => RefusalReason::Disabled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: the label has the words of the table and no others, whatever a message says.
    #[test]
    fn a_refusal_has_one_word() {
        let word = |refusal: &Refusal| RefusalReason::from_refusal(refusal).as_str();
        assert_eq!(word(&Refusal::UnknownTool("secret".into())), "unknown");
        assert_eq!(word(&Refusal::Cancelled), "cancelled");
        assert_eq!(word(&Refusal::Internal("x".into())), "internal");
        let full = Refusal::Overloaded { what: "x".into() };
        assert_eq!(word(&full), "overloaded");
        let all = RefusalReason::ALL;
        let places = all.map(|reason| reason as usize);
        assert!(places.into_iter().eq(0..all.len()), "{places:?}");
        let mut words = all.map(RefusalReason::as_str).to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all.len());
    }
}
