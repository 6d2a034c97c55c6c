//! `mgp check`: whether servers and tools can be used now, with an exit code for cron and CI.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::access::{Explain, Explanation, Permission};
use mgp_protocol::mgp::kernel::{KernelStatus, Status};
use mgp_protocol::mgp::names::{Read, ResolvedNames};
use mgp_protocol::mgp::servers::Server;
use serde::Serialize;
use serde_json::json;

use crate::cli::args::Check;
use crate::cli::client::{CliContext, KernelClient, name_resolution, parse_result};
use crate::cli::commands::servers::state::{SLEEPING, render_reason};
use crate::cli::failure::{Failure, Readiness};
use crate::cli::print::{print_line, render_titled};
use crate::cli::text_format::{format_duration, sanitize_line};

/// Progress title.
const PROGRESS_TITLE: &str = "asking the kernel";
/// Width of the column with the readiness.
const TITLE_WIDTH: usize = 14;

/// What was checked, and how ready it is.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct CheckResult {
    subject: String,
    readiness: Readiness,
    why: String,
    /// The command that shows or changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

impl CheckResult {
    fn new(subject: impl Into<String>, readiness: Readiness, why: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            readiness,
            why: why.into(),
            command: None,
        }
    }

    fn with_command(self, command: impl Into<String>) -> Self {
        let command = Some(command.into());
        Self { command, ..self }
    }

    fn render(&self) -> String {
        let (subject, why) = (sanitize_line(&self.subject), sanitize_line(&self.why));
        match &self.command {
            Some(command) => format!("{subject}: {why} → {}", sanitize_line(command)),
            None => format!("{subject}: {why}"),
        }
    }
}

/// What is checked, as the kernel resolved the typed names.
struct Targets {
    agent: Option<String>,
    /// Each a server, or a tool of one.
    places: Vec<(String, Option<String>)>,
    /// The names that could not be resolved.
    failed: Vec<CheckResult>,
}

/// Runs the checks and prints them.
pub(in crate::cli::commands) fn run_checks(
    context: &CliContext,
    typed: &Check,
) -> Result<(), Failure> {
    let mut results = context.with_kernel(async |client| check_all(client, typed).await)?;
    results.sort_by_key(|result| std::cmp::Reverse(result.readiness));
    let worst = results.first().map_or(Readiness::Ready, |it| it.readiness);
    if context.json {
        print_line(json!({"readiness": worst, "checks": results}))?;
    } else {
        for result in &results {
            let line = [result.render()];
            print_line(render_titled(result.readiness.label(), TITLE_WIDTH, &line).trim_end())?;
        }
    }
    if worst == Readiness::Ready {
        Ok(())
    } else {
        Err(Failure::NotReady(worst))
    }
}

