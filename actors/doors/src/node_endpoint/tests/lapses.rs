//! A server that is closed to all agents of other nodes, because a lease has lapsed.

use serde_json::json;

use super::scene::TwoNodes;

/// Who has a grant looks for the node that is silent, not for a grant.
#[tokio::test]
async fn a_server_that_is_closed_by_a_lease_names_it() {
    let nodes = TwoNodes::new().await;
    nodes.played.closed.lock().unwrap().insert(nodes.alice());
    let refused = async || {
        let refused = nodes.answer("prompts/get", json!({"name": "p"})).await;
        refused.unwrap_err().to_string()
    };
    let closed = refused().await;
    assert!(closed.contains("no grant allows it"), "{closed}");
    let lapse = "the lease of den lapsed 12 s ago";
    *nodes.played.lapse.lock().unwrap() = Some(lapse.to_owned());
    let closed = refused().await;
    assert!(closed.contains(lapse), "{closed}");
    assert!(!closed.contains("no grant"), "{closed}");
}
