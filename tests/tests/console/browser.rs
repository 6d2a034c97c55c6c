//! A real browser with nobody in front of it. WebDriver is a dozen requests with JSON in them, so no
//! library stands between the test and the browser.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use mgp_tests::harness::{DEADLINE, HttpClient, Process, Program, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A browser with one page. Dropping it ends it.
pub(crate) struct Browser {
    driver: Process,
    at: String,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Opens a window of 1440 pixels, with more switches.
    pub(crate) async fn open(switches: &[String]) -> Self {
        let program = Program::new("chromedriver", ["--port=0"]);
        let mut driver = Process::start("chromedriver", &program);
        let port = |said: &str| {
            let (_, port) = said.split_once("started successfully on port ")?;
            let digits: String = port.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u16>().ok()
        };
        let port = driver.says("its port", DEADLINE, port).await;
        let profile = TempDir::new().unwrap();
        let own = [
            "--headless=new".to_owned(),
            // Who runs tests in a container is root there, whom Chromium's own sandbox does not take.
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--hide-scrollbars".to_owned(),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        let args: Vec<_> = own.iter().chain(switches).collect();
        let mut browser = Self {
            driver,
            at: format!("127.0.0.1:{port}"),
            session: String::new(),
            _profile: profile,
        };
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let opened = browser.said(Method::POST, "/session", &wanted).await;
        browser.session = opened["sessionId"].as_str().unwrap().to_owned();
        browser.size(1440, 900, false).await;
        browser
    }

    async fn said(&self, method: Method, path: &str, body: &Value) -> Value {
        let client = HttpClient::new(&format!("http://{}{path}", self.at));
        let body = match method {
            Method::GET => String::new(),
            _ => body.to_string(),
        };
        let answer = client.send(method, body).await.unwrap();
        let text = answer.text().await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        let value = answer["value"].clone();
        assert!(value["error"].is_null(), "{path}: {value:#}");
        value
    }

    async fn ask(&self, path: &str, body: Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        self.said(Method::POST, &path, &body).await
    }

    async fn devtools(&self, command: &str, params: Value) -> Value {
        let body = json!({"cmd": command, "params": params});
        self.ask("/goog/cdp/execute", body).await
    }

    /// Opens an address.
    pub(crate) async fn go(&self, url: &str) {
        self.ask("/url", json!({ "url": url })).await;
    }

    /// Goes into the first frame of the page, or of the frame that it is in; opening an address leaves them.
    pub(crate) async fn enter_frame(&self) {
        self.ask("/frame", json!({"id": 0})).await;
    }

    /// Leaves all frames.
    pub(crate) async fn leave_frames(&self) {
        self.ask("/frame", json!({"id": null})).await;
    }

    /// Runs a script in the page; gives what it returns.
    pub(crate) async fn js(&self, script: &str) -> Value {
        let body = json!({"script": script, "args": []});
        self.ask("/execute/sync", body).await
    }

    /// The same for one that returns a promise.
    pub(crate) async fn later(&self, script: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1];
             (async () => {{ {script} }})().then(done, (error) => done(`threw ${{error}}`))"
        );
        let body = json!({"script": script, "args": []});
        self.ask("/execute/async", body).await
    }

    /// Waits until an expression holds in the page, within the time the driver gives a script.
    pub(crate) async fn until(&self, what: &str, expression: &str) {
        let script = format!(
            "for (let tries = 0; tries < 1000; tries += 1) {{
               if ({expression}) return null;
               await new Promise((done) => setTimeout(done, 25));
             }}
             return document.body.innerText;"
        );
        let page = self.later(&script).await;
        assert!(page.is_null(), "not so: {what}; the page says:\n{page:#}");
    }

    /// Waits until the page shows a text.
    pub(crate) async fn shows(&self, text: &str) {
        let quoted = json!(text);
        let what = format!("{text:?} is shown");
        let shown = format!("document.body.innerText.includes({quoted})");
        self.until(&what, &shown).await;
    }

    /// Presses the first button or link in sight whose text begins so, once it is there.
    pub(crate) async fn press(&self, text: &str) {
        let quoted = json!(text);
        let find = format!(
            "[...(document.querySelector('dialog[open]') ?? document).querySelectorAll('button,a')]\
             .find((one) => one.innerText.startsWith({quoted}) && one.checkVisibility())"
        );
        self.until(&format!("{text:?} can be pressed"), &find).await;
        self.js(&format!("{find}.click()")).await;
    }

    /// Goes to a page of the console.
    pub(crate) async fn page(&self, hash: &str) {
        self.js(&format!("location.hash = {}", json!(hash))).await;
    }

    /// Types keys, as a person would, wherever the focus is.
    pub(crate) async fn keys(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key})))
            .collect();
        let body = json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]});
        self.ask("/actions", body).await;
    }

    /// What the page and the browser said of it so far.
    pub(crate) async fn log(&self) -> String {
        let lines = self.ask("/se/log", json!({"type": "browser"})).await;
        lines.to_string()
    }

    /// Makes the window another size, and its colours those of the night.
    pub(crate) async fn size(&self, width: u32, height: u32, dark: bool) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)
            .await;
        let scheme = if dark { "dark" } else { "light" };
        // Colours on their way to others have no contrast that counts.
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"}]});
        self.devtools("Emulation.setEmulatedMedia", media).await;
    }

    /// Writes a picture of what is in sight.
    pub(crate) async fn picture(&self, file: &Path) {
        let how = json!({"format": "webp", "quality": 70});
        let taken = self.devtools("Page.captureScreenshot", how).await;
        let bytes = STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }
}

impl Drop for Browser {
    /// The driver ends the browser when the session ends; without that it would outlive both.
    fn drop(&mut self) {
        let Ok(mut wire) = TcpStream::connect(&self.at) else {
            return;
        };
        let _ = wire.set_read_timeout(Some(Duration::from_secs(10)));
        let (session, at) = (&self.session, &self.at);
        let request = format!(
            "DELETE /session/{session} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n"
        );
        let _ = wire.write_all(request.as_bytes());
        let _ = wire.read(&mut [0; 1024]);
        self.driver.signal(nix::sys::signal::Signal::SIGTERM);
    }
}

/// Waits until a condition holds that is none of the page.
pub(crate) async fn holds(what: &str, condition: impl AsyncFnMut() -> bool) {
    wait_until(what, DEADLINE, condition).await;
}
