//! Which version of the protocol is spoken, and what says so.

use http::StatusCode;
use mgp_tests::harness::http::VERSION;
use mgp_tests::harness::{Agent, HttpClient};
use serde_json::json;

use crate::scene::{self, LEGACY, NEWEST, request};

/// Over every kind of endpoint a client that asks for the first version is answered with the second, and served.
async fn assert_negotiated(versions: &[(&str, &str)]) {
    let kernel = scene::kernel().await;
    for (asked, spoken) in versions {
        for mut agent in [
            kernel.stdio_agent(None),
            Agent::over_socket(&kernel.socket()).await,
        ] {
            let opened = agent.initialize(asked, "{}").await.result();
            assert_eq!(opened["protocolVersion"], *spoken, "{asked:?}");
            let echo = agent.call("echo", json!({"text": asked})).await;
            assert_eq!(echo.text(), *asked);
        }
        let initialize = mgp_tests::harness::handshake::initialize(asked, "{}");
        let opened = HttpClient::new(kernel.url())
            .post(initialize)
            .await
            .frames()
            .await;
        let opened: serde_json::Value = serde_json::from_str(&opened[0]).unwrap();
        assert_eq!(opened["result"]["protocolVersion"], *spoken, "{asked:?}");
    }
}

/// MCP-088.
#[tokio::test]
async fn known_version_is_echoed() {
    assert_negotiated(&LEGACY.map(|version| (version, version))).await;
}

/// MCP-003: also for one that does not open with `initialize`.
#[tokio::test]
async fn unknown_version_is_answered_with_the_newest() {
    let unknown = ["2026-07-28", "1999-01-01", "", "newest"];
    assert_negotiated(&unknown.map(|version| (version, NEWEST))).await;
}

/// MCP-002.
#[tokio::test]
async fn initialize_returns_version_capabilities_and_server_info() {
    let kernel = scene::kernel().await;
    let mut agent = kernel.stdio_agent(None);
    let opened = agent.initialize(NEWEST, "{}").await.result();
    assert_eq!(opened["protocolVersion"], NEWEST);
    assert!(opened["capabilities"].is_object(), "{opened}");
    assert_eq!(opened["serverInfo"]["name"], "mgp");
    assert!(opened["serverInfo"]["version"].is_string(), "{opened}");
}

/// MCP-015, MCP-063, CMCP-042: what is announced is what works, at everything and at one server.
#[tokio::test]
async fn the_capabilities_announced_are_those_that_work() {
    let kernel = scene::kernel().await;
    for server in [None, Some("it")] {
        let mut agent = kernel.http_agent(server);
        let opened = agent.initialize(NEWEST, "{}").await.result();
        let can = &opened["capabilities"];
        for list in ["tools", "prompts", "resources"] {
            assert_eq!(can[list]["listChanged"], true, "{can}");
            agent
                .request(&format!("{list}/list"), json!({}))
                .await
                .result();
        }
        assert_eq!(can["resources"]["subscribe"], true, "{can}");
        let watched = json!({"uri": "test://watched-resource"});
        agent.request("resources/subscribe", watched).await.result();
        assert!(
            can["logging"].is_object() && can["completions"].is_object(),
            "{can}"
        );
        agent
            .request("logging/setLevel", json!({"level": "info"}))
            .await
            .result();
        for not_relayed in ["tasks", "experimental"] {
            assert!(can.get(not_relayed).is_none(), "{can}");
        }
        // Servers with apps come and go; this one declares no extension.
        let apps = json!({"io.modelcontextprotocol/ui": {}});
        let extensions = server.is_none().then_some(&apps);
        assert_eq!(can.get("extensions"), extensions, "{can}");
    }
}

/// MCP-086: what servers say to the model is not lost, and says whose it is.
#[tokio::test]
async fn instructions_of_every_server_reach_the_client() {
    let kernel = scene::kernel_of_two().await;
    let mut everything = kernel.http_agent(None);
    let opened = everything.initialize(NEWEST, "{}").await.result();
    let told = opened["instructions"].as_str().unwrap().to_owned();
    let mut alone = kernel.http_agent(Some("one"));
    let opened = alone.initialize(NEWEST, "{}").await.result();
    let own = opened["instructions"].as_str().unwrap();
    assert!(!own.is_empty() && told.matches(own).count() == 2, "{told}");
    for server in ["one", "two"] {
        assert!(told.contains(&format!("# {server}\n> {own}\n")), "{told}");
    }
}

/// MCP-078, CMCP-031, A-16: the header must name the version of the session, or not be there.
#[tokio::test]
async fn a_wrong_version_header_is_400() {
    let kernel = scene::kernel().await;
    for spoken in LEGACY {
        let mut client = scene::session(&kernel, spoken).await;
        let list = || request(1, "tools/list", json!({}));
        assert_eq!(client.post(list()).await.status, StatusCode::OK, "{spoken}");
        let others = LEGACY.into_iter().filter(|v| *v != spoken);
        for wrong in others.chain(["1999-01-01", "", "2025-06-18x"]) {
            client.set(VERSION, wrong);
            let answer = client.post(list()).await;
            assert_eq!(
                answer.status,
                StatusCode::BAD_REQUEST,
                "{wrong:?} in {spoken}"
            );
            assert!(answer.text().await.contains("MCP-Protocol-Version"));
            assert_eq!(client.get(None).await.status, StatusCode::BAD_REQUEST);
            assert_eq!(client.delete().await.status, StatusCode::BAD_REQUEST);
        }
        // The stateless version has no sessions: it is another way in, whatever session is named.
        client.set(VERSION, "2026-07-28");
        assert_eq!(client.post(list()).await.status, StatusCode::BAD_REQUEST);
        assert_eq!(
            client.get(None).await.status,
            StatusCode::METHOD_NOT_ALLOWED
        );
        client.headers.remove(VERSION);
        assert_eq!(client.post(list()).await.status, StatusCode::OK, "{spoken}");
    }
}

/// CMCP-031: the header is judged before the body is looked at.
#[tokio::test]
async fn invalid_version_header_is_rejected_before_an_invalid_body() {
    let kernel = scene::kernel().await;
    let mut client = scene::session(&kernel, NEWEST).await;
    client.set(VERSION, "1999-01-01");
    let answer = client.post("{not json").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let text = answer.text().await;
    assert!(
        text.contains("MCP-Protocol-Version") && !text.contains("-32700"),
        "{text}"
    );
}
