//! `tools/call` with everything that watches it, one part added after another, beside the same call with
//! all of that switched off.

use mgp_tests::harness::{DEADLINE, Kernel, Process, Program};
use mgp_tests::load::{Cell, PipeLoad, Request, Table, Talk};
use serde_json::json;

use super::Options;
use super::calls::{child, eras};
use super::subject::{Measured, Subject, Way, unmeasured};

/// The texts to echo, with how many calls of each at most.
const PAYLOADS: [(&str, usize, u64); 2] = [("32 B", 32, 120_000), ("64 KiB", 65_536, 20_000)];
const CLIENTS: usize = 16;
const SECONDS: u64 = 6;
/// Each is measured so often, in turns with the others, and the median counts: other work on the machine
/// then hits all alike.
const TURNS: u64 = 3;

/// Switched on one after the other. The schema of the tool is checked in all of them.
const STEPS: [&str; 6] = [
    "mgp, all off",
    "+ agent, token, grants",
    "+ permission, MGP server",
    "+ validators",
    "+ audit (all on)",
    "+ mgp trace --full",
];

const COLUMNS: &[&str] = &[
    "text",
    "era",
    "way",
    "gateway CPU µs/call",
    "more than all off",
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
        let mut kernels = Vec::new();
        let mut subjects = vec![direct(talk).await];
        for step in 0..STEPS.len() {
            let (kernel, subject) = watched(step, talk).await;
            let tracer = if step + 1 == STEPS.len() {
                Some(tracer(&kernel).await)
            } else {
                None
            };
            kernels.push((tracer, kernel));
            subjects.push(subject);
        }
        for (payload, size, calls) in PAYLOADS {
            let request = Request::echo(talk, size);
            for row in round(options, &mut subjects, &request, calls).await {
                let heads: [Cell; 2] = [payload.into(), era.into()];
                rows.push([&heads[..], &row].concat());
            }
        }
    }
    Table {
        title: "tools/call echo, watched",
        columns: COLUMNS,
        rows,
    }
}

/// All in turns; the median of each.
async fn round(
    options: &Options,
    subjects: &mut [Subject],
    request: &Request,
    calls: u64,
) -> Vec<Vec<Cell>> {
    let mut measured: Vec<Vec<std::io::Result<Measured>>> = Vec::new();
    measured.resize_with(subjects.len(), Vec::new);
    let bounds = options.bounds(calls / TURNS, SECONDS);
    for _ in 0..TURNS {
        for (subject, turns) in subjects.iter_mut().zip(&mut measured) {
            turns.push(subject.measure(request, CLIENTS, bounds).await);
        }
    }
    let (mut direct, mut off) = (None, None);
    let rows = subjects.iter().zip(measured).map(|(subject, turns)| {
        let cells = match median(turns) {
            Ok(measured) => {
                direct = direct.or(Some(measured.run.rate()));
                let mut cells = measured.cells(&[direct]);
                let own = measured.gateway_per_call();
                let more = if subject.gateway.is_empty() {
                    Cell::Nothing
                } else {
                    Cell::Number(own - *off.get_or_insert(own), 1)
                };
                cells.insert(1, more);
                cells
            }
            Err(why) => unmeasured(&why, 2),
        };
        [vec![Cell::from(subject.name.as_str())], cells].concat()
    });
    rows.collect()
}

fn median(turns: Vec<std::io::Result<Measured>>) -> std::io::Result<Measured> {
    let mut turns = turns.into_iter().collect::<Result<Vec<_>, _>>()?;
    turns.sort_by(|a, b| a.gateway_per_call().total_cmp(&b.gateway_per_call()));
    let middle = turns.len() / 2;
    Ok(turns.swap_remove(middle))
}

async fn direct(talk: Talk) -> Subject {
    let pipe = PipeLoad::start(&Program::fixture(&["--era", eras(talk)[0]]), talk).await;
    let pipe = pipe.expect("the fixture starts");
    Subject {
        name: "direct stdio".to_owned(),
        upstream: pipe.pid(),
        way: Way::Pipe(Box::new(pipe)),
        gateway: Vec::new(),
    }
}

/// A kernel with this and the steps before it.
async fn watched(step: usize, talk: Talk) -> (Kernel, Subject) {
    let [access, permission, validators, audit] = [1, 2, 3, 4].map(|nth| step >= nth);
    let needs = ["network.outbound"];
    let declares =
        json!({"version": "0.2.0", "extensions": ["security"], "permissions_required": needs});
    let security = json!({"echo": {"risk_level": "safe", "permissions_required": needs}});
    let (declares, security) = (declares.to_string(), security.to_string());
    let mut flags = vec!["--era", eras(talk)[0]];
    if permission {
        flags.extend(["--mgp", &declares, "--mgp-security", &security]);
    }
    let mut config = "[http]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    config += if access {
        "[access]\ndefault_policy = \"opt-in\"\n"
    } else {
        "auth = \"none\"\n"
    };
    let switch = |name: &str, on: bool| format!("[{name}]\nenabled = {on}\n");
    config += &switch("validation", validators);
    config += &switch("audit", audit);
    // A question would stop the calls, not cost them time.
    config += &switch("confirmation", false);
    config += &Program::fixture(&flags).entry("it");
    if permission {
        config += "permission_policy = \"auto_approve\"\n";
    }
    if validators {
        config += "[servers.tools.echo]\nvalidators = [\"sandbox\", \"network_restricted\"]\n";
    }
    let kernel = Kernel::with_config(&config).await;
    kernel.connected(&["it"]).await;
    let url = kernel.server_url("it");
    let way = if access {
        Way::HttpAs(url, agent(&kernel).await)
    } else {
        Way::Http(url)
    };
    let subject = Subject {
        name: STEPS[step].to_owned(),
        way,
        gateway: vec![kernel.pid()],
        upstream: child(&kernel, "it").await,
    };
    (kernel, subject)
}

/// Somebody who looks on at every message, and what it says.
async fn tracer(kernel: &Kernel) -> Process {
    let program = kernel.program(&["trace", "it", "--full", "--json"]);
    let mut tracer = Process::start("mgp trace", &program);
    let follows = |said: &str| said.contains("following").then_some(());
    tracer.says("that it follows", DEADLINE, follows).await;
    tracer
}

/// Makes an agent with three entries; gives its token.
async fn agent(kernel: &Kernel) -> String {
    let made = kernel.mgp_json(&["agents", "add", "alice"]).await;
    for place in ["it/echo", "it/other", "elsewhere"] {
        let granted = kernel.mgp(&["grants", "add", "agent.alice", place]).await;
        assert!(granted.status.success(), "{granted:?}");
    }
    made["token"]
        .as_str()
        .expect("a new agent has a token")
        .to_owned()
}
