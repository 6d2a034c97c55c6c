use proptest::prelude::*;

use super::super::test_logs::{
    LogWriter, RECOVERY, START, admit_change, allow_change, cluster_id, cut_change, deny_change,
    found_cluster, key, node, revoke_change, subject,
};
use super::*;
use crate::policy::grants::{GrantId, GrantStatus, LogPosition, MemberRole};

mod compaction;
mod model;

fn logs() -> ClusterLogs {
    ClusterLogs::new(node(0), cluster_id())
}

/// Merges entries one by one until none is left; merging all at once has the same result.
fn merged<'a>(entries: impl IntoIterator<Item = &'a SignedOperation>) -> ClusterLogs {
    let mut logs = logs();
    let mut left: Vec<&SignedOperation> = entries.into_iter().collect();
    let mut at_once = logs.clone();
    at_once.merge_all(left.iter().copied());
    loop {
        let before = left.len();
        left.retain(|entry| logs.merge(entry) == Err(MergeError::IssuerNotAdmitted));
        if left.len() == before {
            assert_eq!(logs, at_once);
            return logs;
        }
    }
}

fn in_force(logs: &ClusterLogs) -> Vec<u8> {
    let grants = logs.grants();
    let all = grants.for_subject(&subject());
    let counts = all.filter(|it| grants.status(it, logs.authority(), 0) == GrantStatus::InForce);
    counts.map(|granted| granted.grant.id.0[0]).collect()
}

impl ClusterLogs {
    /// Pretends that the entries have this many bytes.
    pub(in crate::replication) fn fill_up(&mut self, bytes: u64) {
        self.entries.values_mut().for_each(|log| log.bytes = bytes);
    }
}

/// The founder, and an admin it admitted.
fn two() -> (Vec<SignedOperation>, LogWriter, LogWriter) {
    let (founding, mut first) = found_cluster();
    let admitted = first.write(admit_change(1, MemberRole::Admin));
    (
        vec![founding, admitted],
        first,
        LogWriter::new(1, cluster_id()),
    )
}

/// FED-056.
#[test]
fn only_entries_of_the_cluster_are_merged() {
    let (mut all, _, mut second) = two();
    all.push(second.write(allow_change(1)));
    let mut logs = logs();
    assert_eq!(logs.merge(&all[1]), Err(MergeError::IssuerNotAdmitted));
    let mut stranger = LogWriter::new(0, ClusterId([7; 32]));
    let foreign = stranger.write(allow_change(2));
    assert_eq!(logs.merge(&foreign), Err(MergeError::ForeignCluster));
    let logs = merged(&all);
    assert_eq!(in_force(&logs), [1]);
    assert!(logs.members().is_admin(node(0)) && logs.members().is_admin(node(1)));
}

/// FED-045.
#[test]
fn grants_after_a_cut_do_not_count_but_revokes_do() {
    let (mut all, mut first, mut second) = two();
    all.extend([first.write(allow_change(1)), second.write(allow_change(2))]);
    let tip = second.tip;
    all.extend([
        second.write(allow_change(3)),
        second.write(revoke_change(1)),
        second.write(deny_change(4)),
    ]);
    assert_eq!(in_force(&merged(&all)), [2, 3, 4]);
    all.push(first.write(cut_change(1, tip)));
    let logs = merged(&all);
    assert_eq!(in_force(&logs), [2, 4]);
    assert!(!logs.members().is_member(node(1)));
}

/// FED-045.
#[test]
fn a_cut_of_another_branch_ends_all_grants_of_the_log() {
    let (mut all, mut first, mut second) = two();
    let mut other = second.clone();
    all.push(second.write(allow_change(2)));
    other.write(allow_change(3));
    all.push(first.write(cut_change(1, other.tip)));
    assert!(in_force(&merged(&all)).is_empty());
}

