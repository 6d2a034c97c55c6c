//! Error handling for misbehaving providers.

use std::sync::Mutex;
use std::time::Duration;

use mgp_mcpl_engine::inference::provider::{LimitMember, ProviderKey, ProviderKind};
use mgp_protocol::mcpl::inference::{PromptPart, PromptRole, PromptTurn};
use mgp_protocol::mcpl::model::ModelDescription;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

const SECRET: &str = "sk-hush";
const WHOLE: &str = r#"{"model":"m-1","choices":[{"index":0,"message":{"content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;

/// The response of a scripted provider to each request.
#[derive(Clone)]
enum Behavior {
    /// Writes this and closes.
    Writes(String),
    /// Writes the first text, and then repeats the second.
    Repeats(String, String),
    /// Reads the request, and sends nothing.
    Nothing,
}

struct Scripted {
    url: String,
    received: Arc<Mutex<Vec<String>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Scripted {
    async fn start(behavior: Behavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/x", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let received_texts = received.clone();
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (behavior, received_texts) = (behavior.clone(), received_texts.clone());
                tokio::spawn(async move {
                    let mut head = vec![0; 64 << 10];
                    let mut length = 0;
                    while !String::from_utf8_lossy(&head[..length]).contains("\r\n\r\n") {
                        length += stream.read(&mut head[length..]).await.unwrap_or(0);
                    }
                    let text = String::from_utf8_lossy(&head[..length]).into_owned();
                    received_texts.lock().unwrap().push(text);
                    match behavior {
                        Behavior::Writes(text) => drop(stream.write_all(text.as_bytes()).await),
                        Behavior::Repeats(first, repeated) => {
                            let _ = stream.write_all(first.as_bytes()).await;
                            while stream.write_all(repeated.as_bytes()).await.is_ok() {}
                        }
                        Behavior::Nothing => std::future::pending().await,
                    }
                });
            }
        });
        Self {
            url,
            received,
            serving,
        }
    }

    fn received(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    fn spec(&self, kind: ProviderKind) -> ProviderSpec {
        ProviderSpec {
            name: "it".into(),
            kind,
            url: self.url.clone(),
            model: "m".into(),
            key: ProviderKey(SECRET.into()),
            timeout: Duration::from_secs(20),
            concurrency: 1,
            queue_limit: 1,
            limit_member: LimitMember::MaxTokens,
            info: ModelDescription {
                id: "m".into(),
                vendor: "v".into(),
                context_window: 1,
                capabilities: Vec::new(),
            },
        }
    }
}

fn providers(spec: ProviderSpec) -> Providers {
    Providers::new(&[(spec.name.clone(), Arc::new(spec))].into())
}

