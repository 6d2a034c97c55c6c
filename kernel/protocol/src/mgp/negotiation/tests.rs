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

fn active(offered: Features, declared: &Declaration) -> Active {
    match Negotiated::intersect(offered, Ok(Some(declared))) {
        Negotiated::Active(active) => active,
        Negotiated::Plain(why) => panic!("{why:?}"),
    }
}

/// MGP-016, MGP-024: three positions, and one in the stateless protocol; the answer has the position of the
/// request.
#[test]
fn declaration_is_found_at_the_position_of_its_protocol() {
    let declared = json!({"version": "0.2.0", "extensions": ["audit"],
        "permissions_required": ["shell", 7, "network"], "server_id": "mind", "trust_level": "core",
        "tool_creation": {"enabled": true}});
    let plain = json!({"tools": {}, "mgp": declared});
    let below = json!({"experimental": {"mgp": declared}});
    let modern = json!({"extensions": {"dev.cloto/mgp": declared}});
    let carrier = |caps, era| read(caps, era).unwrap().map(|declared| declared.carrier);
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
    for declared in [
        json!(true),
        json!({"enabled": "yes"}),
        json!({}),
        Value::Null,
    ] {
        let capabilities = json!({"mgp": {"version": "0.2.0", "tool_creation": declared}});
        let found = read(&capabilities, ProtocolFamily::Legacy)
            .unwrap()
            .unwrap();
        assert!(!found.tool_creation, "{declared}");
    }
    assert_eq!(found.trust_level.as_deref(), Some("core"));
}

/// MGP-017, MGP-020, MGP-027, MGP-271: a peer without a declaration receives no MGP.
#[test]
fn no_declaration_means_no_mgp() {
    for caps in [
        json!({}),
        json!({"mgp": null}),
        json!([]),
        json!({"experimental": 1}),
    ] {
        let declared = read(&caps, ProtocolFamily::Legacy).unwrap();
        let found = Negotiated::intersect(Features::ALL, Ok(declared.as_ref()));
        assert_eq!(found, Negotiated::Plain(None), "{caps}");
        assert!(found.features().is_empty() && !found.is_active());
    }
    assert_eq!(Declaration::parse(None, ProtocolFamily::Legacy), Ok(None));
}

