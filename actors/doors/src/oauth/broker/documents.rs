//! Metadata documents of clients: fetched from an address that an unknown caller names, so only by https, only from the
//! public network, without redirects, and few at a time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use mgp_engine::clock::MonotonicTime;
use mgp_engine::doors::broker::OauthError;
use mgp_engine::doors::broker::clients::{Client, DOCUMENT_BYTES_MAX, parse_document};
use mgp_runtime::time::monotonic_now;
use mgp_transports::http::address_scope::AddressScope;
use mgp_transports::http::client::{self, read_json};
use mgp_transports::http::proxy::Outbound;
use tokio::sync::Semaphore;
use url::Url;

/// How long a document is used.
const DOCUMENT_AGE: Duration = Duration::from_secs(600);
/// Most cached documents, of at most 8 KiB each. At the bound the oldest is dropped, and fetched again when it is needed.
const DOCUMENTS_MAX: usize = 128;
/// How long a host may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Simultaneous requests; a further one is asked to try again.
const FETCHES_MAX: usize = 8;

/// The cached documents.
#[derive(Debug)]
pub(super) struct ClientDocuments {
    http: client::Client,
    cached: Mutex<HashMap<String, (Client, MonotonicTime)>>,
    fetches: Semaphore,
}

impl ClientDocuments {
    /// `scope` is where documents may be.
    pub(super) fn new(outbound: Outbound, scope: AddressScope) -> Self {
        Self {
            http: client::Client::with_scope(outbound, scope),
            cached: Mutex::default(),
            fetches: Semaphore::new(FETCHES_MAX),
        }
    }

    /// The client whose document is at this URL.
    pub(super) async fn find(&self, url: &Url) -> Result<Client, OauthError> {
        if let Some(client) = self.find_cached(url) {
            return Ok(client);
        }
        let Ok(_permit) = self.fetches.try_acquire() else {
            let why = "too many clients are looked up at once; try again";
            return Err(OauthError::new("temporarily_unavailable", why));
        };
        let fetched = tokio::time::timeout(TIMEOUT, self.fetch(url)).await;
        let json = fetched.ok().flatten().ok_or_else(|| {
            OauthError::invalid_client("the document of the client could not be fetched")
        })?;
        let client = parse_document(&json, url)?;
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.len() >= DOCUMENTS_MAX {
            let oldest = cached.iter().min_by_key(|(_, (_, at))| *at);
            if let Some(oldest) = oldest.map(|(url, _)| url.clone()) {
                cached.remove(&oldest);
            }
        }
        cached.insert(url.to_string(), (client.clone(), monotonic_now()));
        Ok(client)
    }

    fn find_cached(&self, url: &Url) -> Option<Client> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.retain(|_, (_, at)| monotonic_now().duration_since(*at) < DOCUMENT_AGE);
        cached.get(url.as_str()).map(|(client, _)| client.clone())
    }

    /// The failure is not told: it would show what the kernel can reach.
    async fn fetch(&self, url: &Url) -> Option<bytes::Bytes> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let uri = client::parse_url(url.as_str()).ok()?;
        let answer = self.http.request(Method::GET, &uri, headers, None).await;
        let answer = answer
            .ok()
            .filter(|answer| answer.status == StatusCode::OK)?;
        read_json(answer.body, DOCUMENT_BYTES_MAX).await.ok()
    }
}
