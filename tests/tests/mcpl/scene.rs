//! Servers and hosts of MCPL, scripted.
#![allow(
    dead_code,
    reason = "the modules of the suite use what they need of it"
)]

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{Notify, mpsc, oneshot};

/// The version of MCP that is spoken with MCPL.
pub(crate) const VERSION: &str = "2025-06-18";

/// The sets of the document's memory server (MCPL §15.1).
pub(crate) fn memory() -> Value {
    json!({
        "version": "0.4",
        "contextHooks": {"beforeInference": true, "afterInference": {"blocking": false}},
        "inferenceRequest": {"streaming": true},
        "pushEvents": true,
        "featureSets": {
            "memory.retrieval": {"description": "Retrieve relevant memories", "uses": ["contextHooks.beforeInference"]},
            "memory.extraction": {"description": "Learn from conversations", "uses": ["contextHooks.afterInference"]},
            "memory.consolidation": {"description": "Summarize memories using AI", "uses": ["inferenceRequest"]},
            "memory.proactive": {"description": "Surface reminders proactively", "uses": ["pushEvents"]}
        }
    })
}

/// What a host declares.
pub(crate) fn host() -> Value {
    json!({
        "version": "0.4",
        "pushEvents": true,
        "contextHooks": {"beforeInference": true, "afterInference": {"blocking": true}},
        "inferenceRequest": {"streaming": true},
        "modelInfo": true,
        "featureSets": true,
        "channels": {"register": true, "publish": true, "observe": true, "lifecycle": true, "streaming": true}
    })
}

/// A scripted server that declares this under `experimental.mcpl`.
pub(crate) fn server(declared: &Value) -> Program {
    Program::fixture(&["--mcpl", &declared.to_string()])
}

/// The same with these answers to requests of its host (`--mcpl-answers`).
pub(crate) fn answering(declared: &Value, answers: &Value) -> Program {
    server(declared).args(&["--mcpl-answers", &answers.to_string()])
}

/// An agent at one server, under its own names, that makes it speak and tells what it heard.
pub(crate) struct Driver(pub(crate) Agent);

impl Driver {
    /// At this server of a kernel.
    pub(crate) async fn at(kernel: &Kernel, server: &str) -> Self {
        let mut agent = kernel.http_agent(Some(server));
        agent.initialize(VERSION, "{}").await;
        Self(agent)
    }

    /// Makes the server ask its host something; the host's whole answer.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.called("mcpl_ask", json!({"method": method, "params": params}))
            .await
    }

    /// Makes the server tell its host something.
    pub(crate) async fn tell(&mut self, method: &str, params: Value) {
        self.called("mcpl_tell", json!({"method": method, "params": params}))
            .await;
    }

    /// What reached the server of MCPL, and which calls did, in order.
    pub(crate) async fn heard(&mut self) -> Vec<Value> {
        let heard = self.called("mcpl_heard", json!({})).await;
        heard["heard"].as_array().cloned().unwrap()
    }

    /// The same, of one method.
    pub(crate) async fn heard_of(&mut self, method: &str) -> Vec<Value> {
        let heard = self.called("mcpl_heard", json!({"method": method})).await;
        heard["heard"].as_array().cloned().unwrap()
    }

    /// Waits until so many messages of this method reached the server; gives them.
    pub(crate) async fn hears(&mut self, method: &str, count: usize) -> Vec<Value> {
        let mut heard = Vec::new();
        wait_until(&format!("{count} of {method}"), DEADLINE, async || {
            heard = self.heard_of(method).await;
            heard.len() >= count
        })
        .await;
        heard
    }

    /// The structured result of a call.
    pub(crate) async fn called(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.0.call(tool, arguments).await;
        let frame: Value = serde_json::from_str(&answer.frame).unwrap();
        assert!(frame.get("result").is_some(), "{tool}: {frame}");
        frame["result"]["structuredContent"].clone()
    }

    /// The whole answer to a call.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.0.call(tool, arguments).await;
        serde_json::from_str(&answer.frame).unwrap()
    }
}

/// An agent that is a host of MCPL, at `mgp stdio`: it answers by a table at any time, and keeps what it heard.
pub(crate) struct Host {
    child: Child,
    lines: mpsc::UnboundedSender<String>,
    seen: Arc<Seen>,
    /// The result of its `initialize`.
    pub(crate) hello: Value,
}

#[derive(Default)]
struct Seen {
    answers: Mutex<HashMap<String, Vec<Value>>>,
    heard: Mutex<Vec<Value>>,
    asked: Mutex<Vec<Value>>,
    open: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    last: Mutex<u64>,
    news: Notify,
}

impl Host {
    /// A host that declares [`host`], as the owner.
    pub(crate) async fn start(kernel: &Kernel) -> Self {
        Self::declaring(kernel, &host(), &[]).await
    }

    /// A host that declares this, with more arguments to `mgp stdio`: `--agent NAME`, `--server NAME`.
    pub(crate) async fn declaring(kernel: &Kernel, declared: &Value, args: &[&str]) -> Self {
        let program = kernel.program(&[&["stdio"], args].concat());
        let mut command = Command::from(program.to_command());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (lines, out) = mpsc::unbounded_channel();
        tokio::spawn(write(child.stdin.take().unwrap(), out));
        let seen = Arc::<Seen>::default();
        let reader = BufReader::new(child.stdout.take().unwrap());
        tokio::spawn(read(reader, seen.clone(), lines.clone()));
        let mut host = Self {
            child,
            lines,
            seen,
            hello: Value::Null,
        };
        let capabilities = json!({"experimental": {"mcpl": declared}});
        let hello = json!({"protocolVersion": VERSION, "capabilities": capabilities, "clientInfo": {"name": "host", "version": "1"}});
        host.hello = host.request("initialize", hello).await["result"].clone();
        host.tell("notifications/initialized", json!({}));
        // It may be asked from now on.
        host.request("ping", json!({})).await;
        host
    }

