//! Clients with a metadata document at an https URL, on this machine as the gateway is.

use rustls::ServerConfig;
use rustls::crypto::ring as provider;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A host that publishes documents: at each path the one that a test put there.
struct DocumentHost {
    origin: String,
    authority: String,
    /// Path, status line and body.
    documents: Arc<Mutex<Vec<(String, String, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl DocumentHost {
    async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let documents = Arc::<Mutex<Vec<(String, String, String)>>>::default();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (served, noted) = (documents.clone(), asked.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut stream = BufReader::new(stream);
                let mut path = String::new();
                loop {
                    let mut line = String::new();
                    if stream.read_line(&mut line).await.unwrap_or(0) <= 2 {
                        break;
                    }
                    if path.is_empty() {
                        path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                    }
                }
                noted.lock().unwrap().push(path.clone());
                let found = served
                    .lock()
                    .unwrap()
                    .iter()
                    .find(|(at, _, _)| *at == path)
                    .cloned();
                let (_, status, body) =
                    found.unwrap_or_else(|| (path, "404 Not Found".to_owned(), String::new()));
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self {
            origin: format!("https://localhost:{port}"),
            authority: made.cert.pem(),
            documents,
            asked,
        }
    }

    fn publish(&self, path: &str, status: &str, body: &Value) -> String {
        let entry = (path.to_owned(), status.to_owned(), body.to_string());
        self.documents.lock().unwrap().push(entry);
        format!("{}{path}", self.origin)
    }
}

/// EXT-223: a client that has a document at its URL signs in without registering; a document of somebody else, one behind
/// a redirect, a large one and a missing one make no client.
#[tokio::test]
async fn client_with_a_document_signs_in_without_registering() {
    let host = DocumentHost::start().await;
    let folder = TempDir::new().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, &host.authority).unwrap();
    let provider = ScriptedProvider::start().await;
    let config = format!(
        "{}[network]\nca_file = {ca:?}\n",
        config(&provider.issuer, "")
    );
    let kernel = Kernel::with_config(&config).await;
    kernel.connected(&["it"]).await;
    let scene = Scene { provider, kernel };
    let document =
        |url: &str| json!({"client_id": url, "client_name": "App", "redirect_uris": [REDIRECT]});
    let url = format!("{}/app.json", host.origin);
    host.publish("/app.json", "200 OK", &document(&url));
    let page = scene.ask(&mut Browser::default(), &url).await;
    assert!(
        page.text.contains("published by <code>localhost</code>"),
        "{}",
        page.text
    );
    let tokens = scene.sign_in(&url).await;
    assert_eq!(
        scene.knock(tokens["access_token"].as_str().unwrap()).await,
        StatusCode::OK
    );
    assert_eq!(scene.refresh(&url, &tokens).await.0, StatusCode::OK);
    assert_eq!(host.asked.lock().unwrap().len(), 1, "it is cached");

    let moved = format!("{}/moved.json", host.origin);
    let large = format!("{}/large.json", host.origin);
    let mut long = document(&large);
    long["padding"] = "x".repeat(20_000).into();
    let refused = [
        host.publish("/other.json", "200 OK", &document(&url)),
        host.publish(
            "/moved.json",
            "302 Found\r\nlocation: /app.json",
            &document(&moved),
        ),
        host.publish("/large.json", "200 OK", &long),
        format!("{}/missing.json", host.origin),
    ];
    for url in refused {
        let page = Browser::default()
            .get(&scene.authorize_url(&url, &[]))
            .await;
        assert_eq!(
            (page.status, page.next()),
            (StatusCode::BAD_REQUEST, None),
            "{url}"
        );
    }
}
