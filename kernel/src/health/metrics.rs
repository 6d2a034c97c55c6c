//! Figures of the whole kernel: for `/metrics` of the HTTP door, `mgp metrics`, and a collector.
//!
//! What is counted is counted where it happens; here it is read, and what can be seen at any time is looked at.

mod requests;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use mgp_callers::request::{Answering, Outcome, Request};
use mgp_calls::{CallMetrics, Context};
use mgp_doors::bodies::Bodies;
use mgp_doors::http_door::DoorCounts;
use mgp_engine::calls::telemetry::exposition::{TextForm, text};
use mgp_engine::calls::telemetry::families::{MetricFamily, MetricKind};
use mgp_protocol::mcp;
use mgp_protocol::mgp::health::ResourcesInUse;
use mgp_protocol::mgp::kernel::{Metrics, MetricsText};
use mgp_runtime::mailbox::Kind;
use mgp_runtime::task;
use mgp_runtime::time::{moment, unix_ms};
use mgp_servers::server::{ResourceFigures, ResourceLook, ServerHandle};
use mgp_store::trouble::Troubles;
use mgp_store::{audit, journal};

pub use self::requests::RequestCounts;
use super::telemetry::TelemetryCounts;
use crate::cluster::Cluster;

/// Reads all figures.
#[derive(Debug)]
pub struct KernelMetrics {
    /// What calls use.
    pub calls: Arc<Context>,
    /// What servers and the kernel use.
    pub figures: Arc<ResourceFigures>,
    /// What is wrong with the kernel's files.
    pub troubles: Troubles,
    /// This node's part in a cluster.
    pub cluster: Arc<Cluster>,
    /// The memory of messages.
    pub bodies: Arc<Bodies>,
    /// Requests by their methods.
    pub requests: Arc<RequestCounts>,
    /// Answers of the HTTP door.
    pub doors: Arc<DoorCounts>,
    /// What the collector was told.
    pub telemetry: Arc<TelemetryCounts>,
    /// Where the HTTP door shows them, once it is open.
    pub shown_at: OnceLock<ShownMetrics>,
}

/// Where the HTTP door shows the figures.
#[derive(Debug, Clone)]
pub struct ShownMetrics {
    /// The address.
    pub url: String,
    /// The file that holds the token.
    pub token_file: PathBuf,
    /// Programs of this machine need none.
    pub loopback: bool,
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
    pub fn answer(self: Arc<Self>, request: &Request) -> Answering {
        let asked: Result<Metrics, _> = mcp::read(request.params.as_deref());
        Box::pin(async move { self.told(asked?).await })
    }

    async fn told(&self, asked: Metrics) -> Outcome {
        let form = match asked.open_metrics {
            true => TextForm::OpenMetrics,
            false => TextForm::Prometheus,
        };
        let at = self.shown_at.get();
        super::json(&MetricsText {
            text: self.text(form).await,
            url: at.map(|at| at.url.clone()),
            token_file: at.map(|at| at.token_file.display().to_string()),
            loopback: at.is_some_and(|at| at.loopback),
        })
    }

    /// All figures in this form.
    pub async fn text(&self, form: TextForm) -> String {
        text(&self.families().await, form)
    }

    /// All figures.
    pub async fn families(&self) -> Vec<MetricFamily> {
        let look = self.figures.look().await;
        let mut all = self.of_kernel(&look);
        all.extend(self.calls.metrics.families());
        all.extend([self.requests.family(), self.doors.family()]);
        all.extend(self.of_callers());
        all.extend(self.of_servers(&look));
        all.extend(self.of_files());
        all.extend(self.of_cluster());
        all.extend(of_tasks());
        all.extend(self.of_caches());
        all.extend(self.telemetry.families());
        all
    }

    fn of_kernel(&self, look: &ResourceLook) -> Vec<MetricFamily> {
        let up = moment().since_start();
        let ResourcesInUse {
            memory_bytes,
            cpu_seconds,
            open_descriptors,
            children,
        } = look.kernel();
        let start = std::time::Duration::from_millis(unix_ms()).saturating_sub(up);
        vec![
            gauge(
                "mgp_build_info",
                "Always 1; the version of the kernel is a label.",
            )
            .with(&[("version", env!("CARGO_PKG_VERSION"))], 1_u64),
            gauge(
                "process_start_time_seconds",
                "When the kernel started, in seconds since 1970.",
            )
            .in_unit("seconds")
            .with(&[], start.as_secs_f64()),
            gauge(
                "process_resident_memory_bytes",
                "Resident memory of the kernel.",
            )
            .in_unit("bytes")
            .with(&[], memory_bytes),
            counter("process_cpu_seconds", "Processor time of the kernel.")
                .in_unit("seconds")
                .with(&[], cpu_seconds),
            gauge("process_open_fds", "Open descriptors of the kernel.")
                .with(&[], open_descriptors),
            gauge(
                "mgp_child_processes",
                "Processes of servers that are children of the kernel.",
            )
            .with(&[], children),
            gauge(
                "mgp_message_memory_bytes",
                "Memory of messages of agents that are half sent or being answered.",
            )
            .in_unit("bytes")
            .with(&[], self.bodies.under_way()),
            gauge(
                "mgp_unread_response_bytes",
                "Responses that the kernel holds because agents have not read them.",
            )
            .in_unit("bytes")
            .with(&[], self.calls.directory.responses.unread()),
        ]
    }

