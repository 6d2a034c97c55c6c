//! Tokens that are bound to a key (DPoP, RFC 9449), and assertions that stand for a person (ID-JAG, SEP-990).

use http::header::HeaderName;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

use super::*;

const PROOF: HeaderName = HeaderName::from_static("dpop");
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// A client's key.
struct ProofKey(EcdsaKeyPair);

impl ProofKey {
    fn new() -> Self {
        let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(kind, pkcs8.as_ref(), &random).unwrap())
    }

    fn prove(&self, id: &str, method: &str, url: &str, token: Option<&str>) -> String {
        let point = self.0.public_key().as_ref();
        let jwk = json!({"kty": "EC", "crv": "P-256", "x": encoded(&point[1..33]), "y": encoded(&point[33..])});
        let mut claims = json!({"jti": id, "htm": method, "htu": url, "iat": seconds()});
        if let Some(token) = token {
            claims["ath"] = encoded(digest(&SHA256, token.as_bytes()).as_ref()).into();
        }
        let header = json!({"typ": "dpop+jwt", "alg": "ES256", "jwk": jwk});
        let part = |value: &Value| encoded(value.to_string().as_bytes());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self
            .0
            .sign(&SystemRandom::new(), signed.as_bytes())
            .unwrap();
        format!("{signed}.{}", encoded(signature.as_ref()))
    }
}

async fn call(url: &str, scheme: &str, token: &str, proof: Option<&str>) -> (StatusCode, String) {
    let mut client = HttpClient::new(url);
    client.set(AUTHORIZATION, &format!("{scheme} {token}"));
    if let Some(proof) = proof {
        client.set(PROOF, proof);
    }
    let answer = client.post(initialize(NEWEST, "{}")).await;
    let challenge = answer.headers.get("www-authenticate");
    let challenge = challenge.map_or("", |value| value.to_str().unwrap());
    (answer.status, challenge.to_owned())
}

/// EXT-232: a bound token wants a new proof of its key with each request; as a bearer token it opens nothing.
#[tokio::test]
async fn bound_token_wants_a_proof_with_each_request() {
    let scene = Scene::start("").await;
    let client = scene.client("Desk").await;
    let (key, other) = (ProofKey::new(), ProofKey::new());
    let endpoint = format!("{}/oauth/token", scene.issuer());
    let code = scene.code(&client).await;
    let form = redeeming(&client, &code, &[]);
    let wrong = key.prove("t0", "GET", &endpoint, None);
    let (_, refused) = token_at(&scene.issuer(), &form, &[(PROOF, &*wrong)]).await;
    assert_eq!(refused["error"], "invalid_dpop_proof");
    let proof = key.prove("t1", "POST", &endpoint, None);
    let (status, tokens) = token_at(&scene.issuer(), &form, &[(PROOF, &*proof)]).await;
    assert_eq!(
        (status, &tokens["token_type"]),
        (StatusCode::OK, &json!("DPoP")),
        "{tokens}"
    );
    let token = tokens["access_token"].as_str().unwrap();
    let url = scene.resource();
    let good = key.prove("1", "POST", &url, Some(token));
    assert_eq!(
        call(&url, "DPoP", token, Some(&good)).await.0,
        StatusCode::OK
    );
    let bad = [
        ("replayed", "DPoP", Some(good)),
        ("bearer", "Bearer", None),
        (
            "bearer with a proof",
            "Bearer",
            Some(key.prove("2", "POST", &url, Some(token))),
        ),
        ("no proof", "DPoP", None),
        (
            "another key",
            "DPoP",
            Some(other.prove("3", "POST", &url, Some(token))),
        ),
        (
            "another method",
            "DPoP",
            Some(key.prove("4", "GET", &url, Some(token))),
        ),
        (
            "another path",
            "DPoP",
            Some(key.prove("5", "POST", &format!("{url}/it"), Some(token))),
        ),
        (
            "another token",
            "DPoP",
            Some(key.prove("6", "POST", &url, Some("x"))),
        ),
        ("no token", "DPoP", Some(key.prove("7", "POST", &url, None))),
        ("noise", "DPoP", Some("a.b.c".into())),
    ];
    for (what, scheme, proof) in bad {
        let (status, challenge) = call(&url, scheme, token, proof.as_deref()).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{what}");
        assert!(challenge.starts_with("DPoP error="), "{what}: {challenge}");
        assert!(challenge.contains("algs=\"ES256"), "{what}: {challenge}");
    }
    // The refresh token is bound, too.
    let refresh = tokens["refresh_token"].as_str().unwrap();
    let form = [
        ("grant_type", "refresh_token"),
        ("client_id", &*client),
        ("refresh_token", refresh),
    ];
    for headers in [
        vec![],
        vec![(PROOF, other.prove("8", "POST", &endpoint, None))],
    ] {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str()))
            .collect();
        let (_, refused) = token_at(&scene.issuer(), &form, &headers).await;
        assert_eq!(refused["error"], "invalid_grant");
    }
    let proof = key.prove("9", "POST", &endpoint, None);
    let (status, renewed) = token_at(&scene.issuer(), &form, &[(PROOF, &*proof)]).await;
    assert_eq!(
        (status, &renewed["token_type"]),
        (StatusCode::OK, &json!("DPoP"))
    );
    let unbound = scene.sign_in(&client).await;
    let unbound = unbound["access_token"].as_str().unwrap();
    let proof = key.prove("10", "POST", &url, Some(unbound));
    assert_eq!(
        call(&url, "DPoP", unbound, Some(&proof)).await.0,
        StatusCode::UNAUTHORIZED
    );
}

