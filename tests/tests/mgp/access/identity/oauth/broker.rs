//! An identity provider that registers no clients, with the kernel as broker in front: what clients and browsers get from
//! it, and what nobody gets.

mod attacks;
mod bound;
mod documents;
mod groups;
mod providers;

use std::sync::{Arc, Mutex};

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, StatusCode};
use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::sign_in::{Browser, Page};
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Program};
use nix::sys::signal::Signal;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::{NEWEST, encoded, jwk, seconds, sign};

const REDIRECT: &str = "http://127.0.0.1:7777/callback";
const VERIFIER: &str = "a-verifier-that-only-the-client-knows-0123456789";
const FORM: &str = "application/x-www-form-urlencoded";

/// A provider that signs whatever a test wants, and notes what it is asked.
struct ScriptedProvider {
    issuer: String,
    /// Claims of the next ID tokens that differ from a good one's, and the header.
    changes: Arc<Mutex<(Value, Value)>>,
    /// The nonce of the sign-in under way.
    nonce: Arc<Mutex<String>>,
    /// The bodies of token requests.
    asked: Arc<Mutex<Vec<String>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for ScriptedProvider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ScriptedProvider {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}/realms/tools", listener.local_addr().unwrap());
        let changes = Arc::new(Mutex::new((json!({}), id_header())));
        let (nonce, asked) = (
            Arc::<Mutex<String>>::default(),
            Arc::<Mutex<Vec<String>>>::default(),
        );
        let shared = (
            issuer.clone(),
            changes.clone(),
            nonce.clone(),
            asked.clone(),
        );
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let (mut path, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    if stream.read_line(&mut line).await.unwrap_or(0) <= 2 {
                        break;
                    }
                    if path.is_empty() {
                        path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                    }
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap_or(0);
                    }
                }
                let mut body = vec![0; length];
                let _ = stream.read_exact(&mut body).await;
                let answer = respond(&shared, &path, &String::from_utf8_lossy(&body));
                let (status, answer) = match answer {
                    Some(answer) => ("200 OK", answer.to_string()),
                    None => ("404 Not Found", String::new()),
                };
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
                    answer.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self {
            issuer,
            changes,
            nonce,
            asked,
            serving,
        }
    }

    /// A good ID token for an audience.
    fn token(&self, audience: &str) -> String {
        let nonce = self.nonce.lock().unwrap().clone();
        sign(&id_header(), &claims(&self.issuer, audience, &nonce), 1)
    }
}

fn id_header() -> Value {
    json!({"alg": "EdDSA", "typ": "JWT", "kid": "one"})
}

fn claims(issuer: &str, audience: &str, nonce: &str) -> Value {
    json!({
        "iss": issuer, "aud": audience, "sub": "ada", "nonce": nonce, "exp": seconds() + 600,
    })
}

type Shared = (
    String,
    Arc<Mutex<(Value, Value)>>,
    Arc<Mutex<String>>,
    Arc<Mutex<Vec<String>>>,
);

fn respond((issuer, changes, nonce, asked): &Shared, path: &str, body: &str) -> Option<Value> {
    match path {
        "/realms/tools/.well-known/openid-configuration" => Some(json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/auth"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
            "authorization_response_iss_parameter_supported": true,
        })),
        "/realms/tools/keys" => Some(json!({ "keys": [jwk("one", 1)] })),
        "/realms/tools/token" => {
            asked.lock().unwrap().push(body.to_owned());
            let mut claims = claims(issuer, "kernel", &nonce.lock().unwrap());
            let (changes, header) = changes.lock().unwrap().clone();
            for (name, value) in changes.as_object().unwrap() {
                claims[name] = value.clone();
            }
            Some(json!({
                "access_token": "the access token of the provider", "token_type": "Bearer",
                "refresh_token": "the refresh token of the provider", "id_token": sign(&header, &claims, 1),
            }))
        }
        _ => None,
    }
}

/// A kernel that is a broker, before a provider.
struct Scene {
    provider: ScriptedProvider,
    kernel: Kernel,
}

