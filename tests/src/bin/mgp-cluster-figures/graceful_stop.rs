//! An admin that was shut down gracefully and is back revokes, while the owner is cut off from it.

use std::time::{Duration, Instant};

use mgp_tests::harness::kernel::network::Network;
use mgp_tests::harness::{DEADLINE, Program};
use mgp_tests::load::{Cell, Table};
use serde_json::{Value, json};

use crate::Options;
use crate::node::{Node, linked};
use crate::times::{COLUMNS, Rounds, Times, never, until};

/// The tool as the others call it.
const TOOL: &str = "nas__demo__echo";
/// The lease of the owner, which is not that of the admin who revokes.
const OWNER: &str = "lease_secs = 12\n";
const ADMIN: &str = "lease_secs = 10\n";
/// So long after the bound calls are still made.
const AFTER: Duration = Duration::from_secs(4);
/// Within this time the owner has asked the admin again, and heard that it is back.
const ASKED: Duration = Duration::from_secs(5);
/// Between two calls.
const EACH: Duration = Duration::from_millis(100);

/// `nas` owns the server, `desk` is the admin that was shut down, and `den` calls.
struct Stopped {
    network: Network,
    nas: Node,
    desk: Node,
    den: Node,
}

pub(crate) async fn table(options: &Options) -> Table {
    let rounds = Rounds {
        most: options.rounds(20).max(2),
        time: options.time(300),
    };
    Table {
        title: "An admin that was shut down gracefully revokes",
        columns: COLUMNS,
        rows: rows(rounds).await,
    }
}

/// In every second round the owner is started anew while it is cut off.
async fn rows(rounds: Rounds) -> Vec<Vec<Cell>> {
    let mut stopped = Stopped::start().await;
    let [mut bounds, mut stops] = [(); 2].map(|()| Times::default());
    let (mut unbounded, mut too_late) = (0, 0);
    for round in rounds.each() {
        stopped = stopped.restart_admin().await;
        stopped.network.cut(1);
        let since = Instant::now();
        let desk = &mut stopped.desk;
        let noticed = until(since, DEADLINE, async || desk.sees("nas", "away").await);
        assert!(noticed.await.is_some(), "desk does not notice the cut");
        if round % 2 == 1 {
            stopped = stopped.restart_owner().await;
        }
        let revoked = stopped.desk.ask("mgp/access/revoke", rule()).await;
        let acknowledged = Instant::now();
        let lapses = revoked["confirmed"]["lapses_secs"].as_u64();
        let bound = lapses.map(Duration::from_secs);
        unbounded += usize::from(bound.is_none());
        let last = stopped.last_call(bound.unwrap_or_default() + AFTER).await;
        let took = last.saturating_duration_since(acknowledged);
        too_late += usize::from(bound.is_some_and(|bound| took > bound));
        bounds.add(bound);
        stops.add(Some(took));
        stopped.network.heal(1);
        stopped.is_linked().await;
    }
    vec![
        bounds.row("revoked, and the bound that was promised", None),
        stops.row("revoked, until the last call at the owner", None),
        never("revoked, and no bound was promised", unbounded),
        never("calls that passed after the bound", too_late),
    ]
}

impl Stopped {
    async fn start() -> Self {
        let network = Network::new(3).expect("a network was made a moment ago");
        let demo = Program::fixture(&[]).entry("demo");
        let mut nas = Node::start(&network, 0, "nas", &format!("{OWNER}{demo}")).await;
        let mut desk = Node::start(&network, 1, "desk", ADMIN).await;
        let mut den = Node::start(&network, 2, "den", "").await;
        nas.kernel.connected(&["demo"]).await;
        nas.admit_as(&mut desk, "admin").await;
        nas.admit(&mut den).await;
        nas.share("demo", true).await;
        let mut stopped = Self {
            network,
            nas,
            desk,
            den,
        };
        stopped.is_linked().await;
        stopped
    }

    async fn is_linked(&mut self) {
        for node in [&mut self.nas, &mut self.desk, &mut self.den] {
            let nodes = std::slice::from_mut(node);
            let linked = linked(nodes, 3, Instant::now(), DEADLINE).await;
            assert!(linked.is_some(), "not linked within {DEADLINE:?}");
        }
    }

    /// `nas` grants, and `den` calls; then `desk` is shut down and started again, and writes nothing else.
    async fn restart_admin(mut self) -> Self {
        let mut granted = rule();
        granted["permission"] = json!("allow");
        self.nas.ask("mgp/access/grant", granted).await;
        let desk = self.desk.shut_down().await.again().await;
        let mut stopped = Self { desk, ..self };
        stopped.is_linked().await;
        let den = &mut stopped.den;
        let called = until(Instant::now(), DEADLINE, async || echo(den).await);
        assert!(called.await.is_some(), "den is not let in");
        tokio::time::sleep(ASKED).await;
        stopped
    }

    /// `nas` is started anew, and linked to `den`.
    async fn restart_owner(mut self) -> Self {
        self.nas.unplug();
        let nas = self.nas.gone().await.again().await;
        nas.kernel.connected(&["demo"]).await;
        let mut stopped = Self { nas, ..self };
        let den = &mut stopped.den;
        let since = Instant::now();
        let linked = until(since, DEADLINE, async || den.sees("nas", "linked").await);
        assert!(linked.await.is_some(), "den is not linked to nas");
        stopped
    }

    /// When the last call of `den` passed within so long from now.
    async fn last_call(&mut self, time: Duration) -> Instant {
        let since = Instant::now();
        let mut last = since;
        while since.elapsed() < time {
            if echo(&mut self.den).await {
                last = Instant::now();
            }
            tokio::time::sleep(EACH).await;
        }
        last
    }
}

async fn echo(caller: &mut Node) -> bool {
    caller.call(TOOL, json!({"text": "x"})).await
}

fn rule() -> Value {
    json!({"entry_type": "server_grant", "agent_id": "local@den", "server_id": "nas/demo"})
}
