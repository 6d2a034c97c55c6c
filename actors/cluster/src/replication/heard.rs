//! What other nodes wrote to their logs, as it comes here: it is taken, and stands in this node's audit log.

use std::collections::BTreeMap;

use mgp_engine::policy::grants::{Signed, Written};
use mgp_engine::replication::logs::ClusterLogs;
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::audit::Event;

use super::events;
use super::state::{ClusterStay, ReplicationState, STORES_MAX};

/// Operations that came at once and are recorded one by one. Of more it is recorded whose and how many they are:
/// who comes back after a month does not push out of the audit log what happened here.
const EACH_MAX: usize = 32;

impl ReplicationState {
    /// Entries came, from whomever: they prove by themselves whose they are.
    pub(super) fn taken(&mut self, signed: &[Signed]) {
        let busy = |stay: &ClusterStay| stay.storing.len() >= STORES_MAX;
        let Some(stay) = self.stay.as_ref().filter(|stay| !busy(stay)) else {
            return;
        };
        let logs = stay.replica.logs();
        let new = signed.iter().map(Signed::written);
        let new: Vec<&Written> = new.filter(|written| is_news(written, logs)).collect();
        let _in_force = self.act(|replica, means| replica.take(signed, means));
        let Some(stay) = &self.stay else { return };
        let logs = stay.replica.logs();
        let taken: Vec<&Written> = new.into_iter().filter(|it| is_held(it, logs)).collect();
        for event in recorded(&taken, logs) {
            self.audit.tell(event);
        }
    }
}

/// Whether another node tells something that was not known, and that people want to know. That a kernel was
/// stopped or started is not.
fn is_news(written: &Written, logs: &ClusterLogs) -> bool {
    let is_stop_or_start = written.operation().change.is_rest_or_resume();
    written.issuer() != logs.here() && !is_stop_or_start && !is_held(written, logs)
}

fn is_held(written: &Written, logs: &ClusterLogs) -> bool {
    let key = (written.place().sequence, written.id());
    logs.is_known(written.issuer(), key)
}

fn recorded(taken: &[&Written], logs: &ClusterLogs) -> Vec<Event> {
    if taken.len() <= EACH_MAX {
        let each = taken.iter().map(|written| events::of_other(written, logs));
        return each.collect();
    }
    let mut issuers: BTreeMap<NodeId, usize> = BTreeMap::new();
    for written in taken {
        *issuers.entry(written.issuer()).or_default() += 1;
    }
    let all = issuers.into_iter();
    all.map(|(issuer, many)| events::of_many(issuer, many, logs))
        .collect()
}
