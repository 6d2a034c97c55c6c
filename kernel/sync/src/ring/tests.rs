use super::*;
use crate::shim::bell::Bell;
use RingNext::{Detached, End, Lost};

const ROOMY: RingLimits = RingLimits {
    events: 256,
    bytes: 1 << 20,
    max_undelivered: 64,
};

fn ring(limits: RingLimits) -> Arc<Ring<u64>> {
    Arc::new(Ring::new(limits))
}

/// Pushes event number `seq`, with its number as content and a weight of 10.
fn push(ring: &Ring<u64>, lane: u64, seq: u64) {
    assert_eq!(ring.push(lane, seq, 10).unwrap(), seq);
}

fn event(seq: u64) -> RingNext<u64> {
    RingNext::Event { seq, item: seq }
}

/// Everything available now; ends with the first `End` or `Detached`.
fn read(reader: &mut RingReader<u64>) -> Vec<RingNext<u64>> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut found = Vec::new();
    while let Poll::Ready(next) = reader.poll_next(&mut cx) {
        let last = matches!(next, End | Detached);
        found.push(next);
        if last {
            break;
        }
    }
    found
}

/// Registers a waker with a reader that has nothing to read.
fn leave(reader: &mut RingReader<u64>) -> Arc<Bell> {
    let bell = Arc::new(Bell::default());
    let waker = bell.waker();
    assert!(
        reader
            .poll_next(&mut Context::from_waker(&waker))
            .is_pending()
    );
    bell
}

/// CMCP-027, CMCP-029: one count across all lanes; missed events come before new ones.
#[test]
fn replay_comes_first_and_live_follows() {
    let ring = ring(ROOMY);
    (1..)
        .zip([7, 8, 7, 7])
        .for_each(|(seq, lane)| push(&ring, lane, seq));
    let mut reader = ring.attach(7, 1);
    assert_eq!(read(&mut reader), [event(3), event(4)]);
    let bell = leave(&mut reader);
    push(&ring, 8, 5);
    assert_eq!(bell.rung(), 0);
    push(&ring, 7, 6);
    assert_eq!(bell.rung(), 1);
    assert_eq!(read(&mut reader), [event(6)]);
    assert_eq!(
        (ring.lane_for_seq(5), ring.lane_for_seq(6)),
        (Some(8), Some(7))
    );
    assert_eq!((ring.lane_for_seq(0), ring.lane_for_seq(7)), (None, None));
}

/// CMCP-028: the last 256 of 300 are left, and the loss is reported.
#[test]
fn events_beyond_the_limit_are_reported_as_lost() {
    let ring = ring(ROOMY);
    (1..=300).for_each(|seq| push(&ring, 7, seq));
    assert_eq!(
        (ring.lane_for_seq(44), ring.lane_for_seq(45)),
        (None, Some(7))
    );
    let mut late = ring.attach(7, 43);
    let found = read(&mut late);
    assert_eq!((&found[0], found.len()), (&Lost, 257));
    assert_eq!((&found[1], &found[256]), (&event(45), &event(300)));
    assert_eq!(read(&mut ring.attach(7, 44))[0], event(45));
}

/// CMCP-030: a number not assigned yet means no replay.
#[test]
fn a_number_not_assigned_yet_reads_only_future_events() {
    let ring = ring(ROOMY);
    push(&ring, 7, 1);
    let (mut known, mut unknown) = (ring.attach(7, 2), ring.attach(8, LIVE));
    assert_eq!((read(&mut known), read(&mut unknown)), (vec![], vec![]));
    push(&ring, 7, 2);
    push(&ring, 8, 3);
    assert_eq!(
        (read(&mut known), read(&mut unknown)),
        (vec![event(2)], vec![event(3)])
    );
}

#[test]
fn bytes_bound_the_replay_as_well() {
    let limits = RingLimits { bytes: 25, ..ROOMY };
    let ring = ring(limits);
    (1..=3).for_each(|seq| push(&ring, 7, seq));
    assert_eq!(ring.log.lock().size(), (2, 1));
    assert_eq!(ring.push(7, 4, usize::MAX).unwrap(), 4);
    assert_eq!(ring.log.lock().size(), (0, 1));
    push(&ring, 7, 5);
    assert_eq!(read(&mut ring.attach(7, 3)), [Lost, event(5)]);
}

#[test]
fn an_event_too_heavy_for_replay_is_still_delivered() {
    let ring = ring(RingLimits { bytes: 5, ..ROOMY });
    let mut reader = ring.attach(7, 0);
    push(&ring, 7, 1);
    push(&ring, 7, 2);
    assert_eq!(read(&mut reader), [event(1), event(2)]);
    assert_eq!(ring.log.lock().size(), (0, 1));
}

