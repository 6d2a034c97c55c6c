//! Handles stateless requests of 2026-07-28, which carry in `_meta` what a session stores of its client.
//!
//! A call with a callback of a legacy server is suspended: the client gets `input_required` with a sealed
//! `requestState`, and returns the answers with its next request.

use std::borrow::Cow;
use std::sync::Arc;

use bytestring::ByteString;
use mgp_engine::callers::request_state::{RequestDigest, RequestState, RequestStateKind};
use mgp_engine::callers::seal::{Purpose, SealKey};
use mgp_engine::servers::log_levels::LogLevel;
use mgp_engine::tools::catalog::CatalogView;
use mgp_json::{can_contain_string, member, quote};
use mgp_protocol::dialect::{Dialect, Version};
use mgp_protocol::ids::{AgentId, ConnectionId};
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp::extensions::relayed_extensions_object;
use mgp_protocol::mcp::meta::{CLIENT_CAPABILITIES, LOG_LEVEL, PROTOCOL_VERSION};
use mgp_protocol::mcp::request_headers::{self, RequestHeaders};
use mgp_protocol::mcp::{self, ClientCapabilities};
use mgp_protocol::mgp::negotiation::Negotiated;
use mgp_protocol::refusal::{CallOutcome, Refusal, UnansweredCall};
use serde::Deserialize;
use serde_json::value::RawValue;

use mgp_callers::agent::client_activity::ClientActivity;
use mgp_callers::request::background_call::BackgroundCall;
use mgp_callers::request::suspended_calls::SuspendedCalls;
use mgp_callers::request::{Caller, CallerSession, GuardedAnswer, Outcome, Request, Routes};
use mgp_callers::tasks::{LongCall, NextRound, Tasks};
use mgp_callers::{
    AgentTap, CallRound, CallRounds, InFlightCall, Outlet, ReplyPath, agent, negotiation,
};
use mgp_engine::policy::access::ClaimedGroups;
use mgp_runtime::time::unix_ms;
use mgp_runtime::trace::Trace;

/// Handles stateless requests.
#[derive(Debug)]
pub struct Stateless {
    /// The routing table of all methods.
    pub routes: Arc<dyn Routes>,
    /// The suspended calls.
    pub suspended: Arc<SuspendedCalls>,
    /// The kernel's tasks.
    pub tasks: Arc<Tasks>,
    /// Seals `requestState`.
    pub seal: SealKey,
    /// Distinguishes this run of the kernel from earlier ones.
    pub boot: u64,
}

/// A request as received.
#[derive(Debug)]
pub(crate) struct StatelessRequest {
    /// The agent, as authenticated by the endpoint.
    pub(crate) agent: AgentId,
    /// The groups that its token gives it.
    pub(crate) groups: ClaimedGroups,
    /// True if received over the operator's socket.
    pub(crate) operator: bool,
    /// Whether it is a request of a stateless client, or of another node for a client with a session there.
    pub(crate) session: CallerSession,
    /// Where the client addresses this endpoint over HTTP, for icons in lists.
    pub(crate) address: Option<Arc<str>>,
    /// The servers visible to it.
    pub(crate) view: CatalogView,
    /// The client's request id.
    pub(crate) id: RequestId,
    /// The method.
    pub(crate) method: ByteString,
    /// The params, as JSON text.
    pub(crate) params: Option<ByteString>,
    /// The trace.
    pub(crate) trace: Trace,
    /// Where messages of the request are sent.
    pub(crate) outlet: Outlet,
}

/// True for a request in the stateless form, valid or not: it gets stateless answers.
#[must_use]
pub(crate) fn is_stateless(params: Option<&str>) -> bool {
    params.is_some_and(|params| {
        can_contain_string(params.as_bytes(), "io.modelcontextprotocol")
            && serde_json::from_str::<mcp::WithMeta<'_>>(params)
                .ok()
                .and_then(|with| mcp::Meta::parse(with.meta).ok())
                .is_some_and(|meta| meta.is_stateless())
    })
}

