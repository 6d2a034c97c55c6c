//! A standing cluster of three, and what is done to it again and again.

use std::time::{Duration, Instant};

use mgp_tests::harness::Program;
use mgp_tests::harness::kernel::network::Network;
use mgp_tests::load::Cell;
use serde_json::{Value, json};

use crate::node::{Node, unite};
use crate::times::{Rounds, Times, never, until};

/// Joined nodes see a shared tool within this time.
const SHARE: Duration = Duration::from_secs(2);
/// What is revoked is refused within this time, where there are links.
const REVOKE: Duration = Duration::from_secs(1);
/// When a round is given up.
const GIVEN_UP: Duration = Duration::from_secs(30);

/// The tool as the others call it.
const OF_NAS: &str = "nas__demo__echo";
const OF_DESK: &str = "desk__demo__echo";

/// `nas` is the admin, `nas` and `desk` have a server, and `den` has agents.
pub(crate) struct Trio {
    pub(crate) network: Network,
    /// nas, desk and den.
    pub(crate) nodes: [Node; 3],
}

impl Trio {
    /// A cluster of three.
    ///
    /// # Panics
    /// When it does not come about.
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

    /// A tool of `nas` is shared and unshared: how soon the agents of the two others see that.
    pub(crate) async fn shares(&mut self, rounds: Rounds) -> Vec<Vec<Cell>> {
        let [nas, desk, den] = &mut self.nodes;
        let (mut seen, mut gone) = (Times::default(), Times::default());
        for _ in rounds.each() {
            for (shared, times) in [(true, &mut seen), (false, &mut gone)] {
                let since = Instant::now();
                let (_, at_desk, at_den) = tokio::join!(
                    nas.share("demo", shared),
                    until(since, GIVEN_UP, async || desk.shows(OF_NAS).await == shared),
                    until(since, GIVEN_UP, async || den.shows(OF_NAS).await == shared),
                );
                times.add(at_desk);
                times.add(at_den);
            }
        }
        vec![
            seen.row("shared, until another node's agents see it", Some(SHARE)),
            gone.row("unshared, until they do not", Some(SHARE)),
        ]
    }

    /// `nas` lets agents of `den` call a tool of `desk`, and takes that back while they do.
    pub(crate) async fn revokes(&mut self, rounds: Rounds) -> Vec<Vec<Cell>> {
        let [nas, desk, den] = &mut self.nodes;
        desk.share("demo", true).await;
        let [mut granted, mut confirmed, mut refused] = [(); 3].map(|()| Times::default());
        let (mut unconfirmed, mut too_late) = (0, 0);
        for _ in rounds.each() {
            let since = Instant::now();
            nas.ask("mgp/access/grant", grant()).await;
            let called = until(since, GIVEN_UP, async || echo(den).await);
            granted.add(called.await);
            let since = Instant::now();
            let revoking = async {
                let revoked = nas.ask("mgp/access/revoke", revoke()).await;
                (since.elapsed(), revoked["confirmed"].clone())
            };
            let refusing = until(since, GIVEN_UP, async || !echo(den).await);
            let ((took, told), at_owner) = tokio::join!(revoking, refusing);
            let by_all = told["nodes"] == told["of"] && told["nodes"] != Value::Null;
            unconfirmed += usize::from(!by_all);
            confirmed.add(by_all.then_some(took));
            refused.add(at_owner);
            too_late += usize::from(by_all && echo(den).await);
        }
        desk.share("demo", false).await;
        vec![
            granted.row("granted, until the tool is called", None),
            confirmed.row("revoked, until all have confirmed", Some(REVOKE)),
            refused.row("revoked, until a call is refused", Some(REVOKE)),
            never("revoked, and not all have confirmed", unconfirmed),
            never("calls that passed after all had confirmed", too_late),
        ]
    }
}

async fn echo(caller: &mut Node) -> bool {
    caller.call(OF_DESK, json!({"text": "x"})).await
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
