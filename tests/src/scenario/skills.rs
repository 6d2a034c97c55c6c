//! The client scenarios of skills (SEP-2640): what a host does that loads one. The kernel verifies sizes and digests;
//! comparing the frontmatter with the entry is left to the host, which shows it.

use serde_json::{Value, json};

use crate::harness::Client;

pub(super) async fn play(scenario: &str, client: &mut Client) {
    let listed = client.request("skills/list", json!({})).await.result();
    let skill = &listed["skills"][0];
    let uri = json!({"uri": skill["uri"]});
    if scenario == "no-prefetch" {
        // All that a host may ask before somebody wants the skill.
        client.request("resources/list", json!({})).await;
        client.request("skills/get", uri).await;
        return;
    }
    let read = client.request("resources/read", uri).await;
    let refused = match scenario {
        "verify-digest" => "digest",
        "verify-size" => "bytes",
        "verify-frontmatter" => return differs(skill, &read.result()),
        unknown => panic!("nobody wrote down what {unknown} wants"),
    };
    let message = read.error()["message"].to_string();
    assert!(message.contains(refused), "{message}");
}

/// The description in the file is not that of the entry: a host loads no more of it.
fn differs(skill: &Value, read: &Value) {
    let text = read["contents"][0]["text"].as_str().expect("a text");
    let described = skill["frontmatter"]["description"].as_str();
    let described = described.expect("a description");
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("description: "));
    assert_ne!(line, Some(described));
}
