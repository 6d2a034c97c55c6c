//! How a link ends, and what is said of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_protocol::federation::close_codes::LinkClose;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::super::{IDLE, LinkError, StreamFailure};
use super::bad_wire::{BadWire, Badness};
use super::scene::{Key, Node, header, id, linked, long, soon, two};

/// FED-022: a node that is killed says nothing, and its peer misses it: within 3 s, of which this test leaves the
/// measuring to less busy machines.
#[tokio::test]
async fn a_peer_that_was_killed_is_noticed() {
    assert!(IDLE + Duration::from_millis(500) < Duration::from_secs(3));
    let mut a = Node::new(1);
    a.pins(&[id(2)]);
    let at = a.at.clone();
    let home = a.id;
    let (linked, link) = tokio::sync::oneshot::channel();
    let (kill, killed) = std::sync::mpsc::channel::<()>();
    // All that runs for it ends at once, and no word of it leaves.
    let life = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let dialed = runtime.block_on(async {
            let b = Node::with(Arc::new(Key::new(2)), super::scene::hello());
            b.pins(&[home]);
            let dialed = soon(b.endpoint.dial(home, &at)).await.unwrap();
            (b, dialed)
        });
        let _told = linked.send(());
        let _killed = killed.recv();
        runtime.shutdown_background();
        drop(dialed);
    });
    let taken = a.link().await;
    soon(link).await.unwrap();
    let begun = taken
        .link
        .open_call(header("tools/call"), Bytes::new(), long())
        .await;
    let (mut input, _output) = begun.unwrap();
    assert!(taken.link.end_reason().is_none());
    kill.send(()).unwrap();
    let gone = soon(taken.link.wait_closed()).await.0;
    assert!(matches!(gone, StreamFailure::LinkLost(_)), "{gone}");
    assert!(matches!(
        soon(input.next()).await,
        Err(StreamFailure::LinkLost(_))
    ));
    tokio::task::spawn_blocking(move || life.join().unwrap())
        .await
        .unwrap();
    drop(taken);
    assert_eq!(a.endpoint.links(), 0);
}

/// A wire that is cut, seen from both ends.
#[tokio::test]
async fn a_wire_that_is_cut_is_noticed_at_both_ends() {
    let (a, mut b) = two();
    let wire = BadWire::to(&b.at, Badness::default()).await;
    let dialed = soon(a.endpoint.dial(b.id, &wire.at)).await.unwrap();
    let taken = b.link().await;
    wire.counts.cut.store(true, Ordering::Relaxed);
    for link in [dialed.link, taken.link] {
        let gone = soon(link.wait_closed()).await.0;
        assert!(matches!(gone, StreamFailure::LinkLost(_)), "{gone}");
    }
}

/// FED-022: QUIC gives a link whose packets were slow three of their retransmissions, which is more than ten seconds here.
#[tokio::test]
async fn a_link_that_was_slow_at_first_is_missed_as_soon_as_any() {
    let (a, mut b) = two();
    let wire = BadWire::to(&b.at, Badness::default()).await;
    wire.counts.held_ms.store(700, Ordering::Relaxed);
    let dialed = soon(a.endpoint.dial(b.id, &wire.at)).await.unwrap();
    let taken = b.link().await;
    let begun = dialed
        .link
        .open_call(header("tools/call"), Bytes::new(), long());
    let (mut under_way, _output) = begun.await.unwrap();
    wire.counts.cut.store(true, Ordering::Relaxed);
    for link in [dialed.link, taken.link] {
        let silent = tokio::time::timeout(IDLE * 3, link.close_when_silent());
        assert!(silent.await.is_ok(), "{:?}", link.round_trip());
        let gone = soon(link.wait_closed()).await.0;
        assert!(matches!(gone, StreamFailure::LinkLost(_)), "{gone}");
    }
    // Not the other side ended it.
    assert_eq!(soon(under_way.next()).await, Err(StreamFailure::ClosedHere));
}

/// An idle link lives: both sides ask for a sign of the other.
#[tokio::test]
async fn a_link_on_which_nothing_happens_lives() {
    let (_a, dialed, taken, _b) = linked().await;
    let ends = async {
        tokio::select! {
            _gone = dialed.link.wait_closed() => {}
            () = dialed.link.close_when_silent() => {}
        }
    };
    assert!(tokio::time::timeout(IDLE * 2, ends).await.is_err());
    assert!(taken.link.end_reason().is_none());
}

/// The last one who holds a link ends it, and nothing of it stays.
#[tokio::test]
async fn a_link_that_is_dropped_is_closed_and_gone() {
    let (a, dialed, taken, b) = linked().await;
    let held = dialed.link.clone();
    drop(dialed);
    assert!(held.end_reason().is_none() && taken.link.is_same_link(&taken.link.clone()));
    drop(held);
    soon(taken.link.wait_closed()).await;
    drop(taken);
    assert_eq!((a.endpoint.links(), b.endpoint.links()), (0, 0));
    soon(a.endpoint.wait_closed()).await;
    soon(b.endpoint.wait_closed()).await;
    assert_eq!((a.endpoint.connections(), b.endpoint.connections()), (0, 0));
    b.endpoint.close(LinkClose::Done);
    soon(b.accepting).await.unwrap();
}

/// Counts what is said at the level that people read.
struct Said(Arc<AtomicUsize>);

impl Subscriber for Said {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Who comes again and again is told about once, and a stranger is not told from another one.
#[tokio::test]
async fn what_goes_wrong_again_and_again_is_said_once() {
    let said = Arc::new(AtomicUsize::new(0));
    let _here = tracing::subscriber::set_default(Said(Arc::clone(&said)));
    let (_a, b) = two();
    let strangers = [Node::new(3), Node::new(4)];
    let refused_again = async |times: usize| {
        for stranger in &strangers {
            stranger.pins(&[b.id]);
            for _ in 0..times {
                let refused = soon(stranger.endpoint.dial(b.id, &b.at)).await;
                assert!(matches!(refused, Err(LinkError::HelloFailed(_))));
            }
        }
    };
    refused_again(1).await;
    // One line of each stranger, and one of the node they dialed.
    soon(async {
        while said.load(Ordering::Relaxed) < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    refused_again(4).await;
    assert_eq!(said.load(Ordering::Relaxed), 3);
}
