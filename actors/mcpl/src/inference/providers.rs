//! Asks the configured providers: a limited number at once, the others queued, each with a timeout.
//!
//! Nothing is retried, no redirect is followed, and no text of a provider reaches a server or a log: it may repeat the
//! key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use mgp_mcpl_engine::inference::provider::{
    self, AnswerError, BODY_MAX, EVENT_MAX, PromptOrder, ProviderAnswer, ProviderSpec,
};
use mgp_mcpl_engine::inference::wire::ProviderStream;
use mgp_protocol::mcpl::inference::InferenceFailure;
use mgp_transports::http::client::{self, Client, ClientError, Response};
use mgp_transports::http::tls::Tls;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// Longest body of an error that is read for its code, in bytes.
const ERROR_MAX: usize = 64 << 10;
/// The remaining time must exceed this for a request: in less no provider answers, and the request would be wasted.
const PERMIT_WAIT_MIN: Duration = Duration::from_millis(10);

/// The queues of all providers.
#[derive(Debug)]
pub(super) struct Providers {
    client: Client,
    queues: BTreeMap<Arc<str>, ProviderQueue>,
}

#[derive(Debug)]
struct ProviderQueue {
    spec: Arc<ProviderSpec>,
    /// Limits inferences in flight.
    permits: Semaphore,
    /// Limits inferences in flight and queued ones.
    queue_slots: Semaphore,
}

/// Why a provider gave no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub(super) struct InferenceError {
    /// For the server.
    pub(super) reason: InferenceFailure,
    /// For the server and the operator.
    pub(super) words: String,
    /// Whether it may have caused costs.
    pub(super) was_started: bool,
}

impl InferenceError {
    /// The request was not sent, and caused no costs.
    pub(super) fn not_started(reason: InferenceFailure, words: impl Into<String>) -> Self {
        Self::new(reason, words, false)
    }

    /// The request was sent.
    pub(super) fn started(reason: InferenceFailure, words: impl Into<String>) -> Self {
        Self::new(reason, words, true)
    }

    fn new(reason: InferenceFailure, words: impl Into<String>, was_started: bool) -> Self {
        let words = words.into();
        Self {
            reason,
            words,
            was_started,
        }
    }
}

impl Providers {
    pub(super) fn new(specs: &BTreeMap<Arc<str>, Arc<ProviderSpec>>) -> Self {
        let queue = |spec: &Arc<ProviderSpec>| ProviderQueue {
            spec: spec.clone(),
            permits: Semaphore::new(spec.concurrency),
            queue_slots: Semaphore::new(spec.concurrency + spec.queue_limit),
        };
        let queues = specs.iter().map(|(name, spec)| (name.clone(), queue(spec)));
        Self {
            client: Client::new(Tls::system()),
            queues: queues.collect(),
        }
    }

    /// Asks a provider. Each chunk is passed to `part` before the complete answer; if that fails, the request ends.
    pub(super) async fn request(
        &self,
        name: &str,
        order: &PromptOrder<'_>,
        mut part: impl FnMut(String) -> Result<(), InferenceFailure> + Send,
    ) -> Result<ProviderAnswer, InferenceError> {
        let Some(queue) = self.queues.get(name) else {
            let words = format!("there is no provider {name}");
            return Err(InferenceError::new(
                InferenceFailure::NotThere,
                words,
                false,
            ));
        };
        let Ok(_slot) = queue.queue_slots.try_acquire() else {
            let words = "too many inferences are under way or waiting";
            return Err(InferenceError::new(InferenceFailure::Busy, words, false));
        };
        let mut began = false;
        let deadline = Instant::now() + queue.spec.timeout;
        let asking = async {
            let _permit = queue.permits.acquire().await;
            // The permit came (almost) too late.
            if Instant::now() + PERMIT_WAIT_MIN >= deadline {
                return Err(InferenceError::not_started(
                    InferenceFailure::TimedOut,
                    "its turn came too late",
                ));
            }
            self.send(&queue.spec, order, &mut part, &mut began).await
        };
        let answered = timeout_at(deadline, asking).await;
        answered.unwrap_or_else(|_| {
            let words = format!("no answer within {} s", queue.spec.timeout.as_secs_f32());
            Err(InferenceError::new(
                InferenceFailure::TimedOut,
                words,
                began,
            ))
        })
    }

