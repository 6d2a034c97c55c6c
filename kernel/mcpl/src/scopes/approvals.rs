//! What a person approved: a label of a set, for one agent or for the server itself (MCPL §7.6).

use std::collections::{BTreeSet, VecDeque};

use mgp_protocol::ids::{AgentId, ServerId};
use serde::{Deserialize, Serialize};

/// Approvals kept for good. A person gave each; more are kept until the kernel ends.
pub const LASTING_MAX: usize = 4096;
/// Approvals kept until the kernel ends; of more the oldest is forgotten, and a person is asked again.
pub(crate) const SESSION_MAX: usize = 4096;

/// Something approved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ApprovedScope {
    /// Whose set.
    pub server: ServerId,
    /// Which set.
    pub set: String,
    /// Exactly this label.
    pub label: String,
    /// The agent whose calls may; `None` for what the server does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
}

/// All that is approved.
#[derive(Clone, Debug, Default)]
pub struct ApprovedScopes {
    lasting: BTreeSet<ApprovedScope>,
    session: BTreeSet<ApprovedScope>,
    order: VecDeque<ApprovedScope>,
}

impl ApprovedScopes {
    /// What was approved for good before.
    #[must_use]
    pub fn new(lasting: impl IntoIterator<Item = ApprovedScope>) -> Self {
        Self {
            lasting: lasting.into_iter().take(LASTING_MAX).collect(),
            ..Self::default()
        }
    }

    /// Whether it was approved.
    #[must_use]
    pub fn contains(&self, scope: &ApprovedScope) -> bool {
        self.lasting.contains(scope) || self.session.contains(scope)
    }

    /// Approved until the kernel ends.
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

    /// Approved for good; false when there are too many, and it is kept until the kernel ends.
    pub fn approve_for_good(&mut self, scope: ApprovedScope) -> bool {
        if self.lasting.len() < LASTING_MAX || self.lasting.contains(&scope) {
            self.lasting.insert(scope);
            true
        } else {
            self.approve(scope);
            false
        }
    }

    /// Takes back what was approved of this set, or of all sets of the server; how many these were.
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

    /// Those for good, in their order.
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

    /// MCPL-056: what one may, another one may not; what was approved for good stays.
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

    /// A million approvals are no more than the bound; the oldest is asked about again.
    #[test]
    fn approvals_are_bounded() {
        let mut all = ApprovedScopes::default();
        for n in 0..SESSION_MAX + 10 {
            all.approve(scope(&format!("/{n}"), None));
        }
        assert!(!all.contains(&scope("/0", None)) && all.contains(&scope("/10", None)));
        for n in 0..=LASTING_MAX {
            let good = all.approve_for_good(scope(&format!("/g{n}"), None));
            assert_eq!(good, n < LASTING_MAX);
        }
    }

    /// What is taken back is of one set, or of all sets of one server, and of nobody else.
    #[test]
    fn approvals_are_taken_back_by_set_or_by_server() {
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
            for one in [scope("/a", None), scope("/b", None), other_set.clone()] {
                all.approve(one);
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

    /// One that was taken back and given again is the newest, and takes one place.
    #[test]
    fn an_approval_that_was_taken_back_leaves_no_place_behind() {
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

    /// What is approved for good already stays so when there is no place for more.
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
