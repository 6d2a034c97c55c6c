//! `tools/call`: small and large, from few and many clients, directly and through.

pub(crate) mod telemetry;

use std::thread::available_parallelism;

use mgp_tests::harness::{Kernel, Program, Upstream, program};
use mgp_tests::load::{Bounds, Cell, Nginx, PipeLoad, Request, Table, Talk};

use super::Options;
use super::subject::{Subject, Way, unmeasured};

/// The texts to echo, with how many calls of each at most.
const PAYLOADS: [(&str, usize, u64); 2] = [("32 B", 32, 100_000), ("64 KiB", 65_536, 20_000)];

/// How many clients call at the same time; those without sessions not the last.
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

/// Every way beside the direct one, in the same run. The servers are of the era of their clients,
/// but for one that shows what the way across costs.
pub(crate) async fn table(options: &Options, talk: Talk) -> Table {
    let [ours, theirs] = eras(talk);
    let upstream = Upstream::start(&["--http-json", "--era", ours]).await;
    let kernel = if options.has_kernel() {
        Some(kernel(&upstream, ours, theirs).await)
    } else {
        None
    };
    let hops = hops(&upstream).await;
    let pipe = PipeLoad::start(&Program::fixture(&["--era", ours]), talk).await;
    let pipe = pipe.expect("the fixture starts");
    let mut subjects = subjects(&upstream, pipe, kernel.as_ref(), &hops).await;
    let (title, sizes) = match talk {
        Talk::Session => ("tools/call echo", &CLIENTS[..]),
        Talk::Alone => ("tools/call echo, modern", &CLIENTS[..2]),
    };
    let mut rows = Vec::new();
    for (payload, size, calls) in PAYLOADS {
        let request = Request::echo(talk, size);
        for &clients in sizes {
            let bounds = options.bounds(calls, SECONDS);
            let heads: [Cell; 2] = [payload.into(), Cell::Number(clients as f64, 0)];
            for row in round(&mut subjects, &request, clients, bounds).await {
                rows.push([&heads[..], &row].concat());
            }
        }
    }
    Table {
        title,
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

/// The era of the servers, and the other one.
pub(crate) fn eras(talk: Talk) -> [&'static str; 2] {
    match talk {
        Talk::Session => ["legacy", "modern"],
        Talk::Alone => ["modern", "legacy"],
    }
}

/// A kernel in front of a server of its own over stdio, of one of the other era, and of the shared
/// one over HTTP.
async fn kernel(upstream: &Upstream, ours: &str, theirs: &str) -> Kernel {
    let pipe = |id, era| Program::fixture(&["--era", era]).entry(id);
    let far = program::remote_entry("far", &upstream.url());
    let kernel = Kernel::start(&(pipe("pipe", ours) + &pipe("across", theirs) + &far)).await;
    kernel.connected(&["pipe", "across", "far"]).await;
    kernel
}

/// The process of the server `id`.
pub(crate) async fn child(kernel: &Kernel, id: &str) -> u32 {
    let status = kernel.mgp_json(&["status"]).await;
    let mut servers = status["servers"].as_array().into_iter().flatten();
    let server = servers.find(|server| server["id"] == id);
    let pid = server.and_then(|server| server["pid"].as_u64());
    pid.and_then(|pid| u32::try_from(pid).ok())
        .expect("it is a running program")
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
    pipe: PipeLoad,
    kernel: Option<&Kernel>,
    hops: &[(String, Option<Nginx>)],
) -> Vec<Subject> {
    let far = upstream.pid();
    let subject = |name: &str, way, gateway, upstream| Subject {
        name: name.to_owned(),
        way,
        gateway,
        upstream,
    };
    let pid = pipe.pid();
    let pipe = Way::Pipe(Box::new(pipe));
    let mut all = vec![
        subject("direct stdio", pipe, vec![], pid),
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
        let url = |id| Way::Http(kernel.server_url(id));
        for (name, id, upstream) in [
            ("mgp, HTTP to stdio", "pipe", child(kernel, "pipe").await),
            ("mgp, HTTP to HTTP", "far", far),
            (
                "mgp, to stdio of the other era",
                "across",
                child(kernel, "across").await,
            ),
        ] {
            all.push(subject(name, url(id), vec![kernel.pid()], upstream));
        }
    }
    all
}