    fn of_callers(&self) -> Vec<MetricFamily> {
        let stateless = self.calls.directory.stateless_clients.told().len();
        let listening = Kind::Listener.alive();
        let waiting = self.calls.policies.approvals.list().len();
        vec![
            gauge(
                "mgp_connections",
                "Open connections and sessions of agents, by door.",
            )
            .with(&[("door", "socket")], Kind::Connection.alive())
            .with(&[("door", "http")], Kind::Session.alive()),
            gauge(
                "mgp_stateless_clients",
                "Clients without a session that sent something in the last minutes.",
            )
            .with(&[], stateless),
            gauge(
                "mgp_listeners",
                "Stateless clients that listen for changes.",
            )
            .with(&[], listening),
            gauge(
                "mgp_approvals_waiting",
                "Questions that wait for the operator.",
            )
            .with(&[], waiting),
        ]
    }

    fn of_servers(&self, look: &ResourceLook) -> Vec<MetricFamily> {
        let mut up = gauge("mgp_server_up", "1 for a server that is connected, else 0.");
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
        .in_unit("bytes");
        let mut cpu = counter(
            "mgp_server_cpu_seconds",
            "Processor time of the processes of a server.",
        )
        .in_unit("seconds");
        let servers = self.calls.servers.load();
        let shown = self.calls.shown.load();
        for server in servers.values() {
            let id = [("server", server.id.as_str())];
            let (connected, word) = standing(server);
            up.add(&id, u64::from(connected));
            state.add(&[id[0], ("state", &word)], 1_u64);
            begun.add(&id, server.lives_begun());
            in_flight.add(&id, server.in_flight());
            turns.add(&id, server.link().map_or(0, |link| link.waiting()));
            let counts = shown.counts(&server.id);
            tools.add(&id, counts.map_or(0, |counts| counts.tools));
            if let Some(used) = look.server(&server.id) {
                memory.add(&id, used.memory_bytes);
                cpu.add(&id, used.cpu_seconds);
            }
        }
        vec![up, state, begun, in_flight, turns, tools, memory, cpu]
    }

    fn of_files(&self) -> Vec<MetricFamily> {
        let latency =
            |name, help| MetricFamily::new(name, MetricKind::Latency, help).in_unit("seconds");
        let (calls, events) = self.calls.audit.waiting();
        vec![
            latency("mgp_audit_sync_seconds", "Time that syncs of the audit log took.")
                .with(&[], audit::sync_times()),
            latency("mgp_journal_sync_seconds", "Time that syncs of the journals of decisions took.")
                .with(&[], journal::sync_times()),
            gauge(
                "mgp_audit_queue",
                "Calls that have a place in the audit log, and events that wait to be written there.",
            )
            .with(&[("of", "calls")], calls)
            .with(&[("of", "events")], events),
            gauge("mgp_troubles", "Files that the kernel cannot write, or found damaged.")
                .with(&[], self.troubles.told().len()),
        ]
    }

    fn of_cluster(&self) -> Vec<MetricFamily> {
        let view = self.cluster.replication.view();
        let is_in = view.cluster.is_some();
        let members = view
            .members
            .values()
            .filter(|member| is_in && !member.standing.is_out());
        vec![
            gauge(
                "mgp_cluster_members",
                "Nodes of the cluster, this one among them; 0 outside of one.",
            )
            .with(&[], members.count()),
            gauge("mgp_cluster_links", "Other nodes that there is a link to.")
                .with(&[], self.cluster.links.linked().len()),
            gauge(
                "mgp_cluster_relayed_pairs",
                "Pairs of other nodes between which this one passes packets on.",
            )
            .with(&[], self.cluster.links.relayed_pairs().len()),
            gauge(
                "mgp_cluster_lease_held",
                "0 while a node was not heard for longer than the lease, else 1.",
            )
            .with(&[], u64::from(view.unheard.is_none())),
            gauge("mgp_cluster_servers", "Servers that other nodes share.")
                .with(&[], self.cluster.held.load().servers.len()),
        ]
    }

    fn of_caches(&self) -> Vec<MetricFamily> {
        let (lists, bytes) = self.calls.sifted.held();
        let coverage = self.calls.search.coverage();
        vec![
            gauge("mgp_cache_entries", "What caches hold.")
                .with(&[("cache", "lists")], lists)
                .with(&[("cache", "schemas")], self.calls.policies.schemas.held())
                .with(&[("cache", "tasks")], self.calls.tasks.held()),
            gauge("mgp_cache_bytes", "Memory of caches that count theirs.")
                .in_unit("bytes")
                .with(&[("cache", "lists")], bytes),
            gauge(
                "mgp_index_tools",
                "Tools in the index, by how they can be found.",
            )
            .with(&[("by", "words")], coverage.tools)
            .with(&[("by", "meaning")], coverage.by_meaning),
            gauge("mgp_index_waiting", "Texts whose meaning is not known yet.")
                .with(&[], coverage.waiting),
        ]
    }
}

/// Whether a server is connected, and its state as MGP names it.
fn standing(server: &ServerHandle) -> (bool, String) {
    (server.link().is_some(), server.state().to_string())
}

fn of_tasks() -> [MetricFamily; 2] {
    let mut running = gauge("mgp_tasks", "Tasks of the kernel that run, by name.");
    let mut panicked = counter(
        "mgp_task_panics",
        "Tasks of the kernel that ended in a panic, by name.",
    );
    for (name, count) in task::counts() {
        let label = [("task", name)];
        running.add(&label, count.running);
        panicked.add(&label, count.panicked);
    }
    [running, panicked]
}

/// Counts and times of calls, as many tools as the configuration says.
pub(crate) fn call_metrics(tools_max: usize) -> Arc<CallMetrics> {
    Arc::new(CallMetrics::new(tools_max))
}
