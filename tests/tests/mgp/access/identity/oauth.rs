//! OAuth 2.1 at the HTTP door: tokens that an authorization server gave out, and what is none.

mod broker;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::http::SESSION;
use mgp_tests::harness::{HttpClient, Kernel, Program};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const NEWEST: &str = "2025-11-25";
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// A tiny authorization server: its metadata, its keys, and whatever token a test wants.
struct Issuer {
    url: String,
    keys: Arc<Mutex<Vec<(String, u8)>>>,
    asked: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn pair(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn jwk(kid: &str, seed: u8) -> Value {
    let x = encoded(pair(seed).public_key().as_ref());
    json!({"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": kid, "x": x})
}

fn seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

impl Issuer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/realm", listener.local_addr().unwrap());
        let keys = Arc::new(Mutex::new(vec![("one".to_owned(), 1)]));
        let asked = Arc::new(AtomicUsize::new(0));
        let (served, counted, own) = (keys.clone(), asked.clone(), url.clone());
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let body = match head.split(' ').nth(1) {
                    Some("/.well-known/openid-configuration/realm") => {
                        json!({"issuer": own, "jwks_uri": format!("{own}/keys")})
                    }
                    Some("/realm/keys") => {
                        counted.fetch_add(1, Ordering::SeqCst);
                        let keys = served.lock().unwrap().clone();
                        let keys: Vec<_> = keys.iter().map(|(kid, seed)| jwk(kid, *seed)).collect();
                        json!({ "keys": keys })
                    }
                    _ => Value::Null,
                };
                let (status, body) = if body.is_null() {
                    ("404 Not Found", String::new())
                } else {
                    ("200 OK", body.to_string())
                };
                let len = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n{body}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self {
            url,
            keys,
            asked,
            serving,
        }
    }

