//! Unary gRPC calls to a listener with HTTP/2.

use futures_util::stream;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use rustls::RootCertStore;

use super::super::body::AbortTrailers;
use super::super::client::{Client, UnaryResponse};
use super::super::listener_tls::{ListenerTls, TlsFiles};
use super::super::tls::Tls;
use super::*;

const MESSAGE: &[u8] = b"\0\0\0\0\x02ab";

fn trailers(code: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(code));
    trailers.insert("grpc-message", HeaderValue::from_static("so%20it%20is"));
    trailers
}

/// Answers by the path; one method echoes its request.
async fn service(request: Request<RequestBody>, _: HttpPeer) -> Response<ReplyBody> {
    let (head, body) = request.into_parts();
    let heard = body.collect().await.unwrap().to_bytes();
    let frames = match head.uri.path() {
        "/s/whole" => vec![Frame::data(MESSAGE.into()), Frame::trailers(trailers("0"))],
        "/s/heard" => {
            let asked = format!(
                "{} {} {} {}",
                head.method,
                head.headers["content-type"].to_str().unwrap(),
                head.headers["te"].to_str().unwrap(),
                head.headers["key"].to_str().unwrap(),
            );
            let said = [asked.as_bytes(), &heard].concat();
            let length = u32::try_from(said.len()).unwrap().to_be_bytes();
            let message = [&[0][..], &length, &said].concat();
            vec![Frame::data(message.into()), Frame::trailers(trailers("0"))]
        }
        "/s/long" => vec![
            Frame::data(vec![0; 1_000].into()),
            Frame::trailers(trailers("0")),
        ],
        "/s/unsaid" => vec![Frame::data(MESSAGE.into())],
        _ => {
            let mut only = Response::new(ReplyBody::empty());
            *only.headers_mut() = trailers("12");
            return only;
        }
    };
    let cut = AbortTrailers {
        canceled: HeaderMap::new,
        closing: HeaderMap::new,
    };
    let frames = StreamBody::new(stream::iter(frames.into_iter().map(Ok)));
    Response::new(ReplyBody::with_trailers(frames, cut))
}

/// Decision 0070: a call is sent as gRPC requires, its status is found in head and trailers, and longer answers than the
/// limit are rejected.
#[tokio::test]
async fn a_call_ends_with_its_status() {
    let door = open(ListenerLimits::default(), service);
    let client = Client::new(Tls::system()).unary_client();
    let ask = async |method: &str| -> UnaryResponse {
        let url = format!("http://{}/s/{method}", door.at).parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("key", HeaderValue::from_static("of-the-caller"));
        headers.insert("content-type", HeaderValue::from_static("text/plain"));
        soon(client.call(&url, headers, b"it", 100)).await.unwrap()
    };
    let whole = ask("whole").await;
    assert_eq!((whole.code, &whole.message[..]), (0, &b"ab"[..]));
    assert_eq!(
        ask("heard").await.message,
        "POST application/grpc trailers of-the-caller\0\0\0\0\x02it"
    );
    let only = ask("only").await;
    assert_eq!(
        (only.code, &only.status_message[..]),
        (12, &b"so it is"[..])
    );
    let long = ask("long").await;
    assert_eq!(long.code, 8, "{long:?}");
    assert_eq!(ask("unsaid").await.code, 2);
}

/// Decision 0070: over https a service must be trusted, and ALPN negotiates HTTP/2.
#[tokio::test]
async fn a_service_behind_https_must_be_trusted() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let papers = TlsFiles {
        cert: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
        client_auth: None,
    };
    std::fs::write(&papers.cert, made.cert.pem()).unwrap();
    std::fs::write(&papers.key, made.signing_key.serialize_pem()).unwrap();
    let door = HttpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let door = door.with_tls(Some(ListenerTls::open(papers).unwrap()));
    let url = format!("https://{}/s/whole", door.addr()).parse().unwrap();
    let limits = ListenerLimits::default();
    let serving = door.serve(
        limits,
        AllowList::default(),
        service,
        CancellationToken::new(),
    );
    tokio::spawn(serving);
    let mut roots = RootCertStore::empty();
    let ask = async |roots: &RootCertStore| {
        let client = Client::new(Tls::with_roots(roots.clone())).unary_client();
        soon(client.call(&url, HeaderMap::new(), b"it", 100)).await
    };
    let why = ask(&roots).await.unwrap_err().to_string();
    assert!(why.contains("UnknownIssuer"), "{why}");
    roots.add(made.cert.der().clone()).unwrap();
    assert_eq!(ask(&roots).await.unwrap().code, 0);
}

/// A server without HTTP/2 is reported as an error, in bounded time.
#[tokio::test]
async fn a_server_without_http2_is_reported() {
    let url = upstream(|mut server| async move {
        server
            .say("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            .await;
    });
    let client = Client::new(Tls::system()).unary_client();
    let asked = client.call(&url, HeaderMap::new(), b"it", 100);
    let why = soon(asked).await.unwrap_err().to_string();
    assert!(why.contains("127.0.0.1"), "{why}");
}
