//! OAuth at the HTTP endpoint: tokens of an authorization server (OAuth 2.1) or of the kernel's own broker, their binding
//! to keys (DPoP), and the names of this resource.
//!
//! Verified tokens of an authorization server are cached until its keys change, because checking a signature costs more
//! than a call.

pub(crate) mod broker;
mod keys;
mod source;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::doors::bearer::{self, BadBearerToken, BearerPolicy, VerifiedToken};
use mgp_engine::doors::dpop::{BadProof, ProofReplays, ProvenRequest, verify_proof};
use mgp_engine::servers::login::discovery::RESOURCE_METADATA_PATH;
use mgp_engine::tools::catalog::CatalogView;
use serde_json::json;

use mgp_callers::Credential;
use mgp_runtime::time::unix_ms;

use self::broker::Broker;
use self::keys::{CachedKeys, KeyCache};
pub use self::source::KeySource;

/// Cached tokens; at this number the cache is cleared.
const CACHED_TOKENS_MAX: usize = 4096;

/// A resource server's side of OAuth.
#[derive(Debug)]
pub struct OAuth {
    tokens: TokenSource,
    resource: ProtectedResource,
    /// Whether only tokens that are bound to a key are accepted.
    require_dpop: bool,
    replays: Mutex<ProofReplays>,
}

/// Who issues the accepted tokens.
#[derive(Debug)]
pub enum TokenSource {
    /// An authorization server that registers clients by itself.
    Issuer(Box<IssuerTokens>),
    /// The kernel, for people who sign in at an identity provider.
    Broker(Arc<Broker>),
}

/// The verification of an authorization server's tokens.
#[derive(Debug)]
pub struct IssuerTokens {
    policy: BearerPolicy,
    keys: Arc<KeyCache>,
    verified: Mutex<VerifiedTokens>,
}

/// Checked tokens, valid for the keys they were checked with.
#[derive(Debug, Default)]
struct VerifiedTokens {
    tokens: HashMap<(blake3::Hash, CatalogView), VerifiedToken>,
    keys: Arc<CachedKeys>,
}

/// A verified access token, and the key it is bound to.
#[derive(Debug)]
pub(crate) struct AccessToken {
    credential: Credential,
    bound_to: Option<String>,
}

/// The scheme of the header `Authorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenScheme {
    Bearer,
    Dpop,
}

/// A token as it is sent, with the request that carries it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentToken<'r> {
    pub(crate) scheme: TokenScheme,
    pub(crate) token: &'r str,
    /// The only header `DPoP`.
    pub(crate) proof: Option<&'r str>,
    pub(crate) method: &'r str,
    pub(crate) path: &'r str,
}

/// Why a token is rejected.
#[derive(Debug)]
pub(crate) enum TokenError {
    Token(BadBearerToken),
    /// It is no valid token of the broker.
    Unknown,
    Proof(BadProof),
}

/// How a client is told where tokens come from.
#[derive(Debug)]
pub(crate) struct Challenge {
    pub(crate) scheme: &'static str,
    pub(crate) params: String,
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

