//! Decisions of this node by the logs of its cluster.

use std::collections::BTreeMap;

use mgp_protocol::ids::{GroupName, NodeAgent, NodeId, NodeServer, ServerId};
use mgp_protocol::mgp::access::Permission;

use super::Replica;
use crate::clock::MonotonicTime;
use crate::policy::access::{EntryEffect, LeaseExpiryCause};
use crate::policy::grants::{
    GrantId, GrantStatus, LogPosition, LoggedGrant, MemberChange, MemberRole, Revoke, Subject,
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
    /// A grant denies it.
    #[error("grant {0} denies it")]
    Denied(GrantId),
    /// A grant allows it on a condition.
    #[error("grant {0} allows it on a condition only")]
    Conditional(GrantId),
    /// A node that could have revoked it did not answer within the lease.
    #[error("node {} could have revoked it and did not answer within the lease", .0.short_id())]
    LeaseExpired(NodeId),
    /// The logs here lack entries that they had.
    #[error("the logs lack entries that may have revoked it")]
    LogsIncomplete,
}

/// Whom an entry is for: one for the agent decides before one for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GrantPath {
    /// The agent, by its name or a pattern.
    Itself,
    /// A group that it is in.
    Group,
}

/// How many nodes have confirmed an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// The other nodes that have stored it.
    pub confirmed: usize,
    /// All other nodes.
    pub total: usize,
    /// The nodes that have not, and when each stops allowing what the operation revokes if nobody reaches it.
    pub missing: Vec<(NodeId, AllowEnd)>,
}

/// When an unreachable node stops allowing what was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllowEnd {
    /// At this time at the latest.
    NoLaterThan(MonotonicTime),
    /// After its own lease, which it has not sent.
    UnknownLease,
    /// Perhaps never: it may consider this node shut down, or no admin, and then its grants do not depend on this
    /// node's answers.
    Unbounded,
}

