//! Requests of 2026-07-28: each stands alone and says of its client what a session would know.
//!
//! A call that meets a question of a legacy server is suspended; its client gets `input_required` with a
//! sealed `requestState`, and comes back with the answers in its next request.

use std::borrow::Cow;
use std::sync::Arc;

use bytestring::ByteString;
use mgp_engine::callers::request_state::{RequestDigest, RequestState, RequestStateKind};
use mgp_engine::callers::seal::{self, Purpose, SealKey};
use mgp_engine::servers::log_levels::LogLevel;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::{Dialect, Era, Version};
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp::meta::{CLIENT_CAPABILITIES, LOG_LEVEL, PROTOCOL_VERSION};
use mgp_protocol::mcp::{self, ClientCapabilities};
use mgp_protocol::mention::may_mention;
use mgp_protocol::mgp::negotiation::Negotiated;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::request_headers::{self, RequestHeaders};
use mgp_protocol::splice::{member, quoted};
use serde::Deserialize;
use serde_json::value::RawValue;

use mgp_callers::agent;
use mgp_callers::agent::activity::ClientActivity;
use mgp_callers::exchange::rounds::{CallRound, CallRounds, Outlet};
use mgp_callers::exchange::{Exchange, ReplyPath};
use mgp_callers::negotiation;
use mgp_callers::request::background_call::BackgroundCall;
use mgp_callers::request::suspended_calls::SuspendedCalls;
use mgp_callers::request::{Caller, CallerSession, GuardedAnswer, Outcome, Request, Routes};
use mgp_callers::tasks::{CallRetry, LongCall, Tasks};
use mgp_runtime::time::unix_ms;
use mgp_runtime::trace::Trace;

/// Answers requests that stand alone.
#[derive(Debug)]
pub struct Stateless {
    /// Who answers what.
    pub routes: Arc<dyn Routes>,
    /// Calls that wait for their clients.
    pub suspended: Arc<SuspendedCalls>,
    /// Calls that became tasks.
    pub tasks: Arc<Tasks>,
    /// Seals what clients bring back.
    pub seal: SealKey,
    /// Tells this life of the kernel from earlier ones.
    pub boot: u64,
}

/// A request as a door takes it.
#[derive(Debug)]
pub struct Arrival {
    /// As the door knows it.
    pub agent: AgentId,
    /// Came in over the owner-only socket.
    pub operator: bool,
    /// What it is shown.
    pub view: CatalogView,
    /// The client's id of it.
    pub id: RequestId,
    /// What is asked.
    pub method: ByteString,
    /// With what, as JSON text.
    pub params: Option<ByteString>,
    /// What ties it to all that it causes.
    pub trace: Trace,
    /// Where messages that belong to it go.
    pub outlet: Outlet,
}

/// True for a request that is written in the modern way, well or badly: it gets modern answers.
#[must_use]
pub fn is_modern(params: Option<&str>) -> bool {
    params.is_some_and(|params| {
        may_mention(params.as_bytes(), "io.modelcontextprotocol")
            && serde_json::from_str::<mcp::WithMeta<'_>>(params)
                .ok()
                .and_then(|with| mcp::Meta::read(with.meta).ok())
                .is_some_and(|meta| meta.is_modern())
    })
}

