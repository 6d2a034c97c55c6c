//! Where a server says who signs its tokens (RFC 9728), and where that authorization server says how it is asked
//! (RFC 8414, OpenID Connect Discovery), in every version of MCP.

use serde::Deserialize;
use url::Url;

use super::{SignInError, parse_safe_url, quote_foreign_text};

/// Where protected-resource metadata is found; the path of the resource follows.
pub const RESOURCE_METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// What a client says to an endpoint (RFC 6749, 7009, 7523, 7636, 8707, 8693, 9101, 9126, OpenID Connect).
const OAUTH_PARAMETERS: [&str; 31] = [
    "access_token",
    "actor_token",
    "assertion",
    "audience",
    "client_assertion",
    "client_assertion_type",
    "client_id",
    "client_secret",
    "code",
    "code_challenge",
    "code_challenge_method",
    "code_verifier",
    "error",
    "grant_type",
    "id_token_hint",
    "iss",
    "login_hint",
    "nonce",
    "password",
    "prompt",
    "redirect_uri",
    "refresh_token",
    "request",
    "request_uri",
    "resource",
    "response_mode",
    "response_type",
    "scope",
    "state",
    "subject_token",
    "token",
];
/// Most authorization servers of one resource that are read.
const ISSUERS_MAX: usize = 20;

/// What a server publishes of itself (RFC 9728).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceMetadata {
    /// Its name in requests for tokens, letter by letter.
    pub resource: String,
    /// The issuers whose tokens it takes.
    pub(crate) issuers: Vec<String>,
    /// The scopes it knows.
    pub scopes: Vec<String>,
}

#[derive(Deserialize)]
struct ResourceDocument {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Option<Vec<String>>,
}

/// Where the metadata of the server at this address may be, in the order in which they are asked: where its
/// challenge says, and only there; else beside its path, then at the root.
#[must_use]
pub fn resource_metadata_urls(server: &Url, challenged: Option<&str>) -> Vec<String> {
    if let Some(named) = challenged {
        return vec![named.to_owned()];
    }
    let origin = server.origin().ascii_serialization();
    let path = server.path().trim_end_matches('/');
    let mut urls = vec![format!("{origin}{RESOURCE_METADATA_PATH}{path}")];
    if !path.is_empty() {
        urls.push(format!("{origin}{RESOURCE_METADATA_PATH}"));
    }
    urls
}

impl ResourceMetadata {
    /// Reads the document that was found `at` an address, for the server at `server`.
    ///
    /// # Errors
    /// It is none, or one of another server: the resource has to be the server's address, or lie above it on
    /// the same origin.
    pub fn parse(json: &[u8], at: &str, server: &Url) -> Result<Self, SignInError> {
        let written: ResourceDocument = parse_document("its metadata", json, at)?;
        if !covers_server(&written.resource, server) {
            return Err(SignInError::ResourceMismatch {
                named: quote_foreign_text(&written.resource),
                wanted: canonical_resource(server),
            });
        }
        Ok(Self {
            resource: written.resource,
            issuers: written
                .authorization_servers
                .into_iter()
                .take(ISSUERS_MAX)
                .collect(),
            scopes: written.scopes_supported.unwrap_or_default(),
        })
    }

    /// The issuer to ask: that of the entry, which has to be among them, or the first.
    ///
    /// # Errors
    /// [`SignInError::IssuerNotOffered`].
    pub fn issuer(&self, configured: Option<&str>) -> Result<Option<&str>, SignInError> {
        let Some(wanted) = configured else {
            return Ok(self.issuers.first().map(String::as_str));
        };
        let found = self.issuers.iter().find(|issuer| *issuer == wanted);
        found
            .map(|issuer| Some(issuer.as_str()))
            .ok_or_else(|| SignInError::IssuerNotOffered {
                named: quote_foreign_text(&self.issuers.join(", ")),
                wanted: wanted.to_owned(),
            })
    }
}

/// A resource is the server's address or above it: on the same origin, and its path ends where a part of the
/// server's does.
fn covers_server(resource: &str, server: &Url) -> bool {
    let Ok(url) = Url::parse(resource) else {
        return false;
    };
    let above = url.path().trim_end_matches('/');
    let rest = server.path().strip_prefix(above);
    let within = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let plain = url.fragment().is_none() && url.username().is_empty() && url.password().is_none();
    let query = url
        .query()
        .is_none_or(|query| server.query() == Some(query));
    plain && query && url.origin().is_tuple() && url.origin() == server.origin() && within
}

