//! What happens in a run: people who grant and revoke, agents who call, machines that fail.

use std::collections::BTreeMap;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::policy::grants::{
    CausalContext, Grant, GrantChange, GrantId, GrantResource, LogChange, LogPosition, LogTip,
    MemberChange, MemberRole, Operation, Revoke, Subject,
};
use mgp_engine::replication::replica::{AllowEnd, ProposalOutcome, Replica};
use mgp_protocol::ids::{NodeAgent, NodeId, ServerId};
use mgp_protocol::mgp::access::Permission;

use crate::machine::{Machine, moment};
use crate::model::withdrawn_grants;
use crate::seeds::Happened;
use crate::world::{
    AcknowledgedRevoke, AllowedCall, AskedWithdrawal, LEASES, World, agent, has_unequal_leases,
    server,
};

/// Things that happen in a run, besides the passing of time.
const EVENTS: u64 = 600;
/// How long it is quiet at the end: every log is exchanged, every lease renewed.
const QUIET_MS: u64 = 180_000;

/// Something that must hold in every run.
pub(crate) trait Invariant {
    /// After every event.
    fn holds(&mut self, world: &World);
    /// After the quiet at the end.
    fn holds_at_the_end(&mut self, _world: &World) {}
}

/// Plays one seed before all invariants; answers what happened in it.
pub(crate) fn play(seed: u64, tells: bool, invariants: &mut [Box<dyn Invariant>]) -> Happened {
    let mut world = World::new(seed, 3 + seed % 5, tells);
    world.join();
    for _ in 0..EVENTS {
        world.event();
        invariants.iter_mut().for_each(|it| it.holds(&world));
        world.calls.clear();
        world.revokes.clear();
        let ms = 1 + world.chance.below(3_000);
        world.pass(ms);
    }
    world.settle();
    for invariant in invariants {
        invariant.holds(&world);
        invariant.holds_at_the_end(&world);
    }
    world.happened
}

impl World {
    fn event(&mut self) {
        let machine = self.any();
        match self.chance.below(1_000) {
            0..376 => self.call(machine),
            376..380 => self.revoke_apart(machine),
            380..400 => self.restart(machine),
            400..550 => self.grant(machine, Permission::Allow),
            550..590 => self.grant(machine, Permission::Deny),
            590..700 => self.revoke(machine),
            700..740 => self.admit(machine),
            740..744 => self.cut(machine),
            744..746 => self.recover(machine),
            746..790 => self.stop(machine),
            790..880 => self.start_one(),
            880..900 => {
                self.tell(|| "the network falls apart".into());
                self.count("the network falls apart");
                let machines = self.machines.len();
                self.network.fall_apart(machines, &mut self.chance);
            }
            900..950 => {
                self.tell(|| "the network is whole".into());
                self.count("the network is whole");
                self.network.heal();
            }
            950..955 => self.clone_machine(machine),
            955..975 => {
                let off = i64::try_from(self.chance.below(600_000)).unwrap() - 300_000;
                self.tell(|| format!("{machine}: its clock is off by {off} ms"));
                self.count("a clock is set");
                self.machines[machine].wall_off_ms = off;
            }
            _ => {
                let ms = self.chance.below(60_000);
                self.tell(|| format!("{ms} ms pass"));
                self.pass(ms);
            }
        }
    }

    fn any(&mut self) -> usize {
        usize::try_from(self.chance.below(self.machines.len() as u64)).unwrap()
    }

    /// A call of something that was granted once, mostly.
    fn call(&mut self, at: usize) {
        let caller = self.any();
        let caller = self.machines[caller]
            .node()
            .agent(agent(self.chance.below(3)));
        let server = server(self.chance.below(2));
        let (caller, on) = match self.chance.pick(&self.wanted) {
            Some(_) if self.watched.is_some() && self.chance.percent(25) => {
                self.watched.clone().unwrap()
            }
            Some(wanted) if self.chance.percent(80) => wanted.clone(),
            Some(_) | None => (caller, self.machines[at].node().server(server)),
        };
        let owners = (0..self.machines.len()).filter(|at| self.machines[*at].node() == on.node);
        for at in owners.collect::<Vec<_>>() {
            self.call_at(at, &caller, &on.server);
        }
    }

