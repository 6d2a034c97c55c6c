//! Checks that a running kernel reports: itself, its servers, its agents and the other nodes.

use mgp_engine::timestamps::parse_rfc3339;
use mgp_platform::processes;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::agents::{self, Agent};
use mgp_protocol::mgp::kernel::nodes::{self, Cluster, NodeStatus};
use mgp_protocol::mgp::servers::{LogLines, Logs, Server};
use mgp_runtime::time::unix_ms;
use serde_json::json;

use super::CheckContext;
use super::finding::Finding;
use crate::cli::client::parse_result;
use crate::cli::commands::agents::AgentList;
use crate::cli::text_format::{first_line, format_duration};

/// Last lines of a server that are shown.
const LOG_LINES: usize = 3;
/// Most characters of a line.
const LINE_MAX: usize = 200;
/// Warning time before a token expires, in milliseconds: a week.
const TOKEN_EXPIRY_WARN_MS: u64 = 7 * 86_400_000;
/// Clock offset in milliseconds that gets a warning: expiry depends on it.
const CLOCK_OFFSET_WARN_MS: u64 = 100;

pub(super) fn check_kernel(cx: &CheckContext<'_>) -> Vec<Finding> {
    const AREA: &str = "kernel";
    let Some(status) = &cx.status else {
        return vec![match cx.context.data_dir_holder() {
            Some(pid) => Finding::broken(
                AREA,
                format!(
                    "process {pid} holds {} and does not answer",
                    cx.data_dir.display()
                ),
            )
            .with_command(format!("kill {pid}, then mgp up --detach")),
            None => Finding::warning(AREA, "none is running").with_command("mgp up --detach"),
        }];
    };
    let mut findings: Vec<_> = status
        .troubles
        .iter()
        .map(|problem| Finding::broken(AREA, problem))
        .collect();
    let own = env!("CARGO_PKG_VERSION");
    if status.version != own {
        let message = format!("it is version {}, and this program {own}", status.version);
        findings.push(Finding::warning(AREA, message).with_command("mgp down && mgp up --detach"));
    }
    if !processes::is_running(status.pid.cast_signed()) {
        findings.push(Finding::warning(
            AREA,
            "it runs in a container or on another machine",
        ));
    }
    if findings.is_empty() {
        let (pid, up) = (status.pid, format_duration(status.uptime_secs * 1000));
        findings.push(Finding::good(AREA, format!("process {pid}, up {up}")));
    }
    findings
}

pub(super) fn check_servers(cx: &CheckContext<'_>) -> Vec<Finding> {
    const AREA: &str = "server";
    let Some(status) = &cx.status else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut good = 0;
    for server in &status.servers {
        let why = server.reason.as_deref().unwrap_or_default();
        let message = format!("{} is {}: {why}", server.id, server.state);
        let ill = server
            .health
            .as_deref()
            .filter(|health| *health != "healthy");
        match (server.state.as_str(), ill) {
            ("error", _) => {
                let message = format!("{message}{}", last_lines(cx, server));
                let command = format!(
                    "mgp servers logs {0}, then mgp servers restart {0}",
                    server.id
                );
                findings.push(Finding::broken(AREA, message).with_command(command));
            }
            ("connected", Some(health)) => {
                let message = format!("{} is connected and {health}", server.id);
                findings.push(
                    Finding::warning(AREA, message)
                        .with_command(format!("mgp servers show {}", server.id)),
                );
            }
            ("restarting" | "draining", _) => findings.push(Finding::warning(AREA, message)),
            ("disconnected", _) if server.next_try_ms.is_some() => {
                let message = format!("{message}{}", last_lines(cx, server));
                findings.push(
                    Finding::broken(AREA, message)
                        .with_command(format!("mgp servers logs {}", server.id)),
                );
            }
            _ => good += 1,
        }
        let lost = server
            .left_out
            .iter()
            .map(|what| format!("{}: {what}", server.id));
        findings.extend(lost.map(|message| Finding::warning(AREA, message)));
    }
    if good > 0 {
        let sleeping = status.servers.iter().filter(|server| server.sleeping);
        let message = match sleeping.count() {
            0 => format!("{good} as they should be"),
            sleeping => format!("{good} as they should be, {sleeping} of them sleeping"),
        };
        findings.push(Finding::good(AREA, message));
    }
    findings
}

/// The last output of a server, on one line.
fn last_lines(cx: &CheckContext<'_>, server: &Server) -> String {
    let params = Logs {
        id: server.id.clone(),
        lines: Some(LOG_LINES),
        follow: false,
    };
    let answer = cx.context.call(Logs::METHOD, &params, "asking the kernel");
    let lines = answer.and_then(|answer| parse_result::<LogLines>(&answer));
    let lines = lines.map(|log| log.lines).unwrap_or_default();
    let lines: Vec<_> = lines
        .iter()
        .map(|line| first_line(&line.text, LINE_MAX))
        .collect();
    if lines.is_empty() {
        String::new()
    } else {
        format!("; its last lines: {}", lines.join(" | "))
    }
}

