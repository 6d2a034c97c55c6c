//! Clients that are many, slow, silent or gone: what they cost, and that nobody else pays.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mgp_tests::harness::process::usage::Usage;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, wait_until};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use crate::scene::{self, NEWEST, request};
use crate::wire::{self, Wire};

const MIB: u64 = 1 << 20;

/// The resident memory of the kernel, in bytes.
fn memory(kernel: &Kernel) -> u64 {
    Usage::of(&[kernel.pid()]).resident
}

/// How many sockets the kernel holds.
fn sockets(kernel: &Kernel) -> usize {
    let held = std::fs::read_dir(format!("/proc/{}/fd", kernel.pid())).unwrap();
    let lead = held
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok());
    lead.filter(|to| to.to_string_lossy().starts_with("socket:"))
        .count()
}

/// Others are served while somebody misbehaves, each call soon.
async fn others_are_served(agent: &mut Agent) {
    for n in 0..20 {
        let text = format!("unhurt {n}");
        let call = agent.call("it:echo", json!({"text": text}));
        let echo = within("a call of somebody else", Duration::from_secs(20), call).await;
        assert_eq!(echo.text(), text);
    }
}

/// A stream that nobody reads while its server talks without end, an answer of some megabytes that
/// nobody reads, and a body that never comes whole: each costs little while it lasts, and is given
/// up at its deadline.
#[tokio::test]
async fn stalled_clients_are_dropped_at_their_deadline() {
    let kernel = scene::kernel().await;
    let mut other = scene::http_agent(&kernel, None, "{}").await;
    let client = scene::session(&kernel, NEWEST).await;
    others_are_served(&mut other).await;
    let before = memory(&kernel);

    let arguments = json!({"steps": 300_000});
    let params = json!({"name": "progress", "arguments": arguments, "_meta": {"progressToken": 1}});
    let flood = request(1, "tools/call", params);
    let mut deaf = Wire::to(&kernel).await;
    // Several, one after the other: progress that is not taken may be dropped, and one flood may not
    // be enough to fill the way.
    for _ in 0..5 {
        deaf.write(wire::request(&client, "POST", &flood, flood.len()))
            .await;
    }

    let huge = scene::call(2, "huge", json!({"bytes": 7 * MIB}));
    let mut full = Wire::to(&kernel).await;
    full.write(wire::request(&client, "POST", &huge, huge.len()))
        .await;

    let echo = scene::call(3, "echo", json!({"text": "x".repeat(1000)}));
    let mut slow = Wire::to(&kernel).await;
    slow.write(wire::request(&client, "POST", &echo, 500)).await;

    let begun = Instant::now();
    let mut most = 0;
    for (what, wire) in [
        ("the deaf is dropped", &deaf),
        ("the full is dropped", &full),
    ] {
        wait_until(what, DEADLINE, async || {
            most = most.max(memory(&kernel));
            others_are_served(&mut other).await;
            !wire.is_held()
        })
        .await;
    }
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(25), "{took:?}");
    assert!(most - before < 48 * MIB, "{} MiB", (most - before) / MIB);
    let told = slow.rest().await;
    assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
    // The session is as good as ever.
    let echo = scene::call(4, "echo", json!({"text": "still here"}));
    let frames = client.post(echo).await.frames().await;
    assert!(frames[0].contains("still here"), "{frames:?}");
}

/// An agent on the socket that never reads is cut off once its queue is full, and costs no more
/// than that queue.
#[tokio::test]
async fn an_agent_on_the_socket_that_never_reads_is_cut_off() {
    let kernel = scene::kernel().await;
    let mut other = scene::socket_agent(&kernel, "{}").await;
    let before = memory(&kernel);
    let mut deaf = UnixStream::connect(kernel.socket()).await.unwrap();
    let hello = mgp_tests::harness::handshake::initialize(NEWEST, "{}");
    deaf.write_all(format!("{hello}\n").as_bytes())
        .await
        .unwrap();
    let mut written = 0;
    let text = "x".repeat(4000);
    let flood = async {
        loop {
            written += 1;
            let call = scene::call(written, "it:echo", json!({"text": text}));
            if deaf
                .write_all(format!("{call}\n").as_bytes())
                .await
                .is_err()
            {
                break;
            }
        }
    };
    within("the end of a deaf agent", DEADLINE, flood).await;
    assert!(
        memory(&kernel) - before < 48 * MIB,
        "{}",
        memory(&kernel) / MIB
    );
    others_are_served(&mut other).await;
}

