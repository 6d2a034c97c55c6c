//! Limits how often lists are fetched from a server that keeps reporting changes.

use std::time::Duration;

use mgp_engine::servers::supervision::backoff::RefreshLimiter;

use crate::link::List;
use crate::server::{ServerActor, ServerMsg, ServerState};
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::monotonic_now;

/// How long a delayed list is reported to the operator.
const NOTICE_TIME: Duration = Duration::from_secs(5);

/// The rate limits of one connection's lists: at most three.
#[derive(Debug, Default)]
pub(in crate::server) struct ListPaces(Vec<ListPace>);

#[derive(Debug)]
struct ListPace {
    list: List,
    pace: RefreshLimiter,
    /// The delayed fetch, which covers all further changes.
    delayed_fetch: Option<SupervisedTask<()>>,
    /// Set while the list was delayed recently.
    settle_timer: Option<SupervisedTask<()>>,
}

impl ListPaces {
    fn entry(&mut self, list: List) -> &mut ListPace {
        let index = self.0.iter().position(|pace| pace.list == list);
        let index = index.unwrap_or_else(|| {
            self.0.push(ListPace {
                list,
                pace: RefreshLimiter::default(),
                delayed_fetch: None,
                settle_timer: None,
            });
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    /// Describes the lists that were delayed recently.
    pub(super) fn describe_waiting(&self) -> impl Iterator<Item = String> {
        let waiting = self.0.iter().filter(|pace| pace.settle_timer.is_some());
        waiting.map(|pace| {
            let method = match pace.list {
                List::Tools => "tools/list",
                List::Prompts => "prompts/list",
                List::Resources => "resources/list",
            };
            format!("changes of {method} that it reports more often than once a second")
        })
    }
}

impl ServerActor {
    /// True if the fetch of this list is delayed; it then runs by itself.
    pub(super) fn delay_fetch(&self, state: &mut ServerState, list: List) -> bool {
        let me = state.mailbox.clone();
        let pace = state.paces.entry(list);
        if pace.delayed_fetch.is_some() {
            return true;
        }
        let wait = pace.pace.reserve(monotonic_now());
        if wait.is_zero() {
            return false;
        }
        let later = me.clone();
        pace.delayed_fetch = Some(task::spawn_supervised("lists.due", async move {
            tokio::time::sleep(wait).await;
            let _ = later.send(ServerMsg::FetchDue(list));
        }));
        let first = pace.settle_timer.is_none();
        pace.settle_timer = Some(task::spawn_supervised("lists.calm", async move {
            tokio::time::sleep(NOTICE_TIME).await;
            let _ = me.send(ServerMsg::ListSettled(list));
        }));
        if first {
            self.publish(state);
        }
        true
    }

    /// Runs the delayed fetch of a list.
    pub(in crate::server) fn handle_fetch_due(&self, state: &mut ServerState, list: List) {
        state.paces.entry(list).delayed_fetch = None;
        let running = state.fetching.iter().any(|(fetching, _)| *fetching == list);
        if let Some(link) = state.link().filter(|_| !running) {
            self.start_fetch(state, &link, list);
        }
    }

    pub(in crate::server) fn handle_list_settled(&self, state: &mut ServerState, list: List) {
        state.paces.entry(list).settle_timer = None;
        self.publish(state);
    }
}
