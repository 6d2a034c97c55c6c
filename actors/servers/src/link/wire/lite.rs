//! The transport to an MCP-lite server, which can only list and call tools. To the link it looks like a legacy
//! server with tools and elicitation; everything else of MCP is emulated here.

mod answer;
mod content;
mod elicitation;
mod grpc;
mod http;
mod listing;
mod partials;
mod promise;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::http::header::{HeaderMap, HeaderName};
use bytes::Bytes;
use mgp_callers::request::server_input_required::MAX_ROUNDS;
use mgp_callers::{CallRounds, InFlightCall};
use mgp_json::{Splice, member, quote, unquote};
use mgp_protocol::jsonrpc::{self, ErrorObject, INTERNAL_ERROR, METHOD_NOT_FOUND, Message};
use mgp_protocol::lite::REDEEM;
use mgp_protocol::refusal::{CallOutcome, Refusal};
use mgp_transports::http::client::Client;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use self::answer::LiteResult;
use self::elicitation::ElicitationAnswer;
use self::grpc::LiteGrpc;
use self::http::LiteHttp;
use self::partials::PartialReporter;
use self::promise::{PendingPromise, RedeemBackoff};
use crate::link::{CallContext, Link, LinkEvent, List, Wire};
use crate::login::ServerClient;

/// The protocol of lite servers, with the version of its document.
pub(crate) const VERSION_LABEL: &str = "MCP-lite 0.042";

/// The elicitations without an answer; each call has at most one.
type PendingElicitations = HashMap<Box<str>, oneshot::Sender<ElicitationAnswer>>;

/// The connection to one lite server.
#[derive(Debug)]
pub struct LiteWire {
    binding: Binding,
    /// Headers of every request.
    headers: HeaderMap,
    /// Names of agents' headers that are forwarded.
    forwarded_headers: Box<[HeaderName]>,
    elicitations: Mutex<PendingElicitations>,
    /// The number of calls that wait for promises.
    waiting_promises: AtomicUsize,
    /// The last list, for detecting changes: a lite server has no notification for them.
    last_list: Mutex<Option<Arc<str>>>,
}

/// The protocol that carries the messages.
#[derive(Debug)]
enum Binding {
    Http(LiteHttp),
    Grpc(Box<LiteGrpc>),
}

/// A call of a lite tool.
#[derive(Clone, Copy, Debug)]
struct LiteCall<'a> {
    name: &'a str,
    /// The arguments, as JSON text of an object.
    arguments: &'a str,
    headers: &'a HeaderMap,
    /// The continuation token of a call that its server has stored.
    continuation: Option<&'a str>,
}

