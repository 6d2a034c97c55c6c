//! Groups of agents: what entries name them, who is in them, and the limits that their members share.

use mgp_engine::timestamps::parse_rfc3339;
use nix::sys::signal::Signal;
use std::time::{SystemTime, UNIX_EPOCH};

use super::*;

const CLOSED: &str = "\n[access]\ndefault_policy = \"opt-in\"\n";

/// Whether a call of the tool gets a result of its server.
async fn may(client: &HttpClient, tool: &str) -> bool {
    let answer = ask(
        client,
        "{}",
        "tools/call",
        json!({"name": tool, "arguments": {}}),
    )
    .await;
    answer["result"].is_object() && answer["result"]["isError"] != true
}

/// What a refused command says.
async fn refused(kernel: &Kernel, args: &[&str]) -> String {
    let output = kernel.mgp(args).await;
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// EXT-211, EXT-212: a group is granted in place of an agent, its members have what it has until they leave it, and each
/// command names it.
#[tokio::test]
async fn a_group_is_granted_in_place_of_an_agent() {
    let kernel = kernel_with(&[], CLOSED).await;
    let secret = token(&kernel, "alice").await;
    let alice = holder(kernel.url(), &secret);
    let said = refused(&kernel, &["grants", "add", "group.readers", "it"]).await;
    assert!(said.contains("there is no group.readers"), "{said}");
    let said = refused(&kernel, &["groups", "add", "readers", "alise"]).await;
    assert!(said.contains("agent.alice"), "{said}");
    let added = kernel
        .mgp_json(&["groups", "add", "readers", "alice"])
        .await;
    assert_eq!(added["notes"], json!(["group.readers is new"]), "{added:#}");
    let said = refused(&kernel, &["grants", "add", "group.reader", "it"]).await;
    assert!(said.contains("did you mean group.readers?"), "{said}");
    for odd in ["group.readers@desk", "group.Readers", "group."] {
        refused(&kernel, &["grants", "add", odd, "it"]).await;
    }
    for taken in ["group.readers", "GROUP.x"] {
        let said = refused(&kernel, &["agents", "add", taken]).await;
        assert!(said.contains("taken for a group"), "{said}");
    }
    assert!(!may(&alice, "it__count").await);
    kernel
        .mgp_json(&["grants", "add", "group.readers", "it"])
        .await;
    assert!(may(&alice, "it__count").await);
    let explained = kernel.mgp_json(&["explain", "alice", "it:count"]).await;
    let rule = explained["rule"].as_str().unwrap();
    assert!(
        rule.contains("allows all of server it to group.readers"),
        "{rule}"
    );
    let joined = explained["considered"][0].as_str().unwrap();
    assert!(
        joined.starts_with("agent.alice is in group.readers: entry"),
        "{joined}"
    );
    let explained = kernel
        .mgp_json(&["explain", "group.readers", "it:count"])
        .await;
    assert_eq!(explained["permission"], "allow", "{explained:#}");
    let listed = kernel.mgp_json(&["groups", "list"]).await;
    let group = &listed["groups"][0];
    assert_eq!(
        (&group["name"], &group["entries"]),
        (&json!("readers"), &json!(1))
    );
    assert_eq!(group["members"][0]["agent_id"], "agent.alice");
    let shown = kernel.mgp_json(&["groups", "show", "group.readers"]).await;
    assert_eq!(shown["grants"][0]["agent_id"], "group.readers", "{shown:#}");
    let said = refused(&kernel, &["groups", "show", "reader"]).await;
    assert!(said.contains("did you mean readers?"), "{said}");
    let agents = kernel.mgp_json(&["agents", "list"]).await;
    assert_eq!(agents["agents"][0]["groups"], json!(["readers"]));
    let grants = kernel.mgp_json(&["grants", "list"]).await;
    assert_eq!(
        grants["entries"].as_array().unwrap().len(),
        1,
        "no memberships: {grants:#}"
    );
    let audit = kernel.mgp(&["audit", "tail", "-n", "20", "--json"]).await;
    let audit = String::from_utf8(audit.stdout).unwrap();
    assert!(audit.contains(r#""group":"group.readers""#), "{audit}");
    kernel
        .mgp_json(&["grants", "add", "alice", "it:count", "--deny"])
        .await;
    assert!(
        !may(&alice, "it__count").await,
        "the agent's own entry decides"
    );
    kernel
        .mgp_json(&["grants", "remove", "alice", "it:count"])
        .await;
    // Memberships and grants are in the journal.
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["it"]).await;
    let alice = holder(kernel.url(), &secret);
    assert!(may(&alice, "it__count").await);
    kernel
        .mgp_json(&["groups", "remove", "readers", "alice"])
        .await;
    assert!(!may(&alice, "it__count").await);
    let again = kernel
        .mgp_json(&["groups", "add", "readers", "alice"])
        .await;
    assert_eq!(
        again["notes"],
        Value::Null,
        "its grants are those of its name: {again:#}"
    );
    assert!(may(&alice, "it__count").await);
}

/// EXT-212: who leaves a group reads that its lists changed, and sees nothing any more of what the group had.
#[tokio::test]
async fn who_leaves_a_group_is_told() {
    let kernel = kernel_with(&[], CLOSED).await;
    let secret = token(&kernel, "alice").await;
    kernel
        .mgp_json(&["groups", "add", "readers", "alice"])
        .await;
    kernel
        .mgp_json(&["grants", "add", "group.readers", "it"])
        .await;
    let alice = holder(kernel.url(), &secret);
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let listen = Envelope::new("{}").request(&json!("l"), "subscriptions/listen", listen);
    let mut listening = alice.put(&listen).await.events();
    let acknowledged = within("the acknowledgement", DEADLINE, listening.next()).await;
    assert!(acknowledged.is_some());
    let listed = ask(&alice, "{}", "tools/list", json!({})).await;
    assert!(listed.to_string().contains("it__count"), "{listed}");
    kernel
        .mgp_json(&["groups", "remove", "readers", "alice"])
        .await;
    let heard = async {
        while let Some(event) = listening.next().await {
            if event.data.contains("tools/list_changed") {
                return true;
            }
        }
        false
    };
    assert!(within("the change of the lists", DEADLINE, heard).await);
    let listed = ask(&alice, "{}", "tools/list", json!({})).await;
    assert!(!listed.to_string().contains("it__count"), "{listed}");
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

/// EXT-217, EXT-218: members share the limits of their group; the error names limit and group, and when the next call is
/// possible.
#[tokio::test]
async fn members_share_the_limits_of_their_group() {
    let limits = "\n[groups.readers]\ncalls_per_minute = 2\n[groups.bulk]\nbytes_per_day = 100\n[groups.daily]\ncalls_per_day = 1\n";
    let kernel = kernel_with(&[], limits).await;
    let mut clients = Vec::new();
    for name in ["alice", "bob", "carol", "dave", "eve"] {
        clients.push(holder(kernel.url(), &token(&kernel, name).await));
    }
    let [alice, bob, carol, dave, eve] = &clients[..] else {
        panic!("five");
    };
    for (group, agent) in [
        ("readers", "alice"),
        ("readers", "bob"),
        ("bulk", "carol"),
        ("daily", "dave"),
    ] {
        kernel.mgp_json(&["groups", "add", group, agent]).await;
    }
    assert!(may(alice, "it__count").await && may(bob, "it__count").await);
    let refused = async |client: &HttpClient| {
        let call = json!({"name": "it__count", "arguments": {}});
        let answer = ask(client, "{}", "tools/call", call).await;
        answer.to_string()
    };
    let before = now_ms();
    let said = refused(alice).await;
    assert!(
        said.contains("`calls_per_minute` of group.readers"),
        "{said}"
    );
    let at = said.split("possible at ").nth(1).expect("a time");
    let at = parse_rfc3339(at.get(..24).unwrap()).expect("RFC 3339");
    assert!(at > before && at <= before + 60_000, "{said}");
    assert!(refused(bob).await.contains("group.readers") && may(eve, "it__count").await);
    assert!(may(dave, "it__count").await);
    let said = refused(dave).await;
    assert!(said.contains("`calls_per_day` of group.daily"), "{said}");
    let large = json!({"name": "it__echo", "arguments": {"text": "x".repeat(200)}});
    ask(carol, "{}", "tools/call", large).await;
    let said = refused(carol).await;
    assert!(said.contains("`bytes_per_day` of group.bulk"), "{said}");
    let shown = kernel.mgp_json(&["groups", "show", "readers"]).await;
    assert_eq!(shown["limits"]["calls_per_minute"], 2);
    assert_eq!(
        shown["used"]["calls_per_minute"], 2,
        "refused calls do not count"
    );
}

/// EXT-214: the default group applies at once when the file changes.
#[tokio::test]
async fn agents_in_no_group_are_in_the_default_one() {
    let keys = "\n[access]\ndefault_group = \"newcomers\"\n";
    let kernel = kernel_with(&[], keys).await;
    let alice = holder(kernel.url(), &token(&kernel, "alice").await);
    kernel
        .mgp_json(&["grants", "add", "group.newcomers", "it:count", "--deny"])
        .await;
    assert!(!may(&alice, "it__count").await);
    let agents = kernel.mgp_json(&["agents", "list"]).await;
    assert_eq!(agents["agents"][0]["groups"], json!(["newcomers"]));
    kernel
        .mgp_json(&["groups", "add", "readers", "alice"])
        .await;
    assert!(may(&alice, "it__count").await);
    kernel
        .mgp_json(&["groups", "remove", "readers", "alice"])
        .await;
    assert!(!may(&alice, "it__count").await);
}
