//! Calls, and how they end.

use std::time::Duration;

use bytes::Bytes;
use mgp_protocol::federation::call::CallRejection;
use mgp_protocol::federation::call::timings::CallTimings;
use mgp_protocol::federation::close_codes::{LinkClose, StreamReset};
use mgp_protocol::federation::frames::{CALL_BODY, FrameKind};
use tokio::time::Instant;

use super::super::{BeginCallError, CallFrame, CallOutput, StreamFailure, WriteFailure};
use super::scene::{call, echoes, header, inbound, linked, long, result, soon};

/// Payloads are not changed, whatever they contain.
#[tokio::test]
async fn a_call_is_carried_with_all_of_its_parts() {
    let (_a, dialed, mut taken, _b) = linked().await;
    let params = Bytes::from_static(b"{\"x\" : 1e400, \"x\":\t12345678901234567890123}");
    let begun = dialed
        .link
        .open_call(header("tools/call"), params.clone(), long())
        .await;
    let (mut input, mut output) = begun.unwrap();
    let mut called = inbound(&mut taken.inbound).await;
    assert_eq!(called.params, params);
    assert_eq!(called.header.method, "tools/call");
    assert!(called.header.left_ms > 30_000);
    let progress = Bytes::from_static(b"{\"method\":\"notifications/progress\"}");
    called.output.relay(progress.clone()).await.unwrap();
    assert_eq!(soon(input.next()).await, Ok(CallFrame::Relayed(progress)));
    let answer = Bytes::from_static(b"{\"id\":1,\"result\":{}}");
    output.relay(answer.clone()).await.unwrap();
    assert_eq!(
        soon(called.input.next()).await,
        Ok(CallFrame::Relayed(answer))
    );
    called
        .output
        .send_error(Bytes::from_static(b"{\"code\":-1}"))
        .await
        .unwrap();
    let error = CallFrame::Error(Bytes::from_static(b"{\"code\":-1}"));
    assert_eq!(soon(input.next()).await, Ok(error));
    assert_eq!(soon(input.next()).await, Err(StreamFailure::Unfinished));
}

/// Decision 0069: the timings of a call are sent once beside its answer, and never end it; those of the caller are
/// skipped.
#[tokio::test]
async fn the_times_of_a_call_are_reported_beside_its_answer() {
    let (_a, dialed, mut taken, _b) = linked().await;
    let times = CallTimings {
        whole: 900,
        server: 800,
        ..CallTimings::default()
    };
    let longer = CallTimings {
        whole: 5_000,
        ..times
    };
    let lies = CallTimings { whole: 7, ..times };
    for (told, heard) in [(None, None), (Some(times), Some(times)), (Some(lies), None)] {
        let begun = dialed
            .link
            .open_call(header("tools/call"), Bytes::new(), long())
            .await;
        let (mut input, mut output) = begun.unwrap();
        let mut called = inbound(&mut taken.inbound).await;
        let said = Bytes::from(longer.encode());
        output.write(FrameKind::Times, said).await.unwrap();
        let more = Bytes::from_static(b"{}");
        output.relay(more.clone()).await.unwrap();
        assert_eq!(
            soon(called.input.next()).await,
            Ok(CallFrame::Relayed(more.clone()))
        );
        assert_eq!(called.input.times(), None);
        if let Some(told) = told {
            let junk = Bytes::from_static(b"\x81\xa5whole\xc0");
            called.output.write(FrameKind::Times, junk).await.unwrap();
            called.output.set_times(told);
        }
        called.output.send_result(more.clone()).await.unwrap();
        assert_eq!(soon(input.next()).await, Ok(CallFrame::Result(more)));
        assert_eq!(input.times(), heard);
    }
    // The first valid ones count.
    let begun = dialed
        .link
        .open_call(header("tools/call"), Bytes::new(), long())
        .await;
    let (mut input, _output) = begun.unwrap();
    let mut called = inbound(&mut taken.inbound).await;
    let first = Bytes::from(times.encode());
    called.output.write(FrameKind::Times, first).await.unwrap();
    called.output.set_times(longer);
    called
        .output
        .send_error(Bytes::from_static(b"{}"))
        .await
        .unwrap();
    let error = CallFrame::Error(Bytes::from_static(b"{}"));
    assert_eq!(soon(input.next()).await, Ok(error));
    assert_eq!(input.times(), Some(times));
}

