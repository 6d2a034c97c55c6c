//! A kernel is a lite server, too: another one has it as its upstream, over both transports.

use mgp_tests::harness::kernel::trace::{all_told, interrupted, shows, tracing};
use mgp_tests::harness::{Agent, Kernel, Program};
use serde_json::json;

use super::{ASKED, NEWEST};
use crate::grpc::client::address;
use crate::scene;

/// LITE-001, LITE-017, LITE-067, LITE-076: promises are redeemed and questions answered between two kernels, and what
/// was asked for goes on with the call that waits, so that the server is called once.
#[tokio::test]
async fn a_kernel_has_another_ones_tools_over_mcp_lite() {
    let far = scene::kernel(
        "[tuning.lite]\npromise_after_ms = 200\n",
        &["--era", "legacy"],
    )
    .await;
    let lite = scene::url(&far, scene::BASE);
    let grpc = format!("http://{}", address(&far));
    let entry = |transport: &str, url: &str| {
        format!("[[servers]]\nid = {transport:?}\ntransport = {transport:?}\nurl = {url:?}\n")
    };
    let kernel = Kernel::start(&(entry("lite", &lite) + &entry("grpc", &grpc))).await;
    kernel.connected(&["lite", "grpc"]).await;
    for (calls, transport) in ["lite", "grpc"].into_iter().enumerate() {
        let mut agent = Agent::over_http(&kernel.server_url(transport));
        agent.initialize(NEWEST, ASKED).await.result();
        let content = json!({"username": "ann", "email": "ann@a.test"});
        let answer = json!({"action": "accept", "content": content});
        agent.answers("elicitation/create", answer);
        let asked = agent
            .call("it__test_elicitation", json!({"message": "Who?"}))
            .await;
        assert!(
            asked.frame.contains("ann@a.test"),
            "{transport}: {}",
            asked.frame
        );
        let counted = agent.call("it__count", json!({})).await;
        let counted: serde_json::Value = serde_json::from_str(counted.result_text()).unwrap();
        let counted = &counted["structuredContent"]["calls"]["test_elicitation"];
        assert_eq!(*counted, calls + 1, "{transport}");
        let slow = json!({"seconds": 1, "label": transport});
        let late = agent.call("it__slow_compute", slow).await;
        assert!(
            !late.is_error() && late.frame.contains(transport),
            "{}",
            late.frame
        );
    }
}

/// Decision 0071: messages of MCP-lite are seen at both of its ends: what a kernel says to such a server and hears from
/// it, and what an agent at either door says and hears; a question and a promise on the way, too.
#[tokio::test]
async fn what_passes_over_mcp_lite_is_followed_at_both_ends() {
    let far = scene::kernel(
        "[tuning.lite]\npromise_after_ms = 200\n",
        &["--era", "legacy"],
    )
    .await;
    let lite = scene::url(&far, scene::BASE);
    let grpc = format!("http://{}", address(&far));
    let entry = |transport: &str, url: &str| {
        format!("[[servers]]\nid = {transport:?}\ntransport = {transport:?}\nurl = {url:?}\n")
    };
    let kernel = Kernel::start(&(entry("lite", &lite) + &entry("grpc", &grpc))).await;
    kernel.connected(&["lite", "grpc"]).await;
    for transport in ["lite", "grpc"] {
        let mut near = tracing(&kernel, &[transport, "--json", "--full"]).await;
        let whom = ["--agent", "anonymous", "--json", "--full"];
        let mut beyond = tracing(&far, &whom).await;
        let mut agent = Agent::over_http(&kernel.server_url(transport));
        agent.initialize(NEWEST, ASKED).await.result();
        let content = json!({"username": "ann", "email": "ann@a.test"});
        let answer = json!({"action": "accept", "content": content});
        agent.answers("elicitation/create", answer);
        let asking = json!({"message": "Who?"});
        agent.call("it__test_elicitation", asking).await.result();
        let slow = json!({"seconds": 1, "label": transport});
        agent.call("it__slow_compute", slow).await.result();
        agent
            .call("it__test_error_handling", json!({}))
            .await
            .result();
        let last = json!({"text": "the last"});
        agent.call("it__echo", last).await.result();
        let calls = [
            "test_elicitation",
            "slow_compute",
            "test_error_handling",
            "echo",
        ];
        for (trace, asks, answers) in [
            (&mut near, "kernel", "server"),
            (&mut beyond, "agent", "kernel"),
        ] {
            shows(trace, "the last").await;
            shows(trace, &format!("\"from\":\"{answers}\",\"kind\":\"answer\",\"method\":\"tools/call\",\"about\":\"it__echo\"")).await;
            let out = trace.stdout();
            let said = all_told(&out);
            for call in calls {
                for wanted in [
                    format!("{asks} request tools/call it__{call}"),
                    format!("{answers} answer tools/call it__{call}"),
                ] {
                    assert!(said.contains(&wanted), "{transport}: {wanted}: {said:#?}");
                }
            }
            assert!(out.contains(r#""failed":true"#), "{transport}: {out}");
            assert!(out.contains("ann@a.test"), "{transport}: {out}");
        }
        interrupted(near).await;
        interrupted(beyond).await;
    }
}

/// Decision 0058: over TLS, with an authority of the configuration and a token, both transports reach a door that
/// asks for one.
#[tokio::test]
async fn a_kernel_has_another_ones_tools_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, tls) = scene::certified(folder.path());
    let tls = format!("{}{tls}", scene::TOKENS);
    let far = Kernel::with_config(&format!("{tls}{}", Program::fixture(&[]).entry("it"))).await;
    far.connected(&["it"]).await;
    let token = std::fs::read_to_string(far.folder().join("data/token")).unwrap();
    let entry = |transport: &str, path: &str| {
        format!(
            "[[servers]]\nid = {transport:?}\ntransport = {transport:?}\nurl = \"https://{}{path}\"\n\
             headers = {{ Authorization = \"Bearer {}\" }}\n",
            address(&far),
            token.trim()
        )
    };
    let servers = entry("lite", scene::BASE) + &entry("grpc", "");
    let network = format!("[network]\nca_file = {:?}\n", certificate);
    let kernel = Kernel::start(&(network + &servers)).await;
    kernel.connected(&["lite", "grpc"]).await;
    for transport in ["lite", "grpc"] {
        let mut agent = Agent::over_http(&kernel.server_url(transport));
        agent.initialize(NEWEST, "{}").await.result();
        let echo = agent.call("it__echo", json!({"text": "sealed"})).await;
        assert_eq!(echo.text(), "sealed", "{transport}");
    }
}
