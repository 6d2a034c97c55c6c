//! `mgp nodes list` and `mgp cluster status`: who is there.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{Cluster, List, Node, OwnMembership, Standing};
use mgp_runtime::time::unix_ms;
use serde_json::json;

use super::ask;
use super::invite::waiting;
use crate::cli::client::{CliContext, names};
use crate::cli::failure::Failure;
use crate::cli::print::{say, table};
use crate::cli::words::{bytes, one_line, plain, time};

/// Widest column of a table, in characters.
const WIDTH: usize = 48;
/// A clock is told when it is off by so many milliseconds: what expires is judged by it.
const CLOCK_MS: u64 = 100;

const ALONE: &str = "this node is in no cluster: `mgp nodes invite` founds one and makes a ticket for another node, \
                     `mgp nodes join` enters that of another one";

pub(super) fn nodes(context: &CliContext) -> Result<(), Failure> {
    show(context, |cluster| {
        let mut table = table(&["NODE", "ROLE", "STATE", "ADDRESS", "WORDS"]);
        for node in &cluster.nodes {
            table.add_row(vec![
                one_line(&node.name, WIDTH),
                node.role.as_str().into(),
                state(node, cluster.membership),
                address(node),
                one_line(&node.words, WIDTH),
            ]);
        }
        format!("{}\n{}", table.trim_fmt(), troubles(cluster))
    })
}

pub(super) fn status(context: &CliContext) -> Result<(), Failure> {
    show(context, in_words)
}

fn show(context: &CliContext, in_words: impl FnOnce(&Cluster) -> String) -> Result<(), Failure> {
    let answer = ask(context, List::METHOD, &json!({}), "asking the kernel")?;
    context.show(&answer, |cluster: Cluster| {
        let asking = waiting(&cluster.waiting, unix_ms());
        let text = match cluster.id {
            None => format!("{ALONE}\n{}", troubles(&cluster)),
            Some(_) => in_words(&cluster),
        };
        say(format!("{asking}{text}").trim_end())
    })
}

fn in_words(cluster: &Cluster) -> String {
    let id = plain(cluster.id.as_deref().unwrap_or_default());
    let here = match &cluster.listens {
        Some(address) => format!("listens at {}", plain(address)),
        None => "does not listen for other nodes".to_owned(),
    };
    let lease = match (cluster.membership, cluster.confirmed) {
        (OwnMembership::Revoked, _) => "VOID: this node was cut off",
        (OwnMembership::Unknown, _) => "VOID: the cluster does not know this node's key",
        (OwnMembership::Refused, _) => "NOT CONFIRMED: no other node takes a link of this one",
        (OwnMembership::Member, true) => "confirmed",
        (OwnMembership::Member, false) => {
            "NOT CONFIRMED: what agents of other nodes may do here is closed until it is"
        }
    };
    let mut table = table(&[
        "NODE", "ROLE", "STATE", "ADDRESS", "RTT", "CLOCK", "LEASE", "TOLD", "SHARES",
    ]);
    for node in &cluster.nodes {
        let told = node.index_age_ms.map(|age| format!("{} ago", time(age)));
        table.add_row(vec![
            one_line(&node.name, WIDTH),
            node.role.as_str().into(),
            state(node, cluster.membership),
            address(node),
            node.rtt_us.map(rtt).unwrap_or_default(),
            clock(node.clock_ms),
            lease_of(node),
            told.unwrap_or_default(),
            shares(node),
        ]);
    }
    format!(
        "cluster {id}\nthis node {here}; lease of {} s, {lease}\n\n{}\n{}{}",
        cluster.lease_secs,
        table.trim_fmt(),
        relays(cluster),
        troubles(cluster)
    )
}

/// Where a node is; of one that is away, where it was last.
fn address(node: &Node) -> String {
    let address = one_line(node.address.as_deref().unwrap_or_default(), WIDTH);
    match node.standing {
        Standing::Away if !address.is_empty() => format!("{address} (last)"),
        Standing::Away | Standing::Here | Standing::Linked | Standing::Left | Standing::Revoked => {
            address
        }
    }
}

/// `linked for 3 min`, `linked through desk for 3 min`, `away for 20 s`, `here, refused`.
fn state(node: &Node, own: OwnMembership) -> String {
    let word = match &node.relay {
        Some(relay) => format!(
            "{} through {}",
            node.standing.as_str(),
            one_line(relay, WIDTH)
        ),
        None => node.standing.as_str().to_owned(),
    };
    if node.standing == Standing::Here && !own.is_member() {
        return format!("{word}, {}", own.as_str());
    }
    match (node.standing, node.since_ms) {
        (Standing::Linked | Standing::Away, Some(since)) => format!("{word} for {}", time(since)),
        (Standing::Left | Standing::Revoked, Some(since)) => format!("{word} {} ago", time(since)),
        (Standing::Here | Standing::Linked | Standing::Away, _)
        | (Standing::Left | Standing::Revoked, None) => word,
    }
}

