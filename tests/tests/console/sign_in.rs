//! Who gets in at the console without a browser: nobody but who has a link, the cookie and the key.

use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, HeaderName, ORIGIN, SET_COOKIE};
use http::{Method, StatusCode};
use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::{HttpClient, Kernel};
use serde_json::{Value, json};

use crate::scene::{self, VERSION};

const KEY: HeaderName = HeaderName::from_static("mgp-console");

/// What is done to a client that would be let in.
type Change = fn(&mut HttpClient);

/// What a browser holds that is signed in.
struct Held {
    cookie: String,
    key: String,
}

fn page(kernel: &Kernel, path: &str) -> HttpClient {
    let mut client = HttpClient::new(&format!("{}{path}", scene::at(kernel)));
    let origin = scene::at(kernel).trim_end_matches('/').to_owned();
    client.set(ORIGIN, &origin);
    client
}

async fn signed_in(kernel: &Kernel) -> Held {
    let link = scene::link(kernel).await;
    let (_, code) = link.split_once('#').unwrap();
    let client = page(kernel, "console/session");
    let answer = client.post(json!({ "code": code }).to_string()).await;
    assert_eq!(answer.status, StatusCode::OK);
    let cookie = answer.headers[SET_COOKIE].to_str().unwrap().to_owned();
    for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let answer: Value = serde_json::from_str(&answer.text().await).unwrap();
    // Used once, it is good for nothing.
    let again = client.post(json!({ "code": code }).to_string()).await;
    assert_eq!(again.status, StatusCode::UNAUTHORIZED);
    Held {
        cookie: cookie.split(';').next().unwrap().to_owned(),
        key: answer["pageKey"].as_str().unwrap().to_owned(),
    }
}

fn as_browser(kernel: &Kernel, held: &Held) -> HttpClient {
    let mut client = page(kernel, "mcp");
    client.set(COOKIE, &held.cookie);
    client.set(KEY, &held.key);
    client
}

/// Decision 0067: the cookie alone, which every port of the machine is sent, opens nothing; nor does the
/// key alone, another origin, another host, another door, or the cookie of a browser that was signed out.
#[tokio::test]
async fn only_the_signed_in_page_is_the_operator() {
    let kernel = scene::kernel(&scene::fixture("it", &["--bare"])).await;
    let held = signed_in(&kernel).await;
    let mut right = as_browser(&kernel, &held);
    right.open_session(VERSION, "{}").await;
    let status = scene::asked(&right, "mgp/kernel/status", json!({})).await;
    assert!(status["result"]["pid"].is_u64(), "{status}");

    let wrong: [(&str, Change); 8] = [
        ("no cookie", |c| drop(c.headers.remove(COOKIE))),
        ("no key", |c| drop(c.headers.remove(KEY))),
        ("another key", |c| c.set(KEY, "AAAA")),
        ("another port", |c| c.set(ORIGIN, "http://127.0.0.1:1")),
        ("no origin", |c| drop(c.headers.remove(ORIGIN))),
        ("rebound", |c| c.set(HOST, "evil.example")),
        ("a page in between", |c| {
            c.set(HeaderName::from_static("sec-fetch-site"), "cross-site");
        }),
        ("a token beside it", |c| c.set(AUTHORIZATION, "Bearer x")),
    ];
    for (what, change) in wrong {
        let mut client = right.clone();
        change(&mut client);
        for answer in [
            client.post(initialize(VERSION, "{}")).await,
            client.get(None).await,
            client.delete().await,
        ] {
            let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
            assert!(
                refused.contains(&answer.status),
                "{what}: {}",
                answer.status
            );
        }
    }
    // At the endpoint of one server, apps of that server are shown.
    for (path, expected) in [
        ("mcp/it", StatusCode::OK),
        ("mcp/p/x", StatusCode::FORBIDDEN),
        ("sse", StatusCode::FORBIDDEN),
        ("sse/messages", StatusCode::FORBIDDEN),
    ] {
        let mut client = page(&kernel, path);
        client.headers.extend(as_browser(&kernel, &held).headers);
        let answer = client.post(initialize(VERSION, "{}")).await;
        assert_eq!(answer.status, expected, "{path}");
    }
    let here = scene::asked(&right, "mgp/kernel/status", json!({})).await;
    assert!(
        here["result"]["pid"].is_u64(),
        "none of that ended it: {here}"
    );

    let ended = kernel.mgp_json(&["console", "--sign-out"]).await;
    assert_eq!(ended["browsers"], 1);
    let after = right.post(initialize(VERSION, "{}")).await;
    assert_eq!(after.status, StatusCode::UNAUTHORIZED);
    let log = kernel.mgp(&["audit", "tail", "--json"]).await;
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    for word in ["console_signed_in", "console_signed_out"] {
        assert!(log.contains(word), "{log}");
    }
    assert!(!log.contains(&held.key), "{log}");
}

