//! Entries that other nodes wrote to their logs: accepted here, and recorded in this node's audit log.

use std::collections::BTreeMap;

use mgp_engine::policy::grants::{EncodedOperation, SignedOperation};
use mgp_engine::replication::logs::ClusterLogs;
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::audit::Event;

use super::events;
use super::state::{ClusterSession, ReplicationState, STORES_MAX};

/// Operations that came at once and are recorded one by one. Of more it is recorded whose and how many they are:
/// who comes back after a month does not push out of the audit log what happened here.
const EACH_MAX: usize = 32;

impl ReplicationState {
    /// Entries came, from whomever: they prove by themselves whose they are.
    pub(super) fn apply_entries(&mut self, signed: &[SignedOperation]) {
        let busy = |stay: &ClusterSession| stay.storing.len() >= STORES_MAX;
        let Some(stay) = self.session.as_ref().filter(|stay| !busy(stay)) else {
            return;
        };
        let logs = stay.replica.logs();
        let new = signed.iter().map(SignedOperation::encoded);
        let new: Vec<&EncodedOperation> =
            new.filter(|written| is_reportable(written, logs)).collect();
        let _in_force = self.run(|replica, means| replica.handle_entries(signed, means));
        let Some(stay) = &self.session else { return };
        let logs = stay.replica.logs();
        let taken: Vec<&EncodedOperation> =
            new.into_iter().filter(|it| is_known(it, logs)).collect();
        for event in audit_events(&taken, logs) {
            self.audit.record(event);
        }
    }
}

/// Whether another node tells something that was not known, and that people want to know. That a kernel was
/// stopped or started is not.
fn is_reportable(written: &EncodedOperation, logs: &ClusterLogs) -> bool {
    let is_stop_or_start = written.operation().change.is_rest_or_resume();
    written.issuer() != logs.local_node() && !is_stop_or_start && !is_known(written, logs)
}

fn is_known(written: &EncodedOperation, logs: &ClusterLogs) -> bool {
    let key = (written.position().sequence, written.id());
    logs.is_known(written.issuer(), key)
}

fn audit_events(taken: &[&EncodedOperation], logs: &ClusterLogs) -> Vec<Event> {
    if taken.len() <= EACH_MAX {
        let each = taken
            .iter()
            .map(|written| events::remote_operation_event(written, logs));
        return each.collect();
    }
    let mut issuers: BTreeMap<NodeId, usize> = BTreeMap::new();
    for written in taken {
        *issuers.entry(written.issuer()).or_default() += 1;
    }
    let all = issuers.into_iter();
    all.map(|(issuer, many)| events::bulk_event(issuer, many, logs))
        .collect()
}
