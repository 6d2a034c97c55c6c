//! Tests of peers with invalid or oversized indexes.

use mgp_engine::cluster::tool_index::SERVERS_MAX;
use mgp_protocol::federation::sync::SyncOpening;
use mgp_protocol::federation::tool_index::{IndexChange, IndexRoot, RecordBytes};
use mgp_transports::quic::InboundStream;

use super::scene::{Wire, definition, link_sockets, opening, server_record, tool};
use super::*;

/// A peer that answers each pull as scripted.
struct ScriptedPeer {
    end: scene::End,
    /// Its socket.
    _wire: Wire,
}

fn digest(version: u64) -> IndexDigest {
    IndexDigest {
        epoch: 7,
        version,
        root: IndexRoot([9; 32]),
    }
}

fn change(server: &str, tool: Option<&str>, record: Vec<u8>) -> IndexChange {
    IndexChange {
        server: server.to_owned(),
        tool: tool.map(str::to_owned),
        record: Some(RecordBytes(record)),
    }
}

impl ScriptedPeer {
    async fn linked(desk: &IndexNode) -> Self {
        let wire = Wire::new(9);
        let (at_desk, end) = link_sockets(&desk.wire, &wire).await;
        let all = [(wire.id(), "liar"), (desk.id, "desk")];
        let all = all.map(|(node, name)| (node, NodeName::parse(name).unwrap()));
        desk.index.set_members(all.into());
        at_desk.attach_to(desk);
        Self { end, _wire: wire }
    }

    /// Sends a digest and answers the pull after it.
    async fn send_digest_and_answer(
        &mut self,
        version: u64,
        answer: impl FnOnce(PullIndex) -> Vec<u8>,
    ) {
        let message = Control::Index(digest(version));
        within_deadline(self.end.control_output.send(&message))
            .await
            .unwrap();
        let (pull, mut stream) = self.next_pull().await;
        let page = answer(pull);
        let _gone = within_deadline(stream.send(page.into())).await;
        stream.finish();
    }

    async fn next_pull(&mut self) -> (PullIndex, Box<SyncStream>) {
        match within_deadline(self.end.inbound.next()).await.unwrap() {
            InboundStream::Sync(mut stream) => {
                assert_eq!(opening(&mut stream).await, SyncOpening::Index);
                let pull = within_deadline(stream.next()).await.unwrap().unwrap();
                (PullIndex::decode(&pull).unwrap(), stream)
            }
            InboundStream::Call(call) => panic!("{call:?}"),
        }
    }

    /// Waits for the report of what was rejected.
    async fn report(&mut self) -> IndexReport {
        loop {
            match within_deadline(self.end.control_input.next())
                .await
                .unwrap()
            {
                Control::IndexReport(report) => return report,
                Control::Index(_)
                | Control::Hello(_)
                | Control::Ping(_)
                | Control::Pong(_)
                | Control::Renewal(_)
                | Control::Addresses(_)
                | Control::Logs(_)
                | Control::Leaving(_)
                | Control::Reach(_)
                | Control::Unknown(_) => {}
            }
        }
    }
}

fn page(pull: PullIndex, version: u64, changes: Vec<IndexChange>) -> Vec<u8> {
    let page = IndexPage {
        number: pull.number,
        epoch: 7,
        after: 0,
        upto: version,
        digest: digest(version),
        changes,
    };
    page.encode()
}

