//! What a call costs: directly at the server, through one kernel, and through two.

use mgp_tests::harness::{Upstream, program};
use mgp_tests::load::{Bounds, Cell, HttpLoad, Request, Run, Table, Talk, Usage};
use serde_json::json;
use std::time::{Duration, Instant};

use crate::Options;
use crate::node::{Node, unite};
use crate::times::{MISSED, until};

const COLUMNS: &[&str] = &[
    "way",
    "clients",
    "calls",
    "calls/s",
    "p50 µs",
    "p99 µs",
    "caller's kernel CPU µs/call",
    "owner's kernel CPU µs/call",
    "server CPU µs/call",
    "held",
];
const CLIENTS: [usize; 2] = [1, 16];
/// What the second kernel may add to p50 at one client, in microseconds.
const ADDED: f64 = 500.0;
/// What a call may take of each kernel at sixteen clients, in microseconds.
const EACH_SIDE: f64 = 100.0;
/// The text that is echoed.
const TEXT: usize = 32;

/// A way to the server, and the kernels on it.
struct Way {
    name: &'static str,
    url: String,
    tool: &'static str,
    caller: Option<u32>,
    owner: Option<u32>,
}

pub(crate) async fn table(options: &Options) -> Table {
    let upstream = Upstream::start(&["--http-json", "--era", "legacy"]).await;
    let far = program::remote_entry("far", &upstream.url());
    let mut nodes = [
        Node::on_loopback("nas", &far).await,
        Node::on_loopback("desk", "").await,
    ];
    nodes[0].kernel.connected(&["far"]).await;
    unite(&mut nodes).await;
    let [nas, desk] = &mut nodes;
    nas.share("far", true).await;
    // The load comes by HTTP, without a name.
    for agent in ["anonymous@desk", "local@desk"] {
        let grant = json!({
            "entry_type": "server_grant", "agent_id": agent, "server_id": "far",
            "permission": "allow"
        });
        nas.ask("mgp/access/grant", grant).await;
    }
    let called = async || desk.call("nas__far__echo", json!({"text": "x"})).await;
    let called = until(Instant::now(), Duration::from_secs(30), called).await;
    assert!(called.is_some(), "the tool is not called");
    let (owner, caller) = (nas.kernel.pid(), desk.kernel.pid());
    let url = |node: &Node| node.kernel.url().to_owned();
    let ways = [
        ("direct", upstream.url(), "echo", None, None),
        ("one kernel", url(nas), "far__echo", None, Some(owner)),
        (
            "two kernels",
            url(desk),
            "nas__far__echo",
            Some(caller),
            Some(owner),
        ),
    ];
    let ways = ways.map(|(name, url, tool, caller, owner)| Way {
        name,
        url,
        tool,
        caller,
        owner,
    });
    let mut rows = Vec::new();
    for clients in CLIENTS {
        let mut before = None;
        for way in &ways {
            let (row, p50) = measured(options, way, clients, upstream.pid(), before).await;
            rows.push(row);
            before = Some(p50);
        }
    }
    Table {
        title: "A call of 32 bytes",
        columns: COLUMNS,
        rows,
    }
}

/// A row, and its p50; `before` is that of the way with a kernel less.
async fn measured(
    options: &Options,
    way: &Way,
    clients: usize,
    upstream: u32,
    before: Option<f64>,
) -> (Vec<Cell>, f64) {
    let bounds = Bounds {
        calls: if options.quick { 2_000 } else { 20_000 },
        time: options.time(30),
    };
    let request = Request::call(Talk::Session, way.tool, TEXT);
    let mut load = HttpLoad::open(&way.url, clients, Talk::Session)
        .await
        .expect("its sessions are opened");
    let answer = load.once(&request).await.expect("it answers");
    assert!(
        answer.contains("abc") && !answer.contains("\"isError\":true"),
        "{}: {answer}",
        way.name
    );
    load.run(&request, bounds.warm_up())
        .await
        .expect("it answers");
    let taken = || {
        let of = |pid: Option<u32>| pid.map(|pid| Usage::of(&[pid]).cpu);
        [of(way.caller), of(way.owner), of(Some(upstream))]
    };
    let at_first = taken();
    let run = load.run(&request, bounds).await.expect("it answers");
    let at_last = taken();
    let cpu = [0, 1, 2].map(|at| {
        let (first, last) = at_first[at].zip(at_last[at])?;
        Some(run.per_call(last.saturating_sub(first)))
    });
    (
        row(way, clients, &run, cpu, before),
        run.latencies.percentile(50.0),
    )
}

fn row(
    way: &Way,
    clients: usize,
    run: &Run,
    cpu: [Option<f64>; 3],
    before: Option<f64>,
) -> Vec<Cell> {
    let p50 = run.latencies.percentile(50.0);
    let cells = cpu.map(|cpu| cpu.map_or(Cell::Nothing, |cpu| Cell::Number(cpu, 1)));
    let mut row = vec![
        way.name.into(),
        Cell::Number(clients as f64, 0),
        Cell::Number(run.latencies.calls() as f64, 0),
        Cell::Number(run.rate(), 0),
        Cell::Number(p50, 0),
        Cell::Number(run.latencies.percentile(99.0), 0),
    ];
    row.extend(cells);
    // The bounds are those of the second kernel.
    row.push(match (way.caller, clients) {
        (None, _) => Cell::Nothing,
        (Some(_), 1) => held(before.is_some_and(|before| p50 - before <= ADDED)),
        (Some(_), _) => held(cpu[..2].iter().flatten().all(|cpu| *cpu <= EACH_SIDE)),
    });
    row
}

fn held(held: bool) -> Cell {
    if held { "yes" } else { MISSED }.into()
}
