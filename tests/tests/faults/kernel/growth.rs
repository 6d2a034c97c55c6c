//! What has ended takes no memory.

use mgp_tests::harness::{DEADLINE, wait_until};
use mgp_tests::load::{Holding, Turnover};

/// Of each kind that comes and goes, in one round.
const OF_EACH: usize = 50;
const ROUNDS: usize = 4;

/// How much more the process may hold after the last round than after the first, in bytes. Sessions that
/// kept their replay buffers would leave 25 MiB in each; an allocator keeps some of what was freed.
const SLACK: u64 = 16 << 20;

/// Fifty sessions with half a megabyte each in their replay buffers, connections, listeners and servers
/// come and go, round after round: the kernel grows from none of them.
#[tokio::test]
async fn ended_sessions_and_servers_leave_no_memory() {
    let turnover = Turnover::begin().await;
    let mut held = Vec::new();
    for _ in 0..ROUNDS {
        turnover.round(OF_EACH).await;
        held.push(Holding::of(turnover.pid()));
    }
    let (first, last) = (held[0], held[ROUNDS - 1]);
    assert!(last.resident < first.resident + SLACK, "{held:?}");
    // Connections that were just closed may still be there for a moment, and threads that were lent.
    let least = held.iter().map(|held| held.descriptors).min().unwrap();
    wait_until("what was closed is let go", DEADLINE, async || {
        let now = Holding::of(turnover.pid());
        now.descriptors < least + 20 && now.threads < first.threads + 20
    })
    .await;
}