async fn check_all(client: &mut KernelClient, typed: &Check) -> Result<Vec<CheckResult>, Failure> {
    let answer = client
        .call(Status::METHOD, &json!({}), PROGRESS_TITLE)
        .await?;
    let status: KernelStatus = parse_result(&answer)?;
    // A problem of another server is none of these tools.
    let mut results = if typed.tools.is_empty() {
        check_kernel(&status)
    } else {
        Vec::new()
    };
    let mut targets = resolve_targets(client, typed).await?;
    results.append(&mut targets.failed);
    if typed.agent.is_some() && targets.agent.is_none() {
        return Ok(results);
    }
    let everything = typed.tools.is_empty();
    if everything {
        let servers = status.servers.iter();
        targets.places = servers.map(|server| (server.id.clone(), None)).collect();
    }
    let mut servers: Vec<String> = Vec::new();
    for (server, tool) in targets.places {
        if let Some(agent) = &targets.agent {
            let params = json!({"agent_id": agent, "server_id": server, "tool_name": tool});
            let answer = client
                .call(Explain::METHOD, &params, PROGRESS_TITLE)
                .await?;
            let explained: Explanation = parse_result(&answer)?;
            let place = name_resolution::render_target(&server, tool.as_deref());
            let result = check_access(agent, &place, &explained);
            // A server that the agent may not use is no fault unless it was asked for.
            if everything && result.readiness == Readiness::Blocked && explained.waits.is_none() {
                continue;
            }
            results.push(result);
        }
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    let listed = |id: &String| status.servers.iter().find(|server| server.id == *id);
    results.extend(servers.iter().filter_map(listed).map(check_server));
    Ok(results)
}

/// Resolves the typed names. An unknown or ambiguous one is a result, not a failure of the command.
async fn resolve_targets(client: &mut KernelClient, typed: &Check) -> Result<Targets, Failure> {
    let mut targets = Targets {
        agent: None,
        places: Vec::new(),
        failed: Vec::new(),
    };
    if let Some(agent) = &typed.agent {
        let query = Read {
            agent: Some(agent.clone()),
            ..Read::default()
        };
        match resolve(client, &query).await? {
            Ok(resolved) => targets.agent = resolved.agent_id,
            Err(why) => {
                let result = CheckResult::new(agent, Readiness::Misconfigured, why);
                targets.failed.push(result.with_command("mgp agents list"));
            }
        }
    }
    for tool in &typed.tools {
        let query = Read {
            place: Some(tool.clone()),
            ..Read::default()
        };
        match resolve(client, &query).await? {
            Ok(resolved) => {
                let server = resolved.server_id.unwrap_or_default();
                targets.places.push((server, resolved.tool_name));
            }
            Err(why) => {
                let result = CheckResult::new(tool, Readiness::Misconfigured, why);
                targets.failed.push(result.with_command("mgp tools list"));
            }
        }
    }
    Ok(targets)
}

/// The names, or why they mean nothing here.
async fn resolve(
    client: &mut KernelClient,
    query: &Read,
) -> Result<Result<ResolvedNames, String>, Failure> {
    match name_resolution::resolve_existing(client, query).await {
        Ok(resolved) => Ok(Ok(resolved)),
        Err(Failure::Usage(why)) => Ok(Err(why)),
        Err(failure) => Err(failure),
    }
}

fn check_kernel(status: &KernelStatus) -> Vec<CheckResult> {
    const SUBJECT: &str = "kernel";
    let problems = status.config_problems.iter().map(|problem| {
        CheckResult::new(SUBJECT, Readiness::Misconfigured, problem).with_command("mgp doctor")
    });
    // What could not be written is tried again.
    let troubles = status.troubles.iter().map(|trouble| {
        CheckResult::new(SUBJECT, Readiness::Transient, trouble).with_command("mgp doctor")
    });
    let mut results: Vec<_> = problems.chain(troubles).collect();
    if results.is_empty() {
        let up = format_duration(status.uptime_secs * 1000);
        let why = format!("process {}, up {up}", status.pid);
        results.push(CheckResult::new(SUBJECT, Readiness::Ready, why));
    }
    results
}

fn check_server(server: &Server) -> CheckResult {
    let reason = render_reason(server, usize::MAX).map(|why| format!(": {why}"));
    let state = format!("{}{}", server.state, reason.unwrap_or_default());
    let result = |readiness, why: String| CheckResult::new(&server.id, readiness, why);
    if let Some(login) = server.login.as_ref().filter(|login| login.parked) {
        return result(Readiness::Blocked, login.why.clone()).with_command(&login.command);
    }
    if server.sleeping {
        return result(Readiness::Ready, SLEEPING.to_owned());
    }
    let is_of_node = server.id.contains('/');
    match (server.state.as_str(), server.next_try_ms) {
        ("connected", _) => match server.health.as_deref() {
            Some("unhealthy") => {
                let why = "connected, and does not answer health checks".to_owned();
                result(Readiness::Transient, why)
                    .with_command(format!("mgp servers show {}", server.id))
            }
            Some(_) | None => result(Readiness::Ready, server.state.clone()),
        },
        // It failed, and the next try needs a repair before.
        ("error", _) => result(Readiness::Misconfigured, state)
            .with_command(format!("mgp servers logs {}", server.id)),
        (_, Some(ms)) => {
            let why = format!("{state} (next try in {})", format_duration(ms));
            result(Readiness::Transient, why)
                .with_command(format!("mgp servers logs {}", server.id))
        }
        ("connecting" | "restarting" | "draining", None) => result(Readiness::Transient, state),
        (_, None) if is_of_node => {
            result(Readiness::Transient, state).with_command("mgp cluster status")
        }
        (_, None) => result(Readiness::Blocked, state)
            .with_command(format!("mgp servers start {}", server.id)),
    }
}

fn check_access(agent: &str, place: &str, explained: &Explanation) -> CheckResult {
    let subject = format!("{agent} {place}");
    let command = format!("mgp explain {agent} {place}");
    let mut conditions = explained.conditions.iter();
    let is_conditional = conditions.any(|condition| condition.holds.is_none());
    match (explained.permission, &explained.waits) {
        (_, Some(waits)) => {
            CheckResult::new(subject, Readiness::Blocked, waits).with_command("mgp pending")
        }
        (Permission::Allow, None) => CheckResult::new(subject, Readiness::Ready, &explained.rule),
        (Permission::Deny, None) if is_conditional => {
            let why = format!("on a condition: {}", explained.rule);
            CheckResult::new(subject, Readiness::Ready, why).with_command(command)
        }
        (Permission::Deny, None) => {
            CheckResult::new(subject, Readiness::Blocked, &explained.rule).with_command(command)
        }
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::servers::PendingLogin;

    use super::*;

    fn server(state: &str) -> Server {
        Server {
            id: "files".into(),
            state: state.into(),
            ..Server::default()
        }
    }

    #[test]
    fn the_state_of_a_server_decides_whether_it_is_worth_to_wait() {
        let retrying = |state: &str| Server {
            next_try_ms: Some(4000),
            ..server(state)
        };
        let of_node = |state: &str| Server {
            id: "nas/files".into(),
            ..server(state)
        };
        let sleeping = Server {
            sleeping: true,
            ..server("registered")
        };
        let unhealthy = Server {
            health: Some("unhealthy".into()),
            ..server("connected")
        };
        let parked = |parked| Server {
            login: Some(PendingLogin {
                why: "it wants a login".into(),
                command: "mgp logins add files".into(),
                parked,
                ..PendingLogin::default()
            }),
            ..server("connected")
        };
        for (server, readiness) in [
            (server("connected"), Readiness::Ready),
            (sleeping, Readiness::Ready),
            (parked(false), Readiness::Ready),
            (unhealthy, Readiness::Transient),
            (server("connecting"), Readiness::Transient),
            (server("restarting"), Readiness::Transient),
            (server("draining"), Readiness::Transient),
            (retrying("disconnected"), Readiness::Transient),
            (of_node("disconnected"), Readiness::Transient),
            (server("disconnected"), Readiness::Blocked),
            (server("registered"), Readiness::Blocked),
            (parked(true), Readiness::Blocked),
            (server("error"), Readiness::Misconfigured),
            (retrying("error"), Readiness::Misconfigured),
        ] {
            let result = check_server(&server);
            assert_eq!(result.readiness, readiness, "{server:?}");
            let needs_command = readiness > Readiness::Transient;
            assert!(!needs_command || result.command.is_some(), "{result:?}");
        }
    }
}
