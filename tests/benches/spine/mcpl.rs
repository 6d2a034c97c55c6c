//! `tools/call` to a server that speaks MCPL and has nothing enabled, beside the same call to one that does not, in
//! alternating runs.

use mgp_tests::harness::{Kernel, Program};
use mgp_tests::load::{Cell, Request, Table, Talk};
use serde_json::json;

use super::Options;
use super::calls::{child, eras};
use super::subject::{Measured, Subject, Way};

const CLIENTS: usize = 16;
const CALLS: u64 = 20_000;
const SECONDS: u64 = 4;
/// Each is measured so often, in turns with the other one: what is looked for is smaller than what other work on the
/// machine does to a single run.
const TURNS: usize = 9;

/// Two kernels; the median of each, and of the differences of the pairs.
pub(crate) async fn table(options: &Options) -> Table {
    let (_plain, mut plain) = subject("plain", &[]).await;
    let infers =
        json!({"description": "x", "uses": ["inferenceRequest", "contextHooks.beforeInference"]});
    let declared = json!({
        "version": "0.4", "pushEvents": true, "inferenceRequest": {"streaming": true},
        "contextHooks": {"beforeInference": true, "afterInference": {"blocking": true}},
        "featureSets": {"memory.consolidation": infers},
    });
    let (_mcpl, mut mcpl) =
        subject("MCPL, nothing enabled", &["--mcpl", &declared.to_string()]).await;
    let request = Request::echo(Talk::Session, 32);
    let bounds = options.bounds(CALLS, SECONDS);
    let (mut ours, mut theirs, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..TURNS {
        // Whoever comes first is no better off.
        let (first, second) = match turn % 2 {
            0 => {
                let first = plain.measure(&request, CLIENTS, bounds).await;
                (first, mcpl.measure(&request, CLIENTS, bounds).await)
            }
            _ => {
                let second = mcpl.measure(&request, CLIENTS, bounds).await;
                (plain.measure(&request, CLIENTS, bounds).await, second)
            }
        };
        let [first, second] = [first, second].map(|run| run.expect("the kernel goes on"));
        more.push(second.gateway_per_call() - first.gateway_per_call());
        theirs.push(first);
        ours.push(second);
    }
    let row = |name: &str, runs: &[Measured], more: Cell| {
        let cpu: Vec<f64> = runs.iter().map(Measured::gateway_per_call).collect();
        let rate: Vec<f64> = runs.iter().map(|run| run.run.rate()).collect();
        vec![
            Cell::from(name),
            Cell::Number(median(cpu), 2),
            more,
            Cell::Number(median(rate), 0),
        ]
    };
    let rows = vec![
        row(&plain.name, &theirs, Cell::Nothing),
        row(&mcpl.name, &ours, Cell::Number(median(more), 2)),
    ];
    Table {
        title: "tools/call echo, 32 B, to a server that speaks MCPL",
        columns: &[
            "server",
            "gateway CPU µs/call",
            "more, median of the pairs",
            "calls/s",
        ],
        rows,
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

async fn subject(name: &str, flags: &[&str]) -> (Kernel, Subject) {
    let flags = [&["--era", eras(Talk::Session)[0]], flags].concat();
    let kernel = Kernel::start(&Program::fixture(&flags).entry("it")).await;
    kernel.connected(&["it"]).await;
    let subject = Subject {
        name: name.to_owned(),
        way: Way::Http(kernel.server_url("it")),
        gateway: vec![kernel.pid()],
        upstream: child(&kernel, "it").await,
    };
    (kernel, subject)
}
