//! Why calls are refused, in as many words as a label may have values.

use mgp_protocol::refusal::{Denial, Refusal};

/// One reason, by its place in [`REASONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalReason(usize);

/// Every reason.
pub const REASONS: [&str; 24] = [
    "access",
    "permission",
    "confirmation",
    "validator",
    "unsafe_code",
    "rate_limit",
    "quota",
    "credentials",
    "registration",
    "disabled",
    "forbidden",
    "unknown",
    "bad_request",
    "schema",
    "bad_result",
    "not_ready",
    "lost",
    "faulty",
    "timeout",
    "held_up",
    "overloaded",
    "cancelled",
    "peer_error",
    "internal",
];

impl RefusalReason {
    /// The word for a refusal. Words of the field, not of the message: those may repeat what was sent.
    #[must_use]
    pub fn of(refusal: &Refusal) -> Self {
        let word = match refusal {
            Refusal::Denied(denial) => of_denial(denial),
            Refusal::Unanswered(call) => return Self::of(&call.why),
            Refusal::Forbidden(_) | Refusal::Closed(_) => "forbidden",
            Refusal::UnknownMethod(_)
            | Refusal::UnknownTool(_)
            | Refusal::UnknownPrompt(_)
            | Refusal::UnknownResource(_)
            | Refusal::UnknownServer(_)
            | Refusal::Gone(_)
            | Refusal::TooLate(_)
            | Refusal::Expired(_)
            | Refusal::BadCursor => "unknown",
            Refusal::BadParams(_)
            | Refusal::BadMeta(_)
            | Refusal::HeaderMismatch(_)
            | Refusal::MissingCapability { .. }
            | Refusal::UnsupportedVersion { .. }
            | Refusal::BadRequest(_) => "bad_request",
            Refusal::BadArguments { .. } => "schema",
            Refusal::BadResult { .. } => "bad_result",
            Refusal::NotReady { .. } => "not_ready",
            Refusal::Lost { .. } => "lost",
            Refusal::Faulty { .. } | Refusal::TooLarge { .. } => "faulty",
            Refusal::TimedOut { .. } => "timeout",
            Refusal::HeldUp { .. } => "held_up",
            Refusal::Overloaded { .. } => "overloaded",
            Refusal::Cancelled => "cancelled",
            Refusal::Peer(_) => "peer_error",
            Refusal::Broken(_) => "internal",
        };
        let place = REASONS.iter().position(|reason| *reason == word);
        Self(place.unwrap_or(REASONS.len() - 1))
    }

    /// Its place among [`REASONS`].
    #[must_use]
    pub const fn place(self) -> usize {
        self.0
    }

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        REASONS[self.0]
    }
}

fn of_denial(denial: &Denial) -> &'static str {
    match denial {
        Denial::NotGranted { .. } => "access",
        Denial::Permission { .. } => "permission",
        Denial::Unconfirmed { .. } => "confirmation",
        Denial::Validator { .. } => "validator",
        Denial::UnsafeCode { .. } => "unsafe_code",
        Denial::RateLimited { .. } => "rate_limit",
        Denial::OverQuota { .. } => "quota",
        Denial::NoCredentials(_) | Denial::CredentialsExpired(_) => "credentials",
        Denial::Registration { .. } => "registration",
        Denial::Disabled { .. } | Denial::NoSubscription { .. } => "disabled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: the label has the words of the table and no others, whatever a message says.
    #[test]
    fn a_refusal_has_one_word() {
        let word = |refusal: &Refusal| RefusalReason::of(refusal).as_str();
        assert_eq!(word(&Refusal::UnknownTool("secret".into())), "unknown");
        assert_eq!(word(&Refusal::Cancelled), "cancelled");
        assert_eq!(word(&Refusal::Broken("x".into())), "internal");
        let full = Refusal::Overloaded { what: "x".into() };
        assert_eq!(word(&full), "overloaded");
        let mut words = REASONS.to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), REASONS.len());
    }
}
