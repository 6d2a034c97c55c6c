//! `mgp node list` and `mgp cluster status`: who is there.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{Cluster, List, Node, Standing};
use mgp_runtime::time::unix_ms;
use serde_json::json;

use super::ask;
use super::invite::waiting;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{say, table};
use crate::cli::words::{one_line, plain, time};

/// Widest column of a table, in characters.
const WIDTH: usize = 48;
/// A clock is told when it is off by so many milliseconds: what expires is judged by it.
const CLOCK_MS: u64 = 100;

const ALONE: &str = "this node is in no cluster: `mgp node invite` founds one and makes a ticket for another node, \
                     `mgp node join` enters that of another one";

pub(super) fn nodes(context: &CliContext) -> Result<(), Failure> {
    show(context, |cluster| {
        let mut table = table(&["NODE", "ROLE", "STATE", "ADDRESS", "WORDS"]);
        for node in &cluster.nodes {
            table.add_row(vec![
                one_line(&node.name, WIDTH),
                node.role.as_str().into(),
                state(node),
                one_line(node.address.as_deref().unwrap_or_default(), WIDTH),
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
    let lease = match cluster.confirmed {
        true => "confirmed",
        false => "NOT CONFIRMED: what agents of other nodes may do here is closed until it is",
    };
    let mut table = table(&[
        "NODE", "ROLE", "STATE", "ADDRESS", "RTT", "CLOCK", "TOLD", "SHARES",
    ]);
    for node in &cluster.nodes {
        let told = node.index_age_ms.map(|age| format!("{} ago", time(age)));
        table.add_row(vec![
            one_line(&node.name, WIDTH),
            node.role.as_str().into(),
            state(node),
            one_line(node.address.as_deref().unwrap_or_default(), WIDTH),
            node.rtt_us.map(rtt).unwrap_or_default(),
            clock(node.clock_ms),
            told.unwrap_or_default(),
            shares(node),
        ]);
    }
    format!(
        "cluster {id}\nthis node {here}; lease of {} s, {lease}\n\n{}\n{}",
        cluster.lease_secs,
        table.trim_fmt(),
        troubles(cluster)
    )
}

/// `linked for 3 min`, `away for 20 s`.
fn state(node: &Node) -> String {
    let word = node.standing.as_str();
    match (node.standing, node.since_ms) {
        (Standing::Linked | Standing::Away, Some(since)) => format!("{word} for {}", time(since)),
        (Standing::Left | Standing::Revoked, Some(since)) => format!("{word} {} ago", time(since)),
        (Standing::Here | Standing::Linked | Standing::Away, _)
        | (Standing::Left | Standing::Revoked, None) => word.into(),
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

/// What is wrong, with a node or with all, a line for each.
fn troubles(cluster: &Cluster) -> String {
    let of_nodes = cluster.nodes.iter().filter_map(|node| {
        let why = node.why.as_deref()?;
        Some(format!("{}: {why}", node.name))
    });
    let all = of_nodes.chain(cluster.troubles.iter().cloned());
    let lines: String = all.map(|line| format!("\n{}", plain(&line))).collect();
    lines
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::kernel::nodes::SharedServer;

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
            why: Some("nobody answers at 10.0.0.4:7332: is it up?".into()),
            ..Node::default()
        };
        let cluster = Cluster {
            id: Some("c1".into()),
            nodes: vec![here, nas, attic],
            lease_secs: 30,
            confirmed: true,
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
            "attic: nobody answers at 10.0.0.4:7332",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
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
