//! One link, its two ends, and what is shown over it.

use super::*;

const NOW: u64 = 1_790_000_000_000;

fn key(n: u8) -> NodeKey {
    NodeKey::new(&[n; 32])
}

fn agent(name: &str) -> AgentId {
    AgentId::parse(name).unwrap()
}

/// Agents of node 1 call servers of node 2.
fn link(binding: u8) -> (OwnAssertions, Assertions) {
    let (owner, binding) = (key(2).public().node(), LinkBinding([binding; 32]));
    let home = key(1).public();
    let ends = LinkEnds {
        home,
        owner,
        binding,
    };
    (
        OwnAssertions::new(key(1), owner, binding),
        Assertions::new(ends),
    )
}

fn signed(assertion: &Assertion, by: &NodeKey) -> SignedAssertion {
    let bytes = assertion.to_sign();
    let signature = by.sign(&bytes).0.to_vec();
    SignedAssertion { bytes, signature }
}

fn assertion() -> Assertion {
    Assertion {
        id: AssertionId([9; 16]),
        agent: "agent.alice".to_owned(),
        home: key(1).public().node(),
        owner: key(2).public().node(),
        binding: LinkBinding([1; 32]),
        until_ms: NOW + 1000,
    }
}

/// What node 2 says to an assertion that differs from a good one.
fn judged(change: fn(&mut Assertion)) -> Result<NodeAgent, NotBelieved> {
    let mut changed = assertion();
    change(&mut changed);
    let (_, mut theirs) = link(1);
    theirs.caller(AssertionId([9; 16]), Some(&signed(&changed, &key(1))), NOW)
}

/// FED-060.
#[test]
fn an_agent_is_signed_for_once_and_believed_by_its_id_from_then_on() {
    let (mut ours, mut theirs) = link(1);
    let first = ours.of(&agent("alice"), NOW, [5; 16]);
    let believed = theirs.caller(first.id, first.signed.as_deref(), NOW);
    assert_eq!(believed.as_ref().unwrap().agent, agent("alice"));
    assert_eq!(believed.unwrap().node, key(1).public().node());
    ours.taken(first.id);
    let second = ours.of(&agent("alice"), NOW + 5, [6; 16]);
    assert_eq!((second.id, &second.signed), (first.id, &None));
    assert!(theirs.caller(second.id, None, NOW + 5).is_ok());
    // Shown again, it is the same one.
    assert!(
        theirs
            .caller(first.id, first.signed.as_deref(), NOW)
            .is_ok()
    );
    assert_eq!(theirs.len(), 1);
}

/// FED-042.
#[test]
fn what_was_signed_for_another_link_or_node_is_refused() {
    let (mut ours, mut theirs) = link(1);
    let shown = ours.of(&agent("alice"), NOW, [5; 16]);
    let (_, mut other) = link(2);
    let replayed = other.caller(shown.id, shown.signed.as_deref(), NOW);
    assert_eq!(replayed, Err(NotBelieved::OtherLink));
    assert_eq!(
        judged(|a| a.owner = NodeId([0; 32])),
        Err(NotBelieved::OtherLink)
    );
    assert_eq!(
        judged(|a| a.home = NodeId([0; 32])),
        Err(NotBelieved::OtherLink)
    );
    // The binding alone decides: everything else is as it should be.
    assert!(
        theirs
            .caller(shown.id, shown.signed.as_deref(), NOW)
            .is_ok()
    );
}

/// FED-042.
#[test]
fn what_another_node_signed_or_somebody_changed_is_forged() {
    let (_, mut theirs) = link(1);
    let id = AssertionId([9; 16]);
    let by_other = signed(&assertion(), &key(3));
    assert_eq!(
        theirs.caller(id, Some(&by_other), NOW),
        Err(NotBelieved::Forged)
    );
    let mut for_bob = assertion();
    for_bob.agent = "agent.bobby".to_owned();
    let mut changed = signed(&assertion(), &key(1));
    changed.bytes = for_bob.to_sign();
    assert_eq!(
        theirs.caller(id, Some(&changed), NOW),
        Err(NotBelieved::Forged)
    );
    let mut short = signed(&assertion(), &key(1));
    short.signature.pop();
    assert_eq!(
        theirs.caller(id, Some(&short), NOW),
        Err(NotBelieved::Forged)
    );
    assert!(theirs.is_empty());
}

/// An agent cannot take the name of another by the id of its assertion.
#[test]
fn an_id_names_one_assertion_on_a_link() {
    let (_, mut theirs) = link(1);
    let id = AssertionId([9; 16]);
    let alice = signed(&assertion(), &key(1));
    assert!(theirs.caller(id, Some(&alice), NOW).is_ok());
    let mut for_bob = assertion();
    for_bob.agent = "agent.bob".to_owned();
    let bob = signed(&for_bob, &key(1));
    assert_eq!(theirs.caller(id, Some(&bob), NOW), Err(NotBelieved::Reused));
    let other = AssertionId([8; 16]);
    assert_eq!(
        theirs.caller(other, Some(&bob), NOW),
        Err(NotBelieved::OtherId)
    );
    assert_eq!(theirs.caller(id, None, NOW).unwrap().agent, agent("alice"));
}

