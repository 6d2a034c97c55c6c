//! Metrics of the whole kernel: for `/metrics` over HTTP, `mgp metrics`, and a collector.
//!
//! Counters are incremented where the event happens; here they are read, and gauges are sampled.

mod requests;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use mgp_callers::request::{AnswerFuture, Outcome, Request};
use mgp_calls::{CallMetrics, Context};
use mgp_doors::{MessageBudgets, ResponseCounts};
use mgp_engine::calls::telemetry::exposition::{TextFormat, render};
use mgp_engine::calls::telemetry::families::{MetricFamily, MetricKind};
use mgp_protocol::mcp;
use mgp_protocol::mgp::health::ResourcesInUse;
use mgp_protocol::mgp::kernel::{Metrics, MetricsText};
use mgp_runtime::time::{monotonic_now, unix_ms};
use mgp_runtime::{CountedKind, task};
use mgp_screening::results::Findings;
use mgp_servers::{ResourceMonitor, ResourceSnapshot, ServerHandle};
use mgp_store::{StorageHealth, audit, journal};

pub(crate) use self::requests::RequestCounts;
use super::telemetry::TelemetryCounts;
use crate::cluster::Cluster;

/// Reads all metrics.
#[derive(Debug)]
pub(crate) struct KernelMetrics {
    /// Metrics of calls.
    pub(crate) calls: Arc<Context>,
    /// Resource usage of servers and of the kernel.
    pub(crate) resource_usage: Arc<ResourceMonitor>,
    /// Problems with the kernel's files.
    pub(crate) storage_health: StorageHealth,
    /// The cluster as this node sees it.
    pub(crate) cluster: Arc<Cluster>,
    /// Memory of messages.
    pub(crate) message_budgets: Arc<MessageBudgets>,
    /// Requests by method.
    pub(crate) requests: Arc<RequestCounts>,
    /// Responses of the HTTP listener.
    pub(crate) endpoints: Arc<ResponseCounts>,
    /// Exports to the collector.
    pub(crate) telemetry: Arc<TelemetryCounts>,
    /// Where the HTTP listener serves metrics, once it is open.
    pub(crate) scrape_target: OnceLock<ScrapeTarget>,
}

#[derive(Debug, Clone)]
pub(crate) struct ScrapeTarget {
    /// The address.
    pub(crate) url: String,
    /// The file that holds the token.
    pub(crate) token_file: PathBuf,
    /// Whether programs on this machine need no token.
    pub(crate) is_open_to_loopback: bool,
}

fn gauge(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily::new(name, MetricKind::Gauge, help)
}

fn counter(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily::new(name, MetricKind::Counter, help)
}

impl KernelMetrics {
    /// `mgp/kernel/metrics`.
    #[must_use]
    pub(crate) fn handle(self: Arc<Self>, request: &Request) -> AnswerFuture {
        let options: Result<Metrics, _> = mcp::parse_params(request.params.as_deref());
        Box::pin(async move { self.render_outcome(options?).await })
    }

    async fn render_outcome(&self, options: Metrics) -> Outcome {
        let form = if options.open_metrics {
            TextFormat::OpenMetrics
        } else {
            TextFormat::Prometheus
        };
        let at = self.scrape_target.get();
        super::json_outcome(&MetricsText {
            text: self.render(form).await,
            url: at.map(|at| at.url.clone()),
            token_file: at.map(|at| at.token_file.display().to_string()),
            loopback: at.is_some_and(|at| at.is_open_to_loopback),
        })
    }

    /// All metrics in this format.
    pub(crate) async fn render(&self, form: TextFormat) -> String {
        render(&self.families().await, form)
    }

    /// All metrics.
    pub(crate) async fn families(&self) -> Vec<MetricFamily> {
        let current_usage = self.resource_usage.sample().await;
        let mut all = self.kernel_families(&current_usage);
        all.extend(self.calls.metrics.metric_families());
        all.extend([self.requests.family(), self.endpoints.family()]);
        all.extend(self.caller_families());
        all.extend(self.server_families(&current_usage));
        all.extend(self.file_families());
        all.extend(self.cluster_families());
        all.extend(task_families());
        all.extend(self.cache_families());
        all.extend(self.telemetry.families());
        all
    }