/// The answer's frame and the end of its stream arrive in one packet: a stop would cost a packet each way.
#[tokio::test]
async fn an_answered_call_does_not_make_the_peer_stop() {
    let (_a, dialed, mut taken, _b) = linked().await;
    for _ in 0..50 {
        let begun = dialed
            .link
            .open_call(header("tools/call"), Bytes::from_static(b"{}"), long())
            .await;
        let (mut input, output) = begun.unwrap();
        drop(output);
        let called = inbound(&mut taken.inbound).await;
        let answer = Bytes::from_static(b"{}");
        called.output.send_result(answer.clone()).await.unwrap();
        assert_eq!(soon(input.next()).await, Ok(CallFrame::Result(answer)));
    }
    let sent = dialed.link.connection().stats().frame_tx.stop_sending;
    assert_eq!(sent, 0);
}

/// A caller that sends nothing more still waits for the answer.
#[tokio::test]
async fn a_caller_that_only_listens_gets_the_answer() {
    let (_a, dialed, mut taken, _b) = linked().await;
    let params = Bytes::from(vec![b'x'; 1 << 20]);
    let (begun, mut called) = tokio::join!(
        dialed
            .link
            .open_call(header("tools/call"), params.clone(), long()),
        inbound(&mut taken.inbound)
    );
    let (mut input, output) = begun.unwrap();
    drop(output);
    assert_eq!(called.params, params);
    assert_eq!(
        soon(called.input.next()).await,
        Err(StreamFailure::Unfinished)
    );
    let (answered, answer) = tokio::join!(
        called.output.send_result(params.clone()),
        result(&mut input)
    );
    answered.unwrap();
    assert_eq!(answer, params);
}

/// "Too large" is reported as such, and never as a lost call.
#[tokio::test]
async fn an_answer_beyond_the_frame_limit_is_rejected_as_too_large() {
    let (_a, dialed, mut taken, _b) = linked().await;
    let begun = dialed
        .link
        .open_call(header("tools/call"), Bytes::new(), long())
        .await;
    let (mut input, _output) = begun.unwrap();
    let called = inbound(&mut taken.inbound).await;
    let long_answer = Bytes::from(vec![b'x'; CALL_BODY + 1]);
    let (size, limit) = (CALL_BODY as u64 + 1, CALL_BODY as u64);
    let told = called.output.send_result(long_answer).await;
    assert_eq!(told, Err(WriteFailure::TooLarge { size, limit }));
    let refused = CallFrame::Refused(CallRejection::AnswerTooLarge { size, limit });
    assert_eq!(soon(input.next()).await, Ok(refused));
    // A call that is too large is not sent.
    let params = Bytes::from(vec![b'x'; CALL_BODY + 1]);
    let begun = dialed
        .link
        .open_call(header("tools/call"), params, long())
        .await;
    assert_eq!(begun.unwrap_err(), BeginCallError::TooLarge { size, limit });
    assert_eq!(CallOutput::max_frame(), CALL_BODY);
    let answering = echoes(taken.inbound);
    let full = Bytes::from(vec![b'x'; CALL_BODY]);
    assert_eq!(call(&dialed.link, full.clone()).await, full);
    answering.abort();
}

/// A peer that announces more than a frame may have learns why its call ends, and the link stays.
#[tokio::test]
async fn an_oversized_frame_of_a_call_ends_the_call() {
    let (_a, dialed, taken, _b) = linked().await;
    let answering = echoes(taken.inbound);
    let connection = dialed.link.connection();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let mut announced = header("tools/call");
    announced.left_ms = 60_000;
    let announced = announced.encode();
    let len = u32::try_from(announced.len()).unwrap().to_be_bytes();
    let over = (CALL_BODY as u32 + 1).to_be_bytes();
    let begun = [&[2, 2][..], &len[..], &announced, &[3], &over].concat();
    send.write_all(&begun).await.unwrap();
    let answer = soon(receive.read_to_end(1000)).await.unwrap();
    let refused = CallRejection::decode(&answer[5..]).unwrap();
    assert!(
        matches!(refused, CallRejection::CallTooLarge { .. }),
        "{refused}"
    );
    assert!(dialed.link.end_reason().is_none());
    answering.abort();
}

