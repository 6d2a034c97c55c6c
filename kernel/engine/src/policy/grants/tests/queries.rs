//! What is read of the logs beside what counts: places, names, who rests, and what was shed.

use super::*;

/// A log of changes of any kind.
fn log_of(by: u8, changes: Vec<LogChange>) -> Vec<EncodedOperation> {
    let mut previous = OperationId::START;
    let operations = (0..).zip(changes).map(|(sequence, change)| {
        let operation = EncodedOperation::new(Operation {
            cluster: None,
            place: LogPosition {
                issuer: issuer(by),
                sequence,
            },
            previous,
            author: "admin".into(),
            told_at_ms: 1000 + sequence,
            change,
            context: CausalContext::default(),
        });
        previous = operation.id();
        operation
    });
    operations.collect()
}

fn rest() -> LogChange {
    LogChange::Members(MemberChange::Rest {})
}

fn key(operation: &EncodedOperation) -> LogKey {
    (operation.position().sequence, operation.id())
}

/// The certain part has an end at each place; what waits behind a gap is known, and not certain.
#[test]
fn a_log_is_read_from_any_place() {
    let all = log(1, vec![allow(1), allow(2), allow(3), allow(4), allow(5)]);
    let grants = applied([&all[0], &all[1], &all[3], &all[4]]);
    let tip = |next: u64, id| Some(LogTip { next, id });
    let at = |next| grants.tip_at(issuer(1), next);
    assert_eq!(at(0), Some(LogTip::EMPTY));
    assert_eq!(at(1), tip(1, all[0].id()));
    assert_eq!(at(2), tip(2, all[1].id()));
    assert_eq!((at(3), at(5)), (None, None));
    assert_eq!(Some(grants.tip(issuer(1))), at(2));
    assert_eq!(grants.next_position(issuer(1)), (2, all[1].id()));
    let nobody = |next| grants.tip_at(issuer(2), next);
    assert_eq!((nobody(0), nobody(1)), (Some(LogTip::EMPTY), None));
    assert_eq!(grants.tip(issuer(2)), LogTip::EMPTY);
    let keys = |from| grants.keys_from(issuer(1), from).collect::<Vec<_>>();
    let known = [&all[0], &all[1], &all[3], &all[4]].map(key);
    for (from, skipped) in [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 2),
        (4, 3),
        (5, 4),
        (u64::MAX, 4),
    ] {
        assert_eq!(keys(from), known[skipped..], "{from}");
    }
    assert_eq!(grants.keys_from(issuer(2), 0).count(), 0);
    for operation in &all {
        let is_known = known.contains(&key(operation));
        assert_eq!(grants.is_known(issuer(1), key(operation)), is_known);
        assert!(!grants.is_known(issuer(2), key(operation)));
        let (place, id) = key(operation);
        assert!(!grants.is_known(issuer(1), (place + 1, id)));
    }
    assert!(grants.issuers().eq([issuer(1)]));
    assert!(!grants.is_forked(issuer(1)) && !grants.is_forked(issuer(2)));
}

/// Every operation says what became of it, once and again.
#[test]
fn an_operation_is_new_once() {
    let all = log(1, vec![allow(1), allow(2), allow(3)]);
    let branch = log(1, vec![allow(1), allow(9)]);
    let mut grants = Grants::default();
    for (operation, becomes) in [
        (&all[0], ApplyOutcome::Appended),
        (&all[0], ApplyOutcome::Duplicate),
        (&all[2], ApplyOutcome::Buffered),
        (&all[2], ApplyOutcome::Duplicate),
        (&all[1], ApplyOutcome::Appended),
        (&all[2], ApplyOutcome::Duplicate),
        (&branch[1], ApplyOutcome::Forked),
        (&branch[1], ApplyOutcome::Duplicate),
    ] {
        assert_eq!(grants.apply(operation), Ok(becomes));
    }
    assert!(grants.is_forked(issuer(1)));
}

/// Whose log has a gap may push so many ahead of it, and then those before; others are not held up.
#[test]
fn operations_behind_a_gap_are_bounded() {
    let all = log(1, (0..BUFFERED_MAX + 4).map(|_| allow(1)).collect());
    let mut grants = applied(&all[..2]);
    for operation in &all[3..BUFFERED_MAX + 3] {
        assert_eq!(grants.apply(operation), Ok(ApplyOutcome::Buffered));
    }
    let gap = Err(ApplyError::Gap { from: 2 });
    assert_eq!(grants.apply(&all[BUFFERED_MAX + 3]), gap);
    assert_eq!(grants.apply(&all[2]), Ok(ApplyOutcome::Appended));
    assert_eq!(grants.tip(issuer(1)).next, BUFFERED_MAX as u64 + 3);
    assert_eq!(
        grants.apply(&all[BUFFERED_MAX + 3]),
        Ok(ApplyOutcome::Appended)
    );
}

