//! The lines above the table: kernel, calls, resource usage, files, cluster, and problems.

use mgp_protocol::mgp::kernel::KernelStatus;
use mgp_protocol::mgp::kernel::nodes::{Cluster, NodeStatus};

use super::history::{History, percentile};
use super::number_format::{format_cpu, format_latency, format_rate};
use super::sample::Sample;
use crate::cli::text_format::{first_line, format_bytes, format_duration};

/// Most characters of a foreign text.
const TEXT_WIDTH_MAX: usize = 300;

/// The lines, the most important first; safe for a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) kernel: String,
    pub(super) calls: String,
    pub(super) usage: String,
    pub(super) files: String,
    /// `None` without a cluster.
    pub(super) cluster: Option<String>,
    /// Whether a node is away, or the lease is not confirmed.
    pub(super) is_cluster_degraded: bool,
    pub(super) endpoints: String,
    /// Problems of the kernel, a line each.
    pub(super) failures: Vec<String>,
}

impl Summary {
    pub(super) fn new(current: &Sample, history: &History) -> Self {
        let cluster = render_cluster(&current.cluster);
        Self {
            kernel: render_kernel(&current.status),
            calls: render_calls(current, history),
            usage: render_usage(&current.status, history),
            files: render_files(current),
            is_cluster_degraded: cluster.as_ref().is_some_and(|(_, ails)| *ails),
            cluster: cluster.map(|(text, _)| text),
            endpoints: render_endpoints(&current.status),
            failures: render_failures(current),
        }
    }

    /// All lines with their titles.
    pub(super) fn titled_lines(&self) -> Vec<(&'static str, &str)> {
        let mut lines = vec![
            ("", &*self.kernel),
            ("calls", &*self.calls),
            ("uses", &*self.usage),
            ("files", &*self.files),
        ];
        lines.extend(self.cluster.as_deref().map(|text| ("cluster", text)));
        lines.push(("doors", &*self.endpoints));
        lines.extend(self.failures.iter().map(|text| ("trouble", &**text)));
        lines
    }
}

fn render_kernel(status: &KernelStatus) -> String {
    let up = format_duration(status.uptime_secs.saturating_mul(1000));
    let connected = status.servers.iter();
    let connected = connected
        .filter(|server| server.state == "connected")
        .count();
    let sleeping = status.servers.iter().filter(|server| server.sleeping);
    let sleeping = match sleeping.count() {
        0 => String::new(),
        many => format!(", {many} sleeping"),
    };
    format!(
        "mgp {}, process {}, up {up}, {connected} of {} servers connected{sleeping}, {}",
        first_line(&status.version, TEXT_WIDTH_MAX),
        status.pid,
        status.servers.len(),
        render_agents(status.connections)
    )
}

fn render_agents(connections: u64) -> String {
    match connections {
        1 => "1 agent".into(),
        many => format!("{many} agents"),
    }
}

fn render_calls(current: &Sample, history: &History) -> String {
    let rates = history.total_rates();
    format!(
        "{} a second, {} errors, p50 {}, p99 {}, {} under way",
        format_rate(rates.calls),
        format_rate(rates.errors),
        format_latency(rates.p50_us),
        format_latency(rates.p99_us),
        current.metrics.in_flight
    )
}

fn render_usage(status: &KernelStatus, history: &History) -> String {
    let of_servers = total_server_memory(status);
    let own = status
        .uses
        .map_or("–".into(), |uses| format_bytes(uses.memory_bytes));
    format!(
        "memory {own}, of servers {}, processor {}",
        format_bytes(of_servers),
        format_cpu(history.total_rates().cpu)
    )
}

/// Memory of the processes of all servers.
pub(super) fn total_server_memory(status: &KernelStatus) -> u64 {
    let uses = status.servers.iter().filter_map(|server| server.uses);
    uses.map(|uses| uses.memory_bytes).sum()
}

/// Disk syncs since the kernel's start, because there are few.
fn render_files(current: &Sample) -> String {
    let figures = &current.metrics;
    format!(
        "audit sync p99 {}, {} waiting; journal sync p99 {}",
        format_latency(percentile(&figures.audit_syncs, 0.99)),
        figures.audit_queue,
        format_latency(percentile(&figures.journal_syncs, 0.99))
    )
}

