//! How messages reach the collector: gathered, sent, and tried again for a while. What comes meanwhile waits in the
//! queue, or is dropped there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::calls::telemetry::collector::{CollectorRetries, CollectorVerdict};
use mgp_engine::calls::telemetry::otlp::{PartialSuccess, TelemetrySource};
use mgp_runtime::randomness;
use mgp_transports::http::client::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::client::{CollectorAnswer, CollectorClient, words};
use super::{Signal, TelemetryCounts};
use crate::config::TelemetryConfig;

/// Most spans or lines in one message: at a kilobyte each it stays below what collectors take by default, 4 MiB.
const TOGETHER: usize = 512;

/// A collector of OpenTelemetry.
#[derive(Debug)]
pub(super) struct Collector {
    client: CollectorClient,
    counts: Arc<TelemetryCounts>,
    pub(super) source: TelemetrySource,
    /// It did not take the last message of this signal: that is said once. Some collectors take one of them alone.
    away: [AtomicBool; Signal::ALL.len()],
    /// It took the last one in part: that is said once, too.
    in_part: [AtomicBool; Signal::ALL.len()],
}

impl Collector {
    /// That of the configuration; `None` where there is none.
    pub(super) fn new(
        config: &TelemetryConfig,
        client: Client,
        source: TelemetrySource,
        counts: &Arc<TelemetryCounts>,
    ) -> Option<Arc<Self>> {
        Some(Arc::new(Self {
            client: CollectorClient::new(config, client)?,
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
        let mut retries = CollectorRetries::default();
        loop {
            let CollectorAnswer { verdict, why } = self.client.send(signal, body.clone()).await;
            let asked = match verdict {
                CollectorVerdict::Taken(partial) => {
                    return self.took(signal, many as u64, partial);
                }
                CollectorVerdict::Later(asked) => asked,
                CollectorVerdict::Never => {
                    self.missed(signal, &why);
                    break;
                }
            };
            self.missed(signal, &why);
            let [chance] = randomness::bytes::<1>();
            let pause = retries.again(asked, chance);
            let Some(pause) = pause.filter(|_| !closing.is_cancelled()) else {
                break;
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = closing.cancelled() => {}
            }
        }
        self.counts.dropped(signal).more(many as u64);
    }

    /// Counts what was taken, and what of it was not.
    fn took(&self, signal: Signal, many: u64, partial: Option<PartialSuccess>) {
        if self.away[signal as usize].swap(false, Ordering::Relaxed) {
            let signal = signal.name();
            tracing::info!(%signal, "the collector of telemetry takes messages again");
        }
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
            let why = words(partial.why.as_bytes());
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