/// Of further issuers nothing is taken; of those that are known all is.
#[test]
fn issuers_are_bounded() {
    let by = |n: usize| {
        let mut node = [0; 32];
        node[..8].copy_from_slice(&(n as u64).to_be_bytes());
        let mut first = log(1, vec![allow(1)]).remove(0).into_operation();
        first.place.issuer = NodeId(node);
        EncodedOperation::new(first)
    };
    let mut grants = Grants::default();
    for n in 0..ISSUERS_MAX {
        assert_eq!(grants.apply(&by(n)), Ok(ApplyOutcome::Appended));
    }
    assert_eq!(
        grants.apply(&by(ISSUERS_MAX)),
        Err(ApplyError::TooManyIssuers)
    );
    assert_eq!(grants.apply(&by(0)), Ok(ApplyOutcome::Duplicate));
    assert_eq!(grants.issuers().count(), ISSUERS_MAX);
}

/// FED-054: a rest is the last word while nothing comes after it, certain or not.
#[test]
fn who_rests_has_written_nothing_since() {
    let all = log_of(
        1,
        vec![
            LogChange::Grants(allow(1)),
            rest(),
            LogChange::Grants(allow(2)),
            rest(),
            LogChange::Grants(allow(3)),
            LogChange::Grants(allow(4)),
        ],
    );
    let rests = |known: &[&EncodedOperation]| {
        let grants = applied(known.iter().copied());
        (grants.is_resting(issuer(1)), grants.last_rest(issuer(1)))
    };
    assert_eq!(rests(&[&all[0]]), (false, None));
    assert_eq!(rests(&[&all[0], &all[1]]), (true, Some(1)));
    assert_eq!(rests(&[&all[0], &all[1], &all[2]]), (false, Some(1)));
    assert_eq!(
        rests(&[&all[0], &all[1], &all[2], &all[3]]),
        (true, Some(3))
    );
    assert_eq!(
        rests(&[&all[3], &all[2], &all[1], &all[0]]),
        (true, Some(3))
    );
    assert_eq!(
        rests(&[&all[0], &all[1], &all[4]]),
        (false, Some(1)),
        "ahead of a gap"
    );
    assert_eq!(
        rests(&[&all[1]]),
        (false, Some(1)),
        "before it something is missing"
    );
    let grants = applied(&all);
    assert!(!grants.is_resting(issuer(2)) && grants.last_rest(issuer(2)).is_none());
    let changes: Vec<_> = (grants.member_changes())
        .map(|(place, id, told)| (place.sequence, id, told.issued_at_ms, told.author.as_str()))
        .collect();
    let (first, second) = (all[1].id(), all[3].id());
    assert_eq!(
        changes,
        [(1, first, 1001, "admin"), (3, second, 1003, "admin")]
    );
}

/// Why a grant does not count, where its log is the reason: what it denies counts all the same.
#[test]
fn a_doubtful_log_allows_nothing() {
    let force = |grants: &Grants, id: u8| {
        let granted = grants.get(GrantId([id; 16])).unwrap();
        grants.status(granted, &everyone(), 0)
    };
    let unknown = LogChange::Unknown("later".into());
    let changes = vec![
        LogChange::Grants(allow(1)),
        LogChange::Grants(deny(2)),
        unknown,
    ];
    let grants = applied(&log_of(1, changes));
    assert_eq!(force(&grants, 1), GrantStatus::UnknownOperation);
    assert_eq!(force(&grants, 2), GrantStatus::InForce);
    let all = log(1, vec![allow(1), allow(2), allow(3), deny(4)]);
    let grants = applied([&all[0], &all[2], &all[3]]);
    assert_eq!(force(&grants, 1), GrantStatus::InForce);
    assert_eq!(force(&grants, 3), GrantStatus::Pending);
    assert_eq!(force(&grants, 4), GrantStatus::InForce);
    let branch = log(1, vec![allow(8)]);
    let grants = applied(all.iter().chain(&branch));
    assert_eq!(force(&grants, 1), GrantStatus::Quarantined);
    assert_eq!(force(&grants, 4), GrantStatus::InForce);
    let nobody = Authority::without_issuers(issuer(1));
    let granted = grants.get(GrantId([4; 16])).unwrap();
    assert_eq!(
        grants.status(granted, &nobody, 0),
        GrantStatus::NotAuthorised
    );
}

