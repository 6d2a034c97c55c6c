//! Counts and times of calls, for each tool of each server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use mgp_engine::calls::telemetry::families::{MetricFamily, MetricKind, is_valid_label};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::audit::Outcome as Ending;
use mgp_protocol::refusal::{Refusal, RefusalReason};
use mgp_runtime::{Counter, LatencyRecorder};

/// The label for calls beyond the bound; not a valid server id.
pub(crate) const OTHER_LABEL: &str = "~other";
/// The label for calls of no server's tool: the kernel's own tools and unknown names.
pub(crate) const NO_TOOL_LABEL: &str = "~none";

/// Counts and times of all calls.
///
/// A call costs a look into a table under a lock that only the first call of a tool takes for itself, and four
/// additions; nothing is allocated. Once there are as many tools as are told apart, all further ones are counted
/// together under [`OTHER_LABEL`], in both labels: names that servers and other nodes choose take no more memory. So
/// are those whose names no label shows as they are, for two of them could look the same there.
#[derive(Debug)]
pub struct CallMetrics {
    tools: RwLock<ToolTable>,
    tools_max: usize,
    others: Arc<ToolMetrics>,
    no_tool: Arc<ToolMetrics>,
    in_flight: AtomicU64,
    refusals: [Counter; RefusalReason::ALL.len()],
}

#[derive(Debug, Default)]
struct ToolTable {
    servers: HashMap<ServerId, HashMap<Arc<str>, Arc<ToolMetrics>>>,
    tools: usize,
}

/// Those of one tool.
#[derive(Debug, Default)]
struct ToolMetrics {
    finished: [Counter; Ending::ALL.len()],
    latency: LatencyRecorder,
}

impl CallMetrics {
    /// An empty table that distinguishes at most this many tools.
    #[must_use]
    pub fn new(tools_max: usize) -> Self {
        Self {
            tools: RwLock::default(),
            tools_max,
            others: Arc::default(),
            no_tool: Arc::default(),
            in_flight: AtomicU64::new(0),
            refusals: [const { Counter::new() }; RefusalReason::ALL.len()],
        }
    }

    /// A call begins.
    pub(super) fn record_start(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// It ended so.
    pub(super) fn record_end(
        &self,
        tool: Option<&CatalogTool>,
        ending: Ending,
        refusal: Option<&Refusal>,
        lasted: Duration,
    ) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        if let Some(refusal) = refusal {
            self.refusals[refusal.spec().reason as usize].increment();
        }
        let Some(tool) = tool else {
            return self.no_tool.count(ending, lasted);
        };
        let known = {
            let table = self.tools.read().unwrap_or_else(PoisonError::into_inner);
            let of_server = table.servers.get(&tool.server);
            let known = of_server.and_then(|tools| tools.get(&tool.own_name).cloned());
            let others = || table.tools >= self.tools_max || !is_valid_label(&tool.own_name);
            known.or_else(|| others().then(|| self.others.clone()))
        };
        let metrics = known.unwrap_or_else(|| self.insert_tool(tool));
        metrics.count(ending, lasted);
    }

    /// The index of a tool that was never called before.
    fn insert_tool(&self, tool: &CatalogTool) -> Arc<ToolMetrics> {
        let mut table = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        let of_server = table.servers.get(&tool.server);
        if let Some(known) = of_server.and_then(|tools| tools.get(&tool.own_name)) {
            return known.clone();
        }
        // Another thread may have taken the last slot meanwhile.
        if table.tools >= self.tools_max {
            return self.others.clone();
        }
        table.tools += 1;
        let of_server = table.servers.entry(tool.server.clone()).or_default();
        of_server.entry(tool.own_name.clone()).or_default().clone()
    }

    /// All of it, for who reads it.
    #[must_use]
    pub fn metric_families(&self) -> Vec<MetricFamily> {
        let mut calls = MetricFamily::new(
            "mgp_calls",
            MetricKind::Counter,
            "Calls of tools that ended, by server, tool and outcome.",
        );
        let mut times = MetricFamily::new(
            "mgp_call_duration_seconds",
            MetricKind::Histogram,
            "Time from the arrival of a call of a tool to its answer, with all waits.",
        )
        .with_unit("seconds");
        let mut add = |server: &str, tool: &str, metrics: &ToolMetrics| {
            let labels = [("server", server), ("tool", tool)];
            for (outcome, count) in Ending::ALL.iter().zip(&metrics.finished) {
                if count.get() > 0 {
                    let outcome = ("outcome", outcome.label());
                    calls.add_point(&[labels[0], labels[1], outcome], count.get());
                }
            }
            times.add_point(&labels, metrics.latency.snapshot());
        };
        let table = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        for (server, tools) in &table.servers {
            for (tool, metrics) in tools {
                add(server.as_str(), tool, metrics);
            }
        }
        add(OTHER_LABEL, OTHER_LABEL, &self.others);
        add(NO_TOOL_LABEL, NO_TOOL_LABEL, &self.no_tool);
        let told_apart = table.tools;
        drop(table);
        let mut refusals = MetricFamily::new(
            "mgp_call_refusals",
            MetricKind::Counter,
            "Calls of tools that ended without a result, by reason.",
        );
        for (reason, count) in RefusalReason::ALL.iter().zip(&self.refusals) {
            refusals.add_point(&[("reason", reason.as_str())], count.get());
        }
        let gauge = |name, help| MetricFamily::new(name, MetricKind::Gauge, help);
        vec![
            calls,
            times,
            refusals,
            gauge("mgp_calls_under_way", "Calls of tools that have not ended.")
                .with_point(&[], self.in_flight.load(Ordering::Relaxed)),
            gauge(
                "mgp_tools_told_apart",
                "Tools that have labels of their own; calls of further ones have the label ~other.",
            )
            .with_point(&[("is", "now")], told_apart)
            .with_point(&[("is", "limit")], self.tools_max),
        ]
    }
}