/// EXT-232: a token of another authorization server that is bound to a key opens nothing without its proof either.
#[tokio::test]
async fn bound_token_of_another_issuer_wants_its_proof() {
    let issuer = super::super::Issuer::start().await;
    let kernel = super::super::kernel(&issuer, "").await;
    let (key, url) = (ProofKey::new(), kernel.url());
    let point = key.0.public_key().as_ref();
    let jwk = format!(
        r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#,
        encoded(&point[1..33]),
        encoded(&point[33..])
    );
    let thumbprint = encoded(digest(&SHA256, jwk.as_bytes()).as_ref());
    let mut claims = issuer.claims(url);
    claims["cnf"] = json!({"jkt": thumbprint});
    let token = sign(&super::super::header("one"), &claims, 1);
    assert_eq!(
        call(url, "Bearer", &token, None).await.0,
        StatusCode::UNAUTHORIZED
    );
    let proof = key.prove("1", "POST", url, Some(&token));
    assert_eq!(
        call(url, "DPoP", &token, Some(&proof)).await.0,
        StatusCode::OK
    );
    // A certificate, which nothing here checks.
    claims["cnf"] = json!({"x5t#S256": thumbprint});
    let token = sign(&super::super::header("one"), &claims, 1);
    assert_eq!(
        call(url, "Bearer", &token, None).await.0,
        StatusCode::UNAUTHORIZED
    );
}

