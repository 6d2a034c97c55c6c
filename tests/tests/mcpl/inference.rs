//! Inference that servers ask for (MCPL §11), and `model/info` (§12).

mod host;
mod provider;

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::host::Host;
pub(crate) use self::provider::Provider;

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

/// What the host answers a server.
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

/// What is no request, or is not open.
async fn what_is_not_open(owner: &mut Agent, provider: &Provider) {
    for (asked, code) in [
        (
            json!({"messages": [{"role": "user", "content": "a"}]}),
            -32602,
        ),
        (json!({"featureSet": "memory.consolidation"}), -32602),
        (
            json!({"featureSet": "memory.consolidation", "messages": []}),
            -32602,
        ),
        (
            json!({"featureSet": "memory.consolidation", "messages": [{"role": "user", "content": 1}]}),
            -32602,
        ),
        (
            json!({"featureSet": "none", "messages": [{"role": "user", "content": "a"}]}),
            -32003,
        ),
        (
            json!({"featureSet": "off", "messages": [{"role": "user", "content": "a"}]}),
            -32001,
        ),
        (
            json!({"featureSet": "pushes", "messages": [{"role": "user", "content": "a"}]}),
            -32001,
        ),
    ] {
        let answer = asks(owner, "memory", json!({"method": REQUEST, "params": asked})).await;
        assert_eq!(answer["error"]["code"], code, "{asked}: {answer}");
    }
    let answer = asks(owner, "memory", request("memory.nowhere", "a")).await;
    assert_eq!(reason(&answer), "noRoute");
    assert!(provider.heard().is_empty(), "{:?}", provider.heard());
}

/// A whole answer, with preferences that bind nobody.
async fn a_whole_answer(owner: &mut Agent, provider: &Provider) {
    let asked = json!({"method": REQUEST, "params": {"featureSet": "memory.consolidation",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "preferences": {"maxTokens": 999_999, "temperature": 0.5, "modelTier": "big", "model": {"any": 1}}}});
    let answer = asks(owner, "memory", asked).await;
    let wanted = json!({"content": "echo: hi", "model": "gpt-real", "finishReason": "end_turn",
        "usage": {"inputTokens": 2, "outputTokens": 3}});
    assert_eq!(answer["result"], wanted);
    let sent = provider.last();
    assert_eq!(
        (&sent["model"], &sent["max_tokens"], &sent["temperature"]),
        (&json!("openai-small"), &json!(400), &json!(0.5))
    );
    assert_eq!(
        sent["messages"][0],
        json!({"role": "system", "content": "be brief"})
    );
    let length = asks(owner, "memory", request("memory.consolidation", "!length")).await;
    assert_eq!(length["result"]["finishReason"], "max_tokens");
    let (head, _) = provider.heard().pop().unwrap();
    assert!(head.contains("authorization: Bearer sk-hush"), "{head}");
}

/// In parts, under the server's own id, in both formats; a conversation that is pinned goes elsewhere.
async fn an_answer_in_parts(owner: &mut Agent) {
    for (set, conversation, model) in [
        ("memory.consolidation", "free", "gpt-real"),
        ("memory.claude", "free", "claude-real"),
        ("memory.consolidation", "pinned", "claude-real"),
    ] {
        let before = chunks(owner, "memory").await.len();
        let mut asked = request(set, "hello");
        asked["id"] = json!(format!("{set} \u{e9} {conversation}"));
        asked["params"]["stream"] = json!(true);
        asked["params"]["conversationId"] = json!(conversation);
        let id = asked["id"].clone();
        let answer = asks(owner, "memory", asked).await;
        assert_eq!(answer["result"]["model"], model, "{answer}");
        let parts = chunks(owner, "memory").await.split_off(before);
        let mut whole = String::new();
        for (index, part) in parts.iter().enumerate() {
            assert!(part.get("id").is_none(), "{part}");
            assert_eq!(
                (&part["params"]["requestId"], &part["params"]["index"]),
                (&id, &json!(index))
            );
            whole += part["params"]["delta"].as_str().unwrap();
        }
        assert_eq!((whole.as_str(), parts.len()), ("echo: hello", 3));
        assert_eq!(answer["result"]["content"], "echo: hello");
    }
}

/// What fails is told in the kernel's words.
async fn what_fails(owner: &mut Agent, provider: &Provider) {
    for (text, stream) in [
        ("!401", false),
        ("!close", true),
        ("!huge", false),
        ("!cut", true),
    ] {
        let before = provider.heard().len();
        let mut asked = request("memory.consolidation", text);
        asked["params"]["stream"] = json!(stream);
        let answer = asks(owner, "memory", asked).await;
        assert_eq!(reason(&answer), "failed");
        assert!(!answer.to_string().contains("hush"), "{answer}");
        assert_eq!(provider.heard().len(), before + 1, "nothing is tried again");
    }
}

