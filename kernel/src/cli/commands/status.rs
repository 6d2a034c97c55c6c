//! `mgp status`: the kernel, its doors and its servers.

mod clients;
pub(super) mod console;
pub(super) mod doctor;
pub(super) mod metrics;
pub(super) mod top;
mod tree;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::index::Coverage;
use mgp_protocol::mgp::kernel::{KernelStatus, Status};
use serde_json::json;

use super::servers::state;
use crate::cli::args;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{say, titled};
use crate::cli::words::{plain, time, used};

pub(super) fn show(context: &CliContext, asked: &args::Status) -> Result<(), Failure> {
    if asked.tree {
        return tree::show(context);
    }
    let answer = context.ask(Status::METHOD, &json!({}), "asking the kernel")?;
    context.show(&answer, |status: KernelStatus| {
        say(in_words(&status).trim_end())?;
        if !status.servers.is_empty() {
            say(format_args!("\n{}", state::rows(&status.servers)))?;
        }
        match status.clients.is_empty() {
            true => Ok(()),
            false => say(format_args!("\n{}", clients::in_words(&status))),
        }
    })
}

fn in_words(status: &KernelStatus) -> String {
    let up = time(status.uptime_secs * 1000);
    let version = plain(&status.version);
    let mut text = format!("mgp {version}, process {}, up {up}\n", status.pid);
    let mut rows = |title: &str, rows: &[String]| text += &titled(title, 9, rows);
    rows("doors", &status.doors);
    rows("config", &status.config_files);
    let untrusted = status.untrusted.iter().map(|one| one.why.clone());
    rows("untrusted", &untrusted.collect::<Vec<_>>());
    rows("data", std::slice::from_ref(&status.data_dir));
    let uses = status.uses.iter().map(used);
    rows("uses", &uses.collect::<Vec<_>>());
    rows("agents", &[format!("{} connected", status.connections)]);
    rows("tools", &[tools(&status.index)]);
    rows("problems", &status.config_problems);
    rows("restart", &status.restart);
    rows("trouble", &status.troubles);
    text
}

/// How many there are, and how far they can be found by meaning while that is under way; and where the
/// model runs, while it does or when it should.
fn tools(index: &Coverage) -> String {
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
    fn a_status_tells_doors_files_and_problems() {
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
            index: Coverage {
                tools: 300,
                by_meaning: 100,
                waiting: 401,
                embedded: 200,
                ..Coverage::default()
            },
            actors: std::collections::BTreeMap::new(),
            troubles: vec!["/data/audit: full".into()],
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
                     trouble   /data/audit: full\n";
        assert_eq!(in_words(&status), want);
        let done = Coverage {
            by_meaning: 300,
            waiting: 0,
            ..status.index
        };
        assert_eq!(tools(&done), "300");
        let running = Coverage {
            model_process: Some(7),
            ..done
        };
        assert_eq!(tools(&running), "300; the model runs in process 7");
        let failing = Coverage {
            model_failures: 3,
            ..done
        };
        assert!(tools(&failing).contains("failed 3 times in a row"));
    }
}
