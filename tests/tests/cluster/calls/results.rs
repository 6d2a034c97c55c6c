//! Results of a server of another node: guarded at the owner and at the caller's kernel, each by its own settings.

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::kernel::nodes::{JoinedNodes, config};
use mgp_tests::harness::mgp::{NINE, declaration, speaks_mgp};
use mgp_tests::harness::{Client, Kernel, Program};
use serde_json::json;

use crate::scene::NEWEST;

const KEY: &str = "ghp_a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6g7H8";
const MAIL: &str = "ada@example.com";
const CHUNK: &str = "notifications/mgp.stream.chunk";

async fn nodes(owner: &str, caller: &str) -> JoinedNodes {
    let said = declaration(&NINE).to_string();
    let server = Program::fixture(&["--mgp", &said]).entry("demo");
    let nas = config("nas", "127.0.0.1:0", &format!("{server}{owner}"));
    let desk = config("desk", "127.0.0.1:0", caller);
    let (nas, desk) = (
        Kernel::with_config(&nas).await,
        Kernel::with_config(&desk).await,
    );
    JoinedNodes::joined(nas, desk, &["demo"]).await
}

/// EXT-191.
#[tokio::test(flavor = "multi_thread")]
async fn each_node_guards_results_by_its_own_settings() {
    let secrets = "[servers.results]\npersonal = []\n";
    let mail = "[cluster.results]\nsecrets = false\npersonal = [\"email\"]\n";
    for (owner, caller, masked) in [
        (secrets, "", format!("[redacted:github] {MAIL}")),
        ("", mail, format!("{KEY} [redacted:email]")),
        (
            secrets,
            mail,
            "[redacted:github] [redacted:email]".to_owned(),
        ),
        ("", "", format!("{KEY} {MAIL}")),
    ] {
        let nodes = nodes(owner, caller).await;
        for version in [NEWEST, MODERN] {
            let case = format!("{version} {owner:?} {caller:?}");
            let url = nodes.desk.url();
            let mut client = Client::over_http(url, version, &speaks_mgp(version)).await;
            let text = format!("{KEY} {MAIL}");
            let echo = client
                .call("nas__demo__echo", json!({ "text": text }))
                .await;
            assert_eq!(echo.text(), masked, "{case}");
            let error = json!({"error": {"code": -32000, "message": text}});
            let failed = client.call("nas__demo__fail", error).await;
            assert_eq!(failed.error()["message"], masked, "{case}");
            let (head, tail) = text.split_at(20);
            let steps = json!([
                {"chunk": 0, "text": head}, {"chunk": 1, "text": tail}, {"chunk": 2, "text": "", "done": true},
            ]);
            let params = json!({"name": "nas__demo__stream", "arguments": {"steps": steps}, "_mgp": {"stream": true}});
            let id = client.start("tools/call", params).await;
            assert_eq!(client.answer_to(&id).await.text(), masked, "{case}");
            let heard = client.heard(CHUNK).into_iter();
            let told = heard.map(|chunk| chunk["params"]["content"]["text"].as_str().unwrap());
            assert_eq!(told.collect::<String>(), masked, "{case}");
            client.close().await;
        }
    }
}
