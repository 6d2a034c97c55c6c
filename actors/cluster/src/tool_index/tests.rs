mod kept;
mod liars;
mod scene;

use mgp_engine::cluster::staleness::Stage;
use mgp_protocol::federation::close_codes::LinkClose;

use self::scene::{IndexNode, offered, rules, soon, tools};
use super::*;

/// PRJ-005: what is shared is seen by whom it is shared with, follows its owner, and goes when it is not
/// shared any more.
#[tokio::test]
async fn what_is_shared_is_seen_by_whom_it_is_shared_with() {
    let (nas, desk, attic) = (
        IndexNode::new(1).await,
        IndexNode::new(2).await,
        IndexNode::new(3).await,
    );
    scene::members(&[&nas, &desk, &attic]);
    let _links = [
        scene::link(&nas, &desk).await,
        scene::link(&nas, &attic).await,
    ];
    nas.offer(&[("demo", &["time", "echo"]), ("secret", &["key"])]);
    nas.index.set_shares(rules(&[("demo", None, "*")]));
    for node in [&desk, &attic] {
        let held = node.sees(|held| tools(held).len() == 2).await;
        assert_eq!(tools(&held), ["demo:echo", "demo:time"]);
        let server = held.servers.values().next().unwrap();
        assert_eq!(server.stage, Stage::Fresh);
        let time = &server.tools["time"];
        assert_eq!(&*time.definition, scene::definition("time", "1"));
    }
    assert!(tools(&nas.held.load()).is_empty());

    let only_attic = rules(&[("demo", None, "time"), ("secret", Some(attic.id), "*")]);
    nas.index.set_shares(only_attic);
    desk.sees(|held| tools(held) == ["demo:time"]).await;
    attic
        .sees(|held| tools(held) == ["demo:time", "secret:key"])
        .await;

    nas.offer_words(&[("demo", &["time"])], "2");
    let changed = scene::definition("time", "2");
    let is_new = |held: &PeerTools| {
        let mut servers = held.servers.values();
        servers.any(|server| {
            server
                .tools
                .get("time")
                .is_some_and(|t| *t.definition == *changed)
        })
    };
    desk.sees(is_new).await;
    attic
        .sees(|held| is_new(held) && tools(held) == ["demo:time"])
        .await;

    nas.index.set_shares(rules(&[]));
    desk.sees(|held| held.servers.is_empty()).await;
    attic.sees(|held| held.servers.is_empty()).await;
    let status = desk.index.status().await.unwrap();
    let [one, two] = status.as_slice() else {
        panic!("{status:?}");
    };
    let of_nas = if one.node == nas.id { one } else { two };
    assert!(of_nas.linked && of_nas.current && of_nas.tools == 0);
}

/// PRJ-007, FED-030: tools are stale as soon as the link is lost, and fresh when it is there again, also when their
/// owner has started anew.
#[tokio::test]
async fn a_lost_link_makes_stale_at_once_and_a_new_one_fresh() {
    let (nas, desk) = (IndexNode::new(1).await, IndexNode::new(2).await);
    scene::members(&[&nas, &desk]);
    nas.offer(&[("demo", &["time"])]);
    nas.index.set_shares(rules(&[("demo", None, "*")]));
    let stage = |held: &PeerTools| held.servers.values().map(|server| server.stage).next();
    let links = scene::link(&nas, &desk).await;
    desk.sees(|held| stage(held) == Some(Stage::Fresh)).await;
    scene::cut(links, LinkClose::Done);
    desk.sees(|held| stage(held) == Some(Stage::Stale)).await;
    assert_eq!(tools(&desk.held.load()), ["demo:time"]);

    let nas = nas.again().await;
    scene::members(&[&nas, &desk]);
    nas.offer(&[("demo", &["time", "echo"])]);
    nas.index.set_shares(rules(&[("demo", None, "*")]));
    let _links = scene::link(&nas, &desk).await;
    desk.sees(|held| tools(held).len() == 2 && stage(held) == Some(Stage::Fresh))
        .await;
}

