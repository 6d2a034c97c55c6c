mod model;
mod refusals;
mod simulation;

use std::collections::BTreeMap;

use mgp_protocol::federation::tool_index::{
    IndexDigest, IndexPage, PullFailure, PullIndex, ServerRecord, ToolRecord,
};
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::discovery::Status;

use super::*;
use crate::clock::MonotonicTime;
use crate::cluster::shares::{Share, ShareAudience, ShareChange, Shares, ToolPattern};
use crate::cluster::staleness::Stage;

fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

fn at(millis: u64) -> MonotonicTime {
    MonotonicTime::new(Duration::from_millis(millis))
}

fn share(server: &str, to: ShareAudience, tools: &str) -> Share {
    Share {
        server: ServerId::new(server),
        to,
        tools: ToolPattern::try_from(tools.to_owned()).unwrap(),
    }
}

fn shares(rules: &[Share]) -> Shares {
    let mut shares = Shares::default();
    for rule in rules {
        shares.apply(&ShareChange::Share(rule.clone()));
    }
    shares
}

fn server_record(state: Status) -> ServerRecord {
    ServerRecord {
        state,
        specification: None,
        replica: false,
        stateful: false,
        starting: false,
    }
}

fn tool(name: &str, words: &str) -> ToolRecord {
    let definition =
        serde_json::json!({"name": name, "description": words, "inputSchema": {"type": "object"}});
    let definition = definition.to_string();
    ToolRecord {
        schemas: hash_schemas(&definition).unwrap(),
        definition,
        idempotent: false,
        vector: None,
    }
}

fn offered(tools: &[(&str, &str)]) -> OfferedServer {
    let tools = tools
        .iter()
        .map(|(name, words)| ((*name).into(), tool(name, words)));
    OfferedServer {
        record: server_record(Status::Connected),
        tools: tools.collect(),
    }
}

/// A server without tools.
fn without_tools(state: Status, starting: bool) -> OfferedServer {
    let record = ServerRecord {
        starting,
        ..server_record(state)
    };
    OfferedServer {
        record,
        tools: BTreeMap::new(),
    }
}

/// Runs pulls until none is pending; returns the number of pages.
fn settle(own: &mut LocalIndex, peer: NodeId, held: &mut RemoteIndex, now: MonotonicTime) -> usize {
    let mut pages = 0;
    let mut effects = held.handle_digest(own.digest(peer), now);
    while let Some(pull) = pulled(&effects) {
        pages += 1;
        let page = own.page(peer, &pull);
        effects = held.handle_page(page, REMOTE_BYTES_MAX, now);
    }
    pages
}

fn pulls(effects: &[IndexEffect]) -> impl Iterator<Item = PullIndex> + '_ {
    effects.iter().filter_map(|effect| match effect {
        IndexEffect::Pull(pull) => Some(*pull),
        IndexEffect::Set(_) | IndexEffect::Removed(_) | IndexEffect::Report(_) => None,
    })
}

fn pulled(effects: &[IndexEffect]) -> Option<PullIndex> {
    pulls(effects).next()
}

fn names(held: &RemoteIndex) -> Vec<String> {
    held.entries().map(|(key, _)| key.to_string()).collect()
}

/// PRJ-005: digests and pages use different streams, so an older page may arrive after a newer digest.
#[test]
fn a_page_older_than_the_latest_digest_is_followed_by_a_pull() {
    let (mut own, mut held) = (LocalIndex::new(1), RemoteIndex::default());
    let demo = ServerId::new("demo");
    own.offer(&demo, Some(&offered(&[("time", "a")])));
    own.set_shares(shares(&[share("demo", ShareAudience::Cluster, "*")]));
    for again in [false, true] {
        let pull = pulled(&held.handle_digest(own.digest(node(1)), at(0))).unwrap();
        let page = own.page(node(1), &pull);
        if !again {
            own.offer(&demo, Some(&offered(&[("time", "b")])))
        } else {
            own.set_shares(shares(&[share("demo", ShareAudience::Node(node(1)), "*")]))
        }
        assert_eq!(
            pulled(&held.handle_digest(own.digest(node(1)), at(0))),
            None,
            "one at a time"
        );
        let effects = held.handle_page(page, REMOTE_BYTES_MAX, at(0));
        let next = pulled(&effects).expect("it is not the newest");
        let effects = held.handle_page(own.page(node(1), &next), REMOTE_BYTES_MAX, at(0));
        assert!(held.is_current() && pulled(&effects).is_none());
        own.offer(&demo, Some(&offered(&[("time", "c")])));
    }
}

