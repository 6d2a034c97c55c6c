//! What others granted lapses where they are not heard, and what they revoked ends everywhere within a lease.

use mgp_engine::replication::replica::Replica;

use crate::play::Invariant;
use crate::world::{AcknowledgedRevoke, AllowedCall, World};

/// FEDERATION, grants: a remote grant is honoured only while all who could revoke it were heard within the lease.
#[derive(Default)]
pub(crate) struct LeasesClose {
    revokes: Vec<AcknowledgedRevoke>,
}

impl Invariant for LeasesClose {
    fn holds(&mut self, world: &World) {
        for call in &world.calls {
            let Some(replica) = &world.machines[call.machine].replica else {
                continue;
            };
            everyone_was_heard(world, replica, call);
            for revoke in self.revokes.iter().filter(|revoke| revoke.signed) {
                is_known(world, replica, call, revoke);
            }
        }
        self.revokes.extend(world.revokes.iter().cloned());
    }
}

/// An answer of every admin who is at work was sent within the lease.
fn everyone_was_heard(world: &World, replica: &Replica, call: &AllowedCall) {
    let lease_ms = world.machines[call.machine].lease_ms();
    let members = replica.logs().members();
    let here = world.machines[call.machine].node();
    for (node, _) in members.iter().filter(|(node, _)| members.is_admin(*node)) {
        if node == here || replica.logs().grants().is_resting(node) {
            continue;
        }
        let sent_ms = world.answers.get(&(call.machine, node));
        let heard = sent_ms.is_some_and(|sent| sent + lease_ms >= call.at_ms);
        assert!(
            heard,
            "{call:?} was allowed, and {node} not heard since {sent_ms:?}"
        );
    }
}

/// Nothing is allowed that was revoked a lease ago, except where the admin who did was cut off, or had said that
/// it rests and was not heard since, or where its answer promised nothing.
fn is_known(world: &World, replica: &Replica, call: &AllowedCall, revoke: &AcknowledgedRevoke) {
    let lease_ms = world.machines[call.machine].lease_ms();
    if !revoke.grants.contains(&call.grant) || call.at_ms < revoke.at_ms + lease_ms {
        return;
    }
    let members = replica.logs().members();
    let grants = replica.logs().grants();
    let cut = members
        .get(revoke.by)
        .is_some_and(|member| member.cut_at.is_some());
    let rests = grants.issuers().any(|issuer| grants.is_resting(issuer));
    let twins = world.machines.iter().any(|machine| machine.cloned);
    let owner = world.machines[call.machine].node();
    let unbounded = revoke.answer.get(&owner) == Some(&None);
    assert!(
        cut || rests || unbounded || twins,
        "{call:?} was revoked at {} by {}",
        revoke.at_ms,
        revoke.by
    );
}
