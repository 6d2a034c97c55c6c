use super::*;
use crate::store::audit::chain::Chain;
use crate::store::audit::chain::tests::event;
use crate::store::audit::reader::LogReader;
use crate::store::audit::record;
use mgp_protocol::mgp::audit::EventType;
use proptest::prelude::*;
use serde_json::json;

fn lines(count: u64) -> (Vec<Vec<u8>>, Head) {
    let mut chain = Chain::new(Head::START);
    let lines = (1..=count).map(|n| chain.append(event(json!({"n": n}))).text);
    (lines.collect(), chain.head())
}

/// An event without anything in it.
fn empty(line: &mut Vec<u8>) {
    line.extend_from_slice(b"{}");
}

fn verify(bytes: &[u8], known: Option<Head>) -> Report {
    let mut verifier = Verifier::new(known);
    LogReader::new(bytes).for_each(|item| verifier.add_item(1, &item));
    verifier.finish()
}

fn faults(lines: &[Vec<u8>], known: Option<Head>) -> Vec<LogFault> {
    verify(&lines.concat(), known).faults
}

fn names(faults: &[LogFault]) -> Vec<(&'static str, u64, u64)> {
    let name = |fault: &LogFault| match *fault {
        LogFault::Changed { sequence, .. } => ("changed", sequence, sequence),
        LogFault::Removed { from, to } => ("removed", from, to),
        LogFault::Truncated { from, to } => ("truncated", from, to),
        LogFault::Moved { from, to, .. } => ("moved", from, to),
        LogFault::Duplicated { from, to, .. } => ("duplicated", from, to),
        LogFault::Foreign { place } => ("foreign", place.offset, 0),
        LogFault::Unanchored { first } => ("unanchored", first, first),
        LogFault::Separator { sequence, .. } => ("separator", sequence, sequence),
        LogFault::Torn { len, .. } => ("torn", len, len),
        LogFault::Unterminated { .. } => ("unterminated", 0, 0),
        LogFault::TooMany { .. } => ("too many", 0, 0),
    };
    faults.iter().map(name).collect()
}

#[test]
fn an_intact_log_has_no_fault() {
    let (lines, head) = lines(50);
    let report = verify(&lines.concat(), Some(head));
    assert_eq!((report.records, report.head), (50, head));
    assert_eq!(report.faults, []);
    assert_eq!(report.required_repair(), Repair::Nothing);
    let empty = verify(b"", None);
    assert_eq!(
        (empty.records, empty.head, empty.faults),
        (0, Head::START, vec![])
    );
}

/// A rewritten record with a valid hash is detected by its successor, or by the known head.
#[test]
fn a_forged_record_is_reported() {
    let (mut lines, head) = lines(9);
    let forge = |lines: &mut Vec<Vec<u8>>, at: usize| {
        let old = lines[at].clone();
        let old = AuditRecord::parse(old.trim_ascii_end()).unwrap();
        lines[at] = record::write_line(old.sequence, old.previous, empty).0;
    };
    let whole = lines.clone();
    forge(&mut lines, 4);
    assert_eq!(names(&faults(&lines, None)), [("changed", 5, 5)]);
    let mut lines = whole;
    forge(&mut lines, 8);
    assert_eq!(names(&faults(&lines, Some(head))), [("changed", 9, 9)]);
}

#[test]
fn missing_ends_are_reported() {
    let (lines, head) = lines(9);
    assert_eq!(names(&faults(&lines[2..], None)), [("removed", 1, 2)]);
    assert_eq!(
        names(&faults(&lines[..6], Some(head))),
        [("truncated", 7, 9)]
    );
    assert_eq!(names(&faults(&[], Some(head))), [("truncated", 1, 9)]);
    assert_eq!(faults(&lines[..6], None), []);
    let mut more = lines.clone();
    more.insert(3, b"{\"hello\":1}\n".to_vec());
    assert_eq!(names(&faults(&more, None))[0].0, "foreign");
}