/// `model/info`, of the provider that would answer.
async fn the_model(owner: &mut Agent) {
    let info = asks(
        owner,
        "memory",
        json!({"method": "model/info", "params": {}}),
    )
    .await;
    let wanted = json!({"id": "anthropic-small", "vendor": "anthropic", "contextWindow": 8192, "capabilities": []});
    assert_eq!(info["result"], wanted, "of its first set that infers");
}

/// A budget: what might exceed it does not go.
async fn a_budget(owner: &mut Agent, provider: &Provider) {
    let answer = asks(
        owner,
        "poor",
        request("memory.consolidation", &"x".repeat(500)),
    )
    .await;
    assert_eq!(answer["result"]["usage"]["inputTokens"], 500);
    let before = provider.heard().len();
    let instance = asks(owner, "poor", request("memory.claude", &"x".repeat(200))).await;
    assert_eq!(reason(&instance), "budget");
    assert_eq!(provider.heard().len(), before);
}

/// MCPL-014, MCPL-015, MCPL-016, MCPL-038, MCPL-101..109, MCPL-139, MCPL-144: a provider answers in either wire format, whole or in
/// parts; what is no request, has no rule, or fails has an answer that says so; the key is nowhere, the text not in
/// the audit log, and the budget outlasts a restart.
#[tokio::test]
async fn a_provider_answers_by_the_operators_rules() {
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
        Kernel::with_environment(&format!("{OPEN}{config}"), &[("PROVIDER_KEY", "sk-hush")]).await;
    kernel.connected(&["memory", "poor"]).await;
    let mut owner = owner(&kernel).await;

    what_is_not_open(&mut owner, &provider).await;
    a_whole_answer(&mut owner, &provider).await;
    an_answer_in_parts(&mut owner).await;
    what_fails(&mut owner, &provider).await;
    the_model(&mut owner).await;
    a_budget(&mut owner, &provider).await;

    // The audit log says which model and how much, and never what.
    let log = kernel
        .mgp(&["audit", "tail", "-n", "200", "--json"])
        .await
        .stdout;
    let log = String::from_utf8(log).unwrap();
    assert!(
        log.contains("gpt-real") && log.contains("input_tokens"),
        "{log}"
    );
    assert!(!log.contains("echo: hi") && !log.contains("hush"), "{log}");

    // After a restart the day goes on.
    let folder = kernel.end(Signal::SIGTERM, DEADLINE).await;
    let files = std::process::Command::new("grep")
        .args(["-rl", "sk-hush"])
        .arg(folder.path())
        .output();
    assert_eq!(String::from_utf8_lossy(&files.unwrap().stdout), "");
    let written = std::fs::read_to_string(folder.path().join("mgp.toml")).unwrap();
    let written = written.replace("${PROVIDER_KEY}", "sk-other");
    std::fs::write(folder.path().join("mgp.toml"), written).unwrap();
    let kernel = Kernel::again(folder).await;
    kernel.connected(&["poor"]).await;
    let mut owner = self::owner(&kernel).await;
    let answer = asks(
        &mut owner,
        "poor",
        request("memory.consolidation", &"x".repeat(200)),
    )
    .await;
    assert_eq!(reason(&answer), "budget");
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

/// The answer to the request at this place, of those that nobody waited for.
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

/// The same conversation has the same id, and stays with its agent until that leaves; parts that are not the answer's
/// beginning, or not in order, make it none.
async fn staying(owner: &mut Agent, mut first: Host, mut second: Host, conversation: &str) {
    asks(owner, "memory", streamed("conv_1", json!(7))).await;
    let (id, params) = first.asked(REQUEST).await;
    assert_eq!(params["conversationId"], conversation);
    // Parts that are not its beginning, or not in order, are no answer.
    first.chunk(&id, 0, "Bye").await;
    first.answers(&id, "Hello").await;
    assert_eq!(reason(&left(owner, 1).await), "failed");
    asks(owner, "memory", streamed("conv_2", json!(8))).await;
    let (id, params) = first.asked(REQUEST).await;
    assert_ne!(params["conversationId"], conversation);
    first.chunk(&id, 1, "late").await;
    assert_eq!(reason(&left(owner, 2).await), "failed");

    // It leaves in the middle: an error, not a hang. The next one takes its place.
    asks(owner, "memory", streamed("conv_1", json!(9))).await;
    first.asked(REQUEST).await;
    drop(first);
    assert_eq!(reason(&left(owner, 3).await), "failed");
    asks(owner, "memory", streamed("conv_1", json!(10))).await;
    let (id, params) = second.asked(REQUEST).await;
    assert_ne!(
        params["conversationId"], conversation,
        "another client is told another id"
    );
    second.answers(&id, "mine").await;
    assert_eq!(left(owner, 4).await["result"]["content"], "mine");
}

/// A person is asked by sampling alone.
async fn a_person(kernel: &Kernel, owner: &mut Agent) {
    let mut person = kernel.stdio_agent(None);
    person.answers(
        "sampling/createMessage",
        json!({"role": "assistant", "model": "hers", "stopReason": "maxTokens",
        "content": {"type": "text", "text": "as she says"}}),
    );
    person
        .initialize("2025-06-18", r#"{"sampling":{}}"#)
        .await
        .result();
    let asking = async {
        let answer = asks(owner, "notes", request("memory.consolidation", "may I?")).await;
        assert_eq!(answer["result"]["content"], "as she says", "{answer}");
        assert_eq!(answer["result"]["finishReason"], "max_tokens");
    };
    // Whoever waits for an answer of its own takes in what it is asked meanwhile.
    let idle = async {
        while person.asked().is_empty() {
            person.request("ping", json!({})).await;
        }
    };
    tokio::join!(asking, idle);
    assert_eq!(
        person.asked()[0]["params"]["messages"][0]["content"]["text"],
        "may I?"
    );
}

/// MCPL-106, MCPL-108, MCPL-109, MCPL-143, MCPL-155, MCPL-156: an agent that is a host answers, with its parts under the server's own id and the
/// server's words mapped to ids of its own; nobody else's parts get in; without one there is an error at once. A person
/// is asked where the rule says so, and not elsewhere.
#[tokio::test]
async fn an_agent_answers_where_the_rule_leads_to_it() {
    let config = [
        inferring("memory"),
        inferring("notes"),
        enabled("memory"),
        enabled("notes"),
        "[tuning.mcpl.inference]\nagent_timeout_secs = 30\n[mcpl.inference]\nroutes = { \"memory.*\" = \"agent\", \
         \"notes.memory.consolidation\" = \"sampling:agent.local\", \"notes.memory.claude\" = \"agent:agent.away\" }\n"
            .to_owned(),
    ]
    .concat();
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["memory", "notes"]).await;
    let mut owner = owner(&kernel).await;
    for asked in [
        request("memory.consolidation", "a"),
        request("memory.claude", "a"),
    ] {
        for server in ["memory", "notes"] {
            let answer = asks(&mut owner, server, asked.clone()).await;
            assert_eq!(reason(&answer), "notThere", "{server}");
        }
    }
    let info = asks(
        &mut owner,
        "memory",
        json!({"method": "model/info", "params": {}}),
    )
    .await;
    assert_eq!(info["error"]["code"], -32010);

    let mut first = Host::at(&kernel.socket()).await;
    let mut second = Host::at(&kernel.socket()).await;
    asks(&mut owner, "memory", streamed("conv_1", json!("req-1"))).await;
    let (id, params) = first.asked(REQUEST).await;
    assert_eq!(
        (&params["featureSet"], &params["stream"]),
        (&json!("memory.memory.consolidation"), &json!(true))
    );
    assert_eq!(
        params["messages"],
        json!([{"role": "user", "content": "hi"}])
    );
    assert_eq!(
        params["preferences"],
        json!({"modelTier": "big", "maxTokens": 4096})
    );
    let conversation = params["conversationId"].as_str().unwrap().to_owned();
    assert!(conversation.starts_with("conv_") && conversation != "conv_1");
    // Another agent's parts with the same id, and one's own with another id, reach nobody.
    second.chunk(&id, 0, "forged").await;
    first.chunk(&json!(999_999), 0, "forged").await;
    first.chunk(&json!("req-1"), 0, "forged").await;
    first.chunk(&id, 0, "Hel").await;
    first.chunk(&id, 1, "lo").await;
    first.answers(&id, "Hello!").await;
    let answer = left(&mut owner, 0).await;
    assert_eq!(answer["result"]["content"], "Hello!", "{answer}");
    let heard = chunks(&mut owner, "memory").await;
    let deltas: Vec<_> = heard
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
    assert!(second.is_spared(REQUEST).await);

    staying(&mut owner, first, second, &conversation).await;

    a_person(&kernel, &mut owner).await;
}
