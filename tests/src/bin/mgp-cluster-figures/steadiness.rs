//! Nodes that are there, and are not to be taken for dead.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mgp_tests::harness::kernel::network::{BadCable, Network};
use mgp_tests::harness::{Agent, Program};
use mgp_tests::load::{Cell, Table};
use serde_json::json;

use crate::Options;
use crate::lossy_links::is_supported;
use crate::node::{Node, unite};
use crate::times::{MISSED, not_run};

const COLUMNS: &[&str] = &[
    "while",
    "seconds",
    "looks",
    "answers",
    "MiB/s",
    "false deaths",
    "held",
];
/// What the ways lose in the second of the two.
const LOSSY: BadCable = BadCable {
    delay_ms: 0,
    spread_ms: 0,
    lost: 5,
    early: 0,
};
/// How many answers are on their way at the same time: more than the link carries.
const AT_ONCE: usize = 4;
/// How long each of them is: nearly as long as a message may be.
const ANSWER: usize = (8 << 20) - (4 << 10);
/// How often the nodes are looked at.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) async fn table(options: &Options) -> Table {
    let time = options.time(120);
    let (good, lossy) = (
        "8 MiB answers without a pause",
        "the same, 5 % lost each way",
    );
    let rows = match is_supported() {
        // Both at the same time: they have the machine's cores to share as well.
        Ok(_) => {
            let both = tokio::join!(watched(time, None), watched(time, Some(LOSSY)));
            vec![row(good, both.0), row(lossy, both.1)]
        }
        Err(why) => vec![
            row(good, watched(time, None).await),
            not_run(lossy, &why, COLUMNS.len()),
        ],
    };
    Table {
        title: "Nodes that are there",
        columns: COLUMNS,
        rows,
    }
}

struct Watched {
    time: Duration,
    looks: usize,
    answers: usize,
    false_deaths: usize,
}

/// Two nodes with more to carry than their link can, watched from both sides.
async fn watched(time: Duration, cable: Option<BadCable>) -> Watched {
    let mut network = Network::new(2).expect("a network was made a moment ago");
    let demo = Program::fixture(&[]).entry("demo");
    let mut nodes = [
        Node::start(&network, 0, "nas", &demo).await,
        Node::start(&network, 1, "desk", "").await,
    ];
    nodes[0].kernel.connected(&["demo"]).await;
    unite(&mut nodes).await;
    let [nas, desk] = &mut nodes;
    nas.ask(
        "mgp/kernel/shares/add",
        json!({"server": "demo", "to": "cluster"}),
    )
    .await;
    let grant = json!({
        "entry_type": "server_grant", "agent_id": "local@desk", "server_id": "demo",
        "permission": "allow"
    });
    nas.ask("mgp/access/grant", grant).await;
    let first = async || desk.call("nas__demo__progress", json!({"steps": 1})).await;
    let first = crate::times::until(Instant::now(), Duration::from_secs(30), first).await;
    assert!(first.is_some(), "the tool is not called");
    let agents = join_all((0..AT_ONCE).map(|_| desk.agent())).await;
    if let Some(cable) = cable {
        for machine in 0..2 {
            network.worsen(machine, cable).await;
        }
    }
    let end = Instant::now() + time;
    let begun = Instant::now();
    let loads = join_all(agents.into_iter().map(|agent| loaded(agent, end)));
    let (answers, at_nas, at_desk) =
        tokio::join!(loads, false_deaths(nas, end), false_deaths(desk, end));
    Watched {
        time: begun.elapsed(),
        looks: at_nas.0 + at_desk.0,
        answers: answers.into_iter().sum(),
        false_deaths: at_nas.1 + at_desk.1,
    }
}

/// Calls until the end; gives how many were answered.
async fn loaded(mut agent: Agent, end: Instant) -> usize {
    let mut answers = 0;
    while Instant::now() < end {
        let call = agent.call("nas__demo__progress", json!({"steps": 1, "bytes": ANSWER}));
        answers += usize::from(call.await.frame.len() > ANSWER);
    }
    answers
}

/// How often it looked, and how often the other node was away or had come back since.
async fn false_deaths(node: &mut Node, end: Instant) -> (usize, usize) {
    let (mut looks, mut deaths, mut before) = (0, 0, None);
    while Instant::now() < end {
        let nodes = node.nodes().await;
        let other = nodes.iter().find(|node| node["standing"] != "here");
        let since = other.and_then(|other| other["since_ms"].as_u64());
        let (now, linked) = (Instant::now(), other.map(|it| it["standing"] == "linked"));
        let begun = since.and_then(|since| now.checked_sub(Duration::from_millis(since)));
        // A link that began a second after the one before is another one.
        let another = |before: Option<Instant>| {
            before
                .zip(begun)
                .is_some_and(|(a, b)| b > a + Duration::from_secs(1))
        };
        if linked != Some(true) || another(before) {
            deaths += usize::from(before.is_some());
            before = None;
        }
        before = before.or(begun);
        looks += 1;
        tokio::time::sleep(LOOK).await;
    }
    (looks, deaths)
}

fn row(what: &str, watched: Watched) -> Vec<Cell> {
    let seconds = watched.time.as_secs_f64();
    let mib = (watched.answers * ANSWER) as f64 / f64::from(1 << 20);
    let held = if watched.false_deaths == 0 && watched.answers > 0 {
        "yes"
    } else {
        MISSED
    };
    vec![
        what.into(),
        Cell::Number(seconds, 0),
        Cell::Number(watched.looks as f64, 0),
        Cell::Number(watched.answers as f64, 0),
        Cell::Number(mib / seconds, 1),
        Cell::Number(watched.false_deaths as f64, 0),
        held.into(),
    ]
}
