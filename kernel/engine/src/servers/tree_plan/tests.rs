//! The plan against a model of the desired servers, in a world where supervisors start, fail to start and end.

use proptest::prelude::*;

use super::reload::tests::spec;
use super::*;

const IDS: [&str; 3] = ["a", "b", "c"];

/// An external event; numbers are indices into [`IDS`].
#[derive(Clone, Debug)]
enum Step {
    /// The configuration is read, with an entry for each id.
    Configure([Entry; 3]),
    Register(usize),
    Deregister(usize),
    /// A supervisor ends.
    End(usize),
    Stopping,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Absent,
    Version(u8),
    Invalid,
}

/// Failures injected into a step.
#[derive(Clone, Copy, Debug, Default)]
struct Fault {
    defaults: bool,
    start: Option<usize>,
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        2 => Just(Entry::Absent),
        4 => (0u8..2).prop_map(Entry::Version),
        1 => Just(Entry::Invalid),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => [entry(), entry(), entry()].prop_map(Step::Configure),
        3 => (0usize..3).prop_map(Step::Register),
        2 => (0usize..3).prop_map(Step::Deregister),
        4 => (0usize..3).prop_map(Step::End),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let start = prop_oneof![6 => Just(None), 1 => (0usize..3).prop_map(Some)];
    (prop::bool::weighted(0.2), start).prop_map(|(defaults, start)| Fault { defaults, start })
}

#[derive(Clone, Debug, PartialEq)]
enum Supervisor {
    Runs(Box<ServerSpec>),
    Ends,
}

#[derive(Default)]
struct World {
    plan: TreePlan,
    supervisors: BTreeMap<ServerId, Supervisor>,
    listed_invalid: BTreeSet<ServerId>,
    defaults: Option<DefaultPolicies>,
    /// The model: the desired servers, and which of them are registered.
    desired: BTreeMap<ServerId, ServerSpec>,
    registered: BTreeSet<ServerId>,
}

fn configuration(servers: Vec<ServerSpec>, invalid: Vec<(ServerId, String)>) -> Configuration {
    Configuration {
        servers,
        invalid,
        policy: DefaultPolicies {
            kernel: DefaultPolicy::OptOut,
            servers: std::collections::HashMap::new(),
            group: None,
        },
    }
}

fn id(index: usize) -> ServerId {
    ServerId::new(IDS[index])
}

fn version(index: usize, version: u8) -> ServerSpec {
    spec(IDS[index], &format!("http://{version}"))
}

impl World {
    fn handle(&mut self, event: TreeEvent, fault: Fault) {
        let effects = self.plan.handle(event);
        for effect in effects {
            self.perform(effect, fault);
        }
    }

    fn perform(&mut self, effect: TreeEffect, fault: Fault) {
        match effect {
            TreeEffect::SetDefaults(_) if fault.defaults => {
                self.handle(TreeEvent::DefaultsRejected, fault);
            }
            TreeEffect::SetDefaults(defaults) => {
                self.defaults = Some(defaults);
                self.handle(TreeEvent::DefaultsSet, fault);
            }
            TreeEffect::Stop(id) => {
                if let Some(supervisor) = self.supervisors.get_mut(&id) {
                    *supervisor = Supervisor::Ends;
                }
            }
            TreeEffect::ListInvalid(id, _) => drop(self.listed_invalid.insert(id)),
            TreeEffect::Start(spec) => {
                let asked = self.defaults.as_ref().unwrap();
                assert_eq!(asked.servers.get(&spec.id).copied(), spec.default_policy());
                let id = spec.id.clone();
                assert!(!self.supervisors.contains_key(&id), "one at a time");
                if fault.start.is_some_and(|at| IDS[at] == id.as_str()) {
                    self.desired.remove(&id);
                    self.registered.remove(&id);
                    return self.handle(TreeEvent::StartFailed(id, "no".into()), fault);
                }
                self.listed_invalid.remove(&id);
                self.supervisors
                    .insert(id, Supervisor::Runs(Box::new(spec)));
            }
            TreeEffect::ListPending(spec) => {
                assert_eq!(self.supervisors[&spec.id], Supervisor::Ends);
                self.listed_invalid.remove(&spec.id);
            }
            TreeEffect::Reconfigure(spec) => {
                if let Supervisor::Runs(runs) = self.supervisors.get_mut(&spec.id).unwrap() {
                    **runs = spec;
                }
            }
            TreeEffect::Unlist(id) => assert!(self.listed_invalid.remove(&id)),
            TreeEffect::RestartRoot(_) | TreeEffect::StopKernel => panic!("none was lost"),
        }
    }

