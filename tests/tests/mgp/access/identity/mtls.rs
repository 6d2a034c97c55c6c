//! The HTTP door behind TLS: the certificate it shows, and clients that a certificate names.

use std::path::Path;
use std::sync::Arc;

use http::StatusCode;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::http::SESSION;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Program, wait_until};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose as Purpose, IsCa, KeyPair, SanType, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const NEWEST: &str = "2025-11-25";

type Authority = CertifiedIssuer<'static, KeyPair>;
/// A certificate and its key.
type Pair = (CertificateDer<'static>, PrivateKeyDer<'static>);

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// What the certificate of the agent `name` says.
fn agent(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    let uri = format!("mgp:agent:{name}").try_into().unwrap();
    params.subject_alt_names.push(SanType::URI(uri));
    params.extended_key_usages.push(Purpose::ClientAuth);
    params
}

fn signed(by: &Authority, params: &CertificateParams) -> Pair {
    let key = KeyPair::generate().unwrap();
    let made = params.signed_by(&key, by).unwrap();
    (made.der().clone(), key.serialize_der().try_into().unwrap())
}

/// The files of a door: its own certificate, signed by `own`, and the authority of its clients.
struct Papers {
    folder: TempDir,
    own: Authority,
    clients: Authority,
}

impl Papers {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let (own, clients) = (authority("of the door"), authority("of clients"));
        let this = Self {
            folder,
            own,
            clients,
        };
        this.write("ca.pem", &this.clients.pem());
        this.renew(&this.own);
        this
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, Path::new(&self.path(name))).unwrap();
    }

    /// Another certificate for the door.
    fn renew(&self, by: &Authority) {
        let key = KeyPair::generate().unwrap();
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        let made = params.signed_by(&key, by).unwrap();
        self.write("key.pem", &key.serialize_pem());
        self.write("cert.pem", &made.pem());
    }

    async fn kernel(&self, http: &str, tls: &str) -> Kernel {
        let entry = Program::fixture(&[]).entry("it");
        let (cert, key) = (self.path("cert.pem"), self.path("key.pem"));
        let config = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\n{http}\n[http.tls]\ncert = {cert:?}\nkey = {key:?}\n{tls}\n{entry}"
        );
        let kernel = Kernel::with_config(&config).await;
        kernel.connected(&["it"]).await;
        kernel
    }

    /// A kernel that wants a certificate of its clients.
    async fn mutual(&self, more: &str) -> Kernel {
        let tls = format!("client_ca = {:?}\n{more}", self.path("ca.pem"));
        self.kernel("", &tls).await
    }

    /// A client that trusts the door's authority, and shows `pair`.
    fn client(&self, url: &str, pair: Option<Pair>) -> HttpClient {
        trusting(&self.own, url, pair)
    }

    fn agent(&self, url: &str, name: &str) -> HttpClient {
        self.client(url, Some(signed(&self.clients, &agent(name))))
    }
}

fn trusting(authority: &Authority, url: &str, pair: Option<Pair>) -> HttpClient {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match pair {
        Some((certificate, key)) => config
            .with_client_auth_cert(vec![certificate], key)
            .unwrap(),
        None => config.with_no_client_auth(),
    };
    HttpClient::over_tls(url, config)
}

fn list() -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string()
}

async fn is_let_in(client: &HttpClient) -> bool {
    let answer = client
        .send(http::Method::POST, initialize(NEWEST, "{}"))
        .await;
    answer.is_ok_and(|answer| answer.status == StatusCode::OK)
}

