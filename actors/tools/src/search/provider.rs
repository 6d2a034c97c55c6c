//! Embeddings from an endpoint that is compatible with OpenAI's `/v1/embeddings`.

use std::fmt;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use mgp_engine::tools::index::Vector;
use mgp_transports::http::client::{self, Client};
use serde::Deserialize;
use serde_json::json;

/// Longest accepted answer, in bytes: 256 vectors of 4096 numbers of 20 characters.
const ANSWER_BYTES_MAX: usize = 24 << 20;

/// The endpoint's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Its URL: https, or on this machine.
    pub url: String,
    /// Its name for the model.
    pub model: String,
    /// Sent as a bearer token; not sent if empty.
    pub key: Key,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Texts in one request.
    pub batch: usize,
}

/// A secret. Its `Debug` shows nothing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Key(pub String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "…" })
    }
}

/// Why there are no vectors.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProviderError {
    /// A retry may succeed.
    #[error("{0}")]
    Retryable(String),
    /// The endpoint rejects these texts.
    #[error("{0}")]
    Refused(String),
}

#[derive(Deserialize)]
struct EmbeddingsAnswer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    index: usize,
    embedding: Vec<f32>,
}

impl Provider {
    /// The vectors of these texts, in their order; `None` for a text without direction.
    pub(super) async fn embed(
        &self,
        client: &Client,
        texts: &[&str],
    ) -> Result<Vec<Option<Vector>>, ProviderError> {
        let request = self.request(client, texts);
        let answer = tokio::time::timeout(self.timeout, request).await;
        let late = |_| ProviderError::Retryable(format!("no answer within {:?}", self.timeout));
        let body = answer.map_err(late)??;
        let answer: EmbeddingsAnswer = serde_json::from_slice(&body)
            .map_err(|e| ProviderError::Retryable(format!("the answer is malformed: {e}")))?;
        let mut vectors = vec![None; texts.len()];
        for item in answer.data {
            if let Some(slot) = vectors.get_mut(item.index) {
                *slot = Vector::quantize(&item.embedding);
            }
        }
        Ok(vectors)
    }

    async fn request(
        &self,
        client: &Client,
        texts: &[&str],
    ) -> Result<bytes::Bytes, ProviderError> {
        let retryable = |why: String| ProviderError::Retryable(why);
        // Texts and key are not sent unencrypted over a network.
        if !mgp_transports::http::is_safe_url(&self.url) {
            return Err(retryable(
                "only https, and http to this machine, is safe".into(),
            ));
        }
        let uri = client::parse_url(&self.url).map_err(|e| retryable(e.to_string()))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if !self.key.0.is_empty() {
            let bearer = HeaderValue::try_from(format!("Bearer {}", self.key.0));
            let mut bearer = bearer.map_err(|_| retryable("the key is no header value".into()))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let body = json!({"model": self.model, "input": texts, "encoding_format": "float"});
        let response = client.request(Method::POST, &uri, headers, Some(body.to_string().into()));
        let response = response.await.map_err(|e| retryable(e.to_string()))?;
        let status = response.status;
        match status {
            StatusCode::OK => {}
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => {
                return Err(ProviderError::Refused(format!("it answered {status}")));
            }
            _ => return Err(retryable(format!("it answered {status}"))),
        }
        let read = client::read_json(response.body, ANSWER_BYTES_MAX).await;
        read.map_err(|e| retryable(e.to_string()))
    }
}
