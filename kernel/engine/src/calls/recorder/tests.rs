use serde_json::{Value, json};

use super::*;

use MessageSender::{Kernel, Server};

/// A recorder, and what it is given, a millisecond after each other.
struct Scene {
    recorder: Recorder,
    masks: Masks,
    ms: u64,
}

impl Scene {
    fn new(wanted: Follow) -> Self {
        Self {
            recorder: Recorder::new(wanted),
            masks: Masks::new(["hunter2-hunter2".to_owned()]),
            ms: 0,
        }
    }

    fn passed(&mut self, from: MessageSender, what: ObservedText<'_>) -> Option<Heard> {
        self.ms += 1;
        let passed = ObservedMessage {
            unix_ms: self.ms,
            observed_at: MonotonicTime::new(Duration::from_millis(self.ms)),
            connection: 1,
            sender: from,
            text: what,
        };
        self.recorder.record(&passed, &self.masks)
    }

    fn frame(&mut self, from: MessageSender, frame: &Value) -> Option<Heard> {
        let text = frame.to_string();
        self.passed(from, ObservedText::Frame(text.as_bytes()))
    }
}

fn call(id: u64, tool: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool}})
}

fn answer(id: u64, is_error: bool) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [], "isError": is_error}})
}

fn bodies() -> Follow {
    Follow {
        bodies: true,
        ..Follow::default()
    }
}

