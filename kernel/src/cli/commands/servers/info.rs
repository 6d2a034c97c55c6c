//! `mgp servers show`.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::servers::{Instance, List, Server};
use serde_json::json;

use super::ServerList;
use super::state::{instance_owner, render_reason, state_label};
use crate::cli::client::{CliContext, ProgressLine, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::{print_line, render_titled};
use crate::cli::text_format::{
    first_line, format_bytes, format_duration, format_resource_usage, pluralize, sanitize_line,
};

/// The text for a server with `pin = "off"`.
const UNPINNED: &str =
    "off: a tool that changes is taken as it is, in whatever feature set it names then";

pub(super) fn show(context: &CliContext, id: &str) -> Result<(), Failure> {
    let doing = "asking the kernel";
    let answer =
        context.call_about_server(id, List::METHOD, &json!({}), &mut ProgressLine::new(doing))?;
    let mut servers = parse_result::<ServerList>(&answer)?.servers.into_iter();
    // It was removed meanwhile.
    let server = servers
        .find(|server| server.id == id)
        .ok_or_else(|| Failure::Usage(format!("there is no server {}", sanitize_line(id))))?;
    if context.json {
        print_line(serde_json::to_string(&server).expect("a server is always JSON"))
    } else {
        print_line(render_server(&server).trim_end())
    }
}

fn render_server(server: &Server) -> String {
    let mut text = format!("{} is {}", sanitize_line(&server.id), state_label(server));
    if let Some(why) = render_reason(server, usize::MAX) {
        text += &format!(": {}", sanitize_line(&why));
    }
    text += &format!(", for {}\n", format_duration(server.since_ms));
    for (title, rows) in info_rows(server) {
        text += &render_titled(title, 11, &rows);
    }
    text
}

/// The transport. An entry says `lite` for MCP-lite over HTTP, and `grpc` for the same over gRPC.
fn transport_label(transport: &str) -> &str {
    match transport {
        "lite" => "http",
        other => other,
    }
}

/// The titled rows; inapplicable ones are empty.
fn info_rows(server: &Server) -> Vec<(&'static str, Vec<String>)> {
    let one = |text: Option<String>| text.into_iter().collect::<Vec<_>>();
    let next = server
        .next_try_ms
        .map(|ms| format!("in {}", format_duration(ms)));
    let speaks = server
        .protocol_version
        .as_ref()
        .map(|version| format!("{version} over {}", transport_label(&server.transport)));
    let sandbox = server.sandbox.clone().unwrap_or_default();
    vec![
        ("next try", one(next)),
        ("restarts", vec![server.restarts.to_string()]),
        ("registered", one(server.registered_by.clone())),
        ("runs", one(render_command(server))),
        ("process", one(server.pid.map(|pid| pid.to_string()))),
        ("uses", one(server.uses.as_ref().map(format_resource_usage))),
        ("is", one(server.server_info.clone())),
        ("speaks", one(speaks)),
        ("mgp", one(render_mgp(server))),
        ("trust", vec![server.trust_level.clone()]),
        ("offers", vec![render_offers(server)]),
        ("lists", server.rejected.clone()),
        (
            "instances",
            server.instances.iter().map(render_instance).collect(),
        ),
        ("replicas", server.replicas.clone()),
        ("under way", vec![format!("{} calls", server.in_flight)]),
        ("permissions", server.permissions.clone()),
        ("pins", one(server.unpinned.then(|| UNPINNED.to_owned()))),
        ("results", one(server.results.as_deref().map(sanitize_line))),
        ("odd", anomalies(server)),
        ("sandbox", sandbox.enforced),
        ("NOT HELD", sandbox.missing),
        ("note", sandbox.notes),
        ("refused", sandbox.refused),
    ]
}

fn render_instance(one: &Instance) -> String {
    let process = one
        .pid
        .map_or(String::new(), |pid| format!(", process {pid}"));
    let memory = one.uses.map_or(String::new(), |used| {
        format!(" with {}", format_bytes(used.memory_bytes))
    });
    format!(
        "{}: {}, for {}{process}{memory}, {} calls",
        instance_owner(one),
        one.state,
        format_duration(one.since_ms),
        one.in_flight
    )
}

fn render_command(server: &Server) -> Option<String> {
    let words = server.runs.iter().map(|word| {
        let harmless = |c: char| c.is_alphanumeric() || "/._-+:@=,%~".contains(c);
        if !word.is_empty() && word.chars().all(harmless) {
            word.clone()
        } else {
            json!(word).to_string()
        }
    });
    let words: Vec<_> = words.collect();
    (!words.is_empty()).then(|| first_line(&words.join(" "), 500))
}

fn render_mgp(server: &Server) -> Option<String> {
    let spoken = server.mgp.as_ref()?;
    Some(format!(
        "{}: {}",
        spoken.version,
        spoken.extensions.join(", ")
    ))
}

fn render_offers(server: &Server) -> String {
    format!(
        "{} (`mgp tools list --server {}`), {}, {}",
        pluralize(server.tools, "tool"),
        server.id,
        pluralize(server.resources, "resource"),
        pluralize(server.prompts, "prompt")
    )
}

/// Protocol violations of a server.
fn anomalies(server: &Server) -> Vec<String> {
    let counted = [
        (server.noise_lines, "lines on stdout that were no messages"),
        (server.oversized, "messages dropped for their size"),
        (
            server.dropped_notifications,
            "notifications that went to nobody",
        ),
    ];
    let counted = counted.into_iter().filter(|(count, _)| *count > 0);
    counted
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::health::ResourcesInUse;

    use super::*;

    #[test]
    fn only_applicable_rows_are_shown() {
        let server = Server {
            id: "files".into(),
            state: "connected".into(),
            since_ms: 300_000,
            runs: ["npx", "-y", "a b", "\u{1b}"].map(str::to_owned).into(),
            pid: Some(7),
            transport: "stdio".into(),
            protocol_version: Some("2025-11-25".into()),
            uses: Some(ResourcesInUse {
                memory_bytes: 31 << 20,
                cpu_seconds: 1.254,
                open_descriptors: 12,
                children: 2,
            }),
            trust_level: "standard".into(),
            tools: 14,
            noise_lines: 3,
            rejected: vec!["tool a: no inputSchema".into(), "tool b: the same".into()],
            ..Server::default()
        };
        let want = "files is connected, for 5 min\n\
                    restarts    0\n\
                    runs        npx -y \"a b\" \"\\u001b\"\n\
                    process     7\n\
                    uses        31 MiB of memory, 1.25 s of processor time, 12 open files, 2 more processes\n\
                    speaks      2025-11-25 over stdio\n\
                    trust       standard\n\
                    offers      14 tools (`mgp tools list --server files`), 0 resources, 0 prompts\n\
                    lists       tool a: no inputSchema\n            tool b: the same\n\
                    under way   0 calls\n\
                    odd         3 lines on stdout that were no messages\n";
        assert_eq!(render_server(&server), want);
        let unpinned = Server {
            unpinned: true,
            ..server
        };
        assert!(render_server(&unpinned).contains("pins        off: a tool that changes"));
    }
}