fn rtt(us: u64) -> String {
    match us {
        0..10_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        us => format!("{} ms", us / 1000),
    }
}

/// How far its clock is off, where that matters.
fn clock(offset_ms: Option<i64>) -> String {
    let Some(offset) = offset_ms else {
        return String::new();
    };
    match offset.unsigned_abs() {
        0..CLOCK_MS => "same".to_owned(),
        off if offset > 0 => format!("{} ahead", time(off)),
        off => format!("{} behind", time(off)),
    }
}

fn shares(node: &Node) -> String {
    let servers = node.servers.iter();
    let servers = servers.map(|server| {
        let mark = if server.replica { ", replica" } else { "" };
        format!("{} ({}{mark})", one_line(&server.id, WIDTH), server.tools)
    });
    let servers: Vec<String> = servers.collect();
    match servers.is_empty() {
        true => "nothing".to_owned(),
        false => servers.join(", "),
    }
}

/// What this node passes on for others, a line for each pair.
fn relays(cluster: &Cluster) -> String {
    let lines = cluster.relays.iter().map(|relayed| {
        let [a, b] = relayed.nodes.each_ref().map(|name| one_line(name, WIDTH));
        let dropped = match relayed.dropped {
            0 => String::new(),
            packets => format!(", {packets} packets dropped"),
        };
        format!(
            "\nrelays between {a} and {b}: {} in {}{dropped}",
            bytes(relayed.bytes),
            time(relayed.since_ms)
        )
    });
    lines.collect()
}

/// A node's own lease, as it says.
fn lease_of(node: &Node) -> String {
    match (node.lease_secs, node.confirmed) {
        (Some(secs), Some(false)) => format!("{secs} s, lapsed"),
        (Some(secs), Some(true) | None) => format!("{secs} s"),
        (None, _) => String::new(),
    }
}

/// Who has no link to whom, beside what this node's own rows show.
fn unreached(cluster: &Cluster) -> impl Iterator<Item = String> + '_ {
    let others = cluster.nodes.iter();
    let others = others.filter(|node| node.standing != Standing::Here);
    others
        .filter(|node| !node.unreached.is_empty())
        .map(|node| {
            let missed = node.unreached.join(", ");
            format!("{} cannot reach {missed}", node.name)
        })
}

/// What is wrong, with a node or with all, a line for each.
fn troubles(cluster: &Cluster) -> String {
    let of_nodes = cluster.nodes.iter().filter_map(|node| {
        let why = node.why.as_deref()?;
        Some(format!("{}: {why}", node.name))
    });
    let all = of_nodes.chain(unreached(cluster));
    let all = all.chain(cluster.troubles.iter().cloned());
    let lines: String = all.map(|line| format!("\n{}", plain(&line))).collect();
    format!("{lines}{}", conflicts(cluster))
}

/// The grants that are closed because their authors did not know of a revoke.
fn conflicts(cluster: &Cluster) -> String {
    let count = cluster.conflict_count;
    if count == 0 {
        return String::new();
    }
    let shown = cluster.conflicts.iter().map(|closed| {
        let place = names::place(&closed.server_id, closed.tool_name.as_deref());
        let line = format!("{} for {place}: {}", closed.agent_id, closed.conflict);
        format!("\n  {}", plain(&line))
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
    fn a_status_tells_of_each_node_what_an_operator_asks_for() {
        let here = Node {
            name: "desk".into(),
            standing: Standing::Here,
            ..Node::default()
        };
        let nas = Node {
            name: "nas".into(),
            standing: Standing::Linked,
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
            standing: Standing::Linked,
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
        let text = in_words(&cluster);
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

    /// What it was before it was cut off says nothing of now.
    #[test]
    fn a_node_that_was_cut_off_is_not_shown_as_a_member_with_a_lease() {
        let here = Node {
            name: "desk".into(),
            standing: Standing::Here,
            ..Node::default()
        };
        let shown = |membership| {
            in_words(&Cluster {
                id: Some("c1".into()),
                nodes: vec![here.clone()],
                lease_secs: 30,
                membership,
                confirmed: true,
                ..Cluster::default()
            })
        };
        for (membership, words) in [
            (OwnMembership::Revoked, "VOID: this node was cut off"),
            (OwnMembership::Refused, "no other node takes a link"),
            (OwnMembership::Unknown, "does not know this node's key"),
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
        assert!(shown(OwnMembership::Member).contains("lease of 30 s, confirmed"));
    }

    /// FED-051.
    #[test]
    fn a_clock_is_told_where_it_matters() {
        assert_eq!(clock(Some(99)), "same");
        assert_eq!(clock(Some(3000)), "3 s ahead");
        assert_eq!(clock(None), "");
        assert_eq!(rtt(12_345), "12 ms");
    }
}
