//! `mgp status`: the kernel, its doors and its servers.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::{KernelStatus, Status};
use serde_json::json;

use super::client::Opening;
use super::context::Context;
use super::failure::Failure;
use super::output::say;
use super::progress::Progress;
use super::servers::server_table;
use super::words::{plain, time};

pub(super) fn show(context: &Context) -> Result<(), Failure> {
    let answer = context.with_kernel(Opening::default(), async |client| {
        let mut progress = Progress::of("asking the kernel");
        client
            .request(Status::METHOD, &json!({}), &mut progress)
            .await
    })?;
    if context.json {
        return say(answer.get());
    }
    let status: KernelStatus = super::client::read(&answer)?;
    say(plain(told(&status).trim_end()))?;
    match status.servers.is_empty() {
        true => Ok(()),
        false => say(format_args!("\n{}", server_table(&status.servers))),
    }
}

fn told(status: &KernelStatus) -> String {
    let up = time(status.uptime_secs * 1000);
    let mut text = format!("mgp {}, process {}, up {up}\n", status.version, status.pid);
    let mut rows = |title: &str, rows: &[String]| {
        for (at, row) in rows.iter().enumerate() {
            let title = if at == 0 { title } else { "" };
            text += &format!("{title:<9} {row}\n");
        }
    };
    rows("doors", &status.doors);
    rows("config", &status.config_files);
    rows("data", std::slice::from_ref(&status.data_dir));
    rows("agents", &[format!("{} connected", status.connections)]);
    rows("problems", &status.config_problems);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_doors_files_and_problems() {
        let status = KernelStatus {
            version: "0.1.0".into(),
            pid: 7,
            uptime_secs: 300,
            data_dir: "/data".into(),
            config_files: vec!["/a.toml".into(), "/b.toml".into()],
            config_problems: vec!["/a.toml:1:1: unknown key".into()],
            doors: vec!["/run/mgp.sock".into()],
            connections: 2,
            actors: std::collections::BTreeMap::new(),
            servers: Vec::new(),
        };
        let want = "mgp 0.1.0, process 7, up 5 min\n\
                    doors     /run/mgp.sock\n\
                    config    /a.toml\n          /b.toml\n\
                    data      /data\n\
                    agents    2 connected\n\
                    problems  /a.toml:1:1: unknown key\n";
        assert_eq!(told(&status), want);
    }
}
