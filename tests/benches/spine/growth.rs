//! Whether a call costs the same, however much the kernel has of everything else.

use mgp_tests::harness::{Agent, DEADLINE, HttpClient, Kernel, Program, wait_until};
use mgp_tests::load::sessions::IdleSessions;
use mgp_tests::load::{Cell, Request, Table, Talk};
use serde_json::json;

use super::Options;
use super::calls::child;
use super::subject::{Subject, Way};

/// Amounts of each thing; the last is left out by `--quick`.
const SERVERS: [usize; 3] = [1, 50, 300];
const TOOLS: [usize; 3] = [10, 1_000, 10_000];
const SESSIONS: [usize; 3] = [1, 1_000, 10_000];
const GRANTS: [usize; 3] = [0, 1_000, 100_000];
/// Written to the log together.
const GRANTS_AT_ONCE: usize = 200;

const CLIENTS: usize = 16;
const CALLS: u64 = 20_000;
/// Longest time of one turn, in seconds.
const SECONDS: u64 = 4;
/// The kernels of one thing take turns, and the least of each counts: other work on the machine only adds.
const TURNS: usize = 5;

/// The most a call may cost beside the smallest amount.
const FLAT: f64 = 1.1;

/// One kernel for each amount; the calls go to `/mcp`, where all servers are merged.
pub(crate) async fn table(options: &Options) -> Table {
    let mut rows = Vec::new();
    for (thing, amounts) in [
        ("servers", SERVERS),
        ("tools", TOOLS),
        ("sessions", SESSIONS),
        ("grants", GRANTS),
    ] {
        let amounts = &amounts[..amounts.len() - usize::from(options.quick)];
        rows.extend(rows_of(options, thing, amounts).await);
    }
    Table {
        title: "A call, beside how much there is",
        columns: &[
            "thing",
            "how many",
            "gateway CPU µs/call",
            "of the smallest amount",
            "within 10 %",
            "p50 µs",
        ],
        rows,
    }
}

async fn rows_of(options: &Options, thing: &str, amounts: &[usize]) -> Vec<Vec<Cell>> {
    let mut kernels = Vec::new();
    for &amount in amounts {
        kernels.push(Grown::start(thing, amount).await);
        eprintln!("{thing}: {amount} are there");
    }
    let request = Request::call(Talk::Session, "server0__echo", 32);
    let bounds = options.bounds(CALLS, SECONDS);
    let mut least = vec![(f64::INFINITY, f64::INFINITY); amounts.len()];
    for _ in 0..TURNS {
        for (kernel, least) in kernels.iter_mut().zip(&mut least) {
            let measured = kernel.subject.measure(&request, CLIENTS, bounds).await;
            let measured = measured.expect("calls are answered");
            least.0 = least.0.min(measured.gateway_per_call());
            least.1 = least.1.min(measured.run.latencies.percentile(50.0));
        }
    }
    let smallest = least[0].0;
    let row = |(amount, (cpu, p50)): (&usize, (f64, f64))| {
        let ratio = cpu / smallest;
        eprintln!("{thing}: {amount}: {cpu:.1} µs, {ratio:.2}");
        vec![
            thing.into(),
            Cell::Number(*amount as f64, 0),
            Cell::Number(cpu, 1),
            Cell::Number(ratio, 2),
            if ratio <= FLAT { "yes" } else { "no" }.into(),
            Cell::Number(p50, 0),
        ]
    };
    amounts.iter().zip(least).map(row).collect()
}

/// A kernel that has so much of one thing.
struct Grown {
    subject: Subject,
    _kernel: Kernel,
    _sessions: IdleSessions,
}

impl Grown {
    async fn start(thing: &str, amount: usize) -> Self {
        let count = |of: &str, otherwise| if thing == of { amount } else { otherwise };
        let more_tools = (count("tools", 10)).to_string();
        let first = Program::fixture(&["--tools", &more_tools]).entry("server0");
        let entries =
            (1..count("servers", 1)).map(|n| Program::fixture(&[]).entry(&format!("server{n}")));
        let servers = entries.fold(first, |all, entry| all + &entry);
        let kernel = Kernel::start(&servers).await;
        wait_until("all servers are connected", 4 * DEADLINE, async || {
            let status = kernel.mgp_json(&["status"]).await;
            let servers = status["servers"].as_array().into_iter().flatten();
            servers
                .into_iter()
                .all(|server| server["state"] == "connected")
        })
        .await;
        let mut sessions = IdleSessions::default();
        let opener = HttpClient::new(kernel.url());
        for _ in 0..count("sessions", 0) {
            let opened = sessions.open(&opener, kernel.url(), false).await;
            opened.expect("a session is opened");
        }
        grant(&kernel, count("grants", 0)).await;
        let subject = Subject {
            name: thing.to_owned(),
            way: Way::Http(kernel.url().to_owned()),
            gateway: vec![kernel.pid()],
            upstream: child(&kernel, "server0").await,
        };
        Self {
            subject,
            _kernel: kernel,
            _sessions: sessions,
        }
    }
}

/// Gives as many agents a tool each.
async fn grant(kernel: &Kernel, amount: usize) {
    let mut operator = Agent::over_socket(&kernel.socket()).await;
    operator.initialize("2025-11-25", "{}").await.result();
    let all: Vec<usize> = (0..amount).collect();
    for some in all.chunks(GRANTS_AT_ONCE) {
        let mut asked = Vec::new();
        for n in some {
            let params = json!({
                "entry_type": "tool_grant", "permission": "allow", "agent_id": format!("agent.a{n}"),
                "server_id": "server0", "tool_name": "echo",
            });
            asked.push(operator.start("mgp/access/grant", params).await);
        }
        for id in asked {
            operator.answer_to(&id).await.result();
        }
    }
}
