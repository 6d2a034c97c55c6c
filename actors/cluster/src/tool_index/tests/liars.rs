//! Peers that tell what is not so, or more than they may.

use mgp_engine::cluster::tool_index::SERVERS_MAX;
use mgp_protocol::federation::sync::SyncOpening;
use mgp_protocol::federation::tool_index::{IndexChange, IndexRoot, RecordBytes};
use mgp_transports::quic::InboundStream;

use super::scene::{Wire, definition, opening, server_record, tool, wired};
use super::*;

/// A peer that answers each pull with what it likes.
struct Liar {
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

impl Liar {
    async fn linked(desk: &IndexNode) -> Self {
        let wire = Wire::new(9);
        let (at_desk, end) = wired(&desk.wire, &wire).await;
        let all = [(wire.id(), "liar"), (desk.id, "desk")];
        let all = all.map(|(node, name)| (node, NodeName::parse(name).unwrap()));
        desk.index.set_members(all.into());
        at_desk.belongs_to(desk);
        Self { end, _wire: wire }
    }

    /// Tells a digest and answers the pull after it.
    async fn tells(&mut self, version: u64, answer: impl FnOnce(PullIndex) -> Vec<u8>) {
        let told = Control::Index(digest(version));
        soon(self.end.control_output.send(&told)).await.unwrap();
        let (pull, mut stream) = self.asked().await;
        let page = answer(pull);
        let _gone = soon(stream.send(page.into())).await;
        stream.finish();
    }

    async fn asked(&mut self) -> (PullIndex, Box<SyncStream>) {
        match soon(self.end.inbound.next()).await.unwrap() {
            InboundStream::Sync(mut stream) => {
                assert_eq!(opening(&mut stream).await, SyncOpening::Index);
                let pull = soon(stream.next()).await.unwrap().unwrap();
                (PullIndex::decode(&pull).unwrap(), stream)
            }
            InboundStream::Call(call) => panic!("{call:?}"),
        }
    }

    /// What it is told that was not taken.
    async fn report(&mut self) -> IndexReport {
        loop {
            match soon(self.end.control_input.next()).await.unwrap() {
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

/// A bad entry takes no other along, and both sides can read which it was and why.
#[tokio::test]
async fn a_bad_entry_is_refused_with_its_reason_on_both_sides() {
    let desk = IndexNode::new(1).await;
    let mut liar = Liar::linked(&desk).await;
    let mut another = tool("echo", "x");
    another.definition = definition("rm", "x");
    let changes = vec![
        change("demo", None, server_record().encode()),
        change("demo", Some("time"), tool("time", "x").encode()),
        change("demo", Some("echo"), another.encode()),
        change("../etc", None, server_record().encode()),
    ];
    liar.tells(4, |pull| page(pull, 4, changes)).await;
    let report = liar.report().await;
    assert_eq!(report.refused, 2);
    let said: Vec<_> = report
        .examples
        .iter()
        .map(|one| one.reason.as_str())
        .collect();
    let all = said.join("; ");
    assert!(all.contains("names another tool"), "{all}");
    // What it told has not the hash that it told either, so that the copy is not whole.
    assert!(all.contains("do not match its hash"), "{all}");
    let held = desk.sees(|held| !held.servers.is_empty()).await;
    assert_eq!(tools(&held), ["demo:time"]);
    let ToolIndexEvent::Refused(_, told) = desk.report().await else {
        panic!("it is told who it was");
    };
    assert_eq!(told, report);
    let status = soon(desk.index.status()).await.unwrap();
    assert_eq!(status[0].rejected.refused, 2);
    assert!(!status[0].current && status[0].broken.is_some());
}

/// PRJ-008: of a node that tells of more servers than one machine has, nothing more is taken.
#[tokio::test]
async fn who_tells_of_too_many_servers_is_taken_no_further() {
    let desk = IndexNode::new(1).await;
    let mut liar = Liar::linked(&desk).await;
    let servers = (0..=SERVERS_MAX).map(|n| format!("s{n:04}"));
    let changes = servers.map(|server| change(&server, None, server_record().encode()));
    let changes: Vec<_> = changes.collect();
    liar.tells(500, |pull| page(pull, 500, changes)).await;
    let report = liar.report().await;
    assert!(report.examples[0].reason.contains("more than 128 servers"));
    let held = desk.sees(|held| !held.servers.is_empty()).await;
    assert_eq!(held.servers.len(), SERVERS_MAX);
}

/// What is no answer to what was asked is none, and is asked again.
#[tokio::test]
async fn an_answer_to_another_question_and_no_answer_are_asked_again() {
    let desk = IndexNode::new(1).await;
    let mut liar = Liar::linked(&desk).await;
    let whole = || vec![change("demo", None, server_record().encode())];
    let mut first = 0;
    liar.tells(1, |pull| {
        first = pull.number;
        let number = pull.number + 1;
        page(PullIndex { number, ..pull }, 1, whole())
    })
    .await;
    let (second, stream) = liar.asked().await;
    assert_eq!(second.number, first + 1);
    assert!(desk.held.load().servers.is_empty());
    drop(stream);
    let (_, mut stream) = liar.asked().await;
    soon(stream.send(b"not a page".as_slice().into()))
        .await
        .unwrap();
    let (pull, mut stream) = liar.asked().await;
    soon(stream.send(page(pull, 1, whole()).into()))
        .await
        .unwrap();
    desk.sees(|held| held.servers.len() == 1).await;
}

/// A peer's pulls are answered one after the other; what cannot be read ends the stream.
#[tokio::test]
async fn a_pull_that_cannot_be_read_ends_the_stream() {
    let desk = IndexNode::new(1).await;
    let liar = Liar::linked(&desk).await;
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut stream = soon(liar.end.link.link.open_sync(until)).await.unwrap();
    let opening = SyncOpening::Index.encode();
    soon(stream.send(opening.into())).await.unwrap();
    let pull = PullIndex {
        number: 3,
        epoch: 0,
        after: 0,
        root: None,
    };
    for _ in 0..2 {
        soon(stream.send(pull.encode().into())).await.unwrap();
        let page = soon(stream.next()).await.unwrap().unwrap();
        assert_eq!(IndexPage::decode(&page).unwrap().number, 3);
    }
    soon(stream.send(b"x".as_slice().into())).await.unwrap();
    assert_eq!(soon(stream.next()).await.unwrap(), None);
}
