//! Assertions over one link.

use super::*;

const NOW: u64 = 1_790_000_000_000;

fn key(n: u8) -> NodeKey {
    NodeKey::new(&[n; 32])
}

fn agent(name: &str) -> AgentId {
    AgentId::parse(name).unwrap()
}

/// Agents of node 1 call servers of node 2.
fn link(binding: u8) -> (AssertionIssuer, AssertionVerifier) {
    let (owner, binding) = (key(2).public_key().node_id(), LinkBinding([binding; 32]));
    let home = key(1).public_key();
    let ends = LinkEnds {
        home,
        owner,
        binding,
    };
    (
        AssertionIssuer::new(key(1), owner, binding),
        AssertionVerifier::new(ends),
    )
}

fn signed(assertion: &Assertion, by: &NodeKey) -> SignedAssertion {
    let bytes = assertion.to_signing_bytes();
    let signature = by.sign(&bytes).0.to_vec();
    SignedAssertion { bytes, signature }
}

fn assertion() -> Assertion {
    Assertion {
        id: AssertionId([9; 16]),
        agent: "agent.alice".to_owned(),
        home: key(1).public_key().node_id(),
        owner: key(2).public_key().node_id(),
        binding: LinkBinding([1; 32]),
        until_ms: NOW + 1000,
    }
}

/// The result of node 2 for a modified assertion.
fn judged(change: fn(&mut Assertion)) -> Result<NodeAgent, AssertionError> {
    let mut changed = assertion();
    change(&mut changed);
    let (_, mut theirs) = link(1);
    theirs.authenticate(AssertionId([9; 16]), Some(&signed(&changed, &key(1))), NOW)
}

/// FED-060.
#[test]
fn an_assertion_is_sent_once_and_then_used_by_its_id() {
    let (mut ours, mut theirs) = link(1);
    let first = ours.assertion_for(&agent("alice"), NOW, [5; 16]);
    let believed = theirs.authenticate(first.id, first.signed.as_deref(), NOW);
    assert_eq!(believed.as_ref().unwrap().agent, agent("alice"));
    assert_eq!(believed.unwrap().node, key(1).public_key().node_id());
    ours.mark_accepted(first.id);
    let second = ours.assertion_for(&agent("alice"), NOW + 5, [6; 16]);
    assert_eq!((second.id, &second.signed), (first.id, &None));
    assert!(theirs.authenticate(second.id, None, NOW + 5).is_ok());
    // Shown again, it is the same one.
    assert!(
        theirs
            .authenticate(first.id, first.signed.as_deref(), NOW)
            .is_ok()
    );
    assert_eq!(theirs.len(), 1);
}

/// FED-042.
#[test]
fn an_assertion_for_another_link_or_node_is_rejected() {
    let (mut ours, mut theirs) = link(1);
    let shown = ours.assertion_for(&agent("alice"), NOW, [5; 16]);
    let (_, mut other) = link(2);
    let replayed = other.authenticate(shown.id, shown.signed.as_deref(), NOW);
    assert_eq!(replayed, Err(AssertionError::LinkMismatch));
    assert_eq!(
        judged(|a| a.owner = NodeId([0; 32])),
        Err(AssertionError::LinkMismatch)
    );
    assert_eq!(
        judged(|a| a.home = NodeId([0; 32])),
        Err(AssertionError::LinkMismatch)
    );
    // The binding alone decides: everything else is as it should be.
    assert!(
        theirs
            .authenticate(shown.id, shown.signed.as_deref(), NOW)
            .is_ok()
    );
}

/// FED-042.
#[test]
fn a_forged_or_changed_assertion_is_rejected() {
    let (_, mut theirs) = link(1);
    let id = AssertionId([9; 16]);
    let by_other = signed(&assertion(), &key(3));
    assert_eq!(
        theirs.authenticate(id, Some(&by_other), NOW),
        Err(AssertionError::BadSignature)
    );
    let mut for_bob = assertion();
    for_bob.agent = "agent.bobby".to_owned();
    let mut changed = signed(&assertion(), &key(1));
    changed.bytes = for_bob.to_signing_bytes();
    assert_eq!(
        theirs.authenticate(id, Some(&changed), NOW),
        Err(AssertionError::BadSignature)
    );
    let mut short = signed(&assertion(), &key(1));
    short.signature.pop();
    assert_eq!(
        theirs.authenticate(id, Some(&short), NOW),
        Err(AssertionError::BadSignature)
    );
    assert!(theirs.is_empty());
}

/// An agent cannot use the id of another one's assertion.
#[test]
fn an_id_names_one_assertion_on_a_link() {
    let (_, mut theirs) = link(1);
    let id = AssertionId([9; 16]);
    let alice = signed(&assertion(), &key(1));
    assert!(theirs.authenticate(id, Some(&alice), NOW).is_ok());
    let mut for_bob = assertion();
    for_bob.agent = "agent.bob".to_owned();
    let bob = signed(&for_bob, &key(1));
    assert_eq!(
        theirs.authenticate(id, Some(&bob), NOW),
        Err(AssertionError::Reused)
    );
    let other = AssertionId([8; 16]);
    assert_eq!(
        theirs.authenticate(other, Some(&bob), NOW),
        Err(AssertionError::IdMismatch)
    );
    assert_eq!(
        theirs.authenticate(id, None, NOW).unwrap().agent,
        agent("alice")
    );
}

