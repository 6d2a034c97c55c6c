//! An agent that speaks raw MCP over any wire, so that one test body can be told over all of them.

mod lines;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use http::HeaderMap;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use self::lines::LineWire;
use super::handshake::initialize;
use super::http::HttpAnswer;
use super::wait::within;
use super::{Answer, DEADLINE, HttpClient, Program};

/// Frames that may wait to be looked at; past it the wire is not read on.
const IN_FLIGHT: usize = 4096;

/// How often a stream is taken up again before its answer counts as lost.
const RESUMES: usize = 100;

/// A client with canned answers to what servers ask of it.
pub struct Agent {
    wire: Wire,
    frames: mpsc::Receiver<String>,
    answers: HashMap<String, Value>,
    /// Methods whose requests get no answer by themselves.
    unanswered: HashSet<String>,
    /// Answers that came and were not taken yet.
    answered: Vec<(String, Value)>,
    heard: Vec<Value>,
    asked: Vec<Value>,
    last_id: u64,
}

enum Wire {
    Lines(Box<LineWire>),
    Http {
        client: Box<HttpClient>,
        frames: mpsc::Sender<String>,
    },
}

impl Agent {
    /// An agent joined to the stdio of a child: a server, or `mgp stdio`.
    #[must_use]
    pub fn over_stdio(program: &Program) -> Self {
        let (wire, frames) = LineWire::to_child(program);
        Self::new(Wire::Lines(Box::new(wire)), frames)
    }

    /// An agent at a Unix socket.
    pub async fn over_socket(path: &Path) -> Self {
        let (wire, frames) = LineWire::to_socket(path).await;
        Self::new(Wire::Lines(Box::new(wire)), frames)
    }

    /// An agent at a Streamable HTTP endpoint.
    #[must_use]
    pub fn over_http(url: &str) -> Self {
        let (sender, frames) = mpsc::channel(IN_FLIGHT);
        let wire = Wire::Http {
            client: Box::new(HttpClient::new(url)),
            frames: sender,
        };
        Self::new(wire, frames)
    }

    fn new(wire: Wire, frames: mpsc::Receiver<String>) -> Self {
        Self {
            wire,
            frames,
            answers: HashMap::new(),
            unanswered: HashSet::new(),
            answered: Vec::new(),
            heard: Vec::new(),
            asked: Vec::new(),
            last_id: 0,
        }
    }

