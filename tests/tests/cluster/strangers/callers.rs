//! A node that was let in calls for whom it may not, what it may not, and as nobody may.

use super::siege::{Siege, id, none_taken};

/// PRJ-006, FED-042: an assertion is good for one agent of one node, on one link, in its time.
#[tokio::test(flavor = "multi_thread")]
async fn an_assertion_is_worth_nothing_anywhere_else() {
    let Some(mut siege) = Siege::lay("member").await else {
        return;
    };
    siege
        .nas
        .mgp_json(&["grants", "add", "local@mallory", "demo"])
        .await;
    let (at, key) = (siege.at().await, siege.key());
    let (owner, member) = (id(&siege.nas).await, id(&siege.desk).await);
    let told = siege
        .plays("members.assertions", &[&at, &key, &owner, &member])
        .await;
    // What it may, it may: before and after.
    let allowed = ["itself", "itself, at the end"];
    for name in allowed {
        assert_eq!(told[name], "taken", "{told:#}");
    }
    assert!(told.as_object().unwrap().len() >= 37, "{told:#}");
    assert!(none_taken(&told, &allowed).is_empty(), "{told:#}");
    siege.holds("").await;
}

/// What is granted is a server; the kernel that owns it is no tool of it. Who asks for one of the kernel's tools learns
/// no more than of a name that nobody has.
#[tokio::test(flavor = "multi_thread")]
async fn tools_of_the_owners_kernel_read_like_unknown_ones() {
    let Some(siege) = Siege::lay("member").await else {
        return;
    };
    siege
        .nas
        .mgp_json(&["grants", "add", "local@mallory", "demo"])
        .await;
    let (at, key) = (siege.at().await, siege.key());
    let owner = id(&siege.nas).await;
    let told = siege
        .plays("members.kernel_tools", &[&at, &key, &owner])
        .await;
    let unknown = &told["unknown"];
    assert!(
        unknown.as_str().unwrap().contains("Unknown tool"),
        "{told:#}"
    );
    let all = told.as_object().unwrap();
    assert!(all.len() > 40, "{told:#}");
    let other: Vec<_> = all
        .iter()
        .filter(|(_, answer)| *answer != unknown)
        .collect();
    assert!(other.is_empty(), "{other:#?}");
}

/// PRJ-006: what is said of others is not believed, and numbers as large as there are break nothing.
#[tokio::test(flavor = "multi_thread")]
async fn lies_about_others_and_the_largest_numbers_come_to_nothing() {
    let Some(mut siege) = Siege::lay("member").await else {
        return;
    };
    let (at, key) = (siege.at().await, siege.key());
    let (owner, member) = (id(&siege.nas).await, id(&siege.desk).await);
    siege
        .plays("members.gossip", &[&at, &key, &owner, &member])
        .await;
    assert_eq!(
        super::siege::seen(&siege.nas, "desk").await["standing"],
        "linked"
    );
    assert_eq!(
        super::siege::seen(&siege.desk, "nas").await["standing"],
        "linked"
    );
    let told = siege.plays("members.numbers", &[&at, &key, &owner]).await;
    assert!(
        none_taken(&told, &[]).is_empty(),
        "no grant, no call: {told:#}"
    );
    let told = siege.plays("members.malformed", &[&at, &key]).await;
    let open: Vec<_> = told
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, code)| code.is_null())
        .collect();
    assert!(open.is_empty(), "links that stayed open: {open:?}");
    siege.holds("a link to another node ended").await;
}
