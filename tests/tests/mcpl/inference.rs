//! Inference that servers ask for (MCPL §11), and `model/info` (§12).

mod host;
mod provider;

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::host::Host;
pub(crate) use self::provider::Provider;
use crate::scene;

const OPEN: &str = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n";
const REQUEST: &str = "inference/request";

/// A server with sets that infer, one that is never enabled, and one that does something else.
fn inferring(id: &str) -> String {
    let infers = json!({"description": "x", "uses": ["inferenceRequest"]});
    let said = json!({
        "version": "0.4", "inferenceRequest": {"streaming": true}, "modelInfo": true, "pushEvents": true,
        "featureSets": {
            "memory.consolidation": infers, "memory.claude": infers, "memory.nowhere": infers,
            "off": infers, "pushes": {"description": "x", "uses": ["pushEvents"]},
        },
    });
    Program::fixture(&["--mcpl", &said.to_string()]).entry(id)
}

fn enabled(id: &str) -> String {
    format!("[mcpl.servers.{id}]\nenable = [\"memory.*\", \"pushes\"]\n")
}

async fn owner(kernel: &Kernel) -> Agent {
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    agent.initialize("2025-11-25", "{}").await.result();
    agent
}

/// The host's answer to a request of a server.
async fn asks(owner: &mut Agent, server: &str, asked: Value) -> Value {
    let said = owner
        .call(&format!("{server}__mcpl_ask"), asked)
        .await
        .result();
    said["structuredContent"].clone()
}

fn request(set: &str, text: &str) -> Value {
    json!({"method": REQUEST, "params": {"featureSet": set, "messages": [{"role": "user", "content": text}]}})
}

/// The chunks that reached a server, oldest first.
async fn chunks(owner: &mut Agent, server: &str) -> Vec<Value> {
    let asked = json!({"method": "inference/chunk"});
    let said = owner
        .call(&format!("{server}__mcpl_heard"), asked)
        .await
        .result();
    said["structuredContent"]["heard"]
        .as_array()
        .unwrap()
        .clone()
}

fn reason(answer: &Value) -> &str {
    assert_eq!(answer["error"]["code"], -32010, "{answer}");
    answer["error"]["data"]["reason"].as_str().unwrap()
}

/// The servers `memory` and `poor`, whose requests a provider answers in either wire format.
struct Provided {
    kernel: Kernel,
    owner: Agent,
    provider: Provider,
}

impl Provided {
    async fn start() -> Self {
        let provider = Provider::start().await;
        let config = [
            inferring("memory"),
            inferring("poor"),
            enabled("memory"),
            enabled("poor"),
            "[mcpl.inference]\nmax_tokens = 400\nroutes = { \"memory.memory.claude\" = \"provider:claude\", \
             \"memory.memory.nowhere\" = \"none\", \"memory.memory.*\" = \"provider:gpt\", \"poor.*\" = \"provider:gpt\" }\n\
             conversations = { \"memory:pinned\" = \"provider:claude\" }\n"
                .to_owned(),
            "[mcpl.inference.servers.poor]\ntokens_per_day = 1000\n".to_owned(),
            provider.section("gpt", "openai", "key = \"${PROVIDER_KEY}\"\ncontext_window = 4096\ncapabilities = [\"tools\"]"),
            provider.section("claude", "anthropic", "key = \"${PROVIDER_KEY}\""),
        ]
        .concat();
        let kernel =
            Kernel::with_environment(&format!("{OPEN}{config}"), &[("PROVIDER_KEY", "sk-hush")])
                .await;
        kernel.connected(&["memory", "poor"]).await;
        let owner = owner(&kernel).await;
        Self {
            kernel,
            owner,
            provider,
        }
    }

    /// The answer to a request of the server `memory`.
    async fn ask(&mut self, asked: Value) -> Value {
        asks(&mut self.owner, "memory", asked).await
    }
}

fn with_params(params: Value) -> Value {
    json!({"method": REQUEST, "params": params})
}

