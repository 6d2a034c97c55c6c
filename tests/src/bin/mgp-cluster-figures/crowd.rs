//! Many nodes with many tools: how long until all know all, and what that takes.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mgp_tests::harness::Program;
use mgp_tests::harness::kernel::network::Network;
use mgp_tests::load::{Cell, Table, Usage};
use serde_json::{Value, json};

use crate::Options;
use crate::node::Node;
use crate::times::{MISSED, NOT_RUN, Times, millis, not_run, until};

const COLUMNS: &[&str] = &["what", "is", "unit", "may be", "held"];
/// All tools of all nodes. The exposure is what keeps the lists of agents short.
const TOOLS: usize = 100_000;
const NODES: usize = 32;
/// For a first look.
const FEW: usize = 8;
/// How long they may take to know all: on two cores each of 32 kernels has a sixteenth of one.
const GIVEN_UP: Duration = Duration::from_secs(300);
/// How long they are left alone, to see what that costs.
const REST: Duration = Duration::from_secs(20);
/// How often something is looked for.
const SEARCHES: usize = 100;
/// As many kernels start at the same time.
const TOGETHER: usize = 4;
/// How long starting and joining may go on before those that are in are all there is.
const COMING: Duration = Duration::from_secs(180);

/// With less memory than that nothing more is tried: others are on the machine as well.
const LEFT: u64 = 3 << 30;

const FINDING: &str = "[discovery]\nembedding = \"off\"\nexposure = \"discovery\"\n";

pub(crate) async fn table(options: &Options) -> Table {
    let wanted = if options.quick { FEW } else { NODES };
    let each = TOOLS / NODES;
    let network = Network::new(wanted).expect("a network was made a moment ago");
    let mut rows = Vec::new();
    let begun = Instant::now();
    let mut nodes = started(&network, wanted, each).await;
    rows.push(is("kernels, each with a server", nodes.len() as f64, 0, ""));
    rows.push(is("tools of each", each as f64, 0, ""));
    rows.push(is(
        "started, one after the other by fours",
        begun.elapsed().as_secs_f64(),
        1,
        "s",
    ));
    let alone: Vec<[u64; 2]> = nodes.iter().map(memory).collect();
    let joined = joined(&mut nodes).await;
    rows.push(is(
        "let in, one after the other",
        joined.as_secs_f64(),
        1,
        "s",
    ));
    let what = "from the last one that was let in until all know all";
    let known = all_known(&mut nodes, each).await;
    let ours: Vec<u32> = nodes.iter().map(|node| node.kernel.pid()).collect();
    let cpu = Usage::of(&ours).cpu.as_secs_f64() / ours.len() as f64;
    rows.push(match &known {
        Ok(took) => is(what, took.as_secs_f64(), 1, "s"),
        Err(why) => not_run(what, why, COLUMNS.len()),
    });
    rows.push(is("CPU of a kernel until then, mean", cpu, 1, "s"));
    rows.extend(traffic(&nodes, each));
    rows.extend(sizes(&nodes, &alone));
    if known.is_ok() {
        rows.extend(searches(&mut nodes, each).await);
        rows.extend(rest(&ours).await);
    }
    Table {
        title: "Many nodes with many tools",
        columns: COLUMNS,
        rows,
    }
}

async fn started(network: &Network, wanted: usize, tools: usize) -> Vec<Node> {
    let begun = Instant::now();
    let tools = tools.to_string();
    let mut nodes = Vec::new();
    while nodes.len() < wanted && begun.elapsed() < COMING {
        let next = nodes.len()..wanted.min(nodes.len() + TOGETHER);
        let starts = next.map(|at| {
            // A name of its own for each, or all would be of one and the same server.
            let server =
                Program::fixture(&["--bare", "--tools", &tools, "--name", &format!("stock{at}")]);
            async move {
                let more = format!("{}{FINDING}", server.entry("stock"));
                let mut node = Node::start(network, at, &format!("node{at}"), &more).await;
                node.kernel.connected(&["stock"]).await;
                let share = json!({"server": "stock", "to": "cluster"});
                node.ask("mgp/kernel/shares/add", share).await;
                node
            }
        });
        nodes.extend(join_all(starts).await);
    }
    nodes
}

/// Lets one after the other in; who is not in when the time is over stays outside.
async fn joined(nodes: &mut Vec<Node>) -> Duration {
    let begun = Instant::now();
    let mut inside = 1;
    if let Some((host, guests)) = nodes.split_first_mut() {
        for guest in guests {
            if begun.elapsed() > COMING || memory_left() < LEFT {
                break;
            }
            host.admit(guest).await;
            inside += 1;
        }
    }
    nodes.truncate(inside);
    begun.elapsed()
}

/// How long it takes from now until each node has the tools of all others; or why that was given up.
async fn all_known(nodes: &mut [Node], each: usize) -> Result<Duration, String> {
    let (since, all) = (Instant::now(), nodes.len());
    for (at, node) in nodes.iter_mut().enumerate() {
        let mut left = memory_left();
        let known = until(since, GIVEN_UP, async || {
            left = memory_left();
            if left < LEFT {
                return true;
            }
            let has = knows(&node.nodes().await, each, all);
            if !has {
                // Thirty nodes that answer in detail are work of their own.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            has
        });
        let known = known.await;
        if left < LEFT {
            let left = left >> 20;
            return Err(format!("given up with {left} MiB of memory left"));
        }
        if known.is_none() {
            return Err(format!("not within {GIVEN_UP:?}, {at} of {all} know all"));
        }
    }
    Ok(since.elapsed())
}

/// What the machine has left for all, in bytes.
fn memory_left() -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = told
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.map(|line| line.trim().trim_end_matches(" kB"));
    kib.and_then(|kib| kib.parse().ok())
        .map_or(0, |kib: u64| kib << 10)
}

