use super::*;

const LIMITS: FeedLimits = FeedLimits {
    events: 3,
    bytes: 10,
};

fn read(feed: &Feed<char>, after: u64, most: usize) -> (String, bool) {
    let FeedRead {
        events,
        has_gap: overtaken,
    } = feed.read(after, most);
    (
        events.into_iter().map(|(_, item)| item).collect(),
        overtaken,
    )
}

#[test]
fn each_reader_reads_from_its_own_position() {
    let feed = Feed::new();
    for item in ['a', 'b', 'c'] {
        feed.push(item, 1, 0, LIMITS);
    }
    assert_eq!(read(&feed, 0, 9), ("abc".into(), false));
    assert_eq!(read(&feed, 1, 1), ("b".into(), false));
    assert_eq!(
        read(&feed, feed.newest_position(), 9),
        (String::new(), false)
    );
}

#[test]
fn the_oldest_are_evicted_by_count_and_weight_and_readers_learn_it() {
    let feed = Feed::new();
    for item in ['a', 'b', 'c', 'd'] {
        feed.push(item, 1, 0, LIMITS);
    }
    assert_eq!(read(&feed, 0, 9), ("bcd".into(), true));
    assert_eq!(read(&feed, 1, 9), ("bcd".into(), false));
    feed.push('e', 9, 0, LIMITS);
    assert_eq!(read(&feed, 3, 9), ("de".into(), false));
    feed.push('f', 11, 0, LIMITS);
    assert_eq!(read(&feed, 5, 9), (String::new(), true));
    assert_eq!(read(&feed, 6, 9), (String::new(), false));
}

#[test]
fn positions_of_lost_events_are_skipped() {
    let feed = Feed::new();
    feed.push('a', 1, 0, LIMITS);
    assert_eq!(feed.push('b', 1, 5, LIMITS), 7);
    let found = feed.read(1, 9);
    assert_eq!(found.events, [(7, 'b')]);
    assert!(!found.has_gap, "nothing that was here is gone");
}

#[test]
fn a_signal_wakes_once_until_reset() {
    let wakeup = Wakeup::new();
    assert_eq!([wakeup.signal(), wakeup.signal()], [true, false]);
    wakeup.reset();
    assert!(wakeup.signal());
}
