//! The reasons for refused calls, as a bounded set of label values (decision 0066).

macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident $label:literal),* $(,)?) => {
        /// One reason. It is derived from the type of the refusal, not from its message, which may contain
        /// input of the caller.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RefusalReason { $($(#[$doc])* $reason),* }

        impl RefusalReason {
            /// Every reason, at the index of its variant.
            pub const ALL: [Self; [$($label),*].len()] = [$(Self::$reason),*];

            /// The label value.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$reason => $label),* }
            }
        }
    };
}

reasons! {
    /// The agent has no access to it.
    Access "access",
    /// The server lacks a permission.
    Permission "permission",
    /// A person did not approve.
    Confirmation "confirmation",
    /// A validator rejected the arguments.
    Validator "validator",
    /// Code in the arguments is unsafe.
    UnsafeCode "unsafe_code",
    /// The limit of calls a minute is reached.
    RateLimit "rate_limit",
    /// The limit of calls a day is reached.
    Quota "quota",
    /// The server has no login, or an expired one.
    Credentials "credentials",
    /// It is registered, but not in a way that allows calls.
    Registration "registration",
    /// It is disabled.
    Disabled "disabled",
    /// The caller was not authenticated or authorized.
    Forbidden "forbidden",
    /// The target does not exist.
    Unknown "unknown",
    /// The request is invalid.
    BadRequest "bad_request",
    /// The arguments do not match the schema.
    Schema "schema",
    /// The result does not match the schema.
    BadResult "bad_result",
    /// The server is not ready yet.
    NotReady "not_ready",
    /// The server was lost.
    Lost "lost",
    /// The server's answer is invalid.
    Faulty "faulty",
    /// The deadline expired.
    Timeout "timeout",
    /// It waited in a queue and timed out.
    QueueTimeout "held_up",
    /// No capacity is left.
    Overloaded "overloaded",
    /// The caller cancelled it, or disconnected.
    Cancelled "cancelled",
    /// The server answered with an error.
    PeerError "peer_error",
    /// The kernel failed.
    Internal "internal",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_distinct_indices_and_labels() {
        let all = RefusalReason::ALL;
        let indices = all.map(|reason| reason as usize);
        assert!(indices.into_iter().eq(0..all.len()), "{indices:?}");
        let mut labels = all.map(RefusalReason::as_str).to_vec();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), all.len());
    }
}
