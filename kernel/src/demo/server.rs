//! The built-in MCP server: one connection from `initialize` to the end of its input.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::dialect::Version;
use mgp_protocol::framing::Frame;
use mgp_protocol::jsonrpc::{
    self, ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Message,
    RequestId,
};
use mgp_protocol::mcp::{
    self, Cancelled, ClientCapabilities, Initialize, Method, Ping, completion, prompts, resources,
    tools,
};
use mgp_transports::lines::{self, LineSink, QueueLimits, ReadEnd, WriteEnd};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::session::{DemoSession, send_line, send_response};

/// Time for calls after the input has ended.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// Longest accepted line, in bytes: no request of a demo is longer.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Concurrent calls; one more is rejected.
const CALLS_MAX: usize = 64;
/// A client that reads nothing for this long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Serves one client until its input ends; `root` is the folder that may be searched.
///
/// # Errors
/// Those of the input and the output.
pub(super) async fn serve(
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    root: PathBuf,
) -> io::Result<()> {
    let (sink, writer) = lines::line_channel(QueueLimits::default());
    let writer = tokio::spawn(writer.run(output, WRITE_TIMEOUT));
    let mut server = DemoConnection {
        sink,
        root,
        session: None,
        calls: JoinSet::new(),
        running: HashMap::new(),
    };
    let heard = lines::read_lines(input, LINE_BYTES_MAX, |frame| server.handle_frame(frame)).await;
    // A client that closes its end wants to finish; nearly finished calls may still answer.
    let _ = timeout(SHUTDOWN_GRACE, async {
        while server.calls.join_next().await.is_some() {}
    })
    .await;
    drop(server);
    let wrote = writer.await.map_err(io::Error::other)?;
    match (heard, wrote) {
        (ReadEnd::Failed(error), _) | (_, WriteEnd::Failed(error)) => Err(error),
        (ReadEnd::Eof | ReadEnd::Runaway, WriteEnd::Closed | WriteEnd::Stalled) => Ok(()),
    }
}

struct DemoConnection {
    sink: LineSink,
    root: PathBuf,
    session: Option<Arc<DemoSession>>,
    /// The running calls; each task sends its own response.
    calls: JoinSet<RequestId>,
    running: HashMap<RequestId, AbortHandle>,
}

impl DemoConnection {
    fn handle_frame(&mut self, frame: Frame) {
        match frame {
            Frame::Line(line) => self.handle_line(&line),
            Frame::Oversized { len, .. } => eprintln!("passed over a line of {len} bytes"),
            Frame::LimitExceeded { .. } => {}
        }
    }

    fn handle_line(&mut self, line: &[u8]) {
        match jsonrpc::parse(line) {
            Ok(Message::Request {
                id, method, params, ..
            }) => {
                let params = params.map_or("{}", RawValue::get);
                if let Some(outcome) = self.handle_request(&id, &method, params) {
                    send_response(&self.sink, &id, outcome);
                }
            }
            Ok(Message::Notification { method, params }) => {
                // No response follows. Unknown ids are those of calls that have ended.
                if method == Cancelled::METHOD
                    && let Ok(cancelled) =
                        mcp::parse_params::<Cancelled<'_>>(params.map(RawValue::get))
                    && let Some(id) = RequestId::from_json(cancelled.request_id.get())
                    && let Some(task) = self.running.remove(&id)
                {
                    task.abort();
                }
            }
            Ok(Message::Response { id, outcome }) => {
                if let (Some(session), Some(id)) = (&self.session, id) {
                    session.resolve_callback(&id, outcome.map(RawValue::get).ok());
                }
            }
            Err(malformed) => {
                if let Some(frame) = malformed.to_frame() {
                    send_line(&self.sink, frame);
                }
            }
        }
    }

    /// The response, or `None` if a call task will send it.
    fn handle_request(
        &mut self,
        id: &RequestId,
        method: &str,
        params: &str,
    ) -> Option<Result<Value, ErrorObject>> {
        let refused = |why| Some(Err(ErrorObject::new(INVALID_REQUEST, why)));
        match (method, self.session.clone()) {
            (Ping::METHOD, _) => Some(Ok(json!({}))),
            (Initialize::METHOD, None) => Some(self.initialize(params)),
            (_, None) => refused("say initialize first"),
            (Initialize::METHOD, Some(_)) => refused("initialize was said already"),
            (tools::Call::METHOD, Some(session)) => {
                self.start_call(id, session, params).err().map(Err)
            }
            (_, Some(session)) => Some(handle_immediate(&session, method, params)),
        }
    }

    fn initialize(&mut self, params: &str) -> Result<Value, ErrorObject> {
        let initialize_params: Initialize<'_> =
            mcp::parse_params(Some(params)).map_err(invalid_params)?;
        let version = Version::negotiate(&initialize_params.protocol_version);
        let client = ClientCapabilities::parse(Some(initialize_params.capabilities));
        let session = DemoSession::new(version, client, self.root.clone(), self.sink.clone());
        self.session = Some(Arc::new(session));
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

    fn start_call(
        &mut self,
        id: &RequestId,
        session: Arc<DemoSession>,
        params: &str,
    ) -> Result<(), ErrorObject> {
        while let Some(ended) = self.calls.try_join_next() {
            // A cancelled call is no longer among the running ones.
            if let Ok(id) = ended {
                self.running.remove(&id);
            }
        }
        if self.running.len() >= CALLS_MAX {
            let busy = format!("{CALLS_MAX} calls are under way; try again");
            return Err(ErrorObject::new(INTERNAL_ERROR, busy));
        }
        if self.running.contains_key(id) {
            let twice = "a call with this id is under way";
            return Err(ErrorObject::new(INVALID_REQUEST, twice));
        }
        let params = serde_json::from_str(params).map_err(invalid_params)?;
        let call = id.clone();
        let task = self.calls.spawn(async move {
            let outcome = super::tools::call_tool(&session, params).await;
            session.respond(&call, outcome);
            call
        });
        self.running.insert(id.clone(), task);
        Ok(())
    }
}

/// Methods that need no task.
fn handle_immediate(
    session: &DemoSession,
    method: &str,
    params: &str,
) -> Result<Value, ErrorObject> {
    use super::{prompts as demo_prompts, resources as demo_resources, tools as demo_tools};

    let params: Value = serde_json::from_str(params).map_err(invalid_params)?;
    match method {
        tools::List::METHOD => Ok(demo_tools::list_tools(session.version)),
        resources::List::METHOD => Ok(demo_resources::list_resources()),
        resources::templates::List::METHOD => Ok(demo_resources::list_templates()),
        resources::Read::METHOD => demo_resources::read_resource(&params),
        prompts::List::METHOD => Ok(demo_prompts::list_prompts()),
        prompts::Get::METHOD => demo_prompts::get_prompt(&params),
        completion::Complete::METHOD => Ok(demo_prompts::complete_argument(&params)),
        _ => Err(ErrorObject::new(
            METHOD_NOT_FOUND,
            format!("Method not found: {method}"),
        )),
    }
}

fn invalid_params(why: impl std::fmt::Display) -> ErrorObject {
    ErrorObject::new(INVALID_PARAMS, why.to_string())
}

#[cfg(test)]
mod tests;
