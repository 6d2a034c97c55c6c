//! `tools/call` while figures are scraped and spans are told, in pairs with the same call at a kernel that tells nobody.
//!
//! Figures are counted in all of them: what that costs is too little to be seen here, and is printed by the unit test
//! beside it (`a_call_is_counted_within_microseconds`).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use http::Method;
use mgp_tests::harness::{HttpClient, Kernel, Program};
use mgp_tests::load::{Cell, Request, Table, Talk};

use super::child;
use crate::Options;
use crate::subject::{Measured, Subject, Way, unmeasured};

const CLIENTS: usize = 16;
/// In each half of a pair.
const CALLS: u64 = 60_000;
const SECONDS: u64 = 3;
/// The median of their differences counts: other work on the machine hits both halves of most pairs alike.
const PAIRS: usize = 7;

/// What a kernel tells, and to whom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Telling {
    Nobody,
    /// Who asks for all figures, each second.
    Scraper,
    /// A collector, of so many traces in a hundred.
    Collector(u8),
}

/// The first one is another kernel like the one all are compared with: it shows how well they can be told apart.
const TELLING: [(&str, Telling); 5] = [
    ("off, once more", Telling::Nobody),
    ("/metrics each second", Telling::Scraper),
    ("OTLP, 0 % sampled", Telling::Collector(0)),
    ("OTLP, 1 % sampled", Telling::Collector(1)),
    ("OTLP, 100 % sampled", Telling::Collector(100)),
];

const COLUMNS: &[&str] = &[
    "way",
    "kernel CPU µs/call",
    "more than off, µs",
    "least of the pairs",
    "most",
    "calls/s",
    "p50 µs",
    "p99 µs",
    "upstream CPU µs/call",
    "load CPU µs/call",
    "calls",
    "spans told",
    "spans dropped",
];

/// Each beside a kernel with telemetry off, in turns.
pub(crate) async fn table(options: &Options) -> Table {
    let collector = collector().expect("the loopback has a free port");
    let (_kernel, mut off) = telling("off", Telling::Nobody, &collector).await;
    let mut rows = Vec::new();
    for (name, how) in TELLING {
        let (kernel, mut subject) = telling(name, how, &collector).await;
        let scraped = kernel.url().replace("/mcp", "/metrics");
        let scraping = (how == Telling::Scraper).then(|| tokio::spawn(scrape(scraped)));
        let cells = match pairs(options, &mut off, &mut subject).await {
            Ok(pairs) => cells(pairs),
            Err(why) => unmeasured(&why, 3),
        };
        if let Some(scraping) = scraping {
            scraping.abort();
        }
        eprintln!("{name}: {} µs more than off", cells[1]);
        let spans = ["told", "dropped"].map(|what| format!("mgp_telemetry_{what}_total"));
        let told = kernel.mgp(&["metrics"]).await;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let spans = spans.map(|name| Cell::Number(figure(&told, &name), 0));
        rows.push([&[Cell::from(name)], &cells[..], &spans].concat());
    }
    Table {
        title: "tools/call echo, told to others",
        columns: COLUMNS,
        rows,
    }
}

/// Both one after the other, again and again; each time the other one first.
async fn pairs(
    options: &Options,
    off: &mut Subject,
    on: &mut Subject,
) -> io::Result<Vec<(Measured, f64)>> {
    let request = Request::echo(Talk::Alone, 32);
    let bounds = options.bounds(CALLS, SECONDS);
    let mut pairs = Vec::new();
    for turn in 0..PAIRS {
        let (without, with) = match turn % 2 {
            0 => {
                let without = off.measure(&request, CLIENTS, bounds).await?;
                (without, on.measure(&request, CLIENTS, bounds).await?)
            }
            _ => {
                let with = on.measure(&request, CLIENTS, bounds).await?;
                (off.measure(&request, CLIENTS, bounds).await?, with)
            }
        };
        let more = with.gateway_per_call() - without.gateway_per_call();
        pairs.push((with, more));
    }
    pairs.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    Ok(pairs)
}

/// That of the median pair, with the differences of it, of the least and of the most.
fn cells(mut pairs: Vec<(Measured, f64)>) -> Vec<Cell> {
    let (least, most) = (pairs[0].1, pairs[pairs.len() - 1].1);
    let (measured, more) = pairs.swap_remove(pairs.len() / 2);
    let mut cells = measured.cells(&[]);
    for (at, difference) in [more, least, most].into_iter().enumerate() {
        cells.insert(1 + at, Cell::Number(difference, 2));
    }
    cells
}

async fn telling(name: &str, how: Telling, collector: &str) -> (Kernel, Subject) {
    let sections = match how {
        Telling::Nobody => String::new(),
        Telling::Scraper => "[metrics]\nloopback = true\n".to_owned(),
        Telling::Collector(percent) => format!(
            "[telemetry]\nendpoint = \"{collector}\"\nsample_percent = {percent}\n[tuning.telemetry]\nqueue = 65536\ninterval_ms = 1000\n"
        ),
    };
    let entry = Program::fixture(&["--era", "modern"]).entry("it");
    let kernel = Kernel::start(&format!("{sections}{entry}")).await;
    kernel.connected(&["it"]).await;
    let subject = Subject {
        name: name.to_owned(),
        way: Way::Http(kernel.server_url("it")),
        gateway: vec![kernel.pid()],
        upstream: child(&kernel, "it").await,
    };
    (kernel, subject)
}

async fn scrape(url: String) {
    let client = HttpClient::new(&url);
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Ok(answer) = client.send(Method::GET, "").await {
            answer.text().await;
        }
    }
}

/// The number of spans in a figure.
fn figure(text: &str, name: &str) -> f64 {
    let name = format!("{name}{{signal=\"traces\"}} ");
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix(&name)?.parse().ok());
    number.unwrap_or(f64::NAN)
}

/// A collector that takes everything and reads nothing of it, until this process ends.
fn collector() -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || take(stream));
        }
    });
    Ok(url)
}

/// Answers each request of a connection.
fn take(mut stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some((name, value)) = line.split_once(':') {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        } else if line.trim().is_empty() {
            io::copy(&mut reader.by_ref().take(length), &mut io::sink())?;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
            length = 0;
        }
    }
}