    fn kernel_families(&self, current_usage: &ResourceSnapshot) -> Vec<MetricFamily> {
        let up = monotonic_now().since_start();
        let ResourcesInUse {
            memory_bytes,
            cpu_seconds,
            open_descriptors,
            children,
        } = current_usage.kernel();
        let start = std::time::Duration::from_millis(unix_ms()).saturating_sub(up);
        vec![
            gauge(
                "mgp_build_info",
                "Always 1; the version of the kernel is a label.",
            )
            .with_point(&[("version", env!("CARGO_PKG_VERSION"))], 1_u64),
            gauge(
                "process_start_time_seconds",
                "When the kernel started, in seconds since 1970.",
            )
            .with_unit("seconds")
            .with_point(&[], start.as_secs_f64()),
            gauge(
                "process_resident_memory_bytes",
                "Resident memory of the kernel.",
            )
            .with_unit("bytes")
            .with_point(&[], memory_bytes),
            counter("process_cpu_seconds", "Processor time of the kernel.")
                .with_unit("seconds")
                .with_point(&[], cpu_seconds),
            gauge("process_open_fds", "Open descriptors of the kernel.")
                .with_point(&[], open_descriptors),
            gauge(
                "mgp_child_processes",
                "Processes of servers that are children of the kernel.",
            )
            .with_point(&[], children),
            gauge(
                "mgp_message_memory_bytes",
                "Memory of messages of agents that are half sent or being answered.",
            )
            .with_unit("bytes")
            .with_point(&[], self.message_budgets.bytes_in_flight()),
            gauge(
                "mgp_unread_response_bytes",
                "Responses that the kernel holds because agents have not read them.",
            )
            .with_unit("bytes")
            .with_point(&[], self.calls.directory.responses.unread_bytes()),
        ]
    }

    fn caller_families(&self) -> Vec<MetricFamily> {
        let stateless = self.calls.directory.stateless_clients.list_clients().len();
        let listening = CountedKind::Listener.live_count();
        let waiting = self.calls.policies.approvals.list().len();
        vec![
            gauge(
                "mgp_connections",
                "Open connections and sessions of agents, by door.",
            )
            .with_point(&[("door", "socket")], CountedKind::Connection.live_count())
            .with_point(&[("door", "http")], CountedKind::Session.live_count()),
            gauge(
                "mgp_stateless_clients",
                "Clients without a session that sent something in the last minutes.",
            )
            .with_point(&[], stateless),
            gauge(
                "mgp_listeners",
                "Stateless clients that listen for changes.",
            )
            .with_point(&[], listening),
            gauge(
                "mgp_approvals_waiting",
                "Questions that wait for the operator.",
            )
            .with_point(&[], waiting),
        ]
    }

    fn server_families(&self, current_usage: &ResourceSnapshot) -> Vec<MetricFamily> {
        let mut up = gauge(
            "mgp_server_up",
            "1 for a server that is connected, or sleeps until it is called, else 0.",
        );
        let mut state = gauge("mgp_server_state", "1 for the state that a server is in.");
        let mut begun = counter(
            "mgp_server_starts",
            "Lives of a server that were begun: one that never had to be restarted has one.",
        );
        let mut in_flight = gauge(
            "mgp_server_calls_in_flight",
            "Requests that a server has not answered.",
        );
        let mut turns = gauge(
            "mgp_server_calls_waiting_turn",
            "Calls that wait for their client's turn.",
        );
        let mut tools = gauge("mgp_server_tools", "Tools that a server offers.");
        let mut memory = gauge(
            "mgp_server_memory_bytes",
            "Memory of the processes of a server.",
        )
        .with_unit("bytes");
        let mut cpu = counter(
            "mgp_server_cpu_seconds",
            "Processor time of the processes of a server.",
        )
        .with_unit("seconds");
        let mut guarded = counter(
            "mgp_result_findings",
            "What was masked, stripped or flagged in results of a server since it was connected, by kind.",
        );
        let servers = self.calls.servers.load();
        let published = self.calls.catalog.load();
        for server in servers.values() {
            let id = [("server", server.id.as_str())];
            let (connected, word) = server_state(server);
            up.add_point(&id, u64::from(connected));
            state.add_point(&[id[0], ("state", &word)], 1_u64);
            begun.add_point(&id, server.generations_started());
            in_flight.add_point(&id, server.in_flight());
            turns.add_point(&id, server.link().map_or(0, |link| link.queued_calls()));
            for (kind, count) in server.guard_findings().iter().flat_map(Findings::iter) {
                guarded.add_point(&[id[0], ("kind", kind.as_str())], u64::from(count));
            }
            let counts = published.offer_counts(&server.id);
            tools.add_point(&id, counts.map_or(0, |counts| counts.tools));
            if let Some(used) = current_usage.server(&server.id) {
                memory.add_point(&id, used.memory_bytes);
                cpu.add_point(&id, used.cpu_seconds);
            }
        }
        vec![
            up, state, begun, in_flight, turns, tools, memory, cpu, guarded,
        ]
    }

