//! A server of MCP-lite: nothing is said to it but "which tools" and "call this one". To the link it is a legacy
//! server that has tools and may ask; what MCP knows and MCP-lite does not is made here.

mod answer;
mod content;
mod grpc;
mod http;
mod listing;
mod partials;
mod promise;
mod question;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::http::header::{HeaderMap, HeaderName};
use bytes::Bytes;
use mgp_callers::exchange::Exchange;
use mgp_callers::exchange::rounds::CallRounds;
use mgp_callers::request::input_required::MAX_ROUNDS;
use mgp_engine::calls::outcome::after_dispatch;
use mgp_protocol::jsonrpc::{self, ErrorObject, INTERNAL_ERROR, METHOD_NOT_FOUND, Message};
use mgp_protocol::lite::REDEEM;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{Splice, member, quoted};
use mgp_transports::http::client::Client;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use self::answer::ForeignResult;
use self::grpc::LiteGrpc;
use self::http::LiteHttp;
use self::partials::LitePartials;
use self::promise::{BackOff, HeldPromise};
use self::question::CallersAnswer;
use crate::link::{Alongside, Link, LinkEvent, List, Wire};
use crate::login::ServerClient;

/// What is spoken with a lite server, and in which version of its document.
pub const SPOKEN: &str = "MCP-lite 0.042";

/// The questions that wait for their callers; each call has at most one.
type LiteQuestions = HashMap<Box<str>, oneshot::Sender<CallersAnswer>>;

/// The way to one lite server.
#[derive(Debug)]
pub struct LiteWire {
    binding: Binding,
    /// Of every request.
    headers: HeaderMap,
    /// Headers of agents' requests that it is handed.
    passes: Box<[HeaderName]>,
    questions: Mutex<LiteQuestions>,
    /// How many calls wait for promises.
    promises: AtomicUsize,
    /// The list that was told last: a lite server cannot say that it changed.
    listed: Mutex<Option<Arc<str>>>,
}

/// What carries the messages.
#[derive(Debug)]
enum Binding {
    Http(LiteHttp),
    Grpc(LiteGrpc),
}

/// One call.
#[derive(Clone, Copy, Debug)]
struct ForeignCall<'a> {
    name: &'a str,
    /// JSON text of an object.
    arguments: &'a str,
    headers: &'a HeaderMap,
    /// Of a call that its server has kept.
    continuation: Option<&'a str>,
}

