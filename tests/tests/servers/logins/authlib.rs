//! Logins at a provider of another make (authlib): a client that is given a secret and is to keep none, tokens by
//! rotation, and codes that are good once.

use http::Method;
use http::header::CONTENT_TYPE;
use mgp_tests::harness::{HttpClient, Need, Peers};
use serde_json::{Value, json};

use super::{LoginScene, words};

/// A login at a real authorization server of Python: by registration and PKCE, renewed once for any number of calls,
/// rotated, taken back; a code that was used is good for nobody.
#[tokio::test]
async fn a_login_at_another_provider_is_renewed_and_taken_back() {
    let Some(peers) = Peers::find(&[Need::Authlib]) else {
        return;
    };
    let Some(scene) = LoginScene::at(&peers.authlib(), "").await else {
        return;
    };
    let (mut login, url) = scene.begins(&["docs"]).await;
    let back = scene.browse(&url).await;
    let answer = HttpClient::new(&back).send(Method::GET, "").await.unwrap();
    assert!(answer.text().await.contains("You can close this tab"));
    let status = login.end(mgp_tests::harness::DEADLINE).await;
    assert!(status.success(), "{}", login.stderr());
    assert!(login.stdout().contains(&scene.issuer), "{}", login.stdout());
    let mut agent = scene.agent().await;
    assert_eq!(agent.call("read", json!({})).await.text(), "read for ada");

    // Who saw the address that the browser came back to has a code that was used.
    let code = back
        .split(['?', '&'])
        .find_map(|part| part.strip_prefix("code="));
    let client = url
        .split(['?', '&'])
        .find_map(|part| part.strip_prefix("client_id="));
    let mut thief = HttpClient::new(&format!("{}/token", scene.issuer));
    thief.set(CONTENT_TYPE, "application/x-www-form-urlencoded");
    let form = format!(
        "grant_type=authorization_code&code={}&client_id={}&redirect_uri=x&code_verifier={}",
        code.unwrap(),
        client.unwrap(),
        "a".repeat(43)
    );
    let stolen = thief.send(Method::POST, form).await.unwrap();
    let told: Value = serde_json::from_str(&stolen.text().await).unwrap();
    assert_eq!(told["error"], "invalid_grant", "{told}");

    for round in 1..=2 {
        scene.control("expire", Method::POST, "").await;
        let mut ids = Vec::new();
        for _ in 0..10 {
            let params = json!({"name": "read", "arguments": {}});
            ids.push(agent.start("tools/call", params).await);
        }
        for id in ids {
            assert_eq!(agent.answer_to(&id).await.text(), "read for ada");
        }
        assert_eq!(scene.count("token refresh_token").await, round);
    }
    let out = words(&scene.mgp(&["logins", "remove", "docs"]).await);
    assert!(out.contains("the login at docs is forgotten"), "{out}");
    assert!(scene.count("revoked").await >= 1);
    scene.is("docs", "error").await;
}