impl Stateless {
    /// Starts handling a request.
    ///
    /// # Errors
    /// The problem of its `requestState`.
    pub(crate) fn open(
        self: &Arc<Self>,
        arrival: StatelessRequest,
        stated: RequestMeta,
        activity: Arc<ClientActivity>,
    ) -> Result<RunningCall, Refusal> {
        let StatelessRequest { agent, view, .. } = &arrival;
        let connection = agent::shared_connection(agent, view);
        let Some(tap) = AgentTap::for_agent(agent, arrival.operator, connection) else {
            return self.begin_call(connection, arrival, stated, activity, None);
        };
        tap.record_request(&arrival.id, &arrival.method, arrival.params.as_deref());
        let (id, dialect) = (arrival.id.clone(), stated.dialect());
        let tapped = Some((tap.clone(), id.clone()));
        let begun = self.begin_call(connection, arrival, stated, activity, tapped);
        begun.inspect_err(|no| tap.record_sent(&no.render_response(id.as_json(), dialect).into()))
    }

    fn begin_call(
        self: &Arc<Self>,
        connection: ConnectionId,
        arrival: StatelessRequest,
        stated: RequestMeta,
        activity: Arc<ClientActivity>,
        tapped: Option<(AgentTap, RequestId)>,
    ) -> Result<RunningCall, Refusal> {
        let caller = Arc::new(Caller {
            connection,
            agent: arrival.agent,
            groups: arrival.groups,
            operator: arrival.operator,
            view: arrival.view,
            version: Version::STATELESS,
            capabilities: stated.capabilities,
            extensions: stated.extensions,
            mgp: stated.mgp,
            mcpl: None,
            session: arrival.session,
            address: arrival.address,
            activity,
        });
        let round = CallRound {
            id: arrival.id,
            outlet: Some(arrival.outlet),
            token: stated.token,
            capabilities: stated.capabilities,
            log_level: stated.level,
            answered_at: None,
        };
        let may_ask = can_need_input(&arrival.method);
        let state = stated.state.filter(|state| self.seal.is_ours(state));
        if may_ask && let Some(state) = state {
            let params = arrival.params.as_deref().unwrap_or("{}");
            let parsed = (params, state.as_str());
            let begun = self.resume_call(&caller, &arrival.method, parsed, round, arrival.trace);
            return begun.map(|mut running| {
                running.tap = tapped;
                running
            });
        }
        let exchange =
            InFlightCall::new(ReplyPath::Rounds(Box::new(CallRounds::new(round, may_ask))));
        if let Some((tap, _)) = &tapped {
            exchange.set_tap(tap.clone());
        }
        let request = Request {
            caller: caller.clone(),
            call: exchange.clone(),
            method: arrival.method.clone(),
            params: arrival.params.clone(),
            trace: arrival.trace.clone(),
        };
        Ok(RunningCall {
            stateless: self.clone(),
            work: CallWork::Fresh(GuardedAnswer::new(|| self.routes.answer(request))),
            caller,
            call: exchange,
            method: arrival.method,
            params: arrival.params,
            trace: arrival.trace,
            finished: false,
            tap: tapped,
        })
    }

    /// Resumes a suspended call with the client's answers.
    fn resume_call(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        method: &ByteString,
        (params, state): (&str, &str),
        round: CallRound,
        trace: Trace,
    ) -> Result<RunningCall, Refusal> {
        let expired = |refusal: &dyn std::fmt::Display| Refusal::Expired(refusal.to_string());
        let state: RequestState = self
            .seal
            .open(Purpose::RequestState, &caller.principal(), state)
            .map_err(|e| expired(&e))?;
        state
            .check(self.boot, unix_ms(), method, Some(params))
            .map_err(|e| expired(&e))?;
        let suspended = self
            .suspended
            .take(state.call)
            .ok_or_else(|| expired(&"its call was answered, or waited too long for its client"))?;
        let exchange = suspended.background.call.clone();
        // Rights revoked during the suspension end the call before the answers reach it.
        if let Err(refusal) = self.routes.recheck(caller, method, params) {
            exchange.cancel();
            return Err(refusal);
        }
        let rounds = exchange.rounds().expect("only such calls are suspended");
        // Answers first: after them, an unanswered callback may go to another call.
        rounds.answer(member(params, "inputResponses").unwrap_or("{}"));
        rounds.continue_with(round);
        Ok(RunningCall {
            stateless: self.clone(),
            work: CallWork::Resumed(state.call, suspended.background),
            caller: suspended.caller,
            call: exchange,
            method: method.clone(),
            params: suspended.params,
            trace,
            finished: false,
            tap: None,
        })
    }
}