/// A stopped server has none.
#[test]
fn a_starting_server_has_its_earlier_tools() {
    let (mut own, mut held) = (LocalIndex::new(1), RemoteIndex::default());
    let demo = ServerId::new("demo");
    own.set_shares(shares(&[share("demo", ShareAudience::Cluster, "*")]));
    own.offer(&demo, Some(&offered(&[("echo", "a"), ("time", "a")])));
    settle(&mut own, node(1), &mut held, at(0));
    own.offer(&demo, Some(&without_tools(Status::Restarting, true)));
    settle(&mut own, node(1), &mut held, at(0));
    assert_eq!(names(&held), ["demo", "demo:echo", "demo:time"]);
    let record = held.get(&IndexKey::server(&demo));
    assert!(matches!(record, Some(RemoteEntry::Server(record)) if record.starting));
    own.offer(&demo, Some(&offered(&[("time", "b")])));
    settle(&mut own, node(1), &mut held, at(0));
    assert_eq!(names(&held), ["demo", "demo:time"]);
    own.offer(&demo, Some(&without_tools(Status::Disconnected, false)));
    settle(&mut own, node(1), &mut held, at(0));
    assert_eq!(names(&held), ["demo"]);
}

/// Within the current shares.
#[test]
fn restored_tools_belong_to_starting_servers() {
    let rules = |tools| shares(&[share("demo", ShareAudience::Cluster, tools)]);
    let (mut own, mut held) = (LocalIndex::new(1), RemoteIndex::default());
    let (demo, hidden) = (ServerId::new("demo"), ServerId::new("hidden"));
    own.set_shares(rules("*"));
    own.offer(&demo, Some(&offered(&[("echo", "a"), ("time", "a")])));
    own.offer(&hidden, Some(&offered(&[("key", "a")])));
    settle(&mut own, node(1), &mut held, at(0));
    let stored = own.snapshot();
    assert!(stored.changes.iter().all(|change| change.server == "demo"));
    let stored = RemoteIndex::restore(
        stored.digest,
        stored.changes,
        BTreeMap::new(),
        REMOTE_BYTES_MAX,
    );
    let mut again = LocalIndex::new(2);
    again.restore(&stored.unwrap());
    again.set_shares(rules("*"));
    assert_eq!(again.digest(node(1)).root, empty_root(), "it may be gone");
    again.offer(&demo, Some(&without_tools(Status::Connecting, true)));
    held.handle_link_down();
    settle(&mut again, node(1), &mut held, at(1));
    assert_eq!(names(&held), ["demo", "demo:echo", "demo:time"]);
    again.set_shares(rules("echo"));
    settle(&mut again, node(1), &mut held, at(2));
    assert_eq!(names(&held), ["demo", "demo:echo"]);
    again.offer(&demo, Some(&offered(&[("time", "a")])));
    settle(&mut again, node(1), &mut held, at(3));
    assert_eq!(names(&held), ["demo"]);
}

/// Such an owner causes one pull for each digest.
#[test]
fn a_page_replaces_an_earlier_digest() {
    let (mut own, mut held) = (LocalIndex::new(1), RemoteIndex::default());
    let digest = own.digest(node(1));
    let digest = IndexDigest {
        version: u64::MAX,
        ..digest
    };
    let pull = pulled(&held.handle_digest(digest, at(0))).unwrap();
    let effects = held.handle_page(own.page(node(1), &pull), REMOTE_BYTES_MAX, at(0));
    assert!(held.is_current() && pulled(&effects).is_none());
}

