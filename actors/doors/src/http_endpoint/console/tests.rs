//! Tests which requests are accepted as those of the console's page.

use std::net::SocketAddr;

use mgp_store::audit::AuditHandle;
use mgp_transports::http::guard::AllowList;

use super::*;
use crate::leak_tests::scene::Scene;
use crate::session::{SessionLimits, Sessions};

async fn console(secure: bool) -> std::sync::Arc<Console> {
    let console = Console::new(AuditHandle::disabled());
    let limits = SessionLimits {
        max: 1,
        idle: Duration::from_secs(1),
        replay: 1,
    };
    let sessions = Sessions::new(limits, Scene::new().await.context);
    let configured = ["box.example", "localhost:8000"].map(str::to_owned);
    console.set_address(
        SocketAddr::from(([127, 0, 0, 1], 7332)),
        secure,
        AllowList::new(configured, []),
        sessions,
    );
    console
}

fn request(method: Method, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri("/mcp");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// Decision 0067: requests of other origins are rejected, including other ports of this machine, and host
/// names that only resolve here.
#[tokio::test]
async fn only_the_consoles_page_is_accepted() {
    let console = console(false).await;
    let authenticate = |method: &Method, headers: &[(&str, &str)]| {
        check_same_origin(&console, &request(method.clone(), headers))
    };
    let (host, own) = (
        ("host", "127.0.0.1:7332"),
        ("origin", "http://127.0.0.1:7332"),
    );
    let site = |site| ("sec-fetch-site", site);
    assert_eq!(
        authenticate(&Method::POST, &[host, own, site("same-origin")]),
        Ok(())
    );
    assert_eq!(authenticate(&Method::POST, &[host, own]), Ok(()));
    assert_eq!(
        authenticate(&Method::GET, &[host, site("same-origin")]),
        Ok(())
    );
    let local = [
        ("host", "localhost:7332"),
        ("origin", "http://localhost:7332"),
    ];
    assert_eq!(authenticate(&Method::POST, &local), Ok(()));
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
        let result = authenticate(&method, headers);
        assert_eq!(
            result,
            Err(SignInError::ForeignPage),
            "{method} {headers:?}"
        );
    }
    let rebound = [
        ("host", "evil.example:7332"),
        ("origin", "http://evil.example:7332"),
    ];
    assert_eq!(
        authenticate(&Method::POST, &rebound),
        Err(SignInError::Plaintext)
    );
}

/// Decision 0067: a program that forwards requests of another port shows no console there, unless the
/// operator lists that port.
#[tokio::test]
async fn console_is_reachable_at_its_own_or_a_configured_port() {
    let authenticate = async |secure: bool, host: &str| {
        let scheme = if secure { "https" } else { "http" };
        let origin = format!("{scheme}://{host}");
        let headers = [("host", host), ("origin", &*origin)];
        let console = console(secure).await;
        check_same_origin(&console, &request(Method::POST, &headers))
    };
    for host in [
        "127.0.0.1:7332",
        "localhost:7332",
        "[::1]:7332",
        "localhost:8000",
    ] {
        assert_eq!(authenticate(false, host).await, Ok(()), "{host}");
        assert_eq!(authenticate(true, host).await, Ok(()), "{host}");
    }
    for host in ["127.0.0.1:9999", "localhost", "[::1]:8000", "localhost:733"] {
        let other = Err(SignInError::ForeignPort);
        assert_eq!(authenticate(false, host).await, other, "{host}");
        assert_eq!(authenticate(true, host).await, other, "{host}");
    }
    for host in ["box.example", "box.example:8443"] {
        assert_eq!(
            authenticate(true, host).await,
            Ok(()),
            "any port of a configured name"
        );
    }
}

/// The page is served only where a browser can sign in.
#[tokio::test]
async fn page_is_served_at_the_consoles_own_port_only() {
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

/// Decision 0067: over TLS the page's own origin is the https one.
#[tokio::test]
async fn tls_requires_the_https_origin() {
    let console = console(true).await;
    let authenticate = |origin| {
        let headers = [("host", "box.example"), ("origin", origin)];
        check_same_origin(&console, &request(Method::POST, &headers))
    };
    assert_eq!(authenticate("https://box.example"), Ok(()));
    assert_eq!(
        authenticate("http://box.example"),
        Err(SignInError::ForeignPage)
    );
    assert!(
        console
            .create_sign_in_link()
            .unwrap()
            .starts_with("https://127.0.0.1:7332/#")
    );
}

/// Decision 0067: a sign-in needs both secrets, and ends with the sign-out of all.
#[tokio::test]
async fn browser_is_authenticated_by_cookie_and_key_until_sign_out() {
    let console = console(false).await;
    let link = console.create_sign_in_link().unwrap();
    let (_, code) = link.split_once('#').unwrap();
    let signed_in = console.sign_in(code).unwrap();
    let authenticate = |cookie: &str, key: &str| console.authenticate(cookie, key);
    let (_, pass) = authenticate(&signed_in.cookie, &signed_in.page_key).unwrap();
    assert!(pass.is_operator() && !pass.has_ended());
    assert!(authenticate(&signed_in.page_key, &signed_in.cookie).is_none());
    assert!(authenticate(&signed_in.cookie, "").is_none());
    assert!(console.sign_in(code).is_err());
    assert_eq!(console.sign_out_all(), 1);
    assert!(pass.is_revoked());
    assert!(authenticate(&signed_in.cookie, &signed_in.page_key).is_none());
}

/// A cookie that occurs twice is ignored: another port of the machine may have set one.
#[test]
fn duplicate_cookie_is_ignored() {
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