pub(super) fn check_agents_and_nodes(cx: &CheckContext<'_>) -> Vec<Finding> {
    if cx.status.is_none() {
        return Vec::new();
    }
    let ask = |method| cx.context.call(method, &json!({}), "asking the kernel");
    let listed = ask(agents::List::METHOD).and_then(|answer| parse_result::<AgentList>(&answer));
    let agents = listed.map(|listed| listed.agents).unwrap_or_default();
    let mut findings: Vec<_> = agents
        .iter()
        .filter_map(|agent| check_token(agent, unix_ms()))
        .collect();
    let cluster = ask(nodes::List::METHOD).and_then(|answer| parse_result::<Cluster>(&answer));
    findings.extend(cluster.iter().flat_map(check_peers));
    findings
}

/// A token that expires soon, or has expired.
fn check_token(agent: &Agent, now: u64) -> Option<Finding> {
    const AREA: &str = "token";
    let end = parse_rfc3339(agent.expires_at.as_deref()?)?;
    let name = &agent.id;
    let command = format!("mgp agents token {name} --rotate");
    match end.saturating_sub(now) {
        0 => {
            Some(Finding::broken(AREA, format!("that of {name} has expired")).with_command(command))
        }
        left @ ..TOKEN_EXPIRY_WARN_MS => {
            let message = format!("that of {name} expires in {}", format_duration(left));
            Some(Finding::warning(AREA, message).with_command(command))
        }
        TOKEN_EXPIRY_WARN_MS.. => None,
    }
}

fn check_peers(cluster: &Cluster) -> Vec<Finding> {
    const AREA: &str = "cluster";
    if cluster.id.is_none() {
        return Vec::new();
    }
    let mut findings: Vec<_> = cluster
        .troubles
        .iter()
        .map(|problem| Finding::broken(AREA, problem))
        .collect();
    for node in &cluster.nodes {
        if node.standing == NodeStatus::Away {
            let why = node.why.as_deref().unwrap_or("no link to it is open");
            findings.push(
                Finding::warning(AREA, format!("{} is away: {why}", node.name))
                    .with_command("mgp cluster status"),
            );
        }
    }
    findings.extend(check_clocks(cluster));
    findings.push(check_links(cluster));
    findings
}

/// How many of the other nodes are linked; departed ones are not expected.
fn check_links(cluster: &Cluster) -> Finding {
    const AREA: &str = "cluster";
    let many = |standing| {
        let nodes = cluster.nodes.iter();
        nodes.filter(|node| node.standing == standing).count()
    };
    let (linked, away) = (many(NodeStatus::Linked), many(NodeStatus::Away));
    let out = match many(NodeStatus::Left) + many(NodeStatus::Revoked) {
        0 => String::new(),
        out => format!("; {out} left or were cut off"),
    };
    let there = linked + away;
    match there {
        0 => Finding::good(AREA, format!("no other node is in the cluster{out}")),
        _ if away == 0 => Finding::good(AREA, format!("all {there} other nodes are linked{out}")),
        _ => Finding::warning(
            AREA,
            format!("{linked} of {there} other nodes are linked{out}"),
        )
        .with_command("mgp cluster status"),
    }
}

/// Clock offsets. If this node's clock differs from all others alike, it is the wrong one.
fn check_clocks(cluster: &Cluster) -> Vec<Finding> {
    const AREA: &str = "clock";
    let measured = cluster.nodes.iter();
    let measured = measured.filter_map(|node| Some((node, node.clock_ms?)));
    let measured: Vec<_> = measured.collect();
    let off: Vec<_> = measured
        .iter()
        .filter(|(_, off)| off.unsigned_abs() >= CLOCK_OFFSET_WARN_MS)
        .collect();
    let all = off.len() == measured.len();
    let one_way = off.iter().all(|(_, ms)| *ms > 0) || off.iter().all(|(_, ms)| *ms < 0);
    if all && one_way && off.len() > 1 {
        let least = off.iter().min_by_key(|(_, ms)| ms.unsigned_abs());
        let (way, ms) = match least {
            Some((_, ms)) if *ms > 0 => ("behind", ms.unsigned_abs()),
            Some((_, ms)) => ("ahead of", ms.unsigned_abs()),
            None => return Vec::new(),
        };
        let names: Vec<&str> = off.iter().map(|(node, _)| &*node.name).collect();
        let message = format!(
            "this node's is {} {way} those of {}",
            format_duration(ms),
            names.join(", ")
        );
        return vec![Finding::broken(AREA, message).with_command("timedatectl set-ntp true")];
    }
    let warnings = off.into_iter().map(|(node, ms)| {
        let message = format!(
            "that of {} is off by {}",
            node.name,
            format_duration(ms.unsigned_abs())
        );
        Finding::warning(AREA, message)
            .with_command("timedatectl set-ntp true, on the node that is wrong")
    });
    warnings.collect()
}

