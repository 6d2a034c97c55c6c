//! More than anybody needs, from strangers and from a node that was let in.

use serde_json::Value;

use super::siege::{OF_A_LINK, Siege, logged};

/// PRJ-004, FED-009: nobody is flooded with our answers: before a key is shown, at most three bytes go back for each that came.
#[tokio::test(flavor = "multi_thread")]
async fn no_stranger_gets_back_much_more_than_it_sends() {
    let Some(mut siege) = Siege::lay("member").await else {
        return;
    };
    let at = siege.at().await;
    // The first end of a handshake of somebody unknown is told, and in words that are one line.
    siege.plays("floods.lines", &[&at]).await;
    logged(&mut siege.nas, "ERROR forged line").await;
    let said = siege.nas.process().stderr();
    let forged = said.lines().find(|line| line.contains("forged line"));
    assert!(forged.unwrap().contains("INFO no link"), "{said}");
    let told = siege.plays("floods.amplified", &[&at]).await;
    let all = told.as_object().unwrap();
    assert!(all.len() >= 15, "{told:#}");
    for (name, measured) in all {
        assert!(
            measured["times"].as_f64().unwrap() <= 3.0,
            "{name}: {told:#}"
        );
    }
    assert_eq!(told["a handshake that is left"]["retried"], 1, "{told:#}");
    let came = told["first packets"]["came"].as_u64().unwrap();
    assert!(came > 0, "whoever begins is answered: {told:#}");
    siege.holds("no link to another node").await;
}

/// PRJ-004: a storm of first packets, noise and half handshakes keeps no node from another one.
#[tokio::test(flavor = "multi_thread")]
async fn floods_of_unknown_peers_delay_no_member() {
    let Some(mut siege) = Siege::lay("member").await else {
        return;
    };
    let at = siege.at().await;
    siege.calls_during("floods.storm", &[&at, "5"]).await;
    siege
        .calls_during("floods.strangers", &[&at, "8", "4"])
        .await;
    siege.holds("is not known here").await;
}

/// PRJ-004, FED-008: a node that was let in sends more than anybody reads: control messages, datagrams, streams, connection ids, links,
/// entries that nobody signed. Others are answered, and what others are told is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn flood_of_a_member_delays_no_other() {
    let Some(mut siege) = Siege::lay("member").await else {
        return;
    };
    let (at, key) = (siege.at().await, siege.key());
    for story in [
        "control",
        "packets",
        "streams",
        "identifiers",
        "again",
        "forgeries",
    ] {
        let told: Value = siege
            .calls_during(&format!("floods.{story}"), &[&at, &key, "4"])
            .await;
        if story == "identifiers" {
            assert_eq!(
                told["followed"], false,
                "a link stays where it was proven to be"
            );
        }
        siege.holds_within("", OF_A_LINK).await;
        // An operator is heard amid it: what is shared and granted is still told.
        let agent = format!("{story}@desk");
        siege.nas.mgp_json(&["grants", "add", &agent, "demo"]).await;
    }
}
