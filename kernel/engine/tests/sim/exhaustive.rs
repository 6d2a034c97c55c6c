//! Every course that few nodes can take, step by step: two admins, and the owner of a server that they grant.
//! `MGP_SIM_STEPS` says of how many steps.
//!
//! The engine is the real one. What is bounded is what people and machines do: each model says how often. Messages
//! arrive in any order, late or never. A newer one of a kind takes the place of an older one on the same way, which
//! is lost then.

mod cluster;
mod properties;
mod steps;

use stateright::{Checker, HasDiscoveries, Model};

use self::cluster::{OWNER, SmallCluster, TWO_ADMINS};
use self::steps::{Budget, Course};
use crate::seeds::asked;

/// FED-038: what one admin grants while the other one revokes it, the owner being cut from either
/// for longer than a lease.
#[test]
fn every_course_of_a_grant_and_its_revocation() {
    let mut from = SmallCluster::settled();
    // What the other one does, each hears of by the owner alone.
    from.admins_apart = true;
    check(Course {
        budget: Budget {
            grants: 1,
            revokes: 1,
            waits: 3,
            ..Budget::default()
        },
        sometimes: &["allowed", "lapsed", "taken back"],
        from,
    });
}

/// FED-055: two admins cut each other off, while one grants and the other one revokes.
#[test]
fn every_course_of_two_admins_that_cut_each_other_off() {
    check(Course {
        budget: Budget {
            grants: 1,
            revokes: 1,
            cuts: 2,
            ..Budget::default()
        },
        sometimes: &["allowed", "both are cut", "taken back"],
        from: SmallCluster::settled(),
    });
}

/// FEDERATION, lost logs: any of the three crashes and comes back, before, between and after all that is said.
#[test]
fn every_course_of_a_revocation_and_a_crash() {
    let mut from = SmallCluster::settled();
    from.grants_at(TWO_ADMINS[0]);
    from.delivers_all();
    assert!(from.allows(OWNER));
    from.admins_apart = true;
    check(Course {
        budget: Budget {
            revokes: 1,
            crashes: 1,
            waits: 2,
            ..Budget::default()
        },
        sometimes: &["allowed", "lapsed", "taken back", "owed"],
        from,
    });
}

/// FED-047: an admin that was shut down gracefully is back, and what it says of that arrives or does not.
#[test]
fn every_course_of_an_admin_that_is_back() {
    let mut from = SmallCluster::settled();
    from.grants_at(TWO_ADMINS[0]);
    from.delivers_all();
    from.restarts(TWO_ADMINS[1]);
    assert!(from.allows(OWNER));
    check(Course {
        budget: Budget {
            revokes: 1,
            crashes: 1,
            waits: 2,
            ..Budget::default()
        },
        sometimes: &["allowed", "taken back", "owed"],
        from,
    });
}

/// FED-047: the same, once all know that it is back; then the owner is cut off from it, and begins anew there.
#[test]
fn every_course_of_an_owner_that_is_cut_off_from_an_admin_that_is_back() {
    let mut from = SmallCluster::settled();
    from.grants_at(TWO_ADMINS[0]);
    from.delivers_all();
    from.restarts(TWO_ADMINS[1]);
    from.delivers_all();
    from.owner_apart = true;
    from.crashes(OWNER);
    from.delivers_all();
    from.waits();
    from.delivers_all();
    check(Course {
        budget: Budget {
            revokes: 1,
            crashes: 1,
            waits: 2,
            ..Budget::default()
        },
        sometimes: &["lapsed"],
        from,
    });
}

/// Steps of a course in the usual run: as many as take some seconds.
const STEPS: u64 = 4;

fn check(course: Course) {
    let steps = asked("MGP_SIM_STEPS").unwrap_or(STEPS);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = course.checker().threads(cores);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    // It counts the state that it begins with, and does not look at those of the last step.
    let checker = checker.target_max_depth(usize::try_from(steps).unwrap() + 2);
    let checker = checker.spawn_bfs().join();
    println!(
        "{} states, {} of them different, {} steps deep",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
}
