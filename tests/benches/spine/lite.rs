//! MCP-lite beside stateless MCP: HTTP and gRPC, one connection for each client and one for all, and streams.

mod grpc_message;

use std::io;
use std::time::Duration;

use mgp_tests::harness::mgp::declaration;
use mgp_tests::harness::{Kernel, Program};
use mgp_tests::load::{Bounds, Cell, H2Load, H2Post, HttpLoad, Request, Run, Table, Talk, Usage};
use serde_json::{Value, json};

use super::Options;

/// How many clients call at the same time.
const CLIENTS: [usize; 2] = [1, 16];

/// How long a row may take, in seconds.
const SECONDS: u64 = 4;

/// Messages of a stream.
const MESSAGES: u64 = 10_000;

/// Where lite clients call.
const LITE: &str = "/mcp-lite/v1/calltools";

const COLUMNS: &[&str] = &[
    "arguments",
    "clients",
    "connections",
    "way",
    "kernel CPU µs/call",
    "calls/s",
    "p50 µs",
    "p99 µs",
    "load CPU µs/call",
    "calls",
];

/// How calls get to the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LiteWay {
    /// MCP of 2026-07-28.
    Stateless,
    /// MCP-lite.
    Lite,
    /// MCP-lite over gRPC.
    Grpc,
}

impl LiteWay {
    fn name(self, h2: bool) -> &'static str {
        match (self, h2) {
            (Self::Stateless, false) => "/mcp, HTTP/1.1",
            (Self::Stateless, true) => "/mcp, HTTP/2",
            (Self::Lite, false) => "lite, HTTP/1.1",
            (Self::Lite, true) => "lite, HTTP/2",
            (Self::Grpc, _) => "lite, gRPC",
        }
    }

    fn request(self, name: &str, arguments: &Value) -> Request {
        let arguments = arguments.to_string();
        match self {
            Self::Stateless => Request::with_arguments(Talk::Alone, name, &arguments),
            Self::Lite | Self::Grpc => Request::lite(name, &arguments),
        }
    }

    fn post(self, name: &str, arguments: &Value) -> H2Post {
        match self {
            Self::Stateless => self.request(name, arguments).over_h2("/mcp"),
            Self::Lite => self.request(name, arguments).over_h2(LITE),
            Self::Grpc => grpc_message::post("CallTool", name, arguments),
        }
    }
}

