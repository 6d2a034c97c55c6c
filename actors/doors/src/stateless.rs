//! Requests of 2026-07-28: each stands alone and says of its client what a session would know.
//!
//! A call that meets a question of a legacy server is parked; its client gets `input_required` with a
//! sealed `requestState`, and comes back with the answers in its next request.

use std::borrow::Cow;
use std::sync::Arc;

use bytestring::ByteString;
use mgp_engine::callers::parked::{ParkedDigest, ParkedKind, ParkedState};
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
use mgp_callers::attempts::{Attempt, Attempts, Outlet};
use mgp_callers::errand::Errand;
use mgp_callers::exchange::{Exchange, Way};
use mgp_callers::negotiation;
use mgp_callers::parked::ParkedCalls;
use mgp_callers::presence::Presence;
use mgp_callers::request::{Answering, Back, Caller, Outcome, Request, Routes};
use mgp_callers::tasks::{Again, LongCall, Tasks};
use mgp_runtime::time::unix_ms;
use mgp_runtime::trace::Trace;

/// Answers requests that stand alone.
#[derive(Debug)]
pub struct Stateless {
    /// Who answers what.
    pub routes: Arc<dyn Routes>,
    /// Calls that wait for their clients.
    pub parked: Arc<ParkedCalls>,
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
        presence: Arc<Presence>,
    ) -> Result<Running, Refusal> {
        let caller = Arc::new(Caller {
            connection: agent::shared_connection(&arrival.agent, &arrival.view),
            agent: arrival.agent,
            operator: arrival.operator,
            view: arrival.view,
            version: Version::MODERN,
            capabilities: stated.capabilities,
            mgp: stated.mgp,
            back: Back::Alone,
            presence,
        });
        let attempt = Attempt {
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
                attempt,
                arrival.trace,
            );
        }
        let exchange = Exchange::new(Way::Attempts(Box::new(Attempts::new(attempt, may_ask))));
        let request = Request {
            caller: caller.clone(),
            exchange: exchange.clone(),
            method: arrival.method.clone(),
            params: arrival.params.clone(),
            trace: arrival.trace.clone(),
        };
        Ok(Running {
            stateless: self.clone(),
            work: Work::Fresh(self.routes.answer(request)),
            caller,
            exchange,
            method: arrival.method,
            params: arrival.params,
            trace: arrival.trace,
            over: false,
        })
    }

    /// A client is back with answers for a call that was parked.
    fn come_back(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        method: &ByteString,
        params: &str,
        state: &str,
        attempt: Attempt,
        trace: Trace,
    ) -> Result<Running, Refusal> {
        let bad = |why: &dyn std::fmt::Display| Refusal::Expired(why.to_string());
        let state: ParkedState = self
            .seal
            .open(Purpose::State, &caller.principal(), state)
            .map_err(|e| bad(&e))?;
        state
            .judge(self.boot, unix_ms(), method, Some(params))
            .map_err(|e| bad(&e))?;
        let parked = self
            .parked
            .take(state.call)
            .ok_or_else(|| bad(&"its call was answered, or waited too long for its client"))?;
        let exchange = parked.errand.exchange.clone();
        // What was taken back while the call waited reaches it before its answers do.
        if let Err(refusal) = self.routes.still(caller, method, params) {
            exchange.cancel();
            return Err(refusal);
        }
        let attempts = exchange.attempts().expect("only such calls are parked");
        attempts.follow(attempt);
        attempts.answer(member(params, "inputResponses").unwrap_or("{}"));
        Ok(Running {
            stateless: self.clone(),
            work: Work::Resumed(state.call, parked.errand),
            caller: parked.caller,
            exchange,
            method: method.clone(),
            params: parked.params,
            trace,
            over: false,
        })
    }
}

/// A request under way. Dropped before its end, it is taken back: its client has gone.
#[derive(Debug)]
pub struct Running {
    stateless: Arc<Stateless>,
    caller: Arc<Caller>,
    exchange: Arc<Exchange>,
    method: ByteString,
    /// Those of its first try.
    params: Option<ByteString>,
    trace: Trace,
    work: Work,
    over: bool,
}

