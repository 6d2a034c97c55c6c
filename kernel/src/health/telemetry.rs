//! Export to an OpenTelemetry collector: spans of sampled requests, metrics, and the kernel's log.
//!
//! Nothing here delays a request: a span or a line that does not fit into its queue is dropped and counted.

mod client;
mod exporter;
pub(crate) mod logs;
mod request_spans;

use std::sync::Arc;
use std::time::Duration;

use mgp_callers::request::AnswerFuture;
use mgp_engine::calls::telemetry::families::{MetricFamily, MetricKind};
use mgp_engine::calls::telemetry::otlp::TelemetryResource;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::unix_ns;
use mgp_runtime::{Counter, EventSink, task};
use mgp_transports::http::client::Client;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use self::exporter::{Batcher, Exporter};
pub(crate) use self::request_spans::Tracing;
use crate::config::TelemetryConfig;

/// Limit for the last messages at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The kinds of telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    pub(crate) const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];

    const fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }
}

/// Exported and dropped spans, metric messages and log lines.
#[derive(Debug, Default)]
pub(crate) struct TelemetryCounts {
    exported: [Counter; 3],
    dropped: [Counter; 3],
}

impl TelemetryCounts {
    fn exported(&self, signal: Signal) -> &Counter {
        &self.exported[signal as usize]
    }

    fn dropped(&self, signal: Signal) -> &Counter {
        &self.dropped[signal as usize]
    }

    #[must_use]
    pub(crate) fn families(&self) -> [MetricFamily; 2] {
        let mut exported_items = MetricFamily::new(
            "mgp_telemetry_told",
            MetricKind::Counter,
            "Spans, lines of the log and messages with figures that the collector took.",
        );
        let mut dropped = MetricFamily::new(
            "mgp_telemetry_dropped",
            MetricKind::Counter,
            "Those that found no room, or that the collector did not take in time.",
        );
        for signal in Signal::ALL {
            let label = [("signal", signal.name())];
            exported_items.add_point(&label, self.exported(signal).get());
            dropped.add_point(&label, self.dropped(signal).get());
        }
        [exported_items, dropped]
    }
}

/// The export tasks.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    tasks: Mutex<Vec<SupervisedTask<()>>>,
    shutdown: CancellationToken,
}

impl Telemetry {
    /// Starts the configured exports; `current_families` returns the current metrics.
    #[must_use]
    pub(crate) fn start(
        config: &TelemetryConfig,
        client: Client,
        source: TelemetryResource,
        counts: &Arc<TelemetryCounts>,
        current_families: impl Fn() -> AnswerFuture<Vec<MetricFamily>> + Send + Sync + 'static,
    ) -> (Self, Tracing) {
        let telemetry = Self::default();
        let Some(collector) = Exporter::new(config, client, source, counts) else {
            return (telemetry, Tracing::disabled());
        };
        let mut tasks = Vec::new();
        let gathering = |signal| Batcher {
            collector: collector.clone(),
            signal,
            interval: config.interval,
            shutdown: telemetry.shutdown.clone(),
        };
        let mut tracing = Tracing::disabled();
        if config.traces {
            let (sink, spans) = bounded_queue(config.queue, Signal::Traces, counts);
            tracing = Tracing::with_rule(config.sampling, sink);
            let tell = gathering(Signal::Traces).run(spans, TelemetryResource::encode_traces);
            tasks.push(task::spawn_supervised("telemetry.traces", tell));
        }
        if config.logs {
            let (sink, lines) = bounded_queue(config.queue, Signal::Logs, counts);
            logs::export_to(sink);
            let tell = gathering(Signal::Logs).run(lines, TelemetryResource::encode_logs);
            tasks.push(task::spawn_supervised("telemetry.logs", tell));
        }
        if config.metrics {
            let (closing, every) = (telemetry.shutdown.clone(), config.metrics_interval);
            let tell = export_metrics(collector, closing, every, current_families);
            tasks.push(task::spawn_supervised("telemetry.metrics", tell));
        }
        let telemetry = Self {
            tasks: Mutex::new(tasks),
            ..telemetry
        };
        (telemetry, tracing)
    }

    /// Exports queued items, for a limited time.
    pub(crate) async fn flush(&self) {
        self.shutdown.cancel();
        let tasks = std::mem::take(&mut *self.tasks.lock().await);
        let ended = async {
            for task in tasks {
                let _ = task.await;
            }
        };
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, ended).await;
    }
}

/// A bounded queue that counts what it drops.
fn bounded_queue<T: Send + 'static>(
    most: usize,
    signal: Signal,
    counts: &Arc<TelemetryCounts>,
) -> (EventSink<T>, mpsc::Receiver<T>) {
    let (sender, receiver) = mpsc::channel(most);
    let counts = counts.clone();
    let sink = EventSink::new(move |exported_items| {
        if sender.try_send(exported_items).is_err() {
            counts.dropped(signal).increment();
        }
    });
    (sink, receiver)
}

async fn export_metrics(
    collector: Arc<Exporter>,
    closing: CancellationToken,
    every: Duration,
    current_families: impl Fn() -> AnswerFuture<Vec<MetricFamily>>,
) {
    loop {
        let last = tokio::select! {
            () = tokio::time::sleep(every) => false,
            () = closing.cancelled() => true,
        };
        let body = collector
            .source
            .encode_metrics(&current_families().await, unix_ns());
        collector.export(Signal::Metrics, 1, body, &closing).await;
        if last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: a queue has the configured capacity; what does not fit is dropped and counted.
    #[test]
    fn items_beyond_the_capacity_are_dropped_and_counted() {
        let most = TelemetryConfig::default().queue;
        assert_eq!(most, 2_048);
        let counts = Arc::default();
        let (sink, mut queue) = bounded_queue(most, Signal::Logs, &counts);
        for exported_items in 0..most + 3 {
            sink.send(exported_items);
        }
        assert_eq!(counts.dropped(Signal::Logs).get(), 3);
        assert_eq!(queue.len(), most);
        assert_eq!(queue.try_recv(), Ok(0), "the first ones are kept");
        sink.send(most);
        sink.send(most);
        assert_eq!(counts.dropped(Signal::Logs).get(), 4, "one found room");
        assert_eq!(counts.dropped(Signal::Traces).get(), 0);
    }
}