/// MGP-018, MGP-021: the nine names of 0.2 and those of later drafts.
#[test]
fn offer_has_a_version_and_every_name() {
    let declared: serde_json::Value = serde_json::from_str(&render_offer(Features::ALL)).unwrap();
    assert_eq!(declared["version"], "0.2.0");
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
    let names: Vec<&str> = declared["extensions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_str().unwrap())
        .collect();
    assert_eq!(names[..9], nine);
    assert_eq!(names.len(), 15);
    // A partial offer does not use the name of the whole.
    let half = render_offer(Features::PERMISSIONS | Features::AUDIT);
    assert_eq!(
        half,
        r#"{"version":"0.2.0","extensions":["audit","permissions"]}"#
    );
}

/// MGP-022, MGP-026, MGP-276: only common features are active, whatever else is declared.
#[test]
fn only_the_intersection_is_active() {
    let declared = declared(
        "0.2.0",
        &["audit", "com.x.foo", "streaming", "observability", "audit"],
    );
    let found = active(Features::AUDIT | Features::ACCESS_CONTROL, &declared);
    assert_eq!(found.features, Features::AUDIT);
    assert_eq!(
        found.render_answer(Some("kernel"), None),
        r#"{"version":"0.2.0","extensions":["audit"],"server_id":"kernel"}"#
    );
    assert!(active(Features::NONE, &declared).features.is_empty());
}

/// MGP-023, MGP-028: the answer has the fields of §2.3, and a later draft's client is answered with its
/// names.
#[test]
fn peer_is_answered_in_its_own_vocabulary() {
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
        r#"{"version":"0.7.0","extensions":["permissions","streaming"],"server_id":"k","trust_level":"standard"}"#
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

/// MGP-029, MGP-274, A-02: the major version must match; a different minor version is only logged.
#[test]
fn only_the_major_version_must_match() {
    for (theirs, common, warned) in [
        ("0.1.0", "0.1.0", true),
        ("0.2.0", "0.2.0", false),
        ("0.2.9-draft", "0.2.0", false),
        ("0.3.0", "0.3.0", false),
        ("0.9.1", "0.7.0", true),
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

/// EXT-160: the kernel's answer has the version that the peer announces, up to the newest that is spoken; up to 0.2
/// it has 0.2.0, whatever the peer announces.
#[test]
fn newer_peer_is_answered_in_its_own_version() {
    for (theirs, answered, levels, rejections) in [
        ("0.1.0", "0.2.0", false, false),
        ("0.2.0", "0.2.0", false, false),
        ("0.2.7", "0.2.0", false, false),
        ("0.3.0", "0.3.0", false, false),
        ("0.5.2-draft", "0.5.2", false, false),
        ("0.6.0", "0.6.0", true, false),
        ("0.6.1-draft", "0.6.1", true, true),
        ("0.7.0", "0.7.0", true, true),
        ("0.8.0", "0.7.0", true, true),
    ] {
        let found = active(Features::ALL, &declared(theirs, &["audit"]));
        let answer: Value = serde_json::from_str(&found.render_answer(None, None)).unwrap();
        assert_eq!(answer["version"], answered, "{theirs}");
        let found = Negotiated::Active(found);
        assert_eq!(found.has_four_trust_levels(), levels, "{theirs}");
        assert_eq!(found.has_tool_rejections(), rejections, "{theirs}");
    }
    assert!(!PLAIN.has_tool_rejections() && !PLAIN.has_four_trust_levels());
}

/// MGP-016, MGP-028: a declaration is added at the position of its protocol, beside other members, and
/// removed again.
#[test]
fn declaration_is_added_at_the_position_of_its_protocol() {
    let put = |capabilities: &str, carrier| with_declaration(capabilities, carrier, r#"{"a":1}"#);
    assert_eq!(put("{}", Carrier::Plain), r#"{"mgp":{"a":1}}"#);
    let declared = put(r#"{"x":{}}"#, Carrier::Extension);
    assert_eq!(
        declared,
        r#"{"extensions":{"dev.cloto/mgp":{"a":1}},"x":{}}"#
    );
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

/// MGP-016: of several declarations of a legacy peer only the first position is read and answered, even if
/// it is invalid.
#[test]
fn first_position_of_several_declarations_counts() {
    let declared = |word: &str| json!({"version": "0.2.0", "extensions": [word]});
    let mut caps = json!({"extensions": {EXTENSION: declared("audit")},
        "experimental": {"mgp": declared("events")}, "mgp": declared("streaming")});
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

/// MGP-030: a malformed declaration counts as none, with a reason.
#[test]
fn malformed_declaration_means_no_mgp_with_a_reason() {
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

/// An invalid trust level is stored as unknown, so that it does not count as the default.
#[test]
fn invalid_trust_level_is_not_the_default() {
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

/// MGP-010: both codes have the same meaning.
#[test]
fn both_unsupported_codes_are_recognized() {
    assert!(is_unsupported_code(-32601) && is_unsupported_code(-32602));
    assert!(!is_unsupported_code(-32603) && !is_unsupported_code(1000));
}

proptest! {
    /// MGP-026: whatever is declared, only features named by both sides are active.
    #[test]
    fn only_offered_features_are_active(
        bits in 0_u16..(1 << 13),
        picked in proptest::collection::vec(0_usize..WORDS.len(), 0..20),
    ) {
        let words: Vec<&str> = picked.iter().map(|at| WORDS[*at].0).collect();
        let declared = declared("0.2.0", &words);
        let found = active(Features(bits), &declared);
        prop_assert!(Features(bits).contains(found.features));
        prop_assert!(declared.features.contains(found.features));
        prop_assert!(found.extension_names.iter().all(|word| words.contains(word)));
    }

    #[test]
    fn no_capabilities_panic_the_parser(text in "\\PC{0,80}") {
        let caps = json!({"mgp": {"version": text, "extensions": [text], "server_id": text}});
        let _ = read(&caps, ProtocolFamily::Legacy);
        if let Ok(raw) = RawValue::from_string(text) {
            let _ = Declaration::parse(Some(&raw), ProtocolFamily::Stateless);
        }
    }
}