fn config(issuer: &str, more: &str) -> String {
    let entry = Program::fixture(&[]).entry("it");
    format!(
        "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"oauth\"\n[oauth]\nissuer = \"{issuer}\"\n{more}\n\
         [oauth.broker]\nclient_id = \"kernel\"\nclient_secret = \"the secret at the provider\"\n\
         clients = {{ desk = \"the secret of the desk\" }}\n{entry}"
    )
}

impl Scene {
    async fn start(more: &str) -> Self {
        let provider = ScriptedProvider::start().await;
        let kernel = Kernel::with_config(&config(&provider.issuer, more)).await;
        kernel.connected(&["it"]).await;
        Self { provider, kernel }
    }

    /// The broker's own name: one, whatever host a client used.
    fn issuer(&self) -> String {
        issuer(&self.kernel)
    }

    fn resource(&self) -> String {
        format!("{}/mcp", self.issuer())
    }

    async fn register(&self, metadata: &Value) -> (StatusCode, Value) {
        let url = format!("{}/oauth/register", self.issuer());
        let answer = HttpClient::new(&url)
            .send(Method::POST, metadata.to_string())
            .await
            .unwrap();
        (
            answer.status,
            serde_json::from_str(&answer.text().await).unwrap(),
        )
    }

    async fn client(&self, name: &str) -> String {
        let metadata = json!({"client_name": name, "redirect_uris": [REDIRECT]});
        let (status, client) = self.register(&metadata).await;
        assert_eq!(status, StatusCode::CREATED, "{client}");
        client["client_id"].as_str().unwrap().to_owned()
    }

    /// The address that a client opens in the browser.
    fn authorize_url(&self, client: &str, changes: &[(&str, &str)]) -> String {
        let hash = encoded(digest(&SHA256, VERIFIER.as_bytes()).as_ref());
        let resource = self.resource();
        let mut all = vec![
            ("client_id", client),
            ("response_type", "code"),
            ("redirect_uri", REDIRECT),
            ("state", "st"),
            ("code_challenge", &hash),
            ("code_challenge_method", "S256"),
            ("resource", &resource),
        ];
        for (name, value) in changes {
            all.retain(|(known, _)| known != name);
            all.push((name, value));
        }
        format!("{}/oauth/authorize?{}", self.issuer(), form(&all))
    }

    /// The page that asks, in a browser.
    async fn ask(&self, browser: &mut Browser, client: &str) -> Page {
        let page = browser.get(&self.authorize_url(client, &[])).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.text);
        page
    }

    /// Allows, up to the provider: where its answer comes to.
    async fn allow(&self, browser: &mut Browser, page: &Page) -> String {
        let forward = browser.answer(page, "allow").await;
        let at = forward.next().unwrap_or_else(|| panic!("{forward:?}"));
        assert!(
            at.starts_with(&format!("{}/auth?", self.provider.issuer)),
            "{at}"
        );
        *self.provider.nonce.lock().unwrap() = parameter(&at, "nonce").unwrap();
        let callback = parameter(&at, "redirect_uri").unwrap();
        let state = parameter(&at, "state").unwrap();
        assert_eq!(callback, format!("{}/oauth/callback", self.issuer()));
        let iss = self.provider.issuer.clone();
        format!(
            "{callback}?{}",
            form(&[("code", "c"), ("state", &state), ("iss", &iss)])
        )
    }

    /// The whole way of a browser: the address that the client gets.
    async fn browse(&self, browser: &mut Browser, client: &str) -> String {
        let page = self.ask(browser, client).await;
        let back = self.allow(browser, &page).await;
        let page = browser.get(&back).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.text);
        page.next().unwrap()
    }

    async fn code(&self, client: &str) -> String {
        let url = self.browse(&mut Browser::default(), client).await;
        assert!(url.starts_with(&format!("{REDIRECT}?")), "{url}");
        assert_eq!(parameter(&url, "state").as_deref(), Some("st"));
        assert_eq!(parameter(&url, "iss"), Some(self.issuer()));
        parameter(&url, "code").unwrap_or_else(|| panic!("{url}"))
    }

    /// Asks the token endpoint.
    async fn token(&self, form: &[(&str, &str)]) -> (StatusCode, Value) {
        token_at(&self.issuer(), form, &[]).await
    }

    async fn redeem(
        &self,
        client: &str,
        code: &str,
        changes: &[(&str, &str)],
    ) -> (StatusCode, Value) {
        self.token(&redeeming(client, code, changes)).await
    }

    async fn sign_in(&self, client: &str) -> Value {
        let code = self.code(client).await;
        let (status, tokens) = self.redeem(client, &code, &[]).await;
        assert_eq!(status, StatusCode::OK, "{tokens}");
        tokens
    }

    async fn refresh(&self, client: &str, tokens: &Value) -> (StatusCode, Value) {
        let refresh = tokens["refresh_token"].as_str().unwrap();
        let form = [
            ("grant_type", "refresh_token"),
            ("client_id", client),
            ("refresh_token", refresh),
        ];
        self.token(&form).await
    }

    /// The kernel starts again with a changed configuration, at the same address.
    async fn restart(self, change: impl FnOnce(String) -> String) -> Self {
        let port = self.issuer().rsplit(':').next().unwrap().to_owned();
        let folder = self.kernel.end(Signal::SIGTERM, DEADLINE).await;
        let file = folder.path().join("mgp.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
        std::fs::write(&file, change(text)).unwrap();
        let kernel = Kernel::again(folder).await;
        kernel.connected(&["it"]).await;
        Self { kernel, ..self }
    }

    /// What the door says to who shows this token.
    async fn knock(&self, token: &str) -> StatusCode {
        knock(&self.resource(), token).await
    }
}

