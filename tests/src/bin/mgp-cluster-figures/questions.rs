//! Owners that are lost while their server waits for a person's answer.

use std::time::{Duration, Instant};

use mgp_tests::harness::kernel::network::Network;
use mgp_tests::harness::{Agent, DEADLINE, Program};
use mgp_tests::load::{Cell, Table};
use serde_json::{Value, json};

use crate::Options;
use crate::node::{Node, linked, unite};
use crate::times::{COLUMNS, Rounds, Times, never, until};

/// A question is withdrawn at the agent, and its call answered, within this time: what it takes to notice that the owner
/// is lost, and what a link may take to be replaced.
const WITHDRAWN: Duration = Duration::from_secs(5);
/// When a round is given up.
const GIVEN_UP: Duration = Duration::from_secs(30);
/// The tool, which does what it does before it asks.
const TOOL: &str = "test_elicitation";
const ASKS: &str = "elicitation/create";
/// The owners, each on the machine after its place here.
const OWNERS: [&str; 2] = ["nas", "attic"];

/// Whether another owner could take the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerCount {
    One,
    Replicas,
}

/// How an owner is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerLoss {
    Cut,
    Killed,
}

/// `den` has the agents, and admits the owners.
struct QuestionScene {
    network: Network,
    den: Node,
    owners: Vec<Node>,
    tool: String,
}

/// What one setting showed.
#[derive(Default)]
struct QuestionTally {
    withdrawn: Times,
    answered: Times,
    again: usize,
    told_undone: usize,
}

pub(crate) async fn table(options: &Options) -> Table {
    let mut rows = Vec::new();
    for owners in [OwnerCount::One, OwnerCount::Replicas] {
        let mut scene = QuestionScene::start(owners).await;
        let rounds = Rounds {
            most: options.rounds(20),
            time: options.time(150),
        };
        rows.extend(scene.rows(owners, rounds).await);
    }
    Table {
        title: "Owners that are lost while a question is open",
        columns: COLUMNS,
        rows,
    }
}

impl QuestionScene {
    async fn start(owners: OwnerCount) -> Self {
        let network = Network::new(3).expect("a network was made a moment ago");
        let mut demo = Program::fixture(&["--era", "legacy"]).entry("demo");
        if owners == OwnerCount::Replicas {
            demo.push_str("replica = true\n");
        }
        let mut nodes = vec![Node::start(&network, 0, "den", "").await];
        for (at, name) in OWNERS.into_iter().enumerate() {
            let more = match (owners, at) {
                (OwnerCount::One, 1..) => "",
                _ => &demo,
            };
            nodes.push(Node::start(&network, at + 1, name, more).await);
        }
        unite(&mut nodes).await;
        let den = nodes.remove(0);
        let mut scene = Self {
            network,
            den,
            owners: nodes,
            tool: String::new(),
        };
        let sharing = match owners {
            OwnerCount::One => 1,
            OwnerCount::Replicas => OWNERS.len(),
        };
        for owner in &mut scene.owners[..sharing] {
            owner.kernel.connected(&["demo"]).await;
            let all = json!({"server": "demo", "to": "cluster"});
            owner.ask("mgp/kernel/shares/add", all).await;
            scene.den.ask("mgp/access/grant", grant(&owner.name)).await;
        }
        scene.is_ready().await;
        scene
    }

    /// Waits until the tool is shown once, and its server answers.
    async fn is_ready(&mut self) {
        let mut tool = String::new();
        let ready = until(Instant::now(), DEADLINE, async || {
            let listed = self.den.ask("tools/list", json!({})).await;
            let tools = listed["tools"].as_array().cloned().unwrap_or_default();
            let names = tools.iter().filter_map(|tool| tool["name"].as_str());
            let mut names = names.filter(|name| name.ends_with(&format!("__{TOOL}")));
            tool = names.next().unwrap_or_default().to_owned();
            let alone = !tool.is_empty() && names.next().is_none();
            let echo = tool.replace(TOOL, "echo");
            alone && self.den.call(&echo, json!({"text": "x"})).await
        });
        assert!(ready.await.is_some(), "the tool is not called: {tool:?}");
        self.tool = tool;
    }

