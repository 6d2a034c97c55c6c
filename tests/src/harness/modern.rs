//! A client of 2026-07-28 that speaks raw MCP over any wire: every request stands alone, and what a
//! server asks is answered in another round of the same request.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitStatus;

use http::HeaderMap;
use serde_json::{Map, Value, json};
use tokio::task::AbortHandle;

use super::{Agent, Answer, Envelope, Program};

/// Rounds after which a server is taken to ask for ever.
const ROUNDS: usize = 16;

/// A client with canned answers to what servers ask of it.
pub struct ModernAgent {
    /// What goes with each request.
    pub envelope: Envelope,
    agent: Agent,
    answers: HashMap<String, Value>,
    asked: Vec<Value>,
    /// What ends the streams of the requests that were made over HTTP, by their ids.
    open: HashMap<String, AbortHandle>,
    last_id: u64,
}

impl ModernAgent {
    /// A client joined to the stdio of a child: a server, or `mgp stdio`.
    #[must_use]
    pub fn over_stdio(program: &Program, capabilities: &str) -> Self {
        Self::new(Agent::over_stdio(program), capabilities)
    }

    /// A client at a Unix socket.
    pub async fn over_socket(path: &Path, capabilities: &str) -> Self {
        Self::new(Agent::over_socket(path).await, capabilities)
    }

    /// A client at a Streamable HTTP endpoint.
    #[must_use]
    pub fn over_http(url: &str, capabilities: &str) -> Self {
        Self::new(Agent::over_http(url), capabilities)
    }

    fn new(agent: Agent, capabilities: &str) -> Self {
        Self {
            envelope: Envelope::new(capabilities),
            agent,
            answers: HashMap::new(),
            asked: Vec::new(),
            open: HashMap::new(),
            last_id: 0,
        }
    }

    /// From now on questions of this method are answered with `result`; others not at all.
    pub fn answers(&mut self, method: &str, result: Value) {
        self.answers.insert(method.to_owned(), result);
    }

    /// Makes a request and answers what is asked until there is a result. It learns from lists of
    /// tools which arguments become headers.
    ///
    /// # Panics
    /// When no answer comes, or when something is asked that no answer was given for.
    pub async fn request(&mut self, method: &str, params: Value) -> Answer {
        let mut next = params.clone();
        for _ in 0..ROUNDS {
            let answer = self.ask(method, next).await;
            let Some(result) = wanting(&answer) else {
                self.learn(method, &answer);
                return answer;
            };
            let responses = self.respond(&result);
            next = again(&params, &result, responses);
        }
        panic!("{method} asks for ever");
    }

    /// Calls a tool and answers what is asked.
    ///
    /// # Panics
    /// As [`ModernAgent::request`].
    pub async fn call(&mut self, name: &str, arguments: Value) -> Answer {
        let params = json!({"name": name, "arguments": arguments});
        self.request("tools/call", params).await
    }

    /// Makes a request once: what comes may be a question.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn ask(&mut self, method: &str, params: Value) -> Answer {
        let id = self.start(method, params).await;
        self.answer_to(&id).await
    }

    /// Makes a request without waiting; gives its id.
    pub async fn start(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = json!(format!("m-{}", self.last_id));
        let request = self.envelope.request(&id, method, params);
        let stream = self
            .agent
            .send_with(&request.frame(), request.headers.clone())
            .await;
        self.open
            .extend(stream.map(|stream| (id.to_string(), stream)));
        id
    }

    /// Opens a stream of news; gives its id.
    pub async fn listen(&mut self, notifications: Value) -> Value {
        let params = json!({"notifications": notifications});
        self.start("subscriptions/listen", params).await
    }

    /// Takes a request back: over HTTP by closing its stream, elsewhere by saying so.
    pub async fn cancel(&mut self, id: &Value) {
        match self.open.remove(&id.to_string()) {
            Some(stream) => stream.abort(),
            None => {
                let params = json!({"requestId": id, "reason": "changed my mind"});
                self.agent.notify("notifications/cancelled", params).await;
            }
        }
    }

    /// Waits for the answer to a request.
    ///
    /// # Panics
    /// When none comes by the deadline.
    pub async fn answer_to(&mut self, id: &Value) -> Answer {
        let answer = self.agent.answer_to(id).await;
        self.open.remove(&id.to_string());
        answer
    }

    /// Waits for a notification of this method that was not taken yet, and takes it.
    ///
    /// # Panics
    /// When none comes by the deadline.
    pub async fn hears(&mut self, method: &str) -> Value {
        self.agent.hears(method).await
    }

    /// The notifications of this method that came and were not taken yet.
    #[must_use]
    pub fn heard(&self, method: &str) -> Vec<&Value> {
        self.agent.heard(method)
    }

    /// All notifications that came and were not taken yet.
    #[must_use]
    pub fn all_heard(&self) -> &[Value] {
        self.agent.all_heard()
    }

    /// Drops the notifications that came so far.
    pub fn forget(&mut self) {
        self.agent.forget();
    }

    /// What was asked of this client, as requests without ids.
    #[must_use]
    pub fn asked(&self) -> &[Value] {
        &self.asked
    }

    /// The requests that came from the other side as such: there must be none.
    #[must_use]
    pub fn requested(&self) -> &[Value] {
        self.agent.asked()
    }

    /// Sends a frame as it is.
    pub async fn send(&mut self, frame: &str, headers: HeaderMap) {
        self.agent.send_with(frame, headers).await;
    }

    /// Leaves: closes what is open over HTTP, ends the input elsewhere.
    ///
    /// # Panics
    /// When a child does not end by the deadline.
    pub async fn close(self) -> Option<ExitStatus> {
        self.open.values().for_each(AbortHandle::abort);
        if self.agent.is_over_http() {
            None
        } else {
            self.agent.close().await
        }
    }

    /// The canned answers to what a result asks.
    ///
    /// # Panics
    /// When something is asked that no answer was given for.
    pub fn respond(&mut self, wanting: &Value) -> Value {
        let mut responses = Map::new();
        for (key, question) in wanting["inputRequests"].as_object().into_iter().flatten() {
            self.asked.push(question.clone());
            let method = question["method"].as_str().unwrap_or_default();
            let answer = self.answers.get(method);
            let answer = answer.unwrap_or_else(|| panic!("nobody can answer {question}"));
            responses.insert(key.clone(), answer.clone());
        }
        responses.into()
    }

    fn learn(&mut self, method: &str, answer: &Answer) {
        if method == "tools/list" && !answer.is_error() {
            self.envelope.learn(&answer.result());
        }
    }
}

/// The result of an answer that wants more input; `None` for any other answer.
#[must_use]
pub fn wanting(answer: &Answer) -> Option<Value> {
    let result = (!answer.is_error()).then(|| answer.result())?;
    (result["resultType"] == "input_required").then_some(result)
}

/// The params of the next round of a request: with these responses, and with the state when there
/// was one.
#[must_use]
pub fn again(params: &Value, wanting: &Value, responses: Value) -> Value {
    let mut next = params.clone();
    next["inputResponses"] = responses;
    if let Some(state) = wanting.get("requestState") {
        next["requestState"] = state.clone();
    }
    next
}