    fn call_at(&mut self, at: usize, caller: &NodeAgent, server: &ServerId) {
        let machine = &self.machines[at];
        let Some(replica) = &machine.replica else {
            return;
        };
        if caller.node == machine.node() {
            return;
        }
        let wall_ms = machine.wall_ms(self.now_ms);
        let may = replica.authorize(caller, server, Some("tool"), wall_ms, moment(self.now_ms));
        self.tell(|| format!("{at}: {caller} calls {server}: {may:?}"));
        self.count(match may {
            Ok(_) => "a call is allowed",
            Err(_) => "a call is refused",
        });
        if let Ok(grant) = may {
            let held = self.held(at);
            if held.allows(grant).any(|(_, grant)| grant.is_pattern()) {
                self.count("a call is allowed by a pattern");
            }
            self.calls.push(AllowedCall {
                at_ms: self.now_ms,
                machine: at,
                caller: caller.clone(),
                server: server.clone(),
                grant,
                held,
            });
        }
    }

    fn grant(&mut self, at: usize, permission: Permission) {
        let (home, owner) = (self.any(), self.any());
        let (home, owner) = (self.machines[home].node(), self.machines[owner].node());
        let (caller, server) = (agent(self.chance.below(3)), server(self.chance.below(2)));
        // Mostly something that was granted before, by whomever.
        let wanted = match self.chance.pick(&self.wanted) {
            Some(wanted) if self.chance.percent(60) => wanted.clone(),
            Some(_) | None => (home.agent(caller), owner.server(server)),
        };
        let on = wanted.1.clone();
        let resource = match self.chance.percent(30) {
            true => GrantResource::Tool(on, "tool".into()),
            false if self.chance.percent(20) => {
                let pattern = *self.chance.pick(&["t*", "to*", "x*"]).unwrap();
                GrantResource::Tools(on, pattern.to_owned().try_into().unwrap())
            }
            false => GrantResource::Server(on),
        };
        let subject = match self.chance.below(8) {
            0 => Subject::AgentsAt(wanted.0.node),
            1 => Subject::AgentEverywhere(wanted.0.agent.clone()),
            _ => Subject::Agent(wanted.0.clone()),
        };
        let wall_ms = self.machines[at].wall_ms(self.now_ms);
        let ends = self.chance.percent(20);
        let replaces = if self.chance.percent(10) {
            self.chance.pick(&self.grants).copied()
        } else {
            None
        };
        let id = GrantId(self.chance.bytes());
        let mut grant = Grant {
            id,
            subject,
            resource,
            permission,
            not_after_ms: ends.then(|| wall_ms + self.chance.below(60_000)),
            told_by: None,
            justification: None,
            replaces: replaces.into_iter().collect(),
            when: None,
        };
        if grant.is_pattern() {
            grant.replaces.clear();
            self.count("a grant has a pattern");
        }
        let known = self.held(at);
        if self.propose(at, LogChange::Grants(GrantChange::Grant(grant))) {
            self.known_at_grant.insert(id, known);
            self.grants.push(id);
            self.wanted.push(wanted);
        }
    }

    fn revoke(&mut self, at: usize) {
        let Some(id) = self.chance.pick(&self.grants).copied() else {
            return;
        };
        let revoke = Revoke::Ids(vec![id]);
        self.propose(at, LogChange::Grants(GrantChange::Revoke(revoke)));
    }

    fn admit(&mut self, at: usize) {
        let other = self.any();
        self.admit_at(at, other);
    }

    fn admit_at(&mut self, at: usize, other: usize) {
        let role = *self
            .chance
            .pick(&[MemberRole::Admin, MemberRole::Member, MemberRole::Admin])
            .unwrap();
        let key = self.machines[other].pen.public();
        let name = format!("node-{other}");
        let by = self.machines[at].node();
        if self.propose(
            at,
            LogChange::Members(MemberChange::Admit { key, role, name }),
        ) {
            // The ticket names who admits.
            self.machines[other].hints.insert(by);
            let now_ms = self.now_ms;
            if let Some(replica) = &mut self.machines[other].replica {
                replica.add_invite_hint(by);
            }
            let effects = self.machines[other].act(now_ms, &mut self.chance, |replica, means| {
                replica.handle_link_up(by, means)
            });
            self.perform(other, effects);
        }
    }

    fn cut(&mut self, at: usize) {
        let other = self.any();
        let node = self.machines[other].node();
        let Some(replica) = &self.machines[at].replica else {
            return;
        };
        let tip = replica.logs().grants().tip(node);
        let at_tip = if self.chance.percent(10) {
            LogTip::EMPTY
        } else {
            tip
        };
        let cut = MemberChange::Cut {
            node,
            at: at_tip,
            stays_as: None,
        };
        if self.propose(at, LogChange::Members(cut)) {
            self.count("a node is cut off");
        }
    }

