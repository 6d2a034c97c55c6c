use serde_json::json;

use super::*;

/// The published vectors (`tests/corpus/mcpl_manifest`).
const VECTORS: &str =
    include_str!("../../../../tests/corpus/mcpl_manifest/manifest-digest-vectors.json");

fn vectors(member: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(VECTORS).unwrap();
    all[member].as_array().unwrap().clone()
}

/// NEW-040: each published vector has its canonical text, its hash and its revision, and those without a digest have
/// none.
#[test]
fn published_vectors_are_reproduced() {
    let (mut with, mut without) = (0, 0);
    for vector in vectors("vectors") {
        let (name, input) = (vector["name"].as_str().unwrap(), &vector["input"]);
        if let Some(expected) = vector["digest"].as_str() {
            let canonical = canonicalize(input).unwrap();
            assert_eq!(
                canonical,
                vector["canonicalJson"].as_str().unwrap(),
                "{name}"
            );
            assert_eq!(digest(input).as_deref(), Ok(expected), "{name}");
            with += 1;
        } else {
            assert_eq!(vector["expectError"], "identifier_charset", "{name}");
            assert!(digest(input).is_err(), "{name}");
            without += 1;
        }
    }
    assert!(with >= 15 && without >= 5, "{with} {without}");
    let sorts = vectors("sortVectors");
    assert!(sorts.len() >= 4);
    for vector in sorts {
        let mut texts: Vec<String> = serde_json::from_value(vector["input"].clone()).unwrap();
        sort_set(&mut texts);
        assert_eq!(json!(texts), vector["sorted"], "{}", vector["name"]);
    }
}

/// NEW-041: a revision is compared with the digest, and a manifest without one is in order.
#[test]
fn revision_is_checked_against_the_digest() {
    let right = "sha256:_YZTS0h1tqTAMZI6eElCszSQE2WNx3xhAhmgUvNI9H4";
    let manifest = |revision: &str| {
        format!(
            r#"{{"version":"0.5","pushEvents":true,"contextHooks":{{"beforeInference":true}},"inferenceLifecycle":true,
            "channels":{{"register":true,"publish":true,"incoming":true}},{revision}"featureSets":{{"demo.messaging":
            {{"description":"Demo","uses":["channels.publish","channels.incoming","pushEvents","tools"]}}}}}}"#
        )
    };
    let with = |revision: &str| manifest(&format!(r#""revision":"{revision}","#));
    assert_eq!(check_revision(&with(right)), Ok(true));
    assert_eq!(check_revision(&with("sha256:0")), Ok(false));
    assert_eq!(check_revision(&manifest("")), Ok(true));
    assert!(check_revision(r#"{"version":"0.5","revision":"x","é":true}"#).is_err());
}

/// NEW-042: an absent and an empty member are different, and a changed ontology is a domain of its own.
#[test]
fn domains_are_those_that_differ() {
    let version = json!({"version": "0.5"});
    let empty = json!({"version": "0.5", "featureSets": {}});
    assert_eq!(
        changed_domains(&version, &empty),
        ["featureSets", "tagOntology"]
    );
    let push = json!({"version": "0.5", "pushEvents": false});
    assert_eq!(changed_domains(&version, &push), ["capabilities"]);
    let revised = json!({"version": "0.6", "revision": "x"});
    assert!(changed_domains(&version, &revised).is_empty());
    let set =
        |ontology: Value| json!({"featureSets": {"a": {"uses": [], "tagOntology": ontology}}});
    assert_eq!(
        changed_domains(&set(json!({})), &set(json!({"open": true}))),
        ["tagOntology"]
    );
}
