//! Many calls on one link, large ones, and slow readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_protocol::federation::call::CallRejection;
use mgp_protocol::federation::control::{Control, Ping};
use mgp_protocol::federation::frames::StreamKind;
use tokio::time::Instant;

use super::super::{BeginCallError, CallFrame, InboundStream, MAX_CALLS, MAX_FOLLOWS, MAX_LISTENS};
use super::scene::{answers, call, echoes, header, inbound, linked, long, result, soon};

/// FED-010: 8 MiB go both ways repeatedly; a small call does not wait for them.
#[tokio::test]
async fn a_large_call_does_not_delay_small_ones() {
    const SMALL: usize = 20;
    let (a, dialed, taken, b) = linked().await;
    let answering = [echoes(taken.inbound), echoes(dialed.inbound)];
    let large = Bytes::from(vec![b'x'; 8 << 20]);
    let through = Arc::new(AtomicUsize::new(0));
    let mut loads = Vec::new();
    for link in [&dialed.link, &taken.link] {
        let (link, large, through) = (link.clone(), large.clone(), Arc::clone(&through));
        loads.push(tokio::spawn(async move {
            loop {
                assert_eq!(call(&link, large.clone()).await.len(), large.len());
                through.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    soon(async {
        while through.load(Ordering::Relaxed) < 2 {
            call(&dialed.link, Bytes::from_static(b"{}")).await;
        }
    })
    .await;
    let before = through.load(Ordering::Relaxed);
    for _ in 0..SMALL {
        call(&dialed.link, Bytes::from_static(b"{}")).await;
    }
    let meanwhile = through.load(Ordering::Relaxed) - before;
    assert!(
        meanwhile < SMALL / 2,
        "{SMALL} small calls took as long as {meanwhile} large ones"
    );
    for task in loads {
        task.abort();
        let _aborted = task.await;
    }
    drop((dialed.link, taken.link));
    for task in answering {
        let _gone = soon(task).await;
    }
    all_memory_is_back(&[&a.memory, &b.memory]).await;
}

/// FED-008: the memory of messages of all links is bounded: without memory a message is rejected, and the link continues.
#[tokio::test]
async fn a_call_without_memory_is_rejected() {
    // For the header of the call.
    const LEFT: u64 = 64 << 10;
    let (_a, dialed, taken, b) = linked().await;
    let _answering = echoes(taken.inbound);
    let others = b.memory.try_take(b.memory.available() - LEFT).unwrap();
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    let began = dialed
        .link
        .open_call(header("tools/call"), large.clone(), long());
    let (mut input, _output) = soon(began).await.unwrap();
    let refused = soon(input.next()).await.unwrap();
    assert_eq!(refused, CallFrame::Refused(CallRejection::Busy));
    drop(others);
    assert_eq!(call(&dialed.link, large.clone()).await, large);
}

/// Waits until all reserved memory is released.
async fn all_memory_is_back(of: &[&Arc<mgp_sync::Credit>]) {
    soon(async {
        while of.iter().any(|memory| memory.in_use_amount() > 0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// FED-010: as many unread answers as there may be calls, less one: the last one is read at once.
#[tokio::test]
async fn slow_readers_do_not_block_the_link() {
    let (_a, dialed, taken, _b) = linked().await;
    let long_answer = Bytes::from(vec![b'x'; 600 << 10]);
    let answering = answers(taken.inbound, Some(long_answer.clone()));
    let mut unread = Vec::new();
    for _ in 0..MAX_CALLS - 1 {
        let begun = soon(
            dialed
                .link
                .open_call(header("tools/call"), Bytes::new(), long()),
        )
        .await;
        unread.push(begun.unwrap());
    }
    for _ in 0..3 {
        assert_eq!(call(&dialed.link, Bytes::new()).await, long_answer);
    }
    // The unread answers are still available.
    let (mut last, _output) = unread.pop().unwrap();
    assert_eq!(result(&mut last).await, long_answer);
    answering.abort();
}

/// With as many calls in flight as allowed, control messages and replication pass, and the next call waits for a permit
/// within its own deadline.
#[tokio::test]
async fn a_full_link_carries_control_messages_and_syncs() {
    let (_a, mut dialed, mut taken, _b) = linked().await;
    let mut under_way = Vec::new();
    for _ in 0..MAX_CALLS {
        let begun = soon(
            dialed
                .link
                .open_call(header("tools/call"), Bytes::new(), long()),
        )
        .await;
        under_way.push((begun.unwrap(), inbound(&mut taken.inbound).await));
    }
    let ping = Control::Ping(Ping { nonce: 4 });
    dialed.control_output.send(&ping).await.unwrap();
    assert_eq!(soon(taken.control_input.next()).await, Ok(ping));
    let mut sync = dialed.link.open_sync(long()).await.unwrap();
    sync.send(Bytes::from_static(b"pull")).await.unwrap();
    sync.finish();
    let InboundStream::Sync(mut pulled) = soon(taken.inbound.next()).await.unwrap() else {
        panic!("a call beyond the bound");
    };
    assert_eq!(
        soon(pulled.next()).await.unwrap().as_deref(),
        Some(&b"pull"[..])
    );
    assert_eq!(soon(pulled.next()).await, Ok(None));
    pulled.send(Bytes::from_static(b"pushed")).await.unwrap();
    assert_eq!(
        soon(sync.next()).await.unwrap().as_deref(),
        Some(&b"pushed"[..])
    );
    let until = Instant::now() + Duration::from_millis(200);
    let late = dialed
        .link
        .open_call(header("tools/call"), Bytes::new(), until)
        .await;
    assert_eq!(late.unwrap_err(), BeginCallError::DeadlineExceeded);
    // A peer that ignores the permits is rejected.
    let (mut send, mut receive) = soon(dialed.link.connection().open_bi()).await.unwrap();
    send.write_all(&[2]).await.unwrap();
    let answering = tokio::spawn(async move {
        let _next = taken.inbound.next().await;
    });
    let answer = soon(receive.read_to_end(1000)).await.unwrap();
    assert_eq!(CallRejection::decode(&answer[5..]), Ok(CallRejection::Busy));
    // A call that ends frees a permit for the next one.
    let ((mut input, _output), called) = under_way.pop().unwrap();
    called
        .output
        .send_result(Bytes::from_static(b"{}"))
        .await
        .unwrap();
    assert!(matches!(soon(input.next()).await, Ok(CallFrame::Result(_))));
    drop((input, _output));
    let next = soon(
        dialed
            .link
            .open_call(header("tools/call"), Bytes::new(), long()),
    )
    .await;
    assert!(next.is_ok());
    answering.abort();
}

/// However many listens are open, calls have their permits; a further listen waits for one of its own kind.
#[tokio::test]
async fn listens_do_not_delay_calls() {
    let (_a, dialed, mut taken, _b) = linked().await;
    let mut open = Vec::new();
    for _ in 0..MAX_LISTENS {
        let header = header("subscriptions/listen");
        let begun = soon(dialed.link.open_listen(header, Bytes::new(), long())).await;
        let called = inbound(&mut taken.inbound).await;
        assert_eq!(called.kind, StreamKind::Listen);
        open.push((begun.unwrap(), called));
    }
    let until = Instant::now() + Duration::from_millis(200);
    let header = header("subscriptions/listen");
    let late = dialed.link.open_listen(header, Bytes::new(), until).await;
    assert_eq!(late.unwrap_err(), BeginCallError::DeadlineExceeded);
    let answering = echoes(taken.inbound);
    for _ in 0..MAX_CALLS + 1 {
        let params = Bytes::from_static(b"{}");
        assert_eq!(call(&dialed.link, params.clone()).await, params);
    }
    answering.abort();
}

/// However many channels are followed, listens have their permits; a further channel waits, and one that ignores the
/// permits is rejected.
#[tokio::test]
async fn followed_channels_do_not_delay_listens() {
    let (_a, dialed, mut taken, _b) = linked().await;
    let mut open = Vec::new();
    for _ in 0..MAX_FOLLOWS {
        let header = header("mgp/events/subscribe");
        let begun = soon(dialed.link.open_follow(header, Bytes::new(), long())).await;
        let called = inbound(&mut taken.inbound).await;
        assert_eq!(called.kind, StreamKind::Follow);
        open.push((begun.unwrap(), called));
    }
    let until = Instant::now() + Duration::from_millis(200);
    let header = || header("mgp/events/subscribe");
    let late = dialed.link.open_follow(header(), Bytes::new(), until).await;
    assert_eq!(late.unwrap_err(), BeginCallError::DeadlineExceeded);
    let (mut send, mut receive) = soon(dialed.link.connection().open_bi()).await.unwrap();
    send.write_all(&[StreamKind::Follow.code()]).await.unwrap();
    let listened = async {
        let begun = dialed
            .link
            .open_listen(header(), Bytes::new(), long())
            .await;
        begun.is_ok()
    };
    let (listened, called) = tokio::join!(soon(listened), inbound(&mut taken.inbound));
    assert!(listened && called.kind == StreamKind::Listen);
    let answering = tokio::spawn(async move {
        let _next = taken.inbound.next().await;
    });
    let answer = soon(receive.read_to_end(1000)).await.unwrap();
    assert_eq!(CallRejection::decode(&answer[5..]), Ok(CallRejection::Busy));
    answering.abort();
}

/// A stream with a slow header does not delay others.
#[tokio::test]
async fn a_missing_header_does_not_delay_others() {
    let (_a, dialed, taken, _b) = linked().await;
    let answering = echoes(taken.inbound);
    let mut slow = Vec::new();
    for beginning in [&[2][..], &[2, 2, 0], &[3, 1, 0, 0, 0, 9, 1]] {
        let (mut send, receive) = dialed.link.connection().open_bi().await.unwrap();
        send.write_all(beginning).await.unwrap();
        slow.push((send, receive));
    }
    assert_eq!(
        &call(&dialed.link, Bytes::from_static(b"{}")).await[..],
        b"{}"
    );
    answering.abort();
}