impl ForeignCall<'_> {
    /// Params of `tools/call`: as little as the document shows.
    fn params(&self) -> String {
        let Self {
            name, arguments, ..
        } = self;
        let meta = self.meta().map(|meta| format!(r#","_meta":{meta}"#));
        format!(
            r#"{{"name":{},"arguments":{arguments}{}}}"#,
            quoted(name),
            meta.unwrap_or_default()
        )
    }

    /// `_meta` of a call that goes on.
    fn meta(&self) -> Option<String> {
        let continuation = quoted(self.continuation?);
        Some(format!(r#"{{"continuation":{continuation}}}"#))
    }
}

impl Link {
    /// True while a call of a lite server waits for a promise.
    fn holds_promises(&self) -> bool {
        match &self.wire {
            Wire::Lite(lite) => lite.promises.load(Ordering::Relaxed) > 0,
            Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Node(_) => false,
        }
    }
}

impl LiteWire {
    /// The way to a server over HTTP, whose endpoints lie below `url`.
    ///
    /// # Errors
    /// Why that is no such URL, in words.
    pub fn over_http(
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
    pub fn over_grpc(
        client: &Client,
        url: &str,
        headers: HeaderMap,
        passes: &[String],
    ) -> Result<Arc<Self>, String> {
        let binding = Binding::Grpc(LiteGrpc::new(client, url)?);
        Ok(Self::new(binding, headers, passes))
    }

    fn new(binding: Binding, headers: HeaderMap, passes: &[String]) -> Arc<Self> {
        Arc::new(Self {
            binding,
            headers,
            passes: passes.iter().filter_map(|name| name.parse().ok()).collect(),
            questions: Mutex::default(),
            promises: AtomicUsize::new(0),
            listed: Mutex::default(),
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
    pub fn parked(&self) -> Option<String> {
        match &self.binding {
            Binding::Http(http) => http.parked(),
            Binding::Grpc(_) => None,
        }
    }

    /// Carries one of the kernel's requests out.
    pub(in crate::link) async fn call(
        self: &Arc<Self>,
        link: &Arc<Link>,
        id: u64,
        frame: &Bytes,
        beside: Alongside<'_>,
    ) -> Result<(), Refusal> {
        let Ok(Message::Request { method, params, .. }) = jsonrpc::parse(frame) else {
            return Err(Refusal::Broken("a request that is none".into()));
        };
        let params = params.map_or("{}", RawValue::get);
        let result: Bytes = match &*method {
            "tools/list" => self.list(link).await?.as_bytes().to_vec().into(),
            "ping" => self.checked(link).await?,
            "tools/call" => Box::pin(self.call_tool(link, id, params, beside))
                .await?
                .into(),
            other => return Err(unknown(other)),
        };
        link.settle(id, Ok(result));
        Ok(())
    }

    /// The tools, in the words of `tools/list`.
    async fn list(&self, link: &Arc<Link>) -> Result<Arc<str>, Refusal> {
        let said = match &self.binding {
            Binding::Http(http) => http.list(link, &self.headers).await?,
            Binding::Grpc(grpc) => grpc.list(link, &self.headers).await?.into(),
        };
        let said = std::str::from_utf8(&said).map_err(|_| link.faulty("its list is not UTF-8"))?;
        let list: Arc<str> = listing::tools(said)
            .map_err(|why| link.faulty(&why))?
            .into();
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Some(list.clone());
        Ok(list)
    }

    /// A lite server has no `ping`, and cannot say that its list changed: its list is read instead, which shows
    /// both.
    async fn checked(&self, link: &Arc<Link>) -> Result<Bytes, Refusal> {
        let before = self.listed();
        let now = self.list(link).await?;
        if before.is_some_and(|before| before != now) {
            link.tells(LinkEvent::ListChanged(List::Tools));
        }
        Ok(Bytes::from_static(b"{}"))
    }

    fn listed(&self) -> Option<Arc<str>> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.clone()
    }

    async fn call_tool(
        self: &Arc<Self>,
        link: &Arc<Link>,
        id: u64,
        params: &str,
        beside: Alongside<'_>,
    ) -> Result<String, Refusal> {
        let name =
            member(params, "name").and_then(|name| serde_json::from_str::<String>(name).ok());
        let name = name.ok_or_else(|| Refusal::BadParams("`name` is no text".into()))?;
        if name == REDEEM {
            // It is the kernel's own to call: a promise is one call's, not its finder's.
            return Err(Refusal::UnknownTool(name));
        }
        let mut headers = self.headers.clone();
        beside.add_to(&mut headers, &self.passes);
        let mut arguments = member(params, "arguments").unwrap_or("{}").to_owned();
        let mut continuation = None;
        for round in 0..MAX_ROUNDS {
            let request = ForeignCall {
                name: &name,
                arguments: &arguments,
                headers: &headers,
                continuation: continuation.as_deref(),
            };
            let answered = self.outcome(link, id, request).await;
            let (result, said) = answered.map_err(|refusal| match round {
                0 => refusal,
                _ => after_dispatch(refusal, &link.server),
            })?;
            let need = match said {
                ForeignResult::Final { failed } => return Ok(content::to_mcp(&result, failed)),
                ForeignResult::Needs(need) => need,
                // It was waited for.
                ForeignResult::Promise(_) => return Err(link.faulty("it promises without end")),
            };
            let answer = self.ask(link, id, &need).await;
            let (CallersAnswer::Given(given), Some(schema)) = (&answer, &need.schema) else {
                return Ok(content::told(&question::needed(&need, &answer)));
            };
            arguments = question::merged(&arguments, given, schema);
            continuation = need.continuation;
            let checked = again(&beside, &arguments).await;
            checked.map_err(|refusal| after_dispatch(refusal, &link.server))?;
        }
        Err(link.faulty(&format!("it asked for more {MAX_ROUNDS} times in one call")))
    }

    /// The result of a call, whether at once or after its promise, and what it says.
    async fn outcome(
        self: &Arc<Self>,
        link: &Arc<Link>,
        id: u64,
        request: ForeignCall<'_>,
    ) -> Result<(String, ForeignResult), Refusal> {
        let mut partials = LitePartials::of(link, id);
        let result = self.binding.call(link, request, &mut partials).await?;
        let said = ForeignResult::read(&result).map_err(|why| link.faulty(&why))?;
        let ForeignResult::Promise(token) = said else {
            return Ok((result, said));
        };
        let exchange = link.pending.with(id, |call| call.exchange.clone());
        if let Some(rounds) = exchange.as_deref().and_then(Exchange::rounds) {
            CallRounds::lasts(rounds);
        }
        let mut held = HeldPromise::new(self, link, request.headers, token);
        let outcome = self.redeemed(link, &mut held, &mut partials).await;
        // Who gave a promise has the call.
        let outcome = outcome.map_err(|refusal| after_dispatch(refusal, &link.server));
        if matches!(outcome, Ok(_) | Err(Refusal::Peer(_))) {
            held.settled();
        }
        outcome
    }

    /// Asks for what was promised until it comes, or the call is over.
    async fn redeemed(
        &self,
        link: &Arc<Link>,
        held: &mut HeldPromise,
        partials: &mut LitePartials<'_>,
    ) -> Result<(String, ForeignResult), Refusal> {
        let mut back_off = BackOff::default();
        loop {
            tokio::time::sleep(back_off.wait()).await;
            let arguments = held.arguments();
            let request = ForeignCall {
                name: REDEEM,
                arguments: &arguments,
                headers: held.headers(),
                continuation: None,
            };
            let result = match self.binding.call(link, request, partials).await {
                Ok(result) => result,
                Err(Refusal::Lost { .. } | Refusal::NotReady { .. }) if back_off.missed() => {
                    continue;
                }
                Err(refusal) => return Err(not_kept(refusal)),
            };
            back_off.answered();
            partials.alive();
            match ForeignResult::read(&result).map_err(|why| link.faulty(&why))? {
                ForeignResult::Promise(token) => held.renewed(token),
                said @ (ForeignResult::Final { .. } | ForeignResult::Needs(_)) => {
                    return Ok((result, said));
                }
            }
        }
    }
}

impl Binding {
    async fn call(
        &self,
        link: &Arc<Link>,
        request: ForeignCall<'_>,
        partials: &mut LitePartials<'_>,
    ) -> Result<String, Refusal> {
        match self {
            Self::Http(http) => Box::pin(http.call(link, request, partials)).await,
            Self::Grpc(grpc) => Box::pin(grpc.call(link, request, partials)).await,
        }
    }
}

/// A call that is made again with more arguments is checked like a new one.
async fn again(beside: &Alongside<'_>, arguments: &str) -> Result<(), Refusal> {
    let Some(check) = beside.final_check else {
        return Ok(());
    };
    let arguments = RawValue::from_string(arguments.to_owned())
        .map_err(|why| Refusal::Broken(format!("arguments that are no JSON: {why}")))?;
    check.more(&arguments).await?;
    check.still()
}

/// The server's error at a redemption says that it is about the promise.
fn not_kept(refusal: Refusal) -> Refusal {
    let Refusal::Peer(error) = &refusal else {
        return refusal;
    };
    let Some(said) = member(error.get(), "message") else {
        return refusal;
    };
    let words: String = serde_json::from_str(said).unwrap_or_default();
    let mut splice = Splice::new(error.get());
    let words = format!("the promise that it gave for this call is not kept: {words}");
    splice.replace(said, quoted(&words));
    match RawValue::from_string(splice.finish().into_owned()) {
        Ok(error) => Refusal::Peer(error),
        Err(_) => refusal,
    }
}

/// MCP-lite has tools, and nothing else.
fn unknown(method: &str) -> Refusal {
    let error = ErrorObject::new(
        METHOD_NOT_FOUND,
        format!("Method not found: {method}: a server of MCP-lite has tools only"),
    );
    match serde_json::value::to_raw_value(&error) {
        Ok(error) => Refusal::Peer(error),
        Err(_) => Refusal::Broken(format!("{method} ({INTERNAL_ERROR})")),
    }
}
