//! `mgp nodes list` and `mgp cluster status`.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{Cluster, List, MembershipStatus, Node, NodeStatus};
use mgp_runtime::time::unix_ms;
use serde_json::json;

use super::call;
use super::invite::render_waiting_nodes;
use crate::cli::client::{CliContext, name_resolution};
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_line};
use crate::cli::text_format::{first_line, format_bytes, format_duration, sanitize_line};

/// Widest column of a table, in characters.
const COLUMN_WIDTH_MAX: usize = 48;
/// Clock offset in milliseconds from which it is shown: expiry depends on it.
const CLOCK_OFFSET_WARN_MS: u64 = 100;

const NO_CLUSTER: &str = "this node is in no cluster: `mgp nodes invite` founds one and makes a ticket for another node, \
                     `mgp nodes join` enters that of another one";

pub(super) fn list_nodes(context: &CliContext) -> Result<(), Failure> {
    show(context, |cluster| {
        let mut table = new_table(&["NODE", "ROLE", "STATE", "ADDRESS", "WORDS"]);
        for node in &cluster.nodes {
            table.add_row(vec![
                first_line(&node.name, COLUMN_WIDTH_MAX),
                node.role.as_str().into(),
                render_state(node, cluster.membership),
                render_address(node),
                first_line(&node.words, COLUMN_WIDTH_MAX),
            ]);
        }
        format!("{}\n{}", table.trim_fmt(), render_failures(cluster))
    })
}

pub(super) fn show_status(context: &CliContext) -> Result<(), Failure> {
    show(context, render_cluster)
}

fn show(context: &CliContext, print_text: impl FnOnce(&Cluster) -> String) -> Result<(), Failure> {
    let answer = call(context, List::METHOD, &json!({}), "asking the kernel")?;
    context.print_answer(&answer, |cluster: Cluster| {
        let asking = render_waiting_nodes(&cluster.waiting, unix_ms());
        let text = match cluster.id {
            None => format!("{NO_CLUSTER}\n{}", render_failures(&cluster)),
            Some(_) => print_text(&cluster),
        };
        print_line(format!("{asking}{text}").trim_end())
    })
}

fn render_cluster(cluster: &Cluster) -> String {
    let id = sanitize_line(cluster.id.as_deref().unwrap_or_default());
    let here = match &cluster.listens {
        Some(address) => format!("listens at {}", sanitize_line(address)),
        None => "does not listen for other nodes".to_owned(),
    };
    let lease = match (cluster.membership, cluster.confirmed) {
        (MembershipStatus::Revoked, _) => "VOID: this node was cut off",
        (MembershipStatus::Unknown, _) => "VOID: the cluster does not know this node's key",
        (MembershipStatus::Refused, _) => "NOT CONFIRMED: no other node takes a link of this one",
        (MembershipStatus::Member, true) => "confirmed",
        (MembershipStatus::Member, false) => {
            "NOT CONFIRMED: what agents of other nodes may do here is closed until it is"
        }
    };
    let mut table = new_table(&[
        "NODE", "ROLE", "STATE", "ADDRESS", "RTT", "CLOCK", "LEASE", "TOLD", "SHARES",
    ]);
    for node in &cluster.nodes {
        let rows = node
            .index_age_ms
            .map(|age| format!("{} ago", format_duration(age)));
        table.add_row(vec![
            first_line(&node.name, COLUMN_WIDTH_MAX),
            node.role.as_str().into(),
            render_state(node, cluster.membership),
            render_address(node),
            node.rtt_us.map(format_rtt).unwrap_or_default(),
            format_clock_offset(node.clock_ms),
            render_lease(node),
            rows.unwrap_or_default(),
            render_shares(node),
        ]);
    }
    format!(
        "cluster {id}\nthis node {here}; lease of {} s, {lease}\n\n{}\n{}{}",
        cluster.lease_secs,
        table.trim_fmt(),
        render_relays(cluster),
        render_failures(cluster)
    )
}

/// The address of a node; the last one if it is away.
fn render_address(node: &Node) -> String {
    let address = first_line(
        node.address.as_deref().unwrap_or_default(),
        COLUMN_WIDTH_MAX,
    );
    match node.standing {
        NodeStatus::Away if !address.is_empty() => format!("{address} (last)"),
        NodeStatus::Away
        | NodeStatus::Here
        | NodeStatus::Linked
        | NodeStatus::Left
        | NodeStatus::Revoked => address,
    }
}

