use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

type Read = Result<Option<Declaration>, DeclarationError>;

fn read(capabilities: &serde_json::Value, era: ProtocolFamily) -> Read {
    let raw = RawValue::from_string(capabilities.to_string()).unwrap();
    Declaration::parse(Some(&raw), era)
}

fn declared(version: &str, extensions: &[&str]) -> Declaration {
    let capabilities = json!({"mgp": {"version": version, "extensions": extensions}});
    read(&capabilities, ProtocolFamily::Legacy)
        .unwrap()
        .unwrap()
}

fn active(offered: Features, said: &Declaration) -> Active {
    match Negotiated::intersect(offered, Ok(Some(said))) {
        Negotiated::Active(active) => active,
        Negotiated::Plain(why) => panic!("{why:?}"),
    }
}

/// MGP-016, MGP-024: three places, and of the modern era one; the answer goes where the question stood.
#[test]
fn a_declaration_is_found_where_its_era_has_it() {
    let said = json!({"version": "0.2.0", "extensions": ["audit"],
        "permissions_required": ["shell", 7, "network"], "server_id": "mind", "trust_level": "core",
        "tool_creation": {"enabled": true}});
    let plain = json!({"tools": {}, "mgp": said});
    let below = json!({"experimental": {"mgp": said}});
    let modern = json!({"extensions": {"dev.cloto/mgp": said}});
    let carrier = |caps, era| read(caps, era).unwrap().map(|said| said.carrier);
    assert_eq!(
        carrier(&plain, ProtocolFamily::Legacy),
        Some(Carrier::Plain)
    );
    assert_eq!(
        carrier(&below, ProtocolFamily::Legacy),
        Some(Carrier::Experimental)
    );
    assert_eq!(
        carrier(&modern, ProtocolFamily::Stateless),
        Some(Carrier::Extension)
    );
    assert_eq!(carrier(&plain, ProtocolFamily::Stateless), None);
    assert_eq!(carrier(&below, ProtocolFamily::Stateless), None);
    assert_eq!(
        carrier(&modern, ProtocolFamily::Legacy),
        Some(Carrier::Extension)
    );
    assert_eq!(Carrier::Extension.path(), ["extensions", EXTENSION]);
    let found = read(&modern, ProtocolFamily::Stateless).unwrap().unwrap();
    assert_eq!(found.permissions_required, ["shell", "network"]);
    assert_eq!(found.server_id.as_deref(), Some("mind"));
    assert!(found.tool_creation);
    for said in [
        json!(true),
        json!({"enabled": "yes"}),
        json!({}),
        Value::Null,
    ] {
        let capabilities = json!({"mgp": {"version": "0.2.0", "tool_creation": said}});
        let found = read(&capabilities, ProtocolFamily::Legacy)
            .unwrap()
            .unwrap();
        assert!(!found.tool_creation, "{said}");
    }
    assert_eq!(found.trust_level.as_deref(), Some("core"));
}

/// MGP-017, MGP-020, MGP-027, MGP-271: who says nothing of MGP hears nothing of it.
#[test]
fn without_a_declaration_it_is_plain_mcp() {
    for caps in [
        json!({}),
        json!({"mgp": null}),
        json!([]),
        json!({"experimental": 1}),
    ] {
        let said = read(&caps, ProtocolFamily::Legacy).unwrap();
        let found = Negotiated::intersect(Features::ALL, Ok(said.as_ref()));
        assert_eq!(found, Negotiated::Plain(None), "{caps}");
        assert!(found.features().is_empty() && !found.is_active());
    }
    assert_eq!(Declaration::parse(None, ProtocolFamily::Legacy), Ok(None));
}

