//! Labels that a person approved for one agent or for the server itself (MCPL §7.6).

use std::collections::{BTreeSet, VecDeque};

use mgp_protocol::ids::{AgentId, ServerId};
use serde::{Deserialize, Serialize};

/// Most permanent approvals; further ones last until the kernel stops.
pub const LASTING_MAX: usize = 4096;
/// Most approvals until the kernel stops; beyond it the oldest is evicted, and a person decides again.
pub(crate) const SESSION_MAX: usize = 4096;

/// An approved scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ApprovedScope {
    /// The server.
    pub server: ServerId,
    /// Its set.
    pub set: String,
    /// Exactly this label.
    pub label: String,
    /// The agent whose calls are approved; `None` for the server's own requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
}

/// All approvals.
#[derive(Clone, Debug, Default)]
pub struct ApprovedScopes {
    lasting: BTreeSet<ApprovedScope>,
    session: BTreeSet<ApprovedScope>,
    order: VecDeque<ApprovedScope>,
}

impl ApprovedScopes {
    /// With permanent approvals from before.
    #[must_use]
    pub fn new(lasting: impl IntoIterator<Item = ApprovedScope>) -> Self {
        Self {
            lasting: lasting.into_iter().take(LASTING_MAX).collect(),
            ..Self::default()
        }
    }

    /// Whether the scope is approved.
    #[must_use]
    pub fn contains(&self, scope: &ApprovedScope) -> bool {
        self.lasting.contains(scope) || self.session.contains(scope)
    }

    /// Approves until the kernel stops.
    pub fn approve(&mut self, scope: ApprovedScope) {
        if self.session.insert(scope.clone()) {
            self.order.push_back(scope);
        }
        if self.order.len() > SESSION_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.session.remove(&oldest);
        }
    }

    /// Approves permanently; false beyond the limit, where the approval lasts until the kernel stops.
    pub fn approve_for_good(&mut self, scope: ApprovedScope) -> bool {
        if self.lasting.len() < LASTING_MAX || self.lasting.contains(&scope) {
            self.lasting.insert(scope);
            true
        } else {
            self.approve(scope);
            false
        }
    }

    /// Revokes the approvals of this set, or of all sets of the server; returns their number.
    pub fn forget(&mut self, server: &ServerId, set: Option<&str>) -> usize {
        let meant = |scope: &ApprovedScope| {
            scope.server == *server && set.is_none_or(|set| scope.set == set)
        };
        let before = self.lasting.len() + self.session.len();
        self.lasting.retain(|scope| !meant(scope));
        self.session.retain(|scope| !meant(scope));
        self.order.retain(|scope| !meant(scope));
        before - self.lasting.len() - self.session.len()
    }

    /// Permanent approvals, in order.
    pub fn lasting(&self) -> impl Iterator<Item = &ApprovedScope> {
        self.lasting.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(label: &str, agent: Option<&str>) -> ApprovedScope {
        ApprovedScope {
            server: ServerId::new("fs"),
            set: "files.edit".into(),
            label: label.into(),
            agent: agent.map(AgentId::new),
        }
    }

    /// MCPL-056: approvals are per agent; permanent ones stay.
    #[test]
    fn an_approval_is_for_one_label_of_one_agent() {
        let mut all = ApprovedScopes::new([scope("/good", None)]);
        all.approve(scope("/a", Some("agent.one")));
        assert!(
            all.contains(&scope("/a", Some("agent.one"))) && all.contains(&scope("/good", None))
        );
        for other in [
            scope("/a", Some("agent.two")),
            scope("/a", None),
            scope("/a/", Some("agent.one")),
        ] {
            assert!(!all.contains(&other), "{other:?}");
        }
        assert!(all.approve_for_good(scope("/b", None)));
        assert_eq!(all.lasting().count(), 2);
        assert_eq!(all.forget(&ServerId::new("fs"), Some("files.edit")), 3);
        assert!(!all.contains(&scope("/good", None)));
    }

    /// A million approvals stay within the bound; the oldest is evicted.
    #[test]
    fn approvals_are_bounded() {
        let mut all = ApprovedScopes::default();
        for n in 0..SESSION_MAX + 10 {
            all.approve(scope(&format!("/{n}"), None));
        }
        assert!(!all.contains(&scope("/0", None)) && all.contains(&scope("/10", None)));
        for n in 0..=LASTING_MAX {
            let is_permanent = all.approve_for_good(scope(&format!("/g{n}"), None));
            assert_eq!(is_permanent, n < LASTING_MAX);
        }
    }

    /// What a revocation leaves is evicted in its order.
    #[test]
    fn a_revocation_keeps_the_bound() {
        let mut all = ApprovedScopes::default();
        let kept = ApprovedScope {
            set: "files.read".into(),
            ..scope("/kept", None)
        };
        all.approve(kept.clone());
        all.approve(scope("/revoked", None));
        assert_eq!(all.forget(&ServerId::new("fs"), Some("files.edit")), 1);
        for n in 0..SESSION_MAX {
            all.approve(scope(&format!("/{n}"), None));
        }
        assert!(!all.contains(&kept) && all.contains(&scope("/0", None)));
    }

    /// Revoking covers one set, or all sets of one server, and nothing else.
    #[test]
    fn approvals_are_revoked_by_set_or_by_server() {
        let other_set = ApprovedScope {
            set: "files.read".into(),
            ..scope("/a", None)
        };
        let other_server = ApprovedScope {
            server: ServerId::new("git"),
            ..scope("/a", None)
        };
        let all = || {
            let mut all = ApprovedScopes::new([other_server.clone()]);
            for approved in [scope("/a", None), scope("/b", None), other_set.clone()] {
                all.approve(approved);
            }
            assert!(all.approve_for_good(scope("/c", None)));
            all
        };
        let fs = ServerId::new("fs");
        for (set, count) in [(Some("files.edit"), 3), (Some("none"), 0), (None, 4)] {
            let mut all = all();
            assert_eq!(all.forget(&fs, set), count);
            assert_eq!(all.contains(&scope("/a", None)), count == 0);
            assert_eq!(all.contains(&scope("/c", None)), count == 0);
            assert_eq!(all.contains(&other_set), set.is_some());
            assert!(all.contains(&other_server));
            assert_eq!(all.forget(&fs, set), 0, "once is enough");
        }
    }

    /// A scope that is revoked and approved again is the newest, and counts once.
    #[test]
    fn a_revoked_approval_frees_its_capacity() {
        let mut all = ApprovedScopes::default();
        for _ in 0..3 {
            all.approve(scope("/again", None));
            all.approve(scope("/again", None));
            all.forget(&ServerId::new("fs"), None);
        }
        for n in 0..SESSION_MAX {
            all.approve(scope(&format!("/{n}"), None));
        }
        assert!(all.contains(&scope("/0", None)));
        all.approve(scope("/more", None));
        assert!(!all.contains(&scope("/0", None)) && all.contains(&scope("/1", None)));
    }

    /// Permanent approvals stay when the list is full.
    #[test]
    fn a_full_list_still_has_what_is_in_it() {
        let many = (0..LASTING_MAX + 5).map(|n| scope(&format!("/{n:05}"), None));
        let mut all = ApprovedScopes::new(many);
        assert_eq!(all.lasting().count(), LASTING_MAX);
        assert!(all.approve_for_good(scope("/00000", None)));
        assert!(!all.approve_for_good(scope("/new", None)));
        assert!(all.contains(&scope("/new", None)), "until the kernel ends");
        assert_eq!(all.lasting().count(), LASTING_MAX);
    }
}
