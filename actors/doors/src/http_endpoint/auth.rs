//! Authentication at the HTTP endpoint.

use std::sync::Arc;

use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use mgp_engine::doors::agent_registry::BadAgentToken;
use mgp_engine::doors::bearer;
use mgp_engine::doors::certificate::{CertificateNameError, CertificateNames};
use mgp_engine::doors::dpop::BadProof;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::Dialect;
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::refusal::{Denial, Refusal};
use mgp_transports::http::body::ReplyBody;
use mgp_transports::http::certificate::Certificate;
use subtle::ConstantTimeEq;

use super::broker::PROOF;
use crate::oauth::broker::Broker;
use crate::oauth::{Challenge, OAuth, SentToken, TokenError, TokenScheme};
use mgp_callers::{Credential, RegisteredAgents};

/// How callers authenticate.
#[derive(Debug, Clone)]
pub enum Auth {
    /// No authentication: everyone is `agent.anonymous`. Only on loopback.
    None,
    /// By a token of the kernel.
    Token(Tokens),
    /// By a token of an authorization server; optionally also by one of the kernel.
    OAuth(Arc<OAuth>, Option<Tokens>),
}

/// The tokens of the kernel.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// The hash of the token of `agent.local`.
    pub local: blake3::Hash,
    /// The agents with tokens of their own.
    pub registered_agents: RegisteredAgents,
}

/// Authentication errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// No credentials.
    NoCredentials,
    /// Not a bearer token, or more than one.
    Unreadable,
    /// The token is unknown or revoked; with the reason.
    Invalid(String),
    /// The certificate names no agent.
    Certificate(CertificateNameError),
    /// The token or certificate expired at this time.
    Expired(String),
    /// The token is valid but does not allow this.
    Scope,
    /// The token is bound to a key, and the request does not prove it (RFC 9449).
    Proof(BadProof),
}

/// The request that a caller authenticates with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuthRequest<'r> {
    pub(crate) headers: &'r HeaderMap,
    pub(crate) method: &'r str,
    pub(crate) path: &'r str,
    pub(crate) certificate: Option<&'r Certificate>,
}

impl<'r> AuthRequest<'r> {
    pub(crate) fn new<B>(
        request: &'r http::Request<B>,
        certificate: Option<&'r Certificate>,
    ) -> Self {
        Self {
            headers: request.headers(),
            method: request.method().as_str(),
            path: request.uri().path(),
            certificate,
        }
    }
}

impl Auth {
    /// Authenticates the caller for this endpoint. A certificate is enough; a token sent with it must name
    /// the same agent.
    ///
    /// # Errors
    /// [`AuthError`].
    pub(crate) async fn authenticate(
        &self,
        request: AuthRequest<'_>,
        view: &CatalogView,
    ) -> Result<Credential, AuthError> {
        let Some(certificate) = request.certificate else {
            return self.authenticate_token(request, view).await;
        };
        let named = credential_from_certificate(certificate)?;
        if matches!(self, Self::None) || !request.headers.contains_key(AUTHORIZATION) {
            return Ok(named);
        }
        let credential = self.authenticate_token(request, view).await?;
        if credential.agent == named.agent {
            Ok(credential.with_latest_expiry(certificate.not_after_ms))
        } else {
            Err(AuthError::Invalid(
                "it names another agent than the certificate".into(),
            ))
        }
    }

    async fn authenticate_token(
        &self,
        request: AuthRequest<'_>,
        view: &CatalogView,
    ) -> Result<Credential, AuthError> {
        match self {
            Self::None => Ok(Credential::permanent(AgentId::new(AgentId::ANONYMOUS))),
            Self::Token(tokens) => tokens.authenticate(bearer_token(request.headers)?),
            Self::OAuth(oauth, tokens) => {
                let (scheme, token) = authorization(request.headers)?;
                match tokens {
                    // Tokens of `mgp agents` have no dots, signed and sealed ones have.
                    Some(tokens) if scheme == TokenScheme::Bearer && !token.contains('.') => {
                        tokens.authenticate(token)
                    }
                    Some(_) | None => {
                        let sent = SentToken {
                            scheme,
                            token,
                            proof: proof(request.headers),
                            method: request.method,
                            path: request.path,
                        };
                        // Boxed because it is large, and would make every other request larger.
                        let verified = Box::pin(oauth.verify(sent, view)).await;
                        verified.map_err(AuthError::from_token_error)
                    }
                }
            }
        }
    }

