//! Login at servers reached over HTTP: the client side of MCP's authorization (2025-03-26 to 2026-07-28), without
//! network access.
//!
//! Challenges and documents of others are untrusted: an insecure endpoint, another issuer, another resource or missing
//! PKCE ends a login before a browser is opened.

pub mod assertion;
pub mod authorization;
pub mod challenge;
pub mod client_identity;
pub mod discovery;
pub mod dpop;
pub mod pkce;
pub mod record;
pub mod scopes;
pub mod token;

use std::fmt;

use url::Url;

/// The login settings of a server's entry.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct LoginConfig {
    /// False for servers that an agent registered, and where a header holds the token.
    pub enabled: bool,
    /// Each agent has its own login; the shared one serves the lists and the operator.
    pub per_agent: bool,
    /// How tokens are obtained.
    pub grant: LoginGrant,
    /// The issuer of the only authorization server to use; by default the first one that the server names.
    pub issuer: Option<String>,
    /// The id of a preregistered client, or the https URL of its metadata document.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<String>,
    /// Its private key (PKCS#8, PEM), for servers that require a signed assertion.
    pub client_key: Option<String>,
    /// The assertion for [`LoginGrant::Assertion`] and [`LoginGrant::Exchange`].
    pub assertion: Option<String>,
    /// The endpoint that exchanges the assertion, with [`LoginGrant::Exchange`].
    pub exchange_endpoint: Option<String>,
    /// The client id at that endpoint.
    pub exchange_client_id: Option<String>,
    /// Scopes that are always requested.
    pub scopes: Vec<String>,
    /// The redirect URI, an address of this machine.
    pub callback: Option<String>,
}

/// How tokens are obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoginGrant {
    /// A person signs in with a browser.
    #[default]
    Browser,
    /// The client authenticates as itself.
    ClientCredentials,
    /// A signed assertion of another party (RFC 7523).
    Assertion,
    /// The identity token of a person, exchanged for such an assertion first (RFC 8693).
    Exchange,
}

impl LoginGrant {
    /// True if no person takes part.
    #[must_use]
    pub fn is_unattended(self) -> bool {
        self != Self::Browser
    }
}

impl LoginConfig {
    /// No login.
    #[must_use]
    pub fn disabled() -> Self {
        Self::default()
    }

    /// The default login by browser.
    #[must_use]
    pub fn with_browser() -> Self {
        Self {
            enabled: true,
            ..Self::default()
        }
    }

    /// Its secrets, which no record contains.
    pub fn secrets(&self) -> impl Iterator<Item = &String> {
        [&self.client_secret, &self.client_key, &self.assertion]
            .into_iter()
            .flatten()
    }
}