/// An in-flight request. Dropping it cancels it: its client has disconnected.
#[derive(Debug)]
pub(crate) struct RunningCall {
    stateless: Arc<Stateless>,
    caller: Arc<Caller>,
    call: Arc<InFlightCall>,
    method: ByteString,
    /// The params of the first request.
    params: Option<ByteString>,
    trace: Trace,
    work: CallWork,
    finished: bool,
    /// The operator's tap, and the id of this request; `None` while no operator watches.
    tap: Option<(AgentTap, RequestId)>,
}

/// The first event of an in-flight request.
enum FirstOutcome {
    Answered(Outcome),
    InputRequired,
    Long(LongCall),
}

enum CallWork {
    Fresh(GuardedAnswer),
    Resumed(u64, Arc<BackgroundCall>),
    Done,
}

impl std::fmt::Debug for CallWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fresh(_) => "Fresh",
            Self::Resumed(..) => "Resumed",
            Self::Done => "Nothing",
        })
    }
}

impl RunningCall {
    /// The state of the call.
    #[must_use]
    pub(crate) fn call(&self) -> &Arc<InFlightCall> {
        &self.call
    }

    /// The caller.
    #[must_use]
    pub(crate) fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// The answer to this request: that of the call, `input_required`, or the task that the call became.
    #[must_use]
    pub(crate) fn into_answer(mut self) -> GuardedAnswer {
        GuardedAnswer::new(|| {
            Box::pin(async move {
                let outcome = self.run().await;
                if let Some((tap, id)) = &self.tap {
                    tap.record_answer_sent(id, &outcome, self.caller.dialect());
                }
                outcome
            })
        })
    }

    async fn run(&mut self) -> Outcome {
        let exchange = self.call.clone();
        let rounds = exchange.rounds().expect("made with them");
        let next = match self.next_outcome(rounds, true).await {
            FirstOutcome::Long(call) => match self.become_task(&call).await {
                Some(announced) => FirstOutcome::Answered(announced),
                None => self.next_outcome(rounds, false).await,
            },
            next @ (FirstOutcome::Answered(_) | FirstOutcome::InputRequired) => next,
        };
        self.finished = true;
        rounds.suspend(matches!(
            next,
            FirstOutcome::InputRequired | FirstOutcome::Long(_)
        ));
        match next {
            FirstOutcome::Answered(Err(Refusal::Cancelled))
                if let Some(missing) = exchange.missing_capabilities() =>
            {
                Err(self.to_interrupted(Refusal::MissingCapability {
                    required: missing.to_owned(),
                }))
            }
            FirstOutcome::Answered(outcome) => outcome,
            FirstOutcome::InputRequired | FirstOutcome::Long(_) => self.suspend(rounds),
        }
    }

    /// The refusal of a call that the kernel ends during a callback of its server: the call was made by
    /// then.
    fn to_interrupted(&self, refusal: Refusal) -> Refusal {
        match &*self.method {
            "tools/call" => Refusal::Unanswered(Box::new(UnansweredCall {
                refusal,
                outcome: CallOutcome::Unknown,
                call_id: self.trace.id.as_str().into(),
            })),
            _ => refusal,
        }
    }