/// Who may give up to a place takes away behind it, too.
#[test]
fn an_authority_ends_what_is_given_and_not_what_is_taken() {
    let place = |by, sequence| LogPosition {
        issuer: issuer(by),
        sequence,
    };
    let authority = Authority::with_local_issuer(issuer(1)).with_issuer_until(issuer(2), 3);
    assert_eq!(authority.local_node(), issuer(1));
    assert!(authority.can_revoke(issuer(1)) && authority.can_revoke(issuer(2)));
    assert!(!authority.can_revoke(issuer(3)) && !authority.can_grant(place(3, 0)));
    assert!(authority.can_grant(place(1, 9)) && authority.can_grant(place(2, 2)));
    assert!(!authority.can_grant(place(2, 3)));
}

/// By their names, by whom they are about, and by the change that concerns them.
#[test]
fn grants_are_found_by_name_and_by_whom_they_are_about() {
    let on = || GrantResource::Server(issuer(1).server(ServerId::new("files")));
    let of = |id: u8, subject: Subject| {
        GrantChange::Grant(Grant {
            subject,
            resource: on(),
            ..grant(id, Permission::Allow, None)
        })
    };
    let alice = issuer(2).agent(AgentId::new("alice"));
    let subjects = [
        Subject::Agent(alice.clone()),
        Subject::AgentsAt(issuer(2)),
        Subject::AgentEverywhere(AgentId::new("alice")),
        Subject::AgentsAt(issuer(3)),
        Subject::Agent(issuer(2).agent(AgentId::new("bob"))),
    ];
    let changes = (1..)
        .zip(subjects.clone())
        .map(|(id, subject)| of(id, subject));
    let grants = applied(&log(1, changes.collect()));
    let ids = |all: &mut dyn Iterator<Item = &LoggedGrant>| {
        let ids: BTreeSet<u8> = all.map(|it| it.grant.id.0[0]).collect();
        ids
    };
    assert_eq!(ids(&mut grants.for_agent(&alice)), [1, 2, 3].into());
    assert_eq!(ids(&mut grants.for_subject(&subjects[1])), [2].into());
    assert_eq!(
        ids(&mut grants.overlapping_grants(&subjects[1])),
        [1, 2, 3, 5].into()
    );
    assert_eq!(
        ids(&mut grants.overlapping_grants(&subjects[0])),
        [1, 2, 3].into()
    );
    assert_eq!(ids(&mut grants.iter()), [1, 2, 3, 4, 5].into());
    for (id, subject) in (1..).zip(&subjects) {
        let id = GrantId([id; 16]);
        assert_eq!(grants.get(id).map(|it| &it.grant.subject), Some(subject));
        assert!(grants.scopes(id).eq([(subject, &on(), Permission::Allow)]));
        let revoked = GrantChange::Revoke(Revoke::Ids(vec![id]));
        assert_eq!(grants.subjects(&revoked), [subject.clone()].into());
    }
    assert_eq!(grants.get(GrantId([9; 16])), None);
    assert_eq!(grants.subjects(&revoke(9)), [].into());
    assert_eq!(
        grants.subjects(&of(9, subjects[3].clone())),
        [subjects[3].clone()].into()
    );
    let until = BTreeMap::from([(issuer(1), 1)]);
    let subject = subjects[4].clone();
    let sweep = GrantChange::Revoke(Revoke::UpTo { subject, until });
    assert_eq!(grants.subjects(&sweep), [subjects[4].clone()].into());
    let mut replacing = grant(9, Permission::Allow, None);
    replacing.replaces = vec![GrantId([1; 16])];
    let concerned = grants.subjects(&GrantChange::Grant(replacing));
    assert_eq!(concerned, [agent("a"), subjects[0].clone()].into());
}

/// What allowed something and was revoked is shed: it is found by its name, and nothing else changes.
#[test]
fn what_was_allowed_and_revoked_is_shed_and_nothing_else() {
    let mut of_b = grant(5, Permission::Allow, None);
    of_b.subject = agent("b");
    let changes = vec![
        allow(1),
        allow(2),
        deny(3),
        deny(4),
        GrantChange::Grant(of_b),
        revoke(1),
        revoke(3),
        revoke(5),
    ];
    let all = log(1, changes);
    let whole = applied(&all);
    let mut grants = whole.clone();
    grants.prune(&Authority::without_issuers(issuer(1)));
    assert_eq!(grants, whole, "nobody may have revoked it");
    grants.prune(&everyone());
    let ids: Vec<u8> = grants.iter().map(|it| it.grant.id.0[0]).collect();
    assert_eq!(ids, [2, 3, 4]);
    assert_eq!(
        in_force(&grants, &everyone(), 0),
        in_force(&whole, &everyone(), 0)
    );
    let key = |at: usize, id: u8| (GrantId([id; 16]), all[at].position(), all[at].id());
    assert!(grants.pruned_keys(None).eq([key(0, 1), key(4, 5)]));
    assert!(grants.pruned_keys(Some(&agent("b"))).eq([key(4, 5)]));
    assert_eq!(grants.pruned_key(GrantId([1; 16])), Some(key(0, 1)));
    assert_eq!(grants.pruned_key(GrantId([2; 16])), None);
    assert_eq!(grants.get(GrantId([1; 16])), None);
    for id in 1..=5 {
        let id = GrantId([id; 16]);
        assert!(grants.scopes(id).eq(whole.scopes(id)), "{id:?}");
    }
    let revoked = GrantChange::Revoke(Revoke::Ids(vec![GrantId([5; 16])]));
    assert_eq!(grants.subjects(&revoked), [agent("b")].into());
    let mut again = grants.clone();
    again.prune(&everyone());
    assert_eq!(again, grants);
}

