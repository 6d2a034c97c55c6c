//! Lists that a connected server failed to return: reported to the operator and fetched again.

use std::time::Duration;

use mgp_engine::tools::catalog::ListKind;

use crate::link::List;
use crate::server::{ServerMsg, ServerState};
use mgp_runtime::task::{self, SupervisedTask};

/// The delay after the first failure before a list is fetched again; doubled after each further failure.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// The longest delay.
const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// The missing lists of one server: at most four.
#[derive(Debug, Default)]
pub(in crate::server) struct MissingLists(Vec<MissingList>);

/// An incomplete list.
#[derive(Debug)]
struct MissingList {
    kind: ListKind,
    why: String,
    failures: u32,
    /// The timer of the next attempt; ends with the generation.
    _retry_timer: SupervisedTask<()>,
}

impl MissingLists {
    /// Describes each missing list.
    pub(in crate::server) fn describe(&self) -> Vec<String> {
        let descriptions = self.0.iter().map(|missing| {
            let again = retry_delay(missing.failures).as_secs();
            format!("{}; fetched again after {again} s", missing.why)
        });
        descriptions.collect()
    }

    /// Clears all missing lists after a disconnect.
    pub(in crate::server) fn clear(&mut self) {
        self.0.clear();
    }
}

impl ServerState {
    /// Describes what agents do not see, and why: failed lists and invalid definitions.
    pub(in crate::server) fn describe_omissions(&self) -> Vec<String> {
        let mut left_out = self.missing.describe();
        let (rejected, more) = self.offer.rejected();
        left_out.extend(rejected.iter().map(ToString::to_string));
        if more > 0 {
            left_out.push(format!("and {more} more"));
        }
        left_out.extend(self.paces.describe_waiting());
        left_out
    }

    /// Records a fetch; failed lists are scheduled to be fetched again.
    pub(in crate::server) fn record_fetched(&mut self, fetched: Vec<(ListKind, Option<String>)>) {
        for (kind, why) in fetched {
            let index = self
                .missing
                .0
                .iter()
                .position(|missing| missing.kind == kind);
            let before = index.map(|index| self.missing.0.swap_remove(index));
            let Some(why) = why else { continue };
            let failures = before.map_or(0, |before| before.failures) + 1;
            let me = self.mailbox.clone();
            let again = task::spawn_supervised("lists.missing", async move {
                tokio::time::sleep(retry_delay(failures)).await;
                let _ = me.send(ServerMsg::ListChanged(list_of_kind(kind)));
            });
            self.missing.0.push(MissingList {
                kind,
                why,
                failures,
                _retry_timer: again,
            });
        }
    }
}

fn retry_delay(failures: u32) -> Duration {
    let doubled = 2u32.saturating_pow(failures.saturating_sub(1));
    BACKOFF_MIN.saturating_mul(doubled).min(BACKOFF_MAX)
}

fn list_of_kind(kind: ListKind) -> List {
    match kind {
        ListKind::Tools => List::Tools,
        ListKind::Prompts => List::Prompts,
        ListKind::Resources | ListKind::Templates => List::Resources,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_list_is_retried_with_growing_delay() {
        let secs = [1, 2, 3, 9, 10, 99].map(|failures| retry_delay(failures).as_secs());
        assert_eq!(secs, [1, 2, 4, 256, 300, 300]);
    }
}
