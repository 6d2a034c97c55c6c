//! The authorization server scenarios of the official suite, against the kernel as broker in front of a real identity
//! provider: the suite is the client, and a person signs in with a browser.

use http::Method;
use mgp_tests::harness::sign_in::{Browser, origin};
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel, Need, Peers, Process, Program};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::suite::{ALONE, count};

/// Where the suite listens for the browser; registered with this port, and any other works as well.
const PORT: &str = "38475";

/// Each scenario of authorization servers, and how many checks it has.
const SCENARIOS: [&str; 2] = [
    "authorization-server-metadata-endpoint",
    "authorization-code-grant",
];
const CHECKS: u64 = 3;

async fn start_broker(peers: &Peers) -> (Process, Kernel) {
    let mut provider = Process::start("the provider", &peers.identity_provider("okta"));
    let issuer = provider.says("its issuer", DEADLINE, |said| {
        let line = said.lines().find(|line| line.starts_with("{\"issuer\""))?;
        let told: Value = serde_json::from_str(line).ok()?;
        Some(told["issuer"].as_str()?.to_owned())
    });
    let issuer = issuer.await;
    let entry = Program::fixture(&[]).entry("it");
    let config = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"oauth\"\n[oauth]\nissuer = \"{issuer}\"\n[oauth.broker]\n\
         client_id = \"kernel\"\nclient_secret = \"a secret of the provider\"\n{entry}"
    );
    let kernel = Kernel::with_config(&config).await;
    let callback = format!("{}/oauth/callback", broker_issuer(&kernel));
    let control = HttpClient::new(&format!("{}/control/client", origin(&issuer)));
    control.send(Method::POST, callback).await.unwrap();
    (provider, kernel)
}

fn broker_issuer(kernel: &Kernel) -> String {
    let url = kernel.url().replace("127.0.0.1", "localhost");
    url.trim_end_matches("/mcp").to_owned()
}

/// EXT-234: the suite's scenarios of authorization servers pass.
#[tokio::test]
async fn broker_passes_the_scenarios_of_authorization_servers() {
    let Some(peers) = Peers::find(&[Need::Node, Need::Provider]) else {
        return;
    };
    let _alone = ALONE.lock().await;
    let (_provider, kernel) = start_broker(&peers).await;
    let issuer = broker_issuer(&kernel);
    let redirect = format!("http://127.0.0.1:{PORT}/callback");
    let metadata = json!({"client_name": "The official suite", "redirect_uris": [redirect]});
    let register = HttpClient::new(&format!("{issuer}/oauth/register"));
    let answer = register
        .send(Method::POST, metadata.to_string())
        .await
        .unwrap();
    let client: Value = serde_json::from_str(&answer.text().await).unwrap();
    let out = TempDir::new().unwrap();
    let folder = out.path().display().to_string();
    let resource = format!("{issuer}/mcp");
    let args = [
        "authorization",
        "--url",
        &issuer,
        "--client-id",
        client["client_id"].as_str().unwrap(),
        "--port",
        PORT,
        "--resource",
        &resource,
        "-o",
        &folder,
    ];
    let suite = peers.node("@modelcontextprotocol/conformance/dist/index.js", &args);
    let mut suite = Process::start("the suite", &suite);
    let begin = format!("{issuer}/oauth/authorize?");
    let url = suite.says("where to sign in", DEADLINE, |said| {
        let line = said.lines().find(|line| line.starts_with(&begin))?;
        Some(line.trim().to_owned())
    });
    let url = url.await;
    let mut browser = Browser::default();
    let back = browser.follow(&url, &redirect).await;
    browser.get(&back).await;
    suite.end(DEADLINE).await;
    let checks = count(out.path(), suite.stdout());
    assert!(
        checks.failed.is_empty() && checks.warned.is_empty(),
        "{checks:#?}"
    );
    assert_eq!(checks.passed, CHECKS, "{checks:#?}");
}

/// Every scenario of authorization servers in the installed suite is played: the run above selects none.
#[tokio::test]
async fn no_scenario_of_authorization_servers_is_left_out() {
    let Some(peers) = Peers::find(&[Need::Node]) else {
        return;
    };
    let listed = peers.node("@modelcontextprotocol/conformance/dist/index.js", &["list"]);
    let output = listed.output(DEADLINE).await;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, servers) = told.split_once("Authorization server scenarios").unwrap();
    let names = servers
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- ")?.split(' ').next());
    assert_eq!(names.collect::<Vec<_>>(), SCENARIOS);
}