/// A copy of many pages is whole in the end, whatever changes meanwhile; a node that comes late gets the same.
#[tokio::test]
async fn a_node_that_lags_catches_up_while_everything_changes() {
    let (nas, desk) = (IndexNode::new(1).await, IndexNode::new(2).await);
    scene::members(&[&nas, &desk]);
    let names: Vec<String> = (0..2_000).map(|n| format!("tool_{n:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let long = "x".repeat(600);
    nas.offer_words(&[("demo", &names)], &long);
    nas.index.set_shares(rules(&[("demo", None, "*")]));
    let _links = scene::link(&nas, &desk).await;
    desk.sees(|held| !held.servers.is_empty()).await;
    for n in 0..20 {
        nas.offer_words(&[("demo", &names[n..])], &format!("{n}{long}"));
    }
    let last = scene::definition("tool_1999", &format!("19{long}"));
    let whole = |held: &PeerTools| {
        let tools = held.servers.values().next().map(|server| &server.tools);
        tools.is_some_and(|tools| {
            let newest = tools.get("tool_1999").map(|tool| *tool.definition == *last);
            tools.len() == 2_000 - 19 && newest == Some(true)
        })
    };
    desk.sees(whole).await;
    let status = soon(desk.index.status()).await.unwrap();
    assert!(status[0].broken.is_none() && status[0].rejected.refused == 0);
}

/// PRJ-008, FED-061: who has a name keeps it, and a server of this node takes its own name back.
#[tokio::test]
async fn nodes_of_one_name_are_told_apart_and_keep_their_names() {
    let (nas, desk, other) = (
        IndexNode::new(1).await,
        IndexNode::new(2).await,
        IndexNode::new(3).await,
    );
    // Whoever comes first has the larger id, so that not the order of ids decides.
    let (nas, other) = if nas.id < other.id {
        (nas, other)
    } else {
        (other, nas)
    };
    let called = |names: &[(&IndexNode, &str)]| {
        let called = names.iter();
        called
            .map(|(node, name)| (node.id, NodeName::parse(name).unwrap()))
            .collect::<BTreeMap<_, _>>()
    };
    desk.index
        .set_members(called(&[(&other, "nas"), (&desk, "desk")]));
    desk.is_named(&[(&other, "nas")]).await;
    let both = called(&[(&nas, "nas"), (&other, "nas"), (&desk, "desk")]);
    desk.index.set_members(both.clone());
    let digits = format!("nas-{}", &nas.id.to_string()[..6]);
    desk.is_named(&[(&other, "nas"), (&nas, &digits)]).await;
    let desk = desk.again().await;
    desk.offer(&[("demo", &["time"])]);
    desk.index.set_members(both.clone());
    desk.is_named(&[(&other, "nas"), (&nas, &digits)]).await;
    desk.offer(&[("nas", &["time"])]);
    let taken = format!("nas-{}", &other.id.to_string()[..6]);
    desk.is_named(&[(&other, &taken), (&nas, &digits)]).await;
    let desk = desk.again().await;
    desk.offer(&[("nas", &["time"])]);
    desk.index.set_members(both);
    desk.is_named(&[(&other, &taken), (&nas, &digits)]).await;
    desk.index
        .set_members(called(&[(&desk, "desk"), (&other, "attic")]));
    desk.is_named(&[(&other, "attic")]).await;
}

/// Who is not of the cluster is told nothing, and nothing of it is taken.
#[tokio::test]
async fn a_node_that_left_is_told_nothing_and_nothing_of_it_stays() {
    let (nas, desk) = (IndexNode::new(1).await, IndexNode::new(2).await);
    scene::members(&[&nas, &desk]);
    for node in [&nas, &desk] {
        node.offer(&[("demo", &["time"])]);
        node.index.set_shares(rules(&[("demo", None, "*")]));
    }
    let links = scene::link(&nas, &desk).await;
    nas.sees(|held| tools(held) == ["demo:time"]).await;
    desk.sees(|held| tools(held) == ["demo:time"]).await;
    nas.index.set_members(BTreeMap::new());
    nas.sees(|held| held.servers.is_empty()).await;
    desk.index.set_shares(rules(&[("demo", None, "time")]));
    let pull = PullIndex {
        number: 1,
        epoch: 0,
        after: 0,
        root: None,
    };
    let at_desk = links.1.clone();
    let refused = soon(streams::pull(at_desk, pull)).await;
    assert_eq!(refused.unwrap_err(), PullFailure::Lost);
    assert!(nas.held.load().servers.is_empty());
}

#[test]
fn a_server_is_offered_with_the_hash_of_its_schemas() {
    let offered = offered(&["time"], "1");
    assert!(offered.tools["time"].schemas.0 != [0; 32]);
}
