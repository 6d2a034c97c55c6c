//! Requests for tokens and what comes of them (RFC 6749, 7009, 7523, 8693, 8707).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::client_identity::{ClientAuth, ClientIdentity};
use super::pkce::CodeVerifier;
use super::scopes::ScopeSet;
use super::{SignInError, quote_foreign_text};

/// Longest token taken, in bytes; real ones have one or two thousand.
pub(crate) const TOKEN_BYTES_MAX: usize = 16 << 10;
/// A token counts as expired this long before it is, for the clocks of two machines and the way, in milliseconds.
pub(crate) const EXPIRY_MARGIN_MS: u64 = 30_000;

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
/// The assertion that stands for a person at the authorization server of another company (SEP-990).
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

/// What a token is asked for with.
#[derive(Clone, Copy, Debug)]
pub enum TokenGrant<'a> {
    /// The code that a browser brought, with the secret of its login.
    Code {
        /// The code.
        code: &'a str,
        /// Where the browser came back to.
        callback: &'a str,
        /// The secret.
        verifier: &'a CodeVerifier,
    },
    /// A refresh token.
    Refresh(&'a str),
    /// The client itself.
    ClientCredentials,
    /// A signed assertion of somebody else.
    Assertion(&'a str),
    /// An identity token, for an assertion that this audience takes.
    Exchange {
        /// The identity token.
        subject: &'a str,
        /// The authorization server that the assertion is for.
        audience: &'a str,
    },
}

/// A request as it is POSTed.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRequest {
    /// The header `Authorization`, where the client shows who it is there.
    pub authorization: Option<String>,
    /// The form.
    pub body: String,
}

impl TokenRequest {
    /// A request for a token. `assertion` is what a client with a key has signed.
    #[must_use]
    pub fn new(
        grant: TokenGrant<'_>,
        client: &ClientIdentity,
        resource: Option<&str>,
        scopes: &ScopeSet,
        assertion: Option<&str>,
    ) -> Self {
        let mut form = Serializer::new(String::new());
        match grant {
            TokenGrant::Code {
                code,
                callback,
                verifier,
            } => form
                .append_pair("grant_type", "authorization_code")
                .append_pair("code", code)
                .append_pair("redirect_uri", callback)
                .append_pair("code_verifier", verifier.as_str()),
            TokenGrant::Refresh(token) => form
                .append_pair("grant_type", "refresh_token")
                .append_pair("refresh_token", token),
            TokenGrant::ClientCredentials => form.append_pair("grant_type", "client_credentials"),
            TokenGrant::Assertion(assertion) => form
                .append_pair("grant_type", JWT_BEARER)
                .append_pair("assertion", assertion),
            TokenGrant::Exchange { subject, audience } => form
                .append_pair("grant_type", TOKEN_EXCHANGE)
                .append_pair("requested_token_type", ID_JAG)
                .append_pair("subject_token", subject)
                .append_pair("subject_token_type", ID_TOKEN)
                .append_pair("audience", audience),
        };
        if let Some(resource) = resource {
            form.append_pair("resource", resource);
        }
        // A code and a refresh token know their scopes.
        let asks = matches!(
            grant,
            TokenGrant::ClientCredentials | TokenGrant::Assertion(_) | TokenGrant::Exchange { .. }
        );
        if asks && !scopes.is_empty() {
            form.append_pair("scope", &scopes.to_string());
        }
        Self::authenticate(form, client, assertion)
    }

    /// A request to take a token back.
    #[must_use]
    pub fn revocation(
        token: &str,
        kind: &str,
        client: &ClientIdentity,
        assertion: Option<&str>,
    ) -> Self {
        let mut form = Serializer::new(String::new());
        form.append_pair("token", token)
            .append_pair("token_type_hint", kind);
        Self::authenticate(form, client, assertion)
    }

    fn authenticate(
        mut form: Serializer<'_, String>,
        client: &ClientIdentity,
        assertion: Option<&str>,
    ) -> Self {
        let secret = client.secret.as_deref().unwrap_or_default();
        let mut authorization = None;
        match client.auth {
            ClientAuth::None => {
                form.append_pair("client_id", &client.id);
            }
            ClientAuth::ClientSecretPost => {
                form.append_pair("client_id", &client.id)
                    .append_pair("client_secret", secret);
            }
            ClientAuth::PrivateKeyJwt => {
                form.append_pair("client_id", &client.id)
                    .append_pair("client_assertion_type", ASSERTION_TYPE)
                    .append_pair("client_assertion", assertion.unwrap_or_default());
            }
            ClientAuth::ClientSecretBasic => {
                let part = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", part(&client.id), part(secret));
                authorization = Some(format!("Basic {}", STANDARD.encode(pair)));
            }
        }
        Self {
            authorization,
            body: form.finish(),
        }
    }
}

