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
use mgp_engine::calls::telemetry::otlp::{PartialSuccess, TelemetrySource};
use mgp_runtime::randomness;
use mgp_transports::http::client::{Client, parse_url, read_json};
use mgp_transports::log::visible;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Signal, TelemetryCounts};
use crate::config::TelemetryConfig;

/// Most spans or lines in one message: at a kilobyte each it stays below what collectors take by default, 4 MiB.
const TOGETHER: usize = 512;
/// How often a message is tried, and about the first pause, which doubles.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause that a collector may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Of an answer so many bytes are read.
const ANSWER_MAX: usize = 64 << 10;
/// Of a collector's words so many bytes are logged.
const WORDS_MAX: usize = 300;

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
    /// It did not take the last message of this signal: that is said once. Some collectors take one of them alone.
    away: [AtomicBool; Signal::ALL.len()],
    /// It took the last one in part: that is said once, too.
    in_part: [AtomicBool; Signal::ALL.len()],
}

/// Why a message was not taken.
enum NotPosted {
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
            away: Default::default(),
            in_part: Default::default(),
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
                Ok(partial) => {
                    self.took(signal, many as u64, partial);
                    if self.away[signal as usize].swap(false, Ordering::Relaxed) {
                        let signal = signal.name();
                        tracing::info!(%signal, "the collector of telemetry takes messages again");
                    }
                    return;
                }
                Err(NotPosted::Never(why)) => {
                    self.missed(signal, &why);
                    break;
                }
                Err(NotPosted::Later(why, asked)) => (why, asked),
            };
            self.missed(signal, &why);
            if attempt == TRIES || closing.is_cancelled() {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(asked.unwrap_or_else(|| about(pause)).min(PAUSE_MAX)) => {}
                () = closing.cancelled() => {}
            }
            pause *= 2;
        }
        self.counts.dropped(signal).more(many as u64);
    }

    /// Counts what was taken, and what of it was not.
    fn took(&self, signal: Signal, many: u64, partial: Option<PartialSuccess>) {
        // A message of figures is one, however many points of it were not taken.
        let most = if signal == Signal::Metrics { 0 } else { many };
        let rejected = partial
            .as_ref()
            .map_or(0, |partial| partial.rejected.min(most));
        self.counts.told(signal).more(many - rejected);
        self.counts.dropped(signal).more(rejected);
        let Some(partial) = partial else {
            return self.in_part[signal as usize].store(false, Ordering::Relaxed);
        };
        if !self.in_part[signal as usize].swap(true, Ordering::Relaxed) {
            let words = partial.why.as_bytes();
            let why = visible(&words[..words.len().min(WORDS_MAX)]);
            let (signal, rejected) = (signal.name(), partial.rejected);
            tracing::warn!(%signal, rejected, %why, "the collector of telemetry does not take all of a message");
        }
    }

    fn missed(&self, signal: Signal, why: &str) {
        if !self.away[signal as usize].swap(true, Ordering::Relaxed) {
            let signal = signal.name();
            tracing::warn!(%signal, %why, "the collector of telemetry does not take messages; what finds no room is dropped and counted");
        }
    }

    async fn post(&self, signal: Signal, body: Bytes) -> Result<Option<PartialSuccess>, NotPosted> {
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
            // Read in any case, so that the connection can be used again.
            let said = read_json(answer.body, ANSWER_MAX).await.unwrap_or_default();
            Ok::<_, String>((answer.status, after, said))
        };
        let (status, after, said) = match timeout(self.timeout, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => return Err(NotPosted::Later(why, None)),
            Err(_) => return Err(NotPosted::Later("it did not answer in time".into(), None)),
        };
        let after = after.and_then(|after| after.to_str().ok()?.trim().parse().ok());
        match status {
            status if status.is_success() => Ok(PartialSuccess::read(&said)),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(NotPosted::Later(
                format!("it answered HTTP {status}"),
                after.map(Duration::from_secs),
            )),
            status => Err(NotPosted::Never(format!("it answered HTTP {status}"))),
        }
    }
}

/// About this pause: kernels that lost the same collector at the same moment do not all come back at once.
fn about(pause: Duration) -> Duration {
    let [some] = randomness::bytes::<1>();
    pause.mul_f64(0.75 + f64::from(some) / 512.0)
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
