//! Event streams of the HTTP door: numbered, kept for a while, and taken up where they broke off.

use http::StatusCode;
use mgp_tests::harness::http::events::{Event, Events};
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{Agent, DEADLINE, HttpClient, Kernel, wait_until};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST, counts, request};

/// A version whose streams begin with their first message.
const UNPRIMED: &str = "2025-06-18";

/// A session that hears whenever the watched resource changes, and who can make it change.
async fn follower(kernel: &Kernel, version: &str) -> (HttpClient, Agent) {
    let client = scene::session(kernel, version).await;
    let watch = request(
        "w",
        "resources/subscribe",
        json!({"uri": "test://watched-resource"}),
    );
    let watched = client.post(watch).await.frames().await;
    assert!(watched[0].contains("result"), "{watched:?}");
    (client, scene::socket_agent(kernel, "{}").await)
}

/// Changes the watched resource `times`, in the order of the calls.
async fn change(agent: &mut Agent, times: usize) {
    let mut last = Value::Null;
    for _ in 0..times {
        let params = json!({"name": "test_trigger_resource_update"});
        last = agent.start("tools/call", params).await;
        agent.answer_to(&last).await.result();
    }
    assert!(last.is_number());
}

/// The next event that carries a message.
async fn message(events: &mut Events) -> (u64, Value) {
    loop {
        let event = next(events).await.expect("the stream goes on");
        if !event.data.is_empty() {
            return (number(&event), serde_json::from_str(&event.data).unwrap());
        }
    }
}

async fn next(events: &mut Events) -> Option<Event> {
    within("an event", DEADLINE, events.next()).await
}

fn number(event: &Event) -> u64 {
    event
        .id
        .as_deref()
        .expect("every message has an id")
        .parse()
        .unwrap()
}

async fn numbers(events: &mut Events, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        numbers.push(message(events).await.0);
    }
    numbers
}

/// MCP-074, CMCP-023, CMCP-025, CMCP-027: the stream is a stream, and its events count from 1.
#[tokio::test]
async fn events_of_the_standing_stream_count_from_one() {
    let kernel = scene::kernel().await;
    let (client, mut changer) = follower(&kernel, UNPRIMED).await;
    let stream = client.get(None).await;
    assert_eq!(stream.status, StatusCode::OK);
    assert!(stream.is_stream());
    assert!(!stream.headers.contains_key("content-length"));
    let mut events = stream.events();
    change(&mut changer, 3).await;
    for n in 1..=3 {
        let (number, update) = message(&mut events).await;
        assert_eq!(number, n);
        assert_eq!(update["method"], "notifications/resources/updated");
        assert_eq!(update["params"], json!({"uri": "test://watched-resource"}));
    }
}

/// SEP-1699: from 2025-11-25 on a stream begins with an empty event to resume from, and says how
/// long to wait before that.
#[tokio::test]
async fn a_stream_of_2025_11_25_begins_with_an_event_to_resume_from() {
    let kernel = scene::kernel().await;
    let (client, mut changer) = follower(&kernel, NEWEST).await;
    let mut events = client.get(None).await.events();
    let retry = next(&mut events).await.unwrap();
    assert!(retry.retry.is_some(), "{retry:?}");
    let primer = next(&mut events).await.unwrap();
    assert_eq!(
        (primer.id.as_deref(), primer.data.as_str()),
        (Some("1"), "")
    );
    drop(events);
    change(&mut changer, 1).await;
    let mut events = client.get(Some("1")).await.events();
    assert_eq!(message(&mut events).await.0, 2);
}

/// CMCP-028, CMCP-029: the last 256 events are kept, and replayed before what comes next.
#[tokio::test]
async fn what_was_missed_is_replayed_before_what_comes() {
    let kernel = scene::kernel().await;
    let (client, mut changer) = follower(&kernel, UNPRIMED).await;
    change(&mut changer, 300).await;
    let mut events = client.get(Some("100")).await.events();
    change(&mut changer, 5).await;
    let seen = numbers(&mut events, 205).await;
    assert_eq!(seen, Vec::from_iter(101..=305));
    let mut oldest = client.get(Some("50")).await.events();
    assert_eq!(numbers(&mut oldest, 255).await, Vec::from_iter(51..=305));
}

