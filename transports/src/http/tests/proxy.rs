//! Servers behind a proxy.

use std::sync::Arc;

use http::{HeaderMap, Method};
use rustls::RootCertStore;
use tokio::sync::mpsc;

use super::super::address_scope::AddressScope;
use super::super::client::{Client, ClientError, DialError};
use super::super::proxy::{Outbound, ProxyRules};
use super::super::tls::Tls;
use super::client::post;
use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Sends everything through this proxy.
fn through(proxy: &str) -> Outbound {
    Outbound {
        tls: Tls::with_roots(RootCertStore::empty()),
        proxies: Arc::new(ProxyRules::from_variables(|name| {
            (name == "all_proxy").then(|| proxy.to_owned())
        })),
    }
}

/// A proxy that gives each connection this answer, and reports its requests.
fn proxy(answer: &'static str) -> (String, mpsc::Receiver<String>) {
    let (told, heard) = mpsc::channel(8);
    let at = upstream(move |mut client| {
        let told = told.clone();
        async move {
            let head = client.hear("\r\n\r\n").await;
            if head.starts_with("POST") {
                client.hear("{}").await;
            }
            told.send(head).await.unwrap();
            client.say(answer).await;
            told.send(client.rest().await).await.unwrap();
        }
    });
    (at.authority().unwrap().to_string(), heard)
}

fn words(error: &ClientError, proxy: &str) -> String {
    error.to_string().replace(proxy, "HOST:PORT")
}

/// Decision 0056: a proxy reads a request to `http://` whole, with the credentials of the proxy's address.
#[tokio::test]
async fn a_plain_request_is_read_by_the_proxy() {
    let (at, mut heard) = proxy(OK);
    let client = Client::new(through(&format!("http://ada:hush@{at}")));
    let url: Uri = "http://mcp.test/mcp?x=1".parse().unwrap();
    assert_eq!(post(&client, &url).await.unwrap(), "ok");
    let asked = heard.recv().await.unwrap();
    assert!(
        asked.starts_with("POST http://mcp.test/mcp?x=1 HTTP/1.1\r\n"),
        "{asked}"
    );
    assert!(asked.contains("\r\nhost: mcp.test\r\n"), "{asked}");
    assert!(
        asked.contains("\r\nproxy-authorization: Basic YWRhOmh1c2g=\r\n"),
        "{asked}"
    );
}

/// Decision 0056: of a request to `https://` a proxy sees the name and the port, and its own credentials; nothing else.
#[tokio::test]
async fn an_https_request_is_not_read_by_the_proxy() {
    let (at, mut heard) = proxy("HTTP/1.1 200 Connection established\r\nvia: x\r\n\r\n");
    let client = Client::new(through(&format!("ada:hush@{at}")));
    let url: Uri = "https://mcp.test/secret".parse().unwrap();
    let asked = tokio::spawn(async move { post(&client, &url).await });
    assert_eq!(
        heard.recv().await.unwrap(),
        "CONNECT mcp.test:443 HTTP/1.1\r\nHost: mcp.test:443\r\n\
         Proxy-Authorization: Basic YWRhOmh1c2g=\r\n\r\n"
    );
    asked.abort();
}

/// Decision 0056: the rejection of a proxy is reported without credentials.
#[tokio::test]
async fn the_rejection_of_a_proxy_is_reported() {
    for (answer, said) in [
        (
            "HTTP/1.1 403 Forbidden\r\n\r\n",
            "it gives no way to mcp.test:443 (HTTP 403)",
        ),
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "it does not accept the login in its address",
        ),
        ("", "it closed the connection"),
        ("SSH-2.0-hello\r\n\r\n", "it does not answer in HTTP"),
    ] {
        let at = upstream(move |mut client| async move {
            client.hear("\r\n\r\n").await;
            client.say(answer).await;
        });
        let at = at.authority().unwrap().to_string();
        let client = Client::new(through(&format!("http://ada:hush@{at}")));
        let url: Uri = "https://mcp.test/".parse().unwrap();
        let error = post(&client, &url).await.unwrap_err();
        let want = format!("the proxy http://***@HOST:PORT is of no use: {said}");
        assert_eq!(words(&error, &at), want);
    }
    let (at, _heard) =
        proxy("HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n");
    let client = Client::new(through(&at));
    let error = post(&client, &"http://mcp.test/".parse().unwrap())
        .await
        .unwrap_err();
    assert_eq!(
        words(&error, &at),
        "the proxy http://HOST:PORT is of no use: it wants a login: write it as http://USER:PASSWORD@HOST:PORT"
    );
    let client = Client::new(through("socks5://127.0.0.1:1"));
    let error = post(&client, &"http://mcp.test/".parse().unwrap())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("socks5:// is not supported"),
        "{error}"
    );
}

/// Decision 0056: the scope of a document is checked here; the proxy connects to the checked address, and to no
/// unresolved name.
#[tokio::test]
async fn a_proxy_does_not_bypass_the_scope() {
    let (at, mut heard) = proxy("HTTP/1.1 200 OK\r\n\r\n");
    let ask = async |scope, url: &str| {
        let client = Client::with_scope(through(&at), scope);
        let url: Uri = url.parse().unwrap();
        let asked = client.request(Method::GET, &url, HeaderMap::new(), None);
        soon(asked).await.unwrap_err()
    };
    for url in [
        "https://10.0.0.1/x",
        "https://169.254.169.254/latest",
        "http://192.168.0.1/",
    ] {
        let error = ask(AddressScope::Public, url).await;
        let inner = ClientError::Dial(DialError::OutOfScope {
            at: error.to_string().split(' ').next().unwrap().to_owned(),
        });
        assert_eq!(error, inner, "{url}");
    }
    let unknown = ask(AddressScope::Public, "https://nowhere.invalid/x").await;
    assert!(
        matches!(
            unknown,
            ClientError::Dial(DialError::UnresolvedForProxy { .. })
        ),
        "{unknown}"
    );
    assert!(heard.try_recv().is_err(), "the proxy was asked");
    let asked = ask(AddressScope::Private, "https://10.0.0.1:8443/x");
    let (heard, _) = tokio::join!(heard.recv(), asked);
    let heard = heard.unwrap();
    assert!(
        heard.starts_with("CONNECT 10.0.0.1:8443 HTTP/1.1\r\n"),
        "{heard}"
    );
}