    /// The URLs that a client may have used for this path.
    fn request_urls(&self, path: &str) -> Vec<String> {
        let bases = self.resources.iter().map(|url| broker::origin(url));
        bases.map(|base| format!("{base}{path}")).collect()
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

impl IssuerTokens {
    /// Keys are fetched for the first token.
    #[must_use]
    pub fn new(policy: BearerPolicy, source: KeySource) -> Self {
        Self {
            keys: KeyCache::new(policy.issuer.clone(), source),
            policy,
            verified: Mutex::default(),
        }
    }

    async fn verify(
        &self,
        token: &str,
        view: &CatalogView,
        resource: &ProtectedResource,
    ) -> Result<VerifiedToken, BadBearerToken> {
        let key = (blake3::hash(token.as_bytes()), view.clone());
        if let Some(token) = self.cached_token(&self.keys.load(), &key) {
            return Ok(token);
        }
        let audiences = resource.audiences(view);
        let verified = self
            .keys
            .verify(|keys| bearer::verify(token, keys, &self.policy, &audiences, unix_ms()));
        let verified = verified.await?;
        self.cache_token(key, &verified);
        Ok(verified)
    }

    fn cached_token(
        &self,
        held: &Arc<CachedKeys>,
        key: &(blake3::Hash, CatalogView),
    ) -> Option<VerifiedToken> {
        let verified = self.lock_verified();
        let current = Arc::ptr_eq(&verified.keys, held) && held.is_usable();
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
}

impl OAuth {
    /// Accepts these tokens; with `require_dpop` only ones that are bound to a key.
    #[must_use]
    pub fn new(tokens: TokenSource, resource: ProtectedResource, require_dpop: bool) -> Self {
        Self {
            tokens,
            resource,
            require_dpop,
            replays: Mutex::default(),
        }
    }

    /// The broker, if it issues the tokens.
    pub(crate) fn broker(&self) -> Option<&Arc<Broker>> {
        match &self.tokens {
            TokenSource::Broker(broker) => Some(broker),
            TokenSource::Issuer(_) => None,
        }
    }

    /// The agent of a token at this endpoint.
    ///
    /// # Errors
    /// [`TokenError`].
    pub(crate) async fn verify(
        &self,
        sent: SentToken<'_>,
        view: &CatalogView,
    ) -> Result<Credential, TokenError> {
        let found = match &self.tokens {
            TokenSource::Issuer(tokens) => {
                let verified = tokens.verify(sent.token, view, &self.resource).await;
                let verified = verified.map_err(TokenError::Token)?;
                AccessToken {
                    credential: Credential::permanent(verified.agent)
                        .with_groups(verified.groups)
                        .with_expiry(Some(verified.not_after_ms)),
                    bound_to: verified.bound_to,
                }
            }
            TokenSource::Broker(broker) => {
                let audiences = self.resource.audiences(view);
                broker.authenticate(sent.token, &audiences)?
            }
        };
        self.check_binding(sent, &found)
            .map_err(TokenError::Proof)?;
        Ok(found.credential)
    }

    /// A bound token is worth nothing without a proof of its key, for this request (RFC 9449, section 7).
    fn check_binding(&self, sent: SentToken<'_>, found: &AccessToken) -> Result<(), BadProof> {
        let key = match (&found.bound_to, sent.scheme) {
            (None, TokenScheme::Bearer) if !self.require_dpop => return Ok(()),
            (Some(key), TokenScheme::Dpop) => key,
            (None | Some(_), TokenScheme::Bearer) | (None, TokenScheme::Dpop) => {
                return Err(BadProof::Scheme);
            }
        };
        let request = ProvenRequest {
            method: sent.method,
            urls: &self.resource.request_urls(sent.path),
            token: Some(sent.token),
        };
        let proof = sent.proof.ok_or(BadProof::Missing)?;
        let proof = verify_proof(proof, request, unix_ms())?;
        if proof.key != *key {
            return Err(BadProof::OtherKey);
        }
        let mut replays = self.replays.lock().unwrap_or_else(PoisonError::into_inner);
        replays.remember(&proof, &found.credential.agent, unix_ms())
    }

    fn issuer(&self) -> &str {
        match &self.tokens {
            TokenSource::Issuer(tokens) => &tokens.policy.issuer,
            TokenSource::Broker(broker) => broker.issuer(),
        }
    }

    fn scopes(&self) -> &[String] {
        match &self.tokens {
            TokenSource::Issuer(tokens) => &tokens.policy.scopes,
            TokenSource::Broker(_) => &[],
        }
    }

    /// Protected-resource metadata (RFC 9728) of an endpoint, as JSON text.
    #[must_use]
    pub(crate) fn metadata(&self, view: &CatalogView, host: Option<&str>) -> String {
        let mut metadata = json!({
            "resource": self.resource.resource_url(view, host),
            "authorization_servers": [self.issuer()],
            "bearer_methods_supported": ["header"],
            "resource_name": "mgp",
            "dpop_signing_alg_values_supported": broker::DPOP_ALGORITHMS,
        });
        if !self.scopes().is_empty() {
            metadata["scopes_supported"] = json!(self.scopes());
        }
        if self.require_dpop {
            metadata["dpop_bound_access_tokens_required"] = json!(true);
        }
        metadata.to_string()
    }

    /// The parameters of a challenge beside the error: the URL of the metadata, and scopes. Of the scheme `DPoP` where
    /// tokens must be bound, and after a bad proof.
    #[must_use]
    pub(crate) fn challenge(
        &self,
        view: &CatalogView,
        host: Option<&str>,
        is_bad_proof: bool,
    ) -> Challenge {
        let url = self.resource.metadata_url(view, host);
        let mut params = format!(r#"resource_metadata="{url}""#);
        if !self.scopes().is_empty() {
            params.push_str(&format!(r#", scope="{}""#, self.scopes().join(" ")));
        }
        if self.require_dpop || is_bad_proof {
            params.push_str(&format!(
                r#", algs="{}""#,
                broker::DPOP_ALGORITHMS.join(" ")
            ));
            return Challenge {
                scheme: "DPoP",
                params,
            };
        }
        Challenge {
            scheme: "Bearer",
            params,
        }
    }
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

    /// A proof names the URL that the client used, whatever name of this machine that has.
    #[test]
    fn request_urls_follow_the_names_of_the_resource() {
        let urls = resource().request_urls("/mcp/files");
        assert_eq!(
            urls,
            [
                "http://127.0.0.1:7/mcp/files",
                "http://localhost:7/mcp/files"
            ]
        );
        for (resource, wanted) in [
            ("https://h/mcp", "https://h"),
            ("https://h/gateway/mcp", "https://h/gateway"),
            ("https://h/other", "https://h"),
            ("https://h", "https://h"),
        ] {
            assert_eq!(broker::origin(resource), wanted);
        }
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