/// CMCP-028, CMCP-030: `replay_events` sets how many are kept; outside of them there is only what
/// comes, older or newer or no number at all.
#[tokio::test]
async fn an_id_outside_of_what_is_kept_gets_only_what_comes() {
    let kernel = scene::kernel_with("[tuning.streams]\nreplay_events = 8\n", &[]).await;
    let (client, mut changer) = follower(&kernel, UNPRIMED).await;
    change(&mut changer, 20).await;
    let mut kept = client.get(Some("13")).await.events();
    assert_eq!(numbers(&mut kept, 7).await, Vec::from_iter(14..=20));
    drop(kept);
    for (n, outside) in [
        "12",
        "3",
        "0",
        "100",
        "999999",
        "18446744073709551616",
        "x",
        "-1",
        "",
    ]
    .into_iter()
    .enumerate()
    {
        let answer = client.get(Some(outside)).await;
        assert_eq!(answer.status, StatusCode::OK, "{outside:?}");
        let mut events = answer.events();
        change(&mut changer, 1).await;
        let (number, _) = message(&mut events).await;
        assert_eq!(number, 21 + n as u64, "{outside:?}");
    }
}

/// CMCP-026: nobody listens, nobody waits; the newest events are there for who comes.
#[tokio::test]
async fn without_a_listener_nothing_blocks_and_the_newest_events_stay() {
    let kernel = scene::kernel().await;
    let (client, mut changer) = follower(&kernel, UNPRIMED).await;
    change(&mut changer, 1500).await;
    let echo = client
        .post(scene::call(1, "echo", json!({"text": "not held up"})))
        .await;
    assert!(echo.frames().await[0].contains("not held up"));
    let mut events = client.get(Some("1300")).await.events();
    assert_eq!(numbers(&mut events, 200).await, Vec::from_iter(1301..=1500));
}

/// CMCP-026: who comes late, and never listened before, gets the newest events and then what comes.
#[tokio::test]
async fn a_listener_that_comes_late_gets_the_newest_events() {
    let kernel = scene::kernel().await;
    let (client, mut changer) = follower(&kernel, UNPRIMED).await;
    change(&mut changer, 400).await;
    let mut events = client.get(None).await.events();
    change(&mut changer, 1).await;
    let seen = numbers(&mut events, 257).await;
    // The last of the 400 may have been on its way when the stream was opened.
    let first = 400 - 256 + u64::from(seen[0] == 145);
    assert_eq!(seen, Vec::from_iter(first..first + 257));
}

/// A call that floods its stream before anybody can read it is answered all the same.
#[tokio::test]
async fn a_flood_of_progress_does_not_wash_the_answer_away() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    for n in 0..50 {
        let meta = json!({"progressToken": n});
        let arguments = json!({"steps": 3000});
        let params = json!({"name": "progress", "arguments": arguments, "_meta": meta});
        let frames = client
            .post(request(n, "tools/call", params))
            .await
            .frames()
            .await;
        let last = frames.last().expect("a stream with an answer");
        assert!(last.contains("3000 steps"), "{n}: {last}");
    }
}

/// CMCP-029: a client that loses its connection again and again, in the middle of everything, sees
/// every event once and in order.
#[tokio::test]
async fn a_reconnect_storm_has_no_gap_and_no_duplicate() {
    const EVENTS: u64 = 600;
    let kernel = scene::kernel_with("[tuning.streams]\nreplay_events = 65536\n", &[]).await;
    let (client, mut changer) = follower(&kernel, UNPRIMED).await;
    let changing = tokio::spawn(async move {
        change(&mut changer, usize::try_from(EVENTS).unwrap()).await;
    });
    let (mut seen, mut connections) = (Vec::new(), 0);
    while seen.len() < usize::try_from(EVENTS).unwrap() {
        let last = seen.last().map(u64::to_string);
        let mut events = client.get(last.as_deref()).await.events();
        connections += 1;
        let left = usize::try_from(EVENTS).unwrap() - seen.len();
        seen.extend(numbers(&mut events, left.min(1 + connections % 7)).await);
    }
    changing.await.unwrap();
    assert_eq!(seen, Vec::from_iter(1..=EVENTS));
    assert!(connections > 100, "{connections}");
}

/// The stream of one call: its events until the connection is cut after the first `cut` of them.
async fn begun(client: &HttpClient, call: String, cut: usize) -> (u64, Vec<Value>) {
    let answer = client.post(call).await;
    assert!(answer.is_stream());
    let (mut events, mut last, mut seen) = (answer.events(), 0, Vec::new());
    while last == 0 || seen.len() < cut {
        let event = next(&mut events).await.expect("the call goes on");
        if event.id.is_some() {
            last = number(&event);
        }
        if !event.data.is_empty() {
            seen.push(serde_json::from_str(&event.data).unwrap());
        }
    }
    (last, seen)
}