impl ToolMetrics {
    fn count(&self, ending: Ending, lasted: Duration) {
        let place = match ending {
            Ending::Success => 0,
            Ending::Failure => 1,
            Ending::Blocked => 2,
            Ending::Denied => 3,
            Ending::Timeout => 4,
            Ending::Cancelled => 5,
        };
        self.finished[place].increment();
        self.latency.record(lasted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgp_engine::calls::telemetry::exposition::{TextFormat, render};
    use mgp_engine::tools::catalog::{ListKind, ServerOffer};
    use std::time::Instant;

    fn tool(server: &str, name: &str) -> Arc<CatalogTool> {
        let text = format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
        let offer = ServerOffer::new(ServerId::new(server)).with_list(ListKind::Tools, &[&*text]);
        Arc::clone(&offer.tools()[0])
    }

    fn told(metrics: &CallMetrics) -> String {
        render(&metrics.metric_families(), TextFormat::Prometheus)
    }

    /// Decision 0066: a tool beyond the bound is counted with the others, and one that has its place keeps it.
    #[test]
    fn labels_are_bounded() {
        let metrics = CallMetrics::new(2);
        let second = Duration::from_secs(1);
        for round in 0..2 {
            for n in 0..10 {
                let tool = tool("a", &format!("t{n}"));
                metrics.record_start();
                metrics.record_end(Some(&tool), Ending::Success, None, second);
            }
            let told = told(&metrics);
            let own = format!(
                "mgp_calls_total{{server=\"a\",tool=\"t1\",outcome=\"success\"}} {}",
                round + 1
            );
            assert!(told.contains(&own), "{told}");
            assert!(!told.contains("tool=\"t2\""), "{told}");
            let others = 8 * (round + 1);
            let all =
                format!("{{server=\"~other\",tool=\"~other\",outcome=\"success\"}} {others}\n");
            assert!(told.contains(&all), "{told}");
            assert!(
                told.contains("mgp_tools_told_apart{is=\"now\"} 2"),
                "{told}"
            );
        }
    }

    /// Decision 0066: no two figures have the same labels, whatever servers call their tools.
    #[test]
    fn names_that_look_the_same_are_counted_together() {
        let metrics = CallMetrics::new(100);
        let long = "x".repeat(200);
        let names = [
            "a\\u200bb",
            "a\\u200cb",
            &format!("{long}1"),
            &format!("{long}2"),
            "b",
        ];
        for name in names {
            metrics.record_start();
            metrics.record_end(
                Some(&tool("s", name)),
                Ending::Success,
                None,
                Duration::ZERO,
            );
        }
        let told = told(&metrics);
        let mut labels: Vec<&str> = told
            .lines()
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(name, _)| name)
            .collect();
        let all = labels.len();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), all, "{told}");
        assert!(
            told.contains("{server=\"~other\",tool=\"~other\",outcome=\"success\"} 4\n"),
            "{told}"
        );
    }

    /// Decision 0066: each refusal has its reason, and a call of nothing is counted without its name.
    #[test]
    fn a_refusal_is_counted_by_its_reason() {
        let metrics = CallMetrics::new(2);
        metrics.record_start();
        metrics.record_start();
        let unknown = Refusal::UnknownTool("a secret".into());
        metrics.record_end(None, Ending::Blocked, Some(&unknown), Duration::ZERO);
        let told = told(&metrics);
        assert!(
            told.contains("mgp_call_refusals_total{reason=\"unknown\"} 1"),
            "{told}"
        );
        assert!(
            told.contains("{server=\"~none\",tool=\"~none\",outcome=\"blocked\"} 1"),
            "{told}"
        );
        assert!(told.contains("mgp_calls_under_way 1"), "{told}");
        assert!(!told.contains("secret"), "{told}");
    }

    /// Decision 0066: what is measured costs a call no more than a microsecond. The bound here is that of a build
    /// that is not optimised.
    #[test]
    fn a_call_is_counted_within_microseconds() {
        // Half of them are beyond the bound.
        let metrics = CallMetrics::new(500);
        let tools: Vec<_> = (0..1000)
            .map(|n| tool("server", &format!("tool-{n}")))
            .collect();
        let round = || {
            let began = Instant::now();
            for tool in &tools {
                metrics.record_start();
                metrics.record_end(Some(tool), Ending::Success, None, Duration::from_millis(1));
            }
            began.elapsed() / 1000
        };
        round();
        let best = (0..20).map(|_| round()).min().unwrap();
        eprintln!("a call is counted in {best:?}");
        assert!(best < Duration::from_micros(10), "{best:?}");
    }
}