    /// Opens the conversation as a client of `version` that can do `capabilities` (JSON); over HTTP
    /// it also opens the session's stream when the server has one. Gives the `initialize` result.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn initialize(&mut self, version: &str, capabilities: &str) -> Answer {
        if let Wire::Http { client, .. } = &mut self.wire {
            let opening = client.open_session(version, capabilities);
            let frame = within("initialize", DEADLINE, opening).await;
            self.listen().await;
            return Answer { frame };
        }
        self.send(&initialize(version, capabilities)).await;
        let answer = self.answer_to(&json!(0)).await;
        self.notify("notifications/initialized", json!({})).await;
        answer
    }

    /// From now on requests of this method are answered with `result`; others with -32601.
    pub fn answers(&mut self, method: &str, result: Value) {
        self.answers.insert(method.to_owned(), result);
    }

    /// From now on requests of this method wait, as for a person, until [`Self::reply`].
    pub fn leave_unanswered(&mut self, method: &str) {
        self.unanswered.insert(method.to_owned());
    }

    /// Waits until the other side has made so many requests of this method; gives the last of them.
    ///
    /// # Panics
    /// When they do not come by the deadline.
    pub async fn wait_for_request(&mut self, method: &str, times: usize) -> Value {
        let asked = async {
            loop {
                let mut of_method = self.asked.iter().filter(|asked| asked["method"] == method);
                if let Some(last) = of_method.nth(times.saturating_sub(1)) {
                    return last.clone();
                }
                self.next(method).await;
            }
        };
        within(method, DEADLINE, asked).await
    }

    /// Answers a request of the other side.
    pub async fn reply(&mut self, request: &Value, result: Value) {
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        self.send(&answer.to_string()).await;
    }

    /// Sends a request and waits for its answer; what comes meanwhile is kept or answered.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn request(&mut self, method: &str, params: Value) -> Answer {
        let id = self.start(method, params).await;
        self.answer_to(&id).await
    }

    /// Calls a tool.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn call(&mut self, name: &str, arguments: Value) -> Answer {
        let params = json!({"name": name, "arguments": arguments});
        self.request("tools/call", params).await
    }

    /// Sends a request without waiting; gives its id.
    pub async fn start(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = json!(self.last_id);
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&request.to_string()).await;
        id
    }

    /// Sends a notification.
    pub async fn notify(&mut self, method: &str, params: Value) {
        let notification = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.send(&notification.to_string()).await;
    }

    /// Waits for the answer to a request.
    ///
    /// # Panics
    /// When none comes by the deadline, or the other side leaves.
    pub async fn answer_to(&mut self, id: &Value) -> Answer {
        let what = format!("the answer to {id}");
        let answer = async {
            loop {
                if let Some(at) = self.answered.iter().position(|(_, f)| f["id"] == *id) {
                    let (frame, _) = self.answered.swap_remove(at);
                    return Answer { frame };
                }
                self.next(&what).await;
            }
        };
        within(&what, DEADLINE, answer).await
    }

    /// Waits for a notification of this method that was not taken yet, and takes it.
    ///
    /// # Panics
    /// When none comes by the deadline.
    pub async fn hears(&mut self, method: &str) -> Value {
        let notification = async {
            loop {
                if let Some(at) = self.heard.iter().position(|n| n["method"] == method) {
                    return self.heard.remove(at);
                }
                self.next(method).await;
            }
        };
        within(method, DEADLINE, notification).await
    }

    /// The notifications of this method that came and were not taken yet.
    #[must_use]
    pub fn heard(&self, method: &str) -> Vec<&Value> {
        let of_method = self.heard.iter().filter(|n| n["method"] == method);
        of_method.collect()
    }

    /// All notifications that came and were not taken yet.
    #[must_use]
    pub fn all_heard(&self) -> &[Value] {
        &self.heard
    }

    /// Drops the notifications that came so far.
    pub fn forget(&mut self) {
        self.heard.clear();
    }

    /// The requests that servers made of this agent.
    #[must_use]
    pub fn asked(&self) -> &[Value] {
        &self.asked
    }

    /// Ends the conversation properly: DELETE over HTTP, end of input elsewhere. Gives the exit
    /// status of the child, when there is one.
    ///
    /// # Panics
    /// When a child does not end by the deadline.
    pub async fn close(self) -> Option<ExitStatus> {
        match self.wire {
            Wire::Lines(wire) => wire.close(DEADLINE).await,
            Wire::Http { client, .. } => {
                client.delete().await;
                None
            }
        }
    }

    /// Waits until the child ends although its input goes on, and gives its exit status; none where there is
    /// no child.
    ///
    /// # Panics
    /// When it does not end by the deadline.
    pub async fn left(self) -> Option<ExitStatus> {
        match self.wire {
            Wire::Lines(wire) => wire.left(DEADLINE).await,
            Wire::Http { .. } => None,
        }
    }

    /// True over HTTP, where nothing but requests has to be ended.
    pub(super) fn is_over_http(&self) -> bool {
        matches!(self.wire, Wire::Http { .. })
    }

    /// Sends a frame as it is.
    pub async fn send(&mut self, frame: &str) {
        self.send_with(frame, HeaderMap::new()).await;
    }

    /// Sends a frame, over HTTP with more headers; then what is given ends its answer's stream.
    pub(super) async fn send_with(
        &mut self,
        frame: &str,
        headers: HeaderMap,
    ) -> Option<AbortHandle> {
        match &mut self.wire {
            Wire::Lines(wire) => {
                wire.send(frame).await;
                None
            }
            Wire::Http { client, frames } => {
                let (mut client, frames, frame) =
                    (HttpClient::clone(client), frames.clone(), frame.to_owned());
                client.headers.extend(headers);
                let answer = async move {
                    let answer = client.post(frame).await;
                    forward(client, answer, frames).await;
                };
                Some(tokio::spawn(answer).abort_handle())
            }
        }
    }

    async fn listen(&mut self) {
        if let Wire::Http { client, frames } = &mut self.wire {
            let answer = client.get(None).await;
            if answer.status.is_success() {
                let frames = frames.clone();
                tokio::spawn(async move { pass_on(answer, &frames).await });
            }
        }
    }

    /// Takes the next frame in: keeps a response or a notification, answers a request.
    async fn next(&mut self, what: &str) {
        let text = self.frames.recv().await;
        let text = text.unwrap_or_else(|| panic!("the other side left before {what}"));
        let frame: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        match (frame.get("method"), frame.get("id")) {
            (Some(_), None) => self.heard.push(frame),
            (Some(method), Some(id)) => {
                let method = method.as_str().unwrap_or_default();
                let waits = self.unanswered.contains(method);
                let answer = self.canned(method, id).to_string();
                self.asked.push(frame);
                if !waits {
                    self.send(&answer).await;
                }
            }
            (None, _) => self.answered.push((text, frame)),
        }
    }

    fn canned(&self, method: &str, id: &Value) -> Value {
        match self.answers.get(method) {
            Some(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            None if method == "ping" => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
            None => {
                let error = json!({"code": -32601, "message": "not offered"});
                json!({"jsonrpc": "2.0", "id": id, "error": error})
            }
        }
    }
}

/// Passes on what answers a request. A stream that was let go of before the answer is taken up again
/// (SEP-1699).
async fn forward(client: HttpClient, answer: HttpAnswer, frames: mpsc::Sender<String>) {
    if !answer.is_stream() {
        let text = answer.text().await;
        if !text.is_empty() {
            let _ = frames.send(text).await;
        }
        return;
    }
    let mut left = pass_on(answer, &frames).await;
    for _ in 0..RESUMES {
        let Some((last, wait)) = left else { return };
        tokio::time::sleep(wait).await;
        let answer = client.get(Some(&last)).await;
        if !answer.is_stream() {
            return;
        }
        left = pass_on(answer, &frames).await;
    }
}

/// Passes on the messages of a stream until it ends. When that was before an answer, gives where to
/// go on, and after how long.
async fn pass_on(answer: HttpAnswer, frames: &mpsc::Sender<String>) -> Option<(String, Duration)> {
    let (mut events, mut last, mut answered) = (answer.events(), None, false);
    let mut wait = Duration::from_millis(10);
    while let Some(event) = events.next().await {
        last = event.id.or(last);
        wait = event.retry.map_or(wait, Duration::from_millis);
        answered |= is_answer(&event.data);
        if !event.data.is_empty() && frames.send(event.data).await.is_err() {
            return None;
        }
    }
    last.filter(|_| !answered).map(|last| (last, wait))
}

fn is_answer(data: &str) -> bool {
    let message: Value = serde_json::from_str(data).unwrap_or_default();
    message.get("method").is_none() && message.get("id").is_some()
}
