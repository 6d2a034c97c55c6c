//! `tools/call` with everything that watches it, beside the same call with all of that switched off.

use mgp_tests::harness::{Kernel, Program};
use mgp_tests::load::{Cell, PipeLoad, Request, Table, Talk};

use super::Options;
use super::calls::{child, eras};
use super::subject::{Subject, Way, unmeasured};

/// The texts to echo, with how many calls of each at most.
const PAYLOADS: [(&str, usize, u64); 2] = [("32 B", 32, 100_000), ("64 KiB", 65_536, 20_000)];
const CLIENTS: usize = 16;
const SECONDS: u64 = 4;

/// Validators, audit and questions off; the schema of the tool is checked in both.
const OFF: &str =
    "[validation]\nenabled = false\n[confirmation]\nenabled = false\n[audit]\nenabled = false\n";
/// The tool held to two validators; audit as it is by default.
const ON: &str = "[servers.tools.echo]\nvalidators = [\"sandbox\", \"network_restricted\"]\n";

const COLUMNS: &[&str] = &[
    "text",
    "era",
    "way",
    "gateway CPU µs/call",
    "calls/s",
    "of direct stdio",
    "p50 µs",
    "p99 µs",
    "upstream CPU µs/call",
    "load CPU µs/call",
    "calls",
];

/// In both eras, all ways in the same run.
pub(crate) async fn table(options: &Options) -> Table {
    let mut rows = Vec::new();
    for (talk, era) in [(Talk::Session, "2025"), (Talk::Alone, "2026")] {
        let server = Program::fixture(&["--era", eras(talk)[0]]);
        let entry = server.entry("it");
        let [off, on] = [OFF, ON].map(|more| format!("{entry}{more}"));
        let (off, on) = (Kernel::start(&off).await, Kernel::start(&on).await);
        let pipe = PipeLoad::start(&server, talk)
            .await
            .expect("the fixture starts");
        let pid = pipe.pid();
        let mut subjects = vec![Subject {
            name: "direct stdio".to_owned(),
            way: Way::Pipe(Box::new(pipe)),
            gateway: Vec::new(),
            upstream: pid,
        }];
        for (name, kernel) in [("all off", &off), ("all on", &on)] {
            kernel.connected(&["it"]).await;
            subjects.push(Subject {
                name: format!("mgp, {name}"),
                way: Way::Http(kernel.server_url("it")),
                gateway: vec![kernel.pid()],
                upstream: child(kernel, "it").await,
            });
        }
        for (payload, size, calls) in PAYLOADS {
            let request = Request::echo(talk, size);
            let bounds = options.bounds(calls, SECONDS);
            let mut direct = None;
            for subject in &mut subjects {
                let cells = match subject.measure(&request, CLIENTS, bounds).await {
                    Ok(measured) => {
                        direct = direct.or(Some(measured.run.rate()));
                        measured.cells(&[direct])
                    }
                    Err(why) => unmeasured(&why, 1),
                };
                let heads: [Cell; 3] = [payload.into(), era.into(), subject.name.as_str().into()];
                rows.push([&heads[..], &cells].concat());
            }
        }
    }
    Table {
        title: "tools/call echo, watched",
        columns: COLUMNS,
        rows,
    }
}