impl std::fmt::Debug for TokenRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenRequest(…)")
    }
}

/// The tokens that came.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedTokens {
    /// What opens the server.
    pub(crate) access_token: String,
    /// What gets the next one.
    pub(crate) refresh_token: Option<String>,
    /// When it expires, in milliseconds since 1970, where that was said.
    pub(crate) expires_at_ms: Option<u64>,
    /// What it is good for, where that was said.
    pub scopes: Option<ScopeSet>,
}

impl std::fmt::Debug for IssuedTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GivenTokens(…)")
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    #[serde(default)]
    token_type: Option<String>,
    #[serde(default)]
    expires_in: Option<serde_json::Value>,
    #[serde(default)]
    refresh_token: Option<String>,
    #[serde(default)]
    scope: Option<String>,
}

impl IssuedTokens {
    /// Reads the answer that came at `now_ms`, to a request with a proof where the token is to be `bound` to its
    /// key.
    ///
    /// # Errors
    /// [`SignInError::UnusableToken`]: it is none, is bound where it should not be or the other way round, or could not stand
    /// in a header.
    pub fn parse(json: &[u8], now_ms: u64, bound: bool) -> Result<Self, SignInError> {
        let written = parse_response(json)?;
        let kind = written.token_type.as_deref().unwrap_or_default();
        let wanted = if bound { "DPoP" } else { "Bearer" };
        if !kind.eq_ignore_ascii_case(wanted) {
            let kind = quote_foreign_text(kind);
            return Err(unusable_token(format!(
                "it is of the type {kind:?}, and not {wanted}"
            )));
        }
        let seconds = written.expires_in.as_ref().and_then(parse_seconds);
        Ok(Self {
            access_token: check_sendable(written.access_token)?,
            refresh_token: written.refresh_token.map(check_sendable).transpose()?,
            expires_at_ms: seconds.map(|s| now_ms.saturating_add(s.saturating_mul(1000))),
            scopes: written.scope.map(|scope| ScopeSet::parse(&scope)),
        })
    }

    /// The assertion in the answer to an exchange, which is no token that opens a server.
    ///
    /// # Errors
    /// [`SignInError::UnusableToken`].
    pub fn parse_exchanged_assertion(json: &[u8]) -> Result<String, SignInError> {
        check_sendable(parse_response(json)?.access_token)
    }
}

fn parse_response(json: &[u8]) -> Result<TokenResponse, SignInError> {
    serde_json::from_slice(json).map_err(|_| unusable_token("the answer holds none".into()))
}

fn unusable_token(why: String) -> SignInError {
    SignInError::UnusableToken(why)
}

/// Some write the number as a text.
fn parse_seconds(value: &serde_json::Value) -> Option<u64> {
    let text = value.as_str().and_then(|text| text.parse().ok());
    value.as_u64().or(text)
}

fn check_sendable(token: String) -> Result<String, SignInError> {
    let visible = token.bytes().all(|b| b.is_ascii_graphic());
    match (visible, token.len()) {
        (true, 1..=TOKEN_BYTES_MAX) => Ok(token),
        (_, _) => Err(unusable_token(
            "it is empty, too long, or has a character that no header may have".into(),
        )),
    }
}

/// What an answer with an error says, in words; never a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenErrorResponse {
    /// Such as `invalid_grant`.
    pub error: String,
    /// In words.
    pub description: String,
}

#[derive(Deserialize)]
struct TokenErrorDocument {
    error: String,
    #[serde(default)]
    error_description: Option<String>,
}

impl TokenErrorResponse {
    /// Reads the body of an answer with this status.
    #[must_use]
    pub fn parse(json: &[u8], status: u16) -> Self {
        let Ok(written) = serde_json::from_slice::<TokenErrorDocument>(json) else {
            return Self {
                error: String::new(),
                description: format!("HTTP {status}"),
            };
        };
        let error = quote_foreign_text(&written.error);
        let more = written
            .error_description
            .map(|more| format!(" ({})", quote_foreign_text(&more)));
        Self {
            description: format!("{error}{}", more.unwrap_or_default()),
            error,
        }
    }

