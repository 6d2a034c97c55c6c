use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

use CallStreamEffect::{Deliver, RequestResend, SetPace};

fn ms(ms: u64) -> MonotonicTime {
    MonotonicTime::new(Duration::from_millis(ms))
}

/// A stream whose reader acknowledges frames, or sleeps. Each chunk is its own index.
#[derive(Default)]
struct Scene {
    stream: CallStream<u64>,
    delivered: Vec<u64>,
    messages: Vec<CallStreamEffect<u64>>,
    on_the_way: Vec<usize>,
    size: usize,
    sleeps: bool,
    now: u64,
}

impl Scene {
    fn new() -> Self {
        Self {
            size: 10,
            ..Self::default()
        }
    }

    fn chunk(&mut self, index: u64, done: bool) -> Result<(), ChunkDropReason> {
        let mut effects = Vec::new();
        let taken =
            self.stream
                .push_chunk((index, self.size, done), index, ms(self.now), &mut effects);
        self.carry_out(effects);
        taken
    }

    fn chunks(&mut self, indices: impl IntoIterator<Item = u64>) {
        for index in indices {
            self.chunk(index, false).unwrap();
        }
    }

    fn carry_out(&mut self, effects: Vec<CallStreamEffect<u64>>) {
        for effect in effects {
            match effect {
                Deliver(index, item) => {
                    assert_eq!(index, item);
                    self.stream.retain_delivered(index, self.size, item);
                    self.delivered.push(index);
                    self.on_the_way.push(self.size);
                }
                messages @ (SetPace(_) | RequestResend(_)) => self.messages.push(messages),
            }
        }
        if !self.sleeps {
            self.take(usize::MAX);
        }
    }

    /// The reader consumes this many frames.
    fn take(&mut self, most: usize) {
        let frames = self.on_the_way.len().min(most);
        let bytes = self.on_the_way.drain(..frames).sum();
        if frames > 0 {
            let mut effects = Vec::new();
            let now = ms(self.now);
            self.stream.acknowledge(frames, bytes, now, &mut effects);
            self.carry_out(effects);
        }
    }

    fn passes(&mut self, by: u64) {
        self.now += by;
        let mut effects = Vec::new();
        self.stream.handle_timeout(ms(self.now), &mut effects);
        self.carry_out(effects);
    }

    fn finish(&mut self) {
        let mut effects = Vec::new();
        self.stream.finish(ms(self.now), &mut effects);
        self.carry_out(effects);
    }

    fn paced(&mut self, rate: u32) {
        let mut effects = Vec::new();
        self.stream.set_pace(rate, ms(self.now), &mut effects);
        self.carry_out(effects);
    }

    fn misses(&mut self, missing: &[u64]) {
        let mut effects = Vec::new();
        self.stream
            .resend_missing(missing, ms(self.now), &mut effects);
        self.carry_out(effects);
    }
}

/// MGP-159: in any order of arrival.
#[test]
fn chunks_are_delivered_in_the_order_of_their_index() {
    let mut it = Scene::new();
    it.chunks([0, 2, 3]);
    assert_eq!(it.delivered, [0]);
    it.chunks([1, 4]);
    assert_eq!(it.delivered, [0, 1, 2, 3, 4]);
    assert_eq!(it.stream.next_timeout(), None);
}

#[test]
fn duplicate_and_late_chunks_are_dropped() {
    let mut it = Scene::new();
    it.chunks([0, 2]);
    assert_eq!(it.chunk(0, false), Err(ChunkDropReason::Duplicate));
    assert_eq!(it.chunk(2, false), Err(ChunkDropReason::Duplicate));
    it.chunk(3, true).unwrap();
    assert_eq!(it.chunk(4, false), Err(ChunkDropReason::Late));
    it.chunks([1]);
    it.finish();
    assert_eq!(it.delivered, [0, 1, 2, 3]);
    assert_eq!(it.chunk(1, false), Err(ChunkDropReason::Late));
}

