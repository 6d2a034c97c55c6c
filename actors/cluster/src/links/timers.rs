//! The timers of the actor: one task sleeps until the next one.

use std::collections::BTreeMap;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::membership::MembershipTimer;
use mgp_protocol::ids::NodeId;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{Mailbox, task};

use super::LinksMsg;

/// The events of timers.
#[derive(Debug)]
pub(super) enum TimerEvent {
    /// A timer of membership.
    Membership(MembershipTimer),
    /// The deadline of membership probes has passed.
    ProbesExpired,
    /// Dial a node.
    Dial(NodeId),
    /// The link of this number has drained.
    Drained(NodeId, u64),
    /// Open the socket again.
    Reopen,
}

/// The timers in the order of their times. Bounded: the few timers of membership, one dial for each node,
/// one for each draining link.
#[derive(Debug)]
pub(super) struct Timers {
    mailbox: Mailbox<LinksMsg>,
    pending: BTreeMap<(MonotonicTime, u64), TimerEvent>,
    last_number: u64,
    next: Option<(MonotonicTime, SupervisedTask<()>)>,
}

impl Timers {
    pub(super) fn new(mailbox: Mailbox<LinksMsg>) -> Self {
        Self {
            mailbox,
            pending: BTreeMap::new(),
            last_number: 0,
            next: None,
        }
    }

    pub(super) fn set(&mut self, at: MonotonicTime, event: TimerEvent) {
        self.last_number += 1;
        self.pending.insert((at, self.last_number), event);
        self.reschedule();
    }

    /// Removes and returns the due events.
    pub(super) fn take_due(&mut self, now: MonotonicTime) -> Vec<TimerEvent> {
        self.next = None;
        let later = self.pending.split_off(&(now, u64::MAX));
        let event = std::mem::replace(&mut self.pending, later);
        self.reschedule();
        event.into_values().collect()
    }

    fn reschedule(&mut self) {
        let Some((first, _)) = self.pending.first_key_value().map(|(at, _)| *at) else {
            return;
        };
        if self.next.as_ref().is_some_and(|(at, _)| *at <= first) {
            return;
        }
        let (mailbox, wait) = (self.mailbox.clone(), first.duration_since(monotonic_now()));
        let sleeping = task::spawn_supervised("links.alarm", async move {
            tokio::time::sleep(wait).await;
            let _ended = mailbox.send_to_self(LinksMsg::TimerDue);
        });
        self.next = Some((first, sleeping));
    }
}
