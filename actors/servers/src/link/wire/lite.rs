//! A server of MCP-lite: nothing is said to it but "which tools" and "call this one". To the link it is a legacy
//! server that has tools and may ask; what MCP knows and MCP-lite does not is made here.

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

/// What is spoken with a lite server, and in which version of its document.
pub(crate) const VERSION_LABEL: &str = "MCP-lite 0.042";

/// The questions that wait for their callers; each call has at most one.
type PendingElicitations = HashMap<Box<str>, oneshot::Sender<ElicitationAnswer>>;

/// The way to one lite server.
#[derive(Debug)]
pub struct LiteWire {
    binding: Binding,
    /// Of every request.
    headers: HeaderMap,
    /// Headers of agents' requests that it is handed.
    forwarded_headers: Box<[HeaderName]>,
    elicitations: Mutex<PendingElicitations>,
    /// How many calls wait for promises.
    waiting_promises: AtomicUsize,
    /// The list that was told last: a lite server cannot say that it changed.
    last_list: Mutex<Option<Arc<str>>>,
}

/// What carries the messages.
#[derive(Debug)]
enum Binding {
    Http(LiteHttp),
    Grpc(Box<LiteGrpc>),
}

/// One call.
#[derive(Clone, Copy, Debug)]
struct LiteCall<'a> {
    name: &'a str,
    /// JSON text of an object.
    arguments: &'a str,
    headers: &'a HeaderMap,
    /// Of a call that its server has kept.
    continuation: Option<&'a str>,
}