/// The same request, streamed in this conversation under this id.
fn streamed_as(mut asked: Value, conversation: &str, id: &str) -> Value {
    asked["id"] = json!(id);
    asked["params"]["stream"] = json!(true);
    asked["params"]["conversationId"] = json!(conversation);
    asked
}

/// MCPL-014, MCPL-103.
#[tokio::test]
async fn inference_request_returns_content_model_reason_and_usage() {
    let mut provided = Provided::start().await;
    let answer = provided.ask(request("memory.consolidation", "hi")).await;
    let expected = json!({"content": "echo: hi", "model": "gpt-real", "finishReason": "end_turn",
        "usage": {"inputTokens": 2, "outputTokens": 3}});
    assert_eq!(answer["result"], expected, "{answer}");
    let (head, _) = provided.provider.heard().pop().unwrap();
    assert!(head.contains("authorization: Bearer sk-hush"), "{head}");
}

/// MCPL-139: of `FinishReason`; `Position` is in `hooks`.
#[tokio::test]
async fn finish_reason_of_the_provider_is_translated() {
    let mut provided = Provided::start().await;
    for (set, text, reason) in [
        ("memory.consolidation", "a", "end_turn"),
        ("memory.claude", "a", "end_turn"),
        ("memory.consolidation", "!length", "max_tokens"),
        ("memory.claude", "!length", "max_tokens"),
        ("memory.claude", "!sequence", "stop_sequence"),
    ] {
        let answer = provided.ask(request(set, text)).await;
        assert_eq!(answer["result"]["finishReason"], reason, "{text}: {answer}");
    }
}

/// MCPL-038.
#[tokio::test]
async fn request_of_a_server_without_a_feature_set_is_rejected() {
    let mut provided = Provided::start().await;
    let push =
        json!({"eventId": "e", "timestamp": "2026-01-23T14:00:00Z", "payload": {"content": "x"}});
    for (method, params) in [
        (
            REQUEST,
            json!({"messages": [{"role": "user", "content": "a"}]}),
        ),
        ("push/event", push),
    ] {
        let answer = provided
            .ask(json!({"method": method, "params": params}))
            .await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("featureSet"), "{method}: {answer}");
    }
    assert!(provided.provider.heard().is_empty());
}

/// MCPL-101: and each optional parameter may be missing.
#[tokio::test]
async fn inference_request_with_invalid_params_is_rejected() {
    let mut provided = Provided::start().await;
    let set = "memory.consolidation";
    let messages = json!([{"role": "user", "content": "a"}]);
    for params in [
        json!({"featureSet": set}),
        json!({"featureSet": set, "messages": []}),
        json!({"featureSet": set, "messages": [{"role": "user", "content": 1}]}),
        json!({"featureSet": set, "messages": messages, "stream": "yes"}),
        json!({"featureSet": set, "messages": messages, "preferences": {"maxTokens": -1}}),
    ] {
        let answer = provided.ask(with_params(params.clone())).await;
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
    assert!(provided.provider.heard().is_empty());
    provided.ask(request(set, "hi")).await;
    let sent = provided.provider.last();
    assert_eq!(sent["stream"], false, "{sent}");
    assert!(sent.get("temperature").is_none(), "{sent}");
}

/// MCPL-102.
#[tokio::test]
async fn preferences_are_passed_on_within_limits_and_unknown_ones_are_ignored() {
    let mut provided = Provided::start().await;
    let mut asked = request("memory.consolidation", "hi");
    asked["params"]["preferences"] =
        json!({"maxTokens": 999_999, "temperature": 0.5, "modelTier": "big", "model": {"any": 1}});
    let answer = provided.ask(asked).await;
    assert_eq!(answer["result"]["content"], "echo: hi", "{answer}");
    let sent = provided.provider.last();
    assert_eq!(sent["model"], "openai-small");
    assert_eq!(sent["max_tokens"], 400);
    assert_eq!(sent["temperature"], 0.5);
    assert!(sent.get("modelTier").is_none(), "{sent}");
}

/// MCPL-144.
#[tokio::test]
async fn message_content_is_a_string_or_blocks() {
    let mut provided = Provided::start().await;
    let messages = json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]);
    let params = json!({"featureSet": "memory.consolidation", "messages": messages});
    let answer = provided.ask(with_params(params)).await;
    assert_eq!(answer["result"]["content"], "echo: hi", "{answer}");
    let sent = provided.provider.last();
    assert_eq!(
        sent["messages"][0],
        json!({"role": "system", "content": "be brief"})
    );
}