/// Later drafts, 12.9.
#[test]
fn a_gap_is_requested_and_then_skipped() {
    let mut it = Scene::new();
    it.chunks([0, 3]);
    assert_eq!(it.stream.next_timeout(), Some(ms(20)));
    it.passes(20);
    assert_eq!(it.messages, [RequestResend(vec![1, 2])]);
    it.passes(229);
    assert_eq!(it.delivered, [0]);
    it.passes(1);
    assert_eq!(it.delivered, [0, 3]);
    assert_eq!(
        it.chunk(1, false),
        Err(ChunkDropReason::Duplicate),
        "given up"
    );
}

#[test]
fn the_end_of_a_call_delivers_early_chunks() {
    let mut it = Scene::new();
    it.chunks([1, 2, 7]);
    it.finish();
    assert_eq!(it.delivered, [1, 2, 7]);
    assert!(it.stream.is_flushed());
}

#[test]
fn too_many_early_chunks_skip_the_gap_at_once() {
    let mut it = Scene::new();
    it.chunks(1..=OUT_OF_ORDER_MAX as u64);
    assert_eq!(it.delivered.len(), OUT_OF_ORDER_MAX);
}

/// At most half a megabyte is buffered: the server slows down at half of it, pauses at the limit, and resumes with the
/// reader.
#[test]
fn a_server_is_slowed_paused_and_resumed() {
    let mut it = Scene::new();
    (it.sleeps, it.size) = (true, 4 << 10);
    it.chunks(0..63);
    assert_eq!(it.messages, []);
    it.chunks(63..112);
    assert_eq!(it.messages, [SetPace(Some(64)), SetPace(Some(0))]);
    it.chunks(112..128);
    assert_eq!(it.chunk(128, false), Err(ChunkDropReason::BufferFull));
    assert_eq!(it.stream.buffered().1, BUFFERED_BYTES_MAX);
    assert_eq!(it.delivered.len(), WINDOW);
    it.now = 1000;
    it.sleeps = false;
    it.take(1);
    assert_eq!(it.messages.last(), Some(&SetPace(None)));
    it.chunks([129]);
    assert_eq!(it.delivered, (0..128).chain([129]).collect::<Vec<_>>());
}

/// It ends after a while, as little is buffered.
#[test]
fn a_skipped_chunk_pauses_the_server_briefly() {
    let mut it = Scene::new();
    let mut effects = Vec::new();
    it.stream.skip_chunk((0, false), ms(0), &mut effects);
    it.stream.skip_chunk((1, false), ms(1), &mut effects);
    assert_eq!(effects, [SetPace(Some(0))]);
    assert_eq!(it.stream.next_timeout(), Some(ms(101)));
    it.passes(101);
    assert_eq!(it.messages, [SetPace(None)]);
    it.chunks([2]);
    assert_eq!(it.delivered, [2]);
}

/// Later drafts, 12.8: it is applied here and sent to the server.
#[test]
fn a_reader_sets_its_own_pace() {
    let mut it = Scene::new();
    it.paced(10);
    it.chunks(0..4);
    assert_eq!(
        (it.delivered.len(), it.stream.next_timeout()),
        (1, Some(ms(100)))
    );
    it.passes(100);
    it.passes(100);
    assert_eq!(it.delivered, [0, 1, 2]);
    it.paced(0);
    it.passes(10_000);
    assert_eq!(it.delivered, [0, 1, 2]);
    it.paced(1000);
    assert_eq!(it.delivered, [0, 1, 2, 3]);
    let messages: Vec<_> = [10, 0, 1000].map(|rate| SetPace(Some(rate))).into();
    assert_eq!(it.messages, messages);
}

