//! Logins at a real authorization server (oidc-provider) for a server that takes its tokens: signing in, renewal by
//! rotation, revocation, and everything by which a token could come to somebody else.

mod authlib;
mod of_agents;

use std::fs;
use std::path::Path;
use std::process::Output;

use http::Method;
use http::header::CONTENT_TYPE;
use mgp_tests::harness::program::remote_entry;
use mgp_tests::harness::{
    Agent, DEADLINE, HttpClient, Kernel, Need, Peers, Process, Program, wait_until,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const QUIET: &str = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n";

/// The servers, and a kernel of a user who has a home.
struct LoginScene {
    provider: Process,
    home: TempDir,
    kernel: Kernel,
    mcp: String,
    issuer: String,
}

impl LoginScene {
    /// With the entry of the guarded server, more keys of it, and one that says it is that server.
    async fn start(more: &str) -> Option<Self> {
        let peers = Peers::find(&[Need::Provider])?;
        Self::at(&peers.provider(), more).await
    }

    /// The same at this authorization server.
    async fn at(provider: &Program, more: &str) -> Option<Self> {
        let mut provider = Process::start("the provider", provider);
        let told = provider.says("its addresses", DEADLINE, |said| {
            let line = said
                .lines()
                .find(|line| line.starts_with("{\"issuer\"") && line.ends_with('}'))?;
            serde_json::from_str::<Value>(line).ok()
        });
        let told = told.await;
        let text = |key: &str| told[key].as_str().unwrap().to_owned();
        let home = TempDir::new().unwrap();
        let entry = remote_entry("docs", &text("mcp"));
        let liar = remote_entry("liar", &text("liar"));
        let config = format!("{QUIET}{entry}{more}{liar}");
        let folder = home.path().display().to_string();
        let kernel = Kernel::with_environment(&config, &home_is(&folder)).await;
        let scene = Self {
            provider,
            home,
            kernel,
            mcp: text("mcp"),
            issuer: text("issuer"),
        };
        scene.is("docs", "error").await;
        Some(scene)
    }

    async fn mgp(&self, args: &[&str]) -> Output {
        let folder = self.home.path().display().to_string();
        let program = self.kernel.program(args);
        let home = home_is(&folder);
        let program = home
            .iter()
            .fold(program, |program, (name, value)| program.env(name, *value));
        program.output(DEADLINE).await
    }

    /// `mgp logins add` until it says where to sign in.
    async fn begins(&self, args: &[&str]) -> (Process, String) {
        let folder = self.home.path().display().to_string();
        let program = self.kernel.program(&[&["logins", "add"], args].concat());
        let home = home_is(&folder);
        let program = home
            .iter()
            .fold(program, |program, (name, value)| program.env(name, *value));
        let mut login = Process::start("mgp logins add", &program);
        let url = login.says("where to sign in", DEADLINE, |said| {
            let (_, rest) = said.split_once("sign in at:\n  ")?;
            let (url, _) = rest.split_once('\n')?;
            Some(url.to_owned())
        });
        let url = url.await;
        (login, url)
    }

    /// A whole login, with the browser that comes back by itself.
    async fn log_in(&self, server: &str) -> String {
        let (mut login, url) = self.begins(&[server]).await;
        let back = self.browse(&url).await;
        let answer = HttpClient::new(&back).send(Method::GET, "").await.unwrap();
        let page = answer.text().await;
        assert!(page.contains("You can close this tab"), "{page}");
        let status = login.end(DEADLINE).await;
        assert!(status.success(), "{}", login.stderr());
        login.stdout()
    }

    /// Plays the person with the browser; where it would come back to, without going there.
    async fn browse(&self, url: &str) -> String {
        let answer = self.control("browse", Method::POST, url).await;
        answer["to"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }

    async fn control(&self, what: &str, method: Method, body: &str) -> Value {
        let url = format!("{}/control/{what}", self.mcp.trim_end_matches("/mcp"));
        let answer = HttpClient::new(&url)
            .send(method, body.to_owned())
            .await
            .unwrap();
        serde_json::from_str(&answer.text().await).unwrap()
    }

    /// What the authorization server noted, in short.
    async fn log(&self) -> Vec<String> {
        let log = self.control("log", Method::GET, "").await;
        let of = |entry: &Value| {
            let more = entry["grant"]
                .as_str()
                .or(entry["error"].as_str())
                .unwrap_or_default();
            format!("{} {more}", entry["at"].as_str().unwrap())
                .trim()
                .to_owned()
        };
        log.as_array().unwrap().iter().map(of).collect()
    }

    async fn count(&self, what: &str) -> usize {
        self.log()
            .await
            .iter()
            .filter(|entry| *entry == what)
            .count()
    }

    /// The tokens that the guarded server has seen.
    async fn seen(&self) -> Vec<String> {
        let seen = self.control("seen", Method::GET, "").await;
        seen.as_array()
            .unwrap()
            .iter()
            .map(|it| it.as_str().unwrap().to_owned())
            .collect()
    }

    async fn server(&self, id: &str) -> Value {
        let status = self.kernel.mgp_json(&["status"]).await;
        let servers = status["servers"].as_array().unwrap();
        servers
            .iter()
            .find(|server| server["id"] == id)
            .unwrap()
            .clone()
    }

    async fn is(&self, id: &str, state: &str) {
        wait_until(&format!("{id} is {state}"), DEADLINE, async || {
            self.server(id).await["state"] == state
        })
        .await;
    }

    async fn agent(&self) -> Agent {
        let mut agent = self.kernel.http_agent(Some("docs"));
        agent.initialize("2025-11-25", "{}").await.result();
        agent
    }
}

fn home_is(folder: &str) -> [(&'static str, &str); 2] {
    [("HOME", folder), ("XDG_CONFIG_HOME", folder)]
}

fn words(output: &Output) -> String {
    let both = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Every file below a folder that holds a text.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else if fs::read(&path).is_ok_and(|b| b.windows(text.len()).any(|w| w == text.as_bytes()))
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// A server that wants a login is parked with the command, and not tried again; one login later it is there, any
/// number of calls share one renewal, and logging out takes the tokens back.
#[tokio::test]
async fn a_login_is_done_renewed_and_taken_back() {
    let Some(scene) = LoginScene::start("").await else {
        return;
    };
    let parked = scene.server("docs").await;
    assert_eq!(parked["reason"], "it wants a login: `mgp logins add docs`");
    assert_eq!(parked["next_try_ms"], Value::Null);
    let pending = words(&scene.mgp(&["pending"]).await);
    assert!(
        pending.contains("mgp logins add docs") && pending.contains("takes no calls"),
        "{pending}"
    );
    let misspelt = words(&scene.mgp(&["logins", "add", "dcos"]).await);
    assert!(misspelt.contains("did you mean docs?"), "{misspelt}");

    let told = scene.log_in("docs").await;
    assert!(
        told.contains(&format!("signed in to docs at {}", scene.issuer)),
        "{told}"
    );
    assert!(
        told.contains("the kernel renews it") && told.contains("docs is connected"),
        "{told}"
    );
    let mut agent = scene.agent().await;
    assert_eq!(agent.call("read", json!({})).await.text(), "read for ada");

    scene.control("expire", Method::POST, "").await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        let params = json!({"name": "read", "arguments": {}});
        ids.push(agent.start("tools/call", params).await);
    }
    for id in ids {
        assert_eq!(agent.answer_to(&id).await.text(), "read for ada");
    }
    assert_eq!(
        scene.count("token refresh_token").await,
        1,
        "{:?}",
        scene.log().await
    );
    // The refresh token was rotated: the next one is good, too.
    scene.control("expire", Method::POST, "").await;
    assert_eq!(agent.call("read", json!({})).await.text(), "read for ada");
    assert_eq!(scene.count("token refresh_token").await, 2);
    assert_eq!(scene.count("refused invalid_grant").await, 0);

    let audit = words(&scene.mgp(&["audit", "tail", "--json"]).await);
    let status = words(&scene.mgp(&["status", "--json"]).await);
    let logs = words(&scene.mgp(&["servers", "logs", "docs"]).await);
    for token in scene.seen().await {
        let found =
            [scene.home.path(), scene.kernel.folder()].map(|folder| holding(folder, &token));
        assert_eq!(found.concat(), [""; 0], "a token lies in a file");
        for told in [&audit, &status, &logs, &told] {
            assert!(!told.contains(&token));
        }
    }

    let out = words(&scene.mgp(&["logins", "remove", "docs"]).await);
    assert!(out.contains("the login at docs is forgotten"), "{out}");
    assert!(scene.count("revoked").await >= 1);
    scene.is("docs", "error").await;
    let again = words(&scene.mgp(&["logins", "remove", "docs"]).await);
    assert!(again.contains("there is no login at docs"), "{again}");
}

/// `mgp logins list` shows the logins that servers want, and those that are stored, also without a kernel.
#[tokio::test]
async fn logins_are_listed() {
    let Some(scene) = LoginScene::start("").await else {
        return;
    };
    let list = async |args: &[&str]| {
        let listed = scene.mgp(&[&["logins", "list"], args].concat()).await;
        assert_eq!(listed.status.code(), Some(0), "{listed:?}");
        words(&listed)
    };
    let row_of = |listed: &str, server: &str| {
        let row = listed.lines().find(|row| row.starts_with(server));
        row.map(str::to_owned)
    };
    let before = list(&[]).await;
    let wanted = row_of(&before, "docs").unwrap();
    assert!(wanted.ends_with("wanted: mgp logins add docs"), "{before}");
    let json: Value = serde_json::from_str(&list(&["--json"]).await).unwrap();
    assert_eq!(json["logins"], json!([]), "{json}");
    assert_eq!(json["wanted"]["docs"]["command"], "mgp logins add docs");

    scene.log_in("docs").await;
    let after = list(&[]).await;
    let stored = row_of(&after, "docs").unwrap();
    let cells: Vec<&str> = stored.split_whitespace().collect();
    let [server, url, signed_in] = cells[..] else {
        panic!("{after}");
    };
    assert_eq!((server, url), ("docs", scene.mcp.as_str()), "{after}");
    assert!(!after.contains("wanted: mgp logins add docs"), "{after}");
    let json: Value = serde_json::from_str(&list(&["--json"]).await).unwrap();
    let login = json!({"server": "docs", "url": scene.mcp, "agent": null, "set_at": signed_in});
    assert_eq!(json["logins"], json!([login]));
    assert_eq!(json["wanted"]["docs"], Value::Null, "{json}");

    // The store is read by the command itself: what is stored is listed where no kernel runs.
    let nowhere = scene.home.path().join("none.sock").display().to_string();
    let stored = list(&["--socket", &nowhere]).await;
    assert_eq!(row_of(&stored, "docs"), row_of(&after, "docs"), "{stored}");

    scene.mgp(&["logins", "remove", "docs"]).await;
    let json: Value = serde_json::from_str(&list(&["--json"]).await).unwrap();
    assert_eq!(json["logins"], json!([]), "{json}");
}

/// A kernel that starts again has the login still; one whose refresh token was taken back says that it wants another.
#[tokio::test]
async fn login_survives_a_restart_until_it_is_revoked() {
    let Some(mut scene) = LoginScene::start("").await else {
        return;
    };
    scene.log_in("docs").await;
    let folder = scene.home.path().display().to_string();
    let mut kernel = scene.kernel;
    kernel.process().signal(nix::sys::signal::Signal::SIGTERM);
    kernel.process().end(DEADLINE).await;
    let config = fs::read_to_string(kernel.folder().join("mgp.toml")).unwrap();
    scene.kernel = Kernel::with_environment(&config, &home_is(&folder)).await;
    scene.is("docs", "connected").await;
    // As when a refresh token was stolen and used: the server ends the whole grant.
    scene.provider.signal(nix::sys::signal::Signal::SIGKILL);
    scene.provider.end(DEADLINE).await;
    let mut agent = scene.agent().await;
    let lost = agent.call("read", json!({})).await;
    assert!(lost.is_error(), "{}", lost.frame);
    let server = scene.server("docs").await;
    let why = server["reason"].as_str().unwrap();
    assert!(
        !why.contains("mgp logins add"),
        "nobody has to sign in because it is away: {why}"
    );
}

/// A call that needs more than the login gave says what to type, and the login that follows keeps what was there.
#[tokio::test]
async fn a_call_that_needs_more_rights_asks_for_a_login_with_more() {
    let Some(scene) = LoginScene::start("").await else {
        return;
    };
    scene.log_in("docs").await;
    let mut agent = scene.agent().await;
    let refused = agent.call("write", json!({})).await;
    assert!(
        refused.frame.contains("mgp logins add docs"),
        "{}",
        refused.frame
    );
    assert!(refused.frame.contains("mcp:write"), "{}", refused.frame);
    assert_eq!(agent.call("read", json!({})).await.text(), "read for ada");
    let told = scene.log_in("docs").await;
    assert!(
        told.contains("mcp:read") && told.contains("mcp:write"),
        "{told}"
    );
    assert_eq!(agent.call("write", json!({})).await.text(), "write for ada");
    // Registered once: the second login came as the same client.
    assert_eq!(scene.count("registered").await, 1);
}

/// Over ssh: what is pasted is held to its own login and its own issuer, and a code alone opens nothing.
#[tokio::test]
async fn a_stolen_code_and_an_answer_of_another_issuer_open_nothing() {
    let Some(scene) = LoginScene::start("").await else {
        return;
    };
    let (mut login, url) = scene.begins(&["docs", "--no-browser"]).await;
    let mut stdin = login.take_stdin().unwrap();
    let back = scene.browse(&url).await;
    let mut paste = |line: &str| {
        use std::io::Write;
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    };
    // A thief has the code, and not the secret of the login.
    let query: Vec<(String, String)> = pairs(&back);
    let of = |name: &str| query.iter().find(|(n, _)| n == name).unwrap().1.clone();
    let client = pairs(&url)
        .into_iter()
        .find(|(n, _)| n == "client_id")
        .unwrap()
        .1;
    let callback = back.split('?').next().unwrap();
    let body = format!(
        "grant_type=authorization_code&code={}&client_id={client}&redirect_uri={callback}&code_verifier={}",
        of("code"),
        "x".repeat(43)
    );
    let mut thief = HttpClient::new(&format!("{}/token", scene.issuer));
    thief.set(CONTENT_TYPE, "application/x-www-form-urlencoded");
    let stolen = thief.send(Method::POST, body).await.unwrap();
    assert_eq!(stolen.status.as_u16(), 400);
    // An answer to another login is not taken, and this one goes on waiting.
    paste(&back.replace(&of("state"), "another"));
    login
        .says("that it is no answer", DEADLINE, |said| {
            said.contains("no answer to this login").then_some(())
        })
        .await;
    // One of another issuer ends it, before its code goes anywhere.
    let before = scene.log().await.len();
    let iss = back
        .split("iss=")
        .nth(1)
        .unwrap()
        .split('&')
        .next()
        .unwrap();
    paste(&back.replace(iss, "https%3A%2F%2Fevil.example"));
    let status = login.end(DEADLINE).await;
    assert!(!status.success());
    let told = login.stderr();
    assert!(
        told.contains("the answer came from https://evil.example"),
        "{told}"
    );
    assert_eq!(scene.log().await.len(), before);
    assert_eq!(scene.server("docs").await["state"], "error");
}

/// Crossings: 0. A server that says it is another one gets no login, and no token of anybody.
#[tokio::test]
async fn a_token_goes_to_its_own_server_only() {
    let Some(scene) = LoginScene::start("").await else {
        return;
    };
    scene.log_in("docs").await;
    let refused = scene.mgp(&["logins", "add", "liar"]).await;
    assert!(!refused.status.success());
    let told = words(&refused);
    assert!(
        told.contains("nobody is asked to sign in for another server"),
        "{told}"
    );
    let started = words(&scene.mgp(&["servers", "start", "liar"]).await);
    assert!(started.contains("mgp logins add liar"), "{started}");
    let saw = scene.control("liar", Method::GET, "").await;
    let with_token = saw
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| !it["authorization"].is_null());
    assert_eq!(with_token.count(), 0, "{saw:#}");
    // The entry of another name at the same address has no part in the login.
    let twin = remote_entry("twin", &scene.mcp);
    scene.kernel.rewrite(&format!(
        "{}{twin}[discovery]\nembedding = \"off\"\nexposure = \"all\"\n",
        remote_entry("docs", &scene.mcp)
    ));
    wait_until("the twin is parked", DEADLINE, async || {
        let status = scene.kernel.mgp_json(&["status"]).await;
        let servers = status["servers"].as_array().unwrap();
        servers
            .iter()
            .any(|s| s["id"] == "twin" && s["login"]["command"] == "mgp logins add twin")
    })
    .await;
}

fn pairs(url: &str) -> Vec<(String, String)> {
    let query = url.split_once('?').unwrap().1;
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