    fn step(&mut self, step: Step, fault: Fault) {
        match step {
            Step::Configure(all) => self.configure(all, fault),
            Step::Register(at) => {
                let free = !self.desired.contains_key(&id(at)) && !self.plan.is_stopping();
                if free && !fault.defaults {
                    self.registered.insert(id(at));
                    self.desired.insert(id(at), version(at, 9));
                }
                self.handle(TreeEvent::Registered(Box::new(version(at, 9))), fault);
            }
            Step::Deregister(at) => {
                if self.registered.remove(&id(at)) {
                    self.desired.remove(&id(at));
                }
                self.handle(TreeEvent::Deregistered(id(at)), fault);
            }
            Step::End(at) => {
                if self.supervisors.remove(&id(at)).is_some() {
                    self.handle(TreeEvent::Ended(id(at)), fault);
                }
            }
            Step::Stopping => self.handle(TreeEvent::Stopping, fault),
        }
    }

    fn configure(&mut self, all: [Entry; 3], fault: Fault) {
        let mut read = configuration(Vec::new(), Vec::new());
        let mut desired = BTreeMap::new();
        for (at, entry) in all.into_iter().enumerate() {
            let before = self.desired.get(&id(at)).cloned();
            let stays = match entry {
                _ if self.registered.contains(&id(at)) => before,
                Entry::Absent => None,
                Entry::Version(number) => Some(version(at, number)),
                Entry::Invalid => before,
            };
            desired.extend(stays.map(|spec| (id(at), spec)));
            match entry {
                Entry::Absent => {}
                Entry::Version(number) => read.servers.push(version(at, number)),
                Entry::Invalid => read.invalid.push((id(at), "broken".into())),
            }
        }
        if !fault.defaults && !self.plan.is_stopping() {
            self.desired = desired;
        }
        let names = self.registered.clone();
        self.handle(TreeEvent::Configured(read, names), fault);
    }

    /// Exactly the desired servers run, except for ending ones; none of them is listed as invalid.
    fn check(&self) {
        assert!(self.plan.desired().eq(self.desired.keys()));
        for (id, supervisor) in &self.supervisors {
            if let Supervisor::Runs(spec) = supervisor {
                assert_eq!(Some(&**spec), self.desired.get(id));
            }
        }
        for id in self.desired.keys() {
            assert_eq!(self.plan.has_registered(id), self.registered.contains(id));
            let stops = self.plan.is_stopping();
            assert!(
                stops || self.supervisors.contains_key(id),
                "{id} does not run"
            );
            assert!(!self.listed_invalid.contains(id));
        }
    }
}

proptest! {
    /// In any order of requests, rejections and failures.
    #[test]
    fn exactly_the_desired_servers_run(
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
fn a_registered_server_with_a_rejected_default_policy_is_never_started() {
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
        configuration(Vec::new(), Vec::new()),
        BTreeSet::new(),
    ));
    assert!(
        matches!(asked[..], [TreeEffect::SetDefaults(_)]),
        "{asked:?}"
    );
    assert_eq!(plan.handle(TreeEvent::DefaultsSet), []);
}

#[test]
fn registering_an_invalid_name_replaces_its_entry() {
    let mut world = World::default();
    let nothing = [Entry::Absent, Entry::Absent, Entry::Absent];
    let broken = [Entry::Invalid, Entry::Absent, Entry::Absent];
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
fn a_server_starts_again_only_after_the_previous_one_has_ended() {
    let mut plan = TreePlan::default();
    let one = spec("a", "http://1");
    let read = configuration(vec![one.clone()], Vec::new());
    plan.handle(TreeEvent::Configured(read.clone(), BTreeSet::new()));
    assert_eq!(
        plan.handle(TreeEvent::DefaultsSet),
        [TreeEffect::Start(one.clone())]
    );
    plan.handle(TreeEvent::Configured(
        configuration(Vec::new(), Vec::new()),
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
fn an_invalid_entry_is_listed_until_the_configuration_drops_it() {
    let mut plan = TreePlan::default();
    let (broken, none) = (ServerId::new("a"), BTreeSet::new());
    let read = configuration(Vec::new(), vec![(broken.clone(), "why".into())]);
    plan.handle(TreeEvent::Configured(read, none.clone()));
    let shown = plan.handle(TreeEvent::DefaultsSet);
    assert_eq!(
        shown,
        [TreeEffect::ListInvalid(broken.clone(), "why".into())]
    );
    plan.handle(TreeEvent::Configured(
        configuration(Vec::new(), Vec::new()),
        none,
    ));
    assert_eq!(
        plan.handle(TreeEvent::DefaultsSet),
        [TreeEffect::Unlist(broken)]
    );
}

#[test]
fn repeated_loss_of_root_actors_stops_the_kernel() {
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
        "earlier restarts have left the window"
    );
    assert_eq!(lost(LossPolicy::StopKernel, 62), [TreeEffect::StopKernel]);
}
