//! What a running kernel says of itself, its servers, its agents and the other nodes.

use std::path::Path;

use mgp_engine::timestamps::parse_rfc3339;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::agents::{self, Agent};
use mgp_protocol::mgp::kernel::nodes::{self, Cluster, Standing};
use mgp_protocol::mgp::servers::{LogLines, Logs, Server};
use mgp_runtime::time::unix_ms;
use serde_json::json;

use super::Patient;
use super::finding::DoctorFinding;
use crate::cli::client::read;
use crate::cli::commands::agents::ListedAgents;
use crate::cli::words::{one_line, time};

/// Last lines of a server that are told.
const LINES: usize = 3;
/// Longest part of a line that is told, in characters.
const LINE_MAX: usize = 200;
/// A token is told of so long before its end, in milliseconds: a week.
const SOON_MS: u64 = 7 * 86_400_000;
/// A clock is told of when it is off by so many milliseconds: what expires is judged by it.
const CLOCK_MS: u64 = 100;

pub(super) fn kernel(patient: &Patient<'_>) -> Vec<DoctorFinding> {
    const AREA: &str = "kernel";
    let Some(status) = &patient.status else {
        return vec![match patient.context.holder() {
            Some(pid) => DoctorFinding::broken(
                AREA,
                format!(
                    "process {pid} holds {} and does not answer",
                    patient.data_dir.display()
                ),
            )
            .mended_by(format!("kill {pid}, then mgp up --detach")),
            None => DoctorFinding::warning(AREA, "none is running").mended_by("mgp up --detach"),
        }];
    };
    let mut found: Vec<_> = status
        .troubles
        .iter()
        .map(|trouble| DoctorFinding::broken(AREA, trouble))
        .collect();
    let own = env!("CARGO_PKG_VERSION");
    if status.version != own {
        let told = format!("it is version {}, and this program {own}", status.version);
        found.push(DoctorFinding::warning(AREA, told).mended_by("mgp down && mgp up --detach"));
    }
    if !Path::new(&format!("/proc/{}", status.pid)).exists() {
        found.push(DoctorFinding::warning(
            AREA,
            "it runs in a container or on another machine",
        ));
    }
    if found.is_empty() {
        let (pid, up) = (status.pid, time(status.uptime_secs * 1000));
        found.push(DoctorFinding::good(AREA, format!("process {pid}, up {up}")));
    }
    found
}

pub(super) fn servers(patient: &Patient<'_>) -> Vec<DoctorFinding> {
    const AREA: &str = "server";
    let Some(status) = &patient.status else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut good = 0;
    for server in &status.servers {
        let why = server.reason.as_deref().unwrap_or_default();
        let told = format!("{} is {}: {why}", server.id, server.state);
        let ill = server
            .health
            .as_deref()
            .filter(|health| *health != "healthy");
        match (server.state.as_str(), ill) {
            ("error", _) => {
                let told = format!("{told}{}", last_lines(patient, server));
                let command = format!(
                    "mgp servers logs {0}, then mgp servers restart {0}",
                    server.id
                );
                found.push(DoctorFinding::broken(AREA, told).mended_by(command));
            }
            ("connected", Some(health)) => {
                let told = format!("{} is connected and {health}", server.id);
                found.push(
                    DoctorFinding::warning(AREA, told)
                        .mended_by(format!("mgp servers info {}", server.id)),
                );
            }
            ("restarting" | "draining", _) => found.push(DoctorFinding::warning(AREA, told)),
            ("disconnected", _) if server.next_try_ms.is_some() => {
                let told = format!("{told}{}", last_lines(patient, server));
                found.push(
                    DoctorFinding::broken(AREA, told)
                        .mended_by(format!("mgp servers logs {}", server.id)),
                );
            }
            _ => good += 1,
        }
        let lost = server
            .left_out
            .iter()
            .map(|what| format!("{}: {what}", server.id));
        found.extend(lost.map(|told| DoctorFinding::warning(AREA, told)));
    }
    if good > 0 {
        found.push(DoctorFinding::good(
            AREA,
            format!("{good} as they should be"),
        ));
    }
    found
}

/// What a server wrote last, on one line.
fn last_lines(patient: &Patient<'_>, server: &Server) -> String {
    let params = Logs {
        id: server.id.clone(),
        lines: Some(LINES),
        follow: false,
    };
    let answer = patient
        .context
        .ask(Logs::METHOD, &params, "asking the kernel");
    let lines = answer.and_then(|answer| read::<LogLines>(&answer));
    let lines = lines.map(|log| log.lines).unwrap_or_default();
    let lines: Vec<_> = lines
        .iter()
        .map(|line| one_line(&line.text, LINE_MAX))
        .collect();
    match lines.is_empty() {
        true => String::new(),
        false => format!("; its last lines: {}", lines.join(" | ")),
    }
}

