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

/// The numbers of all events to the end, and whether any were told as lost before them.
fn read_to_the_end(reader: &mut RingReader<()>) -> (bool, Vec<u64>) {
    let (mut lost, mut found) = (false, Vec::new());
    loop {
        match next(reader) {
            RingNext::Event { seq, .. } => found.push(seq),
            RingNext::Lost => {
                assert!(
                    !lost && found.is_empty(),
                    "a gap is told once, and before what is left"
                );
                lost = true;
            }
            RingNext::End => return (lost, found),
            RingNext::Detached => panic!("nobody else reads"),
        }
    }
}

/// PRJ-010, CMCP-029: a reader comes while its lane, and another, are being pushed to.
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

/// A reader comes while events are already being evicted: it gets all, or is told and gets the rest.
#[test]
fn a_gap_is_always_told() {
    loom::model(|| {
        let ring = ring(1, 1);
        let pushes = Arc::clone(&ring);
        let pusher = thread::spawn(move || {
            let taken_in: Vec<u64> = (0..3).filter_map(|_| pushes.push(1, (), 1).ok()).collect();
            pushes.close_lane(1);
            taken_in
        });
        let (lost, found) = read_to_the_end(&mut ring.attach(1, 0));
        let taken_in = pusher.join().unwrap();
        assert!(taken_in.ends_with(&found), "{taken_in:?} {found:?}");
        assert_eq!(lost, found.len() < taken_in.len());
    });
}

/// The reader is there before the first event: each is delivered or refused, and the ring holds no
/// more than it may.
#[test]
fn nothing_is_evicted_before_its_reader_took_it() {
    loom::model(|| {
        let ring = ring(1, 1);
        let mut reader = ring.attach(1, 0);
        let pushes = Arc::clone(&ring);
        let pusher = thread::spawn(move || {
            let push = |_| {
                let taken_in = pushes.push(1, (), 1);
                assert!(pushes.log.lock().size().0 <= 2);
                taken_in.ok()
            };
            let taken_in: Vec<u64> = (0..3).filter_map(push).collect();
            pushes.close_lane(1);
            taken_in
        });
        let found = read_to_the_end(&mut reader);
        assert_eq!(found, (false, pusher.join().unwrap()));
    });
}

/// A reader waits, another takes its lane over from where it was: the first is told, the second
/// gets everything from there on.
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
                    told @ (RingNext::End | RingNext::Detached | RingNext::Lost) => return told,
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
        let told = reader.join().unwrap();
        let at_the_end = told == RingNext::End && seen.load(Ordering::Acquire) == 2;
        assert!(told == RingNext::Detached || at_the_end, "{told:?}");
    });
}

/// Two readers wait while the ring is closed, one of them after a last push to the other: what was
/// taken in comes, then the end.
#[test]
fn closing_the_ring_ends_every_lane() {
    loom::model(|| {
        let ring = ring(4, 4);
        let (mut one, mut two) = (ring.attach(1, 0), ring.attach(2, 0));
        let pushes = Arc::clone(&ring);
        let pusher = thread::spawn(move || {
            let taken_in: Vec<u64> = pushes.push(2, (), 1).into_iter().collect();
            assert_eq!(read_to_the_end(&mut one), (false, vec![]));
            taken_in
        });
        let reader = thread::spawn(move || read_to_the_end(&mut two));
        ring.close();
        let taken_in = pusher.join().unwrap();
        assert_eq!(reader.join().unwrap(), (false, taken_in));
    });
}

/// A reader goes while its lane is pushed to and closed: then nobody awaits anything, and neither
/// event nor lane is left.
#[test]
fn what_nobody_awaits_is_let_go() {
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
