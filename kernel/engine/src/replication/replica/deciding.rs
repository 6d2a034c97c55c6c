//! What this node decides by the logs of its cluster.

use mgp_protocol::ids::{NodeAgent, NodeId, NodeServer, ServerId};
use mgp_protocol::mgp::access::Permission;

use super::Replica;
use crate::clock::MonotonicTime;
use crate::policy::access::LapseCause;
use crate::policy::grants::{
    Force, GrantId, Granted, LogPosition, MemberChange, MemberRole, Revoke,
};
use crate::replication::own_log::OwedRevoke;

/// Why a call from another node is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteDenial {
    /// One of the two nodes is not in the cluster.
    #[error("the node is not in the cluster")]
    NotIn,
    /// No grant allows it.
    #[error("no grant allows it")]
    NotGranted,
    /// Somebody denied it.
    #[error("grant {0} denies it")]
    Denied(GrantId),
    /// Somebody who could have taken it away was not heard within the lease.
    #[error("node {} could have taken it back and was not heard for too long", .0.short())]
    Lapsed(NodeId),
    /// The logs here lack something that they held.
    #[error("the logs lack entries that may have taken it back")]
    Shortened,
}

/// Who has confirmed an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// How many other nodes hold it.
    pub by: usize,
    /// How many there are.
    pub of: usize,
    /// Those that do not, and when each of them stops allowing what it takes away, though nobody reaches it.
    pub missing: Vec<(NodeId, AllowEnd)>,
}

/// When a node that is not reached stops allowing what was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllowEnd {
    /// By then at the latest.
    By(MonotonicTime),
    /// After its own lease, which it has not said.
    UnknownLease,
    /// Perhaps never: as far as is known here, it may hold that this node is shut down, or that it is no admin, and
    /// then does not wait for its word.
    Unbounded,
}

impl Replica {
    /// Whether an agent of another node may call a tool of a server of this one, or use the server as a whole.
    /// Agents of other nodes are let in by grants alone, whatever the default policy.
    ///
    /// # Errors
    /// [`RemoteDenial`] says why not.
    pub fn may(
        &self,
        caller: &NodeAgent,
        server: &ServerId,
        tool: Option<&str>,
        now_ms: u64,
        now: MonotonicTime,
    ) -> Result<GrantId, RemoteDenial> {
        let members = self.logs.members();
        let here = self.logs.here();
        if !members.is_in(caller.node) || !members.is_in(here) || self.lives.is_twice(caller.node) {
            return Err(RemoteDenial::NotIn);
        }
        let on = here.server(server.clone());
        let Some(granted) = self.decisive_grant(caller, &on, tool, now_ms) else {
            return Err(RemoteDenial::NotGranted);
        };
        let id = granted.grant.id;
        match granted.grant.permission {
            Permission::Deny => Err(RemoteDenial::Denied(id)),
            Permission::Allow if self.is_shortened() => Err(RemoteDenial::Shortened),
            Permission::Allow => self
                .unheard(now)
                .map_or(Ok(id), |node| Err(RemoteDenial::Lapsed(node))),
        }
    }

    /// The entry in force that decides for an agent at a server of any node: the one that is closest to what is called,
    /// and a denial before what allows the same.
    #[must_use]
    pub fn decisive_grant(
        &self,
        caller: &NodeAgent,
        on: &NodeServer,
        tool: Option<&str>,
        now_ms: u64,
    ) -> Option<&Granted> {
        let of_caller = self.logs.grants().about(caller);
        let about = of_caller.filter_map(|granted| {
            let closeness = granted.grant.resource.closeness(on, tool)?;
            Some((closeness, granted))
        });
        let in_force = about.filter(|(_, granted)| self.force(granted, now_ms) == Force::InForce);
        let closest = in_force.min_by_key(|(closeness, granted)| {
            (*closeness, granted.grant.permission == Permission::Allow)
        });
        closest.map(|(_, granted)| granted)
    }

