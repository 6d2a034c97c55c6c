//! Which requests are those of the console's page.

use std::net::SocketAddr;

use mgp_store::audit::AuditHandle;
use mgp_transports::http::guard::AllowList;

use super::*;
use crate::ending_tests::scene::Scene;
use crate::session::{SessionLimits, Sessions};

async fn console(secure: bool) -> std::sync::Arc<Console> {
    let console = Console::new(AuditHandle::disabled());
    let limits = SessionLimits {
        max: 1,
        idle: Duration::from_secs(1),
        replay: 1,
    };
    let sessions = Sessions::new(limits, Scene::new().await.reception);
    let configured = ["box.example", "localhost:8000"].map(str::to_owned);
    console.set_address(
        SocketAddr::from(([127, 0, 0, 1], 7332)),
        secure,
        AllowList::new(configured, []),
        sessions,
    );
    console
}

fn asked(method: Method, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri("/mcp");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// Decision 0067: a page of another origin, of another port of this machine among them, asks nothing; nor
/// does one under a name that only leads here.
#[tokio::test]
async fn only_the_page_of_the_console_asks() {
    let console = console(false).await;
    let judge = |method: &Method, headers: &[(&str, &str)]| {
        check_same_origin(&console, &asked(method.clone(), headers))
    };
    let (host, own) = (
        ("host", "127.0.0.1:7332"),
        ("origin", "http://127.0.0.1:7332"),
    );
    let site = |site| ("sec-fetch-site", site);
    assert_eq!(
        judge(&Method::POST, &[host, own, site("same-origin")]),
        Ok(())
    );
    assert_eq!(judge(&Method::POST, &[host, own]), Ok(()));
    assert_eq!(judge(&Method::GET, &[host, site("same-origin")]), Ok(()));
    let local = [
        ("host", "localhost:7332"),
        ("origin", "http://localhost:7332"),
    ];
    assert_eq!(judge(&Method::POST, &local), Ok(()));
    let others: [(Method, &[(&str, &str)]); 9] = [
        (Method::POST, &[host, ("origin", "http://127.0.0.1:9999")]),
        (Method::POST, &[host, ("origin", "http://localhost:7332")]),
        (Method::POST, &[host, ("origin", "https://127.0.0.1:7332")]),
        (Method::POST, &[host, ("origin", "null")]),
        (Method::POST, &[host, own, site("same-site")]),
        (Method::POST, &[host, site("same-origin")]),
        (Method::GET, &[host, site("cross-site")]),
        (Method::GET, &[host, site("none")]),
        (Method::GET, &[host]),
    ];
    for (method, headers) in others {
        let judged = judge(&method, headers);
        assert_eq!(
            judged,
            Err(SignInError::ForeignPage),
            "{method} {headers:?}"
        );
    }
    let rebound = [
        ("host", "evil.example:7332"),
        ("origin", "http://evil.example:7332"),
    ];
    assert_eq!(judge(&Method::POST, &rebound), Err(SignInError::Plaintext));
}

/// Decision 0067: whoever passes requests of another port on to this one shows no console of ours there, unless the
/// operator lists that port.
#[tokio::test]
async fn the_console_is_reached_at_its_own_port_or_a_configured_one() {
    let judge = async |secure: bool, host: &str| {
        let scheme = if secure { "https" } else { "http" };
        let origin = format!("{scheme}://{host}");
        let headers = [("host", host), ("origin", &*origin)];
        let console = console(secure).await;
        check_same_origin(&console, &asked(Method::POST, &headers))
    };
    for host in [
        "127.0.0.1:7332",
        "localhost:7332",
        "[::1]:7332",
        "localhost:8000",
    ] {
        assert_eq!(judge(false, host).await, Ok(()), "{host}");
        assert_eq!(judge(true, host).await, Ok(()), "{host}");
    }
    for host in ["127.0.0.1:9999", "localhost", "[::1]:8000", "localhost:733"] {
        let other = Err(SignInError::ForeignPort);
        assert_eq!(judge(false, host).await, other, "{host}");
        assert_eq!(judge(true, host).await, other, "{host}");
    }
    for host in ["box.example", "box.example:8443"] {
        assert_eq!(
            judge(true, host).await,
            Ok(()),
            "any port of a configured name"
        );
    }
}

/// The page is shown where a browser can sign in, and nowhere else.
#[tokio::test]
async fn the_page_is_shown_under_the_console_s_own_port_only() {
    let console = console(false).await;
    let shown = |host: &str| {
        let request = Request::builder().uri("/").header("host", host);
        serve_page(&console, &request.body(()).unwrap()).status()
    };
    for host in ["127.0.0.1:7332", "localhost:7332", "localhost:8000"] {
        assert_eq!(shown(host), StatusCode::OK, "{host}");
    }
    for host in [
        "127.0.0.1:1",
        "localhost:8080",
        "localhost",
        "evil.example:7332",
    ] {
        assert_eq!(shown(host), StatusCode::FORBIDDEN, "{host}");
    }
}

/// Decision 0067: over TLS the page's own origin is the one of https.
#[tokio::test]
async fn over_tls_the_origin_is_that_of_tls() {
    let console = console(true).await;
    let judge = |origin| {
        let headers = [("host", "box.example"), ("origin", origin)];
        check_same_origin(&console, &asked(Method::POST, &headers))
    };
    assert_eq!(judge("https://box.example"), Ok(()));
    assert_eq!(judge("http://box.example"), Err(SignInError::ForeignPage));
    assert!(
        console
            .create_sign_in_link()
            .unwrap()
            .starts_with("https://127.0.0.1:7332/#")
    );
}

/// Decision 0067: a sign-in is both secrets, and ends with the sign-out of all.
#[tokio::test]
async fn a_browser_is_known_by_cookie_and_key_until_it_is_signed_out() {
    let console = console(false).await;
    let link = console.create_sign_in_link().unwrap();
    let (_, code) = link.split_once('#').unwrap();
    let signed_in = console.sign_in(code).unwrap();
    let judge = |cookie: &str, key: &str| console.authenticate(cookie, key);
    let (_, pass) = judge(&signed_in.cookie, &signed_in.page_key).unwrap();
    assert!(pass.is_operator() && !pass.has_ended());
    assert!(judge(&signed_in.page_key, &signed_in.cookie).is_none());
    assert!(judge(&signed_in.cookie, "").is_none());
    assert!(console.sign_in(code).is_err());
    assert_eq!(console.sign_out_all(), 1);
    assert!(pass.is_revoked());
    assert!(judge(&signed_in.cookie, &signed_in.page_key).is_none());
}

/// A cookie that stands twice is none: another port of the machine may have set one beside ours.
#[test]
fn a_cookie_is_read_where_it_stands_once() {
    let read = |values: &[&'static str]| {
        let pairs = values
            .iter()
            .map(|value| (COOKIE, HeaderValue::from_static(value)));
        let headers: HeaderMap = pairs.collect();
        cookie_value(&headers, "mgp_console_1").map(str::to_owned)
    };
    assert_eq!(read(&["a=b; mgp_console_1=x"]).as_deref(), Some("x"));
    assert_eq!(read(&["mgp_console_1=x", "c=d"]).as_deref(), Some("x"));
    assert_eq!(read(&["mgp_console_12=x"]), None);
    assert_eq!(read(&["mgp_console_1=x; mgp_console_1=y"]), None);
    assert_eq!(read(&[]), None);
}