/// MCPL-015, MCPL-105: in both wire formats.
#[tokio::test]
async fn inference_chunk_is_a_notification_under_the_servers_own_request_id() {
    let mut provided = Provided::start().await;
    for set in ["memory.consolidation", "memory.claude"] {
        let before = chunks(&mut provided.owner, "memory").await.len();
        let id = format!("{set} \u{e9}");
        provided
            .ask(streamed_as(request(set, "hello"), "free", &id))
            .await;
        let parts = chunks(&mut provided.owner, "memory")
            .await
            .split_off(before);
        assert_eq!(parts.len(), 3);
        for part in parts {
            assert!(part.get("id").is_none(), "{part}");
            assert_eq!(part["params"]["requestId"], json!(id));
        }
    }
}

/// MCPL-104.
#[tokio::test]
async fn streamed_inference_sends_chunks_and_then_the_whole_result() {
    let mut provided = Provided::start().await;
    for set in ["memory.consolidation", "memory.claude"] {
        let before = chunks(&mut provided.owner, "memory").await.len();
        let asked = streamed_as(request(set, "hello"), "free", set);
        let answer = provided.ask(asked).await;
        assert_eq!(answer["result"]["content"], "echo: hello", "{answer}");
        let parts = chunks(&mut provided.owner, "memory")
            .await
            .split_off(before);
        let indexes: Vec<_> = parts.iter().map(|part| &part["params"]["index"]).collect();
        assert_eq!(indexes, [0, 1, 2]);
        let deltas = parts.iter().map(|part| &part["params"]["delta"]);
        let whole: String = deltas.map(|delta| delta.as_str().unwrap()).collect();
        assert_eq!(whole, "echo: hello");
    }
    provided.ask(request("memory.consolidation", "hello")).await;
    assert_eq!(chunks(&mut provided.owner, "memory").await.len(), 6);
}

/// MCPL-106: by set, by a pattern of sets, and by conversation; and only sets that infer.
#[tokio::test]
async fn inference_is_routed_by_set_and_conversation() {
    let mut provided = Provided::start().await;
    for (set, conversation, model) in [
        ("memory.consolidation", "free", "gpt-real"),
        ("memory.claude", "free", "claude-real"),
        ("memory.consolidation", "pinned", "claude-real"),
    ] {
        let asked = streamed_as(request(set, "hello"), conversation, set);
        let answer = provided.ask(asked).await;
        assert_eq!(answer["result"]["model"], model, "{answer}");
    }
    let sent = provided.provider.heard().len();
    for (set, code) in [("none", -32003), ("off", -32001), ("pushes", -32001)] {
        let answer = provided.ask(request(set, "a")).await;
        assert_eq!(answer["error"]["code"], code, "{set}: {answer}");
    }
    assert_eq!(provided.provider.heard().len(), sent);
}

/// MCPL-108: see also where no agent is connected.
#[tokio::test]
async fn inference_without_a_route_fails_at_once() {
    let mut provided = Provided::start().await;
    let answer = provided.ask(request("memory.nowhere", "a")).await;
    assert_eq!(reason(&answer), "noRoute");
    assert!(provided.provider.heard().is_empty());
}

#[tokio::test]
async fn failure_of_the_provider_is_reported_without_its_key_and_not_retried() {
    let mut provided = Provided::start().await;
    for (text, stream) in [
        ("!401", false),
        ("!close", true),
        ("!huge", false),
        ("!cut", true),
    ] {
        let before = provided.provider.heard().len();
        let mut asked = request("memory.consolidation", text);
        asked["params"]["stream"] = json!(stream);
        let answer = provided.ask(asked).await;
        assert_eq!(reason(&answer), "failed", "{text}");
        assert!(!answer.to_string().contains("hush"), "{answer}");
        assert_eq!(provided.provider.heard().len(), before + 1, "{text}");
    }
}

