use serde_json::json;

use super::*;
use mgp_screening::masks::MASK;

const HEADER: &str =
    r#"{"format":"mgp-recording","version":1,"server":"it","began":"2026","written_by":"mgp"}"#;

/// A line of a recording with this message.
fn line(from: &str, kind: &str, message: &Value) -> String {
    let about = message["params"]["name"].as_str();
    let mut line = json!({"at_ms": 1, "connection": 3, "from": from, "kind": kind, "bytes": 9});
    for (name, value) in [("method", message["method"].as_str()), ("about", about)] {
        if let Some(value) = value {
            line[name] = value.into();
        }
    }
    if !message["id"].is_null() {
        line["id"] = message["id"].clone();
    }
    line["message"] = message.clone();
    line.to_string()
}

fn request(id: u64, method: &str, params: &Value) -> String {
    let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    line("kernel", "request", &message)
}

fn answer(id: u64, result: &Value) -> String {
    line(
        "server",
        "answer",
        &json!({"jsonrpc": "2.0", "id": id, "result": result}),
    )
}

fn recording(lines: &[String]) -> String {
    let lines = std::iter::once(HEADER.to_owned()).chain(lines.iter().cloned());
    lines.map(|line| line + "\n").collect()
}

/// Decision 0068: a recording is a file of anybody's: what is judged before it is called is what is called.
#[test]
fn the_call_target_comes_from_the_message() {
    let delete = request(1, "tools/call", &json!({"name": "delete"}));
    let masked = request(3, "tools/call", &json!({"name": MASK}));
    let double = request(2, "tools/call", &json!({"name": "echo"}));
    let double = double.replace(
        r#""params":{"name":"echo"}"#,
        r#""params":{"name":"echo","n\u0061me":"delete"}"#,
    );
    assert!(double.contains("delete"));
    let replay = Replay::parse(recording(&[
        delete.replace(r#""about":"delete""#, r#""about":"echo""#),
        answer(1, &json!({})),
        double,
        answer(2, &json!({})),
        masked,
        answer(3, &json!({})),
    ]))
    .unwrap();
    let [step] = &replay.steps[..] else {
        panic!("{:?}", replay.steps);
    };
    assert_eq!(step.target.as_deref(), Some("delete"));
    let why = replay.skipped.iter().map(|skipped| &*skipped.reason);
    assert_eq!(
        why.collect::<Vec<_>>(),
        [
            "its params have two members of one name",
            "what it is about is masked"
        ]
    );
}

/// Decision 0068: calls, lists and reads are played, in the era they were asked in and without what was of one
/// request alone; the handshake and the rest are the link's own.
#[test]
fn calls_and_lists_are_replayed() {
    let modern = json!({"_meta": {PROTOCOL_VERSION: "2026-07-28", "traceparent": "00-x", "progressToken": 1}});
    let replay = Replay::parse(recording(&[
        request(1, "initialize", &json!({})),
        answer(1, &json!({})),
        request(
            2,
            "tools/call",
            &json!({"name": "echo", "arguments": {"n": 1}, "_meta": {"progressToken": 2}}),
        ),
        request(3, "tools/list", &modern),
        answer(3, &json!({"tools": []})),
        answer(2, &json!({"content": []})),
        request(4, "ping", &json!({})),
    ]))
    .unwrap();
    assert!(replay.skipped.is_empty(), "{:?}", replay.skipped);
    let [call, list] = &replay.steps[..] else {
        panic!("{:?}", replay.steps);
    };
    assert_eq!(
        replay.params(call).as_deref(),
        Some(r#"{"name":"echo","arguments":{"n":1}}"#)
    );
    assert_eq!(
        (call.line, call.response.number, call.stateless),
        (4, 7, false)
    );
    assert_eq!(
        replay.recorded_answer(call),
        json!({"result": {"content": []}})
    );
    assert!(list.stateless);
    assert_eq!(
        replay.params(list).as_deref(),
        Some(r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#)
    );
}

/// Decision 0068: what a server asked is answered as it was.
#[test]
fn callbacks_get_their_recorded_responses() {
    let asked = json!({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create", "params": {}});
    let said = json!({"jsonrpc": "2.0", "id": 9, "result": {"action": "decline"}});
    let replay = Replay::parse(recording(&[
        request(2, "tools/call", &json!({"name": "ask"})),
        line("server", "request", &asked),
        line("kernel", "answer", &said),
        answer(2, &json!({})),
    ]))
    .unwrap();
    let wanted = RecordedCallback {
        method: "elicitation/create".into(),
        answer: json!({"result": {"action": "decline"}}),
    };
    assert_eq!(replay.recorded_callbacks(&replay.steps[0]), [wanted]);
}

/// Decision 0071: whether a server reported progress is known of each request that asked for it.
#[test]
fn progress_is_attributed_to_its_request() {
    let with = |token: &str| json!({"name": "slow", "_meta": {"progressToken": token}});
    let says = |token: &str| {
        let params = json!({"progressToken": token, "progress": 1});
        let message =
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        line("server", "notification", &message)
    };
    let replay = Replay::parse(recording(&[
        request(1, "tools/call", &with("a")),
        request(2, "tools/call", &with("b")),
        request(3, "tools/call", &json!({"name": "slow"})),
        says("a"),
        says("c"),
        answer(1, &json!({})),
        answer(2, &json!({})),
        says("b"),
        answer(3, &json!({})),
    ]))
    .unwrap();
    let progress = replay.steps.iter().map(|step| step.progress);
    assert_eq!(
        progress.collect::<Vec<_>>(),
        [Some(true), Some(false), None]
    );
}

/// Decision 0071: a file that was edited elsewhere is read as it is meant, and is written back as it came but for what
/// is new: line ends of another system, a mark at the beginning, empty lines, no end of the last line.
#[test]
fn a_recording_edited_elsewhere_is_accepted() {
    let text = recording(&[
        request(2, "tools/call", &json!({"name": "echo"})),
        answer(2, &json!({"n": 1})),
    ]);
    let edited = format!("\u{feff}{}", text.trim_end().replace('\n', "\r\n\r\n"));
    let replay = Replay::parse(edited.clone()).unwrap();
    assert_eq!((replay.steps.len(), replay.steps[0].line), (1, 3));
    assert_eq!(replay.render_with_answers(&BTreeMap::new()), edited);
    let new = BTreeMap::from([(0, r#"{"result":{"n":2}}"#.to_owned())]);
    let updated = replay.render_with_answers(&new);
    let (before, _) = edited.rsplit_once("\r\n").unwrap();
    assert!(updated.starts_with(before) && !updated.ends_with('\n'));
    let again = Replay::parse(updated).unwrap();
    assert_eq!(
        again.recorded_answer(&again.steps[0]),
        json!({"result": {"n": 2}})
    );
}

/// Numbers of any length are sent as they were written, also beside a value that was masked.
#[test]
fn numbers_are_replayed_verbatim() {
    let set = BTreeMap::from([("token".to_owned(), "t0k".to_owned())]);
    let put = Substitutes::new(set)
        .apply(r#"{"n":123456789012345678901234567890,"e":[1e999,1.0],"token":"[redacted]"}"#);
    assert_eq!(
        put.unwrap(),
        r#"{"n":123456789012345678901234567890,"e":[1e999,1.0],"token":"t0k"}"#
    );
}

#[test]
fn skipped_requests_are_reported_with_a_reason() {
    let mut long: Value = serde_json::from_str(&request(5, "tools/list", &json!({}))).unwrap();
    long["message"].take();
    long.as_object_mut().unwrap().shift_remove("message");
    let given_up = json!({"at_ms": 1, "connection": 3, "from": "kernel", "kind": "unanswered", "bytes": 0, "id": 2, "why": "lost"});
    let replay = Replay::parse(recording(&[
        request(2, "tools/call", &json!({"name": "slow"})),
        given_up.to_string(),
        request(3, "tools/list", &json!({})),
        long.to_string(),
    ]))
    .unwrap();
    let said: Vec<String> = replay.skipped.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "line 2: tools/call slow is not played: it got no answer: lost",
            "line 4: tools/list is not played: its answer is not there",
            "line 5: tools/list is not played: it was too long to be recorded",
        ]
    );
}

/// Decision 0068: a reader says what it cannot read.
#[test]
fn an_invalid_recording_is_rejected() {
    let no = |text: &str| Replay::parse(text.to_owned()).unwrap_err();
    assert_eq!(no(""), RecordingError::NoHeader);
    assert_eq!(no("{}\n"), RecordingError::NoHeader);
    assert_eq!(
        no(&HEADER.replace("mgp-recording", "har")),
        RecordingError::NoHeader
    );
    assert_eq!(
        no(&HEADER.replace("\"version\":1", "\"version\":2")),
        RecordingError::Version(2)
    );
    assert_eq!(
        no(&HEADER.replace("\"server\"", "\"agent\"")),
        RecordingError::AgentRecording
    );
    assert!(matches!(
        no(&format!("{HEADER}\n{{}}\n")),
        RecordingError::InvalidLine(2, _)
    ));
    let whole = request(1, "tools/list", &json!({}));
    let cut = format!("{HEADER}\n{whole}\n{}", &whole[..40]);
    assert_eq!(no(&cut), RecordingError::Truncated(3));
    let twice = whole.replace(r#""bytes":9"#, r#""bytes":9,"bytes":9"#);
    let said = no(&format!("{HEADER}\n{twice}\n")).to_string();
    assert!(said.contains("duplicate field `bytes`, column"), "{said}");
}

/// Decision 0068: what a server gave for the next request is sent back as it gives it now, and a masked value is
/// sent only where it was set.
#[test]
fn changed_values_are_substituted() {
    let set = BTreeMap::from([("token".to_owned(), "t0k".to_owned())]);
    let mut now = Substitutes::new(set);
    now.record_answer(
        &json!({"result": {"requestState": "old", "nextCursor": "2"}}),
        &json!({"result": {"requestState": "new", "nextCursor": "two"}}),
    );
    let put = |params: Value| now.apply(&params.to_string());
    assert_eq!(
        put(json!({"requestState": "old", "n": 1})).unwrap(),
        r#"{"requestState":"new","n":1}"#
    );
    assert_eq!(put(json!({"cursor": "2"})).unwrap(), r#"{"cursor":"two"}"#);
    assert_eq!(
        put(json!({"cursor": "old"})).unwrap(),
        r#"{"cursor":"old"}"#
    );
    let masked = json!({"arguments": {"token": format!("Bearer {MASK}"), "n": 1.0}});
    assert_eq!(
        put(masked).unwrap(),
        r#"{"arguments":{"token":"Bearer t0k","n":1.0}}"#
    );
    let masked = json!({"arguments": {"keys": [MASK], "token": MASK}});
    assert_eq!(put(masked).unwrap_err(), ["keys"]);
}

/// Decision 0068: new answers take the place of the recorded ones, and nothing else changes.
#[test]
fn new_responses_replace_recorded_ones() {
    let text = recording(&[
        request(2, "tools/call", &json!({"name": "echo"})),
        answer(2, &json!({"n": 1.0})),
        request(3, "tools/call", &json!({"name": "echo"})),
        answer(3, &json!({"n": 2.0})),
    ]);
    let replay = Replay::parse(text.clone()).unwrap();
    assert_eq!(replay.render_with_answers(&BTreeMap::new()), text);
    let answers = BTreeMap::from([(1, r#"{"error":{"code":-1,"message":"no"}}"#.to_owned())]);
    let updated = replay.render_with_answers(&answers);
    let kept: Vec<(&str, &str)> = text.lines().zip(updated.lines()).collect();
    assert!(kept[..4].iter().all(|(old, new)| old == new), "{updated}");
    let again = Replay::parse(updated.clone()).unwrap();
    assert_eq!(
        again.recorded_answer(&again.steps[1]),
        json!({"error": {"code": -1, "message": "no"}})
    );
}