    /// The kernel's own declaration of MCPL.
    pub(crate) fn declared(&self) -> &Value {
        &self.hello["capabilities"]["experimental"]["mcpl"]
    }

    /// From now on requests of this method are answered with these in turn, the last one again and again:
    /// `{"result": …}`, `{"error": …}` or `{"silent": true}`, each after `after_ms` where given.
    pub(crate) fn answers(&self, method: &str, answers: Value) {
        let mut answers = match answers.as_array() {
            Some(all) => all.clone(),
            None => vec![answers],
        };
        answers.reverse();
        self.seen
            .answers
            .lock()
            .unwrap()
            .insert(method.to_owned(), answers);
    }

    /// Sends a request and waits for its answer, whole.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Value {
        let answer = self.begin(method, params);
        let answer = tokio::time::timeout(DEADLINE, answer).await;
        answer
            .unwrap_or_else(|_| panic!("no answer to {method}"))
            .unwrap()
    }

    /// Sends a request; what is given resolves with its answer.
    pub(crate) fn begin(&self, method: &str, params: Value) -> oneshot::Receiver<Value> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut last = self.seen.last.lock().unwrap();
            *last += 1;
            *last
        };
        self.seen.open.lock().unwrap().insert(id, sender);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        answer
    }

    /// Calls a tool; the whole answer.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }

    /// Sends a notification.
    pub(crate) fn tell(&self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Waits for a notification of this method that was not taken yet, and takes it; its `params`.
    pub(crate) async fn hears(&self, method: &str) -> Value {
        let take = || {
            let mut heard = self.seen.heard.lock().unwrap();
            let at = heard.iter().position(|frame| frame["method"] == method)?;
            Some(heard.remove(at)["params"].take())
        };
        self.until(method, take).await
    }

    /// The notifications that came and were not taken yet.
    pub(crate) fn heard(&self) -> Vec<Value> {
        self.seen.heard.lock().unwrap().clone()
    }

    /// Waits until it was asked so many requests of this method; gives them, whole.
    pub(crate) async fn asked(&self, method: &str, count: usize) -> Vec<Value> {
        let enough = || {
            let asked = self.seen.asked.lock().unwrap();
            let of_method = asked.iter().filter(|frame| frame["method"] == method);
            let of_method: Vec<Value> = of_method.cloned().collect();
            (of_method.len() >= count).then_some(of_method)
        };
        self.until(method, enough).await
    }

    async fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let found = async {
            loop {
                let news = self.seen.news.notified();
                if let Some(found) = look() {
                    return found;
                }
                news.await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, found).await;
        found.unwrap_or_else(|_| panic!("nothing of {what}: {:?}", self.heard()))
    }

    fn send(&self, frame: &Value) {
        let _ = self.lines.send(frame.to_string());
    }

    /// Ends it.
    pub(crate) async fn leave(mut self) {
        let _ = self.child.kill().await;
    }
}

async fn write(mut stdin: ChildStdin, mut lines: mpsc::UnboundedReceiver<String>) {
    while let Some(line) = lines.recv().await {
        if stdin
            .write_all(format!("{line}\n").as_bytes())
            .await
            .is_err()
        {
            return;
        }
    }
}

async fn read(
    reader: BufReader<tokio::process::ChildStdout>,
    seen: Arc<Seen>,
    lines: mpsc::UnboundedSender<String>,
) {
    let mut frames = reader.lines();
    while let Ok(Some(line)) = frames.next_line().await {
        let frame: Value = serde_json::from_str(&line).unwrap();
        match (frame["method"].as_str(), frame.get("id")) {
            (Some(_), None) => seen.heard.lock().unwrap().push(frame),
            (Some(method), Some(id)) => {
                tokio::spawn(answer(seen.next(method), id.clone(), lines.clone()));
                seen.asked.lock().unwrap().push(frame);
            }
            (None, _) => {
                let waits = frame["id"].as_u64();
                let waits = waits.and_then(|id| seen.open.lock().unwrap().remove(&id));
                if let Some(waits) = waits {
                    let _ = waits.send(frame);
                }
            }
        }
        // `notified()` that exists already is woken, too.
        seen.news.notify_waiters();
    }
}

impl Seen {
    /// The next answer to this method.
    fn next(&self, method: &str) -> Value {
        let mut answers = self.answers.lock().unwrap();
        match answers.get_mut(method) {
            Some(all) if all.len() > 1 => all.pop().unwrap(),
            Some(all) => all.last().cloned().unwrap_or_default(),
            None if method == "ping" => json!({"result": {}}),
            None => json!({"error": {"code": -32601, "message": "not offered"}}),
        }
    }
}

async fn answer(answer: Value, id: Value, lines: mpsc::UnboundedSender<String>) {
    if let Some(ms) = answer["after_ms"].as_u64() {
        let never = std::future::pending::<()>();
        let _ = tokio::time::timeout(Duration::from_millis(ms), never).await;
    }
    if answer["silent"] == true {
        return;
    }
    let (member, value) = match answer.get("error") {
        Some(error) => ("error", error),
        None => ("result", &answer["result"]),
    };
    let frame = json!({"jsonrpc": "2.0", "id": id, member: value});
    let _ = lines.send(frame.to_string());
}
