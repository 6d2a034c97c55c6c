//! The built-in MCP server: one connection from `initialize` to the end of its input.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::dialect::Version;
use mgp_protocol::jsonrpc::{
    self, ErrorObject, INVALID_REQUEST, METHOD_NOT_FOUND, Message, RequestId,
};
use mgp_protocol::mcp::{
    self, Cancelled, ClientCapabilities, Initialize, Method, Ping, completion, prompts, resources,
    tools,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::ask::Questions;
use super::calls::{Call, Calls};
use super::wire::{Lines, Outbox};
use super::{prompts as demo_prompts, resources as demo_resources, tools as demo_tools};

/// How long calls may go on after the input has ended.
const GRACE: Duration = Duration::from_secs(1);

/// What `initialize` settled, for every call to see.
pub(super) struct Session {
    /// The version both speak.
    pub(super) version: Version,
    /// What the client can be asked for.
    pub(super) client: ClientCapabilities,
    /// The folder that may be searched; canonical.
    pub(super) root: PathBuf,
    /// The way to the client.
    pub(super) outbox: Outbox,
    /// Questions the client has not answered yet.
    pub(super) questions: Questions,
}

/// Serves one client until its input ends; `root` is the folder that may be searched.
///
/// # Errors
/// Those of the input and the output.
pub async fn serve(
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    root: PathBuf,
) -> io::Result<()> {
    let (outbox, write) = Outbox::new(output);
    let writer = tokio::spawn(write);
    let mut server = Server {
        outbox,
        root,
        session: None,
        calls: Calls::default(),
    };
    let heard = server.hear(Lines::new(input)).await;
    // A client that closes its end wants to be done; what is nearly done may still be said.
    let _ = timeout(GRACE, server.calls.finish()).await;
    drop(server);
    let written = writer.await.expect("the writer does not panic");
    heard.and(written)
}

struct Server {
    outbox: Outbox,
    root: PathBuf,
    session: Option<Arc<Session>>,
    calls: Calls,
}

impl Server {
    async fn hear(&mut self, mut lines: Lines<impl AsyncRead + Unpin>) -> io::Result<()> {
        loop {
            tokio::select! {
                line = lines.next() => match line? {
                    Some(line) => self.line(&line).await,
                    None => return Ok(()),
                },
                () = self.calls.ended() => {}
            }
        }
    }

    async fn line(&mut self, line: &[u8]) {
        match jsonrpc::parse(line) {
            Ok(Message::Request {
                id, method, params, ..
            }) => {
                let params = params.map(RawValue::get);
                if let Some(outcome) = self.request(&id, &method, params) {
                    self.outbox.answer(&id, outcome).await;
                }
            }
            Ok(Message::Notification { method, params }) => {
                if method == Cancelled::METHOD
                    && let Ok(cancelled) = mcp::read::<Cancelled<'_>>(params.map(RawValue::get))
                    && let Some(id) = RequestId::from_json(cancelled.request_id.get())
                {
                    self.calls.cancel(&id);
                }
            }
            Ok(Message::Response { id, outcome }) => {
                if let (Some(session), Some(id)) = (&self.session, id) {
                    session
                        .questions
                        .answer(&id, outcome.map(RawValue::get).ok());
                }
            }
            Err(malformed) => {
                if let Some(frame) = malformed.to_frame() {
                    self.outbox.send(frame).await;
                }
            }
        }
    }

    /// The answer, or nothing when a call of its own will give it.
    fn request(
        &mut self,
        id: &RequestId,
        method: &str,
        params: Option<&str>,
    ) -> Option<Result<Value, ErrorObject>> {
        match (method, self.session.clone()) {
            (Ping::METHOD, _) => Some(Ok(json!({}))),
            (Initialize::METHOD, None) => Some(self.initialize(params)),
            (_, None) => Some(Err(refused(INVALID_REQUEST, "say initialize first"))),
            (Initialize::METHOD, Some(_)) => {
                Some(Err(refused(INVALID_REQUEST, "initialize was said already")))
            }
            (tools::Call::METHOD, Some(session)) => {
                let call = Call {
                    id: id.clone(),
                    session,
                };
                self.calls
                    .start(call, params.unwrap_or("{}").to_owned())
                    .err()
                    .map(Err)
            }
            (_, Some(session)) => Some(answer(&session, method, params)),
        }
    }

    fn initialize(&mut self, params: Option<&str>) -> Result<Value, ErrorObject> {
        let asked: Initialize<'_> = mcp::read(params).map_err(|e| bad_params(&e))?;
        let version = Version::negotiate(&asked.protocol_version);
        self.session = Some(Arc::new(Session {
            version,
            client: ClientCapabilities::read(Some(asked.capabilities)),
            root: self.root.clone(),
            outbox: self.outbox.clone(),
            questions: Questions::default(),
        }));
        let mut capabilities = json!({"tools": {}, "resources": {}, "prompts": {}});
        if version >= Version::V2025_03_26 {
            capabilities["completions"] = json!({});
        }
        Ok(json!({
            "protocolVersion": version.as_str(),
            "capabilities": capabilities,
            "serverInfo": {"name": "mgp-demo", "version": env!("CARGO_PKG_VERSION")},
            "instructions": "A server to try the kernel with: it tells the time, searches files, \
                             works slowly and asks questions.",
        }))
    }
}

/// What is answered at once.
fn answer(session: &Session, method: &str, params: Option<&str>) -> Result<Value, ErrorObject> {
    match method {
        tools::List::METHOD => Ok(json!({"tools": demo_tools::list(session.version)})),
        resources::List::METHOD => Ok(demo_resources::list()),
        resources::templates::List::METHOD => Ok(demo_resources::templates()),
        resources::Read::METHOD => {
            let read: resources::About<'_> = mcp::read(params).map_err(|e| bad_params(&e))?;
            demo_resources::read(&text(read.uri))
        }
        prompts::List::METHOD => Ok(demo_prompts::list()),
        prompts::Get::METHOD => {
            let get: prompts::Get<'_> = mcp::read(params).map_err(|e| bad_params(&e))?;
            demo_prompts::get(&text(get.name), get.arguments)
        }
        completion::Complete::METHOD => demo_prompts::complete(params),
        _ => Err(refused(
            METHOD_NOT_FOUND,
            &format!("Method not found: {method}"),
        )),
    }
}

/// A JSON string as text; empty when it is none.
fn text(raw: &RawValue) -> String {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// An error without data.
pub(super) fn refused(code: i64, message: &str) -> ErrorObject {
    ErrorObject::new(code, message)
}

/// The answer to params of the wrong form.
pub(super) fn bad_params(why: &impl std::fmt::Display) -> ErrorObject {
    ErrorObject::new(jsonrpc::INVALID_PARAMS, why.to_string())
}

#[cfg(test)]
mod tests;