/// A torn end before another file is damage.
#[test]
fn only_the_last_file_may_be_torn() {
    let (lines, head) = lines(4);
    let whole = lines.concat();
    let torn = verify(&whole[..whole.len() - 20], None);
    let offset = lines[..3].concat().len() as u64;
    let place = SegmentOffset { segment: 1, offset };
    assert_eq!(torn.required_repair(), Repair::Truncate(place));
    assert_eq!(torn.head.sequence, 3);
    let acknowledged = verify(&whole[..whole.len() - 20], Some(head));
    let gone = LogFault::Truncated { from: 4, to: 4 };
    assert_eq!(acknowledged.required_repair(), Repair::Stop(gone));
    let mut verifier = Verifier::new(Some(head));
    let (first, second) = (lines[..2].concat(), lines[2..].concat());
    LogReader::new(&first[..first.len() - 20]).for_each(|i| verifier.add_item(1, &i));
    LogReader::new(&second).for_each(|i| verifier.add_item(2, &i));
    assert_eq!(names(&verifier.finish().faults), [("changed", 2, 2)]);
    let open = verify(&whole[..whole.len() - 1], Some(head));
    let offset = whole.len() as u64 - 1;
    assert_eq!(
        open.required_repair(),
        Repair::Terminate(SegmentOffset { segment: 1, offset })
    );
}

/// A power cut may lose any sectors after the last record known to be on disk. The log is truncated at the first hole.
#[test]
fn a_hole_after_the_known_head_is_torn() {
    let (lines, _) = lines(20);
    let bytes = lines.concat();
    let known = verify(&lines[..5].concat(), None).head;
    let acknowledged = lines[..5].concat().len();
    for unit in [512, 4_096] {
        for sector in acknowledged / unit..bytes.len().div_ceil(unit) {
            let from = (sector * unit).max(acknowledged);
            for to in [((sector + 1) * unit).min(bytes.len()), bytes.len()] {
                let mut hurt = bytes.clone();
                hurt[from..to].fill(0);
                let report = verify(&hurt, Some(known));
                let Repair::Truncate(place) = report.required_repair() else {
                    panic!("{from}..{to}: {:?}", report.faults);
                };
                let cut = usize::try_from(place.offset).unwrap();
                let whole = verify(&bytes[..cut], Some(known));
                assert!((acknowledged..=from).contains(&cut), "{from}..{to}");
                assert_eq!(
                    (whole.required_repair(), whole.head),
                    (Repair::Nothing, report.head)
                );
                let all = verify(&bytes, None).head;
                assert!(matches!(
                    verify(&hurt, Some(all)).required_repair(),
                    Repair::Stop(_)
                ));
                let mut verifier = Verifier::new(Some(known));
                LogReader::new(&hurt).for_each(|item| verifier.add_item(1, &item));
                LogReader::new(b"x").for_each(|item| verifier.add_item(2, &item));
                assert!(matches!(
                    verifier.finish().required_repair(),
                    Repair::Stop(_)
                ));
            }
        }
    }
}

#[test]
fn too_many_faults_are_reported_as_such() {
    let (line, _) = record::write_line(7, RecordDigest::START, empty);
    let bytes = line.repeat(MAX_SPANS + 10);
    assert!(names(&verify(&bytes, None).faults).contains(&("too many", 0, 0)));
}

