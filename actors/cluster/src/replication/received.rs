//! Received log entries of other nodes: applied here, and recorded in this node's audit log.

use std::collections::BTreeMap;

use mgp_engine::policy::grants::{EncodedOperation, SignedOperation};
use mgp_engine::replication::logs::ClusterLogs;
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::audit::Event;

use super::events;
use super::state::{ClusterSession, ReplicationState, STORES_MAX};

/// Operations of one batch that are recorded one by one. Of a larger batch only the issuer and the number
/// are recorded: a node that was offline for a month does not displace the events of this node.
const EACH_MAX: usize = 32;

impl ReplicationState {
    /// Applies received entries, from whichever node: their signatures prove their issuer.
    pub(super) fn apply_entries(&mut self, signed: &[SignedOperation]) {
        let busy = |session: &ClusterSession| session.storing.len() >= STORES_MAX;
        let Some(session) = self.session.as_ref().filter(|session| !busy(session)) else {
            return;
        };
        let logs = session.replica.logs();
        let new = signed.iter().map(SignedOperation::encoded);
        let new: Vec<&EncodedOperation> =
            new.filter(|written| is_reportable(written, logs)).collect();
        let _in_force = self.run(|replica, means| replica.handle_entries(signed, means));
        let Some(session) = &self.session else { return };
        let logs = session.replica.logs();
        let accepted: Vec<&EncodedOperation> =
            new.into_iter().filter(|it| is_known(it, logs)).collect();
        for event in audit_events(&accepted, logs) {
            self.audit.record(event);
        }
    }
}

/// True if an operation of another node is new and relevant to people. The start or stop of a kernel is
/// not.
fn is_reportable(written: &EncodedOperation, logs: &ClusterLogs) -> bool {
    let is_stop_or_start = written.operation().change.is_rest_or_resume();
    written.issuer() != logs.local_node() && !is_stop_or_start && !is_known(written, logs)
}

fn is_known(written: &EncodedOperation, logs: &ClusterLogs) -> bool {
    let key = (written.position().sequence, written.id());
    logs.is_known(written.issuer(), key)
}

fn audit_events(accepted: &[&EncodedOperation], logs: &ClusterLogs) -> Vec<Event> {
    if accepted.len() <= EACH_MAX {
        let each = accepted
            .iter()
            .map(|written| events::remote_operation_event(written, logs));
        return each.collect();
    }
    let mut issuers: BTreeMap<NodeId, usize> = BTreeMap::new();
    for written in accepted {
        *issuers.entry(written.issuer()).or_default() += 1;
    }
    let all = issuers.into_iter();
    all.map(|(issuer, count)| events::bulk_event(issuer, count, logs))
        .collect()
}