fn redeeming<'f>(
    client: &'f str,
    code: &'f str,
    changes: &[(&'f str, &'f str)],
) -> Vec<(&'f str, &'f str)> {
    let mut form = vec![
        ("grant_type", "authorization_code"),
        ("client_id", client),
        ("code", code),
        ("redirect_uri", REDIRECT),
        ("code_verifier", VERIFIER),
    ];
    for (name, value) in changes {
        form.retain(|(known, _)| known != name);
        form.push((name, value));
    }
    form
}

fn issuer(kernel: &Kernel) -> String {
    let url = kernel.url().replace("127.0.0.1", "localhost");
    url.trim_end_matches("/mcp").to_owned()
}

async fn knock(url: &str, token: &str) -> StatusCode {
    let mut client = HttpClient::new(url);
    client.set(AUTHORIZATION, &format!("Bearer {token}"));
    client.post(initialize(NEWEST, "{}")).await.status
}

async fn token_at(
    issuer: &str,
    fields: &[(&str, &str)],
    headers: &[(http::HeaderName, &str)],
) -> (StatusCode, Value) {
    let mut client = HttpClient::new(&format!("{issuer}/oauth/token"));
    client.set(CONTENT_TYPE, FORM);
    for (name, value) in headers {
        client.set(name.clone(), value);
    }
    let answer = client.send(Method::POST, form(fields)).await.unwrap();
    assert_eq!(answer.headers["cache-control"], "no-store");
    let status = answer.status;
    let text = answer.text().await;
    (
        status,
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}")),
    )
}

fn form(pairs: &[(&str, &str)]) -> String {
    let encode = |text: &str| -> String {
        text.bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                    char::from(byte).to_string()
                }
                _ => format!("%{byte:02X}"),
            })
            .collect()
    };
    let pairs = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn parameter(url: &str, name: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(&format!("{name}=")))?;
    let mut out = Vec::new();
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