/// Heads that never come whole hold a place each, and nothing that anybody needs; soon they end.
#[tokio::test]
async fn half_open_connections_delay_no_other_client() {
    let kernel = scene::kernel().await;
    let before = memory(&kernel);
    let mut half = Vec::new();
    for n in 0..400 {
        let mut wire = Wire::to(&kernel).await;
        match n % 4 {
            0 => {}
            1 => wire.write("P").await,
            2 => wire.write("POST /mcp HTTP/1.1\r\nhost: local").await,
            _ => wire.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await,
        }
        half.push(wire);
    }
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    others_are_served(&mut agent).await;
    assert!(memory(&kernel) - before < 48 * MIB);
    let freed = async || sockets(&kernel) < 50;
    wait_until("their places are free", DEADLINE, freed).await;
    assert!(!half.iter().any(Wire::is_held));
}

/// CMCP-024: a listener that went away, properly or not, is let go within a second.
#[tokio::test]
async fn disconnected_listener_is_freed_within_a_second() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let quiet = sockets(&kernel);
    for proper in [true, false] {
        let mut listeners = Vec::new();
        for _ in 0..30 {
            let session = scene::session(&kernel, NEWEST).await;
            let mut wire = Wire::to(&kernel).await;
            wire.write(wire::request(&session, "GET", "", 0)).await;
            wire.until("text/event-stream").await;
            listeners.push(wire);
        }
        assert!(sockets(&kernel) >= quiet + 30);
        let since = Instant::now();
        for wire in listeners {
            if proper { drop(wire) } else { wire.reset() }
        }
        wait_until("they are let go", DEADLINE, async || {
            sockets(&kernel) < quiet + 5
        })
        .await;
        assert!(
            since.elapsed() < Duration::from_secs(10),
            "{:?}",
            since.elapsed()
        );
    }
    assert_eq!(client.post(request(1, "ping", json!({}))).await.status, 200);
}

/// MCP-007, CMCP-006, CMCP-052, CMCP-053: ten thousand calls leave no more behind than the first thousand, and each
/// was made once.
#[tokio::test]
async fn ten_thousand_calls_leave_nothing_behind() {
    const AT_ONCE: usize = 100;
    let kernel = scene::kernel().await;
    let mut agent = scene::http_agent(&kernel, None, "{}").await;
    let mut owner = scene::socket_agent(&kernel, "{}").await;
    let text = "x".repeat(1000);
    let mut after_warm_up = 0;
    for round in 0..100 {
        let agent = if round % 4 == 0 {
            &mut agent
        } else {
            &mut owner
        };
        let mut ids = Vec::new();
        for _ in 0..AT_ONCE {
            let arguments = json!({"text": text});
            let params = json!({"name": "it:structured_echo", "arguments": arguments});
            ids.push(agent.start("tools/call", params).await);
        }
        for id in ids {
            agent.answer_to(&id).await.result();
        }
        if round == 20 {
            after_warm_up = memory(&kernel);
        }
    }
    let grown = memory(&kernel).saturating_sub(after_warm_up);
    assert!(grown < 8 * MIB, "{} KiB", grown / 1024);
    let counted = scene::counts(&mut owner, "it:count").await;
    assert_eq!(counted["calls"]["structured_echo"], 10_000);
    let heard = scene::received(&mut owner, "it:received").await;
    let id = |frame: &String| serde_json::from_str::<Value>(frame).unwrap()["id"].as_u64();
    let ids: Vec<u64> = heard.iter().filter_map(id).collect();
    let different: BTreeSet<&u64> = ids.iter().collect();
    assert!(ids.len() > 900 && different.len() == ids.len());
    // They count: as many as there were requests, and no more.
    assert!(ids.iter().all(|id| (1..20_000).contains(id)), "{ids:?}");
}

/// CMCP-051, CMCP-056: calls that never end keep nobody from beginning, asking and being answered.
#[tokio::test]
async fn stuck_calls_delay_no_new_session_or_call() {
    let kernel = scene::kernel().await;
    let mut stuck = Vec::new();
    for _ in 0..4 {
        let mut agent = scene::socket_agent(&kernel, "{}").await;
        for _ in 0..100 {
            agent.start("tools/call", json!({"name": "it:hang"})).await;
        }
        agent.request("ping", json!({})).await.result();
        stuck.push(agent);
    }
    let mut newcomer = scene::http_agent(&kernel, None, "{}").await;
    newcomer.request("tools/list", json!({})).await.result();
    others_are_served(&mut newcomer).await;
    for agent in &mut stuck {
        assert_eq!(
            agent.call("it:echo", json!({"text": "x"})).await.text(),
            "x"
        );
    }
}