impl Stateless {
    /// Takes a request: what it asks is under way when this returns.
    ///
    /// # Errors
    /// What is wrong with its `requestState`.
    pub fn open(
        self: &Arc<Self>,
        arrival: Arrival,
        stated: Stated,
        activity: Arc<ClientActivity>,
    ) -> Result<RunningCall, Refusal> {
        let caller = Arc::new(Caller {
            connection: agent::shared_connection(&arrival.agent, &arrival.view),
            agent: arrival.agent,
            operator: arrival.operator,
            view: arrival.view,
            version: Version::MODERN,
            capabilities: stated.capabilities,
            mgp: stated.mgp,
            session: CallerSession::Stateless,
            activity,
        });
        let round = CallRound {
            id: arrival.id,
            outlet: Some(arrival.outlet),
            token: stated.token,
            capabilities: stated.capabilities,
            level: stated.level,
            left: None,
        };
        let may_ask = can_need_input(&arrival.method);
        if may_ask && let Some(state) = stated.state {
            let params = arrival.params.as_deref().unwrap_or("{}");
            return self.come_back(
                &caller,
                &arrival.method,
                params,
                &state,
                round,
                arrival.trace,
            );
        }
        let exchange = Exchange::new(ReplyPath::Rounds(Box::new(CallRounds::new(round, may_ask))));
        let request = Request {
            caller: caller.clone(),
            exchange: exchange.clone(),
            method: arrival.method.clone(),
            params: arrival.params.clone(),
            trace: arrival.trace.clone(),
        };
        Ok(RunningCall {
            stateless: self.clone(),
            work: CallWork::Fresh(GuardedAnswer::new(|| self.routes.answer(request))),
            caller,
            exchange,
            method: arrival.method,
            params: arrival.params,
            trace: arrival.trace,
            over: false,
        })
    }

    /// A client is back with answers for a call that was suspended.
    fn come_back(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        method: &ByteString,
        params: &str,
        state: &str,
        round: CallRound,
        trace: Trace,
    ) -> Result<RunningCall, Refusal> {
        let bad = |why: &dyn std::fmt::Display| Refusal::Expired(why.to_string());
        let state: RequestState = self
            .seal
            .open(Purpose::State, &caller.principal(), state)
            .map_err(|e| bad(&e))?;
        state
            .judge(self.boot, unix_ms(), method, Some(params))
            .map_err(|e| bad(&e))?;
        let suspended = self
            .suspended
            .take(state.call)
            .ok_or_else(|| bad(&"its call was answered, or waited too long for its client"))?;
        let exchange = suspended.background.exchange.clone();
        // What was taken back while the call waited reaches it before its answers do.
        if let Err(refusal) = self.routes.still(caller, method, params) {
            exchange.cancel();
            return Err(refusal);
        }
        let rounds = exchange.rounds().expect("only such calls are parked");
        rounds.follow(round);
        rounds.answer(member(params, "inputResponses").unwrap_or("{}"));
        Ok(RunningCall {
            stateless: self.clone(),
            work: CallWork::Resumed(state.call, suspended.background),
            caller: suspended.caller,
            exchange,
            method: method.clone(),
            params: suspended.params,
            trace,
            over: false,
        })
    }
}

/// A request under way. Dropped before its end, it is taken back: its client has gone.
#[derive(Debug)]
pub struct RunningCall {
    stateless: Arc<Stateless>,
    caller: Arc<Caller>,
    exchange: Arc<Exchange>,
    method: ByteString,
    /// Those of its first try.
    params: Option<ByteString>,
    trace: Trace,
    work: CallWork,
    over: bool,
}

/// What comes first of a request under way.
enum FirstOutcome {
    Answered(Outcome),
    Asked,
    Long(LongCall),
}

enum CallWork {
    Fresh(GuardedAnswer),
    Resumed(u64, Arc<BackgroundCall>),
    Nothing,
}

impl std::fmt::Debug for CallWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fresh(_) => "Fresh",
            Self::Resumed(..) => "Resumed",
            Self::Nothing => "Nothing",
        })
    }
}

impl RunningCall {
    /// The state of the call.
    #[must_use]
    pub fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// The answer to this request: the call's own, what is needed before it can go on, or the task it
    /// has become.
    #[must_use]
    pub fn answer(mut self) -> GuardedAnswer {
        GuardedAnswer::new(|| Box::pin(async move { self.outcome().await }))
    }

