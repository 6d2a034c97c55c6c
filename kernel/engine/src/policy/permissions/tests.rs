use mgp_protocol::mgp::permission::Standard;
use proptest::prelude::*;

use super::*;
use crate::policy::grants::{
    Authority, CausalContext, EncodedOperation, GrantId, Grants, LogChange, LogPosition, Operation,
};
use mgp_protocol::ids::{NodeId, ServerId};

const NOW: u64 = 1000;

fn words(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn permission(name: &str) -> PermissionType {
    PermissionType::parse_all(name).remove(0)
}

fn rules(policy: Policy) -> PermissionRules {
    PermissionRules {
        policy,
        configured: BTreeSet::new(),
        exceptions: BTreeSet::new(),
        all_or_nothing: false,
    }
}

fn gate(policy: Policy) -> PermissionGate {
    PermissionGate::new(rules(policy), BTreeMap::new())
}

fn answers(pairs: &[(&str, Verdict)]) -> BTreeMap<PermissionType, Verdict> {
    pairs
        .iter()
        .map(|(name, verdict)| (permission(name), *verdict))
        .collect()
}

fn may(gate: &PermissionGate, name: &str) -> bool {
    gate.check(&words(&[name]), NOW).is_ok()
}

/// MGP-031, MGP-035, MGP-039: under `interactive` the server waits, and has nothing until then.
#[test]
fn interactive_waits_for_the_operator() {
    let mut gate = gate(Policy::Interactive);
    let effects = gate.require(&words(&["shell", "camera"]), "perm-1", NOW);
    let ask = Ask {
        request_id: "perm-1".into(),
        permissions: words(&["shell.execute", "camera"]),
        policy: Some(Policy::Interactive),
        message: Some("Waiting for operator approval".into()),
    };
    assert_eq!(effects, [PermissionEffect::Request(ask)]);
    assert!(matches!(gate.status(), PermissionStatus::Pending(open) if open.len() == 2));
    let lacking = gate.check(&words(&["shell"]), NOW).unwrap_err();
    assert!(lacking.is_pending, "{lacking}");
    assert!(
        gate.require(&words(&["shell.execute"]), "perm-2", NOW)
            .is_empty(),
        "asked already"
    );
    let decided = answers(&[("shell", Verdict::Approved), ("camera", Verdict::Denied)]);
    let effects = gate.decide("perm-1", &decided, "op", None, NOW).unwrap();
    assert_eq!(effects.len(), 3);
    assert_eq!(effects[2], PermissionEffect::Withdraw("perm-1".into()));
    assert_eq!(gate.status(), PermissionStatus::Ready);
    assert!(may(&gate, "shell") && !may(&gate, "camera"));
}

/// MGP-036: everything at once, but for what is excepted.
#[test]
fn auto_approve_approves_all_but_its_exceptions() {
    let mut all = gate(Policy::AutoApprove);
    assert_eq!(
        all.require(&words(&["shell", "com.x.y"]), "p", NOW).len(),
        2
    );
    assert_eq!(all.status(), PermissionStatus::Ready);
    assert!(may(&all, "shell") && may(&all, "com.x.y"));
    assert!(!may(&all, "camera"), "never asked for");
    let mut rules = rules(Policy::AutoApprove);
    rules.exceptions.insert(permission("shell"));
    let mut some = PermissionGate::new(rules, BTreeMap::new());
    some.require(&words(&["shell", "camera"]), "p", NOW);
    assert_eq!(
        some.status(),
        PermissionStatus::Pending(vec![permission("shell")])
    );
    assert!(may(&some, "camera"));
}

/// MGP-037, MGP-038: only what the configuration lists, and nobody is asked.
#[test]
fn the_configuration_decides_alone_where_it_shall() {
    for policy in [Policy::DenyAll, Policy::ConfigOnly] {
        let mut rules = rules(policy);
        rules.configured.insert(permission("camera"));
        let mut gate = PermissionGate::new(rules, BTreeMap::new());
        let effects = gate.require(&words(&["camera", "shell"]), "p", NOW);
        assert!(
            !effects
                .iter()
                .any(|effect| matches!(effect, PermissionEffect::Request(_)))
        );
        assert!(may(&gate, "camera") && !may(&gate, "shell"));
        assert_eq!(gate.status(), PermissionStatus::Ready);
    }
}

/// MGP-043, MGP-270: a server that is denied something runs without, or not at all.
#[test]
fn a_server_that_is_denied_runs_without_or_not_at_all() {
    let mut strict = rules(Policy::ConfigOnly);
    strict.all_or_nothing = true;
    let mut gate = PermissionGate::new(strict, BTreeMap::new());
    gate.require(&words(&["shell"]), "p", NOW);
    assert_eq!(
        gate.status(),
        PermissionStatus::Rejected(vec![permission("shell")])
    );
}

/// MGP-044: put off, the server runs without it, and the question stays open.
#[test]
fn what_is_deferred_can_be_approved_later() {
    let mut gate = gate(Policy::Interactive);
    gate.require(&words(&["shell"]), "p", NOW);
    let later = answers(&[("shell", Verdict::Deferred)]);
    assert!(
        gate.decide("p", &later, "op", None, NOW)
            .unwrap()
            .is_empty()
    );
    assert_eq!(gate.status(), PermissionStatus::Ready);
    assert!(!may(&gate, "shell"));
    let told = gate.to_decision("p", &words(&["shell"]));
    assert_eq!(told.grants["shell"].verdict(), Verdict::Deferred);
    let yes = answers(&[("shell", Verdict::Approved)]);
    gate.decide("p", &yes, "op", None, NOW).unwrap();
    assert!(may(&gate, "shell"));
}

/// MGP-045: an approval ends, is told of, and is asked for again when it is needed again.
#[test]
fn an_approval_ends_at_its_end() {
    let mut gate = gate(Policy::Interactive);
    gate.require(&words(&["shell"]), "p", NOW);
    let yes = answers(&[("shell", Verdict::Approved)]);
    assert_eq!(
        gate.decide("p", &yes, "op", Some(NOW), NOW),
        Err(DecisionError::AlreadyExpired)
    );
    gate.decide("p", &yes, "op", Some(2000), NOW).unwrap();
    assert_eq!(gate.next_expiry_ms(), Some(2000));
    let needs = words(&["shell"]);
    assert!(gate.check(&needs, 1999).is_ok());
    assert!(gate.check(&needs, 2000).is_err(), "before any tick");
    assert!(gate.expire(1999).is_empty());
    let ended = PermissionEffect::Revoked {
        permission: permission("shell"),
        decided_by: None,
    };
    assert_eq!(gate.expire(2000), [ended]);
    assert!(
        gate.check(&needs, 0).is_err(),
        "a clock that goes back brings nothing back"
    );
    assert!(matches!(
        gate.require(&needs, "q", 2001)[..],
        [PermissionEffect::Request(_)]
    ));
}

/// MGP-046: taken back by a person, it is not given again by a policy; calls that wait see that
/// something changed.
#[test]
fn what_is_revoked_stays_so() {
    let mut gate = gate(Policy::AutoApprove);
    gate.require(&words(&["shell"]), "p", NOW);
    let before = gate.generation();
    let effects = gate.revoke(&permission("shell"), "op");
    assert!(
        matches!(&effects[..], [PermissionEffect::Revoked { decided_by: Some(by), .. }] if by == "op")
    );
    assert_ne!(gate.generation(), before);
    assert!(gate.require(&words(&["shell"]), "q", NOW).is_empty());
    assert!(!may(&gate, "shell"));
    assert!(gate.revoke(&permission("shell"), "op").is_empty());
}

/// An answer is for the question that is open and for what it asked.
#[test]
fn an_answer_to_another_question_changes_nothing() {
    let mut gate = gate(Policy::Interactive);
    gate.require(&words(&["shell"]), "p", NOW);
    let before = gate.clone();
    for (request, name) in [("q", "shell"), ("p", "camera")] {
        let verdicts = answers(&[("shell", Verdict::Approved), (name, Verdict::Approved)]);
        assert!(gate.decide(request, &verdicts, "op", None, NOW).is_err());
    }
    assert_eq!(gate, before);
}

/// MGP-034, MGP-041: the server is told in its own words; a short form stands for all it means.
#[test]
fn a_server_is_told_in_its_own_spelling() {
    let mut gate = gate(Policy::Interactive);
    let said = words(&["filesystem", "shell"]);
    gate.require(&said, "p", NOW);
    let verdicts = answers(&[
        ("filesystem.read", Verdict::Approved),
        ("filesystem.write", Verdict::Denied),
        ("shell.execute", Verdict::Approved),
    ]);
    gate.decide("p", &verdicts, "admin", Some(1_772_323_200_000), NOW)
        .unwrap();
    let told = serde_json::to_value(gate.to_decision("p", &said)).unwrap();
    assert_eq!(
        told,
        serde_json::json!({"request_id": "p",
            "grants": {"filesystem": "denied", "shell": "approved"},
            "approved_by": "admin", "expires_at": "2026-03-01T00:00:00.000Z"})
    );
}

/// MGP-082: decisions are grants of the log, and a new life of the server begins with them.
#[test]
fn decisions_outlive_the_server() {
    let issuer = NodeId([1; 32]);
    let authority = Authority::with_local_issuer(issuer);
    let server = ServerId::new("files");
    let shell = permission("shell");
    let mut grants = Grants::default();
    let mut write = |verdict, until, n| {
        let id = GrantId([n; 16]);
        let change = to_grant_change(&grants, &authority, &server, &shell, verdict, until, id);
        if let Some(change) = change {
            let (sequence, previous) = grants.next_position(issuer);
            let place = LogPosition { issuer, sequence };
            let author = "op".to_owned();
            let operation = Operation {
                cluster: None,
                place,
                previous,
                author,
                told_at_ms: 0,
                change: LogChange::Grants(change),
                context: CausalContext::default(),
            };
            grants.apply(&EncodedOperation::new(operation)).unwrap();
        }
        decisions_in_force(&grants, &authority, &server, NOW)
    };
    for (n, verdict, allowed) in [
        (1, Verdict::Approved, true),
        (2, Verdict::Denied, false),
        (3, Verdict::Deferred, false),
    ] {
        let mut gate = PermissionGate::new(rules(Policy::AutoApprove), write(verdict, None, n));
        gate.require(&words(&["shell"]), "p", NOW);
        assert_eq!(may(&gate, "shell"), allowed);
    }
    assert!(write(Verdict::Approved, Some(NOW), 4).is_empty(), "ended");
}

#[test]
fn beyond_the_bound_nothing_is_given() {
    let mut gate = gate(Policy::AutoApprove);
    let many: Vec<String> = (0..=NEEDS_MAX).map(|n| format!("com.x.p{n}")).collect();
    gate.require(&many, "p", NOW);
    assert!(may(&gate, "com.x.p0") && !may(&gate, &many[NEEDS_MAX]));
}

proptest! {
    /// Whatever happens, a server has only what was approved, has not ended and was not taken back.
    #[test]
    fn a_permission_that_ended_or_was_taken_back_is_not_there(
        policy in 0_usize..4,
        events in proptest::collection::vec((0_u8..4, 0_usize..3, 0_usize..3, proptest::option::of(0_u64..60)), 0..25),
    ) {
        let policies = [Policy::Interactive, Policy::AutoApprove, Policy::DenyAll, Policy::ConfigOnly];
        let mut gate = gate(policies[policy]);
        let mut has: BTreeMap<PermissionType, Option<u64>> = BTreeMap::new();
        let mut now = 0;
        for (event, which, verdict, until) in events {
            now += 3;
            let permission = PermissionType::Standard(Standard::ALL[which]);
            let word = words(&[permission.as_str()]);
            let effects = match event {
                0 => gate.require(&word, "p", now),
                1 => {
                    let verdict = [Verdict::Approved, Verdict::Deferred, Verdict::Denied][verdict];
                    let verdicts = BTreeMap::from([(permission, verdict)]);
                    gate.decide("p", &verdicts, "op", until, now).unwrap_or_default()
                }
                2 => gate.revoke(&permission, "op"),
                _ => gate.expire(now),
            };
            for effect in effects {
                match effect {
                    PermissionEffect::Granted { permission, expires_ms, .. } => {
                        has.insert(permission, expires_ms);
                    }
                    PermissionEffect::Revoked { permission, .. } | PermissionEffect::Denied { permission, .. } => {
                        has.remove(&permission);
                    }
                    PermissionEffect::Request(_) | PermissionEffect::Withdraw(_) => {}
                }
            }
            for standard in Standard::ALL {
                let permission = PermissionType::Standard(standard);
                let expected = has.get(&permission).is_some_and(|end| end.is_none_or(|end| now < end));
                let found = gate.check(&words(&[permission.as_str()]), now).is_ok();
                prop_assert_eq!(found, expected, "{}", permission);
            }
        }
    }
}