proptest! {
    /// Exactly that record is reported, or the newline after it.
    #[test]
    fn a_flipped_byte_is_reported(count in 1u64..9, at in 0usize..100_000, mask in 1u8.., known: bool) {
        let (lines, head) = lines(count);
        let mut bytes = lines.concat();
        let at = at % bytes.len();
        bytes[at] ^= mask;
        // The last newline as a zero is a part of a write that was never finished.
        prop_assume!(bytes.last() != Some(&0));
        let mut begins = 0;
        let hit = 1 + lines.iter().take_while(|l| { begins += l.len(); begins <= at }).count() as u64;
        let newline = at + 1 == begins;
        let report = verify(&bytes, known.then_some(head));
        let expected = if newline { "separator" } else { "changed" };
        prop_assert_eq!(names(&report.faults), [(expected, hit, hit)]);
        prop_assert_eq!(report.records, if newline { count } else { count - 1 });
        prop_assert!(matches!(report.required_repair(), Repair::Stop(_)));
    }

    /// The rest is reported as torn and, if the head is known, as truncated.
    #[test]
    fn a_truncation_is_reported(count in 1u64..9, at in 0usize..100_000) {
        let (lines, head) = lines(count);
        let bytes = lines.concat();
        let at = at % bytes.len();
        let mut ends = 0;
        let whole = lines.iter().take_while(|l| { ends += l.len(); ends <= at + 1 }).count() as u64;
        let before: usize = lines[..whole as usize].iter().map(Vec::len).sum();
        let report = verify(&bytes[..at], Some(head));
        let mut want = Vec::new();
        if whole < count {
            want.push(("truncated", whole + 1, count));
        }
        if at + 1 == before {
            want.push(("unterminated", 0, 0));
        } else if at > before {
            want.push(("torn", (at - before) as u64, (at - before) as u64));
        }
        prop_assert_eq!(names(&report.faults), want);
        prop_assert_eq!(report.records, whole);
    }

    #[test]
    fn removed_records_are_reported(count in 1u64..20, from in 0usize..20, len in 1usize..5) {
        let (mut lines, head) = lines(count);
        let from = from % lines.len();
        let to = (from + len).min(lines.len());
        lines.drain(from..to);
        let word = if to as u64 == count { "truncated" } else { "removed" };
        prop_assert_eq!(names(&faults(&lines, Some(head))), [(word, from as u64 + 1, to as u64)]);
    }

    #[test]
    fn a_duplicate_is_reported(count in 1u64..20, which in 0usize..20, to in 0usize..21) {
        let (mut lines, head) = lines(count);
        let which = which % lines.len();
        let copy = lines[which].clone();
        lines.insert(to % (lines.len() + 1), copy);
        let n = which as u64 + 1;
        prop_assert_eq!(names(&faults(&lines, Some(head))), [("duplicated", n, n)]);
    }

    /// If it moved by one, either of the two may be reported.
    #[test]
    fn a_moved_record_is_reported(count in 2u64..20, which in 0usize..20, to in 0usize..20) {
        let (mut lines, head) = lines(count);
        let (which, to) = (which % lines.len(), to % lines.len());
        prop_assume!(which != to);
        let line = lines.remove(which);
        lines.insert(to, line);
        let found = names(&faults(&lines, Some(head)));
        let (n, other) = (which as u64 + 1, to as u64 + 1);
        let adjacent = which.abs_diff(to) == 1 && found == [("moved", other, other)];
        prop_assert!(adjacent || found == [("moved", n, n)], "{:?}", found);
    }

    /// Both are reported, or one if a single move explains it.
    #[test]
    fn swapped_records_are_reported(count in 2u64..20, one in 0usize..20, two in 0usize..20) {
        let (mut lines, head) = lines(count);
        let (one, two) = (one % lines.len(), two % lines.len());
        prop_assume!(one < two);
        lines.swap(one, two);
        let found = names(&faults(&lines, Some(head)));
        let (a, b) = (one as u64 + 1, two as u64 + 1);
        let near: Vec<u64> = (a..=b).collect();
        if two - one > 2 {
            prop_assert!(found.contains(&("moved", a, a)) && found.contains(&("moved", b, b)));
        }
        prop_assert_eq!(found.len(), (two - one).min(2));
        prop_assert!(found.iter().all(|(w, n, m)| *w == "moved" && n == m && near.contains(n)));
    }
}

fn said(event_type: EventType, details: serde_json::Value) -> mgp_protocol::mgp::audit::Event {
    let mut said = event(details);
    said.event_type = event_type;
    said
}

/// An acknowledgment does not cover later damage. A torn end after a power cut is no damage.
#[test]
fn damage_is_reported_until_acknowledged() {
    let mut chain = Chain::new(Head::START);
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut write = |event| lines.push(chain.append(event).text);
    for _ in 0..3 {
        write(event(json!({})));
    }
    let torn = json!({"found": 1, "faults": [{"fault": "torn", "bytes": 3}]});
    write(said(EventType::LOG_DAMAGED, torn));
    write(said(EventType::LOG_DAMAGED, json!({"not_written": 4})));
    write(said(EventType::LOG_DAMAGED, json!({"head": "it is gone"})));
    let removed = LogFault::Removed { from: 2, to: 2 };
    let known = json!({"through": 6, "faults": [acknowledgment(&removed)]});
    write(said(EventType::LOG_ACKNOWLEDGED, known));
    let changed = json!({"faults": [{"fault": "changed", "from": 1, "to": 1}]});
    write(said(EventType::LOG_DAMAGED, changed));
    write(said(
        EventType::LOG_ACKNOWLEDGED,
        json!({"through": 99, "faults": []}),
    ));
    let upto = |lines: &[Vec<u8>]| verify(&lines.concat(), None);
    let none: [u64; 0] = [];
    assert_eq!(upto(&lines[..5]).damage, none);
    assert_eq!(upto(&lines[..6]).damage, [6]);
    assert_eq!(upto(&lines[..7]).damage, none);
    assert_eq!(upto(&lines[..8]).damage, [8]);
    assert_eq!(upto(&lines).damage, none);
    lines.remove(1);
    let report = upto(&lines);
    assert_eq!(
        (report.faults, report.acknowledged),
        (vec![], vec![removed])
    );
    lines.remove(1);
    let more = LogFault::Removed { from: 2, to: 3 };
    assert_eq!(upto(&lines).faults, [more]);
}