    async fn outcome(&mut self) -> Outcome {
        let exchange = self.exchange.clone();
        let rounds = exchange.rounds().expect("made with them");
        let next = match self.next(rounds, true).await {
            FirstOutcome::Long(call) => match self.become_task(&call).await {
                Some(announced) => FirstOutcome::Answered(announced),
                None => self.next(rounds, false).await,
            },
            next @ (FirstOutcome::Answered(_) | FirstOutcome::Asked) => next,
        };
        self.over = true;
        rounds.leave();
        match next {
            FirstOutcome::Answered(Err(Refusal::Cancelled))
                if let Some(missing) = exchange.lacking() =>
            {
                Err(Refusal::MissingCapability {
                    required: missing.to_owned(),
                })
            }
            FirstOutcome::Answered(outcome) => outcome,
            FirstOutcome::Asked | FirstOutcome::Long(_) => self.park(rounds),
        }
    }

    /// What comes first.
    async fn next(&mut self, rounds: &CallRounds, may_become_task: bool) -> FirstOutcome {
        let answered = async {
            match &mut self.work {
                CallWork::Fresh(answering) => answering.await,
                CallWork::Resumed(_, background) => background.outcome().await,
                CallWork::Nothing => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            outcome = answered => FirstOutcome::Answered(outcome),
            () = rounds.asked() => FirstOutcome::Asked,
            call = rounds.took_long(), if may_become_task => FirstOutcome::Long(call.clone()),
        }
    }

    /// The call goes on by itself; `None` when it cannot be a task.
    async fn become_task(&mut self, call: &LongCall) -> Option<Outcome> {
        let (number, background) = self.detach()?;
        self.work = CallWork::Resumed(number, background.clone());
        let stateless = self.stateless.clone();
        let again = CallRetry {
            routes: stateless.routes.clone(),
            caller: self.caller.clone(),
            method: self.method.clone(),
            params: self.params.clone(),
            trace: self.trace.clone(),
        };
        let announced = stateless.tasks.make(again, call, background).await?;
        // Taken back meanwhile: nobody waits for an answer.
        match self.exchange.is_cancelled() {
            true => Some(Err(Refusal::Cancelled)),
            false => Some(Ok(announced)),
        }
    }

    /// The call, from now on by itself.
    fn detach(&mut self) -> Option<(u64, Arc<BackgroundCall>)> {
        match std::mem::replace(&mut self.work, CallWork::Nothing) {
            CallWork::Fresh(answering) => Some((
                self.stateless.suspended.number(),
                BackgroundCall::begin(self.exchange.clone(), answering),
            )),
            CallWork::Resumed(call, background) => Some((call, background)),
            CallWork::Nothing => None,
        }
    }

    fn park(&mut self, rounds: &CallRounds) -> Outcome {
        let Some((call, background)) = self.detach() else {
            return Err(Refusal::Cancelled);
        };
        let Stateless {
            suspended,
            seal,
            boot,
            ..
        } = &*self.stateless;
        let patience = u64::try_from(suspended.patience().as_millis()).unwrap_or(u64::MAX);
        let state = RequestState {
            boot: *boot,
            call,
            kind: RequestStateKind::Parked,
            method: self.method.to_string(),
            digest: RequestDigest::of(&self.method, self.params.as_deref()),
            expires_ms: unix_ms().saturating_add(patience),
        };
        let state = seal.seal(Purpose::State, &self.caller.principal(), &state);
        let questions = rounds.input_requests();
        if let Err(full) =
            suspended.park(call, background, self.caller.clone(), self.params.clone())
        {
            self.exchange.cancel();
            return Err(full);
        }
        Ok(format!(
            r#"{{"resultType":"input_required","inputRequests":{questions},"requestState":{}}}"#,
            quoted(&state)
        )
        .into())
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        if !self.over {
            self.exchange.cancel();
        }
    }
}

/// The methods whose answer may be that input is required.
fn can_need_input(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

/// What a request says of its client (MCP 2026-07-28, `_meta`).
#[derive(Debug)]
pub struct Stated {
    /// The version it is written in.
    pub version: String,
    /// What the client can be asked for.
    pub capabilities: ClientCapabilities,
    /// What of MGP may be said to the client.
    pub mgp: Negotiated,
    /// The least severe log level it wants.
    pub level: Option<LogLevel>,
    /// The progress token it gives, as JSON text.
    pub token: Option<Box<str>>,
    /// Its `requestState`, when the kernel gave it.
    pub state: Option<String>,
    /// What it calls itself, as JSON text.
    pub client: Option<Box<str>>,
}

/// What the kernel reads of the params of any request, in one pass over them.
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

/// Reads what a request says of its client, and what its headers are to repeat.
///
/// # Errors
/// [`Refusal::BadMeta`] names what is missing or wrong.
pub fn read<'a>(
    method: &'a str,
    params: Option<&'a str>,
) -> Result<(Stated, RequestHeaders<'a>), Refusal> {
    let said: Params<'_> = mcp::read(params)?;
    let meta = said.meta.ok_or_else(|| missing("_meta"))?;
    if !meta.get().starts_with('{') {
        return Err(Refusal::BadMeta("`_meta` must be an object".into()));
    }
    let meta: mcp::Meta<'_> = serde_json::from_str(meta.get())
        .map_err(|error| Refusal::BadMeta(format!("`_meta`: {error}")))?;
    let version = meta
        .protocol_version
        .ok_or_else(|| missing(PROTOCOL_VERSION))?;
    let version = serde_json::from_str(version.get())
        .map_err(|_| Refusal::BadMeta(format!("`{PROTOCOL_VERSION}` must be a string")))?;
    let declared = meta
        .client_capabilities
        .ok_or_else(|| missing(CLIENT_CAPABILITIES))?;
    if !declared.get().starts_with('{') {
        let words = format!("`{CLIENT_CAPABILITIES}` must be an object");
        return Err(Refusal::BadMeta(words));
    }
    let name = match request_headers::subject(method) {
        Some("name") => said.name,
        Some("uri") => said.uri,
        Some("taskId") => said.task_id,
        Some(_) | None => None,
    };
    let stated = Stated {
        version,
        capabilities: ClientCapabilities::read(Some(declared)),
        mgp: negotiation::with_client(Some(declared), Era::Modern),
        level: meta.log_level.map(level_of).transpose()?,
        token: meta.progress_token.map(|token| token.get().into()),
        state: text(said.request_state).filter(|state| seal::is_ours(state)),
        client: meta.client_info.map(|client| client.get().into()),
    };
    let name = text(name).map(Cow::Owned);
    Ok((stated, RequestHeaders { method, name }))
}

/// The text of a JSON string.
fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

impl Stated {
    /// In whose words the request is answered.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        Dialect {
            version: Version::MODERN,
            mgp: self.mgp.says_codes(),
        }
    }

    /// Only the one modern version is spoken here; the others begin with `initialize`.
    ///
    /// # Errors
    /// [`Refusal::UnsupportedVersion`].
    pub fn check_version(&self) -> Result<(), Refusal> {
        match self.version == Version::MODERN.as_str() {
            true => Ok(()),
            false => Err(Refusal::UnsupportedVersion {
                requested: self.version.clone(),
            }),
        }
    }
}

fn missing(what: &str) -> Refusal {
    Refusal::BadMeta(format!("`{what}` is missing"))
}

fn level_of(raw: &RawValue) -> Result<LogLevel, Refusal> {
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
    fn a_modern_request_is_known_however_its_keys_are_escaped() {
        for key in [
            "io.modelcontextprotocol/protocolVersion",
            r"io.modelcontextprotocol\/protocolVersion",
            r"io.modelcontextprotocol\u002fprotocolVersion",
            r"\u0069o.modelcontextprotocol\u002FprotocolVersion",
        ] {
            let params = format!(r#"{{"_meta":{{"{key}":"2026-07-28"}}}}"#);
            assert!(is_modern(Some(&params)), "{params}");
        }
        let other = r#"{"name":"io.modelcontextprotocol\/protocolVersion","_meta":{}}"#;
        assert!(!is_modern(Some(other)));
    }
}
