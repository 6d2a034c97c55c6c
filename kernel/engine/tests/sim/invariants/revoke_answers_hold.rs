//! A revocation ends at every node when its answer said so.

use crate::play::Invariant;
use crate::world::{AcknowledgedRevoke, AllowedCall, World};

/// FED-038: no call passes later than the longest lease after a revoke was acknowledged, unless the answer to the
/// revoke said otherwise.
#[derive(Default)]
pub(crate) struct RevokeAnswersHold {
    revokes: Vec<AcknowledgedRevoke>,
}

impl Invariant for RevokeAnswersHold {
    fn holds(&mut self, world: &World) {
        for call in &world.calls {
            let about = self.revokes.iter();
            let about = about.filter(|revoke| revoke.grants.contains(&call.grant));
            about.for_each(|revoke| is_over(world, call, revoke));
        }
        let signed = world.revokes.iter().filter(|revoke| revoke.signed);
        self.revokes.extend(signed.cloned());
    }
}

/// Who was cut off cannot know it on its side of a partition, and a copied key is in two hands.
fn is_over(world: &World, call: &AllowedCall, revoke: &AcknowledgedRevoke) {
    let machine = &world.machines[call.machine];
    let (Some(replica), Some(Some(ends_ms))) =
        (&machine.replica, revoke.answer.get(&machine.node()))
    else {
        return;
    };
    let member = replica.logs().members().get(revoke.by);
    let is_cut = member.is_some_and(|member| member.cut_at.is_some());
    let twins = world.machines.iter().any(|machine| machine.cloned);
    assert!(
        call.at_ms <= *ends_ms || is_cut || twins,
        "{} allowed {} at {} by the grant {}, which {} revoked at {}: its answer said that all is over at {ends_ms}",
        call.machine,
        call.caller,
        call.at_ms,
        call.grant,
        revoke.by,
        revoke.at_ms,
    );
}
