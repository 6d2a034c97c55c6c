//! What a node that means harm can tell, and what becomes of it.

use super::*;
use mgp_protocol::federation::tool_index::{IndexChange, IndexRoot, RecordBytes, ToolVector};

/// A valid page with these entries.
fn page(pull: &PullIndex, entries: Vec<(&str, Option<&str>, Vec<u8>)>) -> IndexPage {
    let keyed = entries.iter().map(|(server, tool, record)| {
        let server = ServerId::new(*server);
        let key = IndexKey {
            server,
            tool: tool.map(Into::into),
        };
        let leaf = entry_hash(&key, record);
        (key, leaf)
    });
    let keyed: BTreeMap<_, _> = keyed.collect();
    let digest = IndexDigest {
        epoch: 9,
        version: 1 + entries.len() as u64,
        root: root_hash(keyed.values()),
    };
    let changes = entries
        .into_iter()
        .map(|(server, tool, record)| IndexChange {
            server: server.to_owned(),
            tool: tool.map(str::to_owned),
            record: Some(RecordBytes(record)),
        });
    IndexPage {
        number: pull.number,
        epoch: 9,
        after: 0,
        upto: digest.version,
        digest,
        changes: changes.collect(),
    }
}

fn asked(held: &mut RemoteIndex) -> PullIndex {
    let root = IndexRoot([9; 32]);
    let digest = IndexDigest {
        epoch: 9,
        version: 1_000_000,
        root,
    };
    pulled(&held.handle_digest(digest, at(0))).unwrap()
}

fn taken(entries: Vec<(&str, Option<&str>, Vec<u8>)>) -> RemoteIndex {
    let mut held = RemoteIndex::default();
    let page = page(&asked(&mut held), entries);
    held.handle_page(page, REMOTE_BYTES_MAX, at(0));
    held
}

fn defined(name: &str, definition: &str) -> Vec<u8> {
    let schemas = hash_schemas(definition).unwrap_or(IndexRoot([0; 32]));
    let definition = definition.to_owned();
    let record = ToolRecord {
        definition,
        schemas,
        idempotent: false,
        vector: None,
    };
    assert!(!name.is_empty());
    record.encode()
}

/// PRJ-012: stored reasons quote the entry, so they are truncated.
#[test]
fn a_reported_refusal_is_short() {
    let long = 100_000_u32;
    let state = [b"\x81\xa5state\xdb".as_slice(), &long.to_be_bytes()].concat();
    let state = [state, vec![b'q'; long as usize]].concat();
    let held = taken(vec![("files", None, state)]);
    let (_, why) = held.rejected_entries().next().unwrap();
    let why = why.to_string();
    assert!(why.contains("qqq") && why.len() < 300, "{}", why.len());
}

/// PRJ-012: pulls terminate.
#[test]
fn an_empty_page_is_the_last_one() {
    let mut held = RemoteIndex::default();
    let pull = asked(&mut held);
    let mut empty = page(&pull, Vec::new());
    empty.digest.version = u64::MAX;
    held.handle_page(empty, REMOTE_BYTES_MAX, at(0));
    assert_eq!(held.error(), Some(IndexError::OutOfOrder));
}

