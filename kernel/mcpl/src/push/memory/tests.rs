use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn event(id: &str, text: &str) -> String {
    format!(
        r#"{{"featureSet":"s.a","eventId":"{id}","timestamp":"2026-01-23T10:30:00Z","origin":{{"a":1,"b":2}},"payload":{{"content":"{text}"}}}}"#
    )
}

fn body(params: &str) -> EventBody {
    EventBody::from_event(&Event::parse(params).unwrap())
}

fn sample() -> EventBody {
    body(&event("e", "one"))
}

/// MCPL-082: processed once, and each retry gets the first answer.
#[test]
fn an_event_is_new_once_and_then_has_its_answer() {
    let (mut memory, server) = (PushMemory::default(), ServerId::new("git"));
    let new = memory.begin_event(&server, "e1", sample(), 0);
    assert!(matches!(new, PushLookup::New(_)));
    assert_eq!(
        memory.begin_event(&server, "e1", sample(), 1),
        PushLookup::InFlight
    );
    let answer = PushAnswer::accept(Some("inf_1".into()));
    assert!(memory.set_answer(&server, "e1", &answer).is_some());
    assert_eq!(
        memory.begin_event(&server, "e1", sample(), 2),
        PushLookup::Answered(answer)
    );
}

/// MCPL-083: another server's event of the same id is another event.
#[test]
fn ids_are_those_of_one_server() {
    let mut memory = PushMemory::default();
    for server in ["git", "mail"] {
        let new = memory.begin_event(&ServerId::new(server), "e1", sample(), 0);
        assert!(matches!(new, PushLookup::New(_)), "{server}");
    }
}

/// Different ids never collide, whatever their length and bytes.
#[test]
fn ids_never_collide() {
    let ids = [
        "a",
        "b",
        "a\0",
        "a\0\0",
        "\0",
        "",
        "fifteen letters",
        "sixteen letters.",
        "seventeen letters",
    ];
    let hashes: std::collections::BTreeSet<_> = ids.iter().map(|id| id_hash(id)).collect();
    assert_eq!(hashes.len(), ids.len());
}

