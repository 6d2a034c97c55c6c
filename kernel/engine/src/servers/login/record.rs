//! The stored login: one secret, bound to its issuer and its server.

use serde::{Deserialize, Serialize};

use super::client_identity::ClientIdentity;
use super::discovery::AuthorizationServer;
use super::scopes::ScopeSet;
use super::token::{EXPIRY_MARGIN_MS, IssuedTokens};

/// A login, stored as one value in the secret store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginRecord {
    /// The issuer of the tokens.
    pub issuer: String,
    /// The requested resource; `None` for a server of 2025-03-26, which has none.
    pub resource: Option<String>,
    /// The endpoint for refreshes.
    pub token_endpoint: String,
    /// The endpoint for revocation (RFC 7009).
    pub revocation_endpoint: Option<String>,
    /// The client at this issuer.
    pub client: ClientIdentity,
    /// The requested scopes.
    pub asked: ScopeSet,
    /// The access token; `None` after it was rejected.
    pub access: Option<String>,
    /// The refresh token.
    pub refresh: Option<String>,
    /// When the token expires, in milliseconds since 1970.
    pub until_ms: Option<u64>,
    /// The DPoP key that the tokens are bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof_key: Option<String>,
}

impl LoginRecord {
    /// The record of a first token.
    #[must_use]
    pub fn new(
        server: &AuthorizationServer,
        resource: Option<String>,
        client: ClientIdentity,
        asked: ScopeSet,
        tokens: IssuedTokens,
    ) -> Self {
        Self {
            issuer: server.issuer.clone(),
            resource,
            token_endpoint: server.token_endpoint.clone(),
            revocation_endpoint: server.revocation_endpoint.clone(),
            client,
            asked: tokens
                .scopes
                .as_ref()
                .map_or_else(|| asked.clone(), |more| asked.clone().with_scopes(more)),
            access: Some(tokens.access_token),
            refresh: tokens.refresh_token,
            until_ms: tokens.expires_at_ms,
            proof_key: None,
        }
    }

    /// Replaces the tokens. A new refresh token invalidates the previous one (rotation).
    #[must_use]
    pub fn with_tokens(&self, tokens: IssuedTokens) -> Self {
        Self {
            access: Some(tokens.access_token),
            refresh: tokens.refresh_token.or_else(|| self.refresh.clone()),
            until_ms: tokens.expires_at_ms,
            ..self.clone()
        }
    }

    /// Drops the tokens, which are no longer valid; the client stays.
    #[must_use]
    pub fn without_tokens(&self) -> Self {
        Self {
            access: None,
            refresh: None,
            until_ms: None,
            ..self.clone()
        }
    }

    /// The tokens, which output has to mask.
    pub fn tokens(&self) -> impl Iterator<Item = String> + use<> {
        let tokens = [self.access.clone(), self.refresh.clone()];
        tokens.into_iter().flatten()
    }

    /// True if the token has expired or will within [`EXPIRY_MARGIN_MS`].
    #[must_use]
    pub fn is_expiring(&self, now_ms: u64) -> bool {
        self.until_ms
            .is_some_and(|until| until <= now_ms.saturating_add(EXPIRY_MARGIN_MS))
    }
}

/// Shows no token.
impl std::fmt::Debug for LoginRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginRecord")
            .field("issuer", &self.issuer)
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}

/// The storage key of a login: server, URL, and agent if each agent has its own login. So another entry with the URL, the
/// entry with another URL, and other agents do not share it. None of the three contains a space.
#[must_use]
pub fn login_name(server: &str, url: &str, agent: Option<&str>) -> String {
    match agent {
        Some(agent) => format!("{server} {url} {agent}"),
        None => format!("{server} {url}"),
    }
}

/// Whether this storage key is for the agent's login.
#[must_use]
pub fn is_login_of(name: &str, agent: &str) -> bool {
    let mut words = name.split(' ').skip(2);
    words.next() == Some(agent) && words.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::super::client_identity::ClientAuth;
    use super::*;

    fn given(access: &str, refresh: Option<&str>) -> IssuedTokens {
        IssuedTokens {
            access_token: access.into(),
            refresh_token: refresh.map(Into::into),
            expires_at_ms: Some(100_000),
            scopes: None,
        }
    }

    fn record() -> LoginRecord {
        let client = ClientIdentity {
            id: "c".into(),
            secret: Some("s3cret".into()),
            auth: ClientAuth::None,
            callback: None,
        };
        let server = AuthorizationServer::without_metadata("https://as");
        LoginRecord::new(
            &server,
            None,
            client,
            ScopeSet::parse("a"),
            given("t1", Some("r1")),
        )
    }

    #[test]
    fn a_new_refresh_token_replaces_the_previous_one() {
        let rotated = record().with_tokens(given("t2", Some("r2")));
        assert_eq!(
            (rotated.access.as_deref(), rotated.refresh.as_deref()),
            (Some("t2"), Some("r2"))
        );
        let unrotated = record().with_tokens(given("t2", None));
        assert_eq!(unrotated.refresh.as_deref(), Some("r1"));
        let ended = unrotated.without_tokens();
        assert_eq!(
            (ended.access, ended.refresh, ended.client),
            (None, None, record().client)
        );
    }

    #[test]
    fn a_token_expires_early_by_the_margin() {
        assert!(!record().is_expiring(100_000 - EXPIRY_MARGIN_MS - 1));
        assert!(record().is_expiring(100_000 - EXPIRY_MARGIN_MS));
        let forever = LoginRecord {
            until_ms: None,
            ..record()
        };
        assert!(!forever.is_expiring(u64::MAX));
    }

    #[test]
    fn a_record_survives_a_round_trip_and_debug_shows_no_secret() {
        let text = serde_json::to_string(&record()).unwrap();
        assert_eq!(
            serde_json::from_str::<LoginRecord>(&text).unwrap(),
            record()
        );
        let debug = format!("{:?}", record());
        assert!(
            !debug.contains("t1") && !debug.contains("s3cret"),
            "{debug}"
        );
    }

    #[test]
    fn a_login_belongs_to_one_entry_at_one_url() {
        assert_ne!(
            login_name("a", "https://h/mcp", None),
            login_name("b", "https://h/mcp", None)
        );
        assert_ne!(
            login_name("a", "https://h/mcp", None),
            login_name("a", "https://h2/mcp", None)
        );
    }

    /// Decision 0060
    #[test]
    fn a_login_belongs_to_one_agent() {
        let of = |agent| login_name("a", "https://h/mcp", agent);
        assert_ne!(of(Some("agent.x")), of(Some("agent.y")));
        assert_ne!(of(Some("agent.x")), of(None));
        assert!(is_login_of(&of(Some("agent.x")), "agent.x"));
        assert!(!is_login_of(&of(Some("agent.x")), "agent.xy"));
        assert!(!is_login_of(&of(Some("agent.xy")), "agent.x"));
        assert!(!is_login_of(&of(None), "https://h/mcp"));
    }
}