    /// The broker, if this kernel issues its tokens itself.
    pub(super) fn broker(&self) -> Option<&Arc<Broker>> {
        match self {
            Self::OAuth(oauth, _) => oauth.broker(),
            Self::None | Self::Token(_) => None,
        }
    }

    /// True if callers without a certificate need a token.
    pub(super) fn requires_token(&self) -> bool {
        match self {
            Self::None => false,
            Self::Token(_) | Self::OAuth(..) => true,
        }
    }

    /// The metadata of an endpoint for clients that have no token yet (RFC 9728).
    pub(super) fn resource_metadata(
        &self,
        headers: &HeaderMap,
        view: &CatalogView,
    ) -> Option<String> {
        match self {
            Self::OAuth(oauth, _) => Some(oauth.metadata(view, host_header(headers))),
            Self::None | Self::Token(_) => None,
        }
    }

    /// Converts to the refusal, with advice on how to authenticate.
    pub(crate) fn to_refusal(
        &self,
        unwelcome: &AuthError,
        headers: &HeaderMap,
        view: &CatalogView,
    ) -> Response<ReplyBody> {
        let is_bad_proof = matches!(unwelcome, AuthError::Proof(_));
        let hints = match self {
            Self::OAuth(oauth, _) => {
                Some(oauth.challenge(view, host_header(headers), is_bad_proof))
            }
            Self::None | Self::Token(_) => None,
        };
        unwelcome.to_response(hints)
    }
}

/// The credential of a certificate. It expires with the certificate, although the connection may stay open.
fn credential_from_certificate(certificate: &Certificate) -> Result<Credential, AuthError> {
    let names = CertificateNames {
        uris: &certificate.uris,
        hosts: &certificate.hosts,
        common: &certificate.common_names,
    };
    let agent =
        mgp_engine::doors::certificate::parse_agent(names).map_err(AuthError::Certificate)?;
    let pass = Credential::permanent(agent).with_expiry(Some(certificate.not_after_ms));
    if pass.has_ended() {
        Err(AuthError::Expired(render_rfc3339_ms(
            certificate.not_after_ms,
        )))
    } else {
        Ok(pass)
    }
}

fn host_header(headers: &HeaderMap) -> Option<&str> {
    headers.get(HOST)?.to_str().ok()
}

impl Tokens {
    fn authenticate(&self, token: &str) -> Result<Credential, AuthError> {
        match self.registered_agents.authenticate(token) {
            Ok(pass) => return Ok(pass),
            Err(BadAgentToken::Expired(_, at_ms)) => {
                return Err(AuthError::Expired(render_rfc3339_ms(at_ms)));
            }
            Err(BadAgentToken::Unknown) => {}
        }
        let hash = blake3::hash(token.as_bytes());
        let same = hash.as_bytes().ct_eq(self.local.as_bytes());
        if bool::from(same) {
            Ok(Credential::permanent(AgentId::new(AgentId::LOCAL)))
        } else {
            Err(AuthError::Invalid("nobody has this token".into()))
        }
    }
}

/// The bearer token in the headers; tokens in URLs are not accepted.
pub(super) fn bearer_token(headers: &HeaderMap) -> Result<&str, AuthError> {
    match authorization(headers)? {
        (TokenScheme::Bearer, token) => Ok(token),
        (TokenScheme::Dpop, _) => Err(AuthError::Unreadable),
    }
}

/// The scheme and the token of the only header `Authorization`.
fn authorization(headers: &HeaderMap) -> Result<(TokenScheme, &str), AuthError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(AuthError::NoCredentials)?;
    if values.next().is_some() {
        return Err(AuthError::Unreadable);
    }
    let value_text = value.to_str().map_err(|_| AuthError::Unreadable)?;
    let (scheme, token) = value_text.split_once(' ').ok_or(AuthError::Unreadable)?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "bearer" => TokenScheme::Bearer,
        "dpop" => TokenScheme::Dpop,
        _ => return Err(AuthError::Unreadable),
    };
    let token = token.trim();
    if token.is_empty() {
        return Err(AuthError::Unreadable);
    }
    Ok((scheme, token))
}