#[cfg(test)]
mod tests {
    use mgp_engine::timestamps::render_rfc3339_ms;
    use mgp_protocol::mgp::kernel::nodes::Node;

    use super::super::finding::FindingLevel;
    use super::*;

    #[test]
    fn a_token_gets_a_warning_a_week_before_expiry() {
        let now = 1_800_000_000_000;
        let of = |end: u64| {
            let agent = Agent {
                id: "agent.x".into(),
                added_at: String::new(),
                token_made_at: String::new(),
                expires_at: Some(render_rfc3339_ms(end)),
                expired: end <= now,
                groups: Vec::new(),
            };
            check_token(&agent, now).map(|finding| finding.level)
        };
        assert_eq!(of(now), Some(FindingLevel::Broken));
        assert_eq!(
            of(now + TOKEN_EXPIRY_WARN_MS / 2),
            Some(FindingLevel::Warning)
        );
        assert_eq!(of(now + TOKEN_EXPIRY_WARN_MS), None);
    }

    #[test]
    fn peers_that_are_away_or_have_other_clocks_are_reported() {
        let node = |name: &str, standing, clock_ms| Node {
            name: name.into(),
            standing,
            clock_ms,
            ..Node::default()
        };
        let cluster = Cluster {
            id: Some("c".into()),
            nodes: vec![
                node("here", NodeStatus::Here, None),
                node("gpu", NodeStatus::Away, None),
                node("cam", NodeStatus::Linked, Some(-4000)),
            ],
            ..Cluster::default()
        };
        let message: Vec<_> = check_peers(&cluster).iter().map(Finding::render).collect();
        assert!(
            message[0].contains("gpu is away")
                && message[1].contains("cam is off by 4 s")
                && message[2].contains("1 of 2 other nodes are linked"),
            "{message:?}"
        );
        assert!(check_peers(&Cluster::default()).is_empty());
    }

    /// Departed nodes do not count.
    #[test]
    fn only_live_links_are_counted() {
        let node = |name: &str, standing| Node {
            name: name.into(),
            standing,
            ..Node::default()
        };
        let report = |nodes: &[Node]| {
            let cluster = Cluster {
                id: Some("c".into()),
                nodes: nodes.to_vec(),
                ..Cluster::default()
            };
            let findings = check_links(&cluster);
            (findings.level, findings.render())
        };
        let (here, gone) = (node("a", NodeStatus::Here), node("b", NodeStatus::Revoked));
        let (condition, words) = report(&[here.clone(), gone.clone(), node("c", NodeStatus::Left)]);
        assert_eq!(condition, FindingLevel::Ok);
        assert!(
            words.contains("no other node is in the cluster; 2 left or were cut off"),
            "{words}"
        );
        let linked = node("d", NodeStatus::Linked);
        let (condition, words) = report(&[here.clone(), gone, linked.clone()]);
        assert_eq!(condition, FindingLevel::Ok);
        assert!(
            words.contains("all 1 other nodes are linked; 1 left"),
            "{words}"
        );
        let (condition, words) = report(&[here, linked, node("e", NodeStatus::Away)]);
        assert_eq!(condition, FindingLevel::Warning);
        assert!(words.contains("1 of 2 other nodes are linked"), "{words}");
    }

    /// All others agree: it is this one.
    #[test]
    fn a_clock_offset_to_all_peers_is_this_nodes_own() {
        const DAY: i64 = 86_400_000;
        let node = |name: &str, clock_ms| Node {
            name: name.into(),
            standing: NodeStatus::Linked,
            clock_ms: Some(clock_ms),
            ..Node::default()
        };
        let report = |nodes: &[Node]| {
            let cluster = Cluster {
                nodes: nodes.to_vec(),
                ..Cluster::default()
            };
            let findings = check_clocks(&cluster);
            let words = findings.iter().map(Finding::render);
            words.collect::<Vec<_>>().join("\n")
        };
        let both = report(&[node("nas", DAY), node("den", DAY + 5)]);
        assert!(
            both.contains("this node's is 24 h behind those of nas, den"),
            "{both}"
        );
        let one = report(&[node("nas", DAY), node("den", 5)]);
        assert!(one.contains("that of nas is off by 24 h"), "{one}");
        assert_eq!(report(&[node("nas", 5), node("den", 5)]), "");
    }
}