/// FED-046.
#[test]
fn a_fork_undoes_no_cut_or_revoke_of_admitted_admins() {
    let (mut all, mut first, mut second) = two();
    let mut third = LogWriter::new(2, cluster_id());
    let mut fourth = LogWriter::new(3, cluster_id());
    let mut clone = second.clone();
    all.extend([
        first.write(admit_change(3, MemberRole::Admin)),
        fourth.write(allow_change(5)),
    ]);
    all.extend([first.write(allow_change(1)), first.write(allow_change(6))]);
    all.push(second.write(admit_change(2, MemberRole::Admin)));
    all.push(third.write(cut_change(3, LogTip::EMPTY)));
    third.context.logs.insert(node(0), first.tip.next);
    all.extend([third.write(revoke_change(1)), third.write(allow_change(7))]);
    assert_eq!(in_force(&merged(&all)), [6, 7]);
    // Node 1 signs another operation in place of the admission of node 2.
    all.push(clone.write(allow_change(8)));
    let logs = merged(&all);
    assert!(logs.grants().is_forked(node(1)));
    assert_eq!(
        in_force(&logs),
        [6],
        "revokes of node 2 count, its grants do not"
    );
    assert!(!logs.members().is_member(node(3)) && !logs.members().is_member(node(2)));
    all.reverse();
    assert_eq!(merged(&all), logs);
}

/// Admissions after a gap add only possible issuers.
#[test]
fn after_a_gap_only_revokes_count() {
    let (mut all, mut first, mut second) = two();
    all.extend([first.write(allow_change(1)), first.write(allow_change(2))]);
    let missing = second.write(allow_change(3));
    let mut third = LogWriter::new(2, cluster_id());
    all.push(second.write(admit_change(2, MemberRole::Admin)));
    third.context.logs = [(node(0), first.tip.next), (node(1), second.tip.next)].into();
    all.extend([third.write(revoke_change(1)), third.write(allow_change(4))]);
    let logs = merged(&all);
    assert_eq!(in_force(&logs), [2]);
    all.push(missing);
    assert_eq!(in_force(&merged(&all)), [2, 3, 4]);
}

/// FED-055: both are cut off in any order.
#[test]
fn only_the_recovery_key_helps_if_two_admins_cut_each_other_off() {
    let (mut all, mut first, mut second) = two();
    let (first_tip, second_tip) = (first.tip, second.tip);
    all.extend([
        first.write(cut_change(1, second_tip)),
        second.write(cut_change(0, first_tip)),
    ]);
    for _ in 0..2 {
        let members = merged(&all).members().clone();
        assert!(!members.is_member(node(0)) && !members.is_member(node(1)));
        all.reverse();
    }
    all.extend([
        first.write(admit_change(5, MemberRole::Admin)),
        second.write(admit_change(6, MemberRole::Admin)),
    ]);
    let mut recovery = LogWriter::new(RECOVERY, cluster_id());
    let name = "again".to_owned();
    let recover = MemberChange::Recover {
        key: key(4),
        name: name.clone(),
    };
    all.push(recovery.write(LogChange::Members(recover)));
    let logs = merged(&all);
    let is_in: Vec<bool> = [0, 1, 4, 5, 6]
        .map(|n| logs.members().is_member(node(n)))
        .into();
    assert_eq!(is_in, [false, false, true, false, false]);
    // Nobody else recovers, and nobody cuts the recovery key off.
    let (mut all, mut first, _) = two();
    let tip = LogTip::EMPTY;
    let cut = MemberChange::Cut {
        node: node(RECOVERY),
        at: tip,
        stays_as: None,
    };
    all.push(first.write(LogChange::Members(cut)));
    let recover = MemberChange::Recover { key: key(4), name };
    all.push(first.write(LogChange::Members(recover.clone())));
    assert!(!merged(&all).members().is_member(node(4)));
    let mut recovery = LogWriter::new(RECOVERY, cluster_id());
    all.push(recovery.write(LogChange::Members(recover)));
    assert!(merged(&all).members().is_admin(node(4)));
}

/// FED-054: the old key signs the new one, which ends its log.
#[test]
fn a_new_key_replaces_the_old_one() {
    let (mut all, _, mut second) = two();
    all.push(second.write(allow_change(1)));
    let rekey = MemberChange::Rekey {
        node: node(1),
        at: second.tip,
        key: key(7),
    };
    all.push(second.write(LogChange::Members(rekey)));
    all.push(second.write(allow_change(2)));
    let mut again = LogWriter::new(7, cluster_id());
    all.push(again.write(allow_change(3)));
    let logs = merged(&all);
    assert_eq!(in_force(&logs), [1, 3]);
    assert!(logs.members().is_admin(node(7)) && !logs.members().is_member(node(1)));
}

