//! How messages reach the collector: gathered, sent, and tried again for a while. What comes meanwhile waits in the
//! queue, or is dropped there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::calls::telemetry::collector::{ExportBackoff, ExportResult};
use mgp_engine::calls::telemetry::otlp::{PartialSuccess, TelemetryResource};
use mgp_runtime::randomness;
use mgp_transports::http::client::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::client::{CollectorClient, CollectorResponse, sanitize_message};
use super::{Signal, TelemetryCounts};
use crate::config::TelemetryConfig;

/// Most spans or lines in one message: at a kilobyte each it stays below what collectors take by default, 4 MiB.
const BATCH_MAX: usize = 512;

/// A collector of OpenTelemetry.
#[derive(Debug)]
pub(super) struct Exporter {
    client: CollectorClient,
    counts: Arc<TelemetryCounts>,
    pub(super) source: TelemetryResource,
    /// It did not take the last message of this signal: that is said once. Some collectors take one of them alone.
    is_failing: [AtomicBool; Signal::ALL.len()],
    /// It took the last one in part: that is said once, too.
    is_partial: [AtomicBool; Signal::ALL.len()],
}

impl Exporter {
    /// That of the configuration; `None` where there is none.
    pub(super) fn new(
        config: &TelemetryConfig,
        client: Client,
        source: TelemetryResource,
        counts: &Arc<TelemetryCounts>,
    ) -> Option<Arc<Self>> {
        Some(Arc::new(Self {
            client: CollectorClient::new(config, client)?,
            counts: counts.clone(),
            source,
            is_failing: Default::default(),
            is_partial: Default::default(),
        }))
    }

    /// Posts a message that tells so many things; once more and again, unless the kernel ends.
    pub(super) async fn export(
        &self,
        signal: Signal,
        many: usize,
        body: Vec<u8>,
        closing: &CancellationToken,
    ) {
        let body = Bytes::from(body);
        let mut retries = ExportBackoff::default();
        loop {
            let CollectorResponse {
                verdict,
                reason: why,
            } = self.client.send(signal, body.clone()).await;
            let asked = match verdict {
                ExportResult::Accepted(partial) => {
                    return self.record_accepted(signal, many as u64, partial);
                }
                ExportResult::Retryable(asked) => asked,
                ExportResult::NonRetryable => {
                    self.record_failure(signal, &why);
                    break;
                }
            };
            self.record_failure(signal, &why);
            let [chance] = randomness::random_bytes::<1>();
            let pause = retries.next_delay(asked, chance);
            let Some(pause) = pause.filter(|_| !closing.is_cancelled()) else {
                break;
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = closing.cancelled() => {}
            }
        }
        self.counts.dropped(signal).add(many as u64);
    }

    /// Counts what was taken, and what of it was not.
    fn record_accepted(&self, signal: Signal, many: u64, partial: Option<PartialSuccess>) {
        if self.is_failing[signal as usize].swap(false, Ordering::Relaxed) {
            let signal = signal.name();
            tracing::info!(%signal, "the collector of telemetry takes messages again");
        }
        // A message of figures is one, however many points of it were not taken.
        let most = if signal == Signal::Metrics { 0 } else { many };
        let rejected = partial
            .as_ref()
            .map_or(0, |partial| partial.rejected.min(most));
        self.counts.exported(signal).add(many - rejected);
        self.counts.dropped(signal).add(rejected);
        let Some(partial) = partial else {
            return self.is_partial[signal as usize].store(false, Ordering::Relaxed);
        };
        if !self.is_partial[signal as usize].swap(true, Ordering::Relaxed) {
            let why = sanitize_message(partial.error_message.as_bytes());
            let (signal, rejected) = (signal.name(), partial.rejected);
            tracing::warn!(%signal, rejected, %why, "the collector of telemetry does not take all of a message");
        }
    }

    fn record_failure(&self, signal: Signal, why: &str) {
        if !self.is_failing[signal as usize].swap(true, Ordering::Relaxed) {
            let signal = signal.name();
            tracing::warn!(%signal, %why, "the collector of telemetry does not take messages; what finds no room is dropped and counted");
        }
    }
}

/// Gathers what is to be told, and tells it together.
pub(super) struct Batcher {
    pub(super) collector: Arc<Exporter>,
    pub(super) signal: Signal,
    pub(super) interval: Duration,
    pub(super) shutdown: CancellationToken,
}

impl Batcher {
    /// Until the kernel ends, and then what is there.
    pub(super) async fn run<T>(
        self,
        mut queue: mpsc::Receiver<T>,
        write: fn(&TelemetryResource, &[T]) -> Vec<u8>,
    ) {
        loop {
            let first = tokio::select! {
                first = queue.recv() => first,
                () = self.shutdown.cancelled() => queue.try_recv().ok(),
            };
            let Some(first) = first else { return };
            let mut batch = vec![first];
            let mut due = std::pin::pin!(tokio::time::sleep(self.interval));
            while batch.len() < BATCH_MAX {
                tokio::select! {
                    biased;
                    Some(next) = queue.recv() => batch.push(next),
                    () = &mut due => break,
                    () = self.shutdown.cancelled() => break,
                }
            }
            let body = write(&self.collector.source, &batch);
            let told = self
                .collector
                .export(self.signal, batch.len(), body, &self.shutdown);
            told.await;
        }
    }
}