fn knows(nodes: &[Value], each: usize, all: usize) -> bool {
    let whole = |node: &&Value| {
        let tools = node["servers"][0]["tools"].as_u64();
        tools.is_some_and(|tools| tools >= each as u64)
    };
    nodes.iter().filter(whole).count() == all
}

/// What went over the cables, all of it: of that the definitions are the least that could.
fn traffic(nodes: &[Node], each: usize) -> Vec<Vec<Cell>> {
    let sent = nodes.iter().map(|node| sent(node.kernel.pid()));
    let received_tools = (nodes.len() * (nodes.len() - 1) * each).max(1);
    let sent: u64 = sent.sum();
    vec![
        is(
            "sent by all, everything",
            sent as f64 / f64::from(1 << 20),
            0,
            "MiB",
        ),
        is(
            "that is for each tool at each other node",
            sent as f64 / received_tools as f64,
            0,
            "bytes",
        ),
    ]
}

/// The bytes that left the machine of this process.
fn sent(pid: u32) -> u64 {
    let told = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
    let lan = told
        .lines()
        .find_map(|line| line.trim().strip_prefix("lan:"));
    let sent = lan.and_then(|lan| lan.split_ascii_whitespace().nth(8));
    sent.and_then(|sent| sent.parse().ok()).unwrap_or(0)
}

fn sizes(nodes: &[Node], alone: &[[u64; 2]]) -> Vec<Vec<Cell>> {
    let now: Vec<[u64; 2]> = nodes.iter().map(memory).collect();
    let mean = |of: &[[u64; 2]], at: usize| {
        let sum: u64 = of.iter().map(|memory| memory[at]).sum();
        sum as f64 / of.len().max(1) as f64 / 1024.0
    };
    let most = now.iter().map(|memory| memory[0]).max().unwrap_or(0);
    vec![
        is("RSS of a kernel alone, mean", mean(alone, 0), 0, "MiB"),
        is(
            "RSS of a kernel that knows all, mean",
            mean(&now, 0),
            0,
            "MiB",
        ),
        is("the largest", most as f64 / 1024.0, 0, "MiB"),
        is("PSS, mean", mean(&now, 1), 0, "MiB"),
    ]
}

/// RSS and PSS in KiB.
fn memory(node: &Node) -> [u64; 2] {
    let file = format!("/proc/{}/smaps_rollup", node.kernel.pid());
    let told = std::fs::read_to_string(file).unwrap_or_default();
    ["Rss:", "Pss:"].map(|name| {
        let line = told.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.map(|line| line.trim().trim_end_matches(" kB"));
        kib.and_then(|kib| kib.parse().ok()).unwrap_or(0)
    })
}

/// What they take while nobody wants anything of them.
async fn rest(ours: &[u32]) -> Vec<Vec<Cell>> {
    let before = Usage::of(ours).cpu;
    tokio::time::sleep(REST).await;
    let taken = Usage::of(ours).cpu.saturating_sub(before);
    let each = millis(taken) / ours.len().max(1) as f64 / REST.as_secs_f64();
    vec![is(
        "CPU of a kernel at rest, mean, for each second",
        each,
        2,
        "ms",
    )]
}

/// What is found, by one node's operator, and how soon.
async fn searches(nodes: &mut [Node], each: usize) -> Vec<Vec<Cell>> {
    let all = (nodes.len() * each) as u64;
    let Some(node) = nodes.last_mut() else {
        return Vec::new();
    };
    let search = |at: usize| {
        let query = format!("echo_{} a text exactly as it was sent", at * 31 % each);
        json!({"query": query, "strategy": "keyword", "max_results": 5})
    };
    let mut searched = Value::Null;
    let since = Instant::now();
    let indexed = until(since, GIVEN_UP, async || {
        searched = node.ask("mgp/index/search", search(0)).await;
        searched["total_available"].as_u64() >= Some(all)
    });
    let indexed = indexed.await;
    let mut times = Times::default();
    for at in 0..SEARCHES {
        let begun = Instant::now();
        node.ask("mgp/index/search", search(at)).await;
        times.add(Some(begun.elapsed()));
    }
    let row = times.row("", None);
    let time = |what: &str, at: usize| {
        vec![
            what.into(),
            row[at].clone(),
            "ms".into(),
            Cell::Nothing,
            Cell::Nothing,
        ]
    };
    let among = searched["total_available"].as_f64().unwrap_or(0.0);
    let mut among = is("tools that a search chooses from", among, 0, "");
    among[4] = if indexed.is_some() { "yes" } else { MISSED }.into();
    vec![
        among,
        is(
            "and that so long after all was known",
            indexed.map_or(0.0, |took| took.as_secs_f64()),
            1,
            "s",
        ),
        time("`mgp tools find` asks the kernel, median", 2),
        time("the same, p99", 3),
    ]
}

fn is(what: &str, number: f64, decimals: usize, unit: &str) -> Vec<Cell> {
    let number = if number.is_finite() {
        Cell::Number(number, decimals)
    } else {
        NOT_RUN.into()
    };
    vec![
        what.into(),
        number,
        unit.into(),
        Cell::Nothing,
        Cell::Nothing,
    ]
}