/// FED-058: the entry is stored.
#[test]
fn an_unknown_kind_ends_only_the_allows_of_its_issuer() {
    let (mut all, mut first, mut second) = two();
    all.extend([
        first.write(allow_change(1)),
        second.write(allow_change(2)),
        second.write(deny_change(3)),
    ]);
    let mut unknown = second.write(allow_change(4)).encoded().operation().clone();
    unknown.place.sequence = second.tip.next;
    unknown.previous = second.tip.id;
    unknown.change = LogChange::Unknown("mute".into());
    all.push(SignedOperation::with_signature(unknown, key(1), |_| {
        crate::node_key::Signature([0; 64])
    }));
    let logs = merged(&all);
    assert_eq!(in_force(&logs), [1, 3]);
    let place = (second.tip.next, all.last().unwrap().encoded().id());
    assert_eq!(
        logs.entry(node(1), place).map(|entry| entry.to_vec()),
        Some(all.last().unwrap().to_bytes())
    );
}

/// Only a certain issuer can lift a denial.
#[test]
fn a_denial_is_not_lifted_after_a_gap_or_a_cut() {
    let (mut all, mut first, mut second) = two();
    all.push(first.write(deny_change(1)));
    let tip = second.tip;
    let missing = second.write(allow_change(2));
    all.push(second.write(revoke_change(1)));
    assert_eq!(in_force(&merged(&all)), [1]);
    all.push(missing);
    assert_eq!(in_force(&merged(&all)), [2]);
    all.push(first.write(cut_change(1, tip)));
    assert_eq!(in_force(&merged(&all)), [1]);
}

#[test]
fn operations_after_a_gap_are_bounded() {
    let (all, _, mut second) = two();
    let mut logs = merged(&all);
    let missing = second.write(allow_change(1));
    let max = crate::policy::grants::BUFFERED_MAX;
    for _ in 0..max {
        assert_eq!(
            logs.merge(&second.write(revoke_change(9))),
            Ok(ApplyOutcome::Buffered)
        );
    }
    let one_more = second.write(revoke_change(9));
    let gap = MergeError::Rejected(ApplyError::Gap { from: 0 });
    assert_eq!(logs.merge(&one_more), Err(gap));
    assert_eq!(logs.merge(&missing), Ok(ApplyOutcome::Appended));
    assert_eq!(logs.merge(&one_more), Ok(ApplyOutcome::Appended));
    assert_eq!(logs.head(node(1), None).behind, None);
}

#[test]
fn heads_cover_only_stored_entries() {
    let (mut all, _, mut second) = two();
    all.extend([second.write(allow_change(1)), second.write(allow_change(2))]);
    let logs = merged(&all);
    let last = (1, all[3].encoded().id());
    let unstored = BTreeSet::from([last]);
    let head = logs.head(node(1), Some(&unstored));
    assert_eq!(
        (head.tip.next, head.tip.id, head.behind),
        (1, all[2].encoded().id(), None)
    );
    let unstored = BTreeSet::from([(0, all[2].encoded().id())]);
    let head = logs.head(node(1), Some(&unstored));
    assert_eq!((head.tip.next, head.tip.id), (0, START));
    assert!(head.behind.is_some());
}

/// A step of a generated history.
#[derive(Clone, Debug)]
enum Step {
    Write(u8, StepChange),
    /// Continues from an earlier position of its log.
    Fork(u8, u64),
    /// Sees all operations of another writer.
    See(u8, u8),
}

#[derive(Clone, Debug)]
enum StepChange {
    Admit(u8, MemberRole),
    Cut(u8, bool),
    Rekey(u8, u8),
    Recover(u8),
    Allow(u8, u8),
    Deny(u8, u8),
    Revoke(u8),
    UpTo(u8, u64),
    Unknown,
}

const WRITERS: [u8; 6] = [0, 1, 2, 3, 4, RECOVERY];