    async fn rows(&mut self, owners: OwnerCount, rounds: Rounds) -> Vec<Vec<Cell>> {
        let mut tally = QuestionTally::default();
        for round in rounds.each() {
            let loss = [OwnerLoss::Cut, OwnerLoss::Killed][round % 2];
            self.round(loss, &mut tally).await;
        }
        let of = match owners {
            OwnerCount::One => "one owner",
            OwnerCount::Replicas => "two replicas",
        };
        vec![
            tally.withdrawn.row(
                &format!("{of}: lost, until the question is withdrawn"),
                Some(WITHDRAWN),
            ),
            tally.answered.row(
                &format!("{of}: lost, until the call ends as unknown"),
                Some(WITHDRAWN),
            ),
            never(&format!("{of}: executed a second time"), tally.again),
            never(
                &format!("{of}: executed, and told as not executed"),
                tally.told_undone,
            ),
        ]
    }

    /// One call asks, and its owner is lost meanwhile.
    async fn round(&mut self, loss: OwnerLoss, tally: &mut QuestionTally) {
        let mut agent = self.den.asking_agent().await;
        agent.leave_unanswered(ASKS);
        let before = self.counts().await;
        let params = json!({"name": self.tool, "arguments": {"message": "who?"}});
        let call = agent.start("tools/call", params).await;
        let question = agent.wait_for_request(ASKS, 1).await;
        let after = self.counts().await;
        let at = (0..after.len()).find(|at| after[*at] != before[*at]);
        let at = at.expect("an owner executed the call");
        let machine = machine(&self.owners[at]);
        let since = match loss {
            OwnerLoss::Cut => {
                self.network.cut(machine);
                Instant::now()
            }
            OwnerLoss::Killed => self.owners[at].unplug(),
        };
        let outcome = ended(&mut agent, &call, since, tally).await;
        tally.told_undone += usize::from(outcome == "not_executed");
        tally
            .answered
            .add((outcome == "unknown").then(|| since.elapsed()));
        // A late answer moves nothing.
        agent.reply(&question, json!({"action": "decline"})).await;
        match loss {
            OwnerLoss::Cut => self.network.heal(machine),
            OwnerLoss::Killed => {
                let dead = self.owners.remove(at).gone().await;
                self.owners.insert(at, dead.again().await);
            }
        }
        let now = self.counts().await;
        for other in (0..now.len()).filter(|other| *other != at || loss == OwnerLoss::Cut) {
            tally.again += usize::from(now[other] > after[other]);
        }
        let all = OWNERS.len() + 1;
        let back = self.owners.iter_mut().map(|owner| async move {
            until(Instant::now(), GIVEN_UP, async || {
                owner.is_linked(all).await
            })
            .await
        });
        futures_util::future::join_all(back).await;
        linked(
            std::slice::from_mut(&mut self.den),
            all,
            Instant::now(),
            GIVEN_UP,
        )
        .await;
        self.is_ready().await;
    }

    /// How often each owner's server executed the tool.
    async fn counts(&mut self) -> Vec<u64> {
        let mut counts = Vec::new();
        for owner in &mut self.owners {
            let counted = owner.read("demo__count", json!({})).await;
            counts.push(
                counted["structuredContent"]["calls"][TOOL]
                    .as_u64()
                    .unwrap_or(0),
            );
        }
        counts
    }
}

/// Waits until the question is withdrawn and the call answered; what the answer says of the outcome.
async fn ended(
    agent: &mut Agent,
    call: &Value,
    since: Instant,
    tally: &mut QuestionTally,
) -> String {
    let withdrawing = agent.hears("notifications/cancelled");
    let withdrawn = tokio::time::timeout(GIVEN_UP, withdrawing).await;
    tally.withdrawn.add(withdrawn.ok().map(|_| since.elapsed()));
    let answer = agent.answer_to(call).await;
    if answer.is_error() {
        let outcome = &answer.error()["data"]["outcome"];
        outcome.as_str().unwrap_or("none").to_owned()
    } else {
        "answered".to_owned()
    }
}

fn machine(owner: &Node) -> usize {
    let at = OWNERS.iter().position(|name| *name == owner.name);
    at.expect("it is an owner") + 1
}

fn grant(owner: &str) -> Value {
    json!({
        "entry_type": "server_grant", "agent_id": "local@den", "server_id": format!("{owner}/demo"),
        "permission": "allow"
    })
}