/// `linked for 3 min`, `linked through desk for 3 min`, `away for 20 s`, `here, refused`.
fn render_state(node: &Node, own: MembershipStatus) -> String {
    let word = match &node.relay {
        Some(relay) => format!(
            "{} through {}",
            node.standing.as_str(),
            first_line(relay, COLUMN_WIDTH_MAX)
        ),
        None => node.standing.as_str().to_owned(),
    };
    if node.standing == NodeStatus::Here && !own.is_member() {
        return format!("{word}, {}", own.as_str());
    }
    match (node.standing, node.since_ms) {
        (NodeStatus::Linked | NodeStatus::Away, Some(since)) => {
            format!("{word} for {}", format_duration(since))
        }
        (NodeStatus::Left | NodeStatus::Revoked, Some(since)) => {
            format!("{word} {} ago", format_duration(since))
        }
        (NodeStatus::Here | NodeStatus::Linked | NodeStatus::Away, _)
        | (NodeStatus::Left | NodeStatus::Revoked, None) => word,
    }
}

fn format_rtt(us: u64) -> String {
    match us {
        0..10_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        us => format!("{} ms", us / 1000),
    }
}

/// The clock offset, if it matters.
fn format_clock_offset(offset_ms: Option<i64>) -> String {
    let Some(offset) = offset_ms else {
        return String::new();
    };
    match offset.unsigned_abs() {
        0..CLOCK_OFFSET_WARN_MS => "same".to_owned(),
        off if offset > 0 => format!("{} ahead", format_duration(off)),
        off => format!("{} behind", format_duration(off)),
    }
}

fn render_shares(node: &Node) -> String {
    let servers = node.servers.iter();
    let servers = servers.map(|server| {
        let suffix = if server.replica { ", replica" } else { "" };
        format!(
            "{} ({}{suffix})",
            first_line(&server.id, COLUMN_WIDTH_MAX),
            server.tools
        )
    });
    let servers: Vec<String> = servers.collect();
    if servers.is_empty() {
        "nothing".to_owned()
    } else {
        servers.join(", ")
    }
}

/// The pairs of nodes for which this node relays, a line each.
fn render_relays(cluster: &Cluster) -> String {
    let lines = cluster.relays.iter().map(|relayed| {
        let [a, b] = relayed
            .nodes
            .each_ref()
            .map(|name| first_line(name, COLUMN_WIDTH_MAX));
        let dropped = match relayed.dropped {
            0 => String::new(),
            packets => format!(", {packets} packets dropped"),
        };
        format!(
            "\nrelays between {a} and {b}: {} in {}{dropped}",
            format_bytes(relayed.bytes),
            format_duration(relayed.since_ms)
        )
    });
    lines.collect()
}

/// The lease that a node reports.
fn render_lease(node: &Node) -> String {
    match (node.lease_secs, node.confirmed) {
        (Some(secs), Some(false)) => format!("{secs} s, lapsed"),
        (Some(secs), Some(true) | None) => format!("{secs} s"),
        (None, _) => String::new(),
    }
}

/// Pairs of other nodes without a link.
fn unlinked_pairs(cluster: &Cluster) -> impl Iterator<Item = String> + '_ {
    let others = cluster.nodes.iter();
    let others = others.filter(|node| node.standing != NodeStatus::Here);
    others
        .filter(|node| !node.unreached.is_empty())
        .map(|node| {
            let missed = node.unreached.join(", ");
            format!("{} cannot reach {missed}", node.name)
        })
}

/// Problems of nodes or of the cluster, a line each.
fn render_failures(cluster: &Cluster) -> String {
    let of_nodes = cluster.nodes.iter().filter_map(|node| {
        let why = node.why.as_deref()?;
        Some(format!("{}: {why}", node.name))
    });
    let all = of_nodes.chain(unlinked_pairs(cluster));
    let all = all.chain(cluster.troubles.iter().cloned());
    let lines: String = all
        .map(|line| format!("\n{}", sanitize_line(&line)))
        .collect();
    format!("{lines}{}", render_conflicts(cluster))
}

