//! JSON from a configured address, for commands that work without a kernel.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use mgp_transports::http::client::{Client, parse_url, read_json};
use serde::de::DeserializeOwned;

use super::context::CliContext;
use crate::cli::failure::Failure;
use crate::cli::text_format::first_line;

/// Limit for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a response: a page of a hundred servers of the registry has some hundred KiB.
const RESPONSE_BYTES_MAX: usize = 8 << 20;

impl CliContext {
    /// Gets a document; `None` if it does not exist. `site` is named in errors.
    pub(in crate::cli) fn download<T: DeserializeOwned>(
        &self,
        site: &str,
        url: &str,
    ) -> Result<Option<T>, Failure> {
        let failed = |why: String| Failure::Other(format!("{site}: {}", first_line(&why, 300)));
        let url = parse_url(url).map_err(|why| failed(why.to_string()))?;
        let asked = async {
            let client = Client::new(self.outbound());
            let answer = client
                .request(Method::GET, &url, HeaderMap::new(), None)
                .await;
            let answer = answer.map_err(|why| why.to_string())?;
            if answer.status == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            if !answer.status.is_success() {
                return Err(format!("it answers {}", answer.status));
            }
            let body = read_json(answer.body, RESPONSE_BYTES_MAX).await;
            body.map(Some).map_err(|why| why.to_string())
        };
        let late = |_| failed(format!("no answer in {} s", RESPONSE_TIMEOUT.as_secs()));
        let body = self.block_on(async {
            let answered = tokio::time::timeout(RESPONSE_TIMEOUT, asked).await;
            answered.map_err(late)?.map_err(failed)
        });
        match body? {
            None => Ok(None),
            Some(body) => serde_json::from_slice(&body)
                .map(Some)
                .map_err(|why| failed(format!("it answers something else: {why}"))),
        }
    }
}