/// A text, and whether the cluster is degraded.
fn render_cluster(cluster: &Cluster) -> Option<(String, bool)> {
    cluster.id.as_ref()?;
    let is = |wanted: &[NodeStatus]| {
        let nodes = cluster.nodes.iter();
        nodes.filter(|node| wanted.contains(&node.standing)).count()
    };
    let (there, away) = (
        is(&[NodeStatus::Here, NodeStatus::Linked]),
        is(&[NodeStatus::Away]),
    );
    let lease = if cluster.confirmed {
        "lease confirmed"
    } else {
        "lease NOT CONFIRMED"
    };
    let others = cluster
        .nodes
        .iter()
        .filter(|node| node.standing != NodeStatus::Here);
    let shared: usize = others.map(|node| node.servers.len()).sum();
    let text = format!(
        "{there} of {} nodes in reach, {lease}, {shared} servers of others",
        there + away
    );
    Some((text, away > 0 || !cluster.confirmed))
}

/// The endpoints, without details for connecting.
fn render_endpoints(status: &KernelStatus) -> String {
    let doors = status.doors.iter();
    let doors = doors.map(|door| door.split(',').next().unwrap_or_default());
    let doors: Vec<_> = doors.map(|door| first_line(door, TEXT_WIDTH_MAX)).collect();
    doors.join(", ")
}

fn render_failures(current: &Sample) -> Vec<String> {
    let KernelStatus {
        troubles,
        config_problems,
        untrusted,
        ..
    } = &current.status;
    let of_files = untrusted.iter().map(|file| &file.why);
    let all = troubles.iter().chain(config_problems).chain(of_files);
    let all = all.chain(&current.cluster.troubles);
    all.map(|text| first_line(text, TEXT_WIDTH_MAX)).collect()
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::health::ResourcesInUse;
    use mgp_protocol::mgp::kernel::nodes::Node;
    use mgp_protocol::mgp::servers::Server;

    use super::*;

    #[test]
    fn a_summary_covers_kernel_files_and_cluster() {
        let uses = Some(ResourcesInUse {
            memory_bytes: 60 << 20,
            ..ResourcesInUse::default()
        });
        let server = Server {
            state: "connected".into(),
            uses,
            ..Server::default()
        };
        let node = |standing| Node {
            standing,
            ..Node::default()
        };
        let status = KernelStatus {
            version: "0.1.0".into(),
            pid: 7,
            uptime_secs: 300,
            connections: 1,
            doors: vec!["socket /s".into(), "http://h/mcp, token in /t".into()],
            troubles: vec!["/data/audit: \u{1b}[31mfull".into()],
            uses,
            servers: vec![server.clone(), server, Server::default()],
            ..KernelStatus::default()
        };
        let mut current = Sample {
            status,
            ..Sample::default()
        };
        current.metrics.audit_syncs.buckets[4] = 3;
        current.metrics.audit_queue = 2;
        current.cluster.id = Some("c".into());
        current.cluster.nodes = [NodeStatus::Here, NodeStatus::Away, NodeStatus::Revoked]
            .map(node)
            .into();
        let summary = Summary::new(&current, &History::default());
        let lines: Vec<String> = summary
            .titled_lines()
            .into_iter()
            .map(|(title, text)| format!("{title}: {text}"))
            .collect();
        assert_eq!(
            lines,
            [
                ": mgp 0.1.0, process 7, up 5 min, 2 of 3 servers connected, 1 agent",
                "calls: – a second, – errors, p50 –, p99 –, 0 under way",
                "uses: memory 60 MiB, of servers 120 MiB, processor –",
                "files: audit sync p99 4.9 ms, 2 waiting; journal sync p99 –",
                "cluster: 1 of 2 nodes in reach, lease NOT CONFIRMED, 0 servers of others",
                "doors: socket /s, http://h/mcp",
                "trouble: /data/audit: full",
            ]
        );
        assert!(summary.is_cluster_degraded);
        current.cluster.id = None;
        assert_eq!(Summary::new(&current, &History::default()).cluster, None);
    }
}
