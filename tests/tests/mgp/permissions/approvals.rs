//! What waits for the operator: shown, told of, answered.

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::{Client, Kernel};
use serde_json::json;

use crate::permissions::{agent, entry, id, needing, pending, question};

const PENDING: &str = "mgp://kernel/pending";

async fn waiting() -> Kernel {
    Kernel::start(&entry("it", "", &["--mgp", &needing(&["shell"])])).await
}

fn shows(list: &serde_json::Value) -> bool {
    let all = list["resources"].as_array().unwrap();
    all.iter().any(|resource| resource["uri"] == PENDING)
}

/// MGP-035: the operator's connections see what waits as a resource, and hear when that changes; an
/// agent knows of no such thing.
#[tokio::test]
async fn operator_subscribes_to_pending_entries_as_a_resource() {
    for version in ["2025-11-25", MODERN] {
        let kernel = waiting().await;
        let asked = question(&kernel).await;
        let mut operator = Client::over_socket(&kernel.socket(), version, "{}").await;
        let list = operator.request("resources/list", json!({})).await.result();
        assert!(shows(&list), "{version}: {list}");
        let read = json!({"uri": PENDING});
        let text = operator
            .request("resources/read", read.clone())
            .await
            .result();
        let text = text["contents"][0]["text"].as_str().unwrap().to_owned();
        assert!(text.contains(&id(&asked)), "{text}");
        match &mut operator {
            Client::Legacy(agent) => {
                let followed = agent.request("resources/subscribe", read.clone());
                followed.await.result();
            }
            Client::Modern(agent) => {
                agent
                    .listen(json!({"resourceSubscriptions": [PENDING]}))
                    .await;
                let agreed = agent
                    .hears("notifications/subscriptions/acknowledged")
                    .await;
                let agreed = &agreed["params"]["notifications"]["resourceSubscriptions"];
                assert_eq!(*agreed, json!([PENDING]));
            }
        }
        kernel.mgp_json(&["approve", &id(&asked)]).await;
        let told = operator.hears("notifications/resources/updated").await;
        assert_eq!(told["params"]["uri"], PENDING, "{told}");
        let mut agent = agent(&kernel).await;
        let list = agent.request("resources/list", json!({})).await.result();
        assert!(!shows(&list), "{list}");
        assert!(agent.request("resources/read", read).await.is_error());
    }
}

/// An agent can neither see nor answer what waits.
#[tokio::test]
async fn an_agent_decides_nothing() {
    let kernel = waiting().await;
    let asked = question(&kernel).await;
    let mut agent = agent(&kernel).await;
    for (method, params) in [
        ("mgp/approvals/list", json!({})),
        ("mgp/approvals/approve", json!({"id": id(&asked)})),
        ("mgp/approvals/deny", json!({"id": id(&asked)})),
        (
            "mgp/permission/grant",
            json!({"request_id": id(&asked), "grants": {"shell.execute": "approved"}}),
        ),
        (
            "mgp/permission/revoke",
            json!({"server": "it", "permission": "camera"}),
        ),
    ] {
        assert_eq!(
            agent.request(method, params).await.code(),
            -32601,
            "{method}"
        );
    }
    assert_eq!(pending(&kernel).await.len(), 1);
}

/// Later drafts' word for the answer means the same; who decided is who is connected.
#[tokio::test]
async fn answer_method_of_later_drafts_is_accepted() {
    let kernel = waiting().await;
    let asked = question(&kernel).await;
    let mut operator = Client::over_socket(&kernel.socket(), "2025-11-25", "{}").await;
    let grant = json!({"request_id": id(&asked), "grants": {"shell.execute": "approved"},
        "approved_by": "somebody else", "expires_at": "2999-01-01T00:00:00Z"});
    let granted = operator
        .request("mgp/permission/grant", grant)
        .await
        .result();
    assert_eq!(granted["approved_by"], "operator", "{granted}");
    kernel.connected(&["it"]).await;
}

/// The commands say what to do, and end with the codes they promise.
#[tokio::test]
async fn the_commands_are_friendly() {
    let kernel = Kernel::start(&entry("it", "", &[])).await;
    kernel.connected(&["it"]).await;
    let nothing = kernel.mgp(&["pending"]).await;
    assert!(nothing.status.success());
    assert_eq!(nothing.stdout, b"nothing waits for you\n");
    let unknown = kernel.mgp(&["approve", "nobody"]).await;
    assert_eq!(unknown.status.code(), Some(1));
    let words = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(words.contains("`mgp pending`"), "{words}");
    let typed = kernel.mgp(&["approve", "nobody", "--for", "soon"]).await;
    assert_eq!(typed.status.code(), Some(2));

    let kernel = waiting().await;
    let asked = question(&kernel).await;
    let told = kernel.mgp(&["pending"]).await;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.starts_with(&format!("{}  server it needs shell.execute", id(&asked))));
    let done = kernel.mgp(&["approve", &id(&asked).to_uppercase()]).await;
    let done = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(
        done,
        "approved: server it needs shell.execute (shell.execute)\n"
    );
}