#[tokio::test]
async fn a_cancelled_call_is_noticed_by_the_callee() {
    let (_a, dialed, mut taken, _b) = linked().await;
    let begun = dialed
        .link
        .open_call(header("tools/call"), Bytes::new(), long())
        .await;
    let (input, _output) = begun.unwrap();
    let called = inbound(&mut taken.inbound).await;
    let stopped = called.output.wait_stopped();
    input.cancel();
    assert_eq!(soon(stopped).await, Some(StreamReset::Cancelled));
    let late = called.output.send_result(Bytes::from_static(b"{}")).await;
    assert_eq!(late, Err(WriteFailure::Stopped(StreamReset::Cancelled)));
    // Dropping it cancels, too.
    let begun = dialed
        .link
        .open_call(header("tools/call"), Bytes::new(), long())
        .await;
    drop(begun.unwrap());
    let called = inbound(&mut taken.inbound).await;
    assert_eq!(
        soon(called.output.wait_stopped()).await,
        Some(StreamReset::Cancelled)
    );
}

#[tokio::test]
async fn an_abandoned_answer_is_reported_as_such() {
    let (_a, dialed, mut taken, _b) = linked().await;
    let begun = dialed
        .link
        .open_call(header("tools/call"), Bytes::new(), long())
        .await;
    let (mut input, _output) = begun.unwrap();
    drop(inbound(&mut taken.inbound).await);
    let given_up = Err(StreamFailure::Reset(StreamReset::Abandoned));
    assert_eq!(soon(input.next()).await, given_up);
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_at_both_ends() {
    let (_a, dialed, mut taken, _b) = linked().await;
    let until = Instant::now() + Duration::from_millis(300);
    let begun = dialed
        .link
        .open_call(header("tools/call"), Bytes::new(), until)
        .await;
    let (mut input, _output) = begun.unwrap();
    let mut called = inbound(&mut taken.inbound).await;
    assert_eq!(
        soon(input.next()).await,
        Err(StreamFailure::DeadlineExceeded)
    );
    assert_eq!(
        soon(called.output.wait_stopped()).await,
        Some(StreamReset::Late)
    );
    assert_eq!(
        soon(called.input.next()).await,
        Err(StreamFailure::DeadlineExceeded)
    );
    let begun = dialed
        .link
        .open_call(header("tools/call"), Bytes::new(), until)
        .await;
    assert_eq!(begun.unwrap_err(), BeginCallError::DeadlineExceeded);
}

/// A rejection is sent at once, however much of the call is still in flight.
#[tokio::test]
async fn a_call_with_a_bad_header_is_answered_by_the_node() {
    let (_a, dialed, taken, _b) = linked().await;
    let answering = echoes(taken.inbound);
    let mut far = header("tools/call");
    far.hops = 2;
    let params = Bytes::from(vec![b'x'; 8 << 20]);
    let (mut input, _output) = dialed.link.open_call(far, params, long()).await.unwrap();
    let refused = CallFrame::Refused(CallRejection::TooManyHops);
    assert_eq!(soon(input.next()).await, Ok(refused));
    let mut bad = header("tools/call");
    bad.server = Some("../x".to_owned());
    let (mut input, _output) = dialed
        .link
        .open_call(bad, Bytes::new(), long())
        .await
        .unwrap();
    let Ok(CallFrame::Refused(CallRejection::Malformed { why })) = soon(input.next()).await else {
        panic!("a server that cannot exist was taken");
    };
    assert!(why.contains("server id"), "{why}");
    answering.abort();
}

#[tokio::test]
async fn calls_in_flight_end_with_their_link() {
    let (_a, dialed, mut taken, _b) = linked().await;
    let begun = dialed
        .link
        .open_call(header("tools/call"), Bytes::new(), long())
        .await;
    let (mut input, _output) = begun.unwrap();
    let called = inbound(&mut taken.inbound).await;
    taken.link.close(LinkClose::Done);
    let closed = StreamFailure::LinkClosed(LinkClose::Done);
    assert_eq!(soon(input.next()).await, Err(closed.clone()));
    assert_eq!(
        soon(called.output.wait_stopped()).await,
        Some(StreamReset::Abandoned)
    );
    let begun = dialed
        .link
        .open_call(header("tools/call"), Bytes::new(), long())
        .await;
    let BeginCallError::Gone(gone) = begun.unwrap_err() else {
        panic!("a call of a link that is gone");
    };
    assert_eq!(gone.0, closed);
}