fn step() -> impl Strategy<Value = Step> {
    let who = (0_usize..WRITERS.len()).prop_map(|at| WRITERS[at]);
    let role = prop_oneof![3 => Just(MemberRole::Admin), 1 => Just(MemberRole::Member)];
    let change = prop_oneof![
        5 => (0_u8..5, role).prop_map(|(n, role)| StepChange::Admit(n, role)),
        2 => (0_u8..5, any::<bool>()).prop_map(|(n, early)| StepChange::Cut(n, early)),
        1 => (0_u8..5, 0_u8..5).prop_map(|(n, to)| StepChange::Rekey(n, to)),
        1 => (0_u8..5).prop_map(StepChange::Recover),
        6 => (1_u8..20, 1_u8..20).prop_map(|(id, replaces)| StepChange::Allow(id, replaces)),
        2 => (1_u8..20, 1_u8..20).prop_map(|(id, replaces)| StepChange::Deny(id, replaces)),
        3 => (1_u8..20).prop_map(StepChange::Revoke),
        1 => (0_u8..5, 0_u64..6).prop_map(|(n, until)| StepChange::UpTo(n, until)),
        1 => Just(StepChange::Unknown),
    ];
    prop_oneof![
        12 => (who.clone(), change).prop_map(|(n, change)| Step::Write(n, change)),
        1 => (who.clone(), 0_u64..4).prop_map(|(n, back)| Step::Fork(n, back)),
        4 => (who.clone(), who).prop_map(|(n, other)| Step::See(n, other)),
    ]
}

fn history() -> impl Strategy<Value = Vec<SignedOperation>> {
    proptest::collection::vec(step(), 1..40).prop_map(|steps| {
        let (founding, first) = found_cluster();
        let mut writers: BTreeMap<u8, LogWriter> = WRITERS
            .iter()
            .map(|n| (*n, LogWriter::new(*n, cluster_id())))
            .collect();
        let mut tips: BTreeMap<u8, Vec<LogTip>> = BTreeMap::new();
        writers.insert(0, first);
        let mut all = vec![founding];
        for step in steps {
            match step {
                Step::Fork(n, back) => {
                    let known = tips.entry(n).or_default();
                    let at = usize::try_from(back).unwrap() % (known.len() + 1);
                    if let (Some(tip), Some(writer)) = (known.get(at), writers.get_mut(&n)) {
                        writer.tip = *tip;
                    }
                }
                Step::See(n, other) if n != other => {
                    let (tip, number) = (writers[&other].tip, writers[&other].node_number);
                    let context = &mut writers.get_mut(&n).unwrap().context;
                    context.logs.insert(node(number), tip.next);
                    context.branches.push(tip.id);
                }
                Step::See(..) => {}
                Step::Write(n, change) => {
                    let change = model::change(&change, &writers);
                    let writer = writers.get_mut(&n).unwrap();
                    tips.entry(n).or_default().push(writer.tip);
                    all.push(writer.write(change));
                }
            }
        }
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// FED-032: merging is commutative, associative and idempotent.
    #[test]
    fn any_order_and_repetition_give_the_same_result(
        (all, order) in history().prop_flat_map(|all| {
            let twice: Vec<_> = all.iter().chain(&all).cloned().collect();
            (Just(all), Just(twice).prop_shuffle())
        }),
    ) {
        prop_assert_eq!(merged(&all), merged(&order));
    }

    /// FED-046: for any part of a history.
    #[test]
    fn the_engine_decides_like_the_model(
        part in history().prop_flat_map(|all| {
            let most = all.len();
            proptest::sample::subsequence(all, 0..=most)
        }).prop_shuffle(),
    ) {
        let logs = merged(&part);
        let model = model::Model::of(&part, cluster_id());
        prop_assert_eq!(in_force(&logs), model.in_force());
        for n in 0..5 {
            prop_assert_eq!(logs.members().is_member(node(n)), model.is_in(node(n)), "node {}", n);
            prop_assert_eq!(logs.members().is_admin(node(n)), model.is_admin(node(n)));
        }
    }

    /// FED-033: no clock, no cut and no fork undoes a revocation, whatever comes later.
    #[test]
    fn what_was_revoked_never_comes_back(order in history().prop_shuffle()) {
        let mut logs = logs();
        let mut gone: BTreeSet<(GrantId, LogPosition)> = BTreeSet::new();
        for entry in order.iter().chain(&order).chain(&order) {
            let _ = logs.merge(entry);
            for granted in logs.grants_for(&subject()) {
                let force = logs.grants().status(&granted, logs.authority(), 0);
                let allows = granted.grant.permission == mgp_protocol::mgp::access::Permission::Allow;
                let which = (granted.grant.id, granted.position);
                if allows && matches!(force, GrantStatus::Revoked(_) | GrantStatus::InConflict { .. }) {
                    gone.insert(which);
                }
                if allows && force == GrantStatus::InForce {
                    prop_assert!(!gone.contains(&which), "{:?} is back", granted);
                }
            }
        }
    }
}
