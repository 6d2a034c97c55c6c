use super::*;
use loom::sync::{Arc, Notify};
use loom::thread;

const LIMITS: FeedLimits = FeedLimits {
    events: 2,
    bytes: 99,
};

/// A wake that is forgotten leaves the reader waiting for ever, which loom reports.
#[test]
fn whatever_is_pushed_is_read_or_told_as_overtaken() {
    loom::model(|| {
        let all = Arc::new((Feed::new(), Wakeup::new(), Notify::new()));
        let writer = {
            let all = all.clone();
            thread::spawn(move || {
                for event in 1..=3_u64 {
                    let (feed, bell, woken) = &*all;
                    feed.push(event, 1, 0, LIMITS);
                    if bell.signal() {
                        woken.notify();
                    }
                }
            })
        };
        let (feed, bell, woken) = &*all;
        let mut place = 0;
        while place < 3 {
            woken.wait();
            bell.reset();
            let read = feed.read(place, 9);
            let first = read.events.first().map_or(place + 1, |(at, _)| *at);
            assert_eq!(
                read.has_gap,
                first > place + 1,
                "a gap is told, and nothing else"
            );
            for (at, event) in read.events {
                assert_eq!(at, event);
                assert!(at > place, "no event is read twice");
                place = at;
            }
        }
        writer.join().unwrap();
    });
}