    /// The refresh token, or the client, is good for nothing any more: a person has to sign in again.
    #[must_use]
    pub fn requires_sign_in(&self) -> bool {
        matches!(
            self.error.as_str(),
            "invalid_grant"
                | "invalid_client"
                | "unauthorized_client"
                | "invalid_scope"
                | "invalid_target"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(auth: ClientAuth) -> ClientIdentity {
        ClientIdentity {
            id: "me:1".into(),
            secret: Some("s 3/".into()),
            auth,
            callback: None,
        }
    }

    fn ask(grant: TokenGrant<'_>, auth: ClientAuth) -> TokenRequest {
        let scopes = ScopeSet::parse("a b");
        TokenRequest::new(
            grant,
            &client(auth),
            Some("https://h/mcp"),
            &scopes,
            Some("signed"),
        )
    }

    #[test]
    fn a_code_is_shown_with_the_secret_of_its_login_and_the_server_it_is_for() {
        let verifier = CodeVerifier::from_random([1; 32]);
        let grant = TokenGrant::Code {
            code: "c",
            callback: "http://127.0.0.1:1/callback",
            verifier: &verifier,
        };
        let asked = ask(grant, ClientAuth::None);
        assert!(asked.authorization.is_none());
        let want = format!(
            "grant_type=authorization_code&code=c&redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2Fcallback&code_verifier={}&resource=https%3A%2F%2Fh%2Fmcp&client_id=me%3A1",
            verifier.as_str()
        );
        assert_eq!(asked.body, want);
    }

    /// RFC 6749, section 2.3.1: both halves are encoded before they are joined.
    #[test]
    fn a_secret_goes_where_it_was_agreed_and_nowhere_else() {
        let basic = ask(TokenGrant::ClientCredentials, ClientAuth::ClientSecretBasic);
        let want = format!("Basic {}", STANDARD.encode("me%3A1:s+3%2F"));
        assert_eq!(basic.authorization.as_deref(), Some(&*want));
        assert_eq!(
            basic.body,
            "grant_type=client_credentials&resource=https%3A%2F%2Fh%2Fmcp&scope=a+b"
        );
        let post = ask(TokenGrant::Refresh("r"), ClientAuth::ClientSecretPost);
        assert!(post.authorization.is_none());
        assert!(
            post.body.ends_with("client_id=me%3A1&client_secret=s+3%2F"),
            "{}",
            post.body
        );
        assert!(!post.body.contains("scope"));
        let jwt = ask(TokenGrant::ClientCredentials, ClientAuth::PrivateKeyJwt);
        assert!(jwt.body.contains("client_assertion=signed") && !jwt.body.contains("secret"));
        assert_eq!(format!("{post:?}"), "TokenRequest(…)");
    }

    #[test]
    fn a_token_says_until_when_it_is_good() {
        let read = |json: &str| IssuedTokens::parse(json.as_bytes(), 1000, false);
        let given = read(r#"{"access_token":"t","token_type":"bearer","expires_in":"60","refresh_token":"r","scope":"a"}"#).unwrap();
        assert_eq!(given.expires_at_ms, Some(61_000));
        assert_eq!(given.refresh_token.as_deref(), Some("r"));
        assert_eq!(given.scopes, Some(ScopeSet::parse("a")));
        assert_eq!(
            read(r#"{"access_token":"t","token_type":"Bearer"}"#)
                .unwrap()
                .expires_at_ms,
            None
        );
        let long = format!(
            r#"{{"access_token":"{}","token_type":"Bearer"}}"#,
            "x".repeat(TOKEN_BYTES_MAX + 1)
        );
        for bad in [
            "{}",
            r#"{"access_token":"t"}"#,
            r#"{"access_token":"t","token_type":"DPoP"}"#,
            r#"{"access_token":"","token_type":"Bearer"}"#,
            r#"{"access_token":"a b","token_type":"Bearer"}"#,
            r#"{"access_token":"a\r\nX: y","token_type":"Bearer"}"#,
            &long,
        ] {
            assert!(
                matches!(read(bad), Err(SignInError::UnusableToken(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_token_that_is_to_be_bound_is_taken_bound_only() {
        let read = |kind: &str, bound| {
            let json = format!(r#"{{"access_token":"t","token_type":"{kind}"}}"#);
            IssuedTokens::parse(json.as_bytes(), 0, bound).is_ok()
        };
        assert!(read("DPoP", true) && read("Bearer", false));
        assert!(!read("Bearer", true) && !read("DPoP", false));
    }

    #[test]
    fn a_refusal_says_whether_a_person_is_needed() {
        let gone = TokenErrorResponse::parse(
            br#"{"error":"invalid_grant","error_description":"x\u001b"}"#,
            400,
        );
        assert!(gone.requires_sign_in());
        assert_eq!(gone.description, "invalid_grant (x)");
        let later = TokenErrorResponse::parse(br#"{"error":"temporarily_unavailable"}"#, 503);
        assert!(!later.requires_sign_in());
        assert_eq!(
            TokenErrorResponse::parse(b"<html>", 502).description,
            "HTTP 502"
        );
    }
}