    /// Claims of a token that is good at `audience`.
    fn claims(&self, audience: &str) -> Value {
        json!({
            "iss": self.url, "aud": audience, "sub": "alice", "scope": "openid mcp",
            "exp": seconds() + 600, "nbf": seconds(),
        })
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Signs with the key of this seed, whatever the header says.
fn sign(header: &Value, claims: &Value, seed: u8) -> String {
    let signed = unsigned(header, claims);
    let signature = pair(seed).sign(signed.as_bytes());
    format!("{signed}.{}", encoded(signature.as_ref()))
}

fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| encoded(value.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

fn header(kid: &str) -> Value {
    json!({"alg": "EdDSA", "typ": "at+jwt", "kid": kid})
}

fn good(issuer: &Issuer, audience: &str) -> String {
    sign(&header("one"), &issuer.claims(audience), 1)
}

async fn kernel(issuer: &Issuer, more: &str) -> Kernel {
    let entry = Program::fixture(&[]).entry("it");
    let config = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"oauth\"\n[oauth]\nissuer = \"{}\"\nscopes = [\"mcp\"]\n{more}\n{entry}",
        issuer.url
    );
    let kernel = Kernel::with_config(&config).await;
    kernel.connected(&["it"]).await;
    kernel
}

fn holder(url: &str, token: &str) -> HttpClient {
    let mut client = HttpClient::new(url);
    client.set(AUTHORIZATION, &format!("Bearer {token}"));
    client
}

/// The status, and the challenge, of what is said to who shows this token.
async fn told(url: &str, token: &str) -> (StatusCode, String) {
    let answer = holder(url, token).post(initialize(NEWEST, "{}")).await;
    let challenge = answer.headers.get(WWW_AUTHENTICATE);
    let challenge = challenge.map_or("", |value| value.to_str().unwrap());
    (answer.status, challenge.to_owned())
}

/// RFC 9728: who has no token is told where the metadata is, the metadata is there for everybody, and
/// it names the resource and who gives out tokens for it; for everything and for one server.
#[tokio::test]
async fn a_client_without_a_token_finds_out_where_to_get_one() {
    let issuer = Issuer::start().await;
    let kernel = kernel(&issuer, "").await;
    let origin = kernel.url().trim_end_matches("/mcp").to_owned();
    for path in ["/mcp", "/mcp/it"] {
        let url = format!("{origin}{path}");
        let answer = HttpClient::new(&url).post(initialize(NEWEST, "{}")).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        let challenge = answer.headers[WWW_AUTHENTICATE]
            .to_str()
            .unwrap()
            .to_owned();
        let metadata = format!("{origin}{METADATA}{path}");
        assert_eq!(
            challenge,
            format!(r#"Bearer resource_metadata="{metadata}", scope="mcp""#)
        );
        let answer = HttpClient::new(&metadata)
            .send(Method::GET, "")
            .await
            .unwrap();
        assert_eq!(answer.status, StatusCode::OK);
        let found: Value = serde_json::from_str(&answer.text().await).unwrap();
        assert_eq!(found["resource"], url);
        assert_eq!(found["authorization_servers"], json!([issuer.url]));
        assert_eq!(found["bearer_methods_supported"], json!(["header"]));
        assert_eq!(found["scopes_supported"], json!(["mcp"]));
    }
    let root = HttpClient::new(&format!("{origin}{METADATA}"));
    let found = root.send(Method::GET, "").await.unwrap().text().await;
    assert!(found.contains(kernel.url()), "{found}");
    let known = HttpClient::new(&format!("{origin}{METADATA}/mcp/it"));
    let unknown = HttpClient::new(&format!("{origin}{METADATA}/mcp/no"));
    for client in [known, unknown] {
        let answer = client.send(Method::GET, "").await.unwrap();
        assert_eq!(
            answer.status,
            StatusCode::OK,
            "which servers there are is not told"
        );
    }
}

/// MGP-190: what is no good token opens nothing: another audience, another issuer, no signature, one
/// made from the public key, an expired one, an unknown key, no scope.
#[tokio::test]
async fn only_a_valid_access_token_is_accepted() {
    let issuer = Issuer::start().await;
    let kernel = kernel(&issuer, "").await;
    let url = kernel.url();
    let (status, _) = told(url, &good(&issuer, url)).await;
    assert_eq!(status, StatusCode::OK);
    let with = |name: &str, value: Value| {
        let mut claims = issuer.claims(url);
        claims[name] = value;
        sign(&header("one"), &claims, 1)
    };
    let public = pair(1).public_key().as_ref().to_vec();
    let shared = unsigned(&json!({"alg": "HS256", "kid": "one"}), &issuer.claims(url));
    let key = hmac::Key::new(hmac::HMAC_SHA256, &public);
    let shared = format!(
        "{shared}.{}",
        encoded(hmac::sign(&key, shared.as_bytes()).as_ref())
    );
    let none = unsigned(&json!({"alg": "none"}), &issuer.claims(url));
    let bad = [
        ("audience", with("aud", json!("https://other.example/mcp"))),
        ("no audience", with("aud", json!(null))),
        ("port", with("aud", json!("http://localhost:1/mcp"))),
        ("issuer", with("iss", json!("http://127.0.0.1:1"))),
        ("expired", with("exp", json!(seconds() - 60))),
        ("without end", with("exp", json!(null))),
        ("not yet", with("nbf", json!(seconds() + 600))),
        ("a reserved name", with("sub", json!("operator"))),
        ("unknown key", sign(&header("two"), &issuer.claims(url), 2)),
        ("another key", sign(&header("one"), &issuer.claims(url), 2)),
        ("shared secret", shared),
        ("none", format!("{none}.")),
        ("unsigned", none),
        ("noise", "a.b.c".into()),
    ];
    for (what, token) in bad {
        let (status, challenge) = told(url, &token).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{what}");
        assert!(
            challenge.contains(r#"error="invalid_token""#),
            "{what}: {challenge}"
        );
        assert!(
            challenge.contains("resource_metadata="),
            "{what}: {challenge}"
        );
    }
    let (status, challenge) = told(url, &with("scope", json!("openid"))).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(
        challenge.contains(r#"error="insufficient_scope""#),
        "{challenge}"
    );
    assert!(challenge.contains(r#"scope="mcp""#), "{challenge}");
}

/// RSA and elliptic curves: each token by the key of its kind, and by no other, whatever its header says.
#[tokio::test]
async fn a_key_signs_in_the_way_of_its_kind() {
    let random = SystemRandom::new();
    let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
    let ec = EcdsaKeyPair::from_pkcs8(kind, pkcs8.as_ref(), &random).unwrap();
    // Made for this test; nothing else knows it.
    let rsa = RsaKeyPair::from_pkcs8(include_bytes!("oauth/rsa.pk8")).unwrap();
    let public = PublicKeyComponents::<Vec<u8>>::from(rsa.public());
    let point = ec.public_key().as_ref();
    let keys = json!({"keys": [
        {"kty": "EC", "crv": "P-256", "kid": "ec", "x": encoded(&point[1..33]), "y": encoded(&point[33..])},
        {"kty": "RSA", "kid": "rsa", "n": encoded(&public.n), "e": encoded(&public.e)},
    ]});
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    std::fs::write(&file, keys.to_string()).unwrap();
    let issuer = Issuer::start().await;
    let kernel = kernel(&issuer, &format!("jwks_file = {file:?}")).await;
    let url = kernel.url();
    let by_ec = |text: &[u8]| ec.sign(&random, text).unwrap().as_ref().to_vec();
    let by_rsa = |way: &'static dyn RsaEncoding, text: &[u8]| {
        let mut signature = vec![0; rsa.public().modulus_len()];
        rsa.sign(way, &random, text, &mut signature).unwrap();
        signature
    };
    let token = |alg: &str, kid: &str, sign: &dyn Fn(&[u8]) -> Vec<u8>| {
        let signed = unsigned(&json!({"alg": alg, "kid": kid}), &issuer.claims(url));
        let signature = encoded(&sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    };
    let pkcs1 = |text: &[u8]| by_rsa(&RSA_PKCS1_SHA256, text);
    let pss = |text: &[u8]| by_rsa(&RSA_PSS_SHA256, text);
    let long = |text: &[u8]| by_rsa(&RSA_PKCS1_SHA512, text);
    for (what, token, wanted) in [
        ("ES256", token("ES256", "ec", &by_ec), StatusCode::OK),
        ("RS256", token("RS256", "rsa", &pkcs1), StatusCode::OK),
        ("PS256", token("PS256", "rsa", &pss), StatusCode::OK),
        (
            "one RSA for the other",
            token("RS256", "rsa", &pss),
            StatusCode::UNAUTHORIZED,
        ),
        (
            "not configured",
            token("RS512", "rsa", &long),
            StatusCode::UNAUTHORIZED,
        ),
        (
            "the other key",
            token("ES256", "rsa", &by_ec),
            StatusCode::UNAUTHORIZED,
        ),
        (
            "the other kind",
            token("RS256", "ec", &by_ec),
            StatusCode::UNAUTHORIZED,
        ),
    ] {
        assert_eq!(told(url, &token).await.0, wanted, "{what}");
    }
}

/// RFC 8707: a token for one server opens that server and nothing else; one for everything opens each.
#[tokio::test]
async fn access_token_is_valid_for_its_audience_alone() {
    let issuer = Issuer::start().await;
    let kernel = kernel(&issuer, "audience = [\"api://door\"]").await;
    let (all, one) = (kernel.url().to_owned(), kernel.server_url("it"));
    for (audience, at, wanted) in [
        (&one, &one, StatusCode::OK),
        (&one, &all, StatusCode::UNAUTHORIZED),
        (&all, &one, StatusCode::OK),
        (&"api://door".to_owned(), &all, StatusCode::OK),
        (&"api://other".to_owned(), &all, StatusCode::UNAUTHORIZED),
    ] {
        let (status, _) = told(at, &good(&issuer, audience)).await;
        assert_eq!(status, wanted, "{audience} at {at}");
    }
}

/// The claim names the agent: two subjects are two agents, and neither sees the other's session. The
/// kernel's own tokens open the door beside them.
#[tokio::test]
async fn the_subject_is_the_agent() {
    let issuer = Issuer::start().await;
    let kernel = kernel(&issuer, "").await;
    let url = kernel.url();
    let mut alice = holder(url, &good(&issuer, url));
    alice.open_session(NEWEST, "{}").await;
    let mut claims = issuer.claims(url);
    claims["sub"] = json!("bob");
    let mut bob = holder(url, &sign(&header("one"), &claims, 1));
    bob.headers.insert(SESSION, alice.headers[&SESSION].clone());
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    assert_eq!(bob.post(list.clone()).await.status, StatusCode::NOT_FOUND);
    // Another token of the same agent goes on with its session.
    let mut claims = issuer.claims(url);
    claims["exp"] = json!(seconds() + 700);
    let mut again = alice.clone();
    let token = sign(&header("one"), &claims, 1);
    again.set(AUTHORIZATION, &format!("Bearer {token}"));
    assert_eq!(again.post(list).await.status, StatusCode::OK);
    let made = kernel.mgp_json(&["agents", "add", "carol"]).await;
    let carol = holder(url, made["token"].as_str().unwrap());
    assert_eq!(
        carol.post(initialize(NEWEST, "{}")).await.status,
        StatusCode::OK
    );
}

/// Keys are fetched once and held while the issuer is away; a key that nobody knows does not make the
/// kernel ask again and again.
#[tokio::test]
async fn signing_keys_are_cached_and_fetched_at_a_limited_rate() {
    let issuer = Issuer::start().await;
    let kernel = kernel(&issuer, "").await;
    let url = kernel.url();
    assert_eq!(told(url, &good(&issuer, url)).await.0, StatusCode::OK);
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 1);
    for n in 0..20 {
        let unknown = sign(&header(&format!("k{n}")), &issuer.claims(url), 3);
        assert_eq!(told(url, &unknown).await.0, StatusCode::UNAUTHORIZED);
    }
    let asked = issuer.asked.load(Ordering::SeqCst);
    assert!(asked <= 3, "asked {asked} times");
    issuer.keys.lock().unwrap().push(("two".into(), 2));
    issuer.serving.abort();
    let mut claims = issuer.claims(url);
    claims["jti"] = json!("another token");
    let another = sign(&header("one"), &claims, 1);
    assert_eq!(told(url, &another).await.0, StatusCode::OK);
}

/// A key that the issuer has begun to use is fetched when the first token made with it comes.
#[tokio::test]
async fn a_new_key_is_fetched() {
    let issuer = Issuer::start().await;
    let kernel = kernel(&issuer, "").await;
    let url = kernel.url();
    issuer.keys.lock().unwrap().push(("two".into(), 2));
    assert_eq!(told(url, &good(&issuer, url)).await.0, StatusCode::OK);
    issuer.keys.lock().unwrap().push(("three".into(), 3));
    let token = sign(&header("three"), &issuer.claims(url), 3);
    mgp_tests::harness::wait_until(
        "the key is fetched",
        mgp_tests::harness::DEADLINE,
        async || told(url, &token).await.0 == StatusCode::OK,
    )
    .await;
}

/// EXT-213: a token's claims give the groups that the operator mapped, and no others; another token of the same agent
/// opens a session of its own.
#[tokio::test]
async fn a_claim_gives_a_group_by_the_operators_mapping() {
    let issuer = Issuer::start().await;
    let more = "groups = { Engineering = \"readers\", Ops = \"ops\" }\ngroup_scopes = { ops = \"ops.all\" }\n[access]\ndefault_policy = \"opt-in\"\n";
    let kernel = kernel(&issuer, more).await;
    for group in ["group.readers", "group.ops"] {
        kernel.mgp_json(&["grants", "add", group, "it:count"]).await;
    }
    let url = kernel.url();
    let with = |groups: Value, scope: &str| {
        let mut claims = issuer.claims(url);
        claims["groups"] = groups;
        claims["scope"] = json!(scope);
        sign(&header("one"), &claims, 1)
    };
    let may = async |token: &str| {
        let call = json!({"name": "it__count", "arguments": {}});
        let answer = super::ask(&holder(url, token), "{}", "tools/call", call).await;
        answer["result"].is_object() && answer["result"]["isError"] != true
    };
    let reader = with(json!(["Engineering", "x"]), "mcp");
    for (token, allowed) in [
        (good(&issuer, url), false),
        (reader.clone(), true),
        (with(json!("Engineering"), "mcp"), true),
        (
            with(json!(["readers", "group.readers", "engineering"]), "mcp"),
            false,
        ),
        (with(json!([]), "mcp readers Engineering"), false),
        (with(json!(["Ops"]), "mcp"), false),
        (with(json!(["Ops"]), "mcp ops.all"), true),
    ] {
        assert_eq!(may(&token).await, allowed, "{token}");
    }
    let (status, _) = told(url, &with(json!({"Engineering": 1}), "mcp")).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    // A session has the groups of the token that opened it, and is that token's alone.
    let mut client = holder(url, &reader);
    client.open_session(NEWEST, "{}").await;
    let list = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/list"}).to_string();
    let listed = client.post(list.clone()).await;
    assert_eq!(listed.status, StatusCode::OK);
    client.set(AUTHORIZATION, &format!("Bearer {}", good(&issuer, url)));
    assert_eq!(client.post(list).await.status, StatusCode::NOT_FOUND);
    let groups = kernel.mgp_json(&["groups", "list"]).await;
    assert_eq!(
        groups["groups"][1]["claims"],
        json!(["Engineering"]),
        "{groups:#}"
    );
}
