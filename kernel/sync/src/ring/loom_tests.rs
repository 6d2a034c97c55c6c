use super::*;
use crate::shim::model::{block_on, bounded};
use crate::shim::{AtomicU64, Ordering};
use loom::thread;

fn ring(events: usize, max_undelivered: usize) -> Arc<Ring<()>> {
    let bytes = 99;
    Arc::new(Ring::new(RingLimits {
        events,
        bytes,
        max_undelivered,
    }))
}

fn next(reader: &mut RingReader<()>) -> RingNext<()> {
    block_on(|cx| reader.poll_next(cx))
}

/// The numbers of all events to the end, and whether a loss was reported first.
fn read_to_the_end(reader: &mut RingReader<()>) -> (bool, Vec<u64>) {
    let (mut lost, mut found) = (false, Vec::new());
    loop {
        match next(reader) {
            RingNext::Event { seq, .. } => found.push(seq),
            RingNext::Lost => {
                assert!(
                    !lost && found.is_empty(),
                    "a gap is reported once, and before what is left"
                );
                lost = true;
            }
            RingNext::End => return (lost, found),
            RingNext::Detached => panic!("nobody else reads"),
        }
    }
}

/// PRJ-010, CMCP-029: a reader attaches during pushes to its lane and another one.
#[test]
fn a_reader_gets_replay_then_live_without_gap_or_duplicate() {
    loom::model(|| {
        let ring = ring(4, 4);
        ring.push(1, (), 1).unwrap();
        let pushes = Arc::clone(&ring);
        let pusher = thread::spawn(move || {
            for lane in [1, 2, 1] {
                pushes.push(lane, (), 1).unwrap();
            }
            pushes.close_lane(1);
        });
        let found = read_to_the_end(&mut ring.attach(1, 0));
        assert_eq!(found, (false, vec![1, 2, 4]));
        pusher.join().unwrap();
    });
}

/// A reader attaches during evictions: it gets all events, or a report of the loss and the rest.
#[test]
fn a_gap_is_always_reported() {
    loom::model(|| {
        let ring = ring(1, 1);
        let pushes = Arc::clone(&ring);
        let pusher = thread::spawn(move || {
            let accepted: Vec<u64> = (0..3).filter_map(|_| pushes.push(1, (), 1).ok()).collect();
            pushes.close_lane(1);
            accepted
        });
        let (lost, found) = read_to_the_end(&mut ring.attach(1, 0));
        let accepted = pusher.join().unwrap();
        assert!(accepted.ends_with(&found), "{accepted:?} {found:?}");
        assert_eq!(lost, found.len() < accepted.len());
    });
}

/// With a reader from the start, each event is delivered or rejected, and the ring stays within its limits.
#[test]
fn nothing_is_evicted_before_its_reader_took_it() {
    loom::model(|| {
        let ring = ring(1, 1);
        let mut reader = ring.attach(1, 0);
        let pushes = Arc::clone(&ring);
        let pusher = thread::spawn(move || {
            let push = |_| {
                let accepted = pushes.push(1, (), 1);
                assert!(pushes.log.lock().size().0 <= 2);
                accepted.ok()
            };
            let accepted: Vec<u64> = (0..3).filter_map(push).collect();
            pushes.close_lane(1);
            accepted
        });
        let found = read_to_the_end(&mut reader);
        assert_eq!(found, (false, pusher.join().unwrap()));
    });
}

/// A second reader takes the lane over at the cursor of a waiting one: the first is detached, the second gets
/// everything from there on.
#[test]
fn a_lane_is_taken_over_without_gap_or_duplicate() {
    bounded(4, || {
        let ring = ring(4, 4);
        let mut old = ring.attach(1, 0);
        let seen = Arc::new(AtomicU64::new(0));
        let (last, pushes) = (Arc::clone(&seen), Arc::clone(&ring));
        let reader = thread::spawn(move || {
            loop {
                match next(&mut old) {
                    RingNext::Event { seq, .. } => {
                        assert_eq!(last.swap(seq, Ordering::AcqRel) + 1, seq)
                    }
                    last @ (RingNext::End | RingNext::Detached | RingNext::Lost) => return last,
                }
            }
        });
        let pusher = thread::spawn(move || {
            pushes.push(1, (), 1).unwrap();
            pushes.push(1, (), 1).unwrap();
            pushes.close_lane(1);
        });
        let after = seen.load(Ordering::Acquire);
        let found = read_to_the_end(&mut ring.attach(1, after));
        assert_eq!(found, (false, (after + 1..=2).collect()));
        pusher.join().unwrap();
        let last = reader.join().unwrap();
        let at_the_end = last == RingNext::End && seen.load(Ordering::Acquire) == 2;
        assert!(last == RingNext::Detached || at_the_end, "{last:?}");
    });
}

/// Two readers wait while the ring closes, after a last push to one of them: accepted events come, then the end.
#[test]
fn closing_the_ring_ends_every_lane() {
    loom::model(|| {
        let ring = ring(4, 4);
        let (mut first, mut second) = (ring.attach(1, 0), ring.attach(2, 0));
        let pushes = Arc::clone(&ring);
        let pusher = thread::spawn(move || {
            let accepted: Vec<u64> = pushes.push(2, (), 1).into_iter().collect();
            assert_eq!(read_to_the_end(&mut first), (false, vec![]));
            accepted
        });
        let reader = thread::spawn(move || read_to_the_end(&mut second));
        ring.close();
        let accepted = pusher.join().unwrap();
        assert_eq!(reader.join().unwrap(), (false, accepted));
    });
}

/// A reader is dropped while its lane is pushed to and closed: neither event nor lane is left.
#[test]
fn events_that_nobody_awaits_are_evicted() {
    loom::model(|| {
        let ring = ring(0, 2);
        let reader = ring.attach(1, 0);
        let pushes = Arc::clone(&ring);
        let pusher = thread::spawn(move || {
            pushes.push(1, (), 1).unwrap();
            pushes.close_lane(1);
        });
        drop(reader);
        pusher.join().unwrap();
        assert_eq!(ring.log.lock().size(), (0, 0));
    });
}
