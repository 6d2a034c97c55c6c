use super::*;
use crate::callers::seal::{Purpose, SealKey};
use serde_json::{Value, json};

const CREATED: u64 = 1_795_309_507_045;

fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

fn task() -> Task {
    Task::new(CREATED, 60_000, 500)
}

/// SEP-2663: a flat object; the create result has no outcome.
#[test]
fn a_task_renders_the_members_of_its_status() {
    let mut task = task();
    let seen = json!({
        "taskId": "mgp1.x",
        "status": "working",
        "createdAt": "2026-11-22T01:05:07.045Z",
        "lastUpdatedAt": "2026-11-22T01:05:07.045Z",
        "ttlMs": 60_000,
        "pollIntervalMs": 500,
    });
    assert_eq!(value(&task.render_notification("mgp1.x")), seen);
    let with = |task: &Task, more: Value| {
        let mut want = seen.clone();
        want["status"] = task.status().as_str().into();
        want["lastUpdatedAt"] = "2026-11-22T01:05:08.045Z".into();
        let more = more.as_object().unwrap().clone();
        want.as_object_mut().unwrap().extend(more);
        want
    };
    let later = CREATED + 1_000;
    let asks = r#"{"roots-1":{"method":"roots/list"}}"#;
    task.apply(later, TaskStep::RequireInput(asks.into()))
        .unwrap();
    let more = json!({"inputRequests": value(asks)});
    assert_eq!(
        value(&task.render_notification("mgp1.x")),
        with(&task, more)
    );
    task.apply(later, TaskStep::Resume).unwrap();
    assert_eq!(
        value(&task.render_notification("mgp1.x")),
        with(&task, json!({}))
    );
    let mut failed = task.clone();
    let error = r#"{"code":-32603,"message":"gone"}"#;
    failed.apply(later, TaskStep::Fail(error.into())).unwrap();
    let more = json!({"error": value(error)});
    assert_eq!(
        value(&failed.render_notification("mgp1.x")),
        with(&failed, more)
    );
    let result = r#"{"content":[],"isError":true,"n":12345678901234567890123}"#;
    task.apply(later, TaskStep::Complete(result.into()))
        .unwrap();
    assert_eq!(task.status(), TaskStatus::Completed);
    let got = task.render_get_result("mgp1.x");
    assert!(got.contains(result), "{got}");
    assert_eq!(value(&got)["resultType"], "complete");
    let created = with(&task, json!({"resultType": "task"}));
    assert_eq!(value(&task.render_create_result("mgp1.x")), created);
}

/// SEP-2663.
#[test]
fn no_transition_follows_a_final_status() {
    let steps = || {
        [
            TaskStep::Complete("{}".into()),
            TaskStep::Fail("{}".into()),
            TaskStep::Cancel,
            TaskStep::Resume,
            TaskStep::RequireInput("{}".into()),
        ]
    };
    for end in steps().into_iter().take(3) {
        let mut task = task();
        task.apply(CREATED, end).unwrap();
        assert!(task.status().is_final());
        let before = task.clone();
        for more in steps() {
            assert_eq!(
                task.apply(CREATED + 1, more),
                Err(TaskEndedError(task.status()))
            );
        }
        assert_eq!(task, before);
    }
    let mut asking = task();
    asking
        .apply(CREATED, TaskStep::RequireInput("{}".into()))
        .unwrap();
    asking.apply(CREATED, TaskStep::Cancel).unwrap();
    assert_eq!(asking.status(), TaskStatus::Cancelled);
}

#[test]
fn time_does_not_go_back_in_a_task() {
    let mut task = task();
    task.apply(CREATED - 1, TaskStep::RequireInput("{}".into()))
        .unwrap();
    let seen = value(&task.render_notification("x"));
    assert_eq!(seen["lastUpdatedAt"], seen["createdAt"]);
    assert_eq!(task.expires_ms(), CREATED + 60_000);
    // Nothing new is no update.
    let before = task.clone();
    task.apply(CREATED + 5, TaskStep::RequireInput("{}".into()))
        .unwrap();
    assert_eq!(task, before);
}

#[test]
fn a_task_of_the_extension_is_converted_for_legacy_clients() {
    let modern = r#"{"resultType":"complete","taskId":"t1","status":"completed","createdAt":"a","lastUpdatedAt":"b","ttlMs":null,"pollIntervalMs":5e3,"requestState":"s","result":{"isError":false}}"#;
    let shown = to_legacy(modern, "mgp1.x").unwrap();
    assert_eq!(
        shown,
        r#"{"taskId":"mgp1.x","status":"completed","createdAt":"a","lastUpdatedAt":"b","pollInterval":5e3,"ttl":null}"#
    );
    let failed = to_legacy(&modern.replace("false", "true"), "mgp1.x").unwrap();
    assert_eq!(value(&failed)["status"], "failed");
    for status in ["working", "input_required", "failed", "cancelled"] {
        let shown = to_legacy(&modern.replace("completed", status), "x").unwrap();
        assert_eq!(value(&shown)["status"], status);
        let twice = to_legacy(&shown, "x").unwrap();
        assert_eq!(value(&twice)["status"], status);
    }
    for bad in ["[]", "{}", r#"{"status":"odd"}"#, r#"{"status":7}"#] {
        assert_eq!(to_legacy(bad, "x"), None, "{bad}");
    }
}

#[test]
fn a_sealed_task_id_round_trips() {
    let key = SealKey::new([1; 32]);
    let made = [
        Maker::Modern { task: "t".into() },
        Maker::Legacy { task: "t".into() },
        Maker::Kernel { boot: 1, number: 2 },
    ];
    let refs = made.map(|maker| TaskRef {
        server: ServerId::new("files"),
        maker,
    });
    let ids = refs.each_ref().map(|r| key.seal(Purpose::Task, "ann", r));
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    for (task, id) in refs.iter().zip(&ids) {
        assert_eq!(key.open(Purpose::Task, "ann", id).as_ref(), Ok(task));
    }
}