/// MCPL-016, MCPL-109: of the first set of the server that infers.
#[tokio::test]
async fn model_info_is_that_of_the_provider_that_would_answer() {
    let mut provided = Provided::start().await;
    let asked = json!({"method": "model/info", "params": {}});
    let answer = provided.ask(asked).await;
    let expected = json!({"id": "anthropic-small", "vendor": "anthropic", "contextWindow": 8192, "capabilities": []});
    assert_eq!(answer["result"], expected, "{answer}");
}

/// MCPL-107: and how much it was, but neither text nor key.
#[tokio::test]
async fn audit_log_names_the_model_of_an_inference() {
    let mut provided = Provided::start().await;
    provided.ask(request("memory.consolidation", "hi")).await;
    let args = ["audit", "tail", "-n", "200", "--json"];
    let log = provided.kernel.mgp(&args).await.stdout;
    let log = String::from_utf8(log).unwrap();
    assert!(
        log.contains("gpt-real") && log.contains("input_tokens"),
        "{log}"
    );
    assert!(!log.contains("echo: hi") && !log.contains("hush"), "{log}");
}

#[tokio::test]
async fn budget_of_a_server_lasts_over_a_restart_and_the_key_is_in_no_file() {
    let Provided {
        kernel,
        mut owner,
        provider,
    } = Provided::start().await;
    let large = request("memory.consolidation", &"x".repeat(500));
    let answer = asks(&mut owner, "poor", large).await;
    assert_eq!(answer["result"]["usage"]["inputTokens"], 500);
    let before = provider.heard().len();
    // What might exceed the budget is not sent.
    let more = |set| request(set, &"x".repeat(200));
    let answer = asks(&mut owner, "poor", more("memory.claude")).await;
    assert_eq!(reason(&answer), "budget");
    assert_eq!(provider.heard().len(), before);

    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let files = std::process::Command::new("grep")
        .args(["-rl", "sk-hush"])
        .arg(folder.path())
        .output();
    assert_eq!(String::from_utf8_lossy(&files.unwrap().stdout), "");
    let config = std::fs::read_to_string(folder.path().join("mgp.toml")).unwrap();
    let config = config.replace("${PROVIDER_KEY}", "sk-other");
    std::fs::write(folder.path().join("mgp.toml"), config).unwrap();
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["poor"]).await;
    let mut owner = self::owner(&kernel).await;
    let answer = asks(&mut owner, "poor", more("memory.consolidation")).await;
    assert_eq!(reason(&answer), "budget");
}

/// The servers `memory` and `notes`, whose requests agents answer: those of `memory` any host, those of `notes` by set a
/// person or an agent that is not connected.
struct Routed {
    kernel: Kernel,
    owner: Agent,
}

impl Routed {
    async fn start() -> Self {
        let config = [
            inferring("memory"),
            inferring("notes"),
            enabled("memory"),
            enabled("notes"),
            "[mcpl.inference]\nagent_timeout_secs = 30\nroutes = { \"memory.*\" = \"agent\", \
             \"notes.memory.consolidation\" = \"sampling:agent.local\", \"notes.memory.claude\" = \"agent:agent.away\" }\n"
                .to_owned(),
        ]
        .concat();
        let kernel = Kernel::start(&config).await;
        kernel.connected(&["memory", "notes"]).await;
        let owner = owner(&kernel).await;
        Self { kernel, owner }
    }

    async fn host(&self) -> Host {
        Host::at(&self.kernel.socket()).await
    }

    /// Makes `memory` ask for a streamed answer that it does not wait for.
    async fn begin(&mut self, conversation: &str, id: Value) {
        asks(&mut self.owner, "memory", streamed(conversation, id)).await;
    }

    async fn model_info(&mut self) -> Value {
        let asked = json!({"method": "model/info", "params": {}});
        asks(&mut self.owner, "memory", asked).await
    }
}

