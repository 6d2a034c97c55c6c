//! How often a list is fetched that its server reports as changed without end.

use std::time::Duration;

use mgp_engine::servers::supervision::pace::RefreshPace;

use crate::link::List;
use crate::server::{ServerActor, ServerMsg, ServerState};
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::moment;

/// How long it is shown that a list had to wait.
const SHOWN: Duration = Duration::from_secs(5);

/// The paces of the lists of one connection: at most three.
#[derive(Debug, Default)]
pub(in crate::server) struct ListPaces(Vec<ListPace>);

#[derive(Debug)]
struct ListPace {
    list: List,
    pace: RefreshPace,
    /// The fetch that waits; more changes wait for the same one.
    due: Option<SupervisedTask<()>>,
    /// While the list has had to wait lately.
    calm: Option<SupervisedTask<()>>,
}

impl ListPaces {
    fn entry(&mut self, list: List) -> &mut ListPace {
        let place = self.0.iter().position(|pace| pace.list == list);
        let place = place.unwrap_or_else(|| {
            self.0.push(ListPace {
                list,
                pace: RefreshPace::default(),
                due: None,
                calm: None,
            });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// The lists that have had to wait lately, in words.
    pub(super) fn describe_waiting(&self) -> impl Iterator<Item = String> {
        let waiting = self.0.iter().filter(|pace| pace.calm.is_some());
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
    /// True where the fetch of this list has to wait: it follows by itself.
    pub(super) fn waits_for_pace(&self, state: &mut ServerState, list: List) -> bool {
        let me = state.me.clone();
        let pace = state.paces.entry(list);
        if pace.due.is_some() {
            return true;
        }
        let wait = pace.pace.take(moment());
        if wait.is_zero() {
            return false;
        }
        let later = me.clone();
        pace.due = Some(task::supervised("lists.due", async move {
            tokio::time::sleep(wait).await;
            let _ = later.tell(ServerMsg::FetchDue(list));
        }));
        let first = pace.calm.is_none();
        pace.calm = Some(task::supervised("lists.calm", async move {
            tokio::time::sleep(SHOWN).await;
            let _ = me.tell(ServerMsg::ListCalm(list));
        }));
        if first {
            self.publish(state);
        }
        true
    }

    /// The wait of a list is over.
    pub(in crate::server) fn fetch_due(&self, state: &mut ServerState, list: List) {
        state.paces.entry(list).due = None;
        let running = state.fetching.iter().any(|(fetching, _)| *fetching == list);
        if let Some(link) = state.link().filter(|_| !running) {
            self.fetch_now(state, &link, list);
        }
    }

    pub(in crate::server) fn list_calm(&self, state: &mut ServerState, list: List) {
        state.paces.entry(list).calm = None;
        self.publish(state);
    }
}
