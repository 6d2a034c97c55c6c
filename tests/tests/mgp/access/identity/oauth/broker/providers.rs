//! A real identity provider (oidc-provider) configured like each that people have, and the OAuth client of the TypeScript
//! SDK with nothing but the URL, as `claude mcp add --transport http` has it.

use mgp_tests::harness::{Need, Peers, Process};

use super::*;

/// A kernel with its config for this provider, which the provider knows by its redirect URI.
struct ProviderScene {
    process: Process,
    kernel: Kernel,
    issuer: String,
}

impl ProviderScene {
    async fn start(peers: &Peers, kind: &str, oauth: &str, broker: &str) -> Self {
        let mut process = Process::start("the provider", &peers.identity_provider(kind));
        let issuer = process.says("its issuer", DEADLINE, |said| {
            let line = said.lines().find(|line| line.starts_with("{\"issuer\""))?;
            let told: Value = serde_json::from_str(line).ok()?;
            Some(told["issuer"].as_str()?.to_owned())
        });
        let issuer = issuer.await;
        let entry = Program::fixture(&[]).entry("it");
        let config = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"oauth\"\n[oauth]\nissuer = \"{issuer}\"\n{oauth}\n[oauth.broker]\n\
             client_id = \"kernel\"\nclient_secret = \"a secret of the provider\"\n{broker}\n{entry}"
        );
        let kernel = Kernel::with_config(&config).await;
        kernel.connected(&["it"]).await;
        let callback = format!("{}/oauth/callback", super::issuer(&kernel));
        let origin = mgp_tests::harness::sign_in::origin(&issuer);
        let control = HttpClient::new(&format!("{origin}/control/client"));
        let answer = control.send(Method::POST, callback).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK);
        Self {
            process,
            kernel,
            issuer,
        }
    }

    async fn log(&self) -> Value {
        let origin = mgp_tests::harness::sign_in::origin(&self.issuer);
        let page = Browser::default()
            .get(&format!("{origin}/control/log"))
            .await;
        serde_json::from_str(&page.text).unwrap()
    }
}

fn last_line(said: &str, key: &str) -> Option<Value> {
    let line = said
        .lines()
        .find(|line| line.starts_with(&format!("{{\"{key}\"")))?;
    serde_json::from_str(line).ok()
}

/// The client has the URL and a person has a browser: no more.
async fn sign_in_with_the_sdk(peers: &Peers, scene: &ProviderScene, agent: &str) {
    let program = peers.node_script("clients/sign-in.mjs", &[scene.kernel.url()]);
    let mut client = Process::start("the client", &program);
    let told = client
        .says("where to sign in", DEADLINE, |said| {
            last_line(said, "authorize")
        })
        .await;
    let url = told["authorize"].as_str().unwrap();
    assert!(
        url.starts_with(&format!("{}/oauth/authorize?", issuer(&scene.kernel))),
        "{url}"
    );
    let mut browser = Browser::default();
    let page = browser.get(url).await;
    assert!(page.text.contains("A coding agent"), "{}", page.text);
    assert!(page.text.contains(&scene.issuer), "{}", page.text);
    let back = browser.follow(url, "http://localhost:").await;
    // Through the kernel's own callback, and then to the client.
    let back = if back.contains("/oauth/callback?") {
        let page = browser.get(&back).await;
        page.next().unwrap_or_else(|| panic!("{page:?}"))
    } else {
        back
    };
    browser.get(&back).await;
    let tools = client
        .says("the tools", DEADLINE, |said| last_line(said, "tools"))
        .await;
    assert!(
        tools["tools"]
            .as_array()
            .is_some_and(|tools| !tools.is_empty()),
        "{tools}"
    );
    assert_eq!(
        (&tools["secret"], &tools["kind"]),
        (&Value::Null, &json!("Bearer"))
    );
    let again = client
        .says("the renewal", DEADLINE, |said| last_line(said, "again"))
        .await;
    assert_eq!(again["renewed"], true, "{again}");
    let status = client.end(DEADLINE).await;
    assert!(status.success(), "{}", client.stderr());
    let listed = scene.kernel.mgp_json(&["agents", "list"]).await;
    assert_eq!(listed["agents"][0]["id"], agent, "{listed}");
    let asked = scene.log().await;
    let asked = asked.as_array().unwrap().last().unwrap();
    assert_eq!(
        (&asked["client_id"], &asked["code_challenge_method"]),
        (&json!("kernel"), &json!("S256"))
    );
    assert!(asked.get("resource").is_none(), "{asked}");
}