/// MGP-018, MGP-021: the nine names of 0.2 and those of later drafts.
#[test]
fn the_offer_has_a_version_and_every_name() {
    let said: serde_json::Value = serde_json::from_str(&render_offer(Features::ALL)).unwrap();
    assert_eq!(said["version"], "0.2.0");
    let nine = [
        "security",
        "access_control",
        "audit",
        "code_safety",
        "lifecycle",
        "streaming",
        "bidirectional",
        "discovery",
        "tool_discovery",
    ];
    let names: Vec<&str> = said["extensions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_str().unwrap())
        .collect();
    assert_eq!(names[..9], nine);
    assert_eq!(names.len(), 15);
    // What is not offered whole is not offered under the name of the whole.
    let half = render_offer(Features::PERMISSIONS | Features::AUDIT);
    assert_eq!(
        half,
        r#"{"version":"0.2.0","extensions":["audit","permissions"]}"#
    );
}

/// MGP-022, MGP-026, MGP-276: only what both know is active, whatever else is named.
#[test]
fn only_the_intersection_is_active() {
    let said = declared(
        "0.2.0",
        &["audit", "com.x.foo", "streaming", "observability", "audit"],
    );
    let found = active(Features::AUDIT | Features::ACCESS_CONTROL, &said);
    assert_eq!(found.features, Features::AUDIT);
    assert_eq!(
        found.render_answer(Some("kernel"), None),
        r#"{"version":"0.2.0","extensions":["audit"],"server_id":"kernel"}"#
    );
    assert!(active(Features::NONE, &said).features.is_empty());
}

/// MGP-023, MGP-028: the answer has the fields of §2.3, and a later draft's client is answered in
/// its words.
#[test]
fn a_peer_is_answered_in_its_own_words() {
    let later = active(
        Features::ALL,
        &declared("0.8.0", &["permissions", "streaming"]),
    );
    assert_eq!(
        later.features,
        Features::PERMISSIONS | Features::STREAMING,
        "progress is negotiated apart in later drafts"
    );
    assert_eq!(
        later.render_answer(Some("k"), Some("standard")),
        r#"{"version":"0.2.0","extensions":["permissions","streaming"],"server_id":"k","trust_level":"standard"}"#
    );
    assert!(later.has_draft_permission_methods());
    let early = active(
        Features::ALL,
        &declared("0.2.0", &["security", "streaming"]),
    );
    assert_eq!(
        early.features,
        Features::PERMISSIONS
            | Features::TOOL_SECURITY
            | Features::STREAMING
            | Features::PROGRESS
            | Features::ERROR_HANDLING,
        "the codes are understood in 0.2, and a name of their own later"
    );
}

/// MGP-029, MGP-274, A-02: the major must match; a minor is worth a warning and nothing more.
#[test]
fn a_version_is_judged_by_its_major() {
    for (theirs, common, warned) in [
        ("0.1.0", "0.1.0", true),
        ("0.2.0", "0.2.0", false),
        ("0.2.9-draft", "0.2.0", false),
        ("0.3.0", "0.2.0", true),
    ] {
        let found = active(Features::ALL, &declared(theirs, &["audit"]));
        assert_eq!(found.version.to_string(), common);
        assert_eq!(found.minor_differs, warned, "{theirs}");
        assert_eq!(found.features, Features::AUDIT | Features::ERROR_HANDLING);
    }
    for other in ["1.0.0", "9.0.0"] {
        let caps = json!({"mgp": {"version": other, "extensions": ["audit"]}});
        let why = read(&caps, ProtocolFamily::Legacy).unwrap_err();
        assert!(why.to_string().contains(other), "{why}");
        let found = Negotiated::intersect(Features::ALL, Err(why.clone()));
        assert_eq!(found, Negotiated::Plain(Some(why)));
    }
}

/// MGP-016, MGP-028: a declaration goes where its era has it, beside what stands there, and away again.
#[test]
fn a_declaration_is_put_where_its_era_looks_for_it() {
    let put = |capabilities: &str, carrier| with_declaration(capabilities, carrier, r#"{"a":1}"#);
    assert_eq!(put("{}", Carrier::Plain), r#"{"mgp":{"a":1}}"#);
    let said = put(r#"{"x":{}}"#, Carrier::Extension);
    assert_eq!(said, r#"{"extensions":{"dev.cloto/mgp":{"a":1}},"x":{}}"#);
    let beside = put(r#"{"extensions":{"y":{}}}"#, Carrier::Extension);
    assert_eq!(beside, r#"{"extensions":{"dev.cloto/mgp":{"a":1},"y":{}}}"#);
    let instead = put(r#"{"extensions":{"dev.cloto/mgp":7}}"#, Carrier::Extension);
    assert_eq!(instead, r#"{"extensions":{"dev.cloto/mgp":{"a":1}}}"#);
    assert_eq!(without_declaration(&beside), r#"{"extensions":{"y":{}}}"#);
    assert_eq!(without_declaration(r#"{"x":1}"#), r#"{"x":1}"#);
    let offered: serde_json::Value =
        serde_json::from_str(&with_offer("{}", ProtocolFamily::Legacy, Features::AUDIT)).unwrap();
    assert_eq!(
        offered["mgp"],
        json!({"version": "0.2.0", "extensions": ["audit"]})
    );
    assert_eq!(offered["experimental"]["mgp"], offered["mgp"]);
    assert_eq!(offered["extensions"][EXTENSION], offered["mgp"]);
}

/// MGP-016: a legacy peer that declares itself in several places is read, and answered, in one of them:
/// the first, even if it says nothing that can be followed.
#[test]
fn of_several_declarations_the_first_place_counts() {
    let said = |word: &str| json!({"version": "0.2.0", "extensions": [word]});
    let mut caps = json!({"extensions": {EXTENSION: said("audit")},
        "experimental": {"mgp": said("events")}, "mgp": said("streaming")});
    let found = |caps: &Value, era| {
        let found = read(caps, era).unwrap().unwrap();
        (found.carrier, found.extension_names[0])
    };
    assert_eq!(
        found(&caps, ProtocolFamily::Stateless),
        (Carrier::Extension, "audit")
    );
    assert_eq!(
        found(&caps, ProtocolFamily::Legacy),
        (Carrier::Plain, "streaming")
    );
    caps["mgp"] = Value::Null;
    assert_eq!(
        found(&caps, ProtocolFamily::Legacy),
        (Carrier::Experimental, "events")
    );
    caps["experimental"] = json!({"other": 1});
    assert_eq!(
        found(&caps, ProtocolFamily::Legacy),
        (Carrier::Extension, "audit")
    );
    caps["mgp"] = json!(true);
    assert_eq!(
        read(&caps, ProtocolFamily::Legacy),
        Err(DeclarationError::NotAnObject)
    );
}

/// MGP-030: a malformed declaration is plain MCP with a reason.
#[test]
fn what_is_malformed_is_plain_mcp_with_a_reason() {
    for bad in [
        json!({"version": "banana", "extensions": []}),
        json!({"version": "0.2", "extensions": []}),
        json!({"version": "0.+2.0", "extensions": []}),
        json!({"version": 2, "extensions": []}),
        json!({"extensions": []}),
        json!({"version": "0.2.0", "extensions": "audit"}),
        json!(true),
        json!([]),
    ] {
        let caps = json!({"mgp": bad});
        assert!(read(&caps, ProtocolFamily::Legacy).is_err(), "{bad}");
    }
}

/// Trust of another form is kept as something unknown, so that it is not taken for the default.
#[test]
fn a_trust_level_that_is_no_text_is_not_none() {
    let trust = |value: serde_json::Value| {
        let caps = json!({"mgp": {"version": "0.2.0", "extensions": [], "trust_level": value}});
        read(&caps, ProtocolFamily::Legacy)
            .unwrap()
            .unwrap()
            .trust_level
    };
    assert_eq!(trust(json!(1)).as_deref(), Some("?"));
    assert_eq!(trust(json!(null)), None);
}

/// MGP-010: both codes mean the same.
#[test]
fn two_codes_mean_not_supported() {
    assert!(is_unsupported_code(-32601) && is_unsupported_code(-32602));
    assert!(!is_unsupported_code(-32603) && !is_unsupported_code(1000));
}

proptest! {
    /// MGP-026: whatever is declared, nothing is active that one side did not name.
    #[test]
    fn nothing_is_active_that_was_not_offered(
        bits in 0_u16..(1 << 13),
        picked in proptest::collection::vec(0_usize..WORDS.len(), 0..20),
    ) {
        let words: Vec<&str> = picked.iter().map(|at| WORDS[*at].0).collect();
        let said = declared("0.2.0", &words);
        let found = active(Features(bits), &said);
        prop_assert!(Features(bits).contains(found.features));
        prop_assert!(said.features.contains(found.features));
        prop_assert!(found.extension_names.iter().all(|word| words.contains(word)));
    }

    #[test]
    fn no_capabilities_break_the_reader(text in "\\PC{0,80}") {
        let caps = json!({"mgp": {"version": text, "extensions": [text], "server_id": text}});
        let _ = read(&caps, ProtocolFamily::Legacy);
        if let Ok(raw) = RawValue::from_string(text) {
            let _ = Declaration::parse(Some(&raw), ProtocolFamily::Stateless);
        }
    }
}