    /// Proposes, and mostly waits until it is on disk, which acknowledges it.
    fn propose(&mut self, at: usize, change: LogChange) -> bool {
        let now_ms = self.now_ms;
        let wall_ms = self.machines[at].wall_ms(now_ms);
        let takes = match change.grants() {
            Some(GrantChange::Revoke(Revoke::Ids(ids))) => ids.iter().copied().collect(),
            Some(GrantChange::Grant(_) | GrantChange::Revoke(Revoke::UpTo { .. })) | None => {
                Default::default()
            }
        };
        let withdrawn = withdrawn_grants(&change).map(|grants| (grants, self.held(at)));
        let mut done = None;
        let said = self.tells.then(|| format!("{change:?}"));
        let effects =
            self.machines[at].act(now_ms, &mut self.chance, |replica, means| {
                match replica.propose(change, "operator", wall_ms, means) {
                    Ok((proposed, effects)) => {
                        done = Some(proposed);
                        effects
                    }
                    Err(_) => Vec::new(),
                }
            });
        self.tell(|| format!("{at}: {done:?} {}", said.unwrap_or_default()));
        if done.is_some() {
            self.count("a change is proposed");
        }
        self.perform(at, effects);
        let acknowledged = done.is_some() && self.chance.percent(90);
        if let Some((grants, known)) = withdrawn.filter(|_| done.is_some()) {
            self.withdrawals.push(AskedWithdrawal {
                machine: at,
                by: self.machines[at].node(),
                acknowledged,
                grants,
                known,
            });
        }
        if acknowledged {
            self.sync(at);
            let answer = self.answer(at, done);
            for ends in answer.values() {
                self.count(match ends {
                    Some(_) => "a revoke is bounded at a node that lacks it",
                    None => "a revoke is not bounded at a node that lacks it",
                });
            }
            self.revokes.push(AcknowledgedRevoke {
                at_ms: self.now_ms,
                machine: at,
                by: self.machines[at].node(),
                signed: matches!(done, Some(ProposalOutcome::Signed(_))),
                grants: takes,
                answer,
            });
        }
        done.is_some()
    }

    /// What is answered of the nodes that have not confirmed it.
    fn answer(&self, at: usize, done: Option<ProposalOutcome>) -> BTreeMap<NodeId, Option<u64>> {
        let (Some(ProposalOutcome::Signed(place)), Some(replica)) =
            (done, &self.machines[at].replica)
        else {
            return BTreeMap::new();
        };
        let missing = replica.confirmation(place.sequence).missing;
        let missing = missing.into_iter();
        let answer = missing.map(|(node, end)| match end {
            AllowEnd::NoLaterThan(end) => (node, Some(milliseconds(end))),
            AllowEnd::UnknownLease | AllowEnd::Unbounded => (node, None),
        });
        answer.collect()
    }

    /// A person takes the recovery key from the drawer, at a machine that knows all of its log.
    fn recover(&mut self, at: usize) {
        let other = self.any();
        let Some(replica) = &self.machines[at].replica else {
            return;
        };
        let issuer = self.recovery.node();
        let (sequence, previous) = replica.logs().grants().next_position(issuer);
        if sequence != self.recovered {
            return;
        }
        self.recovered += 1;
        let signed = self.recovery.sign(Operation {
            cluster: Some(self.cluster),
            place: LogPosition { issuer, sequence },
            previous,
            author: "operator".into(),
            told_at_ms: 0,
            change: LogChange::Members(MemberChange::Recover {
                key: self.machines[other].pen.public(),
                name: "recovered".into(),
            }),
            context: CausalContext::default(),
        });
        self.tell(|| format!("{at}: the recovery key admits {other}"));
        self.count("a key is recovered");
        let effects = self.machines[at].act(self.now_ms, &mut self.chance, |replica, means| {
            replica.handle_entries(&[signed], means)
        });
        self.perform(at, effects);
        self.sync(at);
    }

    fn start_one(&mut self) {
        let stopped = (0..self.machines.len()).filter(|at| self.machines[*at].replica.is_none());
        let stopped: Vec<usize> = stopped.collect();
        if let Some(at) = self.chance.pick(&stopped) {
            self.tell(|| format!("{at}: starts"));
            *self.happened.entry("a machine starts").or_default() += 1;
            self.start(*at);
        }
    }

    fn start(&mut self, at: usize) {
        if has_unequal_leases(self.seed) && self.chance.percent(20) {
            self.machines[at].lease = *self.chance.pick(&LEASES).unwrap();
        }
        let (chance, reader) = (&mut self.chance, &mut self.reader);
        self.machines[at].start(self.cluster, chance, reader);
    }