pub(super) fn agents_and_nodes(patient: &Patient<'_>) -> Vec<DoctorFinding> {
    if patient.status.is_none() {
        return Vec::new();
    }
    let ask = |method| patient.context.ask(method, &json!({}), "asking the kernel");
    let listed = ask(agents::List::METHOD).and_then(|answer| read::<ListedAgents>(&answer));
    let agents = listed.map(|listed| listed.agents).unwrap_or_default();
    let mut found: Vec<_> = agents
        .iter()
        .filter_map(|agent| token(agent, unix_ms()))
        .collect();
    let cluster = ask(nodes::List::METHOD).and_then(|answer| read::<Cluster>(&answer));
    found.extend(cluster.iter().flat_map(peers));
    found
}

/// A token that ends soon, or has ended.
fn token(agent: &Agent, now: u64) -> Option<DoctorFinding> {
    const AREA: &str = "token";
    let end = parse_rfc3339(agent.expires_at.as_deref()?)?;
    let name = &agent.id;
    let command = format!("mgp agents token {name} --rotate");
    match end.saturating_sub(now) {
        0 => Some(
            DoctorFinding::broken(AREA, format!("that of {name} has expired")).mended_by(command),
        ),
        left @ ..SOON_MS => {
            let told = format!("that of {name} expires in {}", time(left));
            Some(DoctorFinding::warning(AREA, told).mended_by(command))
        }
        SOON_MS.. => None,
    }
}

fn peers(cluster: &Cluster) -> Vec<DoctorFinding> {
    const AREA: &str = "cluster";
    if cluster.id.is_none() {
        return Vec::new();
    }
    let mut found: Vec<_> = cluster
        .troubles
        .iter()
        .map(|trouble| DoctorFinding::broken(AREA, trouble))
        .collect();
    for node in &cluster.nodes {
        if node.standing == Standing::Away {
            let why = node.why.as_deref().unwrap_or("no link to it is open");
            found.push(
                DoctorFinding::warning(AREA, format!("{} is away: {why}", node.name))
                    .mended_by("mgp cluster status"),
            );
        }
        let off = node.clock_ms.unwrap_or_default();
        if off.unsigned_abs() >= CLOCK_MS {
            let told = format!(
                "the clock of {} is off by {}",
                node.name,
                time(off.unsigned_abs())
            );
            found.push(
                DoctorFinding::warning(AREA, told)
                    .mended_by("timedatectl set-ntp true, on the node that is wrong"),
            );
        }
    }
    if found.is_empty() {
        found.push(DoctorFinding::good(
            AREA,
            format!("{} nodes, all of them linked", cluster.nodes.len()),
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use mgp_engine::timestamps::rfc3339_ms;
    use mgp_protocol::mgp::kernel::nodes::Node;

    use super::super::finding::Soundness;
    use super::*;

    #[test]
    fn a_token_is_told_of_a_week_before_its_end() {
        let now = 1_800_000_000_000;
        let of = |end: u64| {
            let agent = Agent {
                id: "agent.x".into(),
                added_at: String::new(),
                token_made_at: String::new(),
                expires_at: Some(rfc3339_ms(end)),
                expired: end <= now,
            };
            token(&agent, now).map(|found| found.condition)
        };
        assert_eq!(of(now), Some(Soundness::Broken));
        assert_eq!(of(now + SOON_MS / 2), Some(Soundness::Warning));
        assert_eq!(of(now + SOON_MS), None);
    }

    #[test]
    fn a_peer_that_is_away_or_has_another_time_is_named() {
        let node = |name: &str, standing, clock_ms| Node {
            name: name.into(),
            standing,
            clock_ms,
            ..Node::default()
        };
        let cluster = Cluster {
            id: Some("c".into()),
            nodes: vec![
                node("here", Standing::Here, None),
                node("gpu", Standing::Away, None),
                node("cam", Standing::Linked, Some(-4000)),
            ],
            ..Cluster::default()
        };
        let told: Vec<_> = peers(&cluster)
            .iter()
            .map(DoctorFinding::in_words)
            .collect();
        assert!(
            told[0].contains("gpu is away") && told[1].contains("cam is off by 4 s"),
            "{told:?}"
        );
        assert!(peers(&Cluster::default()).is_empty());
    }
}
