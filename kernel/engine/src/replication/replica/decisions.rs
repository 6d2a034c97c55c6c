//! What this node decides by the logs of its cluster.

use mgp_protocol::ids::{NodeAgent, NodeId, NodeServer, ServerId};
use mgp_protocol::mgp::access::Permission;

use super::Replica;
use crate::clock::MonotonicTime;
use crate::policy::access::LeaseExpiryCause;
use crate::policy::grants::{
    GrantId, GrantStatus, LogPosition, LoggedGrant, MemberChange, MemberRole, Revoke,
};
use crate::replication::local_log::PendingRevoke;

/// Why a call from another node is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteDenial {
    /// One of the two nodes is not in the cluster.
    #[error("the node is not in the cluster")]
    NotMember,
    /// No grant allows it.
    #[error("no grant allows it")]
    NotGranted,
    /// Somebody denied it.
    #[error("grant {0} denies it")]
    Denied(GrantId),
    /// Somebody who could have taken it away was not heard within the lease.
    #[error("node {} could have taken it back and was not heard for too long", .0.short_id())]
    LeaseExpired(NodeId),
    /// The logs here lack something that they held.
    #[error("the logs lack entries that may have taken it back")]
    LogsIncomplete,
}

/// Who has confirmed an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// How many other nodes hold it.
    pub confirmed: usize,
    /// How many there are.
    pub total: usize,
    /// Those that do not, and when each of them stops allowing what it takes away, though nobody reaches it.
    pub missing: Vec<(NodeId, AllowEnd)>,
}

