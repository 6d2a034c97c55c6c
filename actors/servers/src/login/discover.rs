//! Finds out who signs the tokens of a server, by the rules of every version of MCP.

use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_engine::servers::login::discovery::{
    AuthorizationServer, ResourceMetadata, issuer_metadata_urls, resource_metadata_urls,
};
use mgp_engine::servers::login::{LoginRules, quoted};
use url::Url;

use super::LoginError;
use super::fetch::LoginFetch;

/// What was found.
#[derive(Debug)]
pub(super) struct FoundIssuer {
    /// The name of the server in requests for tokens; `None` for one that publishes none.
    pub(super) resource: Option<String>,
    /// The scopes it lists.
    pub(super) scopes: Vec<String>,
    /// Who signs.
    pub(super) server: AuthorizationServer,
    /// It was found at the server's own origin, as in 2025-03-26.
    pub(super) by_origin: bool,
}

/// Asks the server, then its authorization server.
pub(super) async fn discover(
    fetch: &LoginFetch,
    server: &Url,
    rules: &LoginRules,
    challenge: Option<&LoginChallenge>,
) -> Result<FoundIssuer, LoginError> {
    let named = challenge.and_then(|challenge| challenge.resource_metadata.as_deref());
    let mut published = None;
    for url in resource_metadata_urls(server, named) {
        if let Some(json) = fetch.document("the metadata of the server", &url).await? {
            published = Some(ResourceMetadata::read(&json, &url, server)?);
            break;
        }
    }
    let origin = server.origin().ascii_serialization();
    let Some(published) = published else {
        let issuer = rules.issuer.clone().unwrap_or_else(|| origin.clone());
        let by_origin = rules.issuer.is_none();
        let found = issuer_of(fetch, &issuer).await?;
        let server = match (found, by_origin) {
            (Some(found), _) => found,
            (None, true) => AuthorizationServer::unpublished(&origin),
            (None, false) => return Err(nowhere(&issuer)),
        };
        return Ok(FoundIssuer {
            resource: None,
            scopes: Vec::new(),
            server,
            by_origin,
        });
    };
    let issuer = published
        .issuer(rules.issuer.as_deref())?
        .unwrap_or(&origin);
    let server = issuer_of(fetch, issuer).await?;
    Ok(FoundIssuer {
        server: server.ok_or_else(|| nowhere(issuer))?,
        resource: Some(published.resource),
        scopes: published.scopes,
        by_origin: false,
    })
}

/// The first document counts: one of another issuer ends the search.
async fn issuer_of(
    fetch: &LoginFetch,
    issuer: &str,
) -> Result<Option<AuthorizationServer>, LoginError> {
    for url in issuer_metadata_urls(issuer) {
        if let Some(json) = fetch.document("the metadata of the issuer", &url).await? {
            return Ok(Some(AuthorizationServer::read(&json, &url, issuer)?));
        }
    }
    Ok(None)
}

fn nowhere(issuer: &str) -> LoginError {
    LoginError::NoAnswer(format!(
        "the authorization server {} publishes no metadata",
        quoted(issuer)
    ))
}
