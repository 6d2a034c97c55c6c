//! A small MCP client of the kernel's socket: one request at a time, with all messages that arrive meanwhile.

use std::collections::VecDeque;
use std::path::Path;

use mgp_platform::peer;
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

use super::form_prompt;
use super::observer::{PROGRESS_DELAY, RequestObserver};
use super::progress::ProgressLine;
use super::response::parse_error;
use super::response_timeout::{POLL_INTERVAL, ResponseTimer};
use super::socket::{ConnectRetries, Frames, backlog_is_full, check_owner, connect_failure};
use crate::cli::failure::Failure;

/// Elicitations that may wait for the one at the terminal; more are declined.
const CALLBACK_QUEUE_MAX: usize = 16;

/// Options of a connection.
#[derive(Default)]
pub(in crate::cli) struct ConnectOptions {
    /// `mgp/door/open`, for a connection with a restricted view.
    pub(in crate::cli) endpoint: Option<door::Open>,
    /// Whether a user at the terminal answers elicitations.
    pub(in crate::cli) is_interactive: bool,
    /// The observer answers all requests instead of a user.
    pub(in crate::cli) answers_by_observer: bool,
}

impl ConnectOptions {
    /// The endpoint of one server with its own names, or that of all.
    pub(in crate::cli) fn for_server(server: Option<&str>) -> Self {
        let endpoint = server.map(|server| door::Open {
            server: Some(server.to_owned()),
            set: None,
            agent: None,
            folder: None,
        });
        Self {
            endpoint,
            ..Self::default()
        }
    }
}

/// An initialized connection.
pub(in crate::cli) struct KernelClient {
    frames: Frames,
    writer: OwnedWriteHalf,
    last_id: u64,
    /// Elicitations, the first of which may be at the terminal.
    pending_callbacks: VecDeque<(RequestId, Value)>,
    prompt: Option<JoinHandle<Value>>,
    is_interactive: bool,
}

impl KernelClient {
    /// Connects and initializes; `holder` finds the kernel's process if the socket does not report it.
    pub(in crate::cli) async fn connect(
        socket: &Path,
        holder: impl Fn() -> Option<i32>,
        options: ConnectOptions,
    ) -> Result<Self, Failure> {
        let mut retries = ConnectRetries::new();
        loop {
            match Self::open_once(socket, &holder, &options).await {
                Err(Failure::ConnectionClosed) if retries.next_attempt() => {
                    sleep(ConnectRetries::RETRY_INTERVAL).await
                }
                opened => return opened,
            }
        }
    }

    /// One attempt; [`Failure::InputClosed`] if the connection was closed before any answer.
    async fn open_once(
        socket: &Path,
        holder: impl Fn() -> Option<i32>,
        options: &ConnectOptions,
    ) -> Result<Self, Failure> {
        let stream = connect_socket(socket, holder).await?;
        let peer = peer::credentials(&stream)?;
        check_owner(peer.uid, socket)?;
        let (reader, writer) = stream.into_split();
        let mut client = Self {
            frames: Frames::new(reader),
            writer,
            last_id: 0,
            pending_callbacks: VecDeque::new(),
            prompt: None,
            is_interactive: options.is_interactive,
        };
        let silence = ResponseTimer::start(socket, peer.pid);
        tokio::select! {
            done = client.initialize(options) => match done {
                Err(Failure::ConnectionClosed) if client.frames.has_received() => return Err(closed_early_failure()),
                done => done?,
            },
            failure = response_timeout(silence) => return Err(failure),
        }
        Ok(client)
    }