/// Decision 0068: an answer is shown with what it answers and how long that took; both sides may use the same id.
#[test]
fn a_response_is_recorded_with_its_request() {
    let mut it = Scene::new(Follow::default());
    let asked = it.frame(Kernel, &call(7, "echo")).unwrap();
    assert_eq!(asked.about.as_deref(), Some("echo"));
    assert!(asked.message.is_none() && asked.bytes > 0);
    let question = json!({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create"});
    it.frame(Server, &question).unwrap();
    let reply = json!({"jsonrpc": "2.0", "id": 7, "result": {"action": "decline"}});
    let reply = it.frame(Kernel, &reply).unwrap();
    assert_eq!(reply.method.as_deref(), Some("elicitation/create"));
    let done = it.frame(Server, &answer(7, false)).unwrap();
    assert_eq!(
        (done.kind, done.method.as_deref(), done.about.as_deref()),
        (MessageKind::Answer, Some("tools/call"), Some("echo"))
    );
    assert_eq!(done.took_us, Some(3_000));
    let again = it.frame(Server, &answer(7, false)).unwrap();
    assert_eq!((again.method, again.took_us), (None, None));
}

#[test]
fn abandoned_requests_are_recorded_with_a_reason() {
    let mut it = Scene::new(Follow::default());
    it.frame(Kernel, &call(1, "slow"));
    let why = "lost, with hunter2-hunter2";
    let over = it
        .passed(Kernel, ObservedText::Abandoned("1", why))
        .unwrap();
    assert_eq!(over.kind, MessageKind::Unanswered);
    assert_eq!(over.about.as_deref(), Some("slow"));
    assert_eq!(over.why.as_deref(), Some("lost, with [redacted]"));
}

/// Decision 0068: filters let a request pass together with its answer; what cannot be read passes all but none is
/// lost.
#[test]
fn filters_pass_requests_with_their_responses() {
    let tool = |tool: &str| Follow {
        tools: vec![tool.into()],
        ..Follow::default()
    };
    let count = |wanted: Follow| {
        let mut it = Scene::new(wanted);
        let listed = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"});
        let heard = [
            it.frame(Kernel, &call(1, "echo")),
            it.frame(Kernel, &call(2, "fail")),
            it.frame(Kernel, &listed),
            it.frame(Server, &answer(2, true)),
            it.frame(Server, &answer(1, false)),
            it.passed(Server, ObservedText::Frame(b"Hello")),
        ];
        heard.map(|heard| heard.is_some())
    };
    assert_eq!(count(Follow::default()), [true; 6]);
    assert_eq!(count(tool("echo")), [true, false, false, false, true, true]);
    let lists = Follow {
        methods: vec!["tools/list".into()],
        ..Follow::default()
    };
    assert_eq!(count(lists), [false, false, true, false, false, true]);
    let errors = Follow {
        errors: true,
        ..Follow::default()
    };
    assert_eq!(count(errors), [false, false, false, true, false, true]);
}

/// Decision 0068: nothing that is shown has a secret in it: not a name, an id, a body, or what is no message.
#[test]
fn secrets_are_masked_in_all_parts_of_a_message() {
    let mut it = Scene::new(bodies());
    let secret = "hunter2-hunter2";
    let mut request = call(1, secret);
    request["id"] = secret.into();
    request["params"]["arguments"] = json!({"text": secret, "password": "p"});
    let noise = format!("DEBUG {secret} \u{1}");
    let heard = [
        it.frame(Kernel, &request),
        it.frame(Kernel, &json!({"jsonrpc": "2.0", "method": secret})),
        it.frame(Kernel, &json!([secret])),
        it.passed(Server, ObservedText::Frame(noise.as_bytes())),
    ];
    for heard in heard {
        let line = serde_json::to_string(&heard.unwrap()).unwrap();
        assert!(
            !line.contains("hunter2") && line.contains("[redacted]"),
            "{line}"
        );
        assert!(!line.contains('\n') && !line.contains(r#""p""#), "{line}");
    }
}

/// Decision 0068: what is cut is masked before.
#[test]
fn truncation_leaves_no_part_of_a_secret() {
    let mut it = Scene::new(bodies());
    let long = "x".repeat(TEXT_MAX - 8) + "hunter2-hunter2";
    let noise = format!("{long} \u{1}");
    let heard = [
        it.frame(Kernel, &call(1, &long)),
        it.frame(Kernel, &json!({"jsonrpc": "2.0", "method": long})),
        it.passed(Server, ObservedText::Frame(noise.as_bytes())),
    ];
    for heard in heard {
        let line = serde_json::to_string(&heard.unwrap()).unwrap();
        assert!(!line.contains("hunter"), "{line}");
    }
    let id = json!({"jsonrpc": "2.0", "id": "i".repeat(TEXT_MAX), "method": "ping"});
    assert!(
        it.frame(Kernel, &id).unwrap().id.is_none(),
        "no id of any length"
    );
}

#[test]
fn a_long_message_is_recorded_without_its_text() {
    let mut it = Scene::new(bodies());
    let mut long = call(1, "echo");
    long["params"]["arguments"] = "x".repeat(MESSAGE_MAX).into();
    let heard = it.frame(Kernel, &long).unwrap();
    assert!(heard.too_long && heard.message.is_none());
    assert_eq!(heard.about.as_deref(), Some("echo"));
}

#[test]
fn unanswered_requests_are_bounded() {
    let mut it = Scene::new(Follow::default());
    for id in 0..=PENDING_MAX as u64 {
        it.frame(Kernel, &call(id, "echo"));
    }
    assert_eq!(it.recorder.pending.len(), 1);
}

/// What is kept of a request has a bound: of the answer to a longer one only what it says itself is shown.
#[test]
fn stored_data_of_a_request_is_bounded() {
    let mut it = Scene::new(Follow::default());
    let rest = "tools/call".len() + "1".len();
    for (name, kept) in [(PENDING_BYTES_MAX - rest, true), (PENDING_BYTES_MAX, false)] {
        it.frame(Kernel, &call(1, &"x".repeat(name)));
        assert_eq!(it.recorder.pending.len(), usize::from(kept));
        let done = it.frame(Server, &answer(1, false)).unwrap();
        assert_eq!(
            (done.method.is_some(), done.took_us.is_some()),
            (kept, kept)
        );
    }
}