/// Shows no secret.
impl fmt::Debug for LoginConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginConfig")
            .field("enabled", &self.enabled)
            .field("per_agent", &self.per_agent)
            .field("grant", &self.grant)
            .field("issuer", &self.issuer)
            .field("client_id", &self.client_id)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// Why a login failed, for people. Foreign texts are truncated and free of control characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// A document cannot be read.
    #[error("{what} at {at} cannot be used: {why}")]
    Document {
        /// Which document.
        what: &'static str,
        /// Where it was.
        at: String,
        /// What is wrong with it.
        why: String,
    },
    /// The metadata is that of another server.
    #[error(
        "it says it is {named}, and not {wanted}: nobody is asked to sign in for another server"
    )]
    ResourceMismatch {
        /// The published name.
        named: String,
        /// The address of the entry.
        wanted: String,
    },
    /// The metadata is that of another authorization server.
    #[error("the authorization server {wanted} calls itself {named}: its document is not used")]
    IssuerMismatch {
        /// The published name.
        named: String,
        /// The requested issuer.
        wanted: String,
    },
    /// The server does not accept tokens of the entry's issuer.
    #[error("the server takes tokens of {named}, and `issuer` of its entry says {wanted}")]
    IssuerNotOffered {
        /// The issuers that the server names.
        named: String,
        /// The entry's issuer.
        wanted: String,
    },
    /// An insecure address.
    #[error("{what} is {url}: only https, and http to this machine, is safe")]
    InsecureUrl {
        /// Which address.
        what: &'static str,
        /// It.
        url: String,
    },
    /// Without PKCE, a stolen code could be redeemed.
    #[error(
        "the authorization server {issuer} does not say that it knows PKCE with S256, without which a stolen code would open the server: no login there"
    )]
    PkceUnsupported {
        /// It.
        issuer: String,
    },
    /// The authorization server has no dynamic client registration.
    #[error(
        "the authorization server {issuer} registers no clients by itself: register one there, and set `client_id` (and `client_secret`) in [servers.login]"
    )]
    RegistrationUnsupported {
        /// It.
        issuer: String,
    },
    /// The entry lacks a key that its grant needs.
    #[error("[servers.login] of this server lacks {0}")]
    IncompleteConfig(&'static str),
    /// The authorization server rejected the request.
    #[error("the authorization server refused: {0}")]
    Rejected(String),
    /// The response names another issuer.
    #[error("the answer came from {named}, and this login is at {wanted}: its code is not used")]
    IssuerMixUp {
        /// The issuer that the response names.
        named: String,
        /// The issuer of this login.
        wanted: String,
    },
    /// An endpoint whose query has a parameter that only the client may set.
    #[error("{what} has `{parameter}` in its query, which only this kernel writes: no login there")]
    ForbiddenQuery {
        /// Which endpoint.
        what: &'static str,
        /// The parameter.
        parameter: String,
    },
    /// A sign-in page of another server, whose responses cannot be told from those of that server.
    #[error(
        "the authorization server {issuer} has people sign in at {page}, another server, and does not say that its \
         answers name it (RFC 9207): a code of {page} could be carried to {issuer}. Where both belong together, \
         `issuer = \"{issuer}\"` in [servers.login] of the entry says so"
    )]
    ForeignSignInPage {
        /// Whose metadata it is.
        issuer: String,
        /// The page's server.
        page: String,
    },
    /// A response without a pending login.
    #[error("the answer belongs to no login that is under way here")]
    UnknownState,
    /// A token that cannot be sent in a header.
    #[error("the token that came cannot be used: {0}")]
    UnusableToken(String),
    /// A key that cannot sign.
    #[error("the key cannot be used: {0}")]
    UnusableKey(&'static str),
}

/// Most characters of a quoted foreign text.
const QUOTED_CHARS_MAX: usize = 200;

/// Sanitizes a foreign text for display.
#[must_use]
pub fn quote_foreign_text(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(QUOTED_CHARS_MAX)
        .collect()
}

/// Parses a URL that cannot be tampered with on the way: https, or http to a loopback host; without credentials and
/// fragment.
///
/// # Errors
/// [`SignInError::InsecureUrl`].
pub fn parse_safe_url(what: &'static str, text: &str) -> Result<Url, SignInError> {
    let error = || SignInError::InsecureUrl {
        what,
        url: quote_foreign_text(&mgp_protocol::redacted_url::redact_url(text)),
    };
    let url = Url::parse(text).map_err(|_| error())?;
    let has_no_extras =
        url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    let is_secure = match url.scheme() {
        "https" => url.host().is_some(),
        "http" => is_loopback(&url),
        _ => false,
    };
    (has_no_extras && is_secure)
        .then_some(url)
        .ok_or_else(error)
}

/// True for `localhost` and loopback addresses.
#[must_use]
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tamper_proof_addresses_are_accepted() {
        for good in [
            "https://a.example/t?x=1",
            "http://127.0.0.1:1/t",
            "http://localhost/t",
            "http://[::1]:4/",
        ] {
            assert!(parse_safe_url("it", good).is_ok(), "{good}");
        }
        for bad in [
            "http://a.example/t",
            "http://localhost.a.example/",
            "http://127.0.0.1@a.example/",
            "https://u:p@a.example/",
            "https://a.example/#x",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "/t",
            "",
        ] {
            assert!(parse_safe_url("it", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn debug_output_has_no_secrets() {
        let config = LoginConfig {
            client_secret: Some("s3cret".into()),
            client_key: Some("s3cret".into()),
            assertion: Some("s3cret".into()),
            ..LoginConfig::with_browser()
        };
        assert!(!format!("{config:?}").contains("s3cret"));
        assert_eq!(config.secrets().count(), 3);
    }

    #[test]
    fn foreign_texts_are_truncated_and_sanitized() {
        assert_eq!(quote_foreign_text("a\u{1b}[31m\nb"), "a[31mb");
        assert_eq!(quote_foreign_text(&"x".repeat(1000)).len(), 200);
    }
}
