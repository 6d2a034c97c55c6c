//! Batches and sends messages to the collector, with retries. Meanwhile items wait in the queue or are dropped
//! there.

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

/// Most spans or lines in one message: at 1 KiB each it stays below the usual limit of collectors, 4 MiB.
const BATCH_MAX: usize = 512;

/// A collector of OpenTelemetry.
#[derive(Debug)]
pub(super) struct Exporter {
    client: CollectorClient,
    counts: Arc<TelemetryCounts>,
    pub(super) source: TelemetryResource,
    /// Whether the last message of a signal failed, which is logged once. Some collectors accept only some signals.
    is_failing: [AtomicBool; Signal::ALL.len()],
    /// Whether the last message was accepted in part, which is logged once.
    is_partial: [AtomicBool; Signal::ALL.len()],
}

impl Exporter {
    /// The configured exporter; `None` without a collector.
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

    /// Sends a message with so many items, with retries until the kernel shuts down.
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

    /// Counts accepted and rejected items.
    fn record_accepted(&self, signal: Signal, many: u64, partial: Option<PartialSuccess>) {
        if self.is_failing[signal as usize].swap(false, Ordering::Relaxed) {
            let signal = signal.name();
            tracing::info!(%signal, "the telemetry collector accepts messages again");
        }
        // A metrics message counts as one, however many of its points were rejected.
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
            tracing::warn!(%signal, rejected, %why, "the telemetry collector rejected a part of a message");
        }
    }

    fn record_failure(&self, signal: Signal, why: &str) {
        if !self.is_failing[signal as usize].swap(true, Ordering::Relaxed) {
            let signal = signal.name();
            tracing::warn!(%signal, %why, "the telemetry collector does not accept messages; items beyond the queue are dropped and counted");
        }
    }
}

/// Collects items into batches.
pub(super) struct Batcher {
    pub(super) collector: Arc<Exporter>,
    pub(super) signal: Signal,
    pub(super) interval: Duration,
    pub(super) shutdown: CancellationToken,
}

impl Batcher {
    /// Runs until the kernel shuts down, then exports the remaining items.
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
            let outcome = self
                .collector
                .export(self.signal, batch.len(), body, &self.shutdown);
            outcome.await;
        }
    }
}
