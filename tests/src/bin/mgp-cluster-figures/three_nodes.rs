//! A cluster of three nodes, with the operations that are measured on it.

use std::time::{Duration, Instant};

use mgp_tests::harness::Program;
use mgp_tests::harness::kernel::network::Network;
use mgp_tests::load::Cell;
use serde_json::{Value, json};

use crate::node::{Node, unite};
use crate::times::{Rounds, Times, never, until};

/// Other nodes see a shared tool within this time.
const SHARE: Duration = Duration::from_secs(2);
/// Connected nodes reject revoked calls within this time.
const REVOKE: Duration = Duration::from_secs(1);
/// Time limit of a round.
const ROUND_TIMEOUT: Duration = Duration::from_secs(30);

/// The tool's name on the other nodes.
const NAS_TOOL: &str = "nas__demo__echo";
const DESK_TOOL: &str = "desk__demo__echo";

/// `nas` is the admin, `nas` and `desk` have a server, and `den` has agents.
pub(crate) struct ThreeNodes {
    pub(crate) network: Network,
    /// nas, desk and den.
    pub(crate) nodes: [Node; 3],
}

impl ThreeNodes {
    /// A cluster of three.
    ///
    /// # Panics
    /// When the cluster does not form.
    pub(crate) async fn start() -> Self {
        let network = Network::new(3).expect("a network was made a moment ago");
        let demo = Program::fixture(&[]).entry("demo");
        let mut nodes = [
            Node::start(&network, 0, "nas", &demo).await,
            Node::start(&network, 1, "desk", &demo).await,
            Node::start(&network, 2, "den", "").await,
        ];
        for node in &nodes[..2] {
            node.kernel.connected(&["demo"]).await;
        }
        unite(&mut nodes).await;
        Self { network, nodes }
    }

    /// Shares and unshares a tool of `nas`: how soon agents of the two others see it.
    pub(crate) async fn shares(&mut self, rounds: Rounds) -> Vec<Vec<Cell>> {
        let [nas, desk, den] = &mut self.nodes;
        let (mut seen, mut hidden) = (Times::default(), Times::default());
        for _ in rounds.each() {
            for (shared, times) in [(true, &mut seen), (false, &mut hidden)] {
                let since = Instant::now();
                let (_, at_desk, at_den) = tokio::join!(
                    nas.share("demo", shared),
                    until(since, ROUND_TIMEOUT, async || desk.shows(NAS_TOOL).await
                        == shared),
                    until(since, ROUND_TIMEOUT, async || den.shows(NAS_TOOL).await
                        == shared),
                );
                times.add(at_desk);
                times.add(at_den);
            }
        }
        vec![
            seen.row("shared, until another node's agents see it", Some(SHARE)),
            hidden.row("unshared, until they do not", Some(SHARE)),
        ]
    }

    /// `nas` grants agents of `den` a tool of `desk`, and revokes it while they call.
    pub(crate) async fn revokes(&mut self, rounds: Rounds) -> Vec<Vec<Cell>> {
        let [nas, desk, den] = &mut self.nodes;
        desk.share("demo", true).await;
        let [mut granted, mut confirmed, mut rejected] = [(); 3].map(|()| Times::default());
        let (mut unconfirmed, mut too_late) = (0, 0);
        for _ in rounds.each() {
            let since = Instant::now();
            nas.ask("mgp/access/grant", grant()).await;
            let called = until(since, ROUND_TIMEOUT, async || echo(den).await);
            granted.add(called.await);
            let since = Instant::now();
            let revoking = async {
                let revoked = nas.ask("mgp/access/revoke", revoke()).await;
                (since.elapsed(), revoked["confirmed"].clone())
            };
            let refusing = until(since, ROUND_TIMEOUT, async || !echo(den).await);
            let ((took, confirmation), at_owner) = tokio::join!(revoking, refusing);
            let by_all =
                confirmation["nodes"] == confirmation["of"] && confirmation["nodes"] != Value::Null;
            unconfirmed += usize::from(!by_all);
            confirmed.add(by_all.then_some(took));
            rejected.add(at_owner);
            too_late += usize::from(by_all && echo(den).await);
        }
        desk.share("demo", false).await;
        vec![
            granted.row("granted, until the tool is called", None),
            confirmed.row("revoked, until all have confirmed", Some(REVOKE)),
            rejected.row("revoked, until a call is rejected", Some(REVOKE)),
            never("revoked, and not all have confirmed", unconfirmed),
            never("calls that passed after all had confirmed", too_late),
        ]
    }
}

async fn echo(caller: &mut Node) -> bool {
    caller.call(DESK_TOOL, json!({"text": "x"})).await
}

fn grant() -> Value {
    json!({
        "entry_type": "server_grant", "agent_id": "local@den", "server_id": "desk/demo",
        "permission": "allow"
    })
}

fn revoke() -> Value {
    json!({"entry_type": "server_grant", "agent_id": "local@den", "server_id": "desk/demo"})
}
