//! Verifies tokens of an authorization server (OAuth 2.1): the source of its keys, their caching, and the
//! names of this resource in tokens.
//!
//! Verified tokens are cached until the keys change, because checking a signature costs more than a call.

mod source;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::doors::bearer::{self, BadBearerToken, BearerPolicy, IssuerKeys, VerifiedToken};
use mgp_engine::servers::login::discovery::RESOURCE_METADATA_PATH;
use mgp_engine::tools::catalog::CatalogView;
use mgp_sync::Snapshot;
use serde_json::json;

use mgp_callers::Credential;
use mgp_runtime::task;
use mgp_runtime::time::{monotonic_now, unix_ms};

pub use self::source::KeySource;

/// Cached tokens; at this number the cache is cleared.
const CACHED_TOKENS_MAX: usize = 4096;
/// Keys older than this are fetched again in the background.
const REFRESH_AGE: Duration = Duration::from_secs(600);
/// Keys older than this are not used, even if the issuer cannot be reached.
const KEYS_AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// The shortest time between two requests to the issuer, however many tokens name unknown keys.
const FETCH_INTERVAL: Duration = Duration::from_secs(5);

/// A resource server's side of OAuth.
#[derive(Debug)]
pub struct OAuth {
    policy: BearerPolicy,
    source: KeySource,
    resource: ProtectedResource,
    keys: Snapshot<CachedKeys>,
    /// When the issuer was last queried; locked during a query.
    last_fetch: tokio::sync::Mutex<Option<MonotonicTime>>,
    verified: Mutex<VerifiedTokens>,
}

/// Checked tokens, valid for the keys they were checked with.
#[derive(Debug, Default)]
struct VerifiedTokens {
    tokens: HashMap<(blake3::Hash, CatalogView), VerifiedToken>,
    keys: Arc<CachedKeys>,
}

/// The keys, and when they were fetched.
#[derive(Debug, Default)]
struct CachedKeys {
    keys: IssuerKeys,
    fetched_at: Option<MonotonicTime>,
}

impl CachedKeys {
    fn age(&self) -> Option<Duration> {
        let now = monotonic_now().since_start();
        self.fetched_at
            .map(|since| now.saturating_sub(since.since_start()))
    }

    fn is_younger(&self, than: Duration) -> bool {
        self.age().is_some_and(|age| age < than)
    }
}

/// The names of this resource.
#[derive(Debug, Clone)]
pub struct ProtectedResource {
    /// URLs of the `/mcp` endpoint, without a slash at the end; the first one is published.
    pub resources: Vec<String>,
    /// Other audiences that tokens may have.
    pub audiences: Vec<String>,
}

impl ProtectedResource {
    fn endpoint_path(view: &CatalogView) -> String {
        match view {
            CatalogView::All => String::new(),
            CatalogView::One(server) => format!("/{server}"),
            CatalogView::Set(set) => format!("/{SET_PREFIX}{set}"),
        }
    }

    /// The URL of an endpoint, for a client that used this `host`.
    fn resource_url(&self, view: &CatalogView, host: Option<&str>) -> String {
        let by_host = |url: &&String| host.is_some_and(|host| authority(url) == Some(host));
        let base = self
            .resources
            .iter()
            .find(by_host)
            .or(self.resources.first());
        let base = base.map_or("", String::as_str);
        format!("{base}{}", Self::endpoint_path(view))
    }

    /// The audiences that open an endpoint. A token for all servers opens each single one, but not vice
    /// versa.
    fn audiences(&self, view: &CatalogView) -> Vec<String> {
        let mut names = self.audiences.clone();
        for base in &self.resources {
            names.push(base.clone());
            if *view != CatalogView::All {
                names.push(format!("{base}{}", Self::endpoint_path(view)));
            }
        }
        names
    }

    /// The URL of an endpoint's metadata (RFC 9728, section 3.1).
    fn metadata_url(&self, view: &CatalogView, host: Option<&str>) -> String {
        let resource = self.resource_url(view, host);
        let begin = resource.find("://").map_or(0, |at| at + 3);
        let path = resource[begin..]
            .find('/')
            .map_or(resource.len(), |at| begin + at);
        format!("{}{WELL_KNOWN}{}", &resource[..path], &resource[path..])
    }
}

/// The path between `/mcp/` and the name of a set.
pub(crate) const SET_PREFIX: &str = "p/";

/// The well-known path of protected-resource metadata, followed by the path of the resource.
pub(crate) const WELL_KNOWN: &str = RESOURCE_METADATA_PATH;

fn authority(url: &str) -> Option<&str> {
    url.split_once("://")?.1.split('/').next()
}

impl OAuth {
    /// Keys are fetched for the first token.
    #[must_use]
    pub fn new(policy: BearerPolicy, source: KeySource, resource: ProtectedResource) -> Self {
        Self {
            policy,
            source,
            resource,
            keys: Snapshot::new(CachedKeys::default()),
            last_fetch: tokio::sync::Mutex::new(None),
            verified: Mutex::default(),
        }
    }

