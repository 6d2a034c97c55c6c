//! Which callbacks a server may send to its callers (CMCP-084, CMCP-085).

use std::borrow::Cow;

use mgp_json::remove_members;

/// Whether callbacks of a kind are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consent {
    /// Forwarded to the client whose call caused it.
    #[default]
    Allow,
    /// Forwarded to the client after the operator's approval.
    Ask,
    /// Rejected; the handshake does not offer the capability to the server.
    Deny,
}

/// Consent for each kind of callback; `roots/list` is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsentPolicy {
    /// `sampling/createMessage`.
    pub sampling: Consent,
    /// `elicitation/create`.
    pub elicitation: Consent,
}

impl ConsentPolicy {
    /// The consent for a method.
    #[must_use]
    pub fn for_method(self, method: &str) -> Consent {
        match method {
            "sampling/createMessage" => self.sampling,
            "elicitation/create" => self.elicitation,
            _ => Consent::Allow,
        }
    }

    /// True when any kind is restricted.
    #[must_use]
    pub fn is_restricted(self) -> bool {
        self != Self::default()
    }

    /// A `ClientCapabilities` object without the denied kinds.
    #[must_use]
    pub fn allowed_capabilities(self, capabilities: &str) -> Cow<'_, str> {
        if !self.is_restricted() {
            return capabilities.into();
        }
        let mut denied = Vec::new();
        for (name, consent) in [
            ("sampling", self.sampling),
            ("elicitation", self.elicitation),
        ] {
            if consent == Consent::Deny {
                denied.push(name);
            }
        }
        remove_members(capabilities, &denied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CMCP-084: a denied kind is not declared; one that needs approval is.
    #[test]
    fn denied_callbacks_are_not_declared() {
        let all = r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"url":{}}}"#;
        assert_eq!(ConsentPolicy::default().allowed_capabilities(all), all);
        let mut consents = ConsentPolicy {
            sampling: Consent::Deny,
            elicitation: Consent::Ask,
        };
        let without = r#"{"roots":{"listChanged":true},"elicitation":{"url":{}}}"#;
        assert_eq!(consents.allowed_capabilities(all), without);
        consents.elicitation = Consent::Deny;
        assert_eq!(
            consents.allowed_capabilities(r#"{"s\u0061mpling":{},"elicitation":{}}"#),
            "{}"
        );
        assert_eq!(consents.for_method("roots/list"), Consent::Allow);
        assert!(consents.is_restricted() && !ConsentPolicy::default().is_restricted());
    }
}
