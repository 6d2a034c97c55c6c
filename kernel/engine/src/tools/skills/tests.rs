//! Entries of skills, and their digests.

use super::*;
use serde_json::json;

const FILE: &str = "skill://a/SKILL.md";

fn entry(text: &str) -> String {
    let file = json!({"uri": FILE, "digest": render_digest(text.as_bytes()), "size": text.len()});
    json!({"uri": FILE, "frontmatter": {"name": "a"}, "resources": [file]}).to_string()
}

fn read(text: &str) -> String {
    json!({"contents": [{"uri": FILE, "text": text}]}).to_string()
}

fn verify_at(
    skills: &Skills,
    server: &ServerId,
    uri: &str,
    result: &str,
) -> Result<(), (String, SkillMismatch)> {
    let entries = skills.server(server);
    entries.map_or(Ok(()), |entries| entries.verify(uri, result))
}

fn verify(skills: &Skills, uri: &str, result: &str) -> Result<(), (String, SkillMismatch)> {
    verify_at(skills, &ServerId::new("s"), uri, result)
}

fn record(skills: &mut Skills, server: &ServerId, entry: &str) -> bool {
    let (recorded, is_changed) = skills.record(server, &[entry], false);
    assert!(recorded[0].is_ok(), "{entry}");
    is_changed
}

/// EXT-044: a file that differs from the newest entry is rejected, by size or by digest; as text or as a blob.
#[test]
fn changed_files_are_rejected() {
    let (server, mut skills) = (ServerId::new("s"), Skills::default());
    assert_eq!(verify(&skills, FILE, &read("x")), Ok(()));
    record(&mut skills, &server, &entry("h\u{e9}llo"));
    assert_eq!(verify(&skills, FILE, &read("h\u{e9}llo")), Ok(()));
    let blob = json!({"contents": [{"uri": FILE, "blob": BASE64_STANDARD.encode("h\u{e9}llo")}]});
    assert_eq!(verify(&skills, FILE, &blob.to_string()), Ok(()));
    for (text, is_size) in [("h\u{e9}lla", false), ("hello", true), ("", true)] {
        let (uri, mismatch) = verify(&skills, FILE, &read(text)).unwrap_err();
        assert_eq!(uri, FILE);
        assert_eq!(matches!(mismatch, SkillMismatch::Size { .. }), is_size);
    }
    let other = ServerId::new("t");
    assert_eq!(verify_at(&skills, &other, FILE, &read("other")), Ok(()));
    let daily = r#"{"uri":"skill://d/SKILL.md","resources":"dynamic"}"#;
    record(&mut skills, &server, daily);
    record(&mut skills, &server, &entry("new"));
    assert_eq!(verify(&skills, FILE, &read("new")), Ok(()));
    // It stays refused, and under another name as well.
    let renamed = json!({"contents": [{"uri": "skill://b", "text": "any"}, {"text": "new"}]});
    for _ in 0..2 {
        assert!(verify(&skills, FILE, &read("any")).is_err());
        assert!(verify(&skills, FILE, &renamed.to_string()).is_err());
    }
    // A file that its skill's entry does not list is a change of the skill.
    let added = verify(
        &skills,
        "skill://a/more.md",
        &read("any").replace(FILE, "x"),
    );
    assert_eq!(added.unwrap_err().1, SkillMismatch::Unlisted);
    // The newest entry of the skill counts, also where it has no digests any more.
    let dynamic = r#"{"uri":"skill://a/SKILL.md","resources":"dynamic"}"#;
    assert!(record(&mut skills, &server, dynamic));
    assert!(!record(&mut skills, &server, dynamic), "the same entry");
    assert_eq!(verify(&skills, FILE, &read("any")), Ok(()));
}