    /// The agent of a token at this endpoint.
    ///
    /// # Errors
    /// [`BadBearerToken`].
    pub(crate) async fn verify(
        self: &Arc<Self>,
        token: &str,
        view: &CatalogView,
    ) -> Result<Credential, BadBearerToken> {
        let held = self.keys.load();
        if held.is_younger(KEYS_AGE_MAX) && !held.is_younger(REFRESH_AGE) {
            let this = self.clone();
            task::spawn_detached("oauth.keys", async move { this.refresh().await });
        }
        let key = (blake3::hash(token.as_bytes()), view.clone());
        if let Some(token) = self.cached_token(&held, &key) {
            return Ok(to_credential(token));
        }
        let audiences = self.resource.audiences(view);
        let check = |held: &CachedKeys| {
            if held.is_younger(KEYS_AGE_MAX) {
                bearer::verify(token, &held.keys, &self.policy, &audiences, unix_ms())
            } else {
                Err(BadBearerToken::UnknownKey)
            }
        };
        let token = match check(&held) {
            Err(BadBearerToken::UnknownKey) => {
                self.refresh().await;
                check(&self.keys.load())?
            }
            verified => verified?,
        };
        self.cache_token(key, &token);
        Ok(to_credential(token))
    }

    fn cached_token(
        &self,
        held: &Arc<CachedKeys>,
        key: &(blake3::Hash, CatalogView),
    ) -> Option<VerifiedToken> {
        let verified = self.lock_verified();
        let current = Arc::ptr_eq(&verified.keys, held) && held.is_younger(KEYS_AGE_MAX);
        let token = verified.tokens.get(key).filter(|_| current)?;
        (token.not_after_ms > unix_ms()).then(|| token.clone())
    }

    fn cache_token(&self, key: (blake3::Hash, CatalogView), token: &VerifiedToken) {
        let held = self.keys.load();
        let mut verified = self.lock_verified();
        if verified.tokens.len() >= CACHED_TOKENS_MAX || !Arc::ptr_eq(&verified.keys, &held) {
            verified.tokens.clear();
            verified.keys = held;
        }
        verified.tokens.insert(key, token.clone());
    }

    fn lock_verified(&self) -> MutexGuard<'_, VerifiedTokens> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches the issuer's keys, unless they were fetched recently. If the issuer does not answer, the old
    /// keys stay.
    async fn refresh(&self) {
        let mut last_fetch = self.last_fetch.lock().await;
        let now = monotonic_now();
        let soon = |last: MonotonicTime| {
            now.since_start().saturating_sub(last.since_start()) < FETCH_INTERVAL
        };
        if last_fetch.is_some_and(soon) {
            return;
        }
        *last_fetch = Some(now);
        match self.source.fetch(&self.policy.issuer).await {
            Ok(keys) => {
                let since = Some(monotonic_now());
                self.keys.store(Arc::new(CachedKeys {
                    keys,
                    fetched_at: since,
                }));
            }
            Err(error) => {
                tracing::warn!(issuer = self.policy.issuer, %error, "the issuer's keys could not be fetched");
            }
        }
    }

    /// Protected-resource metadata (RFC 9728) of an endpoint, as JSON text.
    #[must_use]
    pub(crate) fn metadata(&self, view: &CatalogView, host: Option<&str>) -> String {
        let mut metadata = json!({
            "resource": self.resource.resource_url(view, host),
            "authorization_servers": [self.policy.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "mgp",
        });
        if !self.policy.scopes.is_empty() {
            metadata["scopes_supported"] = json!(self.policy.scopes);
        }
        metadata.to_string()
    }

    /// The parameters of a challenge beside the error: the URL of the metadata, and scopes.
    #[must_use]
    pub(crate) fn challenge_params(&self, view: &CatalogView, host: Option<&str>) -> String {
        let url = self.resource.metadata_url(view, host);
        match self.policy.scopes.as_slice() {
            [] => format!(r#"resource_metadata="{url}""#),
            scopes => format!(r#"resource_metadata="{url}", scope="{}""#, scopes.join(" ")),
        }
    }
}

fn to_credential(token: VerifiedToken) -> Credential {
    let credential = Credential::permanent(token.agent).with_groups(token.groups);
    credential.with_expiry(Some(token.not_after_ms))
}

#[cfg(test)]
mod tests {
    use mgp_protocol::ids::ServerId;

    use super::*;

    fn resource() -> ProtectedResource {
        ProtectedResource {
            resources: ["http://127.0.0.1:7/mcp", "http://localhost:7/mcp"]
                .map(Into::into)
                .to_vec(),
            audiences: vec!["api://door".into()],
        }
    }

    /// RFC 9728, section 3.1: the well-known path is between the host and the path.
    #[test]
    fn resource_urls_differ_by_endpoint() {
        let (all, one) = (CatalogView::All, CatalogView::One(ServerId::new("files")));
        assert_eq!(
            resource().resource_url(&all, None),
            "http://127.0.0.1:7/mcp"
        );
        assert_eq!(
            resource().resource_url(&one, Some("localhost:7")),
            "http://localhost:7/mcp/files"
        );
        assert_eq!(
            resource().resource_url(&all, Some("localhost:8")),
            "http://127.0.0.1:7/mcp"
        );
        let wanted = "http://127.0.0.1:7/.well-known/oauth-protected-resource/mcp/files";
        assert_eq!(resource().metadata_url(&one, None), wanted);
    }

    #[test]
    fn token_for_one_server_does_not_open_all() {
        let (all, one) = (CatalogView::All, CatalogView::One(ServerId::new("files")));
        let of_one = "http://127.0.0.1:7/mcp/files".to_owned();
        assert!(resource().audiences(&one).contains(&of_one));
        assert!(!resource().audiences(&all).contains(&of_one));
        assert!(
            resource()
                .audiences(&one)
                .contains(&"http://127.0.0.1:7/mcp".to_owned())
        );
        assert!(
            resource()
                .audiences(&all)
                .contains(&"api://door".to_owned())
        );
    }
}
