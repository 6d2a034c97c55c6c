use super::*;

fn mark() -> FenceMark {
    FenceMark::new([7; 8])
}

fn enabled(set: &str) -> Result<(), String> {
    match set {
        "memory.retrieval" => Ok(()),
        "memory.off" => Err("Feature set not enabled".into()),
        _ => Err("Unknown feature set".into()),
    }
}

fn before(server: &str, result: &str) -> Result<ServerInjections, String> {
    let (server, policy) = (ServerId::new(server), HookPolicy::default());
    evaluate_before(&server, result, (&enabled, &|_| Ok(())), (&policy, &mark()))
}

/// NEW-020: each addition is authorized by its own position.
#[test]
fn addition_at_a_position_that_is_not_granted_is_left_out_alone() {
    let both = r#"{"namespace":"n","position":"system","content":"a"},{"namespace":"n","position":"afterUser","content":"b"}"#;
    let may_add = |position| match position {
        Position::System => Err("not granted".to_owned()),
        Position::BeforeUser | Position::AfterUser => Ok(()),
    };
    let (server, policy) = (ServerId::new("memory"), HookPolicy::default());
    let checks: (SetCheck<'_>, PositionCheck<'_>) = (&enabled, &may_add);
    let read = evaluate_before(&server, &result(both), checks, (&policy, &mark())).unwrap();
    let positions: Vec<_> = read.injections.iter().map(|one| one.position).collect();
    assert_eq!(positions, [Position::AfterUser]);
    assert_eq!(read.omitted, ["injection 0: not granted"]);
}

fn result(injections: &str) -> String {
    format!(r#"{{"featureSet":"memory.retrieval","contextInjections":[{injections}]}}"#)
}

fn text(position: &str, text: &str) -> String {
    format!(r#"{{"namespace":"n","position":"{position}","content":"{text}"}}"#)
}

/// MCPL-088, MCPL-090, MCPL-091: the answer of §15.1 is accepted, fenced, with unchanged metadata.
#[test]
fn the_answer_of_the_document_is_taken() {
    let answer = r#"{ "featureSet": "memory.retrieval", "contextInjections": [{
        "namespace": "memory", "position": "system",
        "content": [{ "type": "text", "text": "<memories>\nScaling mannequin installation to 8-10 units. DMX lighting, X32 audio routing.\n</memories>" }],
        "metadata": { "memoryIds": ["mem_a1", "mem_a2"] } }] }"#;
    let accepted = before("memory", answer).unwrap();
    assert_eq!((accepted.injections.len(), accepted.omitted.len()), (1, 0));
    let one = &accepted.injections[0];
    assert_eq!(one.position, Position::System);
    assert!(
        one.content
            .joined_text()
            .contains("\n<memories>\nScaling mannequin")
    );
    let json: serde_json::Value = serde_json::from_str(&one.to_json()).unwrap();
    assert_eq!(json["metadata"]["memoryIds"][1], "mem_a2");
    assert_eq!(json["namespace"], "memory.memory");
    assert_eq!(json["featureSet"], "memory.memory.retrieval");
    assert_eq!(json["position"], "system");
}

