//! `tools/call`: small and large, from few and many clients, directly and through.

use std::thread::available_parallelism;

use mgp_tests::harness::{Kernel, Program, Upstream, program};
use mgp_tests::load::{Bounds, Cell, Nginx, PipeLoad, Request, Table};

use super::Options;
use super::subject::{Subject, Way, unmeasured};

/// The texts to echo, with how many calls of each at most.
const PAYLOADS: [(&str, usize, u64); 2] = [("32 B", 32, 100_000), ("64 KiB", 65_536, 20_000)];

/// How many clients call at the same time.
const CLIENTS: [usize; 3] = [1, 16, 64];

/// How long a row may take, in seconds.
const SECONDS: u64 = 4;

const COLUMNS: &[&str] = &[
    "text",
    "clients",
    "way",
    "gateway CPU µs/call",
    "calls/s",
    "of direct stdio",
    "of direct HTTP",
    "p50 µs",
    "p99 µs",
    "upstream CPU µs/call",
    "load CPU µs/call",
    "calls",
];

/// Every way beside the direct one, in the same run.
pub(crate) async fn table(options: &Options) -> Table {
    let upstream = Upstream::start(&["--http-json"]).await;
    let kernel = match options.has_kernel() {
        true => Some(kernel(&upstream).await),
        false => None,
    };
    let hops = hops(&upstream).await;
    let mut subjects = subjects(&upstream, kernel.as_ref(), &hops).await;
    let mut rows = Vec::new();
    for (payload, size, calls) in PAYLOADS {
        let request = Request::echo("echo", size);
        for clients in CLIENTS {
            let bounds = options.bounds(calls, SECONDS);
            let heads: [Cell; 2] = [payload.into(), Cell::Number(clients as f64, 0)];
            for row in round(&mut subjects, &request, clients, bounds).await {
                rows.push([&heads[..], &row].concat());
            }
        }
    }
    Table {
        title: "tools/call echo",
        columns: COLUMNS,
        rows,
    }
}

/// All ways one after another, under the same load; the two direct ones come first.
async fn round(
    subjects: &mut [Subject],
    request: &Request,
    clients: usize,
    bounds: Bounds,
) -> Vec<Vec<Cell>> {
    let (mut rows, mut direct) = (Vec::new(), Vec::new());
    for subject in subjects {
        let cells = match subject.measure(request, clients, bounds).await {
            Ok(measured) => {
                if subject.gateway.is_empty() {
                    direct.push(measured.run.rate());
                }
                measured.cells(&[direct.first().copied(), direct.get(1).copied()])
            }
            Err(why) => unmeasured(&why, 2),
        };
        let name = Cell::from(subject.name.as_str());
        eprintln!("{clients} clients, {name}: {} calls/s", cells[1]);
        rows.push([vec![name], cells].concat());
    }
    rows
}

/// A kernel in front of a server of its own over stdio and of the shared one over HTTP.
async fn kernel(upstream: &Upstream) -> Kernel {
    let pipe = Program::fixture(&[]).entry("pipe");
    let kernel = Kernel::start(&(pipe + &program::remote_entry("far", &upstream.url()))).await;
    kernel.connected(&["pipe", "far"]).await;
    kernel
}

/// nginx with one worker and with one for each core, where it is installed.
async fn hops(upstream: &Upstream) -> Vec<(String, Option<Nginx>)> {
    let cores = available_parallelism().map_or(1, usize::from);
    let mut hops = Vec::new();
    for workers in [1, cores] {
        let nginx = match Nginx::version() {
            Some(_) => Some(Nginx::start(upstream.port(), workers).await),
            None => None,
        };
        hops.push((format!("nginx, workers: {workers}, HTTP to HTTP"), nginx));
    }
    hops
}

async fn subjects(
    upstream: &Upstream,
    kernel: Option<&Kernel>,
    hops: &[(String, Option<Nginx>)],
) -> Vec<Subject> {
    let far = upstream.pid();
    let pipe = PipeLoad::start(&Program::fixture(&[])).await;
    let pipe = Box::new(pipe.expect("the fixture starts"));
    let subject = |name: &str, way, gateway, upstream| Subject {
        name: name.to_owned(),
        way,
        gateway,
        upstream,
    };
    let pid = pipe.pid();
    let mut all = vec![
        subject("direct stdio", Way::Pipe(pipe), vec![], pid),
        subject("direct HTTP", Way::Http(upstream.url()), vec![], far),
    ];
    for (name, nginx) in hops {
        let way = match nginx {
            Some(nginx) => Way::Http(nginx.url()),
            None => Way::Not("not installed".to_owned()),
        };
        let pids = nginx.as_ref().map(Nginx::pids).unwrap_or_default();
        all.push(subject(name, way, pids, far));
    }
    if let Some(kernel) = kernel {
        let child = kernel.child("mgp-fixture");
        let url = |id| Way::Http(kernel.server_url(id));
        let pid = || vec![kernel.pid()];
        all.push(subject("mgp, HTTP to stdio", url("pipe"), pid(), child));
        all.push(subject("mgp, HTTP to HTTP", url("far"), pid(), far));
    }
    all
}