    async fn send(
        &self,
        spec: &ProviderSpec,
        order: &PromptOrder<'_>,
        part: &mut (impl FnMut(String) -> Result<(), InferenceFailure> + Send),
        began: &mut bool,
    ) -> Result<ProviderAnswer, InferenceError> {
        let answer = self.request_head(spec, order, began).await?;
        if !answer.status.is_success() {
            // A rejection causes no costs.
            *began = false;
            return Err(to_rejection(spec, answer).await);
        }
        let kind = answer.headers.get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let streams = order.stream && kind.trim_start().starts_with("text/event-stream");
        if streams {
            read_stream(spec, answer, part).await
        } else {
            let body = client::read_json(answer.body, BODY_MAX).await;
            let body = body.map_err(|_| to_failure(&AnswerError::Truncated))?;
            let whole = spec.parse_answer(&body).map_err(|bad| to_failure(&bad))?;
            // A caller that requested chunks gets at least one, unless the content is empty.
            if order.stream && !whole.content.is_empty() {
                part(whole.content.clone()).map_err(aborted)?;
            }
            Ok(whole)
        }
    }

    async fn request_head(
        &self,
        spec: &ProviderSpec,
        order: &PromptOrder<'_>,
        began: &mut bool,
    ) -> Result<Response, InferenceError> {
        let not_sent = |reason, words: &str| InferenceError::new(reason, words, false);
        let body = spec
            .render_body(order)
            .map_err(|why| InferenceError::new(InferenceFailure::Failed, why, false))?;
        let misconfigured = || not_sent(InferenceFailure::Failed, "the provider is misconfigured");
        // The key is not sent unencrypted; the configuration is validated for this, too.
        if !mgp_transports::http::is_safe_url(&spec.url) {
            return Err(misconfigured());
        }
        let uri = client::parse_url(&spec.url).map_err(|_| misconfigured())?;
        let headers = request_headers(spec).ok_or_else(misconfigured)?;
        *began = true;
        let sent = self
            .client
            .request(Method::POST, &uri, headers, Some(Bytes::from(body)))
            .await;
        sent.map_err(|error| {
            tracing::warn!(provider = %spec.name, %error, "a provider did not answer");
            match error {
                ClientError::Dial(_) | ClientError::BadUrl { .. } => {
                    not_sent(InferenceFailure::Failed, "the provider cannot be reached")
                }
                ClientError::Redirected { .. } => not_sent(
                    InferenceFailure::Failed,
                    "the provider wants to be asked elsewhere, which is not followed",
                ),
                ClientError::Closed { .. } | ClientError::NotHttp { .. } => InferenceError::new(
                    InferenceFailure::Failed,
                    "the provider broke off before it answered",
                    true,
                ),
            }
        })
    }
}

async fn read_stream(
    spec: &ProviderSpec,
    answer: Response,
    part: &mut (impl FnMut(String) -> Result<(), InferenceFailure> + Send),
) -> Result<ProviderAnswer, InferenceError> {
    let mut events = client::read_events(answer.body, EVENT_MAX);
    let mut stream = ProviderStream::new(spec.kind);
    let mut taken = 0_usize;
    while !stream.is_done() {
        let event = events
            .next()
            .await
            .map_err(|_| to_failure(&AnswerError::Truncated))?;
        let Some(event) = event else { break };
        taken = taken.saturating_add(event.data.len());
        if taken > BODY_MAX {
            return Err(to_failure(&AnswerError::TooLong));
        }
        // The event only changed an id or the retry time.
        if event.data.is_empty() {
            continue;
        }
        let data =
            std::str::from_utf8(&event.data).map_err(|_| to_failure(&AnswerError::Unreadable))?;
        if let Some(delta) = stream.push_event(data).map_err(|bad| to_failure(&bad))? {
            part(delta).map_err(aborted)?;
        }
    }
    stream.finish().map_err(|bad| to_failure(&bad))
}

/// The headers; the key is marked as sensitive.
fn request_headers(spec: &ProviderSpec) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in spec.headers() {
        let mut value = HeaderValue::try_from(value).ok()?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Some(headers)
}

async fn to_rejection(spec: &ProviderSpec, answer: Response) -> InferenceError {
    let status = answer.status;
    let body = client::read_json(answer.body, ERROR_MAX).await;
    let code = provider::parse_error(&body.unwrap_or_default());
    tracing::warn!(provider = %spec.name, status = status.as_u16(), "{code}");
    let (reason, words) = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            (InferenceFailure::Busy, "the provider is busy")
        }
        _ => (InferenceFailure::Failed, "the provider refused"),
    };
    InferenceError::new(reason, format!("{words} ({})", status.as_u16()), false)
}

fn to_failure(bad: &AnswerError) -> InferenceError {
    InferenceError::new(
        InferenceFailure::Failed,
        format!("the provider: {bad}"),
        true,
    )
}

fn aborted(reason: InferenceFailure) -> InferenceError {
    InferenceError::new(reason, "nobody takes the parts of the answer", true)
}

#[cfg(test)]
mod tests;
