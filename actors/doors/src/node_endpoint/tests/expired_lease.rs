//! Tests of a server that is closed to all agents of other nodes, because a lease has expired.

use serde_json::json;

use super::scene::TwoNodes;

/// An agent with a grant is pointed to the silent node, not to a missing grant.
#[tokio::test]
async fn server_closed_by_an_expired_lease_names_the_silent_node() {
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
