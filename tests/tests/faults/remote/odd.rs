//! A server over HTTP written for one story: a function answers each request.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request that came in.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// `POST`, `GET` or `DELETE`.
    pub(crate) verb: String,
    /// `Mcp-Session-Id`.
    pub(crate) session: Option<String>,
    /// The method of its message.
    pub(crate) method: String,
    /// The id of its message.
    pub(crate) id: Value,
}

/// What it is answered with.
pub(crate) struct OddReply {
    status: u16,
    kind: &'static str,
    session: Option<String>,
    body: String,
}

impl OddReply {
    /// This status, with this text.
    pub(crate) fn text(status: u16, body: &str) -> Self {
        Self {
            status,
            kind: "text/plain",
            session: None,
            body: body.to_owned(),
        }
    }

    /// This status, with this message.
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self {
            kind: "application/json",
            ..Self::text(status, &body.to_string())
        }
    }

    /// An event stream that ends behind these bytes.
    pub(crate) fn events(body: &str) -> Self {
        Self {
            kind: "text/event-stream",
            ..Self::text(200, body)
        }
    }

    /// The result of a request.
    pub(crate) fn result(asked: &Asked, result: &Value) -> Self {
        Self::json(
            200,
            &json!({"jsonrpc": "2.0", "id": asked.id, "result": result}),
        )
    }

    /// The same answer as an event, behind this message.
    pub(crate) fn after(self, message: &str) -> Self {
        Self::events(&format!("data: {message}\n\ndata: {}\n\n", self.body))
    }

    /// Of this content type.
    pub(crate) fn typed(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }

    /// In this session.
    pub(crate) fn opening(mut self, session: &str) -> Self {
        self.session = Some(session.to_owned());
        self
    }
}

type Answers = dyn Fn(&Asked) -> OddReply + Send + Sync;

/// It runs until it is dropped.
pub(crate) struct OddServer {
    port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
    serving: JoinHandle<()>,
}

impl Drop for OddServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl OddServer {
    /// Serves on a free port.
    pub(crate) async fn start(
        answers: impl Fn(&Asked) -> OddReply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answers, seen): (Arc<Answers>, _) = (Arc::new(answers), asked.clone());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answers.clone(), seen.clone()));
            }
        });
        Self {
            port,
            asked,
            serving,
        }
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// How often this was asked: a verb other than POST, or the method of a message.
    pub(crate) fn times(&self, what: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        let is = |asked: &&Asked| asked.method == what || asked.verb == what && what != "POST";
        asked.iter().filter(is).count()
    }
}

/// One request for each connection.
async fn serve(
    stream: TcpStream,
    answers: Arc<Answers>,
    seen: Arc<Mutex<Vec<Asked>>>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length, mut session) = (String::new(), 0, None);
    stream.read_line(&mut line).await.ok()?;
    let verb = line.split(' ').next()?.to_owned();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "mcp-session-id" => session = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let asked = Asked {
        verb,
        session,
        method: message["method"].as_str().unwrap_or_default().to_owned(),
        id: message["id"].clone(),
    };
    seen.lock().unwrap().push(asked.clone());
    let reply = answers(&asked);
    let session = reply.session.map(|id| format!("mcp-session-id: {id}\r\n"));
    let head = format!(
        "HTTP/1.1 {} x\r\ncontent-type: {}\r\n{}content-length: {}\r\nconnection: close\r\n\r\n",
        reply.status,
        reply.kind,
        session.unwrap_or_default(),
        reply.body.len()
    );
    let whole = [head.as_bytes(), reply.body.as_bytes()].concat();
    stream.get_mut().write_all(&whole).await.ok()
}

/// A server with the tool `echo` answers so, where nothing is odd: `offers` are its capabilities.
pub(crate) fn usual(asked: &Asked, offers: &Value) -> OddReply {
    let named = |list: &str, item: Value| OddReply::result(asked, &json!({ list: [item] }));
    match asked.method.as_str() {
        _ if asked.verb != "POST" => OddReply::text(405, ""),
        "initialize" => OddReply::result(
            asked,
            &json!({"protocolVersion": "2025-06-18", "capabilities": offers, "serverInfo": {"name": "odd", "version": "1"}}),
        ),
        "ping" => OddReply::result(asked, &json!({})),
        "tools/list" => named(
            "tools",
            json!({"name": "echo", "inputSchema": {"type": "object"}}),
        ),
        "prompts/list" => named("prompts", json!({"name": "poem"})),
        "resources/list" => named("resources", json!({"uri": "a:b", "name": "b"})),
        "resources/templates/list" => OddReply::result(asked, &json!({"resourceTemplates": []})),
        "tools/call" => {
            OddReply::result(asked, &json!({"content": [{"type": "text", "text": "hi"}]}))
        }
        _ if asked.id.is_null() => OddReply::text(202, ""),
        _ => OddReply::json(
            200,
            &json!({"jsonrpc": "2.0", "id": asked.id, "error": {"code": -32601, "message": "Method not found"}}),
        ),
    }
}
