//! News of tasks at a server of another node. Its owner tells them to the agent alone whose task it is, so each agent
//! that follows some has a listen of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::subscriptions::Filter;
use tokio::sync::watch;

use super::{AGAIN, GATHER, REFUSED, Standing, begin, note, pause};
use crate::link::{Link, Wire};

/// Agents that hear of their tasks at one server: half of the places for listens, so that each can be replaced. An
/// agent beyond is told nothing unasked, and can ask how its task stands.
const MAX_AGENTS: usize = super::MAX_LISTENS / 2 - 1;

/// What agents want to hear of their tasks, and how far that was asked for.
#[derive(Debug, Default)]
pub(super) struct ListensOfAgents {
    wanted: watch::Sender<WantedTasks>,
    answered: watch::Sender<u64>,
}

/// Tasks, by the server's own ids, with the number of clients that listen for each; limited as those of any server.
#[derive(Debug, Clone, Default)]
struct WantedTasks {
    tasks: BTreeMap<String, usize>,
    /// Counts changes.
    wish: u64,
}

/// The open listen of an agent, and the tasks it is about.
#[derive(Debug)]
struct ListenOfAgent {
    tasks: BTreeSet<String>,
    standing: Standing,
}

impl ListensOfAgents {
    /// Follows a task for one more client.
    pub(super) fn follow(&self, own: &str) {
        self.wanted.send_modify(|wanted| {
            *wanted.tasks.entry(own.to_owned()).or_default() += 1;
            wanted.wish += 1;
        });
    }

    /// Ends that for one client.
    pub(super) fn unfollow(&self, own: &str) {
        self.wanted.send_modify(|wanted| {
            let left = wanted.tasks.get_mut(own).map(|listeners| {
                *listeners -= 1;
                *listeners
            });
            if left == Some(0) {
                wanted.tasks.remove(own);
            }
            wanted.wish += 1;
        });
    }

    /// Resolves when the owner has answered all changes so far.
    pub(super) async fn answered(&self) {
        let wish = self.wanted.borrow().wish;
        let mut answered = self.answered.subscribe();
        let _ = answered.wait_for(|answered| *answered >= wish).await;
    }
}

/// The task that keeps these listens; it ends with the connection.
pub(super) async fn keep(link: Arc<Link>) {
    tokio::select! {
        biased;
        () = link.over() => {}
        () = keep_on(&link) => {}
    }
}

async fn keep_on(link: &Arc<Link>) {
    let of_agents = &link.listening.of_agents;
    let mut wanted = of_agents.wanted.subscribe();
    let mut open: BTreeMap<AgentId, ListenOfAgent> = BTreeMap::new();
    let mut wait = AGAIN.0;
    loop {
        let now = wanted.borrow_and_update().clone();
        let again = settle(link, &mut open, tasks_of_agents(link, &now)).await;
        of_agents.answered.send_replace(now.wish);
        if again == Again::Never {
            wait = AGAIN.0;
        }
        tokio::select! {
            changed = wanted.changed() => {
                if changed.is_err() {
                    return;
                }
                tokio::time::sleep(GATHER).await;
            }
            () = one_ended(&mut open) => pause(&mut wait).await,
            () = again.comes(&mut wait), if again != Again::Never => {}
        }
    }
}

/// When what could not be opened is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    Never,
    Soon,
    Refused,
}

impl Again {
    async fn comes(self, wait: &mut Duration) {
        match self {
            Self::Refused => tokio::time::sleep(REFUSED).await,
            Self::Soon | Self::Never => pause(wait).await,
        }
    }
}

/// Opens what is wanted and ends what is not.
async fn settle(
    link: &Arc<Link>,
    open: &mut BTreeMap<AgentId, ListenOfAgent>,
    wanted: BTreeMap<AgentId, BTreeSet<String>>,
) -> Again {
    open.retain(|agent, listen| wanted.contains_key(agent) && !listen.standing.is_over());
    let mut again = Again::Never;
    for (agent, tasks) in wanted {
        if open.get(&agent).is_some_and(|listen| listen.tasks == tasks) {
            continue;
        }
        let filter = Filter {
            task_ids: tasks.iter().cloned().collect(),
            ..Filter::default()
        };
        match begin(link, &filter).await {
            Ok((standing, _agreed)) => {
                let listen = ListenOfAgent { tasks, standing };
                if let Some(before) = open.insert(agent, listen) {
                    before.standing.retire();
                }
            }
            Err(refusal) => {
                note(link, &refusal);
                let refused = refusal.is_answer() && again != Again::Soon;
                again = match refused {
                    true => Again::Refused,
                    false => Again::Soon,
                };
            }
        }
    }
    again
}

/// The tasks that are followed, by whose they are.
fn tasks_of_agents(link: &Link, wanted: &WantedTasks) -> BTreeMap<AgentId, BTreeSet<String>> {
    let mut of_agents: BTreeMap<AgentId, BTreeSet<String>> = BTreeMap::new();
    let Wire::Node(node) = &link.wire else {
        return of_agents;
    };
    for task in wanted.tasks.keys() {
        let Some(agent) = node.agent_of_task(task) else {
            continue;
        };
        if of_agents.len() < MAX_AGENTS || of_agents.contains_key(&agent) {
            of_agents.entry(agent).or_default().insert(task.clone());
        }
    }
    of_agents
}

/// Resolves when one of them has ended.
async fn one_ended(open: &mut BTreeMap<AgentId, ListenOfAgent>) {
    if open.is_empty() {
        return std::future::pending().await;
    }
    let ends = open.values_mut().map(|listen| &mut listen.standing.task);
    let _ = select_all(ends).await;
}
