//! What can happen next.

use stateright::{Model, Property};

use super::cluster::{SmallCluster, TWO_ADMINS, Way};
use super::properties;

/// How often what happens at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    pub(super) grants: u8,
    pub(super) revokes: u8,
    pub(super) cuts: u8,
    pub(super) crashes: u8,
    pub(super) waits: u8,
}

/// A model: where it begins, and what may happen in it.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) budget: Budget,
    /// What must be seen in some state, for the course to have shown anything.
    pub(super) sometimes: &'static [&'static str],
    pub(super) from: SmallCluster,
}

/// A state: where everything is, and what may still happen.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) struct CourseState {
    pub(super) cluster: SmallCluster,
    left: Budget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Arrives(Way),
    Waits,
    Grants(usize),
    Revokes(usize),
    Cuts(usize, usize),
    Crashes(usize),
}

impl Model for Course {
    type State = CourseState;
    type Action = Step;

    fn init_states(&self) -> Vec<CourseState> {
        vec![CourseState {
            cluster: self.from.clone(),
            left: self.budget,
        }]
    }

    fn actions(&self, state: &CourseState, actions: &mut Vec<Step>) {
        let left = state.left;
        let ways = state.cluster.on_the_way.keys();
        actions.extend(ways.map(|way| Step::Arrives(*way)));
        if left.waits > 0 {
            actions.push(Step::Waits);
        }
        if left.grants > 0 {
            actions.push(Step::Grants(TWO_ADMINS[0]));
        }
        for (n, other) in [(0, 1), (1, 0)] {
            if left.revokes > 0 {
                actions.push(Step::Revokes(n));
            }
            if left.cuts > 0 {
                actions.push(Step::Cuts(n, other));
            }
        }
        if left.crashes > 0 {
            actions.extend([0, 1, 2].map(Step::Crashes));
        }
    }

    fn next_state(&self, last: &CourseState, step: Step) -> Option<CourseState> {
        let mut state = last.clone();
        let (cluster, left) = (&mut state.cluster, &mut state.left);
        match step {
            Step::Arrives(way) => cluster.delivers(way),
            Step::Waits => {
                left.waits -= 1;
                cluster.waits();
            }
            Step::Grants(n) => {
                left.grants -= 1;
                cluster.grants_at(n);
            }
            Step::Revokes(n) => {
                left.revokes -= 1;
                cluster.revokes_at(n);
            }
            Step::Cuts(n, other) => {
                left.cuts -= 1;
                cluster.cuts(n, other);
            }
            Step::Crashes(n) => {
                left.crashes -= 1;
                cluster.crashes(n);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let shown = properties::shown();
        let shown = shown
            .into_iter()
            .filter(|it| self.sometimes.contains(&it.name));
        properties::kept().into_iter().chain(shown).collect()
    }
}