/// A request for parts that nobody waits for here.
fn streamed(conversation: &str, id: Value) -> Value {
    let mut asked = request("memory.consolidation", "hi");
    asked["id"] = id;
    asked["leave"] = json!(true);
    asked["params"]["stream"] = json!(true);
    asked["params"]["conversationId"] = json!(conversation);
    asked["params"]["preferences"] = json!({"modelTier": "big"});
    asked
}

/// The answer to the request at this position, of those that nobody waited for.
async fn left(owner: &mut Agent, at: usize) -> Value {
    let mut answers = Vec::new();
    wait_until("an answer", DEADLINE, async || {
        let asked = json!({"method": REQUEST});
        let heard = owner.call("memory__mcpl_heard", asked).await.result();
        answers = heard["structuredContent"]["heard"]
            .as_array()
            .unwrap()
            .clone();
        answers.len() > at
    })
    .await;
    answers.swap_remove(at)["answer"].take()
}

/// MCPL-108.
#[tokio::test]
async fn inference_fails_at_once_while_no_agent_is_there_to_answer() {
    let mut routed = Routed::start().await;
    for set in ["memory.consolidation", "memory.claude"] {
        for server in ["memory", "notes"] {
            let answer = asks(&mut routed.owner, server, request(set, "a")).await;
            assert_eq!(reason(&answer), "notThere", "{server}");
        }
    }
}

/// MCPL-156.
#[tokio::test]
async fn model_info_is_that_of_the_last_inference_of_an_agent() {
    let mut routed = Routed::start().await;
    let answer = routed.model_info().await;
    assert_eq!(answer["error"]["code"], -32010, "{answer}");
    let host = scene::Host::start(&routed.kernel).await;
    let model = |id: &str| json!({"id": id, "vendor": "acme", "contextWindow": 9000, "capabilities": ["vision"]});
    for id in ["one", "two"] {
        let params = json!({"inferenceId": id, "conversationId": "c", "turnIndex": 0, "userMessage": "hi", "model": model(id)});
        host.request("context/beforeInference", params).await;
        let answer = routed.model_info().await;
        assert_eq!(answer["result"], model(id), "{answer}");
    }
}

/// MCPL-155: with ids of its own on each side.
#[tokio::test]
async fn inference_of_a_server_is_answered_by_an_agent_with_chunks() {
    let mut routed = Routed::start().await;
    let mut host = routed.host().await;
    routed.begin("conv_1", json!("req-1")).await;
    let (id, params) = host.asked(REQUEST).await;
    assert_ne!(id, "req-1");
    assert_eq!(params["featureSet"], "memory.memory.consolidation");
    assert_eq!(params["stream"], true);
    assert_eq!(
        params["messages"],
        json!([{"role": "user", "content": "hi"}])
    );
    assert_eq!(
        params["preferences"],
        json!({"modelTier": "big", "maxTokens": 4096})
    );
    let conversation = params["conversationId"].as_str().unwrap();
    assert!(conversation.starts_with("conv_") && conversation != "conv_1");
    host.chunk(&id, 0, "Hel").await;
    host.chunk(&id, 1, "lo").await;
    host.answers(&id, "Hello!").await;
    let answer = left(&mut routed.owner, 0).await;
    assert_eq!(answer["result"]["content"], "Hello!", "{answer}");
    let chunks = chunks(&mut routed.owner, "memory").await;
    let deltas: Vec<_> = chunks
        .iter()
        .map(|chunk| (&chunk["params"]["requestId"], &chunk["params"]["delta"]))
        .collect();
    let own = json!("req-1");
    assert_eq!(
        deltas,
        [
            (&own, &json!("Hel")),
            (&own, &json!("lo")),
            (&own, &json!("!"))
        ]
    );
}