/// The same event in another spelling, or with a new timestamp, is the same; another content, origin or set is
/// not.
#[test]
fn another_event_with_the_same_id_is_detected() {
    let (mut memory, server) = (PushMemory::default(), ServerId::new("git"));
    memory.begin_event(&server, "e", sample(), 0);
    let params = event("e", "one");
    for same in [
        params.replace("10:30", "10:31"),
        params.replace(r#"{"a":1,"b":2}"#, r#"{ "b" : 2, "a" : 1 }"#),
    ] {
        assert_eq!(
            memory.begin_event(&server, "e", body(&same), 1),
            PushLookup::InFlight,
            "{same}"
        );
    }
    for other in [
        params.replace("one", "two"),
        params.replace(r#""a":1"#, r#""a":2"#),
        params.replace("s.a", "s.b"),
        params.replace(r#""origin":{"a":1,"b":2},"#, ""),
    ] {
        assert_eq!(
            memory.begin_event(&server, "e", body(&other), 1),
            PushLookup::Conflict,
            "{other}"
        );
    }
}

/// After a restart, events in flight are unknown and not processed again; answered ones keep their answer.
#[test]
fn a_restart_keeps_answers_and_reports_events_in_flight_as_unknown() {
    let (mut memory, server) = (PushMemory::default(), ServerId::new("git"));
    let mut journal = Vec::new();
    for id in ["answered", "under way", "released"] {
        let PushLookup::New(entry) = memory.begin_event(&server, id, sample(), 5) else {
            panic!("{id} is not new");
        };
        journal.push(entry.to_bytes());
    }
    let answer = PushAnswer::accept(None);
    journal.extend(
        memory
            .set_answer(&server, "answered", &answer)
            .map(|of| of.to_bytes()),
    );
    journal.extend(memory.release(&server, "released").map(|of| of.to_bytes()));
    journal.push(b"{\"no\":\"entry\"}".to_vec());
    let (mut again, unread) = PushMemory::restore(&journal, 6);
    assert_eq!((again.len(), unread), (2, 1));
    assert_eq!(
        again.begin_event(&server, "answered", sample(), 7),
        PushLookup::Answered(answer)
    );
    let PushLookup::Answered(unknown) = again.begin_event(&server, "under way", sample(), 7) else {
        panic!("it is done again");
    };
    assert!(!unknown.accepted && unknown.reason.unwrap().contains("not known"));
    assert!(matches!(
        again.begin_event(&server, "released", sample(), 7),
        PushLookup::New(_)
    ));
}

/// MCPL-083: a million ids stay within the bounds, in memory and in the journal; the newest are known. A build that
/// is not optimised takes a fifth of them.
#[test]
fn a_million_ids_are_bounded() {
    let mut memory = PushMemory::default();
    let (mut journal, mut most, body) = (0_usize, 0_usize, sample());
    let answer = PushAnswer::accept(None);
    let ids: u64 = if cfg!(debug_assertions) {
        200_000
    } else {
        1_000_000
    };
    for n in 0..ids {
        let server = ServerId::new(format!("s{}", if n % 2 == 0 { 0 } else { n % 41 }));
        let id = n.to_string();
        assert!(matches!(
            memory.begin_event(&server, &id, body, n),
            PushLookup::New(_)
        ));
        memory.set_answer(&server, &id, &answer).unwrap();
        journal += 2;
        if let Some(all) = memory.compact() {
            journal = all.len();
        }
        most = most.max(journal);
    }
    assert!(memory.len() <= TOTAL_MAX);
    assert!(
        memory
            .servers
            .values()
            .all(|of| of.by_id.len() <= SERVER_MAX)
    );
    assert!(
        memory
            .servers
            .values()
            .all(|of| of.order.len() == of.by_id.len())
    );
    assert!(most <= 2 * TOTAL_MAX + 20_002, "{most} entries");
    let newest = memory.begin_event(&ServerId::new("s0"), &(ids - 2).to_string(), sample(), ids);
    assert_eq!(newest, PushLookup::Answered(answer));
}

/// One server's ids do not push out another's.
#[test]
fn a_noisy_server_forgets_its_own_first() {
    let mut memory = PushMemory::default();
    let (quiet, noisy) = (ServerId::new("quiet"), ServerId::new("noisy"));
    let answer = PushAnswer::accept(None);
    memory.begin_event(&quiet, "e", sample(), 0);
    memory.set_answer(&quiet, "e", &answer);
    let body = sample();
    for n in 0..50_000 {
        memory.begin_event(&noisy, &n.to_string(), body, 1);
        memory.set_answer(&noisy, &n.to_string(), &answer);
    }
    assert_eq!(
        memory.begin_event(&quiet, "e", sample(), 2),
        PushLookup::Answered(answer)
    );
    assert!(matches!(
        memory.begin_event(&noisy, "0", sample(), 2),
        PushLookup::New(_)
    ));
}

#[test]
fn old_ids_expire_and_events_in_flight_do_not() {
    let (mut memory, server) = (PushMemory::default(), ServerId::new("git"));
    memory.begin_event(&server, "under way", sample(), 0);
    memory.begin_event(&server, "answered", sample(), 0);
    memory.set_answer(&server, "answered", &PushAnswer::accept(None));
    let later = AGE_MAX_MS + 1;
    assert!(matches!(
        memory.begin_event(&server, "answered", sample(), later),
        PushLookup::New(_)
    ));
    assert_eq!(
        memory.begin_event(&server, "under way", sample(), later),
        PushLookup::InFlight
    );
}

#[test]
fn events_in_flight_are_bounded() {
    let (mut memory, server) = (PushMemory::default(), ServerId::new("git"));
    for n in 0..IN_FLIGHT_MAX {
        memory.begin_event(&server, &n.to_string(), sample(), 0);
    }
    assert_eq!(
        memory.begin_event(&server, "more", sample(), 0),
        PushLookup::Full
    );
    memory.set_answer(&server, "0", &PushAnswer::accept(None));
    assert!(matches!(
        memory.begin_event(&server, "more", sample(), 0),
        PushLookup::New(_)
    ));
}

#[derive(Clone, Debug)]
enum Step {
    Begin(u8),
    Answer(u8),
    Release(u8),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_u8).prop_map(Step::Begin),
        3 => (0..6_u8).prop_map(Step::Answer),
        1 => (0..6_u8).prop_map(Step::Release),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    /// Whatever the order, and however often the kernel ends: no id is new twice, but one that was released.
    #[test]
    fn no_event_is_delivered_twice(steps in prop::collection::vec(step(), 1..60)) {
        let server = ServerId::new("git");
        let (mut memory, mut journal) = (PushMemory::default(), Vec::new());
        // Delivered events, with their answers.
        let mut handed: BTreeMap<u8, Option<PushAnswer>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Begin(id) => match memory.begin_event(&server, &id.to_string(), sample(), 0) {
                    PushLookup::New(entry) => {
                        prop_assert!(handed.insert(id, None).is_none(), "{} twice", id);
                        journal.push(entry.to_bytes());
                    }
                    PushLookup::Answered(answer) => {
                        let expected = handed.get(&id).cloned().flatten();
                        prop_assert_eq!(Some(answer), expected);
                    }
                    PushLookup::InFlight => prop_assert_eq!(handed.get(&id), Some(&None)),
                    PushLookup::Conflict | PushLookup::Full => prop_assert!(false, "neither was done"),
                },
                Step::Answer(id) => {
                    let answer = PushAnswer::accept(Some(format!("inf_{id}")));
                    if let Some(entry) = memory.set_answer(&server, &id.to_string(), &answer) {
                        journal.push(entry.to_bytes());
                        handed.insert(id, Some(answer));
                    }
                }
                Step::Release(id) => {
                    if let Some(entry) = memory.release(&server, &id.to_string()) {
                        journal.push(entry.to_bytes());
                        handed.remove(&id);
                    }
                }
                Step::Restart => {
                    memory = PushMemory::restore(&journal, 0).0;
                    for answer in handed.values_mut() {
                        answer.get_or_insert_with(|| PushAnswer::reject(UNKNOWN));
                    }
                }
            }
        }
    }
}
