use super::*;
use loom::sync::{Arc, Notify};
use loom::thread;

const LIMITS: FeedLimits = FeedLimits {
    events: 2,
    bytes: 99,
};

/// A lost wakeup leaves the reader waiting for ever, which loom reports.
#[test]
fn each_event_is_read_or_reported_as_missed() {
    loom::model(|| {
        let all = Arc::new((Feed::new(), Wakeup::new(), Notify::new()));
        let writer = {
            let all = all.clone();
            thread::spawn(move || {
                for event in 1..=3_u64 {
                    let (feed, wakeup, woken) = &*all;
                    feed.push(event, 1, 0, LIMITS);
                    if wakeup.signal() {
                        woken.notify();
                    }
                }
            })
        };
        let (feed, wakeup, woken) = &*all;
        let mut cursor = 0;
        while cursor < 3 {
            woken.wait();
            wakeup.reset();
            let read = feed.read(cursor, 9);
            let first = read
                .events
                .first()
                .map_or(cursor + 1, |(position, _)| *position);
            assert_eq!(
                read.has_gap,
                first > cursor + 1,
                "a gap is told, and nothing else"
            );
            for (position, event) in read.events {
                assert_eq!(position, event);
                assert!(position > cursor, "no event is read twice");
                cursor = position;
            }
        }
        writer.join().unwrap();
    });
}
