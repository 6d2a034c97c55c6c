//! The keys of an issuer, fetched when they are needed and cached.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::doors::bearer::{BadBearerToken, IssuerKeys};
use mgp_runtime::task;
use mgp_runtime::time::monotonic_now;
use mgp_sync::Snapshot;

use super::KeySource;

/// Keys older than this are fetched again in the background.
const REFRESH_AGE: Duration = Duration::from_secs(600);
/// Keys older than this are not used, even if the issuer cannot be reached.
const KEYS_AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// The shortest time between two requests to the issuer, however many tokens name unknown keys.
const FETCH_INTERVAL: Duration = Duration::from_secs(5);

/// The keys, and when they were fetched.
#[derive(Debug, Default)]
pub(super) struct CachedKeys {
    keys: IssuerKeys,
    fetched_at: Option<MonotonicTime>,
}

impl CachedKeys {
    fn is_younger(&self, than: Duration) -> bool {
        let now = monotonic_now().since_start();
        self.fetched_at
            .is_some_and(|since| now.saturating_sub(since.since_start()) < than)
    }

    pub(super) fn is_usable(&self) -> bool {
        self.is_younger(KEYS_AGE_MAX)
    }
}

/// The cached keys of one issuer.
#[derive(Debug)]
pub(super) struct KeyCache {
    issuer: String,
    source: KeySource,
    keys: Snapshot<CachedKeys>,
    /// When the issuer was last queried; locked during a query.
    last_fetch: tokio::sync::Mutex<Option<MonotonicTime>>,
}

impl KeyCache {
    pub(super) fn new(issuer: String, source: KeySource) -> Arc<Self> {
        Arc::new(Self {
            issuer,
            source,
            keys: Snapshot::new(CachedKeys::default()),
            last_fetch: tokio::sync::Mutex::new(None),
        })
    }

    /// The cached keys, which are fetched again in the background when they are old.
    pub(super) fn load(self: &Arc<Self>) -> Arc<CachedKeys> {
        let held = self.keys.load();
        if held.is_usable() && !held.is_younger(REFRESH_AGE) {
            let this = self.clone();
            task::spawn_detached("oauth.keys", async move { this.refresh().await });
        }
        held
    }

    /// Runs a check with the keys; once more with fetched ones if it lacks a key.
    pub(super) async fn verify<T, E: From<BadBearerToken> + PartialEq>(
        self: &Arc<Self>,
        check: impl Fn(&IssuerKeys) -> Result<T, E>,
    ) -> Result<T, E> {
        let unknown = || E::from(BadBearerToken::UnknownKey);
        let check = |held: &CachedKeys| {
            if held.is_usable() {
                check(&held.keys)
            } else {
                Err(unknown())
            }
        };
        match check(&self.load()) {
            Err(error) if error == unknown() => {
                self.refresh().await;
                check(&self.keys.load())
            }
            checked => checked,
        }
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
        match self.source.fetch(&self.issuer).await {
            Ok(keys) => {
                let since = Some(monotonic_now());
                self.keys.store(Arc::new(CachedKeys {
                    keys,
                    fetched_at: since,
                }));
            }
            Err(error) => {
                tracing::warn!(issuer = self.issuer, %error, "the issuer's keys could not be fetched");
            }
        }
    }
}
