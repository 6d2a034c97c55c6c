//! The authorization request and its response, through a person's browser.

use url::{Url, form_urlencoded};

use super::pkce::CodeVerifier;
use super::scopes::{OFFLINE_ACCESS, ScopeSet};
use super::{SignInError, parse_safe_url, quote_foreign_text};

/// An authorization request.
#[derive(Clone, Copy, Debug)]
pub struct AuthorizationRequest<'a> {
    /// The authorization endpoint.
    pub endpoint: &'a str,
    /// The client's id.
    pub client: &'a str,
    /// The redirect URI.
    pub callback: &'a str,
    /// Identifies this login.
    pub state: &'a str,
    /// The PKCE secret.
    pub verifier: &'a CodeVerifier,
    /// The resource that the token is for, if known.
    pub resource: Option<&'a str>,
    /// The requested scopes.
    pub scopes: &'a ScopeSet,
}

impl AuthorizationRequest<'_> {
    /// The address for the browser.
    ///
    /// # Errors
    /// [`SignInError::InsecureUrl`].
    pub fn url(&self) -> Result<String, SignInError> {
        let mut url: Url = parse_safe_url("the sign-in address", self.endpoint)?;
        let challenge = self.verifier.challenge();
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", self.client)
            .append_pair("redirect_uri", self.callback)
            .append_pair("state", self.state)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        if let Some(resource) = self.resource {
            query.append_pair("resource", resource);
        }
        if !self.scopes.is_empty() {
            query.append_pair("scope", &self.scopes.to_string());
        }
        // OpenID Connect issues a refresh token only with the person's consent.
        if self.scopes.covers(&ScopeSet::from_names([OFFLINE_ACCESS])) {
            query.append_pair("prompt", "consent");
        }
        drop(query);
        Ok(url.into())
    }
}

/// Checks of an authorization response.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedResponse<'a> {
    /// The state of this login.
    pub state: &'a str,
    /// The issuer of this login.
    pub issuer: &'a str,
    /// The issuer's metadata says that its responses name it (RFC 9207).
    pub sends_issuer: bool,
}

impl ExpectedResponse<'_> {
    /// The code in the query of the redirect.
    ///
    /// # Errors
    /// [`SignInError::UnknownState`] for a response to another login or with a repeated parameter: the login still
    /// waits. Every other error ends the login.
    pub fn parse_code(&self, query: &str) -> Result<String, SignInError> {
        let mut params = CallbackParams::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let param = match &*name {
                "state" => &mut params.state,
                "code" => &mut params.code,
                "iss" => &mut params.issuer,
                "error" => &mut params.error,
                "error_description" => &mut params.description,
                _ => continue,
            };
            if param.replace(value.into_owned()).is_some() {
                return Err(SignInError::UnknownState);
            }
        }
        if params.state.as_deref() != Some(self.state) {
            return Err(SignInError::UnknownState);
        }
        // Checked first: the rest of another issuer's response is untrusted.
        let named = match params.issuer {
            Some(issuer) if issuer != self.issuer => Some(quote_foreign_text(&issuer)),
            None if self.sends_issuer => {
                Some("nobody, though it says that it names itself".to_owned())
            }
            Some(_) | None => None,
        };
        if let Some(named) = named {
            return Err(SignInError::IssuerMixUp {
                named,
                wanted: quote_foreign_text(self.issuer),
            });
        }
        if let Some(error) = params.error {
            let description = params
                .description
                .map(|more| format!(" ({})", quote_foreign_text(&more)));
            return Err(SignInError::Rejected(
                quote_foreign_text(&error) + &description.unwrap_or_default(),
            ));
        }
        let code = params.code.filter(|code| !code.is_empty());
        code.ok_or_else(|| SignInError::Rejected("its answer holds no code".into()))
    }
}

#[derive(Default)]
struct CallbackParams {
    state: Option<String>,
    code: Option<String>,
    issuer: Option<String>,
    error: Option<String>,
    description: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(verifier: &'a CodeVerifier, scopes: &'a ScopeSet) -> AuthorizationRequest<'a> {
        AuthorizationRequest {
            endpoint: "https://as/authorize?tenant=1",
            client: "me & you",
            callback: "http://127.0.0.1:1/callback",
            state: "st",
            verifier,
            resource: Some("https://h/mcp"),
            scopes,
        }
    }

    #[test]
    fn the_request_has_pkce_state_and_resource() {
        let verifier = CodeVerifier::from_random([7; 32]);
        let url = request(&verifier, &ScopeSet::parse("a b")).url().unwrap();
        let url = Url::parse(&url).unwrap();
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        let has = |name: &str, value: &str| {
            let found = pairs.iter().filter(|(n, _)| n == name).collect::<Vec<_>>();
            assert_eq!(found.len(), 1, "{name}");
            assert_eq!(found[0].1, value, "{name}");
        };
        has("tenant", "1");
        has("response_type", "code");
        has("client_id", "me & you");
        has("state", "st");
        has("code_challenge_method", "S256");
        has("code_challenge", &verifier.challenge());
        has("resource", "https://h/mcp");
        has("scope", "a b");
        let none = request(&verifier, &ScopeSet::default()).url().unwrap();
        assert!(
            !none.contains("scope=") && !none.contains("prompt"),
            "{none}"
        );
        assert!(!none.contains(verifier.as_str()));
        let offline = request(&verifier, &ScopeSet::parse("offline_access"))
            .url()
            .unwrap();
        assert!(offline.contains("prompt=consent"), "{offline}");
    }

    fn parse(sends_issuer: bool, query: &str) -> Result<String, SignInError> {
        let expected = ExpectedResponse {
            state: "st",
            issuer: "https://as",
            sends_issuer,
        };
        expected.parse_code(query)
    }

    #[test]
    fn a_code_of_this_login_and_issuer_is_accepted() {
        assert_eq!(parse(false, "code=c%20d&state=st").unwrap(), "c d");
        assert_eq!(
            parse(true, "code=c&state=st&iss=https%3A%2F%2Fas").unwrap(),
            "c"
        );
    }

    #[test]
    fn a_response_to_another_login_leaves_this_one_waiting() {
        for stray in [
            "",
            "code=c",
            "code=c&state=other",
            "code=c&state=st&state=st",
            "code=c&code=d&state=st",
            "code=c&state=st&iss=https://as&iss=https://evil",
        ] {
            assert_eq!(
                parse(false, stray),
                Err(SignInError::UnknownState),
                "{stray}"
            );
        }
    }

    /// RFC 9207: compared exactly, and before an error is read.
    #[test]
    fn a_response_of_another_issuer_ends_the_login() {
        for (names, query) in [
            (true, "code=c&state=st"),
            (true, "code=c&state=st&iss=https://evil"),
            (true, "code=c&state=st&iss=https://as/"),
            (false, "code=c&state=st&iss=https://evil"),
            (true, "error=access_denied&state=st&iss=https://evil"),
        ] {
            assert!(
                matches!(parse(names, query), Err(SignInError::IssuerMixUp { .. })),
                "{query}"
            );
        }
    }

    #[test]
    fn a_rejection_is_reported_with_its_sanitized_description() {
        let refused = parse(
            false,
            "state=st&error=access_denied&error_description=no%1b%5B31m",
        );
        assert_eq!(
            refused,
            Err(SignInError::Rejected("access_denied (no[31m)".into()))
        );
        assert!(matches!(
            parse(false, "state=st&code="),
            Err(SignInError::Rejected(_))
        ));
    }
}