/// PRJ-012: both sides can read the reason.
#[test]
fn a_deceptive_entry_is_rejected_without_affecting_others() {
    let good = |name: &str| tool(name, "words").encode();
    let two = r#"{"name":"twice","name":"other","inputSchema":{}}"#;
    let alike = r#"{"name":"alike","inputschema":{},"inputSchema":{}}"#;
    let bidi = "{\"name\":\"bidi\",\"description\":\"a\u{202e}b\",\"inputSchema\":{}}";
    let escaped = r#"{"name":"escaped","description":"a\u202Eb","inputSchema":{}}"#;
    let tags = "{\"name\":\"tags\",\"description\":\"a\u{e0041}b\",\"inputSchema\":{}}";
    let terminal = r#"{"name":"terminal","description":"\u001b[2J","inputSchema":{}}"#;
    let held = taken(vec![
        ("files", None, server_record(Status::Connected).encode()),
        ("files", Some("good"), good("good")),
        ("files", Some("größe"), good("größe")),
        ("files", Some("an\u{200b}d"), good("an\u{200b}d")),
        ("files", Some("line\nend"), good("line\nend")),
        ("files", Some("another"), good("other")),
        ("files", Some("twice"), defined("twice", two)),
        ("files", Some("alike"), defined("alike", alike)),
        ("files", Some("bidi"), defined("bidi", bidi)),
        ("files", Some("escaped"), defined("escaped", escaped)),
        ("files", Some("tags"), defined("tags", tags)),
        ("files", Some("terminal"), defined("terminal", terminal)),
        ("files", Some("noise"), vec![0xc1, 2, 3]),
        (
            "f\u{456}les",
            None,
            server_record(Status::Connected).encode(),
        ),
        (
            "other/files",
            None,
            server_record(Status::Connected).encode(),
        ),
    ]);
    assert_eq!(names(&held), ["files", "files:good", "files:größe"]);
    assert!(held.is_current(), "{:?}", held.error());
    let refused: Vec<_> = held
        .rejected_entries()
        .map(|(key, why)| format!("{key}: {why}"))
        .collect();
    assert_eq!(refused.len(), 12, "{refused:#?}");
    for said in [
        "U+202E",
        "U+200B",
        "names another tool",
        "cannot be read",
        "'/'",
        "U+0456",
    ] {
        assert!(
            refused.iter().any(|why| why.contains(said)),
            "{said}: {refused:#?}"
        );
    }
}

#[test]
fn a_rejected_entry_and_its_repair_are_reported_once() {
    let mut held = RemoteIndex::default();
    let pull = asked(&mut held);
    let bad = ("files", Some("a\u{202e}"), tool("a", "").encode());
    let effects = held.handle_page(page(&pull, vec![bad]), REMOTE_BYTES_MAX, at(0));
    let reports = |effects: &[IndexEffect]| -> Vec<_> {
        let all = effects.iter().filter_map(|effect| match effect {
            IndexEffect::Report(report) => Some(report.clone()),
            IndexEffect::Set(_) | IndexEffect::Removed(_) | IndexEffect::Pull(_) => None,
        });
        all.collect()
    };
    let reported = reports(&effects);
    assert_eq!((reported.len(), reported[0].refused), (1, 1));
    assert_eq!(reported[0].examples[0].entry, "files:a\\u{202e}");
    let pull = asked(&mut held);
    let effects = held.handle_page(page(&pull, Vec::new()), REMOTE_BYTES_MAX, at(0));
    assert_eq!(reports(&effects), [Default::default()]);
    let pull = asked(&mut held);
    let effects = held.handle_page(page(&pull, Vec::new()), REMOTE_BYTES_MAX, at(0));
    assert!(reports(&effects).is_empty());
}

/// FED-031: a longer vector would rank before every local tool.
#[test]
fn a_vector_that_is_not_normalized_is_rejected() {
    let with = |unit: f32, numbers: Vec<u8>, model: &str| {
        let vector = ToolVector {
            model: model.to_owned(),
            unit,
            numbers,
        };
        let record = ToolRecord {
            vector: Some(vector),
            ..tool("a", "")
        };
        taken(vec![("files", Some("a"), record.encode())])
            .rejected_entries()
            .count()
            == 0
    };
    assert!(with(1.0 / 127.0, vec![127, 0], "m"));
    assert!(with(1.0 / 127.0, vec![129, 0], "m"));
    assert!(!with(1.0, vec![127, 0], "m"));
    assert!(!with(f32::NAN, vec![127], "m"));
    assert!(!with(f32::INFINITY, vec![0], "m"));
    assert!(!with(-1.0 / 127.0, vec![127], "m"));
    assert!(!with(1.0 / 127.0, vec![127], ""));
    assert!(!with(1.0, Vec::new(), "m"));
    assert!(!with(1.0, vec![1; 5_000], "m"));
}

