//! What others try in the browser: servers with script in all they say, pages of other origins, other names
//! for the same machine.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http::header::{COOKIE, ORIGIN};
use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::{HttpClient, Kernel, Need, Peers, Program};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::browser::{Browser, holds};
use crate::scene::{self, VERSION};

/// What would run if anything of it became markup.
const SCRIPT: &str = "<img src=x onerror='window.pwned=1'><script>window.pwned=2</script><svg onload='window.pwned=3'>";

/// A server that writes script into everything it says.
fn hostile() -> String {
    let definition = json!({
        "name": "shout", "title": SCRIPT, "description": format!("[x](javascript:window.pwned=4) {SCRIPT}"),
        "inputSchema": {"type": "object", "title": SCRIPT, "properties": {
            (SCRIPT): {"type": "string", "title": SCRIPT, "description": SCRIPT, "default": format!("\">{SCRIPT}")},
            "__proto__": {"type": "string"},
            "pick": {"enum": [SCRIPT, "b"]},
        }},
    });
    let svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg'><script>window.pwned=5</script>{SCRIPT}</svg>"
    );
    let drawn = json!([{"tool": {"name": "draw", "inputSchema": {"type": "object"}}, "answers": [{"result": {"content": [
        {"type": "image", "mimeType": "image/svg+xml", "data": STANDARD.encode(&svg)},
        {"type": "image", "mimeType": "image/png", "data": STANDARD.encode(&svg)},
        {"type": "text", "text": svg},
        {"type": "resource_link", "uri": "javascript:window.pwned=6", "name": SCRIPT},
        {"type": SCRIPT},
    ]}}]}]);
    let fixture = Program::fixture(&[]).command;
    let (definition, drawn) = (definition.to_string(), drawn.to_string());
    let script =
        r#"printf '%s\n' "$1" >&2; exec "$2" --stdio --bare --tool "$3" --mcpl-tools "$4""#;
    Program::new(
        "sh",
        ["-c", script, "sh", SCRIPT, &fixture, &definition, &drawn],
    )
    .entry("hostile")
}

/// Decision 0067: what a server says is shown and never run, wherever it stands.
#[tokio::test]
async fn text_of_a_server_is_never_run() {
    if Peers::find(&[Need::Browser]).is_none() {
        return;
    }
    let kernel = scene::kernel(&hostile()).await;
    kernel.connected(&["hostile"]).await;
    let browser = scene::signed_in(&kernel, &[]).await;
    for (page, sign) in [
        ("#/servers/hostile/log", "onerror"),
        ("#/servers/hostile/about", "hostile"),
        ("#/servers/hostile/tools/shout", "javascript:"),
    ] {
        browser.page(page).await;
        browser.shows(sign).await;
    }
    // What it was given comes back as its result.
    browser.press("Call it").await;
    browser.shows("Answered in").await;
    browser.page("#/servers/hostile/tools/draw").await;
    browser
        .until(
            "the form is there",
            "document.querySelector('.detail h2')?.innerText === 'draw'",
        )
        .await;
    browser.press("Call it").await;
    browser.shows("image/svg+xml is not shown").await;
    browser.page("#/access/hostile/shout").await;
    browser.shows("default policy").await;
    browser.page("#/activity").await;
    browser.shows("shout").await;
    let seen = browser
        .js("return { pwned: window.pwned ?? null, scripts: document.scripts.length,
              polluted: {}.pwned ?? null, inside: document.querySelectorAll('main img[src=x], main svg[onload], main a[href^=javascript]').length }")
        .await;
    assert_eq!(
        seen,
        json!({"pwned": null, "scripts": 1, "polluted": null, "inside": 0})
    );
    // The page could not do it if it wanted to.
    for script in [
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.setAttribute('onclick', 'window.pwned=7')",
        "document.createElement('script').textContent = 'window.pwned=8'",
        "eval('1')",
        "new Function('1')()",
        "setTimeout('window.pwned=9')",
    ] {
        // Not in the script of the driver itself, which no policy holds.
        let tried = format!(
            "return new Promise((told) => setTimeout(() => {{
               try {{ {script}; told('ran'); }} catch {{ told('threw'); }} }}))"
        );
        assert_eq!(browser.later(&tried).await, json!("threw"), "{script}");
    }
}

