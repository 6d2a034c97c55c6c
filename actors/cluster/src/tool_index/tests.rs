mod hostile_peers;
mod scene;
mod stored_copies;

use mgp_engine::cluster::staleness::Stage;
use mgp_protocol::federation::close_codes::LinkClose;

use self::scene::{IndexNode, offered, rules, tools, within_deadline};
use super::*;

/// PRJ-005: shared tools are visible to their audience, follow their owner, and disappear when the share
/// ends.
#[tokio::test]
async fn shared_tools_are_visible_to_their_audience() {
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
        let held = node.wait_for_tools(|held| tools(held).len() == 2).await;
        assert_eq!(tools(&held), ["demo:echo", "demo:time"]);
        let server = held.servers.values().next().unwrap();
        assert_eq!(server.stage, Stage::Fresh);
        let time = &server.tools["time"];
        assert_eq!(&*time.definition, scene::definition("time", "1"));
    }
    assert!(tools(&nas.held.load()).is_empty());

    let only_attic = rules(&[("demo", None, "time"), ("secret", Some(attic.id), "*")]);
    nas.index.set_shares(only_attic);
    desk.wait_for_tools(|held| tools(held) == ["demo:time"])
        .await;
    attic
        .wait_for_tools(|held| tools(held) == ["demo:time", "secret:key"])
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
    desk.wait_for_tools(is_new).await;
    attic
        .wait_for_tools(|held| is_new(held) && tools(held) == ["demo:time"])
        .await;

    nas.index.set_shares(rules(&[]));
    desk.wait_for_tools(|held| held.servers.is_empty()).await;
    attic.wait_for_tools(|held| held.servers.is_empty()).await;
    let status = desk.index.status().await.unwrap();
    let [one, two] = status.as_slice() else {
        panic!("{status:?}");
    };
    let of_nas = if one.node == nas.id { one } else { two };
    assert!(of_nas.linked && of_nas.current && of_nas.tools == 0);
}

/// PRJ-007, FED-030: tools are stale as soon as the link is lost, and fresh when it returns, also after a
/// restart of their owner.
#[tokio::test]
async fn tools_are_stale_without_a_link_and_fresh_with_a_new_one() {
    let (nas, desk) = (IndexNode::new(1).await, IndexNode::new(2).await);
    scene::members(&[&nas, &desk]);
    nas.offer(&[("demo", &["time"])]);
    nas.index.set_shares(rules(&[("demo", None, "*")]));
    let stage = |held: &PeerTools| held.servers.values().map(|server| server.stage).next();
    let links = scene::link(&nas, &desk).await;
    desk.wait_for_tools(|held| stage(held) == Some(Stage::Fresh))
        .await;
    scene::unlink(links, LinkClose::Done);
    desk.wait_for_tools(|held| stage(held) == Some(Stage::Stale))
        .await;
    assert_eq!(tools(&desk.held.load()), ["demo:time"]);

    let nas = nas.restart().await;
    scene::members(&[&nas, &desk]);
    nas.offer(&[("demo", &["time", "echo"])]);
    nas.index.set_shares(rules(&[("demo", None, "*")]));
    let _links = scene::link(&nas, &desk).await;
    desk.wait_for_tools(|held| tools(held).len() == 2 && stage(held) == Some(Stage::Fresh))
        .await;
}

/// A copy of many pages becomes complete, whatever changes meanwhile; a node that joins late gets the same.
#[tokio::test]
async fn lagging_node_catches_up_during_changes() {
    let (nas, desk) = (IndexNode::new(1).await, IndexNode::new(2).await);
    scene::members(&[&nas, &desk]);
    let names: Vec<String> = (0..2_000).map(|n| format!("tool_{n:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let long = "x".repeat(600);
    nas.offer_words(&[("demo", &names)], &long);
    nas.index.set_shares(rules(&[("demo", None, "*")]));
    let _links = scene::link(&nas, &desk).await;
    desk.wait_for_tools(|held| !held.servers.is_empty()).await;
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
    desk.wait_for_tools(whole).await;
    let status = within_deadline(desk.index.status()).await.unwrap();
    assert!(status[0].broken.is_none() && status[0].rejected.refused == 0);
}

/// PRJ-008, FED-061: a node keeps its name, and a server of this node reclaims its own name.
#[tokio::test]
async fn nodes_with_equal_names_get_distinct_stable_names() {
    let (nas, desk, other) = (
        IndexNode::new(1).await,
        IndexNode::new(2).await,
        IndexNode::new(3).await,
    );
    // The first node has the larger id, so that the order of ids does not decide.
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
    let desk = desk.restart().await;
    desk.offer(&[("demo", &["time"])]);
    desk.index.set_members(both.clone());
    desk.is_named(&[(&other, "nas"), (&nas, &digits)]).await;
    desk.offer(&[("nas", &["time"])]);
    let taken = format!("nas-{}", &other.id.to_string()[..6]);
    desk.is_named(&[(&other, &taken), (&nas, &digits)]).await;
    let desk = desk.restart().await;
    desk.offer(&[("nas", &["time"])]);
    desk.index.set_members(both);
    desk.is_named(&[(&other, &taken), (&nas, &digits)]).await;
    desk.index
        .set_members(called(&[(&desk, "desk"), (&other, "attic")]));
    desk.is_named(&[(&other, "attic")]).await;
}

/// A node outside the cluster gets no digest, and its index is ignored.
#[tokio::test]
async fn node_that_left_gets_no_digest_and_its_tools_are_removed() {
    let (nas, desk) = (IndexNode::new(1).await, IndexNode::new(2).await);
    scene::members(&[&nas, &desk]);
    for node in [&nas, &desk] {
        node.offer(&[("demo", &["time"])]);
        node.index.set_shares(rules(&[("demo", None, "*")]));
    }
    let links = scene::link(&nas, &desk).await;
    nas.wait_for_tools(|held| tools(held) == ["demo:time"])
        .await;
    desk.wait_for_tools(|held| tools(held) == ["demo:time"])
        .await;
    nas.index.set_members(BTreeMap::new());
    nas.wait_for_tools(|held| held.servers.is_empty()).await;
    desk.index.set_shares(rules(&[("demo", None, "time")]));
    let pull = PullIndex {
        number: 1,
        epoch: 0,
        after: 0,
        root: None,
    };
    let at_desk = links.1.clone();
    let refused = within_deadline(streams::pull(at_desk, pull)).await;
    assert_eq!(refused.unwrap_err(), PullFailure::Lost);
    assert!(nas.held.load().servers.is_empty());
}

#[test]
fn server_is_offered_with_the_hash_of_its_schemas() {
    let offered = offered(&["time"], "1");
    assert!(offered.tools["time"].schemas.0 != [0; 32]);
}
