//! A small MCP client on the kernel's socket: one request at a time, and everything that comes
//! while it is open.

use std::collections::VecDeque;
use std::path::Path;

use mgp_protocol::jsonrpc::{self, ErrorObject, METHOD_NOT_FOUND, Message, RequestId};
use mgp_protocol::mcp::{self, Method, elicitation};
use mgp_protocol::mgp::door;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::answer::refused;
use super::observer::{LATE, RequestObserver};
use super::progress::ProgressLine;
use super::question;
use super::silence::{POLL, SilenceTimer};
use super::socket::{ConnectRetries, Frames, backlog_is_full, no_connection, trusted};
use crate::cli::failure::Failure;

/// Questions that may wait for the one at the terminal; more are declined.
const MAX_WAITING: usize = 16;

/// How a connection is opened.
#[derive(Default)]
pub(in crate::cli) struct ConnectOptions {
    /// `mgp/door/open`, when the connection shows less than everything.
    pub(in crate::cli) door: Option<door::Open>,
    /// Whether a person at the terminal answers questions.
    pub(in crate::cli) person: bool,
    /// Who answers every question in place of a person.
    pub(in crate::cli) answers_all: bool,
}

impl ConnectOptions {
    /// The door of one server under its own names, or that of all.
    pub(in crate::cli) fn at(server: Option<&str>) -> Self {
        let door = server.map(|server| door::Open {
            server: Some(server.to_owned()),
            set: None,
            agent: None,
            folder: None,
        });
        Self {
            door,
            ..Self::default()
        }
    }
}

/// A connection that has said `initialize`.
pub(in crate::cli) struct KernelClient {
    frames: Frames,
    writer: OwnedWriteHalf,
    last_id: u64,
    /// Questions of a server, the first of which may be on the terminal.
    waiting: VecDeque<(RequestId, Value)>,
    asked: Option<JoinHandle<Value>>,
    person: bool,
}

impl KernelClient {
    /// Connects and says hello; `holder` finds the kernel's process where the socket does not tell.
    pub(in crate::cli) async fn connect(
        socket: &Path,
        holder: impl Fn() -> Option<i32>,
        options: ConnectOptions,
    ) -> Result<Self, Failure> {
        let mut retries = ConnectRetries::new();
        loop {
            match Self::open(socket, &holder, &options).await {
                Err(Failure::Gone) if retries.again() => sleep(ConnectRetries::PACE).await,
                opened => return opened,
            }
        }
    }

    /// One try; [`Failure::Gone`] when the connection was closed before anything was answered.
    async fn open(
        socket: &Path,
        holder: impl Fn() -> Option<i32>,
        options: &ConnectOptions,
    ) -> Result<Self, Failure> {
        let stream = connected(socket, holder).await?;
        let peer = stream.peer_cred()?;
        trusted(peer.uid(), socket)?;
        let (reader, writer) = stream.into_split();
        let mut client = Self {
            frames: Frames::new(reader),
            writer,
            last_id: 0,
            waiting: VecDeque::new(),
            asked: None,
            person: options.person,
        };
        let silence = SilenceTimer::of(socket, peer.pid());
        tokio::select! {
            done = client.initialize(options) => match done {
                Err(Failure::Gone) if client.frames.has_heard() => return Err(closed_early()),
                done => done?,
            },
            failure = timed_out(silence) => return Err(failure),
        }
        Ok(client)
    }