/// Decision 0067: a page at another port of the same machine, which the browser sends the cookie to, gets
/// nothing done and nothing shown; nor does one under a name that was made to lead here.
#[tokio::test]
async fn no_other_page_reaches_the_kernel() {
    if Peers::find(&[Need::Browser]).is_none() {
        return;
    }
    let kernel = scene::kernel("").await;
    let other = OtherOrigin::open(&kernel).await;
    let rebinding = "--host-resolver-rules=MAP evil.example 127.0.0.1".to_owned();
    let browser = scene::signed_in(&kernel, &[rebinding]).await;
    browser.go(&other.url).await;
    browser.until("it has tried all", "window.tried").await;
    let tried = browser.js("return window.tried").await;
    for (way, came) in tried.as_object().unwrap() {
        let came = came.as_str().unwrap();
        assert!(
            came.starts_with("threw") || came == "opaque",
            "{way}: {came}"
        );
    }
    let refused = async || browser.log().await.contains("frame-ancestors");
    holds("the frame was refused", refused).await;
    the_cookie_alone_opens_nothing(&kernel, &other).await;
    let log = kernel.mgp(&["audit", "tail", "--json"]).await;
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    assert_eq!(log.matches("agent_added").count(), 0, "{log}");

    let port = scene::at(&kernel).rsplit(':').next().unwrap().to_owned();
    browser.go(&format!("http://evil.example:{port}")).await;
    browser.shows("neither loopback").await;
    // The page of the console itself is still signed in, also when somebody sends it there with a code of his own.
    for behind in ["", "#AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        browser.go("about:blank").await;
        browser.go(&format!("{}{behind}", scene::at(&kernel))).await;
        browser.shows("Calls a second").await;
        assert_eq!(browser.js("return location.hash").await, json!(""));
    }
}

/// Decision 0067: who opens a link that was used is told so, and what to do.
#[tokio::test]
async fn a_used_link_opens_nothing() {
    if Peers::find(&[Need::Browser]).is_none() {
        return;
    }
    let kernel = scene::kernel("").await;
    let link = scene::link(&kernel).await;
    let first = Browser::open(&[]).await;
    first.go(&link).await;
    first.shows("Calls a second").await;
    let second = Browser::open(&[]).await;
    second.go(&link).await;
    second.shows("used already").await;
    assert_eq!(second.js("return location.hash").await, json!(""));
    let status = kernel.mgp_json(&["status"]).await;
    let consoles = status["clients"].as_array().unwrap().iter();
    assert_eq!(
        consoles.filter(|one| one["name"] == "mgp-console").count(),
        1
    );
}

/// The browser sends it to every port of the machine, and so to this one.
async fn the_cookie_alone_opens_nothing(kernel: &Kernel, other: &OtherOrigin) {
    let heard = other.heard.lock().unwrap().join("\n");
    let cookie = heard
        .lines()
        .find(|line| line.to_lowercase().starts_with("cookie:"));
    let (_, cookie) = cookie
        .expect("ports share cookies")
        .split_once(": ")
        .unwrap();
    assert!(cookie.contains("mgp_console_"), "{cookie}");
    let mut thief = HttpClient::new(kernel.url());
    thief.set(COOKIE, cookie);
    thief.set(ORIGIN, scene::at(kernel).trim_end_matches('/'));
    let answer = thief.post(initialize(VERSION, "{}")).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}

/// A page of another origin on this machine, which tries what it can.
struct OtherOrigin {
    url: String,
    heard: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl OtherOrigin {
    async fn open(kernel: &Kernel) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let (page, hears) = (page(kernel), heard.clone());
        let serving = tokio::spawn(async move {
            while let Ok((mut wire, _)) = listener.accept().await {
                let mut asked = vec![0; 8192];
                let read = wire.read(&mut asked).await.unwrap_or(0);
                let asked = String::from_utf8_lossy(&asked[..read]).into_owned();
                hears.lock().unwrap().push(asked);
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
                    page.len()
                );
                let _ = wire.write_all(answer.as_bytes()).await;
            }
        });
        Self {
            url,
            heard,
            serving,
        }
    }
}

impl Drop for OtherOrigin {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// It reads, writes, signs in and frames; each with the browser's cookies.
fn page(kernel: &Kernel) -> String {
    let target = scene::at(kernel);
    let add: Value = json!({"jsonrpc": "2.0", "id": 1, "method": "mgp/agents/add", "params": {"name": "mallory"}});
    let add = json!(add.to_string());
    format!(
        r#"<!doctype html><iframe src="{target}"></iframe><script>
        const json = {{ 'content-type': 'application/json', accept: 'application/json, text/event-stream' }};
        const ways = {{
          simple: ['mcp', {{ method: 'POST', mode: 'no-cors', headers: {{ 'content-type': 'text/plain' }}, body: {add} }}],
          json: ['mcp', {{ method: 'POST', headers: json, body: {add} }}],
          key: ['mcp', {{ method: 'POST', headers: {{ ...json, 'mgp-console': 'x' }}, body: {add} }}],
          read: ['mcp', {{}}], page: ['', {{}}], script: ['console/app.js', {{}}],
          end: ['console/session', {{ method: 'DELETE' }}],
          begin: ['console/session', {{ method: 'POST', mode: 'no-cors', body: '{{"code":"x"}}' }}],
        }};
        (async () => {{
          const tried = {{}};
          for (const [way, [path, how]] of Object.entries(ways)) {{
            tried[way] = await fetch('{target}' + path, {{ credentials: 'include', ...how }})
              .then((answer) => answer.type, (error) => `threw ${{error}}`);
          }}
          window.tried = tried;
        }})();
        </script>"#
    )
}