#[test]
fn an_assertion_ends_when_it_says_and_holds_no_longer_than_any_may() {
    let (_, mut theirs) = link(1);
    let id = AssertionId([9; 16]);
    let alice = signed(&assertion(), &key(1));
    assert!(theirs.caller(id, Some(&alice), NOW + 999).is_ok());
    assert_eq!(
        theirs.caller(id, None, NOW + 1000),
        Err(NotBelieved::Expired)
    );
    assert_eq!(
        theirs.caller(id, Some(&alice), NOW + 1000),
        Err(NotBelieved::Expired)
    );
    assert_eq!(judged(|a| a.until_ms = NOW), Err(NotBelieved::Expired));
    assert!(judged(|a| a.until_ms = NOW + LONGEST_MS).is_ok());
    assert_eq!(
        judged(|a| a.until_ms = NOW + LONGEST_MS + 1),
        Err(NotBelieved::TooLong)
    );
    assert_eq!(judged(|a| a.until_ms = u64::MAX), Err(NotBelieved::TooLong));
}

#[test]
fn what_could_be_no_agent_is_refused_whoever_signed_it() {
    for bad in ["alice", "agent.", "agent.kernel", "agent.a\nb", "agent.%41"] {
        let mut changed = assertion();
        changed.agent = bad.to_owned();
        let (_, mut theirs) = link(1);
        let said = theirs.caller(changed.id, Some(&signed(&changed, &key(1))), NOW);
        assert!(
            matches!(said, Err(NotBelieved::Agent(_))),
            "{bad:?}: {said:?}"
        );
    }
    let long = judged(|a| a.agent = "x".repeat(LONGEST_BYTES));
    assert_eq!(long, Err(NotBelieved::Unreadable));
}

/// A full table is no dead end: whoever had to make room shows its assertion again and is believed.
#[test]
fn more_agents_than_are_remembered_can_all_call() {
    let (mut ours, mut theirs) = link(1);
    let mut call = |n: usize, now: u64| {
        let agent = agent(&format!("a{n}"));
        let mut random = [0; 16];
        random[..8].copy_from_slice(&(n as u64).to_be_bytes());
        let made = ours.of(&agent, now, random);
        let mut said = theirs.caller(made.id, made.signed.as_deref(), now);
        if said == Err(NotBelieved::Unknown) {
            ours.forgotten(made.id);
            let again = ours.of(&agent, now, random);
            said = theirs.caller(again.id, again.signed.as_deref(), now);
        }
        assert_eq!(said.unwrap().agent, agent);
        ours.taken(made.id);
        assert!(theirs.len() <= MOST);
    };
    for round in 0..2 {
        for n in 0..MOST + 8 {
            call(n, NOW + round);
        }
    }
}

#[test]
fn who_called_longest_ago_makes_room_after_those_that_expired() {
    let (_, mut theirs) = link(1);
    let mut show = |n: u64, until_ms: u64, now: u64| {
        let mut made = assertion();
        made.id.0[..8].copy_from_slice(&n.to_be_bytes());
        made.until_ms = until_ms;
        let said = theirs.caller(made.id, Some(&signed(&made, &key(1))), now);
        assert!(said.is_ok(), "{said:?}");
        theirs.believed.len()
    };
    for n in 0..MOST as u64 {
        show(n, NOW + if n < 10 { 50 } else { 5000 }, NOW);
    }
    assert_eq!(show(1000, NOW + 5000, NOW + 100), MOST - 9);
    let id = |n: u64| {
        let mut id = AssertionId([9; 16]);
        id.0[..8].copy_from_slice(&n.to_be_bytes());
        id
    };
    assert_eq!(
        theirs.caller(id(3), None, NOW + 100),
        Err(NotBelieved::Unknown)
    );
    assert!(theirs.caller(id(10), None, NOW + 100).is_ok());
}

#[test]
fn ours_are_signed_anew_before_they_end_and_for_an_agent_that_comes_again() {
    let (mut ours, mut theirs) = link(1);
    let alice = agent("alice");
    let first = ours.of(&alice, NOW, [1; 16]);
    ours.taken(first.id);
    let last = NOW + OURS_MS - RENEWED_MS;
    assert_eq!(ours.of(&alice, last, [2; 16]).id, first.id);
    let renewed = ours.of(&alice, last + 1, [3; 16]);
    assert_ne!(renewed.id, first.id);
    assert!(
        theirs
            .caller(renewed.id, renewed.signed.as_deref(), last)
            .is_ok()
    );
    // The clock was put back by an hour.
    let back = ours.of(&alice, NOW - 3_600_000, [4; 16]);
    assert_eq!(back.id, AssertionId([4; 16]));
    ours.ended(&alice);
    assert!(ours.of(&alice, NOW - 3_600_000, [5; 16]).signed.is_some());
}