/// Without certificates of clients, TLS changes who can listen and nothing else: the same token opens,
/// and the command line and `mgp stdio` go on by the socket.
#[tokio::test]
async fn tls_endpoint_needs_the_same_token() {
    let papers = Papers::new();
    let kernel = papers.kernel("", "").await;
    assert!(kernel.url().starts_with("https://"), "{}", kernel.url());
    let made = kernel.mgp_json(&["agents", "add", "alice"]).await;
    let mut client = papers.client(kernel.url(), None);
    let answer = client.post(initialize(NEWEST, "{}")).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    let token = made["token"].as_str().unwrap();
    client.set(AUTHORIZATION, &format!("Bearer {token}"));
    client.open_session(NEWEST, "{}").await;
    let listed = client.post(list()).await;
    assert_eq!(listed.status, StatusCode::OK);
    let status = kernel.mgp_json(&["status"]).await;
    assert!(
        status.to_string().contains("https://127.0.0.1:"),
        "{status}"
    );
    let mut agent = kernel.stdio_agent(None);
    agent.initialize(NEWEST, "{}").await.result();
}

/// A certificate that the configured authority signed opens, and the agent is the one it names: by its
/// URI, its host name, or its common name.
#[tokio::test]
async fn a_certificate_opens_and_names_its_agent() {
    let papers = Papers::new();
    let kernel = papers.mutual("").await;
    let mut by_host = CertificateParams::new(["carol".to_owned()]).unwrap();
    by_host.extended_key_usages.push(Purpose::ClientAuth);
    let mut by_name = CertificateParams::default();
    by_name.distinguished_name = rcgen::DistinguishedName::new();
    by_name.distinguished_name.push(DnType::CommonName, "dave");
    for (params, name) in [
        (agent("alice"), "alice"),
        (by_host, "carol"),
        (by_name, "dave"),
    ] {
        let pair = signed(&papers.clients, &params);
        let mut client = papers.client(kernel.url(), Some(pair));
        client.open_session(NEWEST, "{}").await;
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "it:echo", "arguments": {"text": name}}});
        client.post(call.to_string()).await.frames().await;
        let actor = format!("agent.{name}");
        wait_until("the call is in the audit log", DEADLINE, async || {
            let log = kernel.mgp(&["audit", "tail", "--json"]).await;
            String::from_utf8_lossy(&log.stdout).contains(&actor)
        })
        .await;
    }
    let nobody = papers.agent(kernel.url(), "operator");
    let answer = nobody.post(initialize(NEWEST, "{}")).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert!(answer.text().await.contains("names no agent"));
}

/// Without a certificate, or with one that is not good for this, the handshake fails: no request is
/// heard, whatever token it brings.
#[tokio::test]
async fn every_other_certificate_is_refused() {
    let papers = Papers::new();
    let kernel = papers.mutual("").await;
    let made = kernel.mgp_json(&["agents", "add", "alice"]).await;
    let token = format!("Bearer {}", made["token"].as_str().unwrap());
    let other = authority("of clients");
    let own = CertifiedIssuer::self_signed(agent("alice"), KeyPair::generate().unwrap()).unwrap();
    let own = (
        own.der().clone(),
        own.key().serialize_der().try_into().unwrap(),
    );
    let mut expired = agent("alice");
    expired.not_before = date_time_ymd(2020, 1, 1);
    expired.not_after = date_time_ymd(2021, 1, 1);
    let mut early = agent("alice");
    early.not_before = date_time_ymd(2090, 1, 1);
    early.not_after = date_time_ymd(2091, 1, 1);
    let mut purpose = agent("alice");
    purpose.extended_key_usages = vec![Purpose::ServerAuth];
    for (what, pair) in [
        ("none", None),
        ("self-signed", Some(own)),
        (
            "of another authority",
            Some(signed(&other, &agent("alice"))),
        ),
        ("expired", Some(signed(&papers.clients, &expired))),
        ("not valid yet", Some(signed(&papers.clients, &early))),
        ("of a server", Some(signed(&papers.clients, &purpose))),
    ] {
        let mut client = papers.client(kernel.url(), pair);
        client.set(AUTHORIZATION, &token);
        let answer = client
            .send(http::Method::POST, initialize(NEWEST, "{}"))
            .await;
        assert!(answer.is_err(), "{what}: {answer:?}");
    }
    assert!(is_let_in(&papers.agent(kernel.url(), "alice")).await);
}