    /// Whether a grant counts here, or why not.
    #[must_use]
    pub fn force(&self, granted: &Granted, now_ms: u64) -> Force {
        let allows = granted.grant.permission == Permission::Allow;
        let owed = self.own.owed().iter().any(|owed| match &owed.revoke {
            Revoke::Ids(ids) => ids.contains(&granted.grant.id),
            Revoke::UpTo { subject, until } => {
                let last = until.get(&granted.place.issuer);
                *subject == granted.grant.subject
                    && last.is_some_and(|last| granted.place.sequence <= *last)
            }
        });
        let issuer = self.logs.here();
        let sequence = self.logs.grants().tip(issuer).next;
        let next = LogPosition { issuer, sequence };
        if owed && allows {
            return Force::Revoked(next);
        }
        let by_clock_ms = match allows {
            true => self.spread.latest(now_ms),
            false => self.spread.earliest(now_ms),
        };
        let grants = self.logs.grants();
        let force = grants.force(granted, self.logs.authority(), by_clock_ms);
        if let Force::Expired(end) = force
            && now_ms < end
        {
            return Force::EndedEarly(end);
        }
        match force == Force::InForce && allows {
            true => self.conflict_with_owed(granted, next).unwrap_or(force),
            false => force,
        }
    }

    /// What this node has yet to sign beats grants in the same way as what is signed.
    fn conflict_with_owed(&self, granted: &Granted, next: LogPosition) -> Option<Force> {
        let grants = self.logs.grants();
        let mut owed = self.own.owed().iter();
        let beats = |owed: &&OwedRevoke| {
            let revoke = (&owed.revoke, &owed.context);
            grants.is_beaten(granted, revoke, next)
        };
        let (revoke, at_ms) = (next, owed.find(beats)?.told_at_ms);
        Some(Force::InConflict { revoke, at_ms })
    }

    /// When a grant ends by the wall clock here, if it does.
    #[must_use]
    pub fn ends_at(&self, granted: &Granted) -> Option<u64> {
        let end_ms = granted.grant.not_after_ms?;
        Some(match granted.grant.permission {
            Permission::Allow => self.spread.allowed_until(end_ms),
            Permission::Deny => self.spread.denied_until(end_ms),
        })
    }

    /// Somebody who could take grants back and was not heard within the lease; None when all were. Who rests
    /// writes nothing until its log says that it is at work again. An older version does not write that, so that
    /// it counts from when it is heard.
    #[must_use]
    pub fn unheard(&self, now: MonotonicTime) -> Option<NodeId> {
        let grants = self.logs.grants();
        let here = self.logs.here();
        let mut could = self.logs.members().who_could_revoke();
        let silent = could.find(|node| {
            let rests = grants.rests(*node) && !self.leases.was_heard(*node);
            *node != here && !rests && self.leases.until(*node, now).is_none()
        });
        silent.or_else(|| self.incomplete())
    }

    /// Why the lease of a node that is [`unheard`](Self::unheard) has lapsed.
    #[must_use]
    pub(in crate::replication) fn lapse_cause(&self, node: NodeId) -> LapseCause {
        let member = self.logs.members().get(node);
        let is_cut = member.is_some_and(|member| member.cut.is_some());
        if is_cut {
            return LapseCause::CutOff;
        }
        let end = self.leases.last_end(node);
        end.map_or(LapseCause::NeverHeard, LapseCause::Silent)
    }

    /// Whose word ends first of those who could take something back, and when.
    #[must_use]
    pub fn first_to_lapse(&self, now: MonotonicTime) -> Option<(MonotonicTime, NodeId)> {
        let could = self.logs.members().who_could_revoke();
        let others = could.filter(|node| *node != self.logs.here());
        let ends = others.filter_map(|node| Some((self.leases.until(node, now)?, node)));
        ends.min()
    }

    /// Somebody who is about to be [`unheard`](Self::unheard), and when: half of its lease has passed, in which it
    /// was asked in vain. None when somebody is unheard already.
    #[must_use]
    pub fn overdue(&self, now: MonotonicTime) -> Option<(MonotonicTime, NodeId)> {
        let (end, node) = self.first_to_lapse(now)?;
        let is_overdue = end.since(now) < self.leases.length() / 2;
        (is_overdue && self.unheard(now).is_none()).then_some((end, node))
    }

