//! The tokens of an authorization server (OAuth 2.1): where its keys come from, how long they are held,
//! and what this door is called in its tokens.
//!
//! A token that was judged once is not judged again before its keys change: a signature costs more than
//! a call.

mod source;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::doors::bearer::{self, BadBearerToken, BearerPolicy, Good, Keys};
use mgp_engine::tools::catalog::CatalogView;
use mgp_sync::Snapshot;
use serde_json::json;

use mgp_callers::credential::Credential;
use mgp_runtime::task;
use mgp_runtime::time::{moment, unix_ms};

pub use self::source::KeySource;

/// Judged tokens remembered; at the bound all are forgotten, and each is judged once more.
const REMEMBERED: usize = 4096;
/// Keys older than this are fetched anew beside the requests that use them.
const FRESH: Duration = Duration::from_secs(600);
/// Keys older than this are not used any more, though the issuer cannot be reached.
const STALE: Duration = Duration::from_secs(24 * 3600);
/// However many tokens name keys that nobody knows, the issuer is asked once in this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// A resource server's side of OAuth.
#[derive(Debug)]
pub struct OAuth {
    policy: BearerPolicy,
    source: KeySource,
    place: ProtectedResource,
    held: Snapshot<CachedKeys>,
    /// When the issuer was last asked; held while it is.
    asked: tokio::sync::Mutex<Option<MonotonicTime>>,
    judged: Mutex<Judged>,
}

/// Judged tokens, and the keys they were judged by.
#[derive(Debug, Default)]
struct Judged {
    tokens: HashMap<(blake3::Hash, CatalogView), Good>,
    by: Arc<CachedKeys>,
}

/// The keys, and since when.
#[derive(Debug, Default)]
struct CachedKeys {
    keys: Keys,
    since: Option<MonotonicTime>,
}

impl CachedKeys {
    fn age(&self) -> Option<Duration> {
        let now = moment().since_start();
        self.since
            .map(|since| now.saturating_sub(since.since_start()))
    }

    fn is_younger(&self, than: Duration) -> bool {
        self.age().is_some_and(|age| age < than)
    }
}

/// What a door is called by those who ask for tokens for it.
#[derive(Debug, Clone)]
pub struct ProtectedResource {
    /// URLs of the endpoint that shows everything, the first of which is told; no slash at the end.
    pub resources: Vec<String>,
    /// Other names by which tokens may mean it.
    pub audiences: Vec<String>,
}

impl ProtectedResource {
    fn path(view: &CatalogView) -> String {
        match view {
            CatalogView::All => String::new(),
            CatalogView::One(server) => format!("/{server}"),
        }
    }

    /// The URL of an endpoint, as the client that came by `host` writes it.
    fn resource(&self, view: &CatalogView, host: Option<&str>) -> String {
        let by_host = |url: &&String| host.is_some_and(|host| authority(url) == Some(host));
        let base = self
            .resources
            .iter()
            .find(by_host)
            .or(self.resources.first());
        let base = base.map_or("", String::as_str);
        format!("{base}{}", Self::path(view))
    }

    /// The names that open an endpoint. What is for everything opens each server, and not the other
    /// way round.
    fn audiences(&self, view: &CatalogView) -> Vec<String> {
        let mut names = self.audiences.clone();
        for base in &self.resources {
            names.push(base.clone());
            if *view != CatalogView::All {
                names.push(format!("{base}{}", Self::path(view)));
            }
        }
        names
    }

    /// Where the metadata of an endpoint is (RFC 9728, section 3.1).
    fn metadata_url(&self, view: &CatalogView, host: Option<&str>) -> String {
        let resource = self.resource(view, host);
        let begin = resource.find("://").map_or(0, |at| at + 3);
        let path = resource[begin..]
            .find('/')
            .map_or(resource.len(), |at| begin + at);
        format!("{}{WELL_KNOWN}{}", &resource[..path], &resource[path..])
    }
}

/// Where protected-resource metadata is found; the path of the resource follows.
pub const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

fn authority(url: &str) -> Option<&str> {
    url.split_once("://")?.1.split('/').next()
}

impl OAuth {
    /// Nothing is asked before the first token comes.
    #[must_use]
    pub fn new(policy: BearerPolicy, source: KeySource, place: ProtectedResource) -> Self {
        Self {
            policy,
            source,
            place,
            held: Snapshot::new(CachedKeys::default()),
            asked: tokio::sync::Mutex::new(None),
            judged: Mutex::default(),
        }
    }

