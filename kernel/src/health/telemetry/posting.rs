//! How messages reach the collector: gathered, posted, and tried again for a while.
//!
//! OTLP over HTTP with protobuf (OTLP 1.x, "OTLP/HTTP"): what can be retried is retried, with growing pauses, and what
//! comes meanwhile waits in the queue or is dropped there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode, Uri};
use mgp_engine::calls::telemetry::otlp::TelemetrySource;
use mgp_transports::http::client::{Client, parse_url, read_json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Signal, TelemetryCounts};
use crate::config::TelemetryConfig;

/// Most spans or lines in one message: at a kilobyte each it stays below what collectors take by default, 4 MiB.
const TOGETHER: usize = 512;
/// How often a message is tried, and the first pause, which doubles.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause that a collector may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Of an answer so many bytes are read; nothing of it is used.
const ANSWER_MAX: usize = 64 << 10;

/// A collector of OpenTelemetry.
#[derive(Debug)]
pub(super) struct Collector {
    client: Client,
    traces: Uri,
    metrics: Uri,
    logs: Uri,
    headers: HeaderMap,
    timeout: Duration,
    counts: Arc<TelemetryCounts>,
    pub(super) source: TelemetrySource,
    /// It did not take the last message: that is said once.
    away: AtomicBool,
}

/// Why a message was not taken.
enum NotTaken {
    /// It may be, later.
    Later(String, Option<Duration>),
    /// It never will be.
    Never(String),
}

impl Collector {
    /// That of the configuration; `None` where there is none.
    pub(super) fn new(
        config: &TelemetryConfig,
        client: Client,
        source: TelemetrySource,
        counts: &Arc<TelemetryCounts>,
    ) -> Option<Arc<Self>> {
        let endpoint = config.endpoint.as_ref()?;
        let path = |signal: Signal| parse_url(&format!("{endpoint}/v1/{}", signal.name())).ok();
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let (Ok(name), Ok(mut value)) = (
                name.parse::<http::HeaderName>(),
                HeaderValue::from_str(value),
            ) else {
                continue;
            };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        );
        Some(Arc::new(Self {
            client,
            traces: path(Signal::Traces)?,
            metrics: path(Signal::Metrics)?,
            logs: path(Signal::Logs)?,
            headers,
            timeout: config.timeout,
            counts: counts.clone(),
            source,
            away: AtomicBool::new(false),
        }))
    }

    /// Posts a message that tells so many things; once more and again, unless the kernel ends.
    pub(super) async fn tell(
        &self,
        signal: Signal,
        many: usize,
        body: Vec<u8>,
        closing: &CancellationToken,
    ) {
        let body = Bytes::from(body);
        let mut pause = PAUSE;
        for attempt in 1..=TRIES {
            let (why, asked) = match self.post(signal, body.clone()).await {
                Ok(()) => {
                    self.counts.told(signal).more(many as u64);
                    if self.away.swap(false, Ordering::Relaxed) {
                        tracing::info!("the collector of telemetry takes messages again");
                    }
                    return;
                }
                Err(NotTaken::Never(why)) => {
                    self.missed(&why);
                    break;
                }
                Err(NotTaken::Later(why, asked)) => (why, asked),
            };
            self.missed(&why);
            if attempt == TRIES || closing.is_cancelled() {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(asked.unwrap_or(pause).min(PAUSE_MAX)) => {}
                () = closing.cancelled() => {}
            }
            pause *= 2;
        }
        self.counts.dropped(signal).more(many as u64);
    }

    fn missed(&self, why: &str) {
        if !self.away.swap(true, Ordering::Relaxed) {
            tracing::warn!(%why, "the collector of telemetry does not take messages; what finds no room is dropped and counted");
        }
    }

    async fn post(&self, signal: Signal, body: Bytes) -> Result<(), NotTaken> {
        let url = match signal {
            Signal::Traces => &self.traces,
            Signal::Metrics => &self.metrics,
            Signal::Logs => &self.logs,
        };
        let asked = async {
            let headers = self.headers.clone();
            let answer = self.client.request(Method::POST, url, headers, Some(body));
            let answer = answer.await.map_err(|error| error.to_string())?;
            let after = answer.headers.get(RETRY_AFTER).cloned();
            // Read, so that the connection can be used again.
            let _ = read_json(answer.body, ANSWER_MAX).await;
            Ok::<_, String>((answer.status, after))
        };
        let (status, after) = match timeout(self.timeout, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => return Err(NotTaken::Later(why, None)),
            Err(_) => return Err(NotTaken::Later("it did not answer in time".into(), None)),
        };
        let after = after.and_then(|after| after.to_str().ok()?.trim().parse().ok());
        match status {
            status if status.is_success() => Ok(()),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(NotTaken::Later(
                format!("it answered HTTP {status}"),
                after.map(Duration::from_secs),
            )),
            status => Err(NotTaken::Never(format!("it answered HTTP {status}"))),
        }
    }
}

/// Gathers what is to be told, and tells it together.
pub(super) struct Gathering {
    pub(super) collector: Arc<Collector>,
    pub(super) signal: Signal,
    pub(super) interval: Duration,
    pub(super) closing: CancellationToken,
}

impl Gathering {
    /// Until the kernel ends, and then what is there.
    pub(super) async fn run<T>(
        self,
        mut queue: mpsc::Receiver<T>,
        write: fn(&TelemetrySource, &[T]) -> Vec<u8>,
    ) {
        loop {
            let first = tokio::select! {
                first = queue.recv() => first,
                () = self.closing.cancelled() => queue.try_recv().ok(),
            };
            let Some(first) = first else { return };
            let mut batch = vec![first];
            let mut due = std::pin::pin!(tokio::time::sleep(self.interval));
            while batch.len() < TOGETHER {
                tokio::select! {
                    biased;
                    Some(next) = queue.recv() => batch.push(next),
                    () = &mut due => break,
                    () = self.closing.cancelled() => break,
                }
            }
            let body = write(&self.collector.source, &batch);
            let told = self
                .collector
                .tell(self.signal, batch.len(), body, &self.closing);
            told.await;
        }
    }
}