/// When a node that is not reached stops allowing what was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllowEnd {
    /// By then at the latest.
    NoLaterThan(MonotonicTime),
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
    pub fn authorize(
        &self,
        caller: &NodeAgent,
        server: &ServerId,
        tool: Option<&str>,
        now_ms: u64,
        now: MonotonicTime,
    ) -> Result<GrantId, RemoteDenial> {
        let members = self.logs.members();
        let here = self.logs.local_node();
        if !members.is_member(caller.node)
            || !members.is_member(here)
            || self.instances.has_duplicate(caller.node)
        {
            return Err(RemoteDenial::NotMember);
        }
        let on = here.server(server.clone());
        let Some(granted) = self.decisive_grant(caller, &on, tool, now_ms) else {
            return Err(RemoteDenial::NotGranted);
        };
        let id = granted.grant.id;
        match granted.grant.permission {
            Permission::Deny => Err(RemoteDenial::Denied(id)),
            Permission::Allow if self.is_missing_entries() => Err(RemoteDenial::LogsIncomplete),
            Permission::Allow => self
                .expired_peer(now)
                .map_or(Ok(id), |node| Err(RemoteDenial::LeaseExpired(node))),
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
    ) -> Option<&LoggedGrant> {
        let of_caller = self.logs.grants().for_agent(caller);
        let about = of_caller.filter_map(|granted| {
            let closeness = granted.grant.resource.specificity(on, tool)?;
            Some((closeness, granted))
        });
        let in_force =
            about.filter(|(_, granted)| self.grant_status(granted, now_ms) == GrantStatus::InForce);
        let closest = in_force.min_by_key(|(closeness, granted)| {
            (*closeness, granted.grant.permission == Permission::Allow)
        });
        closest.map(|(_, granted)| granted)
    }

    /// Whether a grant counts here, or why not.
    #[must_use]
    pub fn grant_status(&self, granted: &LoggedGrant, now_ms: u64) -> GrantStatus {
        let allows = granted.grant.permission == Permission::Allow;
        let owed = self
            .local_log
            .pending()
            .iter()
            .any(|owed| match &owed.revoke {
                Revoke::Ids(ids) => ids.contains(&granted.grant.id),
                Revoke::UpTo { subject, until } => {
                    let last = until.get(&granted.position.issuer);
                    *subject == granted.grant.subject
                        && last.is_some_and(|last| granted.position.sequence <= *last)
                }
            });
        let issuer = self.logs.local_node();
        let sequence = self.logs.grants().tip(issuer).next;
        let next = LogPosition { issuer, sequence };
        if owed && allows {
            return GrantStatus::Revoked(next);
        }
        let by_clock_ms = if allows {
            self.skew.latest(now_ms)
        } else {
            self.skew.earliest(now_ms)
        };
        let grants = self.logs.grants();
        let force = grants.status(granted, self.logs.authority(), by_clock_ms);
        if let GrantStatus::Expired(end) = force
            && now_ms < end
        {
            return GrantStatus::ExpiredEarly(end);
        }
        if force == GrantStatus::InForce && allows {
            self.conflict_with_pending(granted, next).unwrap_or(force)
        } else {
            force
        }
    }

    /// What this node has yet to sign beats grants in the same way as what is signed.
    fn conflict_with_pending(
        &self,
        granted: &LoggedGrant,
        next: LogPosition,
    ) -> Option<GrantStatus> {
        let grants = self.logs.grants();
        let mut owed = self.local_log.pending().iter();
        let beats = |owed: &&PendingRevoke| {
            let revoke = (&owed.revoke, &owed.context);
            grants.is_overridden_by(granted, revoke, next)
        };
        let (revoke, at_ms) = (next, owed.find(beats)?.requested_at_ms);
        Some(GrantStatus::InConflict { revoke, at_ms })
    }

    /// When a grant ends by the wall clock here, if it does.
    #[must_use]
    pub(crate) fn expiry_ms(&self, granted: &LoggedGrant) -> Option<u64> {
        let end_ms = granted.grant.not_after_ms?;
        Some(match granted.grant.permission {
            Permission::Allow => self.skew.allow_expiry_ms(end_ms),
            Permission::Deny => self.skew.deny_expiry_ms(end_ms),
        })
    }

    /// Somebody who could take grants back and was not heard within the lease; None when all were. Who rests
    /// writes nothing until its log says that it is at work again. An older version does not write that, so that
    /// it counts from when it is heard.
    #[must_use]
    pub fn expired_peer(&self, now: MonotonicTime) -> Option<NodeId> {
        let grants = self.logs.grants();
        let here = self.logs.local_node();
        let mut could = self.logs.members().possible_revokers();
        let silent = could.find(|node| {
            let rests = grants.is_resting(*node) && !self.leases.has_responded(*node);
            *node != here && !rests && self.leases.valid_until(*node, now).is_none()
        });
        silent.or_else(|| self.incomplete_member())
    }

    /// Why the lease of a node that is [`unheard`](Self::expired_peer) has lapsed.
    #[must_use]
    pub(in crate::replication) fn lease_expiry_cause(&self, node: NodeId) -> LeaseExpiryCause {
        let member = self.logs.members().get(node);
        let is_cut = member.is_some_and(|member| member.cut_at.is_some());
        if is_cut {
            return LeaseExpiryCause::CutOff;
        }
        let end = self.leases.last_expiry(node);
        end.map_or(LeaseExpiryCause::NeverHeard, LeaseExpiryCause::TimedOut)
    }

    /// Whose word ends first of those who could take something back, and when.
    #[must_use]
    pub(crate) fn next_lease_expiry(&self, now: MonotonicTime) -> Option<(MonotonicTime, NodeId)> {
        let could = self.logs.members().possible_revokers();
        let others = could.filter(|node| *node != self.logs.local_node());
        let ends = others.filter_map(|node| Some((self.leases.valid_until(node, now)?, node)));
        ends.min()
    }

    /// Somebody who is about to be [`unheard`](Self::expired_peer), and when: half of its lease has passed, in which it
    /// was asked in vain. None when somebody is unheard already.
    #[must_use]
    pub fn overdue_peer(&self, now: MonotonicTime) -> Option<(MonotonicTime, NodeId)> {
        let (end, node) = self.next_lease_expiry(now)?;
        let is_overdue = end.duration_since(now) < self.leases.duration() / 2;
        (is_overdue && self.expired_peer(now).is_none()).then_some((end, node))
    }

    /// Somebody who was cut off, and whose log is not known here up to there: it may admit somebody who revokes.
    fn incomplete_member(&self) -> Option<NodeId> {
        let grants = self.logs.grants();
        let all = self.logs.members().iter();
        let mut lacking = all.filter(|(node, member)| {
            let known = grants.tip(*node).next;
            let end = member.cut_at.or(member.demoted_at);
            let lacks = end.is_some_and(|end| known < end);
            member.can_revoke && lacks && !grants.is_forked(*node)
        });
        lacking.next().map(|(node, _)| node)
    }

    /// Who has confirmed to hold what this node wrote at this place of its log.
    #[must_use]
    pub fn confirmation(&self, sequence: u64) -> Confirmation {
        let others = self.other_members();
        let here = self.logs.local_node();
        let missing = others
            .iter()
            .filter(|node| !self.has_stored(**node, here, sequence));
        let missing: Vec<_> = missing
            .map(|node| (*node, self.allow_end_at(*node)))
            .collect();
        Confirmation {
            confirmed: others.len() - missing.len(),
            total: others.len(),
            missing,
        }
    }

    /// Whether a node has said since this one's start that its disk has the operation at this place of a log.
    fn has_stored(&self, node: NodeId, issuer: NodeId, sequence: u64) -> bool {
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
    pub(super) fn allow_end_at(&self, node: NodeId) -> AllowEnd {
        let answered = self.peers.get(&node).and_then(|peer| peer.their_lease);
        // What another life of it believed is over. This one's may have asked this node before it was started.
        let current = answered.filter(|it| self.instances.is_current(node, it.instance));
        match current.filter(|_| self.is_certainly_awaited_by(node)) {
            Some(answered) if answered.is_known => AllowEnd::NoLaterThan(answered.expires_at),
            Some(_) => AllowEnd::UnknownLease,
            None => AllowEnd::Unbounded,
        }
    }

    /// Whether a node is certain to wait for this one's word, over a restart of its own, too: its disk has what
    /// this node wrote after it was last shut down. Without that, the node must know it as an admin at all.
    fn is_certainly_awaited_by(&self, node: NodeId) -> bool {
        let (grants, here) = (self.logs.grants(), self.logs.local_node());
        if let Some(rest) = grants.last_rest(here) {
            return self.has_stored(node, here, rest + 1);
        }
        let mut admissions = grants.member_changes().filter(|(place, _, told)| {
            told.admitted_node == Some(here)
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
        self.has_stored(node, here, 0)
            || admissions.any(|(place, _, _)| self.has_stored(node, place.issuer, place.sequence))
    }

    /// True when this node may sign.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.local_log.is_confirmed()
    }

    /// How many revocations wait to be signed.
    #[must_use]
    pub fn pending_revokes(&self) -> usize {
        self.local_log.pending().len()
    }

    /// True when two living nodes have this key.
    #[must_use]
    pub fn has_duplicate_key(&self, node: NodeId) -> bool {
        self.instances.has_duplicate(node)
    }
}