fn canonical_resource(url: &Url) -> String {
    mgp_protocol::redacted_url::redact_url(url.as_str())
}

/// Where the metadata of an issuer may be, in order. One with a path is never asked for at the root, which may
/// be another tenant's.
#[must_use]
pub fn issuer_metadata_urls(issuer: &str) -> Vec<String> {
    let begin = issuer.find("://").map_or(0, |at| at + 3);
    let end = issuer[begin..]
        .find('/')
        .map_or(issuer.len(), |at| begin + at);
    let (origin, path) = (&issuer[..end], issuer[end..].trim_end_matches('/'));
    let mut urls = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        urls.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    urls
}

/// What an authorization server says of itself, as far as a client needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationServer {
    /// Its name, letter by letter.
    pub issuer: String,
    /// Where a person signs in.
    pub authorization_endpoint: Option<String>,
    /// Where codes and refresh tokens become tokens.
    pub token_endpoint: String,
    /// Where clients register.
    pub(crate) registration_endpoint: Option<String>,
    /// Where tokens are taken back (RFC 7009).
    pub(crate) revocation_endpoint: Option<String>,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// How clients may show who they are; `None` where it does not say.
    pub(crate) auth_methods: Option<Vec<String>>,
    /// How tokens may be got; `None` where it does not say.
    pub grants: Option<Vec<String>>,
    /// A client's own document is its registration.
    pub(crate) supports_client_documents: bool,
    /// Its answers to a browser name it (RFC 9207).
    pub sends_issuer: bool,
    /// What it says of PKCE.
    pub(super) pkce: Pkce,
}

/// What an authorization server says of PKCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pkce {
    S256,
    /// It does not say, as in 2025-03-26 it need not.
    Unspecified,
    Unsupported,
}

#[derive(Deserialize)]
struct AuthorizationServerDocument {
    issuer: String,
    #[serde(default)]
    authorization_endpoint: Option<String>,
    token_endpoint: String,
    #[serde(default)]
    registration_endpoint: Option<String>,
    #[serde(default)]
    revocation_endpoint: Option<String>,
    #[serde(default)]
    scopes_supported: Option<Vec<String>>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    grant_types_supported: Option<Vec<String>>,
    #[serde(default)]
    code_challenge_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    client_id_metadata_document_supported: Option<bool>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: Option<bool>,
}

impl AuthorizationServer {
    /// Reads the document of an issuer that was found `at` an address.
    ///
    /// # Errors
    /// It is none, one of another issuer, or names an endpoint that is not safe.
    pub fn parse(json: &[u8], at: &str, issuer: &str) -> Result<Self, SignInError> {
        let written: AuthorizationServerDocument =
            parse_document("the metadata of its authorization server", json, at)?;
        if written.issuer != issuer {
            return Err(SignInError::IssuerMismatch {
                named: quote_foreign_text(&written.issuer),
                wanted: quote_foreign_text(issuer),
            });
        }
        let endpoints = [
            (
                "the sign-in address",
                written.authorization_endpoint.as_ref(),
            ),
            ("the token address", Some(&written.token_endpoint)),
            (
                "the registration address",
                written.registration_endpoint.as_ref(),
            ),
            (
                "the revocation address",
                written.revocation_endpoint.as_ref(),
            ),
        ];
        for (what, endpoint) in endpoints {
            endpoint.map_or(Ok(()), |url| check_query(what, &parse_safe_url(what, url)?))?;
        }
        Ok(Self {
            issuer: written.issuer,
            authorization_endpoint: written.authorization_endpoint,
            token_endpoint: written.token_endpoint,
            registration_endpoint: written.registration_endpoint,
            revocation_endpoint: written.revocation_endpoint,
            scopes: written.scopes_supported.unwrap_or_default(),
            auth_methods: written.token_endpoint_auth_methods_supported,
            grants: written.grant_types_supported,
            supports_client_documents: written.client_id_metadata_document_supported == Some(true),
            sends_issuer: written.authorization_response_iss_parameter_supported == Some(true),
            pkce: match written.code_challenge_methods_supported {
                Some(methods) if methods.iter().any(|method| method == "S256") => Pkce::S256,
                Some(_) => Pkce::Unsupported,
                None => Pkce::Unspecified,
            },
        })
    }

    /// The server of 2025-03-26 that publishes nothing: at the origin, with the endpoints of that version.
    #[must_use]
    pub fn without_metadata(origin: &str) -> Self {
        let at = |path: &str| format!("{origin}{path}");
        Self {
            issuer: origin.to_owned(),
            authorization_endpoint: Some(at("/authorize")),
            token_endpoint: at("/token"),
            registration_endpoint: Some(at("/register")),
            revocation_endpoint: None,
            scopes: Vec::new(),
            auth_methods: None,
            grants: None,
            supports_client_documents: false,
            sends_issuer: false,
            pkce: Pkce::Unspecified,
        }
    }