    /// Somebody who was cut off, and whose log is not known here up to there: it may admit somebody who revokes.
    fn incomplete(&self) -> Option<NodeId> {
        let grants = self.logs.grants();
        let all = self.logs.members().all();
        let mut lacking = all.filter(|(node, member)| {
            let known = grants.tip(*node).next;
            let end = member.cut.or(member.demoted);
            let lacks = end.is_some_and(|end| known < end);
            member.may_take && lacks && !grants.is_forked(*node)
        });
        lacking.next().map(|(node, _)| node)
    }

    /// Who has confirmed to hold what this node wrote at this place of its log.
    #[must_use]
    pub fn confirmation(&self, sequence: u64) -> Confirmation {
        let others = self.others();
        let here = self.logs.here();
        let missing = others
            .iter()
            .filter(|node| !self.holds(**node, here, sequence));
        let missing: Vec<_> = missing.map(|node| (*node, self.allow_end(*node))).collect();
        Confirmation {
            by: others.len() - missing.len(),
            of: others.len(),
            missing,
        }
    }

    /// Whether a node has said since this one's start that its disk has the operation at this place of a log.
    fn holds(&self, node: NodeId, issuer: NodeId, sequence: u64) -> bool {
        let peer = self.peers.get(&node);
        let head = peer.and_then(|peer| peer.heads.get(&issuer));
        head.is_some_and(|head| {
            let same = self.logs.grants().tip_at(issuer, head.tip.next);
            head.tip.next > sequence && same == Some(head.tip)
        })
    }

    /// When a node that hears nothing from this one any more stops allowing what this one takes away. Nobody can
    /// extend it: only an answer to a question of its own counts there, from the sending of that question on, and
    /// an answer after the operation was stored says that there is one more to be known.
    pub(super) fn allow_end(&self, node: NodeId) -> AllowEnd {
        let answered = self.peers.get(&node).and_then(|peer| peer.answered);
        // What another life of it believed is over. This one's may have asked this node before it was started.
        let current = answered.filter(|it| self.lives.is_current(node, it.life));
        match current.filter(|_| self.is_awaited_by(node)) {
            Some(answered) if answered.is_known => AllowEnd::By(answered.until),
            Some(_) => AllowEnd::UnknownLease,
            None => AllowEnd::Unbounded,
        }
    }

    /// Whether a node is certain to wait for this one's word, over a restart of its own, too: its disk has what
    /// this node wrote after it was last shut down. Without that, the node must know it as an admin at all.
    fn is_awaited_by(&self, node: NodeId) -> bool {
        let (grants, here) = (self.logs.grants(), self.logs.here());
        if let Some(rest) = grants.last_rest(here) {
            return self.holds(node, here, rest + 1);
        }
        let mut admissions = grants.member_changes().filter(|(place, _, told)| {
            told.lets_in == Some(here)
                && match &told.change {
                    MemberChange::Admit { role, .. } => *role == MemberRole::Admin,
                    // Of whom else it is written, the node may not know that it was one.
                    MemberChange::Rekey { node, .. } => *node == place.issuer,
                    MemberChange::Found { .. } | MemberChange::Recover { .. } => true,
                    MemberChange::Cut { .. }
                    | MemberChange::Rename { .. }
                    | MemberChange::Rest {} => false,
                }
        });
        self.holds(node, here, 0)
            || admissions.any(|(place, _, _)| self.holds(node, place.issuer, place.sequence))
    }

    /// True when this node may sign.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.own.is_confirmed()
    }

    /// How many revocations wait to be signed.
    #[must_use]
    pub fn owes(&self) -> usize {
        self.own.owed().len()
    }

    /// True when two living nodes have this key.
    #[must_use]
    pub fn is_twice(&self, node: NodeId) -> bool {
        self.lives.is_twice(node)
    }
}