/// The rest of a stream up to its end.
async fn rest(client: &HttpClient, last: u64) -> Vec<Value> {
    let mut events = client.get(Some(&last.to_string())).await.events();
    let mut seen = Vec::new();
    while let Some(event) = next(&mut events).await {
        if !event.data.is_empty() {
            seen.push(serde_json::from_str(&event.data).unwrap());
        }
    }
    seen
}

/// A cut connection is no cancellation: the call goes on, and its answer is there for the client
/// that comes back, as often as it comes.
#[tokio::test]
async fn the_answer_of_a_call_waits_for_a_client_whose_connection_was_cut() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let (last, seen) = begun(&client, scene::call("slow", "slow", json!({"ms": 400})), 0).await;
    assert!(seen.is_empty(), "{seen:?}");
    for _ in 0..2 {
        let answer = rest(&client, last).await;
        assert_eq!(answer.len(), 1, "{answer:?}");
        assert_eq!(answer[0]["id"], "slow");
        assert_eq!(answer[0]["result"]["content"][0]["text"], "slept");
    }
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let counted = counts(&mut agent, "count").await;
    assert_eq!(counted["cancelled"], json!({}));
    assert_eq!(counted["calls"]["slow"], 1);
}

/// A call whose client hangs up before there is any stream is carried out all the same, once.
#[tokio::test]
async fn a_client_that_hangs_up_at_once_cancels_nothing() {
    let kernel = scene::kernel_with("[tuning.streams]\nstream_after_ms = 60000\n", &[]).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let client = scene::session(&kernel, NEWEST).await;
    let call = scene::call(1, "test_slow", json!({"seconds": 0.3}));
    let posting = tokio::spawn(async move { client.post(call).await });
    let called = async |agent: &mut Agent| counts(agent, "count").await["calls"]["test_slow"] == 1;
    wait_until("the call is there", DEADLINE, async || {
        called(&mut agent).await
    })
    .await;
    posting.abort();
    assert!(posting.await.unwrap_err().is_cancelled());
    let status = async || kernel.mgp_json(&["servers", "list"]).await["servers"][0].clone();
    let done = async || status().await["in_flight"] == 0;
    wait_until("the call is over", DEADLINE, done).await;
    let counted = counts(&mut agent, "count").await;
    assert_eq!(counted["cancelled"], json!({}));
    assert_eq!(counted["calls"]["test_slow"], 1);
}

/// Progress and answer of a call whose stream is cut again and again: everything once, in order.
#[tokio::test]
async fn a_call_with_progress_survives_any_number_of_cuts() {
    let kernel = scene::kernel().await;
    let client = scene::session(&kernel, NEWEST).await;
    let meta = json!({"progressToken": "p"});
    let arguments = json!({"steps": 60, "ms": 5});
    let params = json!({"name": "progress", "arguments": arguments, "_meta": meta});
    let (mut last, mut seen) = begun(&client, request(1, "tools/call", params), 3).await;
    let mut cuts = 1;
    while !seen.last().unwrap()["id"].is_number() {
        let mut events = client.get(Some(&last.to_string())).await.events();
        for _ in 0..(1 + cuts % 4) {
            let Some(event) = next(&mut events).await else {
                break;
            };
            last = number(&event);
            seen.push(serde_json::from_str(&event.data).unwrap());
        }
        cuts += 1;
    }
    assert!(cuts > 5, "{cuts}");
    let answer = seen.pop().unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "60 steps");
    let steps = seen
        .iter()
        .map(|step| step["params"]["progress"].as_u64().unwrap());
    assert_eq!(Vec::from_iter(steps), Vec::from_iter(1..=60));
}

/// SEP-1699: with `poll_after_ms` the stream of a call is let go early, and the client comes back
/// for the answer; a client that does not know of it keeps its stream.
#[tokio::test]
async fn a_stream_let_go_after_poll_after_ms_is_taken_up_for_the_answer() {
    let kernel = scene::kernel_with("[tuning.streams]\npoll_after_ms = 50\n", &[]).await;
    let slow = || scene::call(1, "slow", json!({"ms": 500}));
    let client = scene::session(&kernel, NEWEST).await;
    let mut events = client.post(slow()).await.events();
    let mut last = None;
    while let Some(event) = next(&mut events).await {
        assert_eq!(event.data, "");
        last = event.id.or(last);
    }
    let answer = rest(&client, last.unwrap().parse().unwrap()).await;
    assert_eq!(answer[0]["result"]["content"][0]["text"], "slept");
    let older = scene::session(&kernel, UNPRIMED).await;
    let frames = older.post(slow()).await.frames().await;
    assert!(frames[0].contains("slept"), "{frames:?}");
}