/// They would fill the queue of a shared server; the pace is applied here.
#[test]
fn frequent_pace_changes_are_not_sent_to_the_server() {
    let mut it = Scene::new();
    for n in 0..1000 {
        it.paced(1 + n % 2);
    }
    assert_eq!(it.messages.len(), PACE_CHANGES_MAX + 1);
    assert_eq!(it.messages.last(), Some(&SetPace(None)));
    it.paced(0);
    it.chunks(0..3);
    assert!(it.delivered.is_empty());
    it.paced(UNPACED);
    assert_eq!(it.delivered, [0, 1, 2]);
}

#[test]
fn stored_chunks_are_resent_and_others_requested() {
    let mut it = Scene::new();
    it.size = 200 << 10;
    it.chunks(0..4);
    it.misses(&[0, 3, 2, 9]);
    assert_eq!(it.delivered, [0, 1, 2, 3, 3, 2]);
    assert!(it.messages.contains(&RequestResend(vec![0])));
    it.chunks([0]);
    assert_eq!(it.delivered.last(), Some(&0));
    assert_eq!(it.chunk(0, false), Err(ChunkDropReason::Duplicate));
    it.misses(&[1]);
    assert!(it.messages.contains(&RequestResend(vec![1])));
}

#[test]
fn a_chunk_without_capacity_is_retried() {
    let mut stream = CallStream::default();
    let mut effects = Vec::new();
    stream
        .push_chunk((0, 10, false), 0, ms(0), &mut effects)
        .unwrap();
    assert_eq!(effects, [Deliver(0, 0)]);
    effects.clear();
    stream.requeue(vec![(0, 10, 0)], ms(0));
    assert_eq!(stream.next_timeout(), Some(ms(5)));
    stream.handle_timeout(ms(4), &mut effects);
    assert_eq!(effects, []);
    stream.handle_timeout(ms(5), &mut effects);
    assert_eq!(effects, [Deliver(0, 0)]);
}

/// MGP-159: and come before later chunks.
#[test]
fn requeued_chunks_keep_their_order() {
    let mut stream = CallStream::default();
    let mut effects = Vec::new();
    for index in [1, 2, 3, 0] {
        let about = (index, 10, false);
        stream
            .push_chunk(about, index, ms(0), &mut effects)
            .unwrap();
    }
    assert_eq!(effects, [0, 1, 2, 3].map(|index| Deliver(index, index)));
    effects.clear();
    stream.requeue(vec![(1, 10, 1), (2, 10, 2), (3, 10, 3)], ms(0));
    let late = (4, 10, false);
    stream.push_chunk(late, 4, ms(1), &mut effects).unwrap();
    assert_eq!(effects, []);
    stream.handle_timeout(ms(5), &mut effects);
    assert_eq!(effects, [1, 2, 3, 4].map(|index| Deliver(index, index)));
}

/// MGP-157: readers must represent it exactly. Dropping it blocks nothing.
#[test]
fn an_index_above_the_limit_is_dropped() {
    for beyond in [INDEX_MAX + 1, u64::MAX - 1, u64::MAX] {
        let mut it = Scene::new();
        it.chunks([0, 2]);
        for done in [false, true] {
            assert_eq!(it.chunk(beyond, done), Err(ChunkDropReason::IndexTooLarge));
            let mut effects = Vec::new();
            it.stream.skip_chunk((beyond, done), ms(0), &mut effects);
            assert_eq!(effects, []);
        }
        it.chunks([1]);
        it.chunk(INDEX_MAX, true).unwrap();
        it.finish();
        assert_eq!(it.delivered, [0, 1, 2, INDEX_MAX]);
    }
}

#[test]
fn the_stream_is_blocked_on_its_reader_only_if_it_can_progress() {
    let mut it = Scene::new();
    (it.sleeps, it.size) = (true, 4 << 10);
    it.chunks(0..63);
    assert!(!it.stream.is_blocked_on_reader(), "all is on its way");
    it.chunks(63..64);
    assert!(it.stream.is_blocked_on_reader(), "the server was slowed");
    it.take(64);
    assert!(!it.stream.is_blocked_on_reader());
    it.size = 1;
    it.chunks(64..129);
    assert!(it.stream.is_blocked_on_reader(), "one more waits");
    it.paced(1000);
    assert!(it.stream.is_blocked_on_reader());
    it.paced(0);
    assert!(!it.stream.is_blocked_on_reader(), "its reader wants none");
    it.paced(UNPACED);
    assert_eq!(it.messages.last(), Some(&SetPace(None)));
}