/// Grants that are closed because their authors had not seen a revoke.
fn render_conflicts(cluster: &Cluster) -> String {
    let count = cluster.conflict_count;
    if count == 0 {
        return String::new();
    }
    let shown = cluster.conflicts.iter().map(|closed| {
        let target = name_resolution::render_target(&closed.server_id, closed.tool_name.as_deref());
        let line = format!("{} for {target}: {}", closed.agent_id, closed.conflict);
        format!("\n  {}", sanitize_line(&line))
    });
    let shown: String = shown.collect();
    let more = match count.saturating_sub(cluster.conflicts.len()) {
        0 => String::new(),
        more => format!("\n  and {more} more: `mgp grants list` lists them"),
    };
    format!(
        "\ngrants that are closed by a revoke which their authors did not know of: {count}{shown}{more}"
    )
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::kernel::nodes::{RelayedNodes, SharedServer};

    use super::*;

    #[test]
    fn the_status_shows_what_an_operator_needs() {
        let here = Node {
            name: "desk".into(),
            standing: NodeStatus::Here,
            ..Node::default()
        };
        let nas = Node {
            name: "nas".into(),
            standing: NodeStatus::Linked,
            address: Some("10.0.0.2:7332".into()),
            since_ms: Some(300_000),
            rtt_us: Some(840),
            clock_ms: Some(-2500),
            index_age_ms: Some(1200),
            lease_secs: Some(60),
            confirmed: Some(false),
            unreached: vec!["attic".into()],
            servers: vec![SharedServer {
                id: "demo".into(),
                tools: 6,
                replica: true,
            }],
            ..Node::default()
        };
        let attic = Node {
            name: "attic".into(),
            since_ms: Some(20_000),
            address: Some("10.0.0.4:7332".into()),
            why: Some("nobody answers at 10.0.0.4:7332: is it up?".into()),
            ..Node::default()
        };
        let den = Node {
            name: "den".into(),
            standing: NodeStatus::Linked,
            relay: Some("nas".into()),
            since_ms: Some(20_000),
            ..Node::default()
        };
        let cluster = Cluster {
            id: Some("c1".into()),
            nodes: vec![here, nas, attic, den],
            lease_secs: 30,
            confirmed: true,
            relays: vec![RelayedNodes {
                nodes: ["attic".into(), "nas".into()],
                bytes: 3 << 20,
                dropped: 7,
                since_ms: 60_000,
            }],
            ..Cluster::default()
        };
        let text = render_cluster(&cluster);
        for words in [
            "cluster c1",
            "lease of 30 s, confirmed",
            "linked for 5 min",
            "0.8 ms",
            "2 s behind",
            "1 s ago",
            "demo (6, replica)",
            "away for 20 s",
            "10.0.0.4:7332 (last)",
            "attic: nobody answers at 10.0.0.4:7332",
            "linked through nas for 20 s",
            "relays between attic and nas: 3 MiB in 60 s, 7 packets dropped",
            "60 s, lapsed",
            "nas cannot reach attic",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    /// The previous role of a node that was cut off is not shown.
    #[test]
    fn a_node_that_was_cut_off_is_not_shown_as_a_member_with_a_lease() {
        let here = Node {
            name: "desk".into(),
            standing: NodeStatus::Here,
            ..Node::default()
        };
        let shown = |membership| {
            render_cluster(&Cluster {
                id: Some("c1".into()),
                nodes: vec![here.clone()],
                lease_secs: 30,
                membership,
                confirmed: true,
                ..Cluster::default()
            })
        };
        for (membership, words) in [
            (MembershipStatus::Revoked, "VOID: this node was cut off"),
            (MembershipStatus::Refused, "no other node takes a link"),
            (MembershipStatus::Unknown, "does not know this node's key"),
        ] {
            let text = shown(membership);
            assert!(
                text.contains(words) && !text.contains("confirmed"),
                "{text}"
            );
            assert!(
                text.contains(&format!("here, {}", membership.as_str())),
                "{text}"
            );
        }
        assert!(shown(MembershipStatus::Member).contains("lease of 30 s, confirmed"));
    }

    /// FED-051.
    #[test]
    fn a_clock_offset_is_shown_if_it_matters() {
        assert_eq!(format_clock_offset(Some(99)), "same");
        assert_eq!(format_clock_offset(Some(3000)), "3 s ahead");
        assert_eq!(format_clock_offset(None), "");
        assert_eq!(format_rtt(12_345), "12 ms");
    }
}