/// EXT-220: who has no token finds the broker from the challenge alone; the metadata says what it does, and without the key
/// there is nothing of it.
#[tokio::test]
async fn client_finds_the_broker_from_the_challenge() {
    let scene = Scene::start("").await;
    let answer = HttpClient::new(scene.kernel.url())
        .post(initialize(NEWEST, "{}"))
        .await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    let challenge = answer.headers["www-authenticate"].to_str().unwrap();
    let (_, url) = challenge.split_once("resource_metadata=\"").unwrap();
    let mut browser = Browser::default();
    let found = browser.get(url.split_once('"').unwrap().0).await;
    let found: Value = serde_json::from_str(&found.text).unwrap();
    assert_eq!(found["resource"], scene.kernel.url());
    assert_eq!(found["authorization_servers"], json!([scene.issuer()]));
    let url = format!("{}/.well-known/oauth-authorization-server", scene.issuer());
    let metadata = browser.get(&url).await;
    let metadata: Value = serde_json::from_str(&metadata.text).unwrap();
    assert_eq!(metadata["issuer"], scene.issuer());
    assert_eq!(
        metadata["code_challenge_methods_supported"],
        json!(["S256"])
    );
    assert_eq!(metadata["response_types_supported"], json!(["code"]));
    for (key, path) in [
        ("authorization_endpoint", "authorize"),
        ("token_endpoint", "token"),
        ("registration_endpoint", "register"),
        ("revocation_endpoint", "revoke"),
    ] {
        assert_eq!(metadata[key], format!("{}/oauth/{path}", scene.issuer()));
    }
    for flag in [
        "authorization_response_iss_parameter_supported",
        "client_id_metadata_document_supported",
    ] {
        assert_eq!(metadata[flag], true, "{flag}");
    }
    let without = Kernel::with_config("[http]\nlisten = \"127.0.0.1:0\"\n").await;
    for path in [
        "/.well-known/oauth-authorization-server",
        "/oauth/authorize",
        "/oauth/callback",
    ] {
        let page = browser.get(&format!("{}{path}", issuer(&without))).await;
        assert_eq!(page.status, StatusCode::NOT_FOUND, "{path}");
    }
}

/// EXT-227, EXT-228: a person signs in at the provider and a client gets tokens of the kernel, which outlive a restart;
/// refresh tokens rotate, and a second use ends the sign-in.
#[tokio::test]
async fn client_of_a_person_gets_tokens_of_the_kernel() {
    let scene = Scene::start("").await;
    let client = scene.client("Desk").await;
    let tokens = scene.sign_in(&client).await;
    assert_eq!(tokens["token_type"], "Bearer");
    assert_eq!(tokens["expires_in"], 3600);
    let access = tokens["access_token"].as_str().unwrap().to_owned();
    assert_eq!(scene.knock(&access).await, StatusCode::OK);
    let asked = scene.provider.asked.lock().unwrap().clone();
    assert!(
        asked[0].contains("client_secret=") && asked[0].contains("code_verifier="),
        "{asked:?}"
    );
    assert!(!asked[0].contains(VERIFIER), "PKCE of its own");
    let listed = scene.kernel.mgp_json(&["agents", "list"]).await;
    assert_eq!(listed["agents"][0]["id"], "agent.ada", "{listed}");

    let (status, second) = scene.refresh(&client, &tokens).await;
    assert_eq!(status, StatusCode::OK, "{second}");
    assert_ne!(second["refresh_token"], tokens["refresh_token"]);
    let scene = scene.restart(|text| text).await;
    assert_eq!(scene.knock(&access).await, StatusCode::OK);
    let (status, third) = scene.refresh(&client, &second).await;
    assert_eq!(status, StatusCode::OK, "{third}");
    let (status, reused) = scene.refresh(&client, &tokens).await;
    assert_eq!(
        (status, &reused["error"]),
        (StatusCode::BAD_REQUEST, &json!("invalid_grant"))
    );
    let (status, _) = scene.refresh(&client, &third).await;
    assert_eq!(
        status,
        StatusCode::BAD_REQUEST,
        "the client's newest has ended with it"
    );
    for token in [&access, third["access_token"].as_str().unwrap()] {
        assert_eq!(scene.knock(token).await, StatusCode::UNAUTHORIZED);
    }
}

