//! Compacted logs decide, replicate and merge like uncompacted ones.

use std::sync::Arc;

use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::access::Permission;

use super::super::super::log_batch::{LocalLogs, build_batch};
use super::super::super::test_logs::{grant_change, key};
use super::*;
use crate::node_key::Signature;
use crate::policy::grants::{
    CausalContext, Grant, GrantChange, GrantResource, LoggedGrant, Operation, Revoke, Subject,
};

/// The same operations, never pruned or compressed.
#[derive(Default)]
struct WholeLogs {
    grants: Grants,
    entries: BTreeMap<(NodeId, LogKey), Arc<[u8]>>,
}

impl WholeLogs {
    /// The operations of `all` that these logs know.
    fn of(logs: &ClusterLogs, all: &[SignedOperation]) -> Self {
        let mut whole = Self::default();
        for signed in all {
            let written = signed.encoded();
            let key = (written.position().sequence, written.id());
            if logs.is_known(written.issuer(), key) {
                whole.grants.apply(written).unwrap();
                let key = (written.issuer(), key);
                whole.entries.insert(key, signed.entry_bytes());
            }
        }
        whole
    }
}

fn sort_key(granted: &LoggedGrant) -> (GrantId, LogPosition, Vec<GrantId>) {
    let grant = &granted.grant;
    (grant.id, granted.position, grant.replaces.clone())
}

