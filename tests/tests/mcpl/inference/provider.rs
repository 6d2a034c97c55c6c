//! A scripted provider that answers in both wire formats, and misbehaves as the prompt tells it.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A running provider. It answers `echo: TEXT` to the last turn, in three parts where parts are asked for; a turn that
/// begins `!` says what it does instead.
pub(crate) struct Provider {
    address: String,
    heard: Arc<Mutex<Vec<(String, Value)>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Provider {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = heard.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let told = told.clone();
                tokio::spawn(async move { serve(stream, &told).await });
            }
        });
        Self {
            address,
            heard,
            serving,
        }
    }

    /// Its section under this name.
    pub(crate) fn section(&self, name: &str, kind: &str, more: &str) -> String {
        let path = match kind {
            "openai" => "v1/chat/completions",
            _ => "v1/messages",
        };
        format!(
            "[mcpl.providers.{name}]\nkind = \"{kind}\"\nurl = \"http://{}/{path}\"\nmodel = \"{kind}-small\"\n{more}\n",
            self.address
        )
    }

    /// The heads and bodies of all requests so far.
    pub(crate) fn heard(&self) -> Vec<(String, Value)> {
        self.heard.lock().unwrap().clone()
    }

    /// The last body.
    pub(crate) fn last(&self) -> Value {
        self.heard().pop().unwrap().1
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(stream: TcpStream, heard: &Mutex<Vec<(String, Value)>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().ok()?;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    heard.lock().unwrap().push((head.clone(), body.clone()));
    let (status, kind, text) = answer(head.starts_with("POST /v1/chat"), &body)?;
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        text.len()
    );
    stream
        .write_all(format!("{head}{text}").as_bytes())
        .await
        .ok()
}

/// The text of a turn in either format.
fn text(turn: &Value) -> String {
    match &turn["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

/// Status, content type and body; `None` closes the connection, and one that is silent never comes back.
fn answer(openai: bool, body: &Value) -> Option<(&'static str, &'static str, String)> {
    let asked = body["messages"].as_array()?.last().map(text)?;
    let json_of = |status, value: Value| Some((status, "application/json", value.to_string()));
    match asked.as_str() {
        "!401" => {
            return json_of(
                "401 Unauthorized",
                json!({"error": {"message": "bad key sk-hush", "code": "invalid_api_key"}}),
            );
        }
        "!close" => return None,
        "!huge" => {
            let content = "x".repeat((1 << 20) + 1);
            return json_of(
                "200 OK",
                json!({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}),
            );
        }
        _ => {}
    }
    let (stop, stop_reason) = match asked.as_str() {
        "!length" => ("length", "max_tokens"),
        "!sequence" => ("stop", "stop_sequence"),
        _ => ("stop", "end_turn"),
    };
    let parts = ["echo".to_owned(), ": ".to_owned(), asked];
    let (input, output) = (parts[2].len(), 3);
    if body["stream"] == false {
        let content = parts.concat();
        return json_of(
            "200 OK",
            if openai {
                json!({"model": "gpt-real", "choices": [{"index": 0, "message": {"content": content}, "finish_reason": stop}],
                "usage": {"prompt_tokens": input, "completion_tokens": output}})
            } else {
                json!({"type": "message", "model": "claude-real", "content": [{"type": "text", "text": content}],
                "stop_reason": stop_reason, "usage": {"input_tokens": input, "output_tokens": output}})
            },
        );
    }
    let mut events = Vec::new();
    if !openai {
        events.push(json!({"type": "message_start", "message": {"type": "message", "model": "claude-real", "content": [], "usage": {"input_tokens": input, "output_tokens": 1}}}));
    }
    for part in &parts {
        events.push(if openai {
            json!({"model": "gpt-real", "choices": [{"index": 0, "delta": {"content": part}, "finish_reason": null}]})
        } else {
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}})
        });
    }
    if parts[2] != "!cut" {
        events.extend(if openai {
            vec![
                json!({"choices": [{"index": 0, "delta": {}, "finish_reason": stop}]}),
                json!({"choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output}}),
            ]
        } else {
            vec![
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output}}),
                json!({"type": "message_stop"}),
            ]
        });
    }
    let stream: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    Some(("200 OK", "text/event-stream", stream))
}