/// EXT-228: `mgp agents remove` and a client's revocation end tokens at once, also for a request under way.
#[tokio::test]
async fn removed_agent_and_revoked_token_are_out_at_once() {
    let scene = Scene::start("").await;
    let (one, other) = (scene.client("One").await, scene.client("Other").await);
    let (first, second) = (scene.sign_in(&one).await, scene.sign_in(&other).await);
    let revoke = async |client: &str, token: &Value| {
        let mut http = HttpClient::new(&format!("{}/oauth/revoke", scene.issuer()));
        http.set(CONTENT_TYPE, FORM);
        let body = form(&[("client_id", client), ("token", token.as_str().unwrap())]);
        http.send(Method::POST, body).await.unwrap().status
    };
    let access = |tokens: &Value| tokens["access_token"].as_str().unwrap().to_owned();
    assert_eq!(
        revoke(&other, &first["refresh_token"]).await,
        StatusCode::OK
    );
    assert_eq!(
        scene.knock(&access(&first)).await,
        StatusCode::OK,
        "not by another client"
    );
    assert_eq!(revoke(&one, &first["refresh_token"]).await, StatusCode::OK);
    assert_eq!(scene.knock(&access(&first)).await, StatusCode::UNAUTHORIZED);

    let mut agent = HttpClient::new(&scene.resource());
    agent.set(AUTHORIZATION, &format!("Bearer {}", access(&second)));
    agent.open_session(NEWEST, "{}").await;
    let stream = agent.get(None).await;
    let removed = scene.kernel.mgp(&["agents", "remove", "ada"]).await;
    assert!(removed.status.success(), "{removed:?}");
    stream.text().await;
    assert_eq!(
        scene.knock(&access(&second)).await,
        StatusCode::UNAUTHORIZED
    );
    let (status, _) = scene.refresh(&other, &second).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let unknown = scene.kernel.mgp(&["agents", "remove", "ada"]).await;
    assert!(!unknown.status.success());
}

/// EXT-228: a person whose name has other characters than an agent's is removed, denied and shown like every other, in both
/// spellings; one whose id would read as another agent's gets none.
#[tokio::test]
async fn person_with_a_mail_address_is_removed_and_denied() {
    let scene = Scene::start("").await;
    let client = scene.client("Desk").await;
    let sign_in = async |subject: &str| {
        *scene.provider.changes.lock().unwrap() = (json!({"sub": subject}), id_header());
        scene.sign_in(&client).await["access_token"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let printed = "agent.ada%40example.com";
    for spelling in [printed, "ada@example.com"] {
        let token = sign_in("ada@example.com").await;
        assert_eq!(scene.knock(&token).await, StatusCode::OK);
        let listed = scene.kernel.mgp_json(&["agents", "list"]).await;
        assert_eq!(listed["agents"][0]["id"], printed, "{listed}");
        let removed = scene.kernel.mgp(&["agents", "remove", spelling]).await;
        assert!(removed.status.success(), "{spelling}: {removed:?}");
        assert_eq!(scene.knock(&token).await, StatusCode::UNAUTHORIZED);
    }
    sign_in("ada@example.com").await;
    let denied = scene
        .kernel
        .mgp(&["grants", "add", printed, "it", "--deny"])
        .await;
    assert!(denied.status.success(), "{denied:?}");
    *scene.provider.changes.lock().unwrap() = (json!({"sub": "agent.eve"}), id_header());
    let url = scene.browse(&mut Browser::default(), &client).await;
    assert_eq!(parameter(&url, "error").as_deref(), Some("access_denied"));
}

/// What a kernel leaves behind has no token in it, and no secret of the provider.
fn contents(folder: &TempDir) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder.path().join("data")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            all.extend(std::fs::read(path).unwrap());
        }
    }
    all
}

/// EXT-227: the provider's tokens are stored nowhere, and the kernel's own only with their clients.
#[tokio::test]
async fn no_token_is_stored() {
    let scene = Scene::start("").await;
    let client = scene.client("Desk").await;
    let tokens = scene.sign_in(&client).await;
    let folder = scene.kernel.end(Signal::SIGTERM, DEADLINE).await;
    let stored = contents(&folder);
    let has = |text: &str| {
        stored
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    assert!(has("agent.ada"), "the sign-in is stored");
    for secret in [
        "the access token of the provider",
        "the refresh token of the provider",
        "the secret at the provider",
        tokens["access_token"].as_str().unwrap(),
        tokens["refresh_token"].as_str().unwrap(),
    ] {
        assert!(!has(secret), "{secret}");
    }
}
