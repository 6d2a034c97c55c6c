//! The story that both SDKs tell of the scripted server, directly and through the kernel.

use mgp_tests::harness::{DEADLINE, Kernel, Program};
use serde_json::{Value, json};

/// The ways an agent reaches the server.
const WAYS: [&str; 2] = ["http", "stdio"];

/// A tool of the server with a member that plain MCP does not know.
const GUARDED: &str = r#"--tool={"name":"guarded","inputSchema":{"type":"object"},"security":{"risk_level":"safe","validator":"sandbox"}}"#;

/// `tell` makes an agent out of a kind of wire and where it leads; what the agent sees at the
/// kernel over both doors must be what it sees of the server itself.
pub(crate) async fn is_the_same_through_the_kernel(tell: impl Fn(&[&str]) -> Program) {
    let fixture = Program::fixture(&[GUARDED]);
    let path = fixture.command.as_str();
    let mut direct = told(&tell(&["stdio", path, "--stdio", GUARDED])).await;
    let tools = tools(&mut direct);
    assert!(tools.to_string().contains("guarded"), "{tools}");
    for way in WAYS {
        let kernel = Kernel::start(&fixture.entry("it")).await;
        kernel.connected(&["it"]).await;
        let url = kernel.server_url("it");
        let door = kernel.program(&["stdio", "--server", "it"]);
        let mut agent = match way {
            "http" => tell(&["http", &url]),
            _ => tell(&["stdio", &door.command]).args(&["stdio", "--server", "it"]),
        };
        agent.env.extend(door.env);
        let mut seen = told(&agent).await;
        assert_eq!(self::tools(&mut seen), tools, "{way}");
        assert_eq!(seen, direct, "{way}");
    }
    is_whole(&direct);
}

/// What is seen of every feature, so that the comparison does not compare nothing.
fn is_whole(seen: &Value) {
    assert_eq!(seen["version"], "2025-11-25");
    assert_eq!(seen["calls"][2]["isError"], true);
    assert_eq!(seen["structured"]["structuredContent"]["text"], "grüße");
    assert_eq!(seen["sampled"]["content"][0]["text"], "LLM response: four");
    assert_eq!(seen["asked"], json!(["two and two", "who are you"]));
    assert_eq!(seen["rooted"]["content"][0]["text"], "file:///home/ada");
    assert_eq!(seen["unknown"], -32602);
    assert_eq!(seen["logged"].as_array().unwrap().len(), 3);
    assert_eq!(seen["read"].as_array().unwrap().len(), 3);
    assert_eq!(seen["completion"], json!(["paris", "park", "party"]));
}

/// Takes the definitions out of a story, for a shorter message when they differ.
fn tools(story: &mut Value) -> Value {
    story["tools"].take()
}

/// Runs an agent. Left out of what it tells: how often its roots were asked for, which a kernel may
/// do at any time, and the last step of progress, which an SDK loses when the answer is close
/// behind.
async fn told(agent: &Program) -> Value {
    let output = agent.output(DEADLINE).await;
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{agent:?}: {err}");
    let mut story: Value = serde_json::from_slice(&output.stdout).unwrap();
    let story_of = story.as_object_mut().unwrap();
    assert!(story_of.remove("roots_asked").unwrap().as_u64() >= Some(1));
    let progress = story_of.remove("progress").unwrap();
    let steps: Vec<[f64; 2]> = serde_json::from_value(progress).unwrap();
    assert!(
        [[0.0, 100.0], [50.0, 100.0], [100.0, 100.0]].starts_with(&steps),
        "{steps:?}"
    );
    assert!(steps.len() >= 2, "{steps:?}");
    story
}