impl Replica {
    /// Decides whether an agent of another node may call a tool of a local server, or use the server as a whole.
    /// Only grants allow it, whatever the default policy.
    ///
    /// # Errors
    /// The reason of the denial.
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
            Permission::Allow if granted.grant.is_conditional() => {
                Err(RemoteDenial::Conditional(id))
            }
            Permission::Allow if self.is_missing_entries() => Err(RemoteDenial::LogsIncomplete),
            Permission::Allow => self
                .expired_peer(now)
                .map_or(Ok(id), |node| Err(RemoteDenial::LeaseExpired(node))),
        }
    }

    /// The groups of an agent, each with what of its entries counts.
    #[must_use]
    pub fn groups_of(&self, caller: &NodeAgent, now_ms: u64) -> BTreeMap<GroupName, EntryEffect> {
        let mut groups = BTreeMap::new();
        for granted in self.logs.grants().for_agent(caller) {
            let Some(group) = granted.grant.joined_group() else {
                continue;
            };
            if self.grant_status(granted, now_ms) == GrantStatus::InForce {
                groups.insert(group.clone(), EntryEffect::Whole);
            } else if self.is_closing(granted, now_ms) {
                groups.entry(group.clone()).or_insert(EntryEffect::Closing);
            }
        }
        groups
    }

    /// The grant in force that decides for an agent at a server of any node: the most specific one, of these one for the
    /// agent before one for its groups, and of two like these the denial.
    #[must_use]
    pub fn decisive_grant(
        &self,
        caller: &NodeAgent,
        on: &NodeServer,
        tool: Option<&str>,
        now_ms: u64,
    ) -> Option<&LoggedGrant> {
        let all = self.logs.grants();
        let own = all.for_agent(caller);
        let own = own.map(|granted| (GrantPath::Itself, granted, EntryEffect::Whole));
        let groups = self.groups_of(caller, now_ms).into_iter();
        let of_groups = groups.flat_map(|(group, effect)| {
            let granted = all.for_subject(&Subject::cluster_group(&group));
            granted.map(move |granted| (GrantPath::Group, granted, effect))
        });
        let candidates = own.chain(of_groups).filter_map(|(via, granted, effect)| {
            let specificity = granted.grant.resource.specificity(on, tool)?;
            Some((specificity, via, granted, effect))
        });
        let in_force = candidates.filter(|(_, _, granted, effect)| {
            let is_in_force = self.grant_status(granted, now_ms) == GrantStatus::InForce;
            let closes = granted.grant.permission == Permission::Deny;
            is_in_force && (*effect == EntryEffect::Whole || closes)
                || self.is_closing(granted, now_ms)
        });
        let closest = in_force.min_by_key(|(specificity, via, granted, _)| {
            let grant = &granted.grant;
            (
                *specificity,
                *via,
                grant.permission == Permission::Allow,
                grant.is_conditional(),
            )
        });
        closest.map(|(_, _, granted, _)| granted)
    }

    /// Whether a grant is in force here, or why not.
    #[must_use]
    pub fn grant_status(&self, granted: &LoggedGrant, now_ms: u64) -> GrantStatus {
        let allows = granted.grant.permission == Permission::Allow;
        let is_pending = self
            .local_log
            .pending()
            .iter()
            .any(|pending| match &pending.revoke {
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
        if is_pending && allows {
            return GrantStatus::Revoked(next);
        }
        let effective_ms = if allows {
            self.skew.latest(now_ms)
        } else {
            self.skew.earliest(now_ms)
        };
        let grants = self.logs.grants();
        let status = grants.status(granted, self.logs.authority(), effective_ms);
        if let GrantStatus::Expired(end) = status
            && now_ms < end
        {
            return GrantStatus::ExpiredEarly(end);
        }
        if status == GrantStatus::InForce && allows {
            self.conflict_with_pending(granted, next).unwrap_or(status)
        } else {
            status
        }
    }

    /// Whether a grant with a condition closes what it does not allow; also while what it allows does not count.
    #[must_use]
    pub(crate) fn is_closing(&self, granted: &LoggedGrant, now_ms: u64) -> bool {
        let (grants, authority) = (self.logs.grants(), self.logs.authority());
        grants.is_closing(granted, authority, self.skew.earliest(now_ms))
    }

    /// Pending revokes override grants in the same way as signed ones.
    fn conflict_with_pending(
        &self,
        granted: &LoggedGrant,
        next: LogPosition,
    ) -> Option<GrantStatus> {
        let grants = self.logs.grants();
        let mut pending = self.local_log.pending().iter();
        let overrides = |pending: &&PendingRevoke| {
            let revoke = (&pending.revoke, &pending.context);
            grants.is_overridden_by(granted, revoke, next)
        };
        let (revoke, at_ms) = (next, pending.find(overrides)?.requested_at_ms);
        Some(GrantStatus::InConflict { revoke, at_ms })
    }

    /// When a grant expires by the local wall clock.
    #[must_use]
    pub(crate) fn expiry_ms(&self, granted: &LoggedGrant) -> Option<u64> {
        let end_ms = granted.grant.not_after_ms?;
        Some(match granted.grant.permission {
            Permission::Allow => self.skew.allow_expiry_ms(end_ms),
            Permission::Deny => self.skew.deny_expiry_ms(end_ms),
        })
    }

    /// When a grant with a condition no longer closes what it does not allow, by the local wall clock.
    #[must_use]
    pub(crate) fn closing_expiry_ms(&self, granted: &LoggedGrant) -> Option<u64> {
        Some(self.skew.deny_expiry_ms(granted.grant.not_after_ms?))
    }

    /// A node that could revoke grants and did not answer within the lease. A node that is shut down writes nothing until
    /// its log says that it resumed. Older versions do not write that, so it counts from their first answer.
    #[must_use]
    pub fn expired_peer(&self, now: MonotonicTime) -> Option<NodeId> {
        let grants = self.logs.grants();
        let here = self.logs.local_node();
        let mut revokers = self.logs.members().possible_revokers();
        let expired = revokers.find(|node| {
            let is_shut_down = grants.is_resting(*node) && !self.leases.has_responded(*node);
            *node != here && !is_shut_down && self.leases.valid_until(*node, now).is_none()
        });
        expired.or_else(|| self.incomplete_member())
    }

    /// Why the lease of an [expired peer](Self::expired_peer) has expired.
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

    /// The first lease to expire of the nodes that could revoke grants.
    #[must_use]
    pub(crate) fn next_lease_expiry(&self, now: MonotonicTime) -> Option<(MonotonicTime, NodeId)> {
        let revokers = self.logs.members().possible_revokers();
        let others = revokers.filter(|node| *node != self.logs.local_node());
        let ends = others.filter_map(|node| Some((self.leases.valid_until(node, now)?, node)));
        ends.min()
    }

    /// A node whose lease is about to expire, and when: for half of the lease, requests to it had no answer. None if
    /// there is an [expired peer](Self::expired_peer) already.
    #[must_use]
    pub fn overdue_peer(&self, now: MonotonicTime) -> Option<(MonotonicTime, NodeId)> {
        let (end, node) = self.next_lease_expiry(now)?;
        let is_overdue = end.duration_since(now) < self.leases.duration() / 2;
        (is_overdue && self.expired_peer(now).is_none()).then_some((end, node))
    }

    /// A node that was cut off or demoted and whose log is not known up to there: it may admit a node that revokes.
    fn incomplete_member(&self) -> Option<NodeId> {
        let grants = self.logs.grants();
        let all = self.logs.members().iter();
        let mut incomplete = all.filter(|(node, member)| {
            let known = grants.tip(*node).next;
            let end = member.cut_at.or(member.demoted_at);
            let is_incomplete = end.is_some_and(|end| known < end);
            member.can_revoke && is_incomplete && !grants.is_forked(*node)
        });
        incomplete.next().map(|(node, _)| node)
    }

    /// Which nodes have confirmed the operation of this node's log with this sequence number.
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

    /// Whether a node has reported since this one's start that it has stored this operation of a log.
    fn has_stored(&self, node: NodeId, issuer: NodeId, sequence: u64) -> bool {
        let peer = self.peers.get(&node);
        let head = peer.and_then(|peer| peer.heads.get(&issuer));
        head.is_some_and(|head| {
            let known_tip = self.logs.grants().tip_at(issuer, head.tip.next);
            head.tip.next > sequence && known_tip == Some(head.tip)
        })
    }

    /// When a node that gets no more messages from this one stops allowing what this one revokes. Nothing extends it:
    /// there, a lease runs from the sending of the request, and each response after the operation was stored names a
    /// tip that includes it.
    pub(super) fn allow_end_at(&self, node: NodeId) -> AllowEnd {
        let lease = self.peers.get(&node).and_then(|peer| peer.their_lease);
        // Leases of earlier instances have ended.
        let current = lease.filter(|it| self.instances.is_current(node, it.instance));
        match current.filter(|_| self.is_certainly_awaited_by(node)) {
            Some(lease) if lease.is_known => AllowEnd::NoLaterThan(lease.expires_at),
            Some(_) => AllowEnd::UnknownLease,
            None => AllowEnd::Unbounded,
        }
    }

    /// Whether the grants at a node certainly depend on this node's answers, even after a restart: it has stored what
    /// this node wrote after its last shutdown. Without a shutdown, it must have stored that this node is an admin.
    fn is_certainly_awaited_by(&self, node: NodeId) -> bool {
        let (grants, here) = (self.logs.grants(), self.logs.local_node());
        if let Some(rest) = grants.last_rest(here) {
            return self.has_stored(node, here, rest + 1);
        }
        let mut admissions = grants.member_changes().filter(|(position, _, logged)| {
            logged.admitted_node == Some(here)
                && match &logged.change {
                    MemberChange::Admit { role, .. } => *role == MemberRole::Admin,
                    // The node may not know that the predecessor was an admin, unless it wrote this itself.
                    MemberChange::Rekey { node, .. } => *node == position.issuer,
                    MemberChange::Found { .. } | MemberChange::Recover { .. } => true,
                    MemberChange::Cut { .. }
                    | MemberChange::Rename { .. }
                    | MemberChange::Rest {} => false,
                }
        });
        self.has_stored(node, here, 0)
            || admissions
                .any(|(position, _, _)| self.has_stored(node, position.issuer, position.sequence))
    }

    /// True if this node may sign.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.local_log.is_confirmed()
    }

    /// The number of revokes that wait to be signed.
    #[must_use]
    pub fn pending_revokes(&self) -> usize {
        self.local_log.pending().len()
    }

    /// True if two running nodes have this key.
    #[must_use]
    pub fn has_duplicate_key(&self, node: NodeId) -> bool {
        self.instances.has_duplicate(node)
    }
}