/// A forked log may have two grants of one name: the one that is left is still found.
#[test]
fn of_two_grants_of_one_name_each_is_shed_alone() {
    let mut first = Authority::without_issuers(issuer(1)).with_issuer(issuer(1));
    let until = BTreeMap::from([(issuer(1), 0)]);
    let subject = agent("a");
    let sweep = GrantChange::Revoke(Revoke::UpTo { subject, until });
    let one = log(1, vec![allow(1), allow(2)]);
    let other = log(1, vec![allow(7), allow(1)]);
    let two = log(2, vec![sweep]);
    first = first.with_issuer(issuer(2));
    let mut grants = applied(one.iter().chain(&other).chain(&two));
    assert_eq!(grants.scopes(GrantId([1; 16])).count(), 2);
    grants.prune(&first);
    let left = grants.get(GrantId([1; 16])).map(|it| it.position.sequence);
    assert_eq!(left, Some(1));
    assert_eq!(grants.scopes(GrantId([1; 16])).count(), 2);
    assert_eq!(grants.get(GrantId([7; 16])), None);
}

/// A change that takes nothing back leaves nothing to shed.
#[test]
fn only_what_takes_back_can_end_grants() {
    let until = BTreeMap::from([(issuer(1), 0)]);
    let subject = agent("b");
    let sweep = GrantChange::Revoke(Revoke::UpTo { subject, until });
    let grants = applied(&log(1, vec![allow(1), revoke(9), sweep.clone()]));
    assert!(grants.can_end_grants(&revoke(1)) && grants.can_end_grants(&sweep));
    assert!(!grants.can_end_grants(&allow(2)));
    assert!(
        grants.can_end_grants(&allow(9)),
        "it was revoked before it came"
    );
    let mut replacing = grant(2, Permission::Allow, None);
    replacing.replaces = vec![GrantId([1; 16])];
    assert!(grants.can_end_grants(&GrantChange::Grant(replacing)));
    let mut swept = grant(2, Permission::Allow, None);
    swept.subject = agent("b");
    assert!(grants.can_end_grants(&GrantChange::Grant(swept)));
}

/// What a record of a grant is made of, and of nothing else.
#[test]
fn a_grant_is_read_from_its_operation() {
    let all = log(1, vec![allow(1), revoke(1)]);
    let granted = LoggedGrant::from_operation(&all[0]).unwrap();
    assert_eq!(
        (granted.grant.id, granted.position),
        (GrantId([1; 16]), all[0].position())
    );
    assert_eq!(
        (granted.author.as_str(), granted.issued_at_ms),
        ("admin", 1000)
    );
    assert_eq!(LoggedGrant::from_operation(&all[1]), None);
    assert_eq!(
        LoggedGrant::from_operation(&log_of(1, vec![rest()])[0]),
        None
    );
}

/// To end a denial gives: it takes a certain place in a log that may give there. To end what is allowed takes none.
#[test]
fn a_denial_ends_by_a_certain_entry_only() {
    let denied = log(1, vec![deny(1), allow(2)]);
    let ends = log_knowing(2, vec![allow(3), revoke(1), revoke(2)], &[(1, 2)]);
    let branch = log(2, vec![allow(4)]);
    let cut = Authority::with_local_issuer(issuer(1)).with_issuer_until(issuer(2), 1);
    let forked: Vec<_> = ends.iter().chain(&branch).collect();
    for (known, authority, in_doubt) in [
        (ends.iter().collect::<Vec<_>>(), everyone(), false),
        (ends[1..].iter().collect(), everyone(), true),
        (forked, everyone(), true),
        (ends.iter().collect(), cut, true),
    ] {
        let grants = applied(denied.iter().chain(known));
        let counts = in_force(&grants, &authority, 0);
        assert_eq!(counts.contains(&1), in_doubt, "{authority:?}");
        assert!(!counts.contains(&2), "what was allowed ends all the same");
    }
}
