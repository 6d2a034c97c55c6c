//! The plan against a model that knows only what is wanted, and a world in which supervisors start, fail
//! to start and end.

use proptest::prelude::*;

use super::reload::tests::spec;
use super::*;

const IDS: [&str; 3] = ["a", "b", "c"];

/// What happens from outside; numbers are places in [`IDS`].
#[derive(Clone, Debug)]
enum Step {
    /// The configuration is read: for each id whether it is there, in which version, or broken.
    Configure([Written; 3]),
    Register(usize),
    Deregister(usize),
    /// A supervisor that is there ends.
    End(usize),
    Stopping,
}

#[derive(Clone, Copy, Debug)]
enum Written {
    Absent,
    Version(u8),
    Broken,
}

/// What goes wrong on the way.
#[derive(Clone, Copy, Debug, Default)]
struct Fault {
    defaults: bool,
    start: Option<usize>,
}

fn written() -> impl Strategy<Value = Written> {
    prop_oneof![
        2 => Just(Written::Absent),
        4 => (0u8..2).prop_map(Written::Version),
        1 => Just(Written::Broken),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => [written(), written(), written()].prop_map(Step::Configure),
        3 => (0usize..3).prop_map(Step::Register),
        2 => (0usize..3).prop_map(Step::Deregister),
        4 => (0usize..3).prop_map(Step::End),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let start = prop_oneof![6 => Just(None), 1 => (0usize..3).prop_map(Some)];
    (prop::bool::weighted(0.2), start).prop_map(|(defaults, start)| Fault { defaults, start })
}

/// A supervisor that is there.
#[derive(Clone, Debug, PartialEq)]
enum Supervisor {
    Runs(Box<ServerSpec>),
    Ends,
}

#[derive(Default)]
struct World {
    plan: TreePlan,
    supervisors: BTreeMap<ServerId, Supervisor>,
    broken: BTreeSet<ServerId>,
    defaults: Option<DefaultPolicies>,
    /// The model: what is wanted, and which of it was registered.
    wanted: BTreeMap<ServerId, ServerSpec>,
    registered: BTreeSet<ServerId>,
}

fn reading(servers: Vec<ServerSpec>, broken: Vec<(ServerId, String)>) -> Configuration {
    Configuration {
        servers,
        invalid: broken,
        policy: DefaultPolicy::OptOut,
    }
}

fn id(at: usize) -> ServerId {
    ServerId::new(IDS[at])
}

fn version(at: usize, version: u8) -> ServerSpec {
    spec(IDS[at], &format!("http://{version}"))
}

impl World {
    fn happens(&mut self, event: TreeEvent, fault: Fault) {
        let effects = self.plan.handle(event);
        for effect in effects {
            self.perform(effect, fault);
        }
    }

    fn perform(&mut self, effect: TreeEffect, fault: Fault) {
        match effect {
            TreeEffect::SetDefaults(_) if fault.defaults => {
                self.happens(TreeEvent::DefaultsRejected, fault);
            }
            TreeEffect::SetDefaults(defaults) => {
                self.defaults = Some(defaults);
                self.happens(TreeEvent::DefaultsSet, fault);
            }
            TreeEffect::Stop(id) => {
                if let Some(supervisor) = self.supervisors.get_mut(&id) {
                    *supervisor = Supervisor::Ends;
                }
            }
            TreeEffect::ListInvalid(id, _) => drop(self.broken.insert(id)),
            TreeEffect::Start(spec) => {
                let asked = self.defaults.as_ref().unwrap();
                assert_eq!(asked.servers.get(&spec.id).copied(), spec.default_policy());
                let id = spec.id.clone();
                assert!(!self.supervisors.contains_key(&id), "one at a time");
                if fault.start.is_some_and(|at| IDS[at] == id.as_str()) {
                    self.wanted.remove(&id);
                    self.registered.remove(&id);
                    return self.happens(TreeEvent::StartFailed(id, "no".into()), fault);
                }
                self.broken.remove(&id);
                self.supervisors
                    .insert(id, Supervisor::Runs(Box::new(spec)));
            }
            TreeEffect::ListPending(spec) => {
                assert_eq!(self.supervisors[&spec.id], Supervisor::Ends);
                self.broken.remove(&spec.id);
            }
            TreeEffect::Reconfigure(spec) => {
                if let Supervisor::Runs(runs) = self.supervisors.get_mut(&spec.id).unwrap() {
                    **runs = spec;
                }
            }
            TreeEffect::Unlist(id) => assert!(self.broken.remove(&id)),
            TreeEffect::RestartRoot(_) | TreeEffect::StopKernel => panic!("none was lost"),
        }
    }

    fn step(&mut self, step: Step, fault: Fault) {
        match step {
            Step::Configure(all) => self.configure(all, fault),
            Step::Register(at) => {
                let free = !self.wanted.contains_key(&id(at)) && !self.plan.is_stopping();
                if free && !fault.defaults {
                    self.registered.insert(id(at));
                    self.wanted.insert(id(at), version(at, 9));
                }
                self.happens(TreeEvent::Registered(Box::new(version(at, 9))), fault);
            }
            Step::Deregister(at) => {
                if self.registered.remove(&id(at)) {
                    self.wanted.remove(&id(at));
                }
                self.happens(TreeEvent::Deregistered(id(at)), fault);
            }
            Step::End(at) => {
                if self.supervisors.remove(&id(at)).is_some() {
                    self.happens(TreeEvent::Ended(id(at)), fault);
                }
            }
            Step::Stopping => self.happens(TreeEvent::Stopping, fault),
        }
    }

    fn configure(&mut self, all: [Written; 3], fault: Fault) {
        let mut read = reading(Vec::new(), Vec::new());
        let mut wanted = BTreeMap::new();
        for (at, written) in all.into_iter().enumerate() {
            let before = self.wanted.get(&id(at)).cloned();
            let stays = match written {
                _ if self.registered.contains(&id(at)) => before,
                Written::Absent => None,
                Written::Version(number) => Some(version(at, number)),
                Written::Broken => before,
            };
            wanted.extend(stays.map(|spec| (id(at), spec)));
            match written {
                Written::Absent => {}
                Written::Version(number) => read.servers.push(version(at, number)),
                Written::Broken => read.invalid.push((id(at), "broken".into())),
            }
        }
        if !fault.defaults && !self.plan.is_stopping() {
            self.wanted = wanted;
        }
        let names = self.registered.clone();
        self.happens(TreeEvent::Configured(read, names), fault);
    }

    /// What runs is what is wanted, but for those that are ending; nothing is broken and wanted.
    fn check(&self) {
        assert!(self.plan.desired().eq(self.wanted.keys()));
        for (id, supervisor) in &self.supervisors {
            if let Supervisor::Runs(spec) = supervisor {
                assert_eq!(Some(&**spec), self.wanted.get(id));
            }
        }
        for id in self.wanted.keys() {
            assert_eq!(self.plan.has_registered(id), self.registered.contains(id));
            let stops = self.plan.is_stopping();
            assert!(
                stops || self.supervisors.contains_key(id),
                "{id} does not run"
            );
            assert!(!self.broken.contains(id));
        }
    }
}

proptest! {
    /// Whatever is asked for, refused or fails, in whatever order: what runs is what is wanted.
    #[test]
    fn what_runs_is_what_is_wanted(
        steps in prop::collection::vec((step(), fault()), 0..24),
        stop_after in prop::option::of(0usize..24),
    ) {
        let mut world = World::default();
        for (number, (step, fault)) in steps.into_iter().enumerate() {
            if stop_after == Some(number) {
                world.step(Step::Stopping, Fault::default());
            }
            world.step(step, fault);
            world.check();
        }
    }
}

#[test]
fn a_registered_server_whose_default_policy_is_refused_is_not_started_later() {
    let mut plan = TreePlan::default();
    let one = spec("a", "http://1");
    let asked = plan.handle(TreeEvent::Registered(Box::new(one)));
    assert!(
        matches!(asked[..], [TreeEffect::SetDefaults(_)]),
        "{asked:?}"
    );
    assert_eq!(plan.handle(TreeEvent::DefaultsRejected), []);
    assert_eq!(plan.desired().count(), 0);
    assert_eq!(plan.handle(TreeEvent::DefaultsSet), []);
    let asked = plan.handle(TreeEvent::Configured(
        reading(Vec::new(), Vec::new()),
        BTreeSet::new(),
    ));
    assert!(
        matches!(asked[..], [TreeEffect::SetDefaults(_)]),
        "{asked:?}"
    );
    assert_eq!(plan.handle(TreeEvent::DefaultsSet), []);
}

/// What was shown as broken is a server of its own once that name is registered.
#[test]
fn a_broken_name_that_is_registered_is_not_hidden_as_broken() {
    let mut world = World::default();
    let nothing = [Written::Absent, Written::Absent, Written::Absent];
    let broken = [Written::Broken, Written::Absent, Written::Absent];
    for step in [
        Step::Configure(broken),
        Step::Register(0),
        Step::Deregister(0),
        Step::Configure(nothing),
    ] {
        world.step(step, Fault::default());
        world.check();
    }
}

#[test]
fn a_server_comes_back_only_after_the_one_before_has_ended() {
    let mut plan = TreePlan::default();
    let one = spec("a", "http://1");
    let read = reading(vec![one.clone()], Vec::new());
    plan.handle(TreeEvent::Configured(read.clone(), BTreeSet::new()));
    assert_eq!(
        plan.handle(TreeEvent::DefaultsSet),
        [TreeEffect::Start(one.clone())]
    );
    plan.handle(TreeEvent::Configured(
        reading(Vec::new(), Vec::new()),
        BTreeSet::new(),
    ));
    assert_eq!(
        plan.handle(TreeEvent::DefaultsSet),
        [TreeEffect::Stop(one.id.clone())]
    );
    plan.handle(TreeEvent::Configured(read, BTreeSet::new()));
    assert_eq!(
        plan.handle(TreeEvent::DefaultsSet),
        [TreeEffect::ListPending(one.clone())]
    );
    let started = plan.handle(TreeEvent::Ended(one.id.clone()));
    assert_eq!(started, [TreeEffect::Start(one)]);
}

#[test]
fn a_broken_entry_is_shown_until_it_is_gone_from_the_configuration() {
    let mut plan = TreePlan::default();
    let (broken, none) = (ServerId::new("a"), BTreeSet::new());
    let read = reading(Vec::new(), vec![(broken.clone(), "why".into())]);
    plan.handle(TreeEvent::Configured(read, none.clone()));
    let shown = plan.handle(TreeEvent::DefaultsSet);
    assert_eq!(
        shown,
        [TreeEffect::ListInvalid(broken.clone(), "why".into())]
    );
    plan.handle(TreeEvent::Configured(reading(Vec::new(), Vec::new()), none));
    assert_eq!(
        plan.handle(TreeEvent::DefaultsSet),
        [TreeEffect::Unlist(broken)]
    );
}

#[test]
fn what_is_lost_again_and_again_ends_the_kernel() {
    let mut plan = TreePlan::new();
    let mut lost = |loss, at| {
        let now = MonotonicTime::new(Duration::from_secs(at));
        plan.handle(TreeEvent::RootLost("search", loss, now))
    };
    for at in 0..5 {
        let again = [TreeEffect::RestartRoot("search")];
        assert_eq!(lost(LossPolicy::Restart, at), again);
    }
    assert_eq!(lost(LossPolicy::Restart, 59), [TreeEffect::StopKernel]);
    let again = [TreeEffect::RestartRoot("search")];
    assert_eq!(
        lost(LossPolicy::Restart, 61),
        again,
        "those before are long ago"
    );
    assert_eq!(lost(LossPolicy::StopKernel, 62), [TreeEffect::StopKernel]);
}
