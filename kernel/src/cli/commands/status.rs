//! `mgp status`: the kernel, its endpoints and its servers.

pub(super) mod check;
mod clients;
pub(super) mod console;
pub(super) mod doctor;
pub(super) mod metrics;
pub(super) mod top;
mod tree;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::index::IndexCoverage;
use mgp_protocol::mgp::kernel::{KernelStatus, Status};
use serde_json::json;

use super::servers::state;
use crate::cli::args;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{print_line, render_titled};
use crate::cli::text_format::{format_duration, format_resource_usage, sanitize_line};

pub(super) fn show(context: &CliContext, asked: &args::Status) -> Result<(), Failure> {
    if asked.tree {
        return tree::show(context);
    }
    let answer = context.call(Status::METHOD, &json!({}), "asking the kernel")?;
    context.print_answer(&answer, |status: KernelStatus| {
        print_line(render_status(&status).trim_end())?;
        if !status.servers.is_empty() {
            print_line(format_args!("\n{}", state::state_table(&status.servers)))?;
        }
        if status.clients.is_empty() {
            Ok(())
        } else {
            print_line(format_args!("\n{}", clients::render_clients(&status)))
        }
    })
}

fn render_status(status: &KernelStatus) -> String {
    let up = format_duration(status.uptime_secs * 1000);
    let version = sanitize_line(&status.version);
    let mut text = format!("mgp {version}, process {}, up {up}\n", status.pid);
    let mut rows = |title: &str, rows: &[String]| text += &render_titled(title, 9, rows);
    rows("doors", &status.doors);
    rows("config", &status.config_files);
    let untrusted = status.untrusted.iter().map(|one| one.why.clone());
    rows("untrusted", &untrusted.collect::<Vec<_>>());
    rows("data", std::slice::from_ref(&status.data_dir));
    let servers = state::count_servers(&status.servers);
    rows("servers", servers.as_slice());
    let uses = status.uses.iter().map(format_resource_usage);
    rows("uses", &uses.collect::<Vec<_>>());
    rows("agents", &[format!("{} connected", status.connections)]);
    rows("tools", &[render_tool_coverage(&status.index)]);
    rows("problems", &status.config_problems);
    rows("restart", &status.restart);
    rows("trouble", &status.troubles);
    rows("upgrade", status.failed_upgrade.as_slice());
    text
}

/// The number of tools, and the progress of their embedding while it runs; and where the model runs, if it does or
/// should.
fn render_tool_coverage(index: &IndexCoverage) -> String {
    let mut text = index.tools.to_string();
    if index.waiting > 0 {
        text += &format!(
            ", of which {} can be found by meaning so far ({} texts wait)",
            index.by_meaning, index.waiting
        );
    }
    match (index.model_process, index.model_failures) {
        (Some(pid), _) => text += &format!("; the model runs in process {pid}"),
        (None, 0) => {}
        (None, 1) => text += "; the process of the model failed (why is in the kernel's log)",
        (None, failures) => {
            text += &format!(
                "; the process of the model failed {failures} times in a row (why is in the kernel's log)"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::kernel::Untrusted;

    use super::*;

    #[test]
    fn a_status_shows_endpoints_files_and_problems() {
        let status = KernelStatus {
            version: "0.1.0".into(),
            pid: 7,
            uptime_secs: 300,
            data_dir: "/data".into(),
            config_files: vec!["/a.toml".into(), "/b.toml".into()],
            untrusted: vec![Untrusted {
                file: "/p/mgp.toml".into(),
                held: false,
                why: "/p/mgp.toml is left out".into(),
            }],
            servers_file: None,
            config_problems: vec!["/a.toml:1:1: unknown key".into()],
            restart: vec!["[http] listen changed".into()],
            doors: vec!["/run/mgp.sock".into()],
            connections: 2,
            clients: Vec::new(),
            index: IndexCoverage {
                tools: 300,
                by_meaning: 100,
                waiting: 401,
                embedded: 200,
                ..IndexCoverage::default()
            },
            actors: std::collections::BTreeMap::new(),
            troubles: vec!["/data/audit: full".into()],
            failed_upgrade: Some("/opt/mgp: gone".into()),
            uses: None,
            servers: Vec::new(),
        };
        let want = "mgp 0.1.0, process 7, up 5 min\n\
                    doors     /run/mgp.sock\n\
                    config    /a.toml\n          /b.toml\n\
                    untrusted /p/mgp.toml is left out\n\
                    data      /data\n\
                    agents    2 connected\n\
                     tools     300, of which 100 can be found by meaning so far (401 texts wait)\n\
                     problems  /a.toml:1:1: unknown key\n\
                     restart   [http] listen changed\n\
                     trouble   /data/audit: full\n\
                     upgrade   /opt/mgp: gone\n";
        assert_eq!(render_status(&status), want);
        let done = IndexCoverage {
            by_meaning: 300,
            waiting: 0,
            ..status.index
        };
        assert_eq!(render_tool_coverage(&done), "300");
        let running = IndexCoverage {
            model_process: Some(7),
            ..done
        };
        assert_eq!(
            render_tool_coverage(&running),
            "300; the model runs in process 7"
        );
        let failing = IndexCoverage {
            model_failures: 3,
            ..done
        };
        assert!(render_tool_coverage(&failing).contains("failed 3 times in a row"));
    }
}