    /// Waits for the first event.
    async fn next_outcome(&mut self, rounds: &CallRounds, may_become_task: bool) -> FirstOutcome {
        let answered = async {
            match &mut self.work {
                CallWork::Fresh(answering) => answering.await,
                CallWork::Resumed(_, background) => background.wait_for_outcome().await,
                CallWork::Done => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            outcome = answered => FirstOutcome::Answered(outcome),
            () = rounds.wait_for_callbacks() => FirstOutcome::InputRequired,
            call = rounds.wait_for_promotion(), if may_become_task => FirstOutcome::Long(call.clone()),
        }
    }

    /// Turns the call into a task; `None` if that is not possible.
    async fn become_task(&mut self, call: &LongCall) -> Option<Outcome> {
        let (number, background) = self.detach()?;
        self.work = CallWork::Resumed(number, background.clone());
        let stateless = self.stateless.clone();
        let round = NextRound {
            routes: stateless.routes.clone(),
            caller: self.caller.clone(),
            method: self.method.clone(),
            params: self.params.clone(),
            trace: self.trace.clone(),
        };
        let announced = stateless.tasks.create(round, call, background).await?;
        // Cancelled meanwhile: there is no reader for an answer.
        if self.call.is_cancelled() {
            Some(Err(Refusal::Cancelled))
        } else {
            Some(Ok(announced))
        }
    }

    /// Lets the call continue in the background.
    fn detach(&mut self) -> Option<(u64, Arc<BackgroundCall>)> {
        match std::mem::replace(&mut self.work, CallWork::Done) {
            CallWork::Fresh(answering) => Some((
                self.stateless.suspended.next_number(),
                BackgroundCall::start(self.call.clone(), answering),
            )),
            CallWork::Resumed(call, background) => Some((call, background)),
            CallWork::Done => None,
        }
    }

    fn suspend(&mut self, rounds: &CallRounds) -> Outcome {
        let Some((call, background)) = self.detach() else {
            return Err(Refusal::Cancelled);
        };
        let Stateless {
            suspended,
            seal,
            boot,
            ..
        } = &*self.stateless;
        let patience = u64::try_from(suspended.return_timeout().as_millis()).unwrap_or(u64::MAX);
        let state = RequestState {
            boot: *boot,
            call,
            kind: RequestStateKind::Suspended,
            method: self.method.to_string(),
            digest: RequestDigest::new(&self.method, self.params.as_deref()),
            expires_ms: unix_ms().saturating_add(patience),
        };
        let state = seal.seal(Purpose::RequestState, &self.caller.principal(), &state);
        let callbacks = rounds.input_requests();
        if let Err(full) =
            suspended.suspend(call, background, self.caller.clone(), self.params.clone())
        {
            self.call.cancel();
            return Err(self.to_interrupted(full));
        }
        Ok(format!(
            r#"{{"resultType":"input_required","inputRequests":{callbacks},"requestState":{}}}"#,
            quote(&state)
        )
        .into())
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        if !self.finished {
            self.call.cancel();
        }
    }
}

/// The methods that may be answered with `input_required`.
fn can_need_input(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

/// A request's description of its client (MCP 2026-07-28, `_meta`).
#[derive(Debug, Clone)]
pub(crate) struct RequestMeta {
    /// The version of the request.
    pub(crate) version: String,
    /// The client's capabilities.
    pub(crate) capabilities: ClientCapabilities,
    /// The client's extensions, as [`Caller::extensions`].
    pub(crate) extensions: Option<Arc<str>>,
    /// The MGP extensions negotiated with the client.
    pub(crate) mgp: Negotiated,
    /// The lowest log level it wants.
    pub(crate) level: Option<LogLevel>,
    /// The progress token, as JSON text.
    pub(crate) token: Option<Box<str>>,
    /// The `requestState`, of this kernel or of a server.
    pub(crate) state: Option<String>,
    /// The `clientInfo`, as JSON text.
    pub(crate) client: Option<Box<str>>,
}

/// The members of params that the kernel reads, in one pass.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    request_state: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default)]
    task_id: Option<&'a RawValue>,
}

/// Parses a request's description of its client, and what its headers must repeat. The params are of a message that
/// was parsed.
///
/// # Errors
/// [`Refusal::BadMeta`] names what is missing or wrong.
pub(crate) fn parse_request_meta<'a>(
    method: &'a str,
    params: Option<&'a str>,
) -> Result<(RequestMeta, RequestHeaders<'a>), Refusal> {
    let parsed: Params<'_> = mcp::parse_params(params)?;
    let meta = parsed.meta.ok_or_else(|| missing_field("_meta"))?;
    if !meta.get().starts_with('{') {
        return Err(Refusal::BadMeta("`_meta` must be an object".into()));
    }
    let meta: mcp::Meta<'_> = serde_json::from_str(meta.get())
        .map_err(|error| Refusal::BadMeta(format!("`_meta`: {error}")))?;
    let version = meta
        .protocol_version
        .ok_or_else(|| missing_field(PROTOCOL_VERSION))?;
    let version = serde_json::from_str(version.get())
        .map_err(|_| Refusal::BadMeta(format!("`{PROTOCOL_VERSION}` must be a string")))?;
    let declared = meta
        .client_capabilities
        .ok_or_else(|| missing_field(CLIENT_CAPABILITIES))?;
    if !declared.get().starts_with('{') {
        let message = format!("`{CLIENT_CAPABILITIES}` must be an object");
        return Err(Refusal::BadMeta(message));
    }
    let name = match request_headers::subject(method) {
        Some("name") => parsed.name,
        Some("uri") => parsed.uri,
        Some("taskId") => parsed.task_id,
        Some(_) | None => None,
    };
    let stated = RequestMeta {
        version,
        capabilities: ClientCapabilities::parse(Some(declared)),
        extensions: relayed_extensions_object(declared.get()).map(Into::into),
        mgp: negotiation::negotiate_with_client(Some(declared), Version::STATELESS),
        level: meta.log_level.map(parse_level).transpose()?,
        token: meta.progress_token.map(|token| token.get().into()),
        state: json_text(parsed.request_state),
        client: meta.client_info.map(|client| client.get().into()),
    };
    let name = json_text(name).map(Cow::Owned);
    Ok((stated, RequestHeaders { method, name }))
}

