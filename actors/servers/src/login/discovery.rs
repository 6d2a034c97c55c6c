//! Discovers the authorization server of a server, by the rules of all MCP versions.

use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_engine::servers::login::discovery::{
    AuthorizationServer, ResourceMetadata, issuer_metadata_urls, resource_metadata_urls,
};
use mgp_engine::servers::login::{LoginConfig, quote_foreign_text};
use url::Url;

use super::LoginError;
use super::http_client::LoginHttpClient;

/// The result of discovery.
#[derive(Debug)]
pub(super) struct DiscoveredIssuer {
    /// The resource name for token requests; `None` if the server publishes none.
    pub(super) resource: Option<String>,
    /// The scopes that the server lists.
    pub(super) scopes: Vec<String>,
    /// The authorization server.
    pub(super) server: AuthorizationServer,
    /// True if it was found at the server's own origin, as in 2025-03-26.
    pub(super) is_from_origin: bool,
}

/// Discovers the authorization server: from the server's metadata, then from the issuer's.
pub(super) async fn discover(
    fetch: &LoginHttpClient,
    server: &Url,
    rules: &LoginConfig,
    challenge: Option<&LoginChallenge>,
) -> Result<DiscoveredIssuer, LoginError> {
    let named = challenge.and_then(|challenge| challenge.resource_metadata.as_deref());
    let mut published = None;
    for url in resource_metadata_urls(server, named) {
        if let Some(json) = fetch
            .fetch_document("the metadata of the server", &url)
            .await?
        {
            published = Some(ResourceMetadata::parse(&json, &url, server)?);
            break;
        }
    }
    let origin = server.origin().ascii_serialization();
    let Some(published) = published else {
        let issuer = rules.issuer.clone().unwrap_or_else(|| origin.clone());
        let by_origin = rules.issuer.is_none();
        let found = fetch_issuer(fetch, &issuer).await?;
        let server = match (found, by_origin) {
            (Some(found), _) => found,
            (None, true) => AuthorizationServer::without_metadata(&origin),
            (None, false) => return Err(not_found_error(&issuer)),
        };
        return Ok(DiscoveredIssuer {
            resource: None,
            scopes: Vec::new(),
            server,
            is_from_origin: by_origin,
        });
    };
    let issuer = published
        .issuer(rules.issuer.as_deref())?
        .unwrap_or(&origin);
    let server = fetch_issuer(fetch, issuer).await?;
    Ok(DiscoveredIssuer {
        server: server.ok_or_else(|| not_found_error(issuer))?,
        resource: Some(published.resource),
        scopes: published.scopes,
        is_from_origin: false,
    })
}

/// The first document decides: one of another issuer ends the search.
async fn fetch_issuer(
    fetch: &LoginHttpClient,
    issuer: &str,
) -> Result<Option<AuthorizationServer>, LoginError> {
    for url in issuer_metadata_urls(issuer) {
        if let Some(json) = fetch
            .fetch_document("the metadata of the issuer", &url)
            .await?
        {
            return Ok(Some(AuthorizationServer::parse(&json, &url, issuer)?));
        }
    }
    Ok(None)
}

fn not_found_error(issuer: &str) -> LoginError {
    LoginError::NoAnswer(format!(
        "the authorization server {} publishes no metadata",
        quote_foreign_text(issuer)
    ))
}
