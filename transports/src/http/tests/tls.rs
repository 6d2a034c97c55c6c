//! Servers behind https.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig, crypto::ring};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::super::client::{Client, ClientError, DialError};
use super::super::tls::Tls;
use super::client::post;
use super::*;

/// A server with a self-signed certificate at an https URL; its first connection serves three requests, and any other
/// none.
fn secure_upstream() -> (Uri, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let answers = Arc::new(AtomicUsize::new(3));
    let url = upstream(move |server| {
        let (acceptor, answers) = (acceptor.clone(), Arc::clone(&answers));
        async move {
            let Ok(mut stream) = acceptor.accept(server.0).await else {
                return;
            };
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            for _ in 0..answers.fetch_min(0, Ordering::SeqCst) {
                let mut heard = Vec::new();
                while !heard.ends_with(b"\r\n\r\n{}") {
                    heard.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            stream.shutdown().await.unwrap();
        }
    });
    (secure(&url), certificate)
}

fn secure(url: &Uri) -> Uri {
    url.to_string()
        .replace("http://", "https://")
        .parse()
        .unwrap()
}

#[tokio::test]
async fn a_trusted_server_is_used() {
    let (url, certificate) = secure_upstream();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = Client::new(Tls::with_roots(roots));
    for _ in 0..3 {
        assert_eq!(post(&client, &url).await.unwrap(), "ok");
    }
}

#[tokio::test]
async fn a_server_with_an_unknown_authority_is_reported() {
    let (url, _) = secure_upstream();
    let client = Client::new(Tls::with_roots(RootCertStore::empty()));
    let error = post(&client, &url).await.unwrap_err();
    let (at, why) = (
        url.authority().unwrap(),
        "invalid peer certificate: UnknownIssuer",
    );
    assert_eq!(error.to_string(), format!("TLS with {at} failed: {why}"));
}

#[tokio::test]
async fn a_server_without_tls_is_reported() {
    let url = upstream(|mut server| async move {
        server.say("HTTP/1.1 400 Bad Request\r\n\r\n").await;
        server.rest().await;
    });
    let client = Client::new(Tls::with_roots(RootCertStore::empty()));
    let error = post(&client, &secure(&url)).await.unwrap_err();
    assert!(
        matches!(error, ClientError::Dial(DialError::Tls { .. })),
        "{error}"
    );
}

/// The paused clock advances whenever nothing else can happen.
#[tokio::test(start_paused = true)]
async fn a_silent_server_times_out() {
    let url = upstream(|mut server| async move {
        server.rest().await;
    });
    let client = Client::new(Tls::with_roots(RootCertStore::empty()));
    let url = secure(&url);
    let asked = client.request(http::Method::GET, &url, http::HeaderMap::new(), None);
    let words = format!(
        "{} did not take the connection within 10s",
        url.authority().unwrap()
    );
    assert_eq!(asked.await.unwrap_err().to_string(), words);
}
