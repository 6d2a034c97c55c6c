//! Icons at the address of a server.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use mgp_transports::http::client::{parse_url, read_json};
use url::Url;

use super::HttpWire;

/// Icons fetched at the same time from one server. Others wait, within their time.
pub(super) const FETCHES_MAX: usize = 4;
/// How long an icon may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest icon, in bytes.
const ICON_BYTES_MAX: usize = 256 << 10;

impl HttpWire {
    /// True for a URL with scheme, host and port of the entry.
    pub(in crate::link) fn is_own_origin(&self, url: &Url) -> bool {
        let own = Url::parse(&self.url.to_string());
        own.is_ok_and(|own| own.origin() == url.origin()) && url.username().is_empty()
    }

    /// Fetches an icon without credentials; `None` without an answer, and for a redirect.
    pub(in crate::link) async fn fetch_icon(&self, url: &Url) -> Option<Bytes> {
        if !self.is_own_origin(url) {
            return None;
        }
        let uri = parse_url(url.as_str()).ok()?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("image/*"));
        let fetching = async {
            let _permit = self.icon_fetches.acquire().await.ok()?;
            let client = self.client.without_login();
            let answer = client
                .request(Method::GET, &uri, headers, None)
                .await
                .ok()?;
            if answer.status != StatusCode::OK {
                return None;
            }
            read_json(answer.body, ICON_BYTES_MAX).await.ok()
        };
        tokio::time::timeout(FETCH_TIMEOUT, fetching).await.ok()?
    }
}