/// Where certificates are optional, one without a certificate shows a token; one with both is who
/// both say.
#[tokio::test]
async fn where_certificates_are_optional_a_token_does() {
    let papers = Papers::new();
    let kernel = papers.mutual("client_auth = \"optional\"").await;
    let made = kernel.mgp_json(&["agents", "add", "alice"]).await;
    let token = format!("Bearer {}", made["token"].as_str().unwrap());
    let mut plain = papers.client(kernel.url(), None);
    let answer = plain.post(initialize(NEWEST, "{}")).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    plain.set(AUTHORIZATION, &token);
    assert!(is_let_in(&plain).await);
    let other = signed(&authority("other"), &agent("alice"));
    let mut stranger = papers.client(kernel.url(), Some(other));
    stranger.set(AUTHORIZATION, &token);
    assert!(!is_let_in(&stranger).await);
    for (name, wanted) in [("alice", StatusCode::OK), ("bob", StatusCode::UNAUTHORIZED)] {
        let mut both = papers.agent(kernel.url(), name);
        both.set(AUTHORIZATION, &token);
        let answer = both.post(initialize(NEWEST, "{}")).await;
        assert_eq!(answer.status, wanted, "{name}");
    }
}

/// A session is its agent's alone, whichever way it was let in.
#[tokio::test]
async fn the_session_of_another_certificate_is_unknown() {
    let papers = Papers::new();
    let kernel = papers.mutual("").await;
    let mut alice = papers.agent(kernel.url(), "alice");
    alice.open_session(NEWEST, "{}").await;
    let mut bob = papers.agent(kernel.url(), "bob");
    bob.open_session(NEWEST, "{}").await;
    bob.headers.insert(SESSION, alice.headers[&SESSION].clone());
    assert_eq!(bob.post(list()).await.status, StatusCode::NOT_FOUND);
    assert_eq!(bob.delete().await.status, StatusCode::NOT_FOUND);
    // Another certificate of the same agent is the same agent.
    let mut again = papers.agent(kernel.url(), "alice");
    again.headers = alice.headers.clone();
    assert_eq!(again.post(list()).await.status, StatusCode::OK);
}

/// One who speaks in the clear is told to speak TLS, one who speaks nonsense is closed, and both
/// without harm to others.
#[tokio::test]
async fn plain_http_at_a_tls_endpoint_is_rejected_with_a_hint() {
    let papers = Papers::new();
    let kernel = papers.mutual("").await;
    let at = kernel.url()["https://".len()..].trim_end_matches("/mcp");
    let mut told = Vec::new();
    for said in [
        "GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\u{16}\u{3}\u{1}\0\u{2}no",
    ] {
        let mut stream = tokio::net::TcpStream::connect(at).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        let reading = stream.read_to_end(&mut heard);
        let _ = tokio::time::timeout(DEADLINE, reading)
            .await
            .expect("it is closed");
        told.push(String::from_utf8_lossy(&heard).into_owned());
    }
    for plain in &told[..2] {
        assert!(
            plain.starts_with("HTTP/1.1 400 ") && plain.contains("https://"),
            "{plain}"
        );
    }
    assert!(!told[2].contains("HTTP"), "{}", told[2]);
    assert!(is_let_in(&papers.agent(kernel.url(), "alice")).await);
}

/// MCP-080: TLS excuses nobody from naming a host and an origin of ours.
#[tokio::test]
async fn hosts_and_origins_are_validated_behind_tls() {
    let papers = Papers::new();
    let tls = format!("client_ca = {:?}", papers.path("ca.pem"));
    let http = "allowed_hosts = [\"gateway.example\"]\nallowed_origins = [\"https://app.example\"]";
    let kernel = papers.kernel(http, &tls).await;
    let client = papers.agent(kernel.url(), "alice");
    let own = kernel.url().trim_end_matches("/mcp");
    for (field, value, wanted) in [
        (HOST, "gateway.example:7332", StatusCode::OK),
        (HOST, "evil.example", StatusCode::FORBIDDEN),
        (ORIGIN, "https://app.example", StatusCode::OK),
        (ORIGIN, own, StatusCode::OK),
        (ORIGIN, "https://localhost", StatusCode::FORBIDDEN),
        (ORIGIN, "https://evil.example", StatusCode::FORBIDDEN),
    ] {
        let mut client = client.clone();
        client.set(field, value);
        let answer = client.post(initialize(NEWEST, "{}")).await;
        assert_eq!(answer.status, wanted, "{value}");
    }
}