/// PRJ-005, FED-026: also after changes.
#[test]
fn a_copy_contains_exactly_what_is_shared() {
    let mut own = LocalIndex::new(1);
    own.offer(
        &ServerId::new("files"),
        Some(&offered(&[("read", "a"), ("write", "b")])),
    );
    own.offer(&ServerId::new("secret"), Some(&offered(&[("key", "c")])));
    own.offer(
        &ServerId::new("nas/files"),
        Some(&offered(&[("read", "d")])),
    );
    let mut held = RemoteIndex::default();
    settle(&mut own, node(1), &mut held, at(0));
    assert!(names(&held).is_empty() && held.is_current());

    let cluster = share("files", ShareAudience::Cluster, "read");
    own.set_shares(shares(&[
        cluster.clone(),
        share("nas/files", ShareAudience::Cluster, "*"),
    ]));
    settle(&mut own, node(1), &mut held, at(0));
    assert_eq!(names(&held), ["files", "files:read"]);
    assert_eq!(held.rejected_entries().count(), 0);

    own.offer(&ServerId::new("files"), Some(&offered(&[("write", "b")])));
    settle(&mut own, node(1), &mut held, at(0));
    assert_eq!(names(&held), ["files"]);

    let to_one = share("secret", ShareAudience::Node(node(1)), "*");
    own.set_shares(shares(&[cluster, to_one]));
    let mut other = RemoteIndex::default();
    settle(&mut own, node(1), &mut held, at(0));
    settle(&mut own, node(2), &mut other, at(0));
    assert_eq!(names(&held), ["files", "secret", "secret:key"]);
    assert_eq!(names(&other), ["files"]);

    own.offer(&ServerId::new("secret"), None);
    own.set_shares(Shares::default());
    settle(&mut own, node(1), &mut held, at(0));
    assert!(names(&held).is_empty() && held.is_current() && held.bytes() == 0);
}

/// Byte for byte, with spaces and the order of members.
#[test]
fn definitions_are_copied_unchanged() {
    let definition =
        "{ \"z\" :1.0, \"name\":\"read\",\r\n \"inputSchema\": {\"type\":\"object\" } }";
    let record = ToolRecord {
        definition: definition.to_owned(),
        schemas: hash_schemas(definition).unwrap(),
        idempotent: true,
        vector: None,
    };
    let mut server = offered(&[]);
    server.tools.insert("read".into(), record);
    let mut own = LocalIndex::new(1);
    own.offer(&ServerId::new("files"), Some(&server));
    own.set_shares(shares(&[share("files", ShareAudience::Cluster, "*")]));
    let mut held = RemoteIndex::default();
    settle(&mut own, node(1), &mut held, at(0));
    let key = IndexKey::tool(&ServerId::new("files"), "read");
    let Some(RemoteEntry::Tool(tool)) = held.get(&key) else {
        panic!("the tool is held");
    };
    assert_eq!(&*tool.definition, definition);
    assert!(tool.idempotent);
}

/// FED-026: later changes are sent as a difference.
#[test]
fn a_restarted_owner_with_the_same_entries_needs_no_new_copy() {
    let all: Vec<String> = (0..3_000).map(|n| format!("tool_{n}")).collect();
    let words = "x".repeat(400);
    let tools: Vec<_> = all
        .iter()
        .map(|name| (name.as_str(), words.as_str()))
        .collect();
    let start = |seed| {
        let mut own = LocalIndex::new(seed);
        own.offer(&ServerId::new("files"), Some(&offered(&tools)));
        own.set_shares(shares(&[share("files", ShareAudience::Cluster, "*")]));
        own
    };
    let mut held = RemoteIndex::default();
    let pages = settle(&mut start(1), node(1), &mut held, at(0));
    assert!(pages > 4, "{pages}");
    let mut own = start(2);
    held.handle_link_down();
    assert_eq!(settle(&mut own, node(1), &mut held, at(1)), 1);
    own.offer(&ServerId::new("files"), Some(&offered(&tools[1..])));
    assert_eq!(settle(&mut own, node(1), &mut held, at(1)), 1);
    assert_eq!(names(&held).len(), 3_000);
}

