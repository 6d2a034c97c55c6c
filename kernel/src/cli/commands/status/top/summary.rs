//! What is above the table: the kernel, its calls, what it uses, its files, its cluster, and what is wrong.

use mgp_protocol::mgp::kernel::KernelStatus;
use mgp_protocol::mgp::kernel::nodes::{Cluster, Standing};

use super::history::{TopHistory, within};
use super::look::TopLook;
use super::words::{rate, share, span};
use crate::cli::words::{bytes, one_line, time};

/// Most characters of a text from elsewhere.
const TEXT: usize = 300;

/// Each a line, the first ones the most important; safe for a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TopSummary {
    pub(super) kernel: String,
    pub(super) calls: String,
    pub(super) uses: String,
    pub(super) files: String,
    /// Nothing outside of one.
    pub(super) cluster: Option<String>,
    /// Whether a node is away, or the lease is not confirmed.
    pub(super) cluster_ails: bool,
    pub(super) doors: String,
    /// What is wrong with the kernel, a line for each.
    pub(super) troubles: Vec<String>,
}

impl TopSummary {
    pub(super) fn of(look: &TopLook, history: &TopHistory) -> Self {
        let cluster = cluster(&look.cluster);
        Self {
            kernel: kernel(&look.status),
            calls: calls(look, history),
            uses: uses(&look.status, history),
            files: files(look),
            cluster_ails: cluster.as_ref().is_some_and(|(_, ails)| *ails),
            cluster: cluster.map(|(text, _)| text),
            doors: doors(&look.status),
            troubles: troubles(look),
        }
    }

    /// Every line, with its title.
    pub(super) fn titled(&self) -> Vec<(&'static str, &str)> {
        let mut lines = vec![
            ("", &*self.kernel),
            ("calls", &*self.calls),
            ("uses", &*self.uses),
            ("files", &*self.files),
        ];
        lines.extend(self.cluster.as_deref().map(|text| ("cluster", text)));
        lines.push(("doors", &*self.doors));
        lines.extend(self.troubles.iter().map(|text| ("trouble", &**text)));
        lines
    }
}

fn kernel(status: &KernelStatus) -> String {
    let up = time(status.uptime_secs.saturating_mul(1000));
    let connected = status.servers.iter();
    let connected = connected
        .filter(|server| server.state == "connected")
        .count();
    format!(
        "mgp {}, process {}, up {up}, {connected} of {} servers connected, {}",
        one_line(&status.version, TEXT),
        status.pid,
        status.servers.len(),
        agents(status.connections)
    )
}

fn agents(connections: u64) -> String {
    match connections {
        1 => "1 agent".into(),
        many => format!("{many} agents"),
    }
}

fn calls(look: &TopLook, history: &TopHistory) -> String {
    let rates = history.of_all();
    format!(
        "{} a second, {} errors, p50 {}, p99 {}, {} under way",
        rate(rates.calls),
        rate(rates.errors),
        span(rates.p50_us),
        span(rates.p99_us),
        look.figures.under_way
    )
}

fn uses(status: &KernelStatus, history: &TopHistory) -> String {
    let of_servers = servers_memory(status);
    let own = status
        .uses
        .map_or("–".into(), |uses| bytes(uses.memory_bytes));
    format!(
        "memory {own}, of servers {}, processor {}",
        bytes(of_servers),
        share(history.of_all().cpu)
    )
}

/// Memory of the processes of all servers.
pub(super) fn servers_memory(status: &KernelStatus) -> u64 {
    let uses = status.servers.iter().filter_map(|server| server.uses);
    uses.map(|uses| uses.memory_bytes).sum()
}

/// How the disk does: syncs since the kernel's start, as there are few.
fn files(look: &TopLook) -> String {
    let figures = &look.figures;
    format!(
        "audit sync p99 {}, {} waiting; journal sync p99 {}",
        span(within(&figures.audit_syncs, 0.99)),
        figures.audit_queue,
        span(within(&figures.journal_syncs, 0.99))
    )
}

/// In words, and whether something is not as it should be.
fn cluster(cluster: &Cluster) -> Option<(String, bool)> {
    cluster.id.as_ref()?;
    let is = |wanted: &[Standing]| {
        let nodes = cluster.nodes.iter();
        nodes.filter(|node| wanted.contains(&node.standing)).count()
    };
    let (there, away) = (
        is(&[Standing::Here, Standing::Linked]),
        is(&[Standing::Away]),
    );
    let lease = match cluster.confirmed {
        true => "lease confirmed",
        false => "lease NOT CONFIRMED",
    };
    let others = cluster
        .nodes
        .iter()
        .filter(|node| node.standing != Standing::Here);
    let shared: usize = others.map(|node| node.servers.len()).sum();
    let text = format!(
        "{there} of {} nodes in reach, {lease}, {shared} servers of others",
        there + away
    );
    Some((text, away > 0 || !cluster.confirmed))
}

/// Without what only who connects needs.
fn doors(status: &KernelStatus) -> String {
    let doors = status.doors.iter();
    let doors = doors.map(|door| door.split(',').next().unwrap_or_default());
    let doors: Vec<_> = doors.map(|door| one_line(door, TEXT)).collect();
    doors.join(", ")
}

fn troubles(look: &TopLook) -> Vec<String> {
    let KernelStatus {
        troubles,
        config_problems,
        untrusted,
        ..
    } = &look.status;
    let of_files = untrusted.iter().map(|file| &file.why);
    let all = troubles.iter().chain(config_problems).chain(of_files);
    let all = all.chain(&look.cluster.troubles);
    all.map(|text| one_line(text, TEXT)).collect()
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::health::ResourcesInUse;
    use mgp_protocol::mgp::kernel::nodes::Node;
    use mgp_protocol::mgp::servers::Server;

    use super::*;

    #[test]
    fn a_summary_tells_of_the_kernel_its_files_and_its_cluster() {
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
        let mut look = TopLook {
            status,
            ..TopLook::default()
        };
        look.figures.audit_syncs.buckets[4] = 3;
        look.figures.audit_queue = 2;
        look.cluster.id = Some("c".into());
        look.cluster.nodes = [Standing::Here, Standing::Away, Standing::Revoked]
            .map(node)
            .into();
        let told = TopSummary::of(&look, &TopHistory::default());
        let lines: Vec<String> = told
            .titled()
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
        assert!(told.cluster_ails);
        look.cluster.id = None;
        assert_eq!(TopSummary::of(&look, &TopHistory::default()).cluster, None);
    }
}