impl LiteCall<'_> {
    /// Params of `tools/call`, with the minimal members of the document.
    fn render_params(&self) -> String {
        let Self {
            name, arguments, ..
        } = self;
        let meta = self.render_meta().map(|meta| format!(r#","_meta":{meta}"#));
        format!(
            r#"{{"name":{},"arguments":{arguments}{}}}"#,
            quote(name),
            meta.unwrap_or_default()
        )
    }

    /// `_meta` of a continued call.
    fn render_meta(&self) -> Option<String> {
        let continuation = quote(self.continuation?);
        Some(format!(r#"{{"continuation":{continuation}}}"#))
    }
}

impl Link {
    /// True while a call of a lite server waits for a promise.
    fn has_promises(&self) -> bool {
        match &self.wire {
            Wire::Lite(lite) => lite.waiting_promises.load(Ordering::Relaxed) > 0,
            Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Node(_) => false,
        }
    }
}

impl LiteWire {
    /// Creates a connection over HTTP to endpoints below `url`.
    ///
    /// # Errors
    /// Why the URL is invalid, as text.
    pub(crate) fn with_http(
        client: ServerClient,
        url: &str,
        headers: HeaderMap,
        forwarded_names: &[String],
    ) -> Result<Arc<Self>, String> {
        let binding = Binding::Http(LiteHttp::new(client, url)?);
        Ok(Self::new(binding, headers, forwarded_names))
    }

    /// Creates a connection over gRPC to this address.
    ///
    /// # Errors
    /// Why the address is invalid, as text.
    pub(crate) fn with_grpc(
        client: &Client,
        url: &str,
        headers: HeaderMap,
        forwarded_names: &[String],
    ) -> Result<Arc<Self>, String> {
        let binding = Binding::Grpc(Box::new(LiteGrpc::new(client, url)?));
        Ok(Self::new(binding, headers, forwarded_names))
    }

    fn new(binding: Binding, headers: HeaderMap, forwarded_names: &[String]) -> Arc<Self> {
        Arc::new(Self {
            binding,
            headers,
            forwarded_headers: forwarded_names
                .iter()
                .filter_map(|name| name.parse().ok())
                .collect(),
            elicitations: Mutex::default(),
            waiting_promises: AtomicUsize::new(0),
            last_list: Mutex::default(),
        })
    }

    /// `lite` or `grpc`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.binding {
            Binding::Http(_) => "lite",
            Binding::Grpc(_) => "grpc",
        }
    }

    /// The reason for parking the server until a person has signed in.
    #[must_use]
    pub(crate) fn park_reason(&self) -> Option<String> {
        match &self.binding {
            Binding::Http(http) => http.park_reason(),
            Binding::Grpc(_) => None,
        }
    }

    /// Carries out a request of the link.
    pub(in crate::link) async fn call(
        self: &Arc<Self>,
        link: &Arc<Link>,
        id: u64,
        frame: &Bytes,
        context: CallContext<'_>,
    ) -> Result<(), Refusal> {
        let Ok(Message::Request { method, params, .. }) = jsonrpc::parse(frame) else {
            return Err(Refusal::Internal("a request that is none".into()));
        };
        let params = params.map_or("{}", RawValue::get);
        let result: Bytes = match &*method {
            "tools/list" => self.list(link).await?.as_bytes().to_vec().into(),
            "ping" => self.check_list(link).await?,
            "tools/call" => Box::pin(self.call_tool(link, id, params, context))
                .await?
                .into(),
            other => return Err(unknown_method_refusal(other)),
        };
        link.settle_call(id, Ok(result));
        Ok(())
    }

    /// The tools, as the result of `tools/list`.
    async fn list(&self, link: &Arc<Link>) -> Result<Arc<str>, Refusal> {
        let body = match &self.binding {
            Binding::Http(http) => http.list(link, &self.headers).await?,
            Binding::Grpc(grpc) => grpc.list(link, &self.headers).await?.into(),
        };
        let body = std::str::from_utf8(&body)
            .map_err(|_| link.invalid_answer_refusal("its list is not UTF-8"))?;
        let list: Arc<str> = listing::to_mcp_list(body)
            .map_err(|why| link.invalid_answer_refusal(&why))?
            .into();
        *self
            .last_list
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(list.clone());
        Ok(list)
    }

    /// Replaces `ping`: a lite server has none, and cannot notify about list changes, so reading its list checks
    /// both.
    async fn check_list(&self, link: &Arc<Link>) -> Result<Bytes, Refusal> {
        let before = self.last_list();
        let now = self.list(link).await?;
        if before.is_some_and(|before| before != now) {
            link.emit(LinkEvent::ListChanged(List::Tools));
        }
        Ok(Bytes::from_static(b"{}"))
    }

    fn last_list(&self) -> Option<Arc<str>> {
        let listed = self
            .last_list
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listed.clone()
    }

    async fn call_tool(
        self: &Arc<Self>,
        link: &Arc<Link>,
        id: u64,
        params: &str,
        context: CallContext<'_>,
    ) -> Result<String, Refusal> {
        let name = member(params, "name").and_then(unquote);
        let name = name.ok_or_else(|| Refusal::BadParams("`name` is no text".into()))?;
        if name == REDEEM {
            // Only the kernel may redeem: a promise belongs to one call.
            return Err(Refusal::UnknownTool(name.into()));
        }
        let mut headers = self.headers.clone();
        context.add_headers(&mut headers, &self.forwarded_headers);
        let mut arguments = member(params, "arguments").unwrap_or("{}").to_owned();
        let mut continuation = None;
        for _ in 0..MAX_ROUNDS {
            let request = LiteCall {
                name: &name,
                arguments: &arguments,
                headers: &headers,
                continuation: continuation.as_deref(),
            };
            let answered = self.run_call(link, id, request).await;
            let (result, meaning) = answered?;
            let need = match meaning {
                LiteResult::Final { failed } => return Ok(content::to_mcp(&result, failed)),
                LiteResult::NeedsInput(need) => need,
                // Promises were redeemed before.
                LiteResult::Promise(_) => {
                    return Err(link.invalid_answer_refusal("it keeps returning promises"));
                }
            };
            let answer = self.ask(link, id, &need).await;
            let (ElicitationAnswer::Provided(given), Some(schema)) = (&answer, &need.schema) else {
                return Ok(content::text_result(&elicitation::render_unanswered(
                    &need, &answer,
                )));
            };
            arguments = elicitation::merge_arguments(&arguments, given, schema);
            continuation = need.continuation;
            continue_call(link, id);
            recheck_arguments(&context, &arguments).await?;
        }
        Err(link
            .invalid_answer_refusal(&format!("it asked for more {MAX_ROUNDS} times in one call")))
    }

    /// Runs a call, including its promises; returns the result and its meaning.
    async fn run_call(
        self: &Arc<Self>,
        link: &Arc<Link>,
        id: u64,
        request: LiteCall<'_>,
    ) -> Result<(String, LiteResult), Refusal> {
        let mut partials = PartialReporter::for_call(link, id);
        let result = self.binding.call(link, request, &mut partials).await?;
        let meaning =
            LiteResult::parse(&result).map_err(|why| link.invalid_answer_refusal(&why))?;
        let LiteResult::Promise(token) = meaning else {
            return Ok((result, meaning));
        };
        let in_flight = link.pending.inspect(id, |call| call.call.clone());
        if let Some(rounds) = in_flight.as_deref().and_then(InFlightCall::rounds) {
            CallRounds::promote_now(rounds);
        }
        let mut promise = PendingPromise::new(self, link, request.headers, token);
        // A server that gave a promise has accepted the call.
        continue_call(link, id);
        let outcome = self.redeem_promise(link, &mut promise, &mut partials).await;
        if matches!(outcome, Ok(_) | Err(Refusal::Peer(_))) {
            promise.mark_settled();
        }
        outcome
    }

    /// Redeems a promise repeatedly until the result is there or the call ends.
    async fn redeem_promise(
        &self,
        link: &Arc<Link>,
        promise: &mut PendingPromise,
        partials: &mut PartialReporter<'_>,
    ) -> Result<(String, LiteResult), Refusal> {
        let mut back_off = RedeemBackoff::default();
        loop {
            tokio::time::sleep(back_off.next_delay()).await;
            let arguments = promise.redeem_arguments();
            let request = LiteCall {
                name: REDEEM,
                arguments: &arguments,
                headers: promise.headers(),
                continuation: None,
            };
            let result = match self.binding.call(link, request, partials).await {
                Ok(result) => result,
                Err(Refusal::ServerLost { .. } | Refusal::NotReady { .. })
                    if back_off.record_miss() =>
                {
                    continue;
                }
                Err(refusal) => return Err(promise_refusal(refusal)),
            };
            back_off.reset();
            partials.record_heartbeat();
            match LiteResult::parse(&result).map_err(|why| link.invalid_answer_refusal(&why))? {
                LiteResult::Promise(token) => promise.set_token(token),
                meaning @ (LiteResult::Final { .. } | LiteResult::NeedsInput(_)) => {
                    return Ok((result, meaning));
                }
            }
        }
    }
}

/// Marks the call as executed, because the server has answered a part of it.
fn continue_call(link: &Link, id: u64) {
    link.pending.inspect(id, |call| {
        call.call.end_request(CallOutcome::Done);
        // A cancelled call is dropped where it is awaited.
        let _ = call.call.dispatch();
    });
}

impl Binding {
    async fn call(
        &self,
        link: &Arc<Link>,
        request: LiteCall<'_>,
        partials: &mut PartialReporter<'_>,
    ) -> Result<String, Refusal> {
        match self {
            Self::Http(http) => Box::pin(http.call(link, request, partials)).await,
            Self::Grpc(grpc) => Box::pin(grpc.call(link, request, partials)).await,
        }
    }
}

/// Checks a call that is repeated with more arguments like a new one.
async fn recheck_arguments(context: &CallContext<'_>, arguments: &str) -> Result<(), Refusal> {
    let Some(check) = context.final_check else {
        return Ok(());
    };
    let arguments = RawValue::from_string(arguments.to_owned())
        .map_err(|why| Refusal::Internal(format!("arguments that are no JSON: {why}")))?;
    check.recheck_arguments(&arguments).await?;
    check.recheck()
}

/// Adds to the server's error that it concerns a promise.
fn promise_refusal(refusal: Refusal) -> Refusal {
    let Refusal::Peer(error) = &refusal else {
        return refusal;
    };
    let Some(message) = member(error.get(), "message") else {
        return refusal;
    };
    let text: String = serde_json::from_str(message).unwrap_or_default();
    let mut splice = Splice::new(error.get());
    let text = format!("the promise that it gave for this call is not kept: {text}");
    splice.replace(message, quote(&text));
    match RawValue::from_string(splice.finish().into_owned()) {
        Ok(error) => Refusal::Peer(error),
        Err(_) => refusal,
    }
}

/// The refusal of methods that MCP-lite does not have.
fn unknown_method_refusal(method: &str) -> Refusal {
    let error = ErrorObject::new(
        METHOD_NOT_FOUND,
        format!("Method not found: {method}: a server of MCP-lite has tools only"),
    );
    match serde_json::value::to_raw_value(&error) {
        Ok(error) => Refusal::Peer(error),
        Err(_) => Refusal::Internal(format!("{method} ({INTERNAL_ERROR})")),
    }
}