/// What comes first of a request under way.
enum Next {
    Answered(Outcome),
    Asked,
    Long(LongCall),
}

enum Work {
    Fresh(Answering),
    Resumed(u64, Arc<Errand>),
    Nothing,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fresh(_) => "Fresh",
            Self::Resumed(..) => "Resumed",
            Self::Nothing => "Nothing",
        })
    }
}

impl Running {
    /// The state of the call.
    #[must_use]
    pub fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// Resolves with the answer to this request: the call's own, what is needed before it can go on,
    /// or the task it has become.
    pub async fn outcome(&mut self) -> Outcome {
        let exchange = self.exchange.clone();
        let attempts = exchange.attempts().expect("made with them");
        let next = match self.next(attempts, true).await {
            Next::Long(call) => match self.become_task(&call).await {
                Some(announced) => Next::Answered(announced),
                None => self.next(attempts, false).await,
            },
            next @ (Next::Answered(_) | Next::Asked) => next,
        };
        self.over = true;
        attempts.leave();
        match next {
            Next::Answered(Err(Refusal::Cancelled)) if let Some(missing) = exchange.lacking() => {
                Err(Refusal::MissingCapability {
                    required: missing.to_owned(),
                })
            }
            Next::Answered(outcome) => outcome,
            Next::Asked | Next::Long(_) => self.park(attempts),
        }
    }

    /// What comes first.
    async fn next(&mut self, attempts: &Attempts, may_become_task: bool) -> Next {
        let answered = async {
            match &mut self.work {
                Work::Fresh(answering) => answering.as_mut().await,
                Work::Resumed(_, errand) => errand.outcome().await,
                Work::Nothing => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            outcome = answered => Next::Answered(outcome),
            () = attempts.asked() => Next::Asked,
            call = attempts.took_long(), if may_become_task => Next::Long(call.clone()),
        }
    }

    /// The call goes on by itself; `None` when it cannot be a task.
    async fn become_task(&mut self, call: &LongCall) -> Option<Outcome> {
        let (number, errand) = self.detach()?;
        self.work = Work::Resumed(number, errand.clone());
        let stateless = self.stateless.clone();
        let again = Again {
            routes: stateless.routes.clone(),
            caller: self.caller.clone(),
            method: self.method.clone(),
            params: self.params.clone(),
            trace: self.trace.clone(),
        };
        let announced = stateless.tasks.make(again, call, errand).await?;
        // Taken back meanwhile: nobody waits for an answer.
        match self.exchange.is_cancelled() {
            true => Some(Err(Refusal::Cancelled)),
            false => Some(Ok(announced)),
        }
    }

    /// The call, from now on by itself.
    fn detach(&mut self) -> Option<(u64, Arc<Errand>)> {
        match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Fresh(answering) => Some((
                self.stateless.parked.number(),
                Errand::begin(self.exchange.clone(), answering),
            )),
            Work::Resumed(call, errand) => Some((call, errand)),
            Work::Nothing => None,
        }
    }

    fn park(&mut self, attempts: &Attempts) -> Outcome {
        let Some((call, errand)) = self.detach() else {
            return Err(Refusal::Cancelled);
        };
        let Stateless {
            parked, seal, boot, ..
        } = &*self.stateless;
        let patience = u64::try_from(parked.patience().as_millis()).unwrap_or(u64::MAX);
        let state = ParkedState {
            boot: *boot,
            call,
            kind: ParkedKind::Parked,
            method: self.method.to_string(),
            digest: ParkedDigest::of(&self.method, self.params.as_deref()),
            expires_ms: unix_ms().saturating_add(patience),
        };
        let state = seal.seal(Purpose::State, &self.caller.principal(), &state);
        let questions = attempts.input_requests();
        if let Err(full) = parked.park(call, errand, self.caller.clone(), self.params.clone()) {
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

impl Drop for Running {
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