/// EXT-231: the provider vouches for a person at a client that the operator named: the client gets a token without a
/// browser, once for each assertion.
#[tokio::test]
async fn assertion_of_the_provider_opens_for_a_configured_client() {
    let scene = Scene::start("").await;
    let header = json!({"alg": "EdDSA", "kid": "one", "typ": "oauth-id-jag+jwt"});
    let assertion = |id: &str, changes: Value| {
        let mut claims = json!({
            "iss": scene.provider.issuer, "aud": scene.issuer(), "client_id": "desk", "sub": "ada", "jti": id,
            "resource": scene.resource(), "iat": seconds(), "exp": seconds() + 300,
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        sign(&header, &claims, 1)
    };
    let basic = |id: &str, secret: &str| {
        use base64::Engine as _;
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{id}:{secret}"));
        format!("Basic {pair}")
    };
    let ask = async |assertion: &str, authorization: &str| {
        let form = [("grant_type", JWT_BEARER), ("assertion", assertion)];
        token_at(&scene.issuer(), &form, &[(AUTHORIZATION, authorization)]).await
    };
    let own = basic("desk", "the+secret+of+the+desk");
    let good = assertion("1", json!({}));
    let (status, tokens) = ask(&good, &own).await;
    assert_eq!(status, StatusCode::OK, "{tokens}");
    assert!(
        tokens.get("refresh_token").is_none(),
        "the provider is asked again"
    );
    assert_eq!(
        scene.knock(tokens["access_token"].as_str().unwrap()).await,
        StatusCode::OK
    );
    for (what, assertion, authorization, error) in [
        ("replayed", good, own.clone(), "invalid_grant"),
        (
            "secret",
            assertion("2", json!({})),
            basic("desk", "x"),
            "invalid_client",
        ),
        (
            "client",
            assertion("3", json!({"client_id": "other"})),
            own.clone(),
            "invalid_grant",
        ),
        (
            "audience",
            assertion("4", json!({"aud": "https://other"})),
            own.clone(),
            "invalid_grant",
        ),
        (
            "issuer",
            assertion("5", json!({"iss": "https://other"})),
            own.clone(),
            "invalid_grant",
        ),
        (
            "expired",
            assertion("6", json!({"exp": seconds() - 600})),
            own.clone(),
            "invalid_grant",
        ),
        (
            "resource",
            assertion("7", json!({"resource": "https://other/mcp"})),
            own.clone(),
            "invalid_target",
        ),
        (
            "bound to a key",
            assertion("9", json!({"cnf": {"jkt": "k"}})),
            own.clone(),
            "invalid_dpop_proof",
        ),
        (
            "ID token",
            scene.provider.token(&scene.issuer()),
            own.clone(),
            "invalid_grant",
        ),
    ] {
        let (_, refused) = ask(&assertion, &authorization).await;
        assert_eq!(refused["error"], error, "{what}: {refused}");
    }
    let public = scene.client("Public").await;
    let shown = assertion("8", json!({"client_id": public}));
    let form = [
        ("grant_type", JWT_BEARER),
        ("assertion", &*shown),
        ("client_id", &*public),
    ];
    assert_eq!(scene.token(&form).await.1["error"], "unauthorized_client");
}

/// EXT-231, EXT-232: another kernel as the client: it reads the challenge, exchanges an assertion, binds the token to its
/// key, and its agents reach the tools behind this one.
#[tokio::test]
async fn another_kernel_is_a_client_with_assertion_and_key() {
    let scene = Scene::start("require_dpop = true").await;
    let (status, challenge) = call(&scene.resource(), "Bearer", "mgp1.x", None).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(
        challenge.starts_with("DPoP error=\"invalid_token\""),
        "{challenge}"
    );
    let claims = json!({
        "iss": scene.provider.issuer, "aud": scene.issuer(), "client_id": "desk", "sub": "ada", "jti": "k",
        "resource": scene.resource(), "exp": seconds() + 300,
    });
    let header = json!({"alg": "EdDSA", "kid": "one", "typ": "oauth-id-jag+jwt"});
    let assertion = sign(&header, &claims, 1);
    let entry = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n[[servers]]\nid = \"far\"\nurl = \"{}\"\n[servers.login]\n\
         grant = \"assertion\"\nclient_id = \"desk\"\nclient_secret = \"the secret of the desk\"\nassertion = \"{assertion}\"\n",
        scene.resource()
    );
    let home = TempDir::new().unwrap();
    let home = home.path().display().to_string();
    let kernel = Kernel::with_environment(&entry, &[("HOME", &home)]).await;
    kernel.connected(&["far"]).await;
    let mut agent = kernel.http_agent(None);
    agent.initialize(NEWEST, "{}").await;
    let listed = agent.request("tools/list", json!({})).await.result();
    assert!(listed.to_string().contains("far__"), "{listed}");
}