/// New files are taken up for the connections to come; those that are there stay. Files that are of no
/// use change nothing, and are told.
#[tokio::test]
async fn changed_certificates_are_reloaded_and_invalid_ones_are_not() {
    let papers = Papers::new();
    let mut kernel = papers.mutual("").await;
    let mut before = papers.agent(kernel.url(), "alice");
    before.open_session(NEWEST, "{}").await;
    let mut stream = before.get(None).await.events();
    // The stream keeps the connection it is on; this opens another one, which is kept for later.
    before.post(list()).await.text().await;
    papers.write("cert.pem", "-----BEGIN CERTIFICATE-----\nno\n");
    let keeps = |said: &str| {
        said.contains("keeps its previous certificates")
            .then_some(())
    };
    kernel
        .process()
        .says("that they are broken", DEADLINE, keeps)
        .await;
    assert!(is_let_in(&papers.agent(kernel.url(), "bob")).await);
    let next = authority("of the door, later");
    papers.renew(&next);
    let url = kernel.url().to_owned();
    wait_until("the new certificate is shown", DEADLINE, async || {
        is_let_in(&trusting(
            &next,
            &url,
            Some(signed(&papers.clients, &agent("bob"))),
        ))
        .await
    })
    .await;
    assert!(!is_let_in(&papers.agent(&url, "bob")).await);
    // Who was there is on the connections it had: it would not trust the new certificate.
    assert_eq!(before.post(list()).await.status, StatusCode::OK);
    let next_clients = authority("of clients, later");
    papers.write("ca.pem", &next_clients.pem());
    wait_until(
        "the former authority counts no more",
        DEADLINE,
        async || {
            let former = signed(&papers.clients, &agent("bob"));
            !is_let_in(&trusting(&next, &url, Some(former))).await
        },
    )
    .await;
    let new = signed(&next_clients, &agent("bob"));
    assert!(is_let_in(&trusting(&next, &url, Some(new))).await);
    let quiet = tokio::time::timeout(std::time::Duration::from_millis(50), stream.next()).await;
    assert!(!matches!(quiet, Ok(None)), "the stream ended");
}

/// MCP-082: beyond loopback there is no door without TLS, and none without asking who it is. Nothing
/// is bound here: the configuration is refused.
#[tokio::test]
async fn endpoint_beyond_loopback_needs_tls() {
    let papers = Papers::new();
    let (cert, key) = (papers.path("cert.pem"), papers.path("key.pem"));
    let tls = format!("[http.tls]\ncert = {cert:?}\nkey = {key:?}\n");
    let half = format!("[http.tls]\ncert = {cert:?}\n");
    let open = format!("auth = \"none\"\n{tls}");
    let wrong = format!("[http.tls]\ncert = {cert:?}\nkey = {cert:?}\n");
    for (listen, rest, words) in [
        ("0.0.0.0:0", "", "without TLS"),
        ("0.0.0.0:0", open.as_str(), "every one of them could call"),
        ("127.0.0.1:0", &half, "wants both"),
        ("127.0.0.1:0", &wrong, "holds no private key"),
    ] {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("mgp.toml");
        std::fs::write(&file, format!("[http]\nlisten = \"{listen}\"\n{rest}")).unwrap();
        let up = Program::ours("mgp", ["up", "--config"]).arg(file.display().to_string());
        let up = up
            .env(
                "MGP_DATA_DIR",
                folder.path().join("data").display().to_string(),
            )
            .env("MGP_SOCKET", folder.path().join("s").display().to_string());
        let ended = up.output(DEADLINE).await;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(
            !ended.status.success() && said.contains(words),
            "{listen} {words}: {said}"
        );
    }
}