#[test]
fn a_schema_with_a_wrong_hash_is_rejected() {
    let record = ToolRecord {
        schemas: IndexRoot([7; 32]),
        ..tool("a", "")
    };
    let held = taken(vec![("files", Some("a"), record.encode())]);
    assert_eq!(
        held.rejected_entries().next().unwrap().1,
        &EntryError::SchemaMismatch
    );
    let spaced = hash_schemas(r#"{"name":"a","inputSchema":{"type": "object"}}"#);
    assert_ne!(
        spaced,
        hash_schemas(r#"{"name":"a","inputSchema":{"type":"object"}}"#)
    );
    let moved = hash_schemas(r#"{"inputSchema":{"type": "object"},"name":"b"}"#);
    assert_eq!(spaced, moved);
}

/// The copy stays, and the next pull backs off.
#[test]
fn an_index_beyond_the_limits_is_an_error() {
    let names: Vec<String> = (0..=SERVERS_MAX).map(|n| format!("s{n}")).collect();
    let record = server_record(Status::Connected).encode();
    let all = names
        .iter()
        .map(|name| (name.as_str(), None, record.clone()));
    let held = taken(all.collect());
    assert_eq!(held.error(), Some(IndexError::TooManyServers));
    assert_eq!(held.entries().count(), SERVERS_MAX);
    assert!(!held.is_current() && held.next_timeout().is_some());

    let names: Vec<String> = (0..=TOOLS_MAX).map(|n| format!("t{n}")).collect();
    let all = names
        .iter()
        .map(|name| ("files", Some(name.as_str()), vec![0]));
    let held = taken(all.collect());
    assert_eq!(held.error(), Some(IndexError::TooManyTools));
    assert_eq!(
        (held.rejected_entries().count(), held.bytes()),
        (TOOLS_MAX, 0)
    );

    let mut held = RemoteIndex::default();
    let page = page(
        &asked(&mut held),
        vec![("files", Some("a"), tool("a", "").encode())],
    );
    held.handle_page(page, 10, at(0));
    assert_eq!(
        held.rejected_entries().next().unwrap().1,
        &EntryError::KernelFull
    );
}

#[test]
fn pages_out_of_order_are_rejected() {
    type Spoil = fn(&mut IndexPage);
    let spoils: [(Spoil, IndexError); 6] = [
        (|page| page.epoch = 8, IndexError::OutOfOrder),
        (|page| page.after = 1, IndexError::OutOfOrder),
        (
            |page| page.upto = page.digest.version + 1,
            IndexError::OutOfOrder,
        ),
        (|page| page.upto = 0, IndexError::OutOfOrder),
        (
            |page| page.digest.root = IndexRoot([1; 32]),
            IndexError::RootMismatch,
        ),
        (
            |page| page.changes[0].server = "x".repeat(49),
            IndexError::BadName,
        ),
    ];
    for (n, (spoil, broken)) in spoils.into_iter().enumerate() {
        let mut held = RemoteIndex::default();
        let pull = asked(&mut held);
        let mut page = page(&pull, vec![("files", Some("a"), tool("a", "").encode())]);
        spoil(&mut page);
        let effects = held.handle_page(page, REMOTE_BYTES_MAX, at(0));
        assert_eq!(held.error(), Some(broken), "{n}");
        assert!(pulled(&effects).is_none(), "{n}");
        let again = pulled(&held.handle_timeout(at(1_000))).unwrap();
        assert_eq!(again.after, 0, "{n}");
    }
    // A page nobody asked for is none.
    let mut held = RemoteIndex::default();
    let pull = PullIndex {
        number: 1,
        epoch: 9,
        after: 0,
        root: None,
    };
    let unasked = page(&pull, vec![("files", Some("a"), tool("a", "").encode())]);
    assert!(
        held.handle_page(unasked, REMOTE_BYTES_MAX, at(0))
            .is_empty()
    );
    assert!(names(&held).is_empty());
}

/// Such pages could continue forever.
#[test]
fn an_empty_page_that_is_not_the_last_backs_off() {
    let mut held = RemoteIndex::default();
    let pull = asked(&mut held);
    let mut page = page(&pull, Vec::new());
    (page.after, page.upto, page.digest.version) = (pull.after, 1, u64::MAX);
    let effects = held.handle_page(page, REMOTE_BYTES_MAX, at(0));
    assert_eq!(pulled(&effects), None);
    let next = pulled(&held.handle_timeout(at(1_000))).unwrap();
    assert_eq!(next.after, 0);
}
