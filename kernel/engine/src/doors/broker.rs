//! The kernel as a small authorization server in front of an identity provider that registers no clients (RFC 6749,
//! 7591, 7636, 8414, 8707, 9207; MCP 2025-11-25 and 2026-07-28, "Authorization").
//!
//! A person signs in at the provider, where the kernel is one client. The tokens that clients get are the kernel's own:
//! no token of the provider leaves the kernel. What an unknown caller sends is stored nowhere: the id of a client is its
//! sealed registration, and the browser stores the sign-in that is under way.

pub mod address_rates;
pub mod assertions;
pub mod clients;
pub mod codes;
pub mod grants;
pub mod pages;
pub mod params;
pub mod sign_in;

/// How long an access token is valid, in milliseconds. A revoked one is invalid at once.
pub const ACCESS_LIFETIME_MS: u64 = 3_600_000;

/// An error as RFC 6749, section 5.2, has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}: {description}")]
pub struct OauthError {
    /// Such as `invalid_grant`.
    pub error: &'static str,
    /// In words; repeats nothing of the request.
    pub description: String,
}

impl OauthError {
    /// An error with its description.
    #[must_use]
    pub fn new(error: &'static str, description: impl Into<String>) -> Self {
        Self {
            error,
            description: description.into(),
        }
    }

    /// `invalid_request`.
    #[must_use]
    pub fn invalid_request(description: impl Into<String>) -> Self {
        Self::new("invalid_request", description)
    }

    /// `invalid_grant`.
    #[must_use]
    pub fn invalid_grant(description: impl Into<String>) -> Self {
        Self::new("invalid_grant", description)
    }

    /// `invalid_client`.
    #[must_use]
    pub fn invalid_client(description: impl Into<String>) -> Self {
        Self::new("invalid_client", description)
    }
}

/// Another process's text as one line of plain characters: without control characters, and without those that change the
/// direction of text or cannot be seen.
#[must_use]
pub fn sanitize_line(text: &str, chars_max: usize) -> String {
    let plain = |c: &char| {
        !c.is_control()
            && !matches!(*c,
                '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
    };
    let words = text.chars().filter(plain).collect::<String>();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(chars_max).collect()
}
