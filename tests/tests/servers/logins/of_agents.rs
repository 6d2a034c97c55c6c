//! `login = "agent"`: each agent signs in for itself.

use std::collections::BTreeSet;

use http::Method;
use mgp_tests::harness::kernel::trace::{interrupted, shows, tracing};
use mgp_tests::harness::{Agent, DEADLINE, HttpClient};
use serde_json::{Value, json};

use super::{LoginScene, holding, home_is, words};

const BY_URL: &str = r#"{"elicitation":{"url":{}}}"#;

impl LoginScene {
    /// An agent of this name, whose client can do this much.
    async fn named(&self, name: &str, capabilities: &str) -> Agent {
        let folder = self.home.path().display().to_string();
        let program = self.kernel.program(&["stdio", "--agent", name]);
        let home = home_is(&folder);
        let program = home
            .iter()
            .fold(program, |program, (name, value)| program.env(name, *value));
        let mut agent = Agent::over_stdio(&program);
        agent.initialize("2025-11-25", capabilities).await.result();
        agent
    }

    /// Signs in at an address as somebody, with a browser that comes back by itself.
    async fn signs_in(&self, url: &str, person: &str) {
        self.control("person", Method::POST, person).await;
        let back = self.browse(url).await;
        let answer = HttpClient::new(&back).send(Method::GET, "").await.unwrap();
        let page = answer.text().await;
        assert!(page.contains("You can close this tab"), "{page}");
    }
}

/// Decision 0068: a token of any login, the agent's own or another one's, is masked in what an agent says and hears.
async fn no_trace_shows_a_token(scene: &LoginScene, claude: &mut Agent) {
    let args = ["--agent", "claude", "--full", "--json"];
    let mut trace = tracing(&scene.kernel, &args).await;
    let tokens: BTreeSet<String> = scene.seen().await.into_iter().collect();
    assert!(tokens.len() >= 3, "of ada, bob and eve");
    for token in &tokens {
        let said = json!({"note": format!("it is {token}"), token: [token]});
        claude.call("docs:read", said).await.result();
    }
    let last = json!({"note": "the last"});
    claude.call("docs:read", last).await.result();
    shows(&mut trace, "the last").await;
    let shown = interrupted(trace).await;
    assert!(shown.contains("it is [redacted]"), "{shown}");
    for token in &tokens {
        assert!(!shown.contains(token), "a token is shown");
    }
}

/// Decision 0060: an agent's first call asks its person by URL, who signs in for that agent alone; another one is
/// told in words and signs in at the command line; no token is ever another agent's, nor that of another one of
/// the same name.
#[tokio::test]
async fn each_agent_signs_in_for_itself() {
    let Some(scene) = LoginScene::start("login = \"agent\"\n").await else {
        return;
    };
    // The lists are those that the operator's login shows.
    scene.log_in("docs").await;
    for name in ["claude", "codex"] {
        let added = scene.mgp(&["agents", "add", name]).await;
        assert!(added.status.success(), "{added:?}");
    }
    let mut claude = scene.named("claude", BY_URL).await;
    let asked = claude.call("docs:read", json!({})).await;
    let error: Value = serde_json::from_str(&asked.frame).unwrap();
    assert_eq!(error["error"]["code"], -32042, "{}", asked.frame);
    let elicitation = &error["error"]["data"]["elicitations"][0];
    assert_eq!(elicitation["mode"], "url");
    let url = elicitation["url"].as_str().unwrap();
    // One login, however often the agent asks.
    let again = claude.call("docs:read", json!({})).await;
    assert!(again.frame.contains(url), "{}", again.frame);
    scene.signs_in(url, "bob").await;
    let told = claude.hears("notifications/elicitation/complete").await;
    assert_eq!(
        told["params"]["elicitationId"],
        elicitation["elicitationId"]
    );
    assert_eq!(
        claude.call("docs:read", json!({})).await.text(),
        "read for bob"
    );

    let mut codex = scene.named("codex", "{}").await;
    let refused = codex.call("docs:read", json!({})).await;
    assert!(
        refused.frame.contains("sign in at http"),
        "{}",
        refused.frame
    );
    let pending = words(&scene.mgp(&["pending"]).await);
    for part in [
        "docs for agent.codex",
        "mgp logins add docs --agent codex",
        "or sign in at http",
    ] {
        assert!(pending.contains(part), "{part}: {pending}");
    }
    let misspelt = words(
        &scene
            .mgp(&["logins", "add", "docs", "--agent", "codx"])
            .await,
    );
    assert!(misspelt.contains("codex"), "{misspelt}");
    let (mut login, url) = scene.begins(&["docs", "--agent", "codex"]).await;
    scene.signs_in(&url, "eve").await;
    let status = login.end(DEADLINE).await;
    assert!(status.success(), "{}", login.stderr());
    assert!(
        login.stdout().contains("signed in to docs for agent.codex"),
        "{}",
        login.stdout()
    );
    for _ in 0..3 {
        assert_eq!(
            codex.call("docs:read", json!({})).await.text(),
            "read for eve"
        );
        assert_eq!(
            claude.call("docs:read", json!({})).await.text(),
            "read for bob"
        );
    }
    let own = words(&scene.mgp(&["tools", "call", "docs:read"]).await);
    assert!(own.contains("read for ada"), "{own}");
    no_trace_shows_a_token(&scene, &mut claude).await;

    // Who is called the same later is somebody else.
    let removed = scene.mgp(&["agents", "remove", "claude"]).await;
    assert!(removed.status.success(), "{removed:?}");
    drop(claude);
    scene.mgp(&["agents", "add", "claude"]).await;
    let mut other = scene.named("claude", "{}").await;
    let refused = other.call("docs:read", json!({})).await;
    assert!(
        refused.frame.contains("wants a login for agent.claude"),
        "{}",
        refused.frame
    );

    let out = words(
        &scene
            .mgp(&["logins", "remove", "docs", "--agent", "codex"])
            .await,
    );
    assert!(out.contains("is forgotten"), "{out}");
    scene.is("docs", "connected").await;
    let refused = codex.call("docs:read", json!({})).await;
    assert!(refused.is_error(), "{}", refused.frame);
    let status = words(&scene.mgp(&["status", "--json"]).await);
    let audit = words(&scene.mgp(&["audit", "tail", "--json"]).await);
    for token in scene.seen().await {
        let found = [scene.home.path(), scene.kernel.folder()].map(|at| holding(at, &token));
        assert_eq!(found.concat(), [""; 0], "a token lies in a file");
        assert!(!status.contains(&token) && !audit.contains(&token));
    }
}
