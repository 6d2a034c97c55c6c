//! How a link ends, and what is logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_protocol::federation::close_codes::LinkClose;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::super::{IDLE, LinkError, StreamFailure};
use super::bad_wire::{BadWire, Faults};
use super::scene::{Key, Node, header, id, linked, long, soon, two};

/// FED-022: a killed node sends nothing, and its peer detects that: within 3 s, which this test does not measure, since it
/// may run on a busy machine.
#[tokio::test]
async fn a_killed_peer_is_detected() {
    assert!(IDLE + Duration::from_millis(500) < Duration::from_secs(3));
    let mut a = Node::new(1);
    a.pins(&[id(2)]);
    let at = a.at.clone();
    let home = a.id;
    let (linked, link) = tokio::sync::oneshot::channel();
    let (kill, killed) = std::sync::mpsc::channel::<()>();
    // All of its tasks end at once, and send nothing.
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

/// A cut connection, seen from both ends.
#[tokio::test]
async fn a_cut_connection_is_detected_at_both_ends() {
    let (a, mut b) = two();
    let wire = BadWire::to(&b.at, Faults::default()).await;
    let dialed = soon(a.endpoint.dial(b.id, &wire.at)).await.unwrap();
    let taken = b.link().await;
    wire.counts.cut.store(true, Ordering::Relaxed);
    for link in [dialed.link, taken.link] {
        let gone = soon(link.wait_closed()).await.0;
        assert!(matches!(gone, StreamFailure::LinkLost(_)), "{gone}");
    }
}

/// FED-022: QUIC gives a link whose packets were slow three probe timeouts, which are more than ten seconds here.
#[tokio::test]
async fn the_loss_of_an_initially_slow_link_is_detected_as_soon() {
    let (a, mut b) = two();
    let wire = BadWire::to(&b.at, Faults::default()).await;
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
    // The other side did not end it.
    assert_eq!(soon(under_way.next()).await, Err(StreamFailure::ClosedHere));
}

/// An idle link lives: both sides send keep-alives.
#[tokio::test]
async fn an_idle_link_stays_open() {
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

/// Dropping the last handle ends the link, and nothing remains.
#[tokio::test]
async fn a_dropped_link_is_closed_and_freed() {
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

/// Counts log events at the level that people read.
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

/// A repeated failure is logged once, and unknown peers are not distinguished.
#[tokio::test]
async fn a_repeated_failure_is_logged_once() {
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
    // One line for all unknown peers, and one for the node they dialed.
    soon(async {
        while said.load(Ordering::Relaxed) < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    refused_again(4).await;
    assert_eq!(said.load(Ordering::Relaxed), 3);
}