/// EXT-048: a file belongs to the innermost skill; what is nested is known as such.
#[test]
fn files_belong_to_the_innermost_skill() {
    let (server, mut skills) = (ServerId::new("s"), Skills::default());
    let dynamic = |uri: &str| json!({"uri": uri, "resources": "dynamic"}).to_string();
    let (outer, inner) = (dynamic(FILE), dynamic("skill://a/b/c/SKILL.md"));
    skills.record(&server, &[&outer, &inner], true);
    let find = |file: &str| skills.find_skill(&server, file);
    assert_eq!(find("skill://a/b/x.md").as_deref(), Some(FILE));
    assert_eq!(
        find("skill://a/b/c/x").as_deref(),
        Some("skill://a/b/c/SKILL.md")
    );
    for outside in ["skill://a", "skill://ab/SKILL.md", "a", ""] {
        assert_eq!(find(outside), None, "{outside}");
    }
    let nested = skills
        .listed(&server)
        .into_iter()
        .map(|skill| skill.is_nested);
    assert_eq!(nested.collect::<Vec<_>>(), [false, true]);
}

#[test]
fn stored_entries_are_bounded() {
    let (server, mut skills) = (ServerId::new("s"), Skills::default());
    let file = |n: usize| json!({"uri": format!("skill://a/{n}"), "digest": "sha256:0", "size": 1});
    let mut rejected = 0;
    for chunk in 0..40 {
        let files: Vec<_> = (0..512).map(|n| file(chunk * 512 + n)).collect();
        let entry = json!({"uri": format!("skill://{chunk}/SKILL.md"), "resources": files});
        let (recorded, _) = skills.record(&server, &[&entry.to_string()], false);
        rejected += usize::from(recorded[0] == Err(BadSkill::TooMany));
    }
    assert_eq!((skills.0[&server].files, rejected), (FILES_MAX, 8));
    let long = json!({"uri": FILE, "x": "x".repeat(ENTRY_BYTES_MAX), "resources": "dynamic"});
    let (recorded, _) = skills.record(&server, &[&long.to_string()], false);
    assert_eq!(recorded, [Err(BadSkill::TooMany)]);
}

/// An entry without digests that does not say so is not loaded.
#[test]
fn invalid_entries_are_rejected() {
    let (server, mut skills) = (ServerId::new("s"), Skills::default());
    for entry in [
        r#"{"uri":"skill://a/SKILL.md"}"#,
        r#"{"uri":"skill://a/SKILL.md","resources":"other"}"#,
        r#"{"uri":"skill://a/SKILL.md","resources":[{"uri":"skill://a/SKILL.md"}]}"#,
        r#"{"uri":"skill://a/README.md","resources":"dynamic"}"#,
        "7",
    ] {
        let (recorded, is_changed) = skills.record(&server, &[entry], true);
        assert_eq!(
            (recorded, is_changed),
            (vec![Err(BadSkill::Invalid)], false),
            "{entry}"
        );
    }
    assert!(skills.all(&server).is_empty());
}

#[test]
fn uris_with_dot_segments_are_known() {
    for uri in [
        "skill://x/../a",
        "skill://x/%2e%2E/a",
        "skill://./a",
        "skill://a\\..\\b",
    ] {
        assert!(has_dot_segments(uri), "{uri}");
    }
    for uri in ["skill://a/.b", "skill://a/b..c", "skill://a/..."] {
        assert!(!has_dot_segments(uri), "{uri}");
    }
}

/// EXT-041: entries name the files as the merged view shows them; the rest stays to the byte.
#[test]
fn uris_of_entries_are_wrapped() {
    let server = ServerId::new("docs");
    let entry = r#"{"uri":"skill://a/SKILL.md","frontmatter":{"name":"a","n":1.0,"uri":"skill://x"},"resources":[{"uri":"skill://a/SKILL.md","digest":"d","size":1},{"uri":"github://o/r/b.md","digest":"e","size":2}]}"#;
    let wrapped = r#"{"uri":"skill://docs/a/SKILL.md","frontmatter":{"name":"a","n":1.0,"uri":"skill://x"},"resources":[{"uri":"skill://docs/a/SKILL.md","digest":"d","size":1},{"uri":"mcpk://docs/github://o/r/b.md","digest":"e","size":2}]}"#;
    assert_eq!(wrap_uris(&[entry], &server), [wrapped]);
    let dynamic = r#"{"uri":"skill://d/SKILL.md","resources":"dynamic"}"#;
    let wrapped = r#"{"uri":"skill://docs/d/SKILL.md","resources":"dynamic"}"#;
    assert_eq!(wrap_uris(&[dynamic], &server), [wrapped]);
}
