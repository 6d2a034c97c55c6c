//! What a server may ask of those who call it (CMCP-084, CMCP-085): decided for each server.

use std::borrow::Cow;

use mgp_json::remove_members;

/// Whether questions of a kind may be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consent {
    /// It is put to the client whose call caused it.
    #[default]
    Allow,
    /// It is put to the client after the operator has agreed.
    Ask,
    /// It is refused, and the server is told at its start that it cannot be asked.
    Deny,
}

/// The same for all kinds; for the folders of a client it is always [`Consent::Allow`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsentPolicy {
    /// `sampling/createMessage`.
    pub sampling: Consent,
    /// `elicitation/create`.
    pub elicitation: Consent,
}

impl ConsentPolicy {
    /// Whether a question of this method may be put.
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

    /// A `ClientCapabilities` object without the kinds that are off.
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

    /// CMCP-084: what is off is not declared; what is asked for first is.
    #[test]
    fn what_is_off_is_not_declared() {
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
