//! An endpoint like OpenAI's `/v1/embeddings`, whose vectors are plain to see.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What it was told, and how it is to answer.
#[derive(Default)]
pub(super) struct Seen {
    /// Texts, those that come again counted again.
    pub(super) texts: AtomicUsize,
    /// Texts in the largest request.
    pub(super) largest: AtomicUsize,
    pub(super) broken: AtomicBool,
    pub(super) keys: Mutex<Vec<String>>,
    /// The texts it answered for, in their order.
    pub(super) order: Mutex<Vec<String>>,
}

/// A running endpoint.
pub(super) struct Provider {
    pub(super) url: String,
    pub(super) seen: Arc<Seen>,
    serving: tokio::task::JoinHandle<()>,
}

impl Provider {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/embeddings", listener.local_addr().unwrap());
        let seen = Arc::new(Seen::default());
        let told = seen.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let told = told.clone();
                tokio::spawn(async move { serve(stream, &told).await });
            }
        });
        Self { url, seen, serving }
    }

    /// `[discovery]` of a kernel that asks it.
    pub(super) fn section(&self) -> String {
        format!(
            "\n[discovery]\nembedding = \"off\"\n[discovery.provider]\nurl = \"{}\"\n\
             model = \"plain\"\nkey = \"sk-hush\"\n[tuning.discovery.provider]\nbatch = 4\n",
            self.url
        )
    }

    pub(super) fn order(&self) -> Vec<String> {
        self.seen.order.lock().unwrap().clone()
    }

    pub(super) fn texts(&self) -> usize {
        self.seen.texts.load(Ordering::SeqCst)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(stream: TcpStream, seen: &Seen) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let line = line.trim();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").unwrap_or((line, ""));
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().ok()?,
                "authorization" => seen.keys.lock().unwrap().push(value.to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let body: Value = serde_json::from_slice(&body).ok()?;
        let (status, answer) = if seen.broken.load(Ordering::SeqCst) {
            ("503 Service Unavailable", String::new())
        } else {
            ("200 OK", answer(&body, seen).to_string())
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        stream
            .write_all(format!("{head}{answer}").as_bytes())
            .await
            .ok()?;
    }
}

fn answer(body: &Value, seen: &Seen) -> Value {
    let texts = body["input"].as_array().unwrap();
    seen.texts.fetch_add(texts.len(), Ordering::SeqCst);
    let told = texts.iter().map(|text| text.as_str().unwrap().to_owned());
    seen.order.lock().unwrap().extend(told);
    seen.largest.fetch_max(texts.len(), Ordering::SeqCst);
    let item = |(index, text): (usize, &Value)| json!({"index": index, "embedding": direction(text.as_str().unwrap())});
    // In another order than they came.
    let items: Vec<Value> = texts.iter().enumerate().rev().map(item).collect();
    json!({"object": "list", "data": items, "model": body["model"]})
}

/// Three subjects there are.
fn direction(text: &str) -> [f64; 3] {
    let text = text.to_lowercase();
    let about = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if about(&["forecast", "umbrella"]) {
        [1.0, 0.1, 0.0]
    } else if about(&["folder", "paper"]) {
        [0.0, 1.0, 0.1]
    } else {
        [0.1, 0.0, 1.0]
    }
}