/// MCPL-040: an answer of a set that is disabled, unknown, missing or no text is discarded.
#[test]
fn an_answer_of_a_forged_set_is_discarded() {
    let valid = text("system", "x");
    for (set, why) in [
        (r#""featureSet":"memory.off","#, "not enabled"),
        (r#""featureSet":"other.set","#, "Unknown"),
        (r#""featureSet":"Memory.retrieval","#, "Unknown"),
        (r#""featureSet":null,"#, "null"),
        ("", "featureSet"),
        (
            r#""featureSet":"memory.retrieval","featureSet":"memory.off","#,
            "duplicate",
        ),
    ] {
        let answer = format!(r#"{{{set}"contextInjections":[{valid}]}}"#);
        let words = before("memory", &answer).unwrap_err();
        assert!(words.contains(why), "{answer}: {words}");
    }
    for none in [
        "null",
        "[]",
        "7",
        "{}",
        r#"{"featureSet":"memory.retrieval","contextInjections":{}}"#,
    ] {
        assert!(before("memory", none).is_err(), "{none}");
    }
}

/// MCPL-089, MCPL-091, MCPL-139: invalid injections are omitted with a reason, the others stay.
#[test]
fn a_bad_injection_takes_no_other_one_away() {
    for bad in [
        text("System", "x"),
        text("middle", "x"),
        r#"{"position":"system","content":"x"}"#.to_owned(),
        r#"{"namespace":"n","content":"x"}"#.to_owned(),
        r#"{"namespace":"n","position":"system"}"#.to_owned(),
        r#"{"namespace":"","position":"system","content":"x"}"#.to_owned(),
        r#"{"namespace":"a\nb","position":"system","content":"x"}"#.to_owned(),
        r#"{"namespace":7,"position":"system","content":"x"}"#.to_owned(),
        r#"{"namespace":"n","position":"system","content":7}"#.to_owned(),
        r#"{"namespace":"n","position":"system","content":[{"type":"image","data":"aGk="}]}"#
            .to_owned(),
        r#"{"namespace":"n","position":"system","content":"x","metadata":[1]}"#.to_owned(),
        "7".to_owned(),
        text("system", "0707070707070707"),
    ] {
        let valid = text("system", "good");
        let accepted = before("memory", &result(&format!("{valid},{bad},{valid}"))).unwrap();
        assert_eq!(
            (accepted.injections.len(), accepted.omitted.len()),
            (2, 1),
            "{bad}"
        );
        assert!(accepted.omitted[0].starts_with("injection 1: "));
    }
}

/// 10 MiB, or thousands of small ones, are rejected; a small one beside them is accepted.
#[test]
fn an_injection_of_ten_mebibytes_is_left_out() {
    let (small, huge) = (
        text("system", "small"),
        text("system", &"x".repeat(10 << 20)),
    );
    let accepted = before("memory", &result(&format!("{huge},{small}"))).unwrap();
    assert_eq!((accepted.injections.len(), accepted.omitted.len()), (1, 1));
    let many = vec![small; 5000].join(",");
    let accepted = before("memory", &result(&many)).unwrap();
    assert_eq!(
        (accepted.injections.len(), accepted.omitted.len()),
        (INJECTIONS_MAX, REASONS_MAX)
    );
}

/// MCPL-100: by position, then by server, then as written, whoever answers first.
#[test]
fn injections_have_one_order() {
    let of = |server: &str, answer: &str| before(server, answer).unwrap();
    let one = result(&[text("afterUser", "a1"), text("system", "a2")].join(","));
    let two = result(
        &[
            text("system", "b1"),
            text("beforeUser", "b2"),
            text("system", "b3"),
        ]
        .join(","),
    );
    let order = |merged: MergedInjections| {
        let texts = merged.injections.iter().map(|of| {
            let text = of.content.joined_text();
            text.lines().nth(1).unwrap().to_owned()
        });
        texts.collect::<Vec<_>>()
    };
    let policy = HookPolicy::default();
    let forth = order(merge(vec![of("a", &one), of("b", &two)], &policy));
    let back = order(merge(vec![of("b", &two), of("a", &one)], &policy));
    assert_eq!(forth, ["a2", "b1", "b3", "b2", "a1"]);
    assert_eq!(forth, back);
}

/// The total is bounded: injections of the last servers in order are omitted and reported.
#[test]
fn all_injections_together_are_bounded() {
    let policy = HookPolicy {
        bytes: 100_000,
        ..HookPolicy::default()
    };
    let answer = result(&text("system", &"x".repeat(40_000)));
    let all = ["c", "a", "b"].map(|server| before(server, &answer).unwrap());
    let merged = merge(all.into(), &policy);
    let merged_ids: Vec<_> = merged
        .injections
        .iter()
        .map(|of| of.server.as_str())
        .collect();
    assert_eq!(
        (merged_ids, merged.over_limit),
        (vec!["a", "b"], vec![ServerId::new("c")])
    );
}

/// MCPL-093, MCPL-094: the answer of §15.2 is accepted of an enabled set only.
#[test]
fn an_answer_behind_an_inference_is_taken_of_an_enabled_set_only() {
    let answer = r#"{ "featureSet": "memory.retrieval", "modifiedResponse": "The API key is [REDACTED]...",
        "metadata": { "redactions": [{ "type": "api_key" }] } }"#;
    let accepted = evaluate_after(answer, &enabled).unwrap();
    assert_eq!(
        accepted.modified.as_deref(),
        Some("The API key is [REDACTED]...")
    );
    assert!(accepted.metadata.unwrap().contains("api_key"));
    assert_eq!(
        evaluate_after(r#"{"featureSet":"memory.retrieval"}"#, &enabled)
            .unwrap()
            .modified,
        None
    );
    for forged in ["memory.off", "other"] {
        let forged = answer.replace("memory.retrieval", forged);
        assert!(evaluate_after(&forged, &enabled).is_err());
    }
    let huge = format!(
        r#"{{"featureSet":"memory.retrieval","modifiedResponse":"{}"}}"#,
        "x".repeat(RESPONSE_MAX + 1)
    );
    assert!(evaluate_after(&huge, &enabled).is_err());
    assert!(
        evaluate_after(
            r#"{"featureSet":"memory.retrieval","modifiedResponse":7}"#,
            &enabled
        )
        .is_err()
    );
}
