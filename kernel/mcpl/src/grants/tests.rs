use std::collections::BTreeMap;

use mgp_protocol::mcpl::ServerCapabilities;
use mgp_protocol::mcpl::error::{CAPABILITY_DENIED, NOT_ENABLED};

use super::*;
use crate::policy::{CapabilityPattern, SetPattern};

const MANIFEST: &str = r#"{"version":"0.5","pushEvents":true,
  "contextHooks":{"beforeInference":{"observe":true,"inject":true}},"inferenceLifecycle":true,"modelInfo":true,
  "featureSets":{
    "memory.retrieval":{"description":"r","uses":["contextHooks.beforeInference.observe","contextHooks.beforeInference.inject.afterUser"]},
    "memory.persona":{"description":"p","uses":["contextHooks.beforeInference.inject.system"]},
    "memory.turns":{"description":"t","uses":["inferenceLifecycle"]},
    "memory.infer":{"description":"i","uses":["inferenceRequest"]},
    "notes":{"description":"n","uses":["tools"]}}}"#;

fn rules(enable: &[&str], deny: &[&str]) -> McplServerRules {
    let sets = enable.iter().map(|text| SetPattern::parse(text));
    let paths = deny.iter().map(|text| CapabilityPattern::parse(text));
    McplServerRules {
        enable: sets.collect::<Result<_, _>>().unwrap(),
        deny: paths.collect::<Result<_, _>>().unwrap(),
        ..McplServerRules::default()
    }
}

fn sets(manifest: &str, rules: &McplServerRules) -> ServerSets {
    let declared = ServerCapabilities::parse_manifest(manifest).unwrap();
    ServerSets::new(&declared, Some(rules), None, &mut BTreeMap::new())
}

fn names(all: &BTreeSet<Capability>) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

/// NEW-013: a declared capability is granted only as a use of a set that the operator enabled.
#[test]
fn declared_capability_is_granted_only_through_an_enabled_set() {
    let none = sets(MANIFEST, &rules(&[], &[]));
    assert_eq!(names(&none.grant), ["tools"]);
    let some = sets(MANIFEST, &rules(&["memory.retrieval"], &[]));
    assert_eq!(
        names(&some.grant),
        [
            "tools",
            "contextHooks.beforeInference.observe",
            "contextHooks.beforeInference.inject.afterUser"
        ]
    );
    let update = some.grant_update();
    assert!(
        update
            .effective_capabilities
            .is_disjoint(&update.denied_capabilities)
    );
    assert!(
        update
            .denied_capabilities
            .contains(&Capability::InjectSystem)
    );
    assert!(!some.is_granted(Capability::InjectSystem));
    assert!(some.is_granted(Capability::BeforeInference));
    assert_eq!(update.enabled, ["memory.retrieval", "notes"]);
}

/// NEW-014: what the operator denies disables each set that uses it, even one that is enabled by name.
#[test]
fn denied_capability_disables_each_set_that_uses_it() {
    let denied = rules(&["*"], &["contextHooks.*.inject.system"]);
    let sets = sets(MANIFEST, &denied);
    let persona = &sets.sets["memory.persona"];
    assert!(!persona.enabled);
    assert_eq!(persona.reason, SetReason::Denied(Capability::InjectSystem));
    assert!(sets.sets["memory.retrieval"].enabled);
    // Not declared by the server.
    assert!(!sets.sets["memory.infer"].enabled);
    assert!(!sets.grant.contains(&Capability::InferenceRequest));
}

/// NEW-015: each method needs its capability, whatever set a message names; words of another version do not exist.
#[test]
fn methods_need_their_capability_and_their_version() {
    let some = sets(MANIFEST, &rules(&["memory.turns"], &[]));
    let code = |method: &str| some.authorize(method).map_err(|error| error.code);
    assert_eq!(code("inference/lifecycle"), Ok(()));
    for method in [
        "push/event",
        "model/info",
        "inference/request",
        "context/beforeInference",
        "channels/register",
        "channels/list",
        "channels/incoming",
        "channels/open",
        "channels/publish",
        "channels/outgoing/chunk",
        "channels/outgoing/complete",
    ] {
        assert_eq!(code(method), Err(CAPABILITY_DENIED), "{method}");
    }
    for method in [
        "scope/elevate",
        "featureSets/changed",
        "context/afterInference",
    ] {
        assert_eq!(code(method), Err(-32601), "{method}");
    }
    assert_eq!(code("mcpl/manifestChanged"), Ok(()), "needs no capability");
    let older = sets(&MANIFEST.replace("0.5", "0.4"), &rules(&[], &[]));
    assert!(older.authorize("scope/elevate").is_ok() && older.authorize("push/event").is_ok());
    assert_eq!(
        older.authorize("inference/lifecycle").unwrap_err().code,
        -32601
    );
    assert_eq!(
        older.authorize("mcpl/manifestChanged").unwrap_err().code,
        -32601
    );
}