    async fn initialize(&mut self, options: &ConnectOptions) -> Result<(), Failure> {
        if let Some(door) = &options.door {
            self.request(door::Open::METHOD, door, &mut ()).await?;
        }
        let capabilities = match (options.answers_all, options.person) {
            (true, _) => {
                json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}})
            }
            (false, true) => json!({"elicitation": {"form": {}}}),
            (false, false) => json!({}),
        };
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "mgp", "version": env!("CARGO_PKG_VERSION")},
        });
        self.request("initialize", &params, &mut ()).await?;
        let initialized = mcp::Initialized::METHOD;
        self.send(&jsonrpc::notification(initialized, None)).await
    }

    /// Asks for `method`; `doing` is shown when the answer takes its time.
    pub(in crate::cli) async fn ask(
        &mut self,
        method: &str,
        params: &impl Serialize,
        doing: impl Into<String>,
    ) -> Result<Box<RawValue>, Failure> {
        self.request(method, params, &mut ProgressLine::of(doing))
            .await
    }

    /// Asks for `method` and waits for the answer; the result is the kernel's JSON text.
    pub(in crate::cli) async fn request(
        &mut self,
        method: &str,
        params: &impl Serialize,
        observer: &mut dyn RequestObserver,
    ) -> Result<Box<RawValue>, Failure> {
        self.last_id += 1;
        let id = self.last_id.to_string();
        let params = serde_json::to_string(params).expect("params are always JSON");
        self.send(&jsonrpc::request(&id, method, Some(&params)))
            .await?;
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        let late = sleep_until(Instant::now() + LATE);
        tokio::pin!(late);
        let mut is_late = false;
        loop {
            tokio::select! {
                frame = self.frames.next() => {
                    if let Some(answer) = self.take(&frame?, &id, observer).await? {
                        return answer;
                    }
                }
                answer = answered(&mut self.asked) => self.pass_on(&answer, observer).await?,
                () = &mut late, if !is_late => {
                    is_late = true;
                    observer.late();
                }
                _ = &mut interrupted => {
                    self.cancel(&id).await?;
                    return Err(Failure::Interrupted);
                }
            }
        }
    }

    /// Takes the last request back, whose answer is not waited for any more.
    pub(in crate::cli) async fn take_back(&mut self) {
        // Where the kernel is gone, there is nothing to take back.
        let _ = self.cancel(&self.last_id.to_string()).await;
    }

    /// Hears what comes until it is interrupted or the kernel ends.
    pub(in crate::cli) async fn listen(
        &mut self,
        observer: &mut dyn RequestObserver,
    ) -> Result<(), Failure> {
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        loop {
            tokio::select! {
                frame = self.frames.next() => drop(self.take(&frame?, "", observer).await?),
                _ = &mut interrupted => return Err(Failure::Interrupted),
            }
        }
    }

    /// Takes one message; the answer to `id` when it is that.
    async fn take(
        &mut self,
        frame: &[u8],
        id: &str,
        observer: &mut dyn RequestObserver,
    ) -> Result<Option<Result<Box<RawValue>, Failure>>, Failure> {
        let message = jsonrpc::parse(frame)
            .map_err(|e| Failure::Other(format!("the kernel sent something else: {e}")))?;
        let is_it = |of: &RequestId| of.as_json() == id;
        match message {
            Message::Response { id: of, outcome } if of.as_ref().is_some_and(is_it) => {
                return Ok(Some(outcome.map(ToOwned::to_owned).map_err(refused)));
            }
            Message::Response { .. } => {}
            Message::Notification { method, params } => {
                observer.notified(&method, params.map_or("{}", RawValue::get))?;
            }
            Message::Request {
                id, method, params, ..
            } => {
                self.serve(id, &method, params, observer).await?;
            }
        }
        Ok(None)
    }

    /// Answers a request of the kernel, or lays it before the person.
    async fn serve(
        &mut self,
        id: RequestId,
        method: &str,
        params: Option<&RawValue>,
        observer: &mut dyn RequestObserver,
    ) -> Result<(), Failure> {
        if method == mcp::Ping::METHOD {
            return self.send(&jsonrpc::result(id.as_json(), "{}")).await;
        }
        if let Some(answer) = observer.asked(method) {
            let frame = match answer {
                Ok(result) => jsonrpc::result(id.as_json(), &result),
                Err(error) => jsonrpc::error(id.as_json(), &error),
            };
            return self.send(&frame).await;
        }
        if method == elicitation::Create::METHOD && self.person {
            if self.waiting.len() == MAX_WAITING {
                return self
                    .send(&jsonrpc::result(id.as_json(), r#"{"action":"decline"}"#))
                    .await;
            }
            let params = params
                .and_then(|p| serde_json::from_str(p.get()).ok())
                .unwrap_or_default();
            self.waiting.push_back((id, params));
            self.ask_next(observer);
            return Ok(());
        }
        let error = ErrorObject::new(METHOD_NOT_FOUND, format!("Method not found: {method}"));
        let error = serde_json::to_string(&error).expect("an error object is always JSON");
        self.send(&jsonrpc::error(id.as_json(), &error)).await
    }

    /// Puts the first waiting question on the terminal, unless one is there.
    fn ask_next(&mut self, observer: &mut dyn RequestObserver) {
        if let (None, Some((_, params))) = (&self.asked, self.waiting.front()) {
            let params = params.clone();
            observer.yield_terminal(true);
            self.asked = Some(tokio::task::spawn_blocking(move || {
                question::ask_here(&params)
            }));
        }
    }

    async fn pass_on(
        &mut self,
        answer: &Value,
        observer: &mut dyn RequestObserver,
    ) -> Result<(), Failure> {
        self.asked = None;
        observer.yield_terminal(false);
        if let Some((id, _)) = self.waiting.pop_front() {
            self.send(&jsonrpc::result(id.as_json(), &answer.to_string()))
                .await?;
        }
        self.ask_next(observer);
        Ok(())
    }

    async fn cancel(&mut self, id: &str) -> Result<(), Failure> {
        let params = format!(r#"{{"requestId":{id},"reason":"interrupted"}}"#);
        let method = mcp::Cancelled::METHOD;
        self.send(&jsonrpc::notification(method, Some(&params)))
            .await
    }

    async fn send(&mut self, frame: &[u8]) -> Result<(), Failure> {
        self.writer
            .write_all(frame)
            .await
            .map_err(|_| Failure::Gone)?;
        self.writer
            .write_all(b"\n")
            .await
            .map_err(|_| Failure::Gone)
    }
}

/// Connects; waits while so many wait that the system takes no more.
async fn connected(socket: &Path, holder: impl Fn() -> Option<i32>) -> Result<UnixStream, Failure> {
    let mut silence = None;
    loop {
        match UnixStream::connect(socket).await {
            Err(e) if backlog_is_full(&e) => {
                let silence = silence.get_or_insert_with(|| SilenceTimer::of(socket, holder()));
                sleep(POLL).await;
                silence.check()?;
            }
            connected => return connected.map_err(|e| no_connection(&e, socket)),
        }
    }
}

/// It answered, and left before all was said.
fn closed_early() -> Failure {
    Failure::Other(Failure::Gone.to_string())
}

/// Resolves once a silence has lasted too long.
async fn timed_out(mut silence: SilenceTimer) -> Failure {
    loop {
        sleep(POLL).await;
        if let Err(failure) = silence.check() {
            return failure;
        }
    }
}

/// The person's answer, when a question is on the terminal.
async fn answered(asked: &mut Option<JoinHandle<Value>>) -> Value {
    match asked {
        Some(question) => question
            .await
            .unwrap_or_else(|_| json!({"action": "cancel"})),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
