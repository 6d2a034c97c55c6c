//! `tools/list` of few and many tools.

use mgp_tests::harness::{Kernel, Upstream, program};
use mgp_tests::load::{Bounds, Cell, HttpLoad, Nginx, Request, Table, Talk};

use super::Options;
use super::subject::{Subject, Way, unmeasured};

/// How many tools, and how many calls at most; clients without sessions only ask for the first.
const TOOLS: [(usize, u64); 2] = [(104, 8_000), (1_000, 1_000)];

/// How many clients ask at the same time.
const CLIENTS: [usize; 2] = [1, 16];

/// How long a row may take, in seconds.
const SECONDS: u64 = 4;

const COLUMNS: &[&str] = &[
    "tools",
    "answer KiB",
    "clients",
    "way",
    "gateway CPU µs/call",
    "calls/s",
    "of direct HTTP",
    "p50 µs",
    "p99 µs",
    "upstream CPU µs/call",
    "load CPU µs/call",
    "calls",
];

/// The list directly, through nginx, and from the kernel's own index.
pub(crate) async fn table(options: &Options, talk: Talk) -> Table {
    let (own, mut rows) = (own_tools().await, Vec::new());
    let (title, sizes) = match talk {
        Talk::Session => ("tools/list", &TOOLS[..]),
        Talk::Alone => ("tools/list, modern", &TOOLS[..1]),
    };
    for &(tools, calls) in sizes {
        let more = (tools - own).to_string();
        let upstream = Upstream::start(&["--http-json", "--tools", &more]).await;
        let kernel = if options.has_kernel() {
            Some(kernel(&upstream).await)
        } else {
            None
        };
        let nginx = match Nginx::version() {
            Some(_) => Some(Nginx::start(upstream.port(), 1).await),
            None => None,
        };
        let mut subjects = subjects(&upstream, kernel.as_ref(), nginx.as_ref());
        for clients in CLIENTS {
            let bounds = options.bounds(calls, SECONDS);
            for row in round(&mut subjects, talk, clients, bounds).await {
                rows.push([vec![Cell::Number(tools as f64, 0)], row].concat());
            }
        }
    }
    Table {
        title,
        columns: COLUMNS,
        rows,
    }
}

/// All ways one after another, under the same load; the direct one comes first.
async fn round(
    subjects: &mut [Subject],
    talk: Talk,
    clients: usize,
    bounds: Bounds,
) -> Vec<Vec<Cell>> {
    let (mut rows, mut direct) = (Vec::new(), None);
    let request = Request::list(talk, "tools/list");
    for subject in subjects {
        let cells = match subject.measure(&request, clients, bounds).await {
            Ok(measured) => {
                let direct = *direct.get_or_insert(measured.run.rate());
                measured.cells(&[Some(direct)])
            }
            Err(why) => unmeasured(&why, 1),
        };
        let name = subject.name.as_str();
        eprintln!("{clients} clients, {name}: {} calls/s", cells[1]);
        let size = Cell::Number(size(subject, talk).await as f64 / 1024.0, 0);
        let heads = vec![size, Cell::Number(clients as f64, 0), name.into()];
        rows.push([heads, cells].concat());
    }
    rows
}

/// How many tools the scripted server has by itself.
async fn own_tools() -> usize {
    let upstream = Upstream::start(&["--http-json"]).await;
    let list = list(&upstream.url(), Talk::Session).await;
    let list: serde_json::Value = serde_json::from_str(&list).expect("a tools/list answer");
    list["result"]["tools"].as_array().map_or(0, Vec::len)
}

/// The size of the whole answer in bytes; 0 for a way that is not there.
async fn size(subject: &Subject, talk: Talk) -> usize {
    match &subject.way {
        Way::Http(url) | Way::HttpAs(url, _) => list(url, talk).await.len(),
        Way::Pipe(_) | Way::Not(_) => 0,
    }
}

async fn list(url: &str, talk: Talk) -> String {
    let mut load = HttpLoad::open(url, 1, talk).await.expect("a client");
    let list = load.once(&Request::list(talk, "tools/list")).await;
    list.expect("an answer")
}

async fn kernel(upstream: &Upstream) -> Kernel {
    let kernel = Kernel::start(&program::remote_entry("far", &upstream.url())).await;
    kernel.connected(&["far"]).await;
    kernel
}

fn subjects(upstream: &Upstream, kernel: Option<&Kernel>, nginx: Option<&Nginx>) -> Vec<Subject> {
    let subject = |name: &str, way, gateway| Subject {
        name: name.to_owned(),
        way,
        gateway,
        upstream: upstream.pid(),
    };
    let mut all = vec![subject("direct HTTP", Way::Http(upstream.url()), vec![])];
    let hop = nginx.map_or_else(
        || Way::Not("not installed".to_owned()),
        |nginx| Way::Http(nginx.url()),
    );
    let pids = nginx.map(Nginx::pids).unwrap_or_default();
    all.push(subject("nginx, workers: 1, HTTP to HTTP", hop, pids));
    if let Some(kernel) = kernel {
        let pid = || vec![kernel.pid()];
        all.push(subject(
            "mgp, one server",
            Way::Http(kernel.server_url("far")),
            pid(),
        ));
        all.push(subject(
            "mgp, everything",
            Way::Http(kernel.url().to_owned()),
            pid(),
        ));
    }
    all
}