#[tokio::test]
async fn chunks_of_another_agent_or_id_reach_no_server() {
    let mut routed = Routed::start().await;
    let (mut first, mut second) = (routed.host().await, routed.host().await);
    routed.begin("conv_1", json!("req-1")).await;
    let (id, _) = first.asked(REQUEST).await;
    second.chunk(&id, 0, "forged").await;
    first.chunk(&json!(999_999), 0, "forged").await;
    first.chunk(&json!("req-1"), 0, "forged").await;
    first.answers(&id, "Hello!").await;
    let answer = left(&mut routed.owner, 0).await;
    assert_eq!(answer["result"]["content"], "Hello!", "{answer}");
    let chunks = chunks(&mut routed.owner, "memory").await;
    assert!(!json!(chunks).to_string().contains("forged"), "{chunks:?}");
    assert!(second.is_spared(REQUEST).await);
}

#[tokio::test]
async fn answer_that_contradicts_its_chunks_fails() {
    let mut routed = Routed::start().await;
    let mut host = routed.host().await;
    // The whole answer does not begin with the chunk; then, the first chunk has the wrong index.
    for (at, index, delta) in [(0, 0, "Bye"), (1, 1, "late")] {
        routed.begin("conv_1", json!(at)).await;
        let (id, _) = host.asked(REQUEST).await;
        host.chunk(&id, index, delta).await;
        host.answers(&id, "Hello").await;
        assert_eq!(reason(&left(&mut routed.owner, at).await), "failed");
    }
}

#[tokio::test]
async fn conversation_stays_with_its_agent_until_that_leaves() {
    let mut routed = Routed::start().await;
    let (mut first, mut second) = (routed.host().await, routed.host().await);
    let mut conversations = Vec::new();
    for (at, conversation) in ["conv_1", "conv_1", "conv_2"].into_iter().enumerate() {
        routed.begin(conversation, json!(at)).await;
        let (id, mut params) = first.asked(REQUEST).await;
        conversations.push(params["conversationId"].take());
        first.answers(&id, "Hello").await;
        left(&mut routed.owner, at).await;
    }
    assert_eq!(conversations[0], conversations[1]);
    assert_ne!(conversations[0], conversations[2]);

    // It leaves before it answers: an error, not a hang. The other one takes its place, with ids of its own.
    routed.begin("conv_1", json!(3)).await;
    first.asked(REQUEST).await;
    drop(first);
    assert_eq!(reason(&left(&mut routed.owner, 3).await), "failed");
    routed.begin("conv_1", json!(4)).await;
    let (id, params) = second.asked(REQUEST).await;
    assert_ne!(params["conversationId"], conversations[0]);
    second.answers(&id, "mine").await;
    let answer = left(&mut routed.owner, 4).await;
    assert_eq!(answer["result"]["content"], "mine");
}

/// MCPL-143: unlike sampling, which a route alone leads to.
#[tokio::test]
async fn inference_asks_a_person_only_where_the_route_says_so() {
    let mut routed = Routed::start().await;
    let mut person = routed.kernel.stdio_agent(None);
    person.answers(
        "sampling/createMessage",
        json!({"role": "assistant", "model": "hers", "stopReason": "maxTokens",
        "content": {"type": "text", "text": "as she says"}}),
    );
    person
        .initialize("2025-06-18", r#"{"sampling":{}}"#)
        .await
        .result();
    let mut host = routed.host().await;
    routed.begin("conv_1", json!("autonomous")).await;
    let (id, _) = host.asked(REQUEST).await;
    let pending = routed.kernel.mgp_json(&["pending"]).await;
    assert_eq!(pending["pending"], json!([]));
    host.answers(&id, "Hello").await;
    left(&mut routed.owner, 0).await;
    person.request("ping", json!({})).await.result();
    assert!(person.asked().is_empty());

    let asking = async {
        let asked = request("memory.consolidation", "may I?");
        let answer = asks(&mut routed.owner, "notes", asked).await;
        assert_eq!(answer["result"]["content"], "as she says", "{answer}");
        assert_eq!(answer["result"]["finishReason"], "max_tokens");
    };
    tokio::join!(asking, person.wait_for_request("sampling/createMessage", 1));
    let sampled = &person.asked()[0]["params"]["messages"][0];
    assert_eq!(sampled["content"]["text"], "may I?");
}