/// An invalid entry is rejected alone, and both sides can read which one it was and why.
#[tokio::test]
async fn invalid_entry_is_rejected_with_a_reason_on_both_sides() {
    let desk = IndexNode::new(1).await;
    let mut peer = ScriptedPeer::linked(&desk).await;
    let mut another = tool("echo", "x");
    another.definition = definition("rm", "x");
    let changes = vec![
        change("demo", None, server_record().encode()),
        change("demo", Some("time"), tool("time", "x").encode()),
        change("demo", Some("echo"), another.encode()),
        change("../etc", None, server_record().encode()),
    ];
    peer.send_digest_and_answer(4, |pull| page(pull, 4, changes))
        .await;
    let report = peer.report().await;
    assert_eq!(report.refused, 2);
    let reasons: Vec<_> = report
        .examples
        .iter()
        .map(|one| one.reason.as_str())
        .collect();
    let all = reasons.join("; ");
    assert!(all.contains("names another tool"), "{all}");
    // Its digest does not match its entries either, so the copy is not complete.
    assert!(all.contains("do not match its hash"), "{all}");
    let published = desk.wait_for_tools(|tools| !tools.servers.is_empty()).await;
    assert_eq!(tools(&published), ["demo:time"]);
    let ToolIndexEvent::Refused(_, message) = desk.report().await else {
        panic!("it is told who it was");
    };
    assert_eq!(message, report);
    let status = within_deadline(desk.index.status()).await.unwrap();
    assert_eq!(status[0].rejected.refused, 2);
    assert!(!status[0].current && status[0].broken.is_some());
}

/// PRJ-008: the index of a node with more servers than one machine has is cut at the limit.
#[tokio::test]
async fn index_with_too_many_servers_is_cut_at_the_limit() {
    let desk = IndexNode::new(1).await;
    let mut peer = ScriptedPeer::linked(&desk).await;
    let servers = (0..=SERVERS_MAX).map(|n| format!("s{n:04}"));
    let changes = servers.map(|server| change(&server, None, server_record().encode()));
    let changes: Vec<_> = changes.collect();
    peer.send_digest_and_answer(500, |pull| page(pull, 500, changes))
        .await;
    let report = peer.report().await;
    assert!(report.examples[0].reason.contains("more than 128 servers"));
    let published = desk.wait_for_tools(|tools| !tools.servers.is_empty()).await;
    assert_eq!(published.servers.len(), SERVERS_MAX);
}

/// An answer to another pull is ignored, and the pull is repeated.
#[tokio::test]
async fn mismatched_and_missing_answers_are_requested_again() {
    let desk = IndexNode::new(1).await;
    let mut peer = ScriptedPeer::linked(&desk).await;
    let whole = || vec![change("demo", None, server_record().encode())];
    let mut first = 0;
    peer.send_digest_and_answer(1, |pull| {
        first = pull.number;
        let number = pull.number + 1;
        page(PullIndex { number, ..pull }, 1, whole())
    })
    .await;
    let (second, stream) = peer.next_pull().await;
    assert_eq!(second.number, first + 1);
    assert!(desk.held.load().servers.is_empty());
    drop(stream);
    let (_, mut stream) = peer.next_pull().await;
    within_deadline(stream.send(b"not a page".as_slice().into()))
        .await
        .unwrap();
    let (pull, mut stream) = peer.next_pull().await;
    within_deadline(stream.send(page(pull, 1, whole()).into()))
        .await
        .unwrap();
    desk.wait_for_tools(|tools| tools.servers.len() == 1).await;
}

/// A peer's pulls are answered in order; a malformed one ends the stream.
#[tokio::test]
async fn malformed_pull_ends_the_stream() {
    let desk = IndexNode::new(1).await;
    let peer = ScriptedPeer::linked(&desk).await;
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut stream = within_deadline(peer.end.link.link.open_sync(until))
        .await
        .unwrap();
    let opening = SyncOpening::Index.encode();
    within_deadline(stream.send(opening.into())).await.unwrap();
    let pull = PullIndex {
        number: 3,
        epoch: 0,
        after: 0,
        root: None,
    };
    for _ in 0..2 {
        within_deadline(stream.send(pull.encode().into()))
            .await
            .unwrap();
        let page = within_deadline(stream.next()).await.unwrap().unwrap();
        assert_eq!(IndexPage::decode(&page).unwrap().number, 3);
    }
    within_deadline(stream.send(b"x".as_slice().into()))
        .await
        .unwrap();
    assert_eq!(within_deadline(stream.next()).await.unwrap(), None);
}