    /// Whether a browser may be sent there. `by_origin`: it was found as 2025-03-26 finds it, where nothing says
    /// that a server must publish what it knows of PKCE; a verifier is sent there all the same.
    ///
    /// # Errors
    /// [`SignInError::PkceUnsupported`].
    pub fn check_pkce(&self, by_origin: bool) -> Result<(), SignInError> {
        match (self.pkce, by_origin) {
            (Pkce::S256, _) | (Pkce::Unspecified, true) => Ok(()),
            (Pkce::Unsupported, _) | (Pkce::Unspecified, false) => {
                Err(SignInError::PkceUnsupported {
                    issuer: quote_foreign_text(&self.issuer),
                })
            }
        }
    }

    /// Whether a code that its sign-in page gives out can only be its own: its answers name it, the page is on its
    /// own origin, or the operator has named it (`vouched`).
    ///
    /// # Errors
    /// [`SignInError::ForeignSignInPage`].
    pub fn check_sign_in_page(&self, vouched: bool) -> Result<(), SignInError> {
        let origin = |text: &str| Url::parse(text).ok().map(|url| url.origin());
        let page = self.authorization_endpoint.as_deref().and_then(origin);
        match (page, origin(&self.issuer)) {
            (Some(page), issuer)
                if issuer.as_ref() != Some(&page) && !self.sends_issuer && !vouched =>
            {
                Err(SignInError::ForeignSignInPage {
                    issuer: quote_foreign_text(&self.issuer),
                    page: page.ascii_serialization(),
                })
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// Whether tokens may be got so, as far as it says.
    #[must_use]
    pub(crate) fn supports_grant(&self, grant: &str) -> bool {
        let named = self.grants.as_ref();
        named.is_none_or(|named| named.iter().any(|it| it == grant))
    }
}

/// An endpoint that says nothing in its query that only a client says: of two with one name a server may take either.
fn check_query(what: &'static str, endpoint: &Url) -> Result<(), SignInError> {
    let said = endpoint.query_pairs().find(|(name, _)| {
        let name = name.to_ascii_lowercase();
        OAUTH_PARAMETERS.contains(&name.as_str())
    });
    said.map_or(Ok(()), |(name, _)| {
        Err(SignInError::ForbiddenQuery {
            what,
            parameter: quote_foreign_text(&name),
        })
    })
}

fn parse_document<T: serde::de::DeserializeOwned>(
    what: &'static str,
    json: &[u8],
    at: &str,
) -> Result<T, SignInError> {
    serde_json::from_slice(json).map_err(|error| SignInError::Document {
        what,
        at: quote_foreign_text(at),
        why: quote_foreign_text(&error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn resource(named: &str, server: &str) -> Result<ResourceMetadata, SignInError> {
        let json = format!(
            r#"{{"resource": "{named}", "authorization_servers": ["https://as"], "x": 1}}"#
        );
        ResourceMetadata::parse(json.as_bytes(), "https://h/m", &url(server))
    }

    fn server(more: &str) -> Result<AuthorizationServer, SignInError> {
        let json = format!(r#"{{"issuer": "https://as", "token_endpoint": "https://as/t"{more}}}"#);
        AuthorizationServer::parse(json.as_bytes(), "https://as/m", "https://as")
    }

    #[test]
    fn every_place_of_every_version_is_asked_in_order() {
        let at = |server, challenged| resource_metadata_urls(&url(server), challenged);
        assert_eq!(
            at("https://h:1/a/mcp?x", None),
            [
                "https://h:1/.well-known/oauth-protected-resource/a/mcp",
                "https://h:1/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(
            at("https://h", None),
            ["https://h/.well-known/oauth-protected-resource"]
        );
        assert_eq!(at("https://h/mcp", Some("https://h/x")), ["https://h/x"]);
        assert_eq!(
            issuer_metadata_urls("https://as/t1/"),
            [
                "https://as/.well-known/oauth-authorization-server/t1",
                "https://as/.well-known/openid-configuration/t1",
                "https://as/t1/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            issuer_metadata_urls("https://as"),
            [
                "https://as/.well-known/oauth-authorization-server",
                "https://as/.well-known/openid-configuration"
            ]
        );
    }

    #[test]
    fn a_document_of_another_server_is_not_used() {
        for good in [
            "https://h/a/mcp",
            "https://h/a",
            "https://h",
            "https://h/",
            "https://h:443/a/",
        ] {
            assert_eq!(resource(good, "https://h/a/mcp").unwrap().resource, good);
        }
        for bad in [
            "https://evil/a/mcp",
            "http://h/a/mcp",
            "https://h:8/a/mcp",
            "https://h/a/mc",
            "https://h/a/mcp/b",
            "https://h/a/mcp#x",
            "https://u@h/a/mcp",
            "https://h/a/mcp?t=2",
            "h",
        ] {
            assert!(
                matches!(
                    resource(bad, "https://h/a/mcp"),
                    Err(SignInError::ResourceMismatch { .. })
                ),
                "{bad}"
            );
        }
    }

    #[test]
    fn the_issuer_of_the_entry_has_to_be_among_those_of_the_server() {
        let found = resource("https://h", "https://h").unwrap();
        assert_eq!(found.issuer(None).unwrap(), Some("https://as"));
        assert_eq!(
            found.issuer(Some("https://as")).unwrap(),
            Some("https://as")
        );
        assert!(matches!(
            found.issuer(Some("https://as/")),
            Err(SignInError::IssuerNotOffered { .. })
        ));
    }

    /// Letter by letter: a slash more is another issuer.
    #[test]
    fn a_document_of_another_issuer_is_not_used() {
        let json = br#"{"issuer": "https://as/", "token_endpoint": "https://as/t"}"#;
        let read = AuthorizationServer::parse(json, "https://as/m", "https://as");
        assert!(matches!(read, Err(SignInError::IssuerMismatch { .. })));
        assert!(server("").is_ok());
    }

    #[test]
    fn no_endpoint_leads_where_somebody_could_listen() {
        for bad in [
            r#", "authorization_endpoint": "javascript:alert(1)""#,
            r#", "registration_endpoint": "http://as/r""#,
            r#", "revocation_endpoint": "ftp://as/r""#,
        ] {
            assert!(
                matches!(server(bad), Err(SignInError::InsecureUrl { .. })),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_server_without_pkce_gets_no_browser() {
        let with = |methods: &str| {
            server(&format!(
                r#", "code_challenge_methods_supported": {methods}"#
            ))
        };
        assert!(
            with(r#"["plain", "S256"]"#)
                .unwrap()
                .check_pkce(false)
                .is_ok()
        );
        for by_origin in [false, true] {
            assert!(with(r#"["plain"]"#).unwrap().check_pkce(by_origin).is_err());
            assert!(with("[]").unwrap().check_pkce(by_origin).is_err());
        }
        assert!(server("").unwrap().check_pkce(false).is_err());
        assert!(server("").unwrap().check_pkce(true).is_ok());
        assert!(
            AuthorizationServer::without_metadata("https://h")
                .check_pkce(true)
                .is_ok()
        );
    }

    /// A server that dictates what a client says there could have a browser sign in for somebody else.
    #[test]
    fn an_endpoint_says_nothing_for_the_client() {
        for bad in [
            "client_id=x",
            "a=1&Redirect_URI=http://h",
            "state=s",
            "code_challenge=x",
        ] {
            let told = server(&format!(
                r#", "authorization_endpoint": "https://as/a?{bad}""#
            ));
            assert!(
                matches!(told, Err(SignInError::ForbiddenQuery { .. })),
                "{bad}: {told:?}"
            );
        }
        assert!(server(r#", "authorization_endpoint": "https://as/a?tenant=1""#).is_ok());
    }

    /// Mix-up: metadata of one server with the sign-in page of another one.
    #[test]
    fn a_page_of_another_server_is_opened_only_where_its_answers_are_told_apart() {
        let at = |page: &str, more: &str| {
            let page = format!(r#", "authorization_endpoint": "{page}"{more}"#);
            server(&page).unwrap()
        };
        let other = at("https://honest/authorize", "");
        assert!(matches!(
            other.check_sign_in_page(false),
            Err(SignInError::ForeignSignInPage { .. })
        ));
        assert!(
            at("https://as:444/authorize", "")
                .check_sign_in_page(false)
                .is_err()
        );
        assert!(other.check_sign_in_page(true).is_ok());
        assert!(
            at("https://as/authorize", "")
                .check_sign_in_page(false)
                .is_ok()
        );
        let names = r#", "authorization_response_iss_parameter_supported": true"#;
        assert!(
            at("https://honest/authorize", names)
                .check_sign_in_page(false)
                .is_ok()
        );
    }
}