#[test]
fn a_slow_reader_fills_the_ring_and_can_be_detached() {
    let limits = RingLimits {
        events: 2,
        max_undelivered: 1,
        ..ROOMY
    };
    let ring = ring(limits);
    let (mut slow, mut quick) = (ring.attach(7, 0), ring.attach(8, 0));
    (1..)
        .zip([7, 8, 8])
        .for_each(|(seq, lane)| push(&ring, lane, seq));
    assert!(matches!(ring.push(8, 4, 10), Err(AdmissionError::Full(4))));
    assert_eq!(read(&mut quick), [event(2), event(3)]);
    assert_eq!(read(&mut slow), [event(1)]);
    (4..)
        .zip([7, 8, 8])
        .for_each(|(seq, lane)| push(&ring, lane, seq));
    assert!(matches!(ring.push(7, 7, 10), Err(AdmissionError::Full(7))));
    assert_eq!(ring.detach_slowest(), Some(7));
    push(&ring, 7, 7);
    assert_eq!(read(&mut slow), [Detached]);
    assert_eq!(read(&mut quick), [event(5), event(6)]);
    assert_eq!(ring.detach_slowest(), None);
    assert_eq!(read(&mut ring.attach(7, 1)), [Lost, event(7)]);
}

#[test]
fn a_reserved_event_has_capacity_that_others_cannot_use() {
    let limits = RingLimits {
        events: 1,
        max_undelivered: 1,
        ..ROOMY
    };
    let ring = ring(limits);
    let mut reader = ring.attach(7, 0);
    (1..)
        .zip([7, 7])
        .for_each(|(seq, lane)| push(&ring, lane, seq));
    assert!(matches!(ring.push(7, 3, 10), Err(AdmissionError::Full(3))));
    assert_eq!(ring.push_reserved(7, 3, 10).unwrap(), 3);
    assert!(matches!(
        ring.push_reserved(7, 4, 10),
        Err(AdmissionError::Full(4))
    ));
    assert_eq!(read(&mut reader), [event(1), event(2), event(3)]);
}

#[test]
fn without_an_allowance_nothing_awaited_is_overdue() {
    let limits = RingLimits {
        events: 1,
        max_undelivered: 0,
        ..ROOMY
    };
    let ring = ring(limits);
    let mut reader = ring.attach(7, 0);
    push(&ring, 7, 1);
    assert!(matches!(ring.push(8, 2, 10), Err(AdmissionError::Full(2))));
    assert_eq!(read(&mut reader), [event(1)]);
    push(&ring, 8, 2);
}

#[test]
fn a_newer_reader_takes_the_lane_over() {
    let ring = ring(ROOMY);
    push(&ring, 7, 1);
    let mut old = ring.attach(7, 0);
    assert_eq!(read(&mut old), [event(1)]);
    let bell = leave(&mut old);
    let mut new = ring.attach(7, 0);
    assert_eq!(bell.rung(), 1);
    assert_eq!(read(&mut old), [Detached]);
    drop(old);
    push(&ring, 7, 2);
    assert_eq!(read(&mut new), [event(1), event(2)]);
}

#[test]
fn a_closed_lane_is_read_to_its_end() {
    let ring = ring(ROOMY);
    push(&ring, 7, 1);
    let mut reader = ring.attach(7, 1);
    let bell = leave(&mut reader);
    ring.close_lane(7);
    assert_eq!(bell.rung(), 1);
    assert!(matches!(
        ring.push(7, 2, 10),
        Err(AdmissionError::Closed(2))
    ));
    assert_eq!(
        (read(&mut reader), read(&mut reader)),
        (vec![End], vec![End])
    );
    push(&ring, 8, 2);
    assert_eq!(read(&mut ring.attach(7, 0)), [event(1), End]);
}

#[test]
fn a_closed_ring_is_read_to_its_end() {
    let ring = ring(ROOMY);
    let (mut a, mut b) = (ring.attach(7, 0), ring.attach(8, 0));
    let bells = [leave(&mut a), leave(&mut b)];
    push(&ring, 7, 1);
    ring.close();
    assert_eq!(bells.map(|bell| bell.rung()), [1, 1]);
    assert_eq!(
        (read(&mut a), read(&mut b)),
        (vec![event(1), End], vec![End])
    );
    assert!(matches!(
        ring.push(9, 2, 10),
        Err(AdmissionError::Closed(2))
    ));
    assert_eq!(read(&mut ring.attach(9, LIVE)), [End]);
}

#[test]
fn finished_lanes_are_forgotten_and_read_as_ended() {
    let ring = ring(ROOMY);
    for lane in 1..=10_000 {
        push(&ring, lane, lane);
        ring.close_lane(lane);
    }
    assert_eq!(ring.log.lock().size(), (256, 256));
    assert_eq!(read(&mut ring.attach(5, 1)), [Lost, End]);
    assert_eq!(read(&mut ring.attach(5, 9_744)), [End]);
    assert_eq!(ring.log.lock().size(), (256, 256));
}

/// Ten thousand idle sessions cost little more than their names.
#[test]
fn an_idle_ring_is_tiny() {
    let ring = ring(ROOMY);
    assert!(size_of_val(&*ring) <= 192, "{}", size_of_val(&*ring));
}
