//! The source of an issuer's keys: a file, a URL, or the issuer's own metadata (RFC 8414, OpenID Connect Discovery).

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use mgp_engine::doors::bearer::IssuerKeys;
use mgp_engine::servers::login::discovery::issuer_metadata_urls;
use mgp_runtime::task;
use mgp_store::regular_file;
use mgp_transports::http::client::{self, Client};
use serde::Deserialize;

/// The deadline for all requests to the issuer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest accepted response, in bytes; key sets have a few thousand.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// The source of the keys.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// A URL.
    Url(Client, String),
    /// The URL from the issuer's metadata.
    Issuer(Client),
}

/// The parsed members of an authorization server's metadata.
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

impl KeySource {
    /// Fetches the current keys.
    ///
    /// # Errors
    /// A description of the failure.
    pub(super) async fn fetch(&self, issuer: &str) -> Result<IssuerKeys, String> {
        let fetching = async {
            match self {
                Self::File(path) => {
                    let path = path.clone();
                    let name = path.display().to_string();
                    let read =
                        task::run_blocking("oauth.keys", move || regular_file::read(&path)).await;
                    let json = read.map_err(|e| e.to_string())?;
                    IssuerKeys::parse(&json.map_err(|e| format!("{name}: {e}"))?)
                }
                Self::Url(client, url) => IssuerKeys::parse(&get(client, url).await?),
                Self::Issuer(client) => {
                    let url = discover(client, issuer).await?;
                    IssuerKeys::parse(&get(client, &url).await?)
                }
            }
        };
        let timed_out = |_| format!("no answer within {} s", TIMEOUT.as_secs());
        let keys = tokio::time::timeout(TIMEOUT, fetching)
            .await
            .map_err(timed_out)??;
        if keys.is_empty() {
            Err("there is no key for signatures among them".into())
        } else {
            Ok(keys)
        }
    }
}

/// The URL of the keys in the issuer's metadata.
async fn discover(client: &Client, issuer: &str) -> Result<String, String> {
    let mut why = String::new();
    for url in &issuer_metadata_urls(issuer) {
        let metadata = match get(client, url).await {
            Ok(json) => serde_json::from_slice::<Metadata>(&json).map_err(|e| e.to_string()),
            Err(error) => Err(error),
        };
        match metadata {
            Ok(metadata) if metadata.issuer == issuer => return Ok(metadata.jwks_uri),
            Ok(_) => why = format!("{url} is of another issuer"),
            Err(error) => why = error,
        }
    }
    Err(format!("no metadata of it was found: {why}"))
}

async fn get(client: &Client, url: &str) -> Result<bytes::Bytes, String> {
    if !mgp_transports::http::is_safe_url(url) {
        return Err(format!(
            "{url} is not fetched: only https, and http to this machine, is safe"
        ));
    }
    let uri = client::parse_url(url).map_err(|e| e.to_string())?;
    let asked = client
        .request(Method::GET, &uri, HeaderMap::new(), None)
        .await;
    let answer = asked.map_err(|e| e.to_string())?;
    if answer.status != StatusCode::OK {
        return Err(format!("{url} answered {}", answer.status));
    }
    let read = client::read_json(answer.body, ANSWER_BYTES_MAX).await;
    read.map_err(|e| format!("{url}: {e}"))
}