/// Compares everything that decides or is sent.
fn assert_same(logs: &ClusterLogs, whole: &WholeLogs) {
    let entries: BTreeMap<_, _> = logs
        .entries()
        .map(|(issuer, key, entry)| ((issuer, key), entry))
        .collect();
    assert_eq!(entries, whole.entries);
    assert_eq!(logs.count(), whole.entries.len());
    for ((issuer, key), entry) in whole.entries.iter().step_by(17) {
        assert_eq!(logs.entry(*issuer, *key).as_ref(), Some(entry));
    }
    for issuer in whole.grants.issuers() {
        assert_eq!(logs.grants().tip(issuer), whole.grants.tip(issuer));
        let keys = logs.grants().keys_from(issuer, 0);
        assert!(keys.eq(whole.grants.keys_from(issuer, 0)));
        for next in 0..=whole.grants.tip(issuer).next {
            let tip = logs.grants().tip_at(issuer, next);
            assert_eq!(tip, whole.grants.tip_at(issuer, next));
        }
    }
    let mut all = logs.all_grants();
    let mut expected: Vec<LoggedGrant> = whole.grants.iter().cloned().collect();
    all.sort_by_key(sort_key);
    expected.sort_by_key(sort_key);
    assert_eq!(all, expected);
    let status =
        |grants: &Grants, granted: &LoggedGrant| grants.status(granted, logs.authority(), 0);
    for granted in &expected {
        let same = status(logs.grants(), granted);
        assert_eq!(same, status(&whole.grants, granted), "{granted:?}");
        assert!(logs.find_grant(granted.grant.id).is_some());
        let mut scopes = logs.grants().scopes(granted.grant.id);
        let grant = &granted.grant;
        let scope = (&grant.subject, &grant.resource, grant.permission);
        assert!(scopes.any(|known| known == scope), "{granted:?}");
    }
    // Calls are decided by grants that are not pruned.
    let counts = |grants: &Grants| {
        let all = grants.iter();
        let counts = all.filter(|granted| status(grants, granted) == GrantStatus::InForce);
        let mut ids: Vec<GrantId> = counts.map(|granted| granted.grant.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(counts(logs.grants()), counts(&whole.grants));
}

/// Another node merges all batches.
fn replicate(logs: &ClusterLogs) -> ClusterLogs {
    let mut other = self::logs();
    let (unstored, mut cursor) = (UnstoredEntries::new(), None);
    let mine = logs.heads(&unstored);
    let mine = LocalLogs {
        logs,
        unstored: &unstored,
        heads: &mine,
    };
    for _ in 0..100 {
        let sent = build_batch(mine, &other.heads(&unstored), cursor);
        cursor = sent.cursor;
        let read = sent.entries.iter();
        let read: Vec<SignedOperation> = read
            .map(|entry| SignedOperation::from_bytes(entry).unwrap())
            .collect();
        other.merge_all(&read);
        if sent.entries.is_empty() {
            break;
        }
    }
    other
}

/// Long logs of two admins, who revoke each other's grants; one log may be forked anywhere.
fn long_history() -> impl Strategy<Value = Vec<SignedOperation>> {
    let step = (any::<bool>(), 0_u8..6, 1_u8..40, 1_u8..40, any::<bool>());
    let steps = proptest::collection::vec(step, 0..260);
    (steps, proptest::option::of(0_u64..140)).prop_map(|(steps, fork)| {
        let (mut all, first, second) = two();
        let mut writers = [first, second];
        let mut tips = Vec::new();
        for (by, kind, id, other, knows) in steps {
            if knows {
                let known = &writers[usize::from(!by)];
                let known = (node(known.node_number), known.tip.next);
                writers[usize::from(by)].context.logs = BTreeMap::from([known]);
            }
            let writer = &mut writers[usize::from(by)];
            if by {
                tips.push(writer.tip);
            }
            let replaces: &[u8] = if id == other { &[] } else { &[other] };
            all.push(writer.write(match kind {
                0 | 1 => allow_change(id),
                2 => grant_change(id, Permission::Allow, replaces),
                3 => deny_change(id),
                4 => revoke_change(id),
                _ => LogChange::Grants(GrantChange::Revoke(Revoke::UpTo {
                    subject: subject(),
                    until: BTreeMap::from([(node(1), u64::from(other))]),
                })),
            }));
        }
        let at = fork.and_then(|at| tips.get(usize::try_from(at).unwrap()));
        if let Some(tip) = at {
            writers[1].tip = *tip;
            all.push(writers[1].write(deny_change(99)));
            all.push(writers[1].write(revoke_change(1)));
        }
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// PRJ-006: in any order.
    #[test]
    fn compaction_changes_no_decision_and_no_sent_bytes(
        (all, order) in long_history().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        parts in 30_usize..200,
    ) {
        let in_order = merged(&all);
        let mut shuffled = logs();
        // Entries before the admission of their issuer are merged again later.
        for part in (0..3).flat_map(|_| order.chunks(parts)) {
            shuffled.merge_all(part);
            assert_same(&shuffled, &WholeLogs::of(&shuffled, &all));
        }
        prop_assert_eq!(&shuffled, &in_order);
        assert_same(&in_order, &WholeLogs::of(&in_order, &all));
        prop_assert_eq!(&replicate(&in_order), &in_order);
    }
}

#[test]
fn a_second_revoke_of_a_pruned_grant_wins_over_a_grant_that_saw_only_the_first() {
    let (mut all, mut first, mut second) = two();
    all.push(first.write(allow_change(1)));
    all.push(first.write(revoke_change(1)));
    let mut logs = merged(&all);
    assert!(logs.grants().iter().next().is_none(), "it was revoked");
    all.push(second.write(revoke_change(1)));
    assert_eq!(logs.merge(all.last().unwrap()), Ok(ApplyOutcome::Appended));
    // Its issuer has not seen the second revoke.
    first.context.logs.clear();
    all.push(first.write(allow_change(2)));
    logs.merge(all.last().unwrap()).unwrap();
    let status = |logs: &ClusterLogs| {
        let again = logs.find_grant(GrantId([2; 16])).unwrap();
        logs.grants().status(&again, logs.authority(), 0)
    };
    let revoke = LogPosition {
        issuer: node(second.node_number),
        sequence: second.tip.next - 1,
    };
    assert!(
        matches!(status(&logs), GrantStatus::InConflict { revoke: by, .. } if by == revoke),
        "{:?}",
        status(&logs)
    );
    assert_same(&logs, &WholeLogs::of(&logs, &all));
    assert_eq!(logs, merged(&all));
}

#[test]
fn a_fork_in_a_compressed_block_is_stored_completely() {
    let (mut all, _, mut second) = two();
    let mut clone = None;
    for n in 0..150_u8 {
        if n == 100 {
            clone = Some(second.clone());
        }
        all.push(second.write(if n % 2 == 0 {
            allow_change(n)
        } else {
            revoke_change(n - 1)
        }));
    }
    let mut logs = merged(&all);
    assert!(logs.grants().iter().next().is_none(), "all were revoked");
    all.push(clone.unwrap().write(revoke_change(200)));
    assert_eq!(logs.merge(all.last().unwrap()), Ok(ApplyOutcome::Forked));
    assert_eq!(logs, merged(&all));
    assert_same(&logs, &WholeLogs::of(&logs, &all));
    assert_eq!(logs.grants().tip(node(1)).next, 100);
}

/// Incompressible bytes, like keys and signatures.
fn noise<const N: usize>(seed: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let mut noise = blake3::Hasher::new();
    noise.update(seed).finalize_xof().fill(&mut bytes);
    bytes
}

/// An admin allows tools to agents of several nodes, and revokes each grant.
fn dead_log(operations: u64) -> Vec<SignedOperation> {
    let (founding, mut writer) = found_cluster();
    let mut all = vec![founding];
    let other = |n: u64| NodeId(noise(&[1, u8::try_from(n % 4).unwrap()]));
    for n in 1..operations {
        let id = GrantId(noise(&(n - (n + 1) % 2).to_le_bytes()));
        let change = match n % 2 {
            1 => GrantChange::Grant(Grant {
                id,
                subject: Subject::Agent(
                    other(n / 2).agent(AgentId::new(format!("agent.{}", n % 50))),
                ),
                resource: GrantResource::Tool(
                    other(n / 3).server(ServerId::new(format!("files-{}", n % 7))),
                    format!("read_{}", n % 30),
                ),
                permission: Permission::Allow,
                not_after_ms: None,
                told_by: None,
                justification: None,
                replaces: Vec::new(),
                when: None,
            }),
            _ => GrantChange::Revoke(Revoke::Ids(vec![id])),
        };
        let operation = Operation {
            cluster: Some(cluster_id()),
            place: LogPosition {
                issuer: node(0),
                sequence: n,
            },
            previous: writer.tip.id,
            author: "operator".into(),
            told_at_ms: 1_790_000_000_000 + n * 977,
            change: LogChange::Grants(change),
            context: CausalContext::default(),
        };
        let signed =
            SignedOperation::with_signature(operation, key(0), |bytes| Signature(noise(bytes)));
        writer.tip = LogTip {
            next: n + 1,
            id: signed.encoded().id(),
        };
        all.push(signed);
    }
    all
}

/// Ten thousand grants and revokes take less than 6 MiB, and memory grows linearly.
#[test]
fn revoked_grants_take_little_memory() {
    const MIB: usize = 1 << 20;
    let all = dead_log(10_465);
    let logs = merge_at_once(&all);
    assert_eq!(logs.count(), 10_465);
    assert_eq!(logs.grants().iter().count(), 0, "all were revoked");
    assert_same(&logs, &WholeLogs::of(&logs, &all));
    let (bytes, memory) = (logs.entry_bytes(), logs.memory_bytes());
    println!("{bytes} bytes of entries, {memory} bytes of memory");
    assert!(memory < 6 * MIB, "{memory} bytes");
    let first = merge_at_once(&all[..2_616]).memory_bytes();
    assert!(memory < 4 * first + MIB / 4, "{first} bytes of a quarter");
}

fn merge_at_once(all: &[SignedOperation]) -> ClusterLogs {
    let mut logs = logs();
    logs.merge_all(all);
    logs
}