/// Decision 0067: an agent's token is an agent's, at the console's paths, too; and what an agent sends
/// signs nobody in.
#[tokio::test]
async fn an_agents_token_opens_no_page_of_the_operator() {
    let kernel = scene::kernel("").await;
    let alice = scene::agent(&kernel, "alice").await;
    for method in [
        "mgp/kernel/status",
        "mgp/kernel/console/link",
        "mgp/kernel/console/end",
        "mgp/approvals/list",
        "mgp/agents/list",
        "mgp/audit/find",
        "mgp/audit/verify",
        "mgp/servers/pins/list",
        "mgp/servers/pins/show",
        "mgp/servers/pins/scan",
    ] {
        let answer = scene::asked(&alice, method, json!({})).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    let token = alice.headers[AUTHORIZATION].to_str().unwrap().to_owned();
    let bare = token.trim_start_matches("Bearer ").to_owned();
    let mut client = page(&kernel, "console/session");
    client.set(AUTHORIZATION, &token);
    for body in [json!({ "code": bare }), json!({}), json!({"code": ""})] {
        let answer = client.post(body.to_string()).await;
        let refused = [StatusCode::UNAUTHORIZED, StatusCode::BAD_REQUEST];
        assert!(
            refused.contains(&answer.status),
            "{body}: {}",
            answer.status
        );
        assert!(answer.headers.get(SET_COOKIE).is_none());
    }
    let mut claims = page(&kernel, "mcp");
    claims.set(COOKIE, &format!("mgp_console_1={bare}"));
    claims.set(KEY, &bare);
    let answer = claims.post(initialize(VERSION, "{}")).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}

/// Decision 0067: where the console is switched off nothing of it is there, and who asks for it is told why.
#[tokio::test]
async fn there_is_no_console_where_it_is_switched_off() {
    let config = "[http]\nlisten = \"127.0.0.1:0\"\nconsole = false\n";
    let kernel = Kernel::with_config(config).await;
    for path in ["", "console/app.js", "console/session"] {
        let answer = page(&kernel, path).send(Method::GET, "").await.unwrap();
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(!answer.text().await.contains("console"), "{path}");
    }
    let asked = kernel.mgp(&["console", "--print"]).await;
    assert!(!asked.status.success());
    let why = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(why.contains("console = true"), "{why}");
    let agent = scene::agent(&kernel, "alice").await;
    let listed = scene::asked(&agent, "tools/list", json!({})).await;
    assert!(listed["result"].is_object(), "{listed}");
}

/// Decision 0067: a form of another page cannot send what signs in, nor can one that names no origin; a page
/// is framed by nobody, and says so of each of its files.
#[tokio::test]
async fn page_has_a_content_policy_and_cannot_be_framed() {
    let kernel = scene::kernel("").await;
    let link = scene::link(&kernel).await;
    let (_, code) = link.split_once('#').unwrap();
    let body = json!({ "code": code }).to_string();
    let mut form = page(&kernel, "console/session");
    form.set(CONTENT_TYPE, "text/plain");
    let answer = form.post(body.clone()).await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let mut elsewhere = page(&kernel, "console/session");
    elsewhere.headers.remove(ORIGIN);
    let answer = elsewhere.post(body.clone()).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    for path in [
        "",
        "console/app.js",
        "console/style.css",
        "console/pages/now.js",
        "console/nothing",
    ] {
        let client = page(&kernel, path);
        let answer = client.send(Method::GET, "").await.unwrap();
        let found = !path.ends_with("nothing");
        assert_eq!(answer.status == StatusCode::OK, found, "{path}");
        let of = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
        let policy = of("content-security-policy");
        for rule in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "trusted-types 'none'",
        ] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(of("x-content-type-options"), "nosniff");
        assert_eq!(of("referrer-policy"), "no-referrer");
        assert_eq!(of("cross-origin-opener-policy"), "same-origin");
        assert_eq!(of("cross-origin-resource-policy"), "same-origin");
        assert_eq!(of("x-frame-options"), "DENY");
    }
    // None of that used the link up.
    let answer = page(&kernel, "console/session").post(body).await;
    assert_eq!(answer.status, StatusCode::OK);
}