/// NEW-016: before the receipt only tools are in force; a reduction is in force at once, an expansion with its receipt.
#[test]
fn grant_is_in_force_once_the_server_accepted_it() {
    let wide = sets(MANIFEST, &rules(&["*"], &[]));
    let before = wide.limit_to_accepted(None);
    assert_eq!(names(&before.grant), ["tools"]);
    assert!(before.sets["notes"].enabled, "tools are MCP's own");
    let error = before.find_usable_set("memory.turns", Capability::InferenceLifecycle);
    assert_eq!(error.unwrap_err().code, CAPABILITY_DENIED);
    let accepted = wide.grant_update();
    assert_eq!(wide.limit_to_accepted(Some(&accepted)), wide);
    let narrow = sets(MANIFEST, &rules(&["memory.turns"], &[]));
    assert_eq!(narrow.limit_to_accepted(Some(&accepted)), narrow);
    let still = wide.limit_to_accepted(Some(&narrow.grant_update()));
    assert_eq!(names(&still.grant), ["tools", "inferenceLifecycle"]);
    assert_eq!(still.sets["memory.retrieval"].reason, SetReason::Unanswered);
}

/// NEW-017: errors of 0.5 do not say whether asking would help.
#[test]
fn disabled_set_is_rejected_without_a_hint() {
    let some = sets(MANIFEST, &rules(&["memory.persona"], &[]));
    let error = some.find_usable_set("memory.persona", Capability::InjectSystem);
    assert!(error.is_ok());
    let two = MANIFEST.replace(
        r#""notes""#,
        r#""other":{"description":"o","uses":["contextHooks.beforeInference.inject.system"]},"notes""#,
    );
    let some = sets(&two, &rules(&["memory.persona"], &[]));
    let error = some
        .find_usable_set("other", Capability::InjectSystem)
        .unwrap_err();
    assert_eq!(error.code, NOT_ENABLED);
    assert_eq!(error.data.as_deref(), Some(r#"{"featureSet":"other"}"#));
    let error = some
        .find_usable_set("memory.persona", Capability::Tools)
        .unwrap_err();
    assert_eq!(error.code, NOT_ENABLED);
    assert!(error.message.contains("lacks tools"), "{}", error.message);
}

/// NEW-018: a changed manifest revokes at once what it no longer declares, and grants nothing that it newly declares.
#[test]
fn changed_manifest_revokes_at_once_and_grants_nothing() {
    let enabled = rules(&["*"], &[]);
    let before = sets(MANIFEST, &enabled);
    let after = MANIFEST
        .replace(r#""inferenceLifecycle":true,"#, "")
        .replace(r#""modelInfo":true"#, r#""inferenceRequest":true"#);
    let after = sets(&after, &rules(&["memory.retrieval", "memory.turns"], &[]));
    let impacts = ServerSets::impacts_of_change(&before, &after);
    let impacts: Vec<_> = impacts
        .iter()
        .map(|one| (one.impact, one.subject.as_str(), one.disposition))
        .collect();
    assert_eq!(
        impacts,
        [
            ("capability-revoked", "inferenceLifecycle", "applied"),
            (
                "capability-revoked",
                "contextHooks.beforeInference.inject.system",
                "applied"
            ),
            (
                "capability-expansion-pending",
                "inferenceRequest",
                "decision-needed"
            ),
            (
                "capability-expansion-pending",
                "inferenceRequest.streaming",
                "decision-needed"
            ),
            ("feature-degraded", "memory.persona", "applied"),
            ("feature-degraded", "memory.turns", "applied"),
        ]
    );
}