impl LiteCall<'_> {
    /// Params of `tools/call`: as little as the document shows.
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

    /// `_meta` of a call that goes on.
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
    /// The way to a server over HTTP, whose endpoints lie below `url`.
    ///
    /// # Errors
    /// Why that is no such URL, in words.
    pub(crate) fn with_http(
        client: ServerClient,
        url: &str,
        headers: HeaderMap,
        passes: &[String],
    ) -> Result<Arc<Self>, String> {
        let binding = Binding::Http(LiteHttp::new(client, url)?);
        Ok(Self::new(binding, headers, passes))
    }

    /// The way to a server over gRPC at this address.
    ///
    /// # Errors
    /// Why that is no address, in words.
    pub(crate) fn with_grpc(
        client: &Client,
        url: &str,
        headers: HeaderMap,
        passes: &[String],
    ) -> Result<Arc<Self>, String> {
        let binding = Binding::Grpc(Box::new(LiteGrpc::new(client, url)?));
        Ok(Self::new(binding, headers, passes))
    }

    fn new(binding: Binding, headers: HeaderMap, passes: &[String]) -> Arc<Self> {
        Arc::new(Self {
            binding,
            headers,
            forwarded_headers: passes.iter().filter_map(|name| name.parse().ok()).collect(),
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

    /// Why it takes no calls before a person has signed in.
    #[must_use]
    pub(crate) fn park_reason(&self) -> Option<String> {
        match &self.binding {
            Binding::Http(http) => http.park_reason(),
            Binding::Grpc(_) => None,
        }
    }

    /// Carries one of the kernel's requests out.
    pub(in crate::link) async fn call(
        self: &Arc<Self>,
        link: &Arc<Link>,
        id: u64,
        frame: &Bytes,
        beside: CallContext<'_>,
    ) -> Result<(), Refusal> {
        let Ok(Message::Request { method, params, .. }) = jsonrpc::parse(frame) else {
            return Err(Refusal::Internal("a request that is none".into()));
        };
        let params = params.map_or("{}", RawValue::get);
        let result: Bytes = match &*method {
            "tools/list" => self.list(link).await?.as_bytes().to_vec().into(),
            "ping" => self.check_list(link).await?,
            "tools/call" => Box::pin(self.call_tool(link, id, params, beside))
                .await?
                .into(),
            other => return Err(unknown_method_refusal(other)),
        };
        link.settle_call(id, Ok(result));
        Ok(())
    }

    /// The tools, in the words of `tools/list`.
    async fn list(&self, link: &Arc<Link>) -> Result<Arc<str>, Refusal> {
        let said = match &self.binding {
            Binding::Http(http) => http.list(link, &self.headers).await?,
            Binding::Grpc(grpc) => grpc.list(link, &self.headers).await?.into(),
        };
        let said = std::str::from_utf8(&said)
            .map_err(|_| link.invalid_answer_refusal("its list is not UTF-8"))?;
        let list: Arc<str> = listing::to_mcp_list(said)
            .map_err(|why| link.invalid_answer_refusal(&why))?
            .into();
        *self
            .last_list
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(list.clone());
        Ok(list)
    }

    /// A lite server has no `ping`, and cannot say that its list changed: its list is read instead, which shows
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
        beside: CallContext<'_>,
    ) -> Result<String, Refusal> {
        let name = member(params, "name").and_then(unquote);
        let name = name.ok_or_else(|| Refusal::BadParams("`name` is no text".into()))?;
        if name == REDEEM {
            // It is the kernel's own to call: a promise is one call's, not its finder's.
            return Err(Refusal::UnknownTool(name.into()));
        }
        let mut headers = self.headers.clone();
        beside.add_headers(&mut headers, &self.forwarded_headers);
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
            let (result, said) = answered?;
            let need = match said {
                LiteResult::Final { failed } => return Ok(content::to_mcp(&result, failed)),
                LiteResult::NeedsInput(need) => need,
                // It was waited for.
                LiteResult::Promise(_) => {
                    return Err(link.invalid_answer_refusal("it promises without end"));
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
            recheck_arguments(&beside, &arguments).await?;
        }
        Err(link
            .invalid_answer_refusal(&format!("it asked for more {MAX_ROUNDS} times in one call")))
    }

    /// The result of a call, whether at once or after its promise, and what it says.
    async fn run_call(
        self: &Arc<Self>,
        link: &Arc<Link>,
        id: u64,
        request: LiteCall<'_>,
    ) -> Result<(String, LiteResult), Refusal> {
        let mut partials = PartialReporter::for_call(link, id);
        let result = self.binding.call(link, request, &mut partials).await?;
        let said = LiteResult::parse(&result).map_err(|why| link.invalid_answer_refusal(&why))?;
        let LiteResult::Promise(token) = said else {
            return Ok((result, said));
        };
        let exchange = link.pending.inspect(id, |call| call.call.clone());
        if let Some(rounds) = exchange.as_deref().and_then(InFlightCall::rounds) {
            CallRounds::promote_now(rounds);
        }
        let mut held = PendingPromise::new(self, link, request.headers, token);
        // Who gave a promise has the call.
        continue_call(link, id);
        let outcome = self.redeem_promise(link, &mut held, &mut partials).await;
        if matches!(outcome, Ok(_) | Err(Refusal::Peer(_))) {
            held.mark_settled();
        }
        outcome
    }

    /// Asks for what was promised until it comes, or the call is over.
    async fn redeem_promise(
        &self,
        link: &Arc<Link>,
        held: &mut PendingPromise,
        partials: &mut PartialReporter<'_>,
    ) -> Result<(String, LiteResult), Refusal> {
        let mut back_off = RedeemBackoff::default();
        loop {
            tokio::time::sleep(back_off.next_delay()).await;
            let arguments = held.redeem_arguments();
            let request = LiteCall {
                name: REDEEM,
                arguments: &arguments,
                headers: held.headers(),
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
                LiteResult::Promise(token) => held.set_token(token),
                said @ (LiteResult::Final { .. } | LiteResult::NeedsInput(_)) => {
                    return Ok((result, said));
                }
            }
        }
    }
}

/// The server has answered a part of the call: whatever keeps the next one from it, the call was made.
fn continue_call(link: &Link, id: u64) {
    link.pending.inspect(id, |call| {
        call.call.end_request(CallOutcome::Done);
        // One that was taken back is dropped where it is awaited.
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

/// A call that is made again with more arguments is checked like a new one.
async fn recheck_arguments(beside: &CallContext<'_>, arguments: &str) -> Result<(), Refusal> {
    let Some(check) = beside.final_check else {
        return Ok(());
    };
    let arguments = RawValue::from_string(arguments.to_owned())
        .map_err(|why| Refusal::Internal(format!("arguments that are no JSON: {why}")))?;
    check.recheck_arguments(&arguments).await?;
    check.recheck()
}

/// The server's error at a redemption says that it is about the promise.
fn promise_refusal(refusal: Refusal) -> Refusal {
    let Refusal::Peer(error) = &refusal else {
        return refusal;
    };
    let Some(said) = member(error.get(), "message") else {
        return refusal;
    };
    let words: String = serde_json::from_str(said).unwrap_or_default();
    let mut splice = Splice::new(error.get());
    let words = format!("the promise that it gave for this call is not kept: {words}");
    splice.replace(said, quote(&words));
    match RawValue::from_string(splice.finish().into_owned()) {
        Ok(error) => Refusal::Peer(error),
        Err(_) => refusal,
    }
}

/// MCP-lite has tools, and nothing else.
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