/// Even if entries change during a pull of many pages, it completes without a restart.
#[test]
fn a_pull_continues_from_its_position_after_a_change() {
    let all: Vec<String> = (0..2_000).map(|n| format!("tool_{n:04}")).collect();
    let words = "x".repeat(1_000);
    let mut tools: Vec<_> = all
        .iter()
        .map(|name| (name.as_str(), words.as_str()))
        .collect();
    let mut own = LocalIndex::new(1);
    own.set_shares(shares(&[share("files", ShareAudience::Cluster, "*")]));
    own.offer(&ServerId::new("files"), Some(&offered(&tools)));
    let mut held = RemoteIndex::default();
    let mut effects = held.handle_digest(own.digest(node(1)), at(0));
    let mut begun = 0;
    let mut pages = 0;
    while let Some(pull) = pulled(&effects) {
        let page = own.page(node(1), &pull);
        begun += usize::from(page.after == 0);
        pages += 1;
        if pages <= 20 {
            tools.remove(0);
            tools[1_000].1 = if pages % 2 == 0 { "even" } else { "odd" };
            own.offer(&ServerId::new("files"), Some(&offered(&tools)));
        }
        effects = held.handle_page(page, REMOTE_BYTES_MAX, at(0));
    }
    assert!(begun == 1 && pages > 8, "{begun} {pages}");
    assert_eq!(settle(&mut own, node(1), &mut held, at(0)), 1);
    assert!(held.is_current());
    assert_eq!(names(&held).len(), 1 + tools.len());
}

/// It never gets names that are not shared any more.
#[test]
fn a_new_peer_gets_no_earlier_removals() {
    let mut own = LocalIndex::new(1);
    own.set_shares(shares(&[share("files", ShareAudience::Cluster, "*")]));
    let secret = [("secret", "a"), ("read", "b")];
    own.offer(&ServerId::new("files"), Some(&offered(&secret)));
    own.offer(&ServerId::new("files"), Some(&offered(&secret[1..])));
    let epoch = own.digest(node(1)).epoch;
    for (epoch, after) in [(0, 0), (epoch, 0), (epoch, 1)] {
        let pull = PullIndex {
            number: 1,
            epoch,
            after,
            root: None,
        };
        let page = own.page(node(1), &pull);
        assert_eq!((page.after, page.changes.len()), (0, 2));
        own.forget(node(1));
    }
}

/// FED-027: beyond the stored removals.
#[test]
fn a_copy_that_lags_too_far_is_rebuilt() {
    let all: Vec<String> = (0..TOOLS_MAX).map(|n| format!("t{n}")).collect();
    let tools: Vec<_> = all.iter().map(|name| (name.as_str(), "")).collect();
    let mut own = LocalIndex::new(1);
    let rules = ["files", "other"].map(|server| share(server, ShareAudience::Cluster, "*"));
    own.set_shares(shares(&rules));
    own.offer(&ServerId::new("other"), Some(&offered(&[])));
    own.offer(&ServerId::new("files"), Some(&offered(&tools)));
    let mut held = RemoteIndex::default();
    settle(&mut own, node(1), &mut held, at(0));
    own.offer(&ServerId::new("files"), None);
    own.offer(&ServerId::new("other"), None);
    assert_eq!(settle(&mut own, node(1), &mut held, at(0)), 1);
    assert!(held.is_current() && names(&held).is_empty());
}

/// FED-027: after a restart.
#[test]
fn a_stored_copy_is_updated_and_a_damaged_one_rebuilt() {
    let mut own = LocalIndex::new(1);
    own.set_shares(shares(&[share("files", ShareAudience::Cluster, "*")]));
    own.offer(
        &ServerId::new("files"),
        Some(&offered(&[("read", "a"), ("write", "b")])),
    );
    let mut held = RemoteIndex::default();
    let pull = pulled(&held.handle_digest(own.digest(node(1)), at(0))).unwrap();
    let mut records = own.page(node(1), &pull).changes;
    let digest = own.digest(node(1));
    let restored =
        |records, refused| RemoteIndex::restore(digest, records, refused, REMOTE_BYTES_MAX);
    let kept = restored(records.clone(), BTreeMap::new()).unwrap();
    assert_eq!((kept.digest(), names(&kept).len()), (Some(digest), 3));
    let mut all = RemoteIndexes::default();
    all.restore(node(1), kept, Duration::from_secs(60), at(0));
    assert_eq!(all.get(node(1), at(0)).unwrap().1, Stage::Hidden);
    assert!(all.handle_digest(node(1), digest, at(1)).is_empty());
    assert_eq!(all.get(node(1), at(1)).unwrap().1, Stage::Fresh);
    let lost = records.pop().unwrap();
    assert!(restored(records.clone(), BTreeMap::new()).is_none());
    // One that was not taken is known by its hash, and asked for again.
    let key = IndexKey {
        server: ServerId::new(lost.server),
        tool: lost.tool.map(Into::into),
    };
    let hash = IndexRoot(entry_hash(&key, &lost.record.unwrap().0).into());
    let mut without = restored(records.clone(), [(key.clone(), hash)].into()).unwrap();
    assert_eq!(names(&without).len(), 2);
    assert_eq!(
        pulled(&without.handle_digest(digest, at(0))).unwrap().after,
        0
    );
    assert!(restored(records, [(key, IndexRoot([0; 32]))].into()).is_none());
}