    fn file_families(&self) -> Vec<MetricFamily> {
        let latency =
            |name, help| MetricFamily::new(name, MetricKind::Histogram, help).with_unit("seconds");
        let (calls, events) = self.calls.audit.pending_counts();
        vec![
            latency("mgp_audit_sync_seconds", "Time that syncs of the audit log took.")
                .with_point(&[], audit::sync_times()),
            latency("mgp_journal_sync_seconds", "Time that syncs of the journals of decisions took.")
                .with_point(&[], journal::sync_times()),
            gauge(
                "mgp_audit_queue",
                "Calls that have a place in the audit log, and events that wait to be written there.",
            )
            .with_point(&[("of", "calls")], calls)
            .with_point(&[("of", "events")], events),
            gauge("mgp_troubles", "Files that the kernel cannot write, or found damaged.")
                .with_point(&[], self.storage_health.failures().len()),
        ]
    }

    fn cluster_families(&self) -> Vec<MetricFamily> {
        let view = self.cluster.replication.view();
        let is_in = view.cluster.is_some();
        let members = view
            .members
            .values()
            .filter(|member| is_in && !member.status.is_out());
        vec![
            gauge(
                "mgp_cluster_members",
                "Nodes of the cluster, this one among them; 0 outside of one.",
            )
            .with_point(&[], members.count()),
            gauge("mgp_cluster_links", "Other nodes that there is a link to.")
                .with_point(&[], self.cluster.links.linked_nodes().len()),
            gauge(
                "mgp_cluster_relayed_pairs",
                "Pairs of other nodes between which this one passes packets on.",
            )
            .with_point(&[], self.cluster.links.relayed_pairs().len()),
            gauge(
                "mgp_cluster_lease_held",
                "0 while a node was not heard for longer than the lease, else 1.",
            )
            .with_point(&[], u64::from(view.silent_node.is_none())),
            gauge("mgp_cluster_servers", "Servers that other nodes share.")
                .with_point(&[], self.cluster.imported_tools.load().servers.len()),
        ]
    }

    fn cache_families(&self) -> Vec<MetricFamily> {
        let (lists, bytes) = self.calls.filtered_lists.cache_size();
        let coverage = self.calls.search.coverage();
        vec![
            gauge("mgp_cache_entries", "What caches hold.")
                .with_point(&[("cache", "lists")], lists)
                .with_point(
                    &[("cache", "schemas")],
                    self.calls.policies.schemas.cached_count(),
                )
                .with_point(&[("cache", "tasks")], self.calls.tasks.stored_count()),
            gauge("mgp_cache_bytes", "Memory of caches that count theirs.")
                .with_unit("bytes")
                .with_point(&[("cache", "lists")], bytes),
            gauge(
                "mgp_index_tools",
                "Tools in the index, by how they can be found.",
            )
            .with_point(&[("by", "words")], coverage.tools)
            .with_point(&[("by", "meaning")], coverage.by_meaning),
            gauge("mgp_index_waiting", "Texts whose meaning is not known yet.")
                .with_point(&[], coverage.pending_texts),
        ]
    }
}

/// Whether a server takes calls, and its MGP state, or that it sleeps.
fn server_state(server: &ServerHandle) -> (bool, String) {
    let status = server.status();
    if status.is_asleep() {
        (true, "sleeping".to_owned())
    } else {
        (server.link().is_some(), status.state.to_string())
    }
}

fn task_families() -> [MetricFamily; 2] {
    let mut running = gauge("mgp_tasks", "Tasks of the kernel that run, by name.");
    let mut panicked = counter(
        "mgp_task_panics",
        "Tasks of the kernel that ended in a panic, by name.",
    );
    for (name, count) in task::task_counts() {
        let label = [("task", name)];
        running.add_point(&label, count.running);
        panicked.add_point(&label, count.panicked);
    }
    [running, panicked]
}

/// Counts and durations of calls, for as many tools as configured.
pub(crate) fn call_metrics(tools_max: usize) -> Arc<CallMetrics> {
    Arc::new(CallMetrics::new(tools_max))
}
