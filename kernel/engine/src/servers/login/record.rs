//! What is kept of a login: one secret, bound to its issuer and its server.

use serde::{Deserialize, Serialize};

use super::client_identity::ClientIdentity;
use super::discovery::AuthorizationServer;
use super::scopes::ScopeSet;
use super::token::{EXPIRY_MARGIN_MS, IssuedTokens};

/// A login as it is kept, whole, in the store of secrets.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginRecord {
    /// Who gave the tokens.
    pub issuer: String,
    /// Whom they are for, as they were asked for; `None` for a server of 2025-03-26, which has no such name.
    pub resource: Option<String>,
    /// Where the next one is got.
    pub token_endpoint: String,
    /// Where they are taken back.
    pub revocation_endpoint: Option<String>,
    /// The client, at this issuer.
    pub client: ClientIdentity,
    /// The scopes asked for.
    pub asked: ScopeSet,
    /// What opens the server; `None` after it was refused.
    pub access: Option<String>,
    /// What gets the next one.
    pub refresh: Option<String>,
    /// When the token expires, in milliseconds since 1970.
    pub until_ms: Option<u64>,
    /// The key that its tokens are bound to.
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
        given: IssuedTokens,
    ) -> Self {
        Self {
            issuer: server.issuer.clone(),
            resource,
            token_endpoint: server.token_endpoint.clone(),
            revocation_endpoint: server.revocation_endpoint.clone(),
            client,
            asked: given
                .scopes
                .as_ref()
                .map_or_else(|| asked.clone(), |more| asked.clone().with_scopes(more)),
            access: Some(given.access_token),
            refresh: given.refresh_token,
            until_ms: given.expires_at_ms,
            proof_key: None,
        }
    }

    /// The next token in the place of the last one. A refresh token that came with it replaces the one before,
    /// which is not good any more (rotation).
    #[must_use]
    pub fn with_tokens(&self, given: IssuedTokens) -> Self {
        Self {
            access: Some(given.access_token),
            refresh: given.refresh_token.or_else(|| self.refresh.clone()),
            until_ms: given.expires_at_ms,
            ..self.clone()
        }
    }

    /// Without its tokens, which are good for nothing any more; the client stays.
    #[must_use]
    pub fn without_tokens(&self) -> Self {
        Self {
            access: None,
            refresh: None,
            until_ms: None,
            ..self.clone()
        }
    }

    /// What of it opens anything, to be masked wherever it is shown.
    pub fn tokens(&self) -> impl Iterator<Item = String> + use<> {
        let tokens = [self.access.clone(), self.refresh.clone()];
        tokens.into_iter().flatten()
    }

    /// True when the token is good no more, or not for long.
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

/// The name that a login is kept by: of this server at this address, and of this agent where each has its own.
/// Another entry with the address has no part in it, and neither has the entry once it leads elsewhere, nor another
/// agent. None of the three has a space in it.
#[must_use]
pub fn login_name(server: &str, url: &str, agent: Option<&str>) -> String {
    match agent {
        Some(agent) => format!("{server} {url} {agent}"),
        None => format!("{server} {url}"),
    }
}

/// Whether a login is kept under this name for the agent.
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
    fn a_refresh_token_is_replaced_where_a_new_one_comes() {
        let rotated = record().with_tokens(given("t2", Some("r2")));
        assert_eq!(
            (rotated.access.as_deref(), rotated.refresh.as_deref()),
            (Some("t2"), Some("r2"))
        );
        let kept = record().with_tokens(given("t2", None));
        assert_eq!(kept.refresh.as_deref(), Some("r1"));
        let ended = kept.without_tokens();
        assert_eq!(
            (ended.access, ended.refresh, ended.client),
            (None, None, record().client)
        );
    }

    #[test]
    fn a_token_is_late_before_it_expires() {
        assert!(!record().is_expiring(100_000 - EXPIRY_MARGIN_MS - 1));
        assert!(record().is_expiring(100_000 - EXPIRY_MARGIN_MS));
        let forever = LoginRecord {
            until_ms: None,
            ..record()
        };
        assert!(!forever.is_expiring(u64::MAX));
    }

    #[test]
    fn it_is_read_as_it_was_written_and_shows_nothing() {
        let text = serde_json::to_string(&record()).unwrap();
        assert_eq!(
            serde_json::from_str::<LoginRecord>(&text).unwrap(),
            record()
        );
        let shown = format!("{:?}", record());
        assert!(
            !shown.contains("t1") && !shown.contains("s3cret"),
            "{shown}"
        );
    }

    #[test]
    fn a_login_belongs_to_one_entry_at_one_address() {
        assert_ne!(
            login_name("a", "https://h/mcp", None),
            login_name("b", "https://h/mcp", None)
        );
        assert_ne!(
            login_name("a", "https://h/mcp", None),
            login_name("a", "https://h2/mcp", None)
        );
    }

    /// Decision 0060: and to one agent, where each has its own.
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