/// The wait grows, or is the requested one; the pull continues at its position.
#[test]
fn a_deferred_pull_is_retried_without_loss() {
    let mut own = LocalIndex::new(1);
    own.offer(&ServerId::new("files"), Some(&offered(&[("read", "a")])));
    own.set_shares(shares(&[share("files", ShareAudience::Cluster, "*")]));
    let mut held = RemoteIndex::default();
    let first = pulls(&held.handle_digest(own.digest(node(1)), at(0)))
        .next()
        .unwrap();
    let later = PullFailure::Later(2_500);
    assert!(
        held.handle_pull_failure(first.number, later, at(0))
            .is_empty()
    );
    assert!(
        held.handle_digest(own.digest(node(1)), at(2_000))
            .is_empty()
    );
    assert_eq!(held.next_timeout(), Some(at(2_500)));
    let second = pulls(&held.handle_timeout(at(2_500))).next().unwrap();
    assert!(
        held.handle_pull_failure(second.number, PullFailure::Lost, at(2_500))
            .is_empty()
    );
    assert!(held.handle_timeout(at(4_499)).is_empty());
    let third = pulls(&held.handle_timeout(at(4_500))).next().unwrap();
    // One that never comes back is given up, and its answer is none any more.
    assert!(
        held.handle_timeout(at(14_499)).is_empty() && held.handle_timeout(at(14_500)).is_empty()
    );
    let late = own.page(node(1), &third);
    assert!(
        held.handle_page(late, REMOTE_BYTES_MAX, at(14_501))
            .is_empty()
    );
    let fourth = pulls(&held.handle_timeout(at(18_500))).next().unwrap();
    let page = own.page(node(1), &fourth);
    held.handle_page(page, REMOTE_BYTES_MAX, at(18_500));
    assert!(held.is_current() && held.next_timeout().is_none());
}

/// They are sent once there is capacity.
#[test]
fn entries_beyond_the_limits_are_omitted_with_a_reason() {
    let mut own = LocalIndex::new(1);
    let rules: Vec<_> = (0..=SERVERS_MAX)
        .map(|n| share(&format!("s{n:03}"), ShareAudience::Cluster, "*"))
        .collect();
    own.set_shares(shares(&rules));
    for rule in &rules {
        own.offer(&rule.server, Some(&offered(&[("read", "a")])));
    }
    let left: Vec<_> = own
        .omitted_entries(node(1))
        .map(|(key, why)| (key.to_string(), why))
        .collect();
    assert_eq!(left, [("s128".to_owned(), OmissionReason::ServerLimit)]);
    own.offer(&rules[0].server, None);
    assert_eq!(own.omitted_entries(node(1)).count(), 0);
    let long = "x".repeat(DEFINITION_MAX + (64 << 10));
    own.offer(&rules[0].server, Some(&offered(&[])));
    own.offer(&rules[1].server, Some(&offered(&[("read", &long)])));
    let left: Vec<_> = own
        .omitted_entries(node(1))
        .map(|(key, _)| key.to_string())
        .collect();
    assert_eq!(left, ["s000", "s001:read"]);
    let mut held = RemoteIndex::default();
    settle(&mut own, node(1), &mut held, at(0));
    assert_eq!(names(&held).len(), 128 + 127);
}