fn answer(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn stream(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{body}")
}

/// The answer and the chunks before it.
async fn ask(
    providers: &Providers,
    stream: bool,
) -> (Result<ProviderAnswer, InferenceError>, String) {
    let parts = vec![PromptPart::Text("hi".into())];
    let turns = [PromptTurn {
        role: PromptRole::User,
        parts,
    }];
    let order = PromptOrder {
        turns: &turns,
        max_tokens: 9,
        temperature: None,
        stream,
    };
    let mut said = String::new();
    let answer = providers
        .request("it", &order, |part| {
            said.push_str(&part);
            Ok(())
        })
        .await;
    (answer, said)
}

/// MCPL-103: the key is sent to the provider in its own header, and to nobody else.
#[tokio::test]
async fn a_provider_is_asked_in_its_own_format() {
    let written = answer("200 OK", "application/json", WHOLE);
    let provider = Scripted::start(Behavior::Writes(written)).await;
    let (answered, said) = ask(&providers(provider.spec(ProviderKind::OpenAi)), false).await;
    let answered = answered.unwrap();
    assert_eq!(
        (&*answered.content, answered.model.as_deref()),
        ("Hello", Some("m-1"))
    );
    assert_eq!((answered.usage.unwrap().total(), said), (5, String::new()));
    let text = provider.received.lock().unwrap()[0].clone();
    assert!(
        text.starts_with("POST /v1/x ") && text.contains("authorization: Bearer sk-hush"),
        "{text}"
    );
    // Asked for a stream, a provider without streaming yields one chunk.
    let (answered, said) = ask(&providers(provider.spec(ProviderKind::OpenAi)), true).await;
    assert_eq!(answered.unwrap().content, said);
    let claude = r#"{"type":"message","model":"c","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;
    let written = answer("200 OK", "application/json", claude);
    let provider = Scripted::start(Behavior::Writes(written)).await;
    let (answered, _) = ask(&providers(provider.spec(ProviderKind::Anthropic)), false).await;
    assert_eq!(answered.unwrap().content, "Hi");
    let text = provider.received.lock().unwrap()[0].clone();
    assert!(
        text.contains("x-api-key: sk-hush") && text.contains("anthropic-version: 2023-06-01"),
        "{text}"
    );
}

/// MCPL-108: any failure of a provider is reported without its text and without the key; nothing is retried, or sent
/// elsewhere.
#[tokio::test]
async fn a_failed_answer_is_reported_in_the_kernels_words() {
    let elsewhere = Scripted::start(Behavior::Writes(answer(
        "200 OK",
        "application/json",
        WHOLE,
    )))
    .await;
    let echo = r#"{"error":{"message":"wrong key sk-hush","code":"invalid_api_key"}}"#;
    let redirect = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        elsewhere.url
    );
    let started = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n";
    let cases = [
        (
            answer("401 Unauthorized", "application/json", echo),
            InferenceFailure::Failed,
            false,
            "(401)",
        ),
        (
            answer("429 Too Many Requests", "application/json", echo),
            InferenceFailure::Busy,
            false,
            "(429)",
        ),
        (
            answer("500 Internal Server Error", "text/html", "<p>sk-hush"),
            InferenceFailure::Failed,
            false,
            "(500)",
        ),
        (redirect, InferenceFailure::Failed, false, "elsewhere"),
        (
            answer("200 OK", "application/json", "{\"sk-hush\":1}"),
            InferenceFailure::Failed,
            true,
            "none of",
        ),
        (stream(started), InferenceFailure::Failed, true, "broke off"),
        (
            stream("data: {\"error\":{\"message\":\"sk-hush\"}}\n\n"),
            InferenceFailure::Failed,
            true,
            "failed",
        ),
        (String::new(), InferenceFailure::Failed, true, "broke off"),
        (
            "SSH-2.0-sk-hush\r\n".into(),
            InferenceFailure::Failed,
            true,
            "broke off",
        ),
    ];
    for (written, reason, began, word) in cases {
        let provider = Scripted::start(Behavior::Writes(written.clone())).await;
        let (answered, _) = ask(&providers(provider.spec(ProviderKind::OpenAi)), true).await;
        let why = answered.unwrap_err();
        assert_eq!((why.reason, why.was_started), (reason, began), "{written}");
        assert!(
            why.words.contains(word) && !why.words.contains("hush"),
            "{why}"
        );
        assert_eq!(provider.received(), 1);
    }
    assert_eq!(elsewhere.received(), 0, "the key went elsewhere");
    let mut unreachable = elsewhere.spec(ProviderKind::OpenAi);
    unreachable.url = "http://127.0.0.1:1/v1".into();
    let why = ask(&providers(unreachable), false).await.0.unwrap_err();
    assert!(!why.was_started && why.words.contains("reached"), "{why}");
    // The key is not sent unencrypted.
    let mut open = elsewhere.spec(ProviderKind::OpenAi);
    open.url = "http://provider.example/v1".into();
    assert!(
        ask(&providers(open), false)
            .await
            .0
            .unwrap_err()
            .words
            .contains("misconfigured")
    );
}

/// Huge or endless answers are aborted.
#[tokio::test]
async fn huge_and_endless_answers_are_aborted() {
    let part = "x".repeat(64 << 10);
    let event =
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{part}\"}}}}]}}\n\n");
    let empty = "data: {\"choices\":[]}\n\n".repeat(1000);
    let line = "x".repeat(64 << 10);
    for (first, repeated) in [
        (stream(""), event),
        (stream(""), empty),
        (stream("data: "), line.clone()),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_owned(),
            line,
        ),
    ] {
        let provider = Scripted::start(Behavior::Repeats(first, repeated)).await;
        let (answered, said) = ask(&providers(provider.spec(ProviderKind::OpenAi)), true).await;
        assert_eq!(answered.unwrap_err().reason, InferenceFailure::Failed);
        assert!(said.len() <= 1 << 20, "{}", said.len());
    }
}

/// A silent provider times out; its queue is bounded, and a request beyond it is rejected at once.
#[tokio::test]
async fn a_silent_provider_times_out_and_its_queue_is_bounded() {
    let provider = Scripted::start(Behavior::Nothing).await;
    let mut spec = provider.spec(ProviderKind::OpenAi);
    spec.timeout = Duration::from_millis(300);
    let providers = providers(spec);
    let (first, second, third) = tokio::join!(
        ask(&providers, true),
        ask(&providers, true),
        ask(&providers, true)
    );
    let reasons = [first, second, third].map(|(answered, _)| {
        let why = answered.unwrap_err();
        (why.reason, why.was_started)
    });
    use InferenceFailure::{Busy, TimedOut};
    // The second never got a permit, and so cost nothing.
    assert_eq!(
        reasons,
        [(TimedOut, true), (TimedOut, false), (Busy, false)]
    );
    let (repeated, _) = ask(&providers, true).await;
    assert_eq!(
        repeated.unwrap_err().reason,
        TimedOut,
        "the slots are free again"
    );
}
