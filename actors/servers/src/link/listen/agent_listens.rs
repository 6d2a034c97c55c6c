//! Task notifications of servers on other nodes. The owner sends them only to the agent of the task, so each
//! agent has a listen of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::subscriptions::Filter;
use tokio::sync::watch;

use super::{
    COALESCE_DELAY, OpenListen, REFUSED_RETRY_INTERVAL, REOPEN_BACKOFF, back_off, log_refusal,
    open_acknowledged,
};
use crate::link::{Link, Wire};

/// The maximum of agents with listens at one server: half of the listens, so that each can be replaced. Further
/// agents get no notifications and can poll their tasks.
const MAX_AGENTS: usize = super::MAX_LISTENS / 2 - 1;

/// The tasks that agents want to be notified about, and the requested state.
#[derive(Debug, Default)]
pub(super) struct AgentListens {
    wanted: watch::Sender<WantedTasks>,
    answered: watch::Sender<u64>,
}

/// Tasks by the server's own ids, with the number of clients that listen for each; bounded as for any server.
#[derive(Debug, Clone, Default)]
struct WantedTasks {
    tasks: BTreeMap<String, usize>,
    /// The number of changes so far.
    revision: u64,
}

/// The open listen of an agent, and the tasks it covers.
#[derive(Debug)]
struct AgentListen {
    tasks: BTreeSet<String>,
    listen: OpenListen,
}

impl AgentListens {
    /// Adds a client that listens for a task.
    pub(super) fn follow(&self, own: &str) {
        self.wanted.send_modify(|wanted| {
            *wanted.tasks.entry(own.to_owned()).or_default() += 1;
            wanted.revision += 1;
        });
    }

    /// Removes a client that listens for a task.
    pub(super) fn unfollow(&self, own: &str) {
        self.wanted.send_modify(|wanted| {
            let left = wanted.tasks.get_mut(own).map(|listeners| {
                *listeners -= 1;
                *listeners
            });
            if left == Some(0) {
                wanted.tasks.remove(own);
            }
            wanted.revision += 1;
        });
    }

    /// Resolves when the owner has answered all changes so far.
    pub(super) async fn wait_until_answered(&self) {
        let revision = self.wanted.borrow().revision;
        let mut answered = self.answered.subscribe();
        let _ = answered.wait_for(|answered| *answered >= revision).await;
    }
}

/// Runs the listens until the connection ends.
pub(super) async fn run(link: Arc<Link>) {
    tokio::select! {
        biased;
        () = link.wait_until_closed() => {}
        () = run_listen_loop(&link) => {}
    }
}

async fn run_listen_loop(link: &Arc<Link>) {
    let of_agents = &link.listen_state.agent_listens;
    let mut wanted = of_agents.wanted.subscribe();
    let mut open: BTreeMap<AgentId, AgentListen> = BTreeMap::new();
    let mut wait = REOPEN_BACKOFF.0;
    loop {
        let now = wanted.borrow_and_update().clone();
        let again = reconcile(link, &mut open, group_by_agent(link, &now)).await;
        of_agents.answered.send_replace(now.revision);
        if again == RetryDelay::Never {
            wait = REOPEN_BACKOFF.0;
        }
        tokio::select! {
            changed = wanted.changed() => {
                if changed.is_err() {
                    return;
                }
                tokio::time::sleep(COALESCE_DELAY).await;
            }
            () = wait_any_ended(&mut open) => back_off(&mut wait).await,
            () = again.wait(&mut wait), if again != RetryDelay::Never => {}
        }
    }
}

/// When a failed listen is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryDelay {
    Never,
    Soon,
    Refused,
}

impl RetryDelay {
    async fn wait(self, wait: &mut Duration) {
        match self {
            Self::Refused => tokio::time::sleep(REFUSED_RETRY_INTERVAL).await,
            Self::Soon | Self::Never => back_off(wait).await,
        }
    }
}

/// Opens the wanted listens and ends the others.
async fn reconcile(
    link: &Arc<Link>,
    open: &mut BTreeMap<AgentId, AgentListen>,
    wanted: BTreeMap<AgentId, BTreeSet<String>>,
) -> RetryDelay {
    open.retain(|agent, listen| wanted.contains_key(agent) && !listen.listen.is_finished());
    let mut again = RetryDelay::Never;
    for (agent, tasks) in wanted {
        if open.get(&agent).is_some_and(|listen| listen.tasks == tasks) {
            continue;
        }
        let filter = Filter {
            task_ids: tasks.iter().cloned().collect(),
            ..Filter::default()
        };
        match open_acknowledged(link, &filter).await {
            Ok((listen, _agreed)) => {
                let listen = AgentListen { tasks, listen };
                if let Some(before) = open.insert(agent, listen) {
                    before.listen.retire();
                }
            }
            Err(refusal) => {
                log_refusal(link, &refusal);
                let refused = refusal.is_answer() && again != RetryDelay::Soon;
                again = if refused {
                    RetryDelay::Refused
                } else {
                    RetryDelay::Soon
                };
            }
        }
    }
    again
}

/// The wanted tasks, grouped by agent.
fn group_by_agent(link: &Link, wanted: &WantedTasks) -> BTreeMap<AgentId, BTreeSet<String>> {
    let mut of_agents: BTreeMap<AgentId, BTreeSet<String>> = BTreeMap::new();
    let Wire::Node(node) = &link.wire else {
        return of_agents;
    };
    for task in wanted.tasks.keys() {
        let Some(agent) = node.task_agent(task) else {
            continue;
        };
        if of_agents.len() < MAX_AGENTS || of_agents.contains_key(&agent) {
            of_agents.entry(agent).or_default().insert(task.clone());
        }
    }
    of_agents
}

/// Resolves when one of the listens has ended.
async fn wait_any_ended(open: &mut BTreeMap<AgentId, AgentListen>) {
    if open.is_empty() {
        return std::future::pending().await;
    }
    let ends = open.values_mut().map(|listen| &mut listen.listen.task);
    let _ = select_all(ends).await;
}
