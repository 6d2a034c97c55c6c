//! What the actor does later: one task sleeps until the next of it.

use std::collections::BTreeMap;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::membership::MembershipTimer;
use mgp_protocol::ids::NodeId;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::moment;

use super::LinksMsg;

/// What is due.
#[derive(Debug)]
pub(super) enum Due {
    /// A timer of membership.
    Membership(MembershipTimer),
    /// Nodes that were asked have had their time.
    Asked,
    /// Dial a node.
    Dial(NodeId),
    /// The link of this number was drained.
    Drained(NodeId, u64),
    /// Open the socket again.
    Reopen,
}

/// In the order of their times. Bounded by who sets them: the few timers of membership, one dial for each
/// node, one for each link that is drained.
#[derive(Debug)]
pub(super) struct Alarms {
    mailbox: Mailbox<LinksMsg>,
    waiting: BTreeMap<(MonotonicTime, u64), Due>,
    set: u64,
    next: Option<(MonotonicTime, SupervisedTask<()>)>,
}

impl Alarms {
    pub(super) fn new(mailbox: Mailbox<LinksMsg>) -> Self {
        Self {
            mailbox,
            waiting: BTreeMap::new(),
            set: 0,
            next: None,
        }
    }

    pub(super) fn set(&mut self, at: MonotonicTime, due: Due) {
        self.set += 1;
        self.waiting.insert((at, self.set), due);
        self.sleep();
    }

    /// What is due by now.
    pub(super) fn take(&mut self, now: MonotonicTime) -> Vec<Due> {
        self.next = None;
        let later = self.waiting.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.waiting, later);
        self.sleep();
        due.into_values().collect()
    }

    fn sleep(&mut self) {
        let Some((first, _)) = self.waiting.first_key_value().map(|(at, _)| *at) else {
            return;
        };
        if self.next.as_ref().is_some_and(|(at, _)| *at <= first) {
            return;
        }
        let (mailbox, wait) = (self.mailbox.clone(), first.since(moment()));
        let sleeping = task::supervised("links.alarm", async move {
            tokio::time::sleep(wait).await;
            let _ended = mailbox.remind(LinksMsg::Alarm);
        });
        self.next = Some((first, sleeping));
    }
}