/// MGP-164: in order, as far as they are stored.
#[test]
fn available_chunks_are_listed_by_index() {
    let mut it = Scene::new();
    it.chunks([0, 1, 3]);
    let so_far: Vec<u64> = it.stream.available_chunks().into_keys().collect();
    assert_eq!(so_far, [0, 1, 3]);
}

/// An input of a stream.
#[derive(Clone, Debug)]
enum Step {
    Chunk(u64, bool),
    Take(usize),
    Pass(u64),
    Pace(u32),
    Misses(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..60_u64, prop::bool::weighted(0.02)).prop_map(|(index, done)| Step::Chunk(index, done)),
        4 => (1..80_usize).prop_map(Step::Take),
        2 => (1..300_u64).prop_map(Step::Pass),
        1 => (0..50_u32).prop_map(Step::Pace),
        1 => (0..60_u64).prop_map(Step::Misses),
    ];
    vec(step, 1..200)
}

proptest! {
    /// Against a sorted set, with a reader that consumes everything.
    #[test]
    fn all_chunks_are_delivered_in_order(indices in vec(0..60_u64, 1..120), last in 0..80_u64) {
        let mut it = Scene::new();
        let mut model = BTreeSet::new();
        let mut end = None;
        for index in indices {
            let late = end.is_some_and(|end| index > end);
            let taken = it.chunk(index, index == last);
            prop_assert_eq!(taken.is_ok(), !late && model.insert(index));
            if index == last && end.is_none() {
                end = Some(last);
                model.retain(|index| *index <= last);
            }
        }
        it.finish();
        // What was delivered before the end was known stays delivered.
        let mut expected: Vec<u64> = model.into_iter().collect();
        expected.extend(it.delivered.iter().filter(|index| end.is_some_and(|end| **index > end)));
        prop_assert_eq!(it.delivered, expected);
    }

    /// New chunks are delivered in order, and none waits at the end.
    #[test]
    fn bounds_and_order_hold(steps in steps()) {
        let mut it = Scene::new();
        (it.sleeps, it.size) = (true, 20 << 10);
        let (mut came, mut missed) = (BTreeSet::new(), BTreeSet::new());
        for step in steps {
            match step {
                Step::Chunk(index, done) => {
                    if it.chunk(index, done).is_ok() {
                        came.insert(index);
                    }
                }
                Step::Take(most) => it.take(most),
                Step::Pass(by) => it.passes(by),
                Step::Pace(rate) => it.paced(rate),
                Step::Misses(index) => {
                    missed.insert(index);
                    it.misses(&[index]);
                }
            }
            prop_assert!(it.stream.buffered().1 <= BUFFERED_BYTES_MAX);
            prop_assert!(it.on_the_way.len() <= WINDOW);
            prop_assert!(it.stream.out_of_order.len() <= OUT_OF_ORDER_MAX && it.stream.delivered_bytes <= REPLAY_BYTES_MAX);
        }
        it.paced(UNPACED);
        it.sleeps = false;
        it.finish();
        it.take(usize::MAX);
        for _ in 0..100 {
            it.passes(1000);
        }
        prop_assert_eq!(it.stream.buffered(), (0, 0));
        let new: Vec<u64> = it.delivered.iter().filter(|index| !missed.contains(index)).copied().collect();
        prop_assert!(new.is_sorted_by(|one, next| one < next), "{:?}", new);
        prop_assert!(it.delivered.iter().all(|index| came.contains(index)));
    }
}
