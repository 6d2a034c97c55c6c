//! Logging in at servers that are reached over HTTP: MCP's authorization (2025-03-26 to 2026-07-28) as the
//! client of it, as far as it can be decided without the network.
//!
//! What others write, a challenge or a document, is judged here and never believed: an endpoint that is not
//! safe, another issuer, another resource or no PKCE ends a login before a browser is opened.

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

/// How an entry says that the kernel logs in.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct LoginConfig {
    /// Whether it does at all. Off, what an agent registered, and where a header is the token.
    pub enabled: bool,
    /// Each agent has a login of its own; that of the machine is for the lists, and for the operator.
    pub per_agent: bool,
    /// How a token is got.
    pub grant: LoginGrant,
    /// The only authorization server that is asked, by its issuer; else the first one the server names.
    pub issuer: Option<String>,
    /// The client that was registered beforehand, or the https address of its metadata document.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<String>,
    /// Its private key (PKCS#8, PEM), for servers that want a signed assertion.
    pub client_key: Option<String>,
    /// What is shown for a token, with [`LoginGrant::Assertion`] and [`LoginGrant::Exchange`].
    pub assertion: Option<String>,
    /// Where an assertion is exchanged for another one first, with [`LoginGrant::Exchange`].
    pub exchange_endpoint: Option<String>,
    /// The client there.
    pub exchange_client_id: Option<String>,
    /// Scopes that are always asked for.
    pub scopes: Vec<String>,
    /// Where the browser comes back to: an address of this machine.
    pub callback: Option<String>,
}

/// How a token is got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoginGrant {
    /// A person signs in with a browser.
    #[default]
    Browser,
    /// The client shows who it is itself.
    ClientCredentials,
    /// A signed assertion from elsewhere is shown (RFC 7523).
    Assertion,
    /// The identity token of a person is exchanged for such an assertion first (RFC 8693).
    Exchange,
}

impl LoginGrant {
    /// Nobody has to be asked.
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

    /// A login by browser, as without any key.
    #[must_use]
    pub fn with_browser() -> Self {
        Self {
            enabled: true,
            ..Self::default()
        }
    }

    /// What of it is in no record.
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

/// Why there is no login, in words for a person. Texts of others are cut and without control characters.
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
    /// It speaks for another server.
    #[error(
        "it says it is {named}, and not {wanted}: nobody is asked to sign in for another server"
    )]
    ResourceMismatch {
        /// As it is published.
        named: String,
        /// The address of the entry.
        wanted: String,
    },
    /// It speaks for another authorization server.
    #[error("the authorization server {wanted} calls itself {named}: its document is not used")]
    IssuerMismatch {
        /// As it is published.
        named: String,
        /// As it was asked for.
        wanted: String,
    },
    /// The entry's issuer is not among those that the server takes tokens of.
    #[error("the server takes tokens of {named}, and `issuer` of its entry says {wanted}")]
    IssuerNotOffered {
        /// Those it names.
        named: String,
        /// The entry's.
        wanted: String,
    },
    /// An address that is not safe to go to.
    #[error("{what} is {url}: only https, and http to this machine, is safe")]
    InsecureUrl {
        /// Which address.
        what: &'static str,
        /// It.
        url: String,
    },
    /// No proof that who brings a code is who asked for it.
    #[error(
        "the authorization server {issuer} does not say that it knows PKCE with S256, without which a stolen code would open the server: no login there"
    )]
    PkceUnsupported {
        /// It.
        issuer: String,
    },
    /// It takes no client that it does not know.
    #[error(
        "the authorization server {issuer} registers no clients by itself: register one there, and set `client_id` (and `client_secret`) in [servers.login]"
    )]
    RegistrationUnsupported {
        /// It.
        issuer: String,
    },
    /// What an entry lacks for its grant.
    #[error("[servers.login] of this server lacks {0}")]
    IncompleteConfig(&'static str),
    /// An answer of the authorization server that refuses.
    #[error("the authorization server refused: {0}")]
    Rejected(String),
    /// An answer to another login.
    #[error("the answer came from {named}, and this login is at {wanted}: its code is not used")]
    IssuerMixUp {
        /// Who answered.
        named: String,
        /// Who was asked.
        wanted: String,
    },
    /// An endpoint with a query that says what only the client says.
    #[error("{what} has `{parameter}` in its query, which only this kernel writes: no login there")]
    ForbiddenQuery {
        /// Which one.
        what: &'static str,
        /// What stands there.
        parameter: String,
    },
    /// A sign-in page of another server, whose answers nobody can tell from those of that server.
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
    /// An answer that nobody asked for.
    #[error("the answer belongs to no login that is under way here")]
    UnknownState,
    /// A token that cannot be sent.
    #[error("the token that came cannot be used: {0}")]
    UnusableToken(String),
    /// A key that cannot sign.
    #[error("the key cannot be used: {0}")]
    UnusableKey(&'static str),
}

/// Most characters of a foreign text that are repeated.
const QUOTED_CHARS_MAX: usize = 200;

/// A foreign text, fit to be shown.
#[must_use]
pub fn quote_foreign_text(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(QUOTED_CHARS_MAX)
        .collect()
}

/// An address that nobody on the way can change, without credentials and fragment: https, or http to this
/// machine by its own name.
///
/// # Errors
/// [`SignInError::InsecureUrl`].
pub fn parse_safe_url(what: &'static str, text: &str) -> Result<Url, SignInError> {
    let refused = || SignInError::InsecureUrl {
        what,
        url: quote_foreign_text(&mgp_protocol::redacted_url::redact_url(text)),
    };
    let url = Url::parse(text).map_err(|_| refused())?;
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    let safe = match url.scheme() {
        "https" => url.host().is_some(),
        "http" => is_loopback(&url),
        _ => false,
    };
    (plain && safe).then_some(url).ok_or_else(refused)
}

/// True where the address names this machine by its own name or number.
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
    fn only_addresses_that_nobody_can_change_are_gone_to() {
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
    fn no_rule_shows_its_secrets() {
        let rules = LoginConfig {
            client_secret: Some("s3cret".into()),
            client_key: Some("s3cret".into()),
            assertion: Some("s3cret".into()),
            ..LoginConfig::with_browser()
        };
        assert!(!format!("{rules:?}").contains("s3cret"));
        assert_eq!(rules.secrets().count(), 3);
    }

    #[test]
    fn foreign_texts_are_cut_and_cannot_move_the_cursor() {
        assert_eq!(quote_foreign_text("a\u{1b}[31m\nb"), "a[31mb");
        assert_eq!(quote_foreign_text(&"x".repeat(1000)).len(), 200);
    }
}