/// The only header `DPoP`.
fn proof(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(&PROOF).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

impl AuthError {
    fn from_token_error(error: TokenError) -> Self {
        let error = match error {
            TokenError::Token(error) => error,
            TokenError::Unknown => return Self::Invalid("it is unknown or has ended".into()),
            TokenError::Proof(error) => return Self::Proof(error),
        };
        match error {
            bearer::BadBearerToken::Expired(at_ms) => Self::Expired(render_rfc3339_ms(at_ms)),
            bearer::BadBearerToken::Scope => Self::Scope,
            error @ (bearer::BadBearerToken::Malformed
            | bearer::BadBearerToken::DuplicateClaim
            | bearer::BadBearerToken::Algorithm
            | bearer::BadBearerToken::UnknownKey
            | bearer::BadBearerToken::Signature
            | bearer::BadBearerToken::Issuer
            | bearer::BadBearerToken::Audience
            | bearer::BadBearerToken::BadTimes
            | bearer::BadBearerToken::NotYetValid
            | bearer::BadBearerToken::Groups
            | bearer::BadBearerToken::Subject
            | bearer::BadBearerToken::Binding) => Self::Invalid(error.to_string()),
        }
    }

    /// Advice for the caller.
    pub(crate) fn advice(&self) -> String {
        match self {
            Self::NoCredentials => "this door wants `Authorization: Bearer <token>`; `mgp status` names the file that holds the owner's token, `mgp agents add` makes one for an agent".into(),
            Self::Unreadable => "`Authorization` must be `Bearer <token>`, once".into(),
            Self::Invalid(error) => format!("the token is not valid: {error}; `mgp status` names the file that holds the owner's, `mgp agents token <name> --rotate` makes a new one for an agent"),
            Self::Certificate(error) => error.to_string(),
            Self::Expired(at) => format!("what was shown expired at {at}; `mgp agents token <name> --rotate` makes a new token"),
            Self::Scope => "the token lacks a scope that this door wants".into(),
            Self::Proof(error) => error.to_string(),
        }
    }

    /// The `error` of RFC 6750, section 3.1; none if no credential was sent.
    fn bearer_error(&self) -> Option<(&'static str, String)> {
        match self {
            Self::NoCredentials | Self::Certificate(_) => None,
            Self::Unreadable => Some(("invalid_request", "one bearer token is wanted".into())),
            Self::Invalid(error) => Some(("invalid_token", error.clone())),
            Self::Expired(at) => Some(("invalid_token", format!("it expired at {at}"))),
            Self::Scope => Some(("insufficient_scope", "the token lacks a scope".into())),
            Self::Proof(BadProof::Scheme) => Some(("invalid_token", BadProof::Scheme.to_string())),
            Self::Proof(error) => Some(("invalid_dpop_proof", error.to_string())),
        }
    }

    /// Converts to a refusal with MGP's error code, for callers that support it.
    pub(super) fn to_dialect(
        &self,
        caller: Option<(RequestId, Dialect)>,
        refused: Response<ReplyBody>,
    ) -> Response<ReplyBody> {
        let denial = match self {
            Self::Scope => return refused,
            Self::Expired(_) => Denial::CredentialsExpired(self.advice()),
            Self::NoCredentials
            | Self::Unreadable
            | Self::Invalid(_)
            | Self::Certificate(_)
            | Self::Proof(_) => Denial::NoCredentials(self.advice()),
        };
        let Some((id, dialect)) = caller else {
            return refused;
        };
        let frame = Refusal::Denied(Box::new(denial)).render_response(id.as_json(), dialect);
        refused.map(|_| ReplyBody::full(frame))
    }

    /// The response: 401, or 403 if another token of the same caller would be accepted; `hints` describe
    /// where to get one.
    pub(super) fn to_response(&self, hints: Option<Challenge>) -> Response<ReplyBody> {
        let mut parts = Vec::new();
        if let Some((error, description)) = self.bearer_error() {
            parts.push(format!(r#"error="{error}""#));
            parts.push(format!(
                r#"error_description="{}""#,
                to_quotable(&description)
            ));
        }
        let scheme = hints.as_ref().map_or("Bearer", |hints| hints.scheme);
        parts.extend(hints.map(|hints| hints.params));
        let challenge = format!("{scheme} {}", parts.join(", "));
        let status = match self {
            Self::Scope => StatusCode::FORBIDDEN,
            Self::NoCredentials
            | Self::Unreadable
            | Self::Invalid(_)
            | Self::Certificate(_)
            | Self::Proof(_)
            | Self::Expired(_) => StatusCode::UNAUTHORIZED,
        };
        let mut response = super::refusal_response(status, &self.advice());
        if let Ok(value) = HeaderValue::from_str(challenge.trim_end()) {
            response.headers_mut().insert(WWW_AUTHENTICATE, value);
        }
        response
    }
}

/// Removes characters that are not allowed in a quoted string of a header.
fn to_quotable(text: &str) -> String {
    let plain = |c: &char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    text.chars().filter(plain).collect()
}

#[cfg(test)]
mod tests {
    use mgp_engine::doors::agent_registry::{AgentChange, AgentRegistry, TokenDigest};

    use super::*;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    fn auth() -> Auth {
        let mut registry = AgentRegistry::default();
        for (name, not_after_ms) in [("alice", None), ("late", Some(1))] {
            let change = AgentChange::Added {
                agent: AgentId::parse(name).unwrap(),
                digest: TokenDigest::new(&format!("mgp_{name}")),
                at_ms: 0,
                not_after_ms,
            };
            registry.apply(&change).unwrap();
        }
        Auth::Token(Tokens {
            local: blake3::hash(b"secret"),
            registered_agents: RegisteredAgents::new(registry),
        })
    }

    fn request<'r>(
        headers: &'r HeaderMap,
        certificate: Option<&'r Certificate>,
    ) -> AuthRequest<'r> {
        AuthRequest {
            headers,
            method: "POST",
            path: "/mcp",
            certificate,
        }
    }

    async fn check(headers: HeaderMap) -> Result<String, AuthError> {
        let pass = auth()
            .authenticate(request(&headers, None), &CatalogView::All)
            .await?;
        Ok(pass.agent.to_string())
    }

    async fn shown(
        headers: HeaderMap,
        name: &str,
        not_after_ms: u64,
    ) -> Result<Credential, AuthError> {
        let certificate = Certificate {
            uris: vec![format!("mgp:agent:{name}")],
            not_after_ms,
            ..Certificate::default()
        };
        auth()
            .authenticate(request(&headers, Some(&certificate)), &CatalogView::All)
            .await
    }

    #[tokio::test]
    async fn certificate_and_token_must_name_the_same_agent() {
        let pass = shown(HeaderMap::new(), "alice", u64::MAX).await.unwrap();
        assert_eq!(pass.agent.to_string(), "agent.alice");
        // The credential expires with the earlier of the two.
        let soon_ms = mgp_runtime::time::unix_ms() + 60_000;
        let both = shown(with("Bearer mgp_alice"), "alice", soon_ms)
            .await
            .unwrap();
        assert!(!both.is_permanent() && !both.is_revoked());
        for other in ["Bearer secret", "Bearer mgp_alice"] {
            let refused = shown(with(other), "bob", u64::MAX).await;
            assert!(matches!(refused, Err(AuthError::Invalid(_))), "{other}");
        }
        let refused = shown(with("Bearer mgp_late"), "late", u64::MAX).await;
        assert!(matches!(refused, Err(AuthError::Expired(_))));
        let expired = shown(HeaderMap::new(), "alice", 1).await;
        assert!(matches!(expired, Err(AuthError::Expired(_))));
        let operator = shown(HeaderMap::new(), "operator", u64::MAX).await;
        assert!(matches!(operator, Err(AuthError::Certificate(_))));
    }

    #[tokio::test]
    async fn token_authenticates_its_agent() {
        let who = |value: &str| check(with(value));
        assert_eq!(who("Bearer secret").await.unwrap(), "agent.local");
        assert_eq!(who("bearer secret").await.unwrap(), "agent.local");
        assert_eq!(who("Bearer mgp_alice").await.unwrap(), "agent.alice");
        assert!(matches!(
            who("Bearer mgp_other").await,
            Err(AuthError::Invalid(_))
        ));
        assert!(matches!(
            who("Bearer mgp_late").await,
            Err(AuthError::Expired(_))
        ));
        for unreadable in ["Basic secret", "Bearer", "Bearer ", "secret"] {
            assert_eq!(
                who(unreadable).await,
                Err(AuthError::Unreadable),
                "{unreadable}"
            );
        }
        let mut twice = with("Bearer secret");
        twice.append(AUTHORIZATION, "Bearer mgp_alice".parse().unwrap());
        assert_eq!(check(twice).await.unwrap_err(), AuthError::Unreadable);
        let nothing = check(HeaderMap::new()).await;
        assert_eq!(nothing.unwrap_err(), AuthError::NoCredentials);
    }

    #[test]
    fn challenge_names_the_error_without_echoing_input() {
        let challenge = |unwelcome: &AuthError| {
            let value = unwelcome.to_response(None).headers()[WWW_AUTHENTICATE].clone();
            value.to_str().unwrap().to_owned()
        };
        assert_eq!(challenge(&AuthError::NoCredentials), "Bearer");
        let invalid = AuthError::Invalid("a \"b\" \n c".into());
        let value_text = r#"Bearer error="invalid_token", error_description="a b  c""#;
        assert_eq!(challenge(&invalid), value_text);
    }
}
