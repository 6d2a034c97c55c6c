//! The guard and its kernel, killed one right after the other.

use std::fs;
use std::time::{Duration, Instant};

use mgp_tests::harness::process::usage::below;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::machine::runs;
use crate::scene::{owner, server, shown, told};

/// How far apart the two are killed, in milliseconds: within the time in which a guard is replaced, in
/// which it does its work, and after it.
const APART: [u64; 6] = [0, 2, 15, 60, 150, 400];

/// CMCP-073: whichever of kernel and guard is killed first, and however soon the other one: when the
/// next kernel on the same data is up, nothing of the first one runs.
#[tokio::test]
async fn processes_of_a_killed_kernel_and_guard_are_ended_at_the_next_start() {
    let servers = server("tame", &[], "") + &server("stubborn", &["--ignore-term"], "");
    let mut kernel = Kernel::start(&servers).await;
    let mut rounds = Vec::new();
    for apart in APART {
        for guard_first in [true, false] {
            kernel.connected(&["tame", "stubborn"]).await;
            let mut agent = owner(&kernel).await;
            let mut everyone = family(&mut agent, "tame").await;
            everyone.extend(family(&mut agent, "stubborn").await);
            let (guard, pid) = (guard(&kernel).expect("a guard runs"), kernel.pid());
            let (first, second) = if guard_first {
                (guard, pid)
            } else {
                (pid, guard)
            };
            end(first);
            passes(Duration::from_millis(apart)).await;
            end(second);
            let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
            let before = everyone.iter().filter(|pid| runs(**pid)).count();
            kernel = Kernel::again(folder).await;
            let left: Vec<_> = everyone.iter().filter(|pid| runs(**pid)).collect();
            assert!(
                left.is_empty(),
                "{} of {} run on, {before} before the start: {apart} ms apart, guard first: {guard_first}",
                left.len(),
                everyone.len(),
            );
            rounds.push(before);
        }
    }
    println!("left by kernel and guard, before the next start: {rounds:?}");
    assert!(
        rounds.iter().any(|left| *left > 0),
        "the guard was killed too late in every round"
    );
}

/// The next kernel looks for nothing where the one before ended in order.
#[tokio::test]
async fn a_kernel_that_ends_in_order_leaves_no_mark() {
    let kernel = Kernel::start(&server("it", &[], "")).await;
    kernel.connected(&["it"]).await;
    let marks = kernel.folder().join("data/marks");
    assert_eq!(fs::read_to_string(&marks).unwrap().lines().count(), 1);
    let _folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    assert!(!marks.exists());
}

/// A guard that dies is replaced at once: until then nobody would end the children of a killed kernel.
#[tokio::test]
async fn a_guard_that_dies_is_replaced_at_once() {
    let kernel = Kernel::start("").await;
    let mut fastest = Duration::MAX;
    for _ in 0..4 {
        let old = guard(&kernel).expect("a guard runs");
        let begun = Instant::now();
        end(old);
        wait_until("another guard runs", DEADLINE, async || {
            guard(&kernel).is_some_and(|new| new != old)
        })
        .await;
        fastest = fastest.min(begun.elapsed());
    }
    println!("the fastest of four was there after {fastest:?}");
    assert!(fastest < Duration::from_millis(200), "{fastest:?}");
}

/// The kernel's guard, once it has become one: a process is its parent's copy before.
fn guard(kernel: &Kernel) -> Option<u32> {
    below(kernel.pid()).into_iter().find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        runs(*pid) && line.ends_with(b"\0__guard\0")
    })
}

fn end(pid: u32) {
    // It may have ended already, as it should have.
    let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
}

async fn passes(time: Duration) {
    let begun = Instant::now();
    wait_until("a moment has passed", DEADLINE, async || {
        begun.elapsed() >= time
    })
    .await;
}

/// The process of a server and nine it starts, most of them in sessions of their own.
async fn family(agent: &mut Agent, id: &str) -> Vec<u32> {
    let it = shown(agent, id).await;
    let mut pids = vec![u32::try_from(it["pid"].as_u64().unwrap()).unwrap()];
    for (setsid, hold) in [(false, false), (true, false), (true, true)] {
        let arguments = json!({"n": 3, "setsid": setsid, "hold": hold});
        let forked = told(&agent.call(&format!("{id}__fork"), arguments).await);
        let forked: Vec<u32> = serde_json::from_value(forked["pids"].clone()).unwrap();
        assert_eq!(forked.len(), 3);
        pids.extend(forked);
    }
    pids
}