/// All ways to one server over stdio, in the same run.
pub(crate) async fn table(options: &Options) -> Table {
    let kernel = Kernel::start(&Program::fixture(&["--era", "modern"]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let text: String = ('a'..='z').cycle().take(32).collect();
    let numbers: Vec<u32> = (0..5000).collect();
    let all = [
        ("32 B", json!({ "text": text }), 100_000),
        (
            "5000 numbers",
            json!({ "text": "", "numbers": numbers }),
            5_000,
        ),
    ];
    let mut rows = Vec::new();
    for (what, arguments, calls) in &all {
        for clients in CLIENTS {
            let bounds = options.bounds(*calls, SECONDS);
            for row in round(&kernel, arguments, clients, bounds).await {
                let heads: [Cell; 2] = [(*what).into(), Cell::Number(clients as f64, 0)];
                rows.push([&heads[..], &row].concat());
            }
        }
    }
    Table {
        title: "MCP-lite: tools/call echo",
        columns: COLUMNS,
        rows,
    }
}

/// All ways one after another, under the same load.
async fn round(
    kernel: &Kernel,
    arguments: &Value,
    clients: usize,
    bounds: Bounds,
) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for way in [LiteWay::Stateless, LiteWay::Lite] {
        let measured = over_http1(kernel, way, arguments, clients, bounds).await;
        rows.push(row(clients, way.name(false), measured));
    }
    let shares: &[bool] = if clients > 1 {
        &[false, true]
    } else {
        &[false]
    };
    for &shared in shares {
        for way in [LiteWay::Stateless, LiteWay::Lite, LiteWay::Grpc] {
            let post = way.post("it__echo", arguments);
            let measured = over_h2(kernel, &post, (clients, shared), bounds).await;
            let connections = if shared { 1 } else { clients };
            rows.push(row(connections, way.name(true), measured));
        }
    }
    rows
}

/// A run, and what the kernel and the load took for it.
type LoadCost = (Run, Duration, Duration);

async fn over_http1(
    kernel: &Kernel,
    way: LiteWay,
    arguments: &Value,
    clients: usize,
    bounds: Bounds,
) -> io::Result<LoadCost> {
    let url = match way {
        LiteWay::Stateless => kernel.url().to_owned(),
        LiteWay::Lite | LiteWay::Grpc => kernel.url().replace("/mcp", LITE),
    };
    let request = way.request("it__echo", arguments);
    let mut load = HttpLoad::open(&url, clients, request.talk()).await?;
    load.run(&request, bounds.warm_up()).await?;
    let before = (Usage::of(&[kernel.pid()]).cpu, Usage::own().cpu);
    let run = load.run(&request, bounds).await?;
    Ok(since(kernel, before, run))
}

async fn over_h2(
    kernel: &Kernel,
    post: &H2Post,
    (clients, shared): (usize, bool),
    bounds: Bounds,
) -> io::Result<LoadCost> {
    let mut load = H2Load::open(host(kernel), clients, shared).await?;
    load.run(post, bounds.warm_up()).await?;
    let before = (Usage::of(&[kernel.pid()]).cpu, Usage::own().cpu);
    let run = load.run(post, bounds).await?;
    Ok(since(kernel, before, run))
}

fn since(kernel: &Kernel, before: (Duration, Duration), run: Run) -> LoadCost {
    let (theirs, own) = (Usage::of(&[kernel.pid()]).cpu, Usage::own().cpu);
    (
        run,
        theirs.saturating_sub(before.0),
        own.saturating_sub(before.1),
    )
}

fn host(kernel: &Kernel) -> &str {
    let address = kernel.url().strip_prefix("http://").expect("plain HTTP");
    address.split('/').next().unwrap_or(address)
}

fn row(connections: usize, way: &str, measured: io::Result<LoadCost>) -> Vec<Cell> {
    let head = [Cell::Number(connections as f64, 0), way.into()];
    let rest = match measured {
        Ok((run, kernel, load)) => {
            eprintln!(
                "{way}, {connections} connections: {:.0} calls/s",
                run.rate()
            );
            vec![
                Cell::Number(run.per_call(kernel), 1),
                Cell::Number(run.rate(), 0),
                Cell::Number(run.latencies.percentile(50.0), 0),
                Cell::Number(run.latencies.percentile(99.0), 0),
                Cell::Number(run.per_call(load), 1),
                Cell::Number(run.latencies.calls() as f64, 0),
            ]
        }
        Err(why) => {
            let mut cells = vec![Cell::Nothing; 6];
            cells[0] = why.to_string().into();
            cells
        }
    };
    [&head[..], &rest].concat()
}

/// Streams of one server that says all it has at once.
pub(crate) async fn streams(options: &Options) -> Table {
    let less = if options.quick { 10 } else { 1 };
    let said = declaration(&["streaming"]).to_string();
    let kernel = Kernel::start(&Program::fixture(&["--mgp", &said]).entry("it")).await;
    kernel.connected(&["it"]).await;
    let messages = MESSAGES / less;
    let arguments = json!({ "steps": [{ "flood": messages, "bytes": 32 }], "brief": true });
    let lite = H2Post {
        accept: "text/event-stream",
        ..LiteWay::Lite.post("it__stream", &arguments)
    };
    let grpc = grpc_message::post("CallToolStream", "it__stream", &arguments);
    let events = |body: &[u8]| {
        String::from_utf8_lossy(body)
            .matches("event: message")
            .count()
    };
    // The last one is the answer.
    let framed = |body: &[u8]| grpc_message::count(body).saturating_sub(1);
    let rows = vec![
        stream(&kernel, "lite, SSE", &lite, messages, events).await,
        stream(&kernel, "lite, gRPC", &grpc, messages, framed).await,
    ];
    Table {
        title: "MCP-lite: one stream",
        columns: &[
            "way",
            "messages",
            "delivered, %",
            "messages/s",
            "kernel CPU µs/message",
        ],
        rows,
    }
}

async fn stream(
    kernel: &Kernel,
    way: &str,
    post: &H2Post,
    sent: u64,
    count: impl Fn(&[u8]) -> usize,
) -> Vec<Cell> {
    let measured = async {
        let mut load = H2Load::open(host(kernel), 1, false).await?;
        let before = Usage::of(&[kernel.pid()]).cpu;
        let (body, took) = load.once(post).await?;
        let cpu = Usage::of(&[kernel.pid()]).cpu.saturating_sub(before);
        Ok::<_, io::Error>((count(&body) as f64, took, cpu))
    };
    let mut cells = vec![way.into(), Cell::Number(sent as f64, 0)];
    match measured.await {
        Ok((came, took, cpu)) => cells.extend([
            Cell::Number(100.0 * came / sent as f64, 2),
            Cell::Number(came / took.as_secs_f64(), 0),
            Cell::Number(cpu.as_secs_f64() * 1e6 / sent as f64, 1),
        ]),
        Err(why) => cells.extend([why.to_string().into(), Cell::Nothing, Cell::Nothing]),
    }
    cells
}