/// The content of a JSON string.
fn json_text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

impl RequestMeta {
    /// The dialect of answers to the request.
    #[must_use]
    pub(crate) fn dialect(&self) -> Dialect {
        Dialect {
            version: Version::STATELESS,
            mgp: self.mgp.has_error_codes(),
        }
    }

    /// Only requests of the stateless version can be stateless; the others begin with `initialize`.
    ///
    /// # Errors
    /// [`Refusal::UnsupportedVersion`].
    pub(crate) fn check_version(&self) -> Result<(), Refusal> {
        if self.version == Version::STATELESS.as_str() {
            Ok(())
        } else {
            Err(Refusal::UnsupportedVersion {
                requested: self.version.clone(),
            })
        }
    }
}

fn missing_field(what: &str) -> Refusal {
    Refusal::BadMeta(format!("`{what}` is missing"))
}

fn parse_level(raw: &RawValue) -> Result<LogLevel, Refusal> {
    let text: String = serde_json::from_str(raw.get()).unwrap_or_default();
    text.parse().map_err(|_| {
        Refusal::BadMeta(format!(
            "`{LOG_LEVEL}` must be one of debug, info, notice, warning, error, critical, alert, emergency, not {}",
            raw.get()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PHP's `json_encode` writes `/` as `\/`.
    #[test]
    fn stateless_request_is_detected_despite_escaped_keys() {
        for key in [
            "io.modelcontextprotocol/protocolVersion",
            r"io.modelcontextprotocol\/protocolVersion",
            r"io.modelcontextprotocol\u002fprotocolVersion",
            r"\u0069o.modelcontextprotocol\u002FprotocolVersion",
        ] {
            let params = format!(r#"{{"_meta":{{"{key}":"2026-07-28"}}}}"#);
            assert!(is_stateless(Some(&params)), "{params}");
        }
        let other = r#"{"name":"io.modelcontextprotocol\/protocolVersion","_meta":{}}"#;
        assert!(!is_stateless(Some(other)));
    }
}