    fn stop(&mut self, at: usize) {
        if self.machines[at].replica.is_none() {
            return;
        }
        match self.chance.below(3) {
            0 => self.shut_down(at),
            _ => self.crash(at),
        }
    }

    /// An admin that was perhaps shut down a while ago revokes what an owner allows that it does not reach, and that
    /// is perhaps started anew there.
    fn revoke_apart(&mut self, admin: usize) {
        let owner = self.any();
        let node = self.machines[owner].node();
        let all = self.wanted.iter().zip(&self.grants);
        let there = all.filter(|((_, on), _)| on.node == node);
        let there: Vec<_> = there.map(|(wanted, id)| (wanted.clone(), *id)).collect();
        let Some((wanted, id)) = self.chance.pick(&there).cloned() else {
            return;
        };
        if admin == owner || self.machines[admin].replica.is_none() {
            return;
        }
        if self.chance.percent(70) {
            self.shut_down(admin);
            self.start(admin);
            for _ in 0..self.chance.below(15) {
                self.pass(1_000);
            }
        }
        self.tell(|| format!("{admin} and {owner} do not reach each other"));
        self.count("an admin revokes what it does not reach");
        let machines = self.machines.len();
        self.network
            .separate((admin, owner), machines, &mut self.chance);
        if self.chance.percent(50) {
            self.restart(owner);
        }
        self.watched = Some(wanted);
        let revoke = Revoke::Ids(vec![id]);
        self.propose(admin, LogChange::Grants(GrantChange::Revoke(revoke)));
    }

    /// A machine ends and starts at once, as with an update.
    fn restart(&mut self, at: usize) {
        if self.machines[at].replica.is_none() {
            return;
        }
        if self.chance.percent(50) {
            self.shut_down(at)
        } else {
            self.crash(at)
        }
        self.tell(|| format!("{at}: starts again"));
        self.count("a machine restarts");
        self.start(at);
    }

    fn shut_down(&mut self, at: usize) {
        self.clocks.retain(|(by, _), _| *by != at);
        self.propose(at, Replica::shutdown_change());
        self.sync(at);
        self.tell(|| format!("{at}: stops in good order"));
        self.count("a machine stops in good order");
        self.machines[at].crash(u64::MAX >> 1);
    }

    fn crash(&mut self, at: usize) {
        self.clocks.retain(|(by, _), _| *by != at);
        let kept = self.chance.below(4);
        self.tell(|| format!("{at}: crashes with {kept} writes kept"));
        let lost = self.machines[at].unsynced() as u64 > kept;
        self.count(if lost {
            "a crash loses writes"
        } else {
            "a crash loses nothing"
        });
        self.machines[at].crash(kept);
    }

    /// The founder admits the others, and all of them hear of it.
    fn join(&mut self) {
        for other in 1..self.machines.len() {
            if self.chance.percent(90) {
                self.admit_at(0, other);
            }
            self.pass(1_000);
        }
        for _ in 0..60 {
            self.pass(1_000);
        }
    }

    /// Another machine with the same key and a copy of the disk: at most two in a run.
    fn clone_machine(&mut self, at: usize) {
        if self.machines.iter().any(|machine| machine.cloned) || self.seed.is_multiple_of(2) {
            return;
        }
        self.tell(|| format!("{at}: is cloned as {}", self.machines.len()));
        self.count("a machine is cloned");
        let original = &mut self.machines[at];
        original.cloned = true;
        let mut copy = Machine::new(original.pen.clone(), original.lease);
        copy.disk.entries = original.disk.entries.clone();
        copy.disk.owed = original.disk.owed.clone();
        copy.hints = original.hints.clone();
        copy.cloned = true;
        self.machines.push(copy);
        self.start(self.machines.len() - 1);
    }

    /// Everything works again, and nobody does anything.
    fn settle(&mut self) {
        self.tell(|| "quiet".into());
        self.network.heal();
        self.network.loss = 0;
        for at in 0..self.machines.len() {
            if self.machines[at].replica.is_none() {
                self.start(at);
            }
        }
        let end = self.now_ms + QUIET_MS;
        while self.now_ms < end {
            self.pass(1_000);
        }
    }
}

fn milliseconds(at: MonotonicTime) -> u64 {
    let since = at.duration_since(MonotonicTime::START);
    u64::try_from(since.as_nanos().div_ceil(1_000_000)).unwrap()
}