#[test]
fn an_assertion_expires_and_has_a_maximum_lifetime() {
    let (_, mut theirs) = link(1);
    let id = AssertionId([9; 16]);
    let alice = signed(&assertion(), &key(1));
    assert!(theirs.authenticate(id, Some(&alice), NOW + 999).is_ok());
    assert_eq!(
        theirs.authenticate(id, None, NOW + 1000),
        Err(AssertionError::Expired)
    );
    assert_eq!(
        theirs.authenticate(id, Some(&alice), NOW + 1000),
        Err(AssertionError::Expired)
    );
    assert_eq!(judged(|a| a.until_ms = NOW), Err(AssertionError::Expired));
    assert!(judged(|a| a.until_ms = NOW + LIFETIME_MAX_MS).is_ok());
    assert_eq!(
        judged(|a| a.until_ms = NOW + LIFETIME_MAX_MS + 1),
        Err(AssertionError::LifetimeTooLong)
    );
    assert_eq!(
        judged(|a| a.until_ms = u64::MAX),
        Err(AssertionError::LifetimeTooLong)
    );
}

#[test]
fn an_invalid_agent_name_is_rejected_even_if_signed() {
    for bad in ["alice", "agent.", "agent.kernel", "agent.a\nb", "agent.%41"] {
        let mut changed = assertion();
        changed.agent = bad.to_owned();
        let (_, mut theirs) = link(1);
        let said = theirs.authenticate(changed.id, Some(&signed(&changed, &key(1))), NOW);
        assert!(
            matches!(said, Err(AssertionError::Agent(_))),
            "{bad:?}: {said:?}"
        );
    }
    let long = judged(|a| a.agent = "x".repeat(ASSERTION_BYTES_MAX));
    assert_eq!(long, Err(AssertionError::Unreadable));
}

/// An evicted assertion is accepted again.
#[test]
fn more_agents_than_the_limit_can_call() {
    let (mut ours, mut theirs) = link(1);
    let mut call = |n: usize, now: u64| {
        let agent = agent(&format!("a{n}"));
        let mut random = [0; 16];
        random[..8].copy_from_slice(&(n as u64).to_be_bytes());
        let made = ours.assertion_for(&agent, now, random);
        let mut said = theirs.authenticate(made.id, made.signed.as_deref(), now);
        if said == Err(AssertionError::Unknown) {
            ours.mark_unknown(made.id);
            let again = ours.assertion_for(&agent, now, random);
            said = theirs.authenticate(again.id, again.signed.as_deref(), now);
        }
        assert_eq!(said.unwrap().agent, agent);
        ours.mark_accepted(made.id);
        assert!(theirs.len() <= ASSERTIONS_MAX);
    };
    for round in 0..2 {
        for n in 0..ASSERTIONS_MAX + 8 {
            call(n, NOW + round);
        }
    }
}

#[test]
fn expired_assertions_are_evicted_before_the_least_recently_used() {
    let (_, mut theirs) = link(1);
    let mut show = |n: u64, until_ms: u64, now: u64| {
        let mut made = assertion();
        made.id.0[..8].copy_from_slice(&n.to_be_bytes());
        made.until_ms = until_ms;
        let said = theirs.authenticate(made.id, Some(&signed(&made, &key(1))), now);
        assert!(said.is_ok(), "{said:?}");
        theirs.verified.len()
    };
    for n in 0..ASSERTIONS_MAX as u64 {
        show(n, NOW + if n < 10 { 50 } else { 5000 }, NOW);
    }
    assert_eq!(show(1000, NOW + 5000, NOW + 100), ASSERTIONS_MAX - 9);
    let id = |n: u64| {
        let mut id = AssertionId([9; 16]);
        id.0[..8].copy_from_slice(&n.to_be_bytes());
        id
    };
    assert_eq!(
        theirs.authenticate(id(3), None, NOW + 100),
        Err(AssertionError::Unknown)
    );
    assert!(theirs.authenticate(id(10), None, NOW + 100).is_ok());
}

#[test]
fn issued_assertions_are_renewed_before_expiry_and_after_removal() {
    let (mut ours, mut theirs) = link(1);
    let alice = agent("alice");
    let first = ours.assertion_for(&alice, NOW, [1; 16]);
    ours.mark_accepted(first.id);
    let last = NOW + ISSUED_LIFETIME_MS - RENEW_BEFORE_MS;
    assert_eq!(ours.assertion_for(&alice, last, [2; 16]).id, first.id);
    let renewed = ours.assertion_for(&alice, last + 1, [3; 16]);
    assert_ne!(renewed.id, first.id);
    assert!(
        theirs
            .authenticate(renewed.id, renewed.signed.as_deref(), last)
            .is_ok()
    );
    // The clock was put back by an hour.
    let back = ours.assertion_for(&alice, NOW - 3_600_000, [4; 16]);
    assert_eq!(back.id, AssertionId([4; 16]));
    ours.remove_agent(&alice);
    assert!(
        ours.assertion_for(&alice, NOW - 3_600_000, [5; 16])
            .signed
            .is_some()
    );
}