async fn play(kind: &str, oauth: &str, broker: &str, agent: &str) {
    let Some(peers) = Peers::find(&[Need::Provider, Need::Node]) else {
        return;
    };
    let mut scene = ProviderScene::start(&peers, kind, oauth, broker).await;
    sign_in_with_the_sdk(&peers, &scene, agent).await;
    assert_eq!(scene.process.ended(), None, "{}", scene.process.stderr());
}

/// EXT-233: Entra: a tenant in the issuer, an audience `api://`, a scope `.default`, no `resource`; `oid` and `groups`.
#[tokio::test]
async fn person_of_entra_signs_in_with_the_url_alone() {
    let broker = "scopes = [\"openid\", \"profile\", \"api://kernel/.default\"]\nrequire_claims = { groups = \"mcp\" }";
    play(
        "entra",
        "agent_claim = \"oid\"",
        broker,
        "agent.00000000-0000-0000-66f3-3332eca7ea81",
    )
    .await;
}

/// EXT-233: Okta: a custom authorization server, whose access tokens have an audience of their own.
#[tokio::test]
async fn person_of_okta_signs_in_with_the_url_alone() {
    let broker = "require_claims = { groups = \"mcp\" }";
    play(
        "okta",
        "agent_claim = \"preferred_username\"",
        broker,
        "agent.ada%40example.com",
    )
    .await;
}

/// EXT-233: Keycloak: a realm in the path of the issuer, `aud` is `account`.
#[tokio::test]
async fn person_of_keycloak_signs_in_with_the_url_alone() {
    play(
        "keycloak",
        "agent_claim = \"preferred_username\"",
        "",
        "agent.ada",
    )
    .await;
}

/// EXT-233: Google: opaque access tokens, no `resource`, `hd` names the company; who is of another one does not get in.
#[tokio::test]
async fn person_of_google_signs_in_with_the_url_alone() {
    let broker = "scopes = [\"openid\", \"email\"]\nrequire_claims = { hd = \"example.com\" }";
    play(
        "google",
        "agent_claim = \"email\"",
        broker,
        "agent.ada%40example.com",
    )
    .await;
    let Some(peers) = Peers::find(&[Need::Provider, Need::Node]) else {
        return;
    };
    let broker = "scopes = [\"openid\", \"email\"]\nrequire_claims = { hd = \"other.example\" }";
    let scene = ProviderScene::start(&peers, "google", "agent_claim = \"email\"", broker).await;
    let metadata = json!({"client_name": "Desk", "redirect_uris": [REDIRECT]});
    let url = format!("{}/oauth/register", issuer(&scene.kernel));
    let answer = HttpClient::new(&url)
        .send(Method::POST, metadata.to_string())
        .await
        .unwrap();
    let client: Value = serde_json::from_str(&answer.text().await).unwrap();
    let hash = encoded(digest(&SHA256, VERIFIER.as_bytes()).as_ref());
    let query = form(&[
        ("client_id", client["client_id"].as_str().unwrap()),
        ("response_type", "code"),
        ("redirect_uri", REDIRECT),
        ("code_challenge", &hash),
        ("code_challenge_method", "S256"),
    ]);
    let url = format!("{}/oauth/authorize?{query}", issuer(&scene.kernel));
    let back = Browser::default().follow(&url, REDIRECT).await;
    assert_eq!(
        parameter(&back, "error").as_deref(),
        Some("access_denied"),
        "{back}"
    );
    assert!(
        parameter(&back, "error_description")
            .unwrap()
            .contains("hd"),
        "{back}"
    );
}