    async fn initialize(&mut self, options: &ConnectOptions) -> Result<(), Failure> {
        if let Some(door) = &options.endpoint {
            self.request(door::Open::METHOD, door, &mut ()).await?;
        }
        let capabilities = match (options.answers_by_observer, options.is_interactive) {
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

    /// Calls `method`; `doing` is shown if the answer takes long.
    pub(in crate::cli) async fn call(
        &mut self,
        method: &str,
        params: &impl Serialize,
        doing: impl Into<String>,
    ) -> Result<Box<RawValue>, Failure> {
        self.request(method, params, &mut ProgressLine::new(doing))
            .await
    }

    /// Sends `method` and waits for the result, the kernel's JSON text.
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
        let late = sleep_until(Instant::now() + PROGRESS_DELAY);
        tokio::pin!(late);
        let mut is_late = false;
        loop {
            tokio::select! {
                frame = self.frames.next_frame() => {
                    if let Some(answer) = self.handle_frame(&frame?, &id, observer).await? {
                        return answer;
                    }
                }
                answer = join_prompt(&mut self.prompt) => self.send_answer(&answer, observer).await?,
                () = &mut late, if !is_late => {
                    is_late = true;
                    observer.on_delay();
                }
                _ = &mut interrupted => {
                    self.cancel(&id).await?;
                    return Err(Failure::Interrupted);
                }
            }
        }
    }

    /// Cancels the last request, whose answer is no longer needed.
    pub(in crate::cli) async fn cancel_last(&mut self) {
        // If the kernel is gone, there is nothing to cancel.
        let _ = self.cancel(&self.last_id.to_string()).await;
    }

    /// Receives messages until interrupted or until the kernel closes the connection.
    pub(in crate::cli) async fn listen_until_closed(
        &mut self,
        observer: &mut dyn RequestObserver,
    ) -> Result<(), Failure> {
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        loop {
            tokio::select! {
                frame = self.frames.next_frame() => drop(self.handle_frame(&frame?, "", observer).await?),
                _ = &mut interrupted => return Err(Failure::Interrupted),
            }
        }
    }

    /// Handles a message; returns the answer to `id`.
    async fn handle_frame(
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
                return Ok(Some(outcome.map(ToOwned::to_owned).map_err(parse_error)));
            }
            Message::Response { .. } => {}
            Message::Notification { method, params } => {
                observer.on_notification(&method, params.map_or("{}", RawValue::get))?;
            }
            Message::Request {
                id, method, params, ..
            } => {
                self.handle_request(id, &method, params, observer).await?;
            }
        }
        Ok(None)
    }

    /// Answers a request of the kernel, or queues it for the user.
    async fn handle_request(
        &mut self,
        id: RequestId,
        method: &str,
        params: Option<&RawValue>,
        observer: &mut dyn RequestObserver,
    ) -> Result<(), Failure> {
        if method == mcp::Ping::METHOD {
            return self.send(&jsonrpc::result(id.as_json(), "{}")).await;
        }
        if let Some(answer) = observer.answer_callback(method) {
            let frame = match answer {
                Ok(result) => jsonrpc::result(id.as_json(), &result),
                Err(error) => jsonrpc::error(id.as_json(), &error),
            };
            return self.send(&frame).await;
        }
        if method == elicitation::Create::METHOD && self.is_interactive {
            if self.pending_callbacks.len() == CALLBACK_QUEUE_MAX {
                return self
                    .send(&jsonrpc::result(id.as_json(), r#"{"action":"decline"}"#))
                    .await;
            }
            let params = params
                .and_then(|p| serde_json::from_str(p.get()).ok())
                .unwrap_or_default();
            self.pending_callbacks.push_back((id, params));
            self.prompt_next(observer);
            return Ok(());
        }
        let error = ErrorObject::new(METHOD_NOT_FOUND, format!("Method not found: {method}"));
        let error = serde_json::to_string(&error).expect("an error object is always JSON");
        self.send(&jsonrpc::error(id.as_json(), &error)).await
    }

    /// Prompts for the first queued elicitation, unless a prompt is open.
    fn prompt_next(&mut self, observer: &mut dyn RequestObserver) {
        if let (None, Some((_, params))) = (&self.prompt, self.pending_callbacks.front()) {
            let params = params.clone();
            observer.yield_terminal(true);
            self.prompt = Some(tokio::task::spawn_blocking(move || {
                form_prompt::prompt_elicitation(&params)
            }));
        }
    }

    async fn send_answer(
        &mut self,
        answer: &Value,
        observer: &mut dyn RequestObserver,
    ) -> Result<(), Failure> {
        self.prompt = None;
        observer.yield_terminal(false);
        if let Some((id, _)) = self.pending_callbacks.pop_front() {
            self.send(&jsonrpc::result(id.as_json(), &answer.to_string()))
                .await?;
        }
        self.prompt_next(observer);
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
            .map_err(|_| Failure::ConnectionClosed)?;
        self.writer
            .write_all(b"\n")
            .await
            .map_err(|_| Failure::ConnectionClosed)
    }
}

/// Connects; waits while the backlog is full.
async fn connect_socket(
    socket: &Path,
    holder: impl Fn() -> Option<i32>,
) -> Result<UnixStream, Failure> {
    let mut silence = None;
    loop {
        match UnixStream::connect(socket).await {
            Err(e) if backlog_is_full(&e) => {
                let silence = silence.get_or_insert_with(|| ResponseTimer::start(socket, holder()));
                sleep(POLL_INTERVAL).await;
                silence.check()?;
            }
            connected => return connected.map_err(|e| connect_failure(&e, socket)),
        }
    }
}

/// The kernel answered, and closed the connection early.
fn closed_early_failure() -> Failure {
    Failure::Other(Failure::ConnectionClosed.to_string())
}

/// Resolves when the kernel has been silent for too long.
async fn response_timeout(mut silence: ResponseTimer) -> Failure {
    loop {
        sleep(POLL_INTERVAL).await;
        if let Err(failure) = silence.check() {
            return failure;
        }
    }
}

/// The user's answer, while a prompt is open.
async fn join_prompt(asked: &mut Option<JoinHandle<Value>>) -> Value {
    match asked {
        Some(question) => question
            .await
            .unwrap_or_else(|_| json!({"action": "cancel"})),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
