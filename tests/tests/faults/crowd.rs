//! Many servers that crash at once beside some that do not.

use std::time::Instant;

use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Agent, DEADLINE, Kernel};
use mgp_tests::load::latency::Latencies;
use serde_json::{Value, json};

use crate::scene::{owner, server, shown, until};

const CALM: usize = 10;
const CRASHING: usize = 50;
/// Calls of each calm server in one round.
const CALLS: usize = 100;
/// How much longer a call may take beside the crashes: they cost CPU on a machine of two cores that
/// runs other tests as well, so this is far above noise, and far below waiting for anybody's start.
const FACTOR: f64 = 10.0;
const SLACK_MICROS: f64 = 250_000.0;
/// Those that keep failing which may start at once, and then in a second.
const AT_ONCE: f64 = 8.0;
const A_SECOND: f64 = 2.0;
/// Ends of lives that had begun before.
const SLACK_TURNS: f64 = 12.0;

/// PRJ-002: fifty of sixty servers in a crash loop; the other ten answer every call, from the same
/// processes, as quickly as before, for those that keep failing are started in turn.
#[tokio::test]
async fn fifty_crash_loops_leave_the_other_ten_servers_alone() {
    let calm: String = (0..CALM)
        .map(|n| server(&format!("calm{n}"), &[], ""))
        .collect();
    let kernel = Kernel::start(&calm).await;
    let ids: Vec<String> = (0..CALM).map(|n| format!("calm{n}")).collect();
    kernel
        .connected(&ids.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let mut operator = owner(&kernel).await;
    let pids = pids(&mut operator, &ids).await;
    let quiet = round(&kernel, &ids).await;

    // In its start and in mid-life, so that lists come and go as well.
    let keys =
        "max_restarts = 1000\nbackoff_base_ms = 400\nbackoff_max_ms = 400\nstop_grace_ms = 200";
    let crashing = (0..CRASHING).map(|n| match n % 2 {
        0 => server(&format!("crash{n}"), &["--exit-at-start", "1"], keys),
        _ => server(&format!("crash{n}"), &["--crash-after", "100"], keys),
    });
    kernel.rewrite(&(calm + &crashing.collect::<String>()));
    for n in 0..CRASHING {
        let crashed = |server: &Value| server["restarts"].as_u64() >= Some(2);
        until(
            &mut operator,
            &format!("crash{n}"),
            "has crashed twice",
            crashed,
        )
        .await;
    }
    let (before, mut noisy) = (restarts(&mut operator).await, Latencies::default());
    let begun = Instant::now();
    let went_on = async {
        while restarts(&mut operator).await < before + CRASHING as u64 {
            noisy.join(&round(&kernel, &ids).await);
        }
    };
    within("every loop to go on, on average", DEADLINE, went_on).await;
    // They take turns: fifty loops without any would have gone on fifty times within a second.
    let (seconds, went_on) = (begun.elapsed().as_secs_f64(), restarts(&mut operator).await);
    let turns = AT_ONCE + A_SECOND * (seconds + 1.0);
    let counted = (went_on - before) as f64;
    assert!(counted < turns + SLACK_TURNS, "{counted} in {seconds} s");
    let (quiet, noisy) = (quiet.percentile(99.0), noisy.percentile(99.0));
    assert!(
        noisy < quiet * FACTOR + SLACK_MICROS,
        "p99 {quiet} µs alone, {noisy} µs beside them"
    );
    assert_eq!(self::pids(&mut operator, &ids).await, pids);
}

/// Calls every server from an agent of its own, all at once.
async fn round(kernel: &Kernel, ids: &[String]) -> Latencies {
    let mut running = Vec::new();
    for id in ids {
        let (mut agent, tool) = (owner(kernel).await, format!("{id}__echo"));
        running.push(tokio::spawn(async move {
            let mut latencies = Latencies::default();
            for n in 0..CALLS {
                let (text, begun) = (n.to_string(), Instant::now());
                let answer = agent.call(&tool, json!({"text": text})).await;
                latencies.add(begun.elapsed());
                assert_eq!(answer.text(), text);
            }
            latencies
        }));
    }
    let mut all = Latencies::default();
    for one in running {
        all.join(&one.await.unwrap());
    }
    assert_eq!(all.calls(), (ids.len() * CALLS) as u64);
    all
}

async fn pids(operator: &mut Agent, ids: &[String]) -> Vec<Value> {
    let mut pids = Vec::new();
    for id in ids {
        pids.push(shown(operator, id).await["pid"].clone());
    }
    pids
}

async fn restarts(operator: &mut Agent) -> u64 {
    let listed = operator
        .request("mgp/servers/list", json!({}))
        .await
        .result();
    let servers = listed["servers"].as_array().unwrap();
    servers
        .iter()
        .map(|server| server["restarts"].as_u64().unwrap())
        .sum()
}