    /// Whom a token lets in, at this endpoint.
    ///
    /// # Errors
    /// [`BadBearerToken`].
    pub async fn judge(
        self: &Arc<Self>,
        token: &str,
        view: &CatalogView,
    ) -> Result<Credential, BadBearerToken> {
        let held = self.held.load();
        if held.is_younger(STALE) && !held.is_younger(FRESH) {
            let this = self.clone();
            task::detached("token keys", async move { this.refresh().await });
        }
        let mark = (blake3::hash(token.as_bytes()), view.clone());
        if let Some(good) = self.remembered(&held, &mark) {
            return Ok(pass(good));
        }
        let audiences = self.place.audiences(view);
        let judge = |held: &CachedKeys| match held.is_younger(STALE) {
            true => bearer::judge(token, &held.keys, &self.policy, &audiences, unix_ms()),
            false => Err(BadBearerToken::UnknownKey),
        };
        let good = match judge(&held) {
            Err(BadBearerToken::UnknownKey) => {
                self.refresh().await;
                judge(&self.held.load())?
            }
            judged => judged?,
        };
        self.remember(mark, &good);
        Ok(pass(good))
    }

    fn remembered(
        &self,
        held: &Arc<CachedKeys>,
        mark: &(blake3::Hash, CatalogView),
    ) -> Option<Good> {
        let judged = self.judged();
        let current = Arc::ptr_eq(&judged.by, held) && held.is_younger(STALE);
        let good = judged.tokens.get(mark).filter(|_| current)?;
        (good.not_after_ms > unix_ms()).then(|| good.clone())
    }

    fn remember(&self, mark: (blake3::Hash, CatalogView), good: &Good) {
        let held = self.held.load();
        let mut judged = self.judged();
        if judged.tokens.len() >= REMEMBERED || !Arc::ptr_eq(&judged.by, &held) {
            judged.tokens.clear();
            judged.by = held;
        }
        judged.tokens.insert(mark, good.clone());
    }

    fn judged(&self) -> MutexGuard<'_, Judged> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the issuer for its keys, unless it was asked a moment ago. What was held stays when it
    /// does not answer.
    async fn refresh(&self) {
        let mut asked = self.asked.lock().await;
        let now = moment();
        let soon =
            |last: MonotonicTime| now.since_start().saturating_sub(last.since_start()) < PATIENCE;
        if asked.is_some_and(soon) {
            return;
        }
        *asked = Some(now);
        match self.source.fetch(&self.policy.issuer).await {
            Ok(keys) => {
                let since = Some(moment());
                self.held.store(Arc::new(CachedKeys { keys, since }));
            }
            Err(error) => {
                tracing::warn!(issuer = self.policy.issuer, %error, "the issuer's keys could not be fetched");
            }
        }
    }

    /// Protected-resource metadata (RFC 9728) of an endpoint, as JSON text.
    #[must_use]
    pub fn metadata(&self, view: &CatalogView, host: Option<&str>) -> String {
        let mut metadata = json!({
            "resource": self.place.resource(view, host),
            "authorization_servers": [self.policy.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "mgp",
        });
        if !self.policy.scopes.is_empty() {
            metadata["scopes_supported"] = json!(self.policy.scopes);
        }
        metadata.to_string()
    }

    /// What a challenge says beside the error: where the metadata is, and which scopes are wanted.
    #[must_use]
    pub fn hints(&self, view: &CatalogView, host: Option<&str>) -> String {
        let url = self.place.metadata_url(view, host);
        match self.policy.scopes.as_slice() {
            [] => format!(r#"resource_metadata="{url}""#),
            scopes => format!(r#"resource_metadata="{url}", scope="{}""#, scopes.join(" ")),
        }
    }
}

fn pass(good: Good) -> Credential {
    Credential::lasting(good.agent).until(Some(good.not_after_ms))
}

#[cfg(test)]
mod tests {
    use mgp_protocol::ids::ServerId;

    use super::*;

    fn place() -> ProtectedResource {
        ProtectedResource {
            resources: ["http://127.0.0.1:7/mcp", "http://localhost:7/mcp"]
                .map(Into::into)
                .to_vec(),
            audiences: vec!["api://door".into()],
        }
    }

    /// RFC 9728, section 3.1: the well-known path stands between the host and the path.
    #[test]
    fn a_door_has_a_name_for_each_endpoint() {
        let (all, one) = (CatalogView::All, CatalogView::One(ServerId::new("files")));
        assert_eq!(place().resource(&all, None), "http://127.0.0.1:7/mcp");
        assert_eq!(
            place().resource(&one, Some("localhost:7")),
            "http://localhost:7/mcp/files"
        );
        assert_eq!(
            place().resource(&all, Some("localhost:8")),
            "http://127.0.0.1:7/mcp"
        );
        let wanted = "http://127.0.0.1:7/.well-known/oauth-protected-resource/mcp/files";
        assert_eq!(place().metadata_url(&one, None), wanted);
    }

    #[test]
    fn a_token_for_one_server_does_not_open_everything() {
        let (all, one) = (CatalogView::All, CatalogView::One(ServerId::new("files")));
        let of_one = "http://127.0.0.1:7/mcp/files".to_owned();
        assert!(place().audiences(&one).contains(&of_one));
        assert!(!place().audiences(&all).contains(&of_one));
        assert!(
            place()
                .audiences(&one)
                .contains(&"http://127.0.0.1:7/mcp".to_owned())
        );
        assert!(place().audiences(&all).contains(&"api://door".to_owned()));
    }
}
