//! Writes one audit event per call, however it ends: answered, refused, cancelled or dropped (MGP §6.4); and counts
//! it.

mod call_metrics;
mod call_times;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytestring::ByteString;
use mgp_engine::calls::outcome;
use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::routes::CallChoice;
use mgp_engine::store::audit::commit::CommitRefusal;
use mgp_engine::store::audit::redact::{KeptArguments, held};
use mgp_engine::timestamps::rfc3339_ms;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_mcpl::scopes::ScopedAction;
use mgp_protocol::mcp::tools::Called;
use mgp_protocol::mgp::audit::{Event, EventType, Failure, Outcome as Ending, Target, TraceId};
use mgp_protocol::refusal::{CallOutcome, Denial, Refusal, UnansweredCall};
use mgp_protocol::splice::member;
use mgp_protocol::splice::mention::may_mention;
use mgp_screening::validators::Validator;
use serde_json::{Map, Value, json};

pub use self::call_metrics::{CallMetrics, NO_TOOL, OTHERS};
use self::call_times::ToldTimes;
pub(crate) use self::call_times::{CallPart, CallTimes};
use crate::Context;
use mgp_callers::exchange::forwarded::ForwardedHeaders;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_runtime::time::{moment, unix_ms};
use mgp_store::audit::{AuditHandle, NotWritten, Note, Place, by_agent, by_operator};

/// What the audit event says about a call; filled in while the call is being handled.
#[derive(Debug, Default)]
pub(crate) struct CallFacts {
    tool: OnceLock<Arc<CatalogTool>>,
    asked: OnceLock<Box<str>>,
    arguments: OnceLock<ByteString>,
    task: OnceLock<TraceId>,
    goes_on: OnceLock<Box<str>>,
    place: OnceLock<Mutex<CalledPlace>>,
    scope: OnceLock<Value>,
    /// How long its parts took.
    pub(crate) times: CallTimes,
}

/// The last place that a call of one of several went to.
#[derive(Debug)]
struct CalledPlace {
    tool: Arc<CatalogTool>,
    why: String,
}

/// Signs of a scope's label that a record keeps.
const LABEL_SHOWN: usize = 256;
/// Longest name of a task that a record keeps, in bytes: those of servers that name theirs briefly.
const TASK_MAX: usize = 512;

impl CallFacts {
    /// Notes the name of the tool that is called, whether such a tool exists or not.
    pub(crate) fn asks_for(&self, name: &str, request: &Request, arguments: Option<&str>) {
        let _ = self.asked.set(held(name).into());
        let params = request.params.as_ref();
        if let Some((params, arguments)) = params.zip(arguments) {
            let _ = self.arguments.set(params.slice_ref(arguments));
        }
    }

    /// The call is in a scope, and what was decided about that (MCPL §7.6).
    pub(crate) fn is_in_scope(&self, action: &ScopedAction, approved: bool, why: &str) {
        let label: String = action.label.chars().take(LABEL_SHOWN).collect();
        let decision = if approved { "approved" } else { "denied" };
        let told =
            json!({"featureSet": action.set, "label": label, "decision": decision, "by": why});
        let _ = self.scope.set(told);
    }

    /// The call belongs to a task that has a trace of its own.
    pub(crate) fn is_part_of(&self, task: TraceId) {
        let _ = self.task.set(task);
    }

    /// The call goes on as a task; `announced` is the answer that says so.
    pub(crate) fn goes_on(&self, announced: &[u8]) {
        let announced = std::str::from_utf8(announced).unwrap_or_default();
        let task = member(announced, "task").unwrap_or(announced);
        let id = member(task, "taskId").and_then(|id| serde_json::from_str::<String>(id).ok());
        if let Some(id) = id.filter(|id| id.len() <= TASK_MAX) {
            let _ = self.goes_on.set(id.into());
        }
    }

    /// The call of one of several goes there now; the record names the last such place.
    pub(crate) fn goes_to(&self, tool: &Arc<CatalogTool>, choice: &CallChoice) {
        let called = || CalledPlace {
            tool: tool.clone(),
            why: choice.in_words(),
        };
        let place = self.place.get_or_init(|| Mutex::new(called()));
        *place.lock().unwrap_or_else(PoisonError::into_inner) = called();
    }

    /// Where the call went last, and why there; `None` of a tool that stands alone.
    fn went_to(&self) -> Option<(Arc<CatalogTool>, String)> {
        let place = self.place.get()?.lock();
        let place = place.unwrap_or_else(PoisonError::into_inner);
        Some((place.tool.clone(), place.why.clone()))
    }

    /// The tool that was called: where the call went last, or the one that stands alone.
    pub(crate) fn called(&self) -> Option<Arc<CatalogTool>> {
        match self.place.get() {
            Some(place) => {
                let place = place.lock().unwrap_or_else(PoisonError::into_inner);
                Some(place.tool.clone())
            }
            None => self.tool.get().cloned(),
        }
    }

    /// Notes the tool that is called, whether the caller may see it or not.
    pub(crate) fn is_of(&self, tool: &Arc<CatalogTool>) {
        let _ = self.tool.set(tool.clone());
    }
}

/// Reserves a place in the audit log, makes the call, then writes how it ended. A call that cannot be
/// logged is not made.
pub(crate) async fn audited<'a, F>(
    cx: &Context,
    request: &'a Request,
    call: impl FnOnce(Arc<CallFacts>) -> F,
) -> Outcome
where
    F: Future<Output = Outcome> + 'a,
{
    let facts = Arc::new(CallFacts::default());
    let mut counted = CountedCall::begin(cx, request, &facts);
    if !cx.audit.is_on() {
        let outcome = call(facts).await;
        let outcome = outcome.map_err(|refusal| limited(cx, request, &refusal).unwrap_or(refusal));
        counted.ended(&outcome);
        return outcome;
    }
    let params = request.params.as_ref().map_or(0, |params| params.len());
    let place = match cx.audit.place(params).map_err(refused) {
        Ok(place) => place,
        Err(refusal) => {
            let outcome = Err(refusal);
            counted.ended(&outcome);
            return outcome;
        }
    };
    let mut under_way = UnderWay {
        request,
        audit: &cx.audit,
        facts: facts.clone(),
        place: Some(place),
        began: counted.began,
        too_often: false,
    };
    let mut outcome = call(facts).await;
    if let Err(refusal) = &outcome
        && let Some(limited) = limited(cx, request, refusal)
    {
        under_way.too_often = true;
        outcome = Err(limited);
    }
    let (ending, lasted) = counted.ended(&outcome);
    let written = under_way.done(&outcome, ending, lasted).await;
    under_way.told(outcome, written)
}

/// A call that is counted when it ends, or when it is dropped.
struct CountedCall<'a> {
    metrics: &'a CallMetrics,
    request: &'a Request,
    facts: Arc<CallFacts>,
    began: MonotonicTime,
    over: bool,
}

/// How a call ended, and where a failure lies.
type CallEnding = (Ending, Option<Failure>);

impl<'a> CountedCall<'a> {
    fn begin(cx: &'a Context, request: &'a Request, facts: &Arc<CallFacts>) -> Self {
        cx.metrics.begin();
        Self {
            metrics: &cx.metrics,
            request,
            facts: facts.clone(),
            began: moment(),
            over: false,
        }
    }

    /// How it ended, and after how long.
    fn ended(&mut self, outcome: &Outcome) -> (CallEnding, Duration) {
        let ending = ending(&self.facts, outcome);
        self.over = true;
        let lasted = moment().since(self.began);
        self.measured(lasted);
        let refusal = outcome.as_ref().err();
        let tool = self.facts.called();
        self.metrics.end(tool.as_deref(), ending.0, refusal, lasted);
        // A refusal is said in the span where that of any request is.
        if let Some(span) = &self.request.trace.span
            && refusal.is_none()
            && ending.1 == Some(Failure::Tool)
        {
            span.failed("tool_error");
        }
        (ending, lasted)
    }

    /// Keeps how long its parts took, for the node it came from.
    fn measured(&self, lasted: Duration) {
        let Request {
            caller, exchange, ..
        } = self.request;
        if caller.agent.is_foreign() {
            let door = self.began.since(exchange.began());
            let waited = exchange.has_waited();
            let times = self.facts.times.measured(lasted, door, waited);
            exchange.times_abroad().measure(times);
        }
    }
}

impl Drop for CountedCall<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.ended(&Err(Refusal::Cancelled));
        }
    }
}

fn ending(facts: &CallFacts, outcome: &Outcome) -> CallEnding {
    match outcome {
        Ok(result) => Ending::of_result(says_error(result)),
        // "Unknown tool" for a tool that exists: the caller may not learn that it does.
        Err(Refusal::UnknownTool(_)) if facts.tool.get().is_some() => (Ending::Denied, None),
        Err(refusal) => Ending::of_refusal(refusal),
    }
}

/// The refusal for an agent that was refused too often: it reveals neither why nor whether the tool exists.
fn limited(cx: &Context, request: &Request, refusal: &Refusal) -> Option<Refusal> {
    let (ending, _) = Ending::of_refusal(refusal);
    if request.caller.operator || !matches!(ending, Ending::Denied | Ending::Blocked) {
        return None;
    }
    if let Refusal::Denied(denial) = refusal
        && let Denial::RateLimited { .. } | Denial::OverQuota { .. } = &**denial
    {
        return None;
    }
    cx.policies.rates.refused(&request.caller.agent)
}

fn refused(NotWritten(why): NotWritten) -> Refusal {
    match why {
        CommitRefusal::Full => Refusal::Overloaded {
            what: "the audit log".into(),
        },
        CommitRefusal::Broken | CommitRefusal::Late => Refusal::Broken(NotWritten(why).to_string()),
    }
}

/// A call whose event is not written yet.
struct UnderWay<'a> {
    request: &'a Request,
    audit: &'a AuditHandle,
    facts: Arc<CallFacts>,
    place: Option<Place>,
    began: MonotonicTime,
    /// The caller was refused too often: its refusals are written as one counted event, not one each.
    too_often: bool,
}

impl UnderWay<'_> {
    async fn done(
        &mut self,
        outcome: &Outcome,
        ending: CallEnding,
        lasted: Duration,
    ) -> Result<(), NotWritten> {
        let note = self.note(outcome, ending, lasted);
        if let Err(Refusal::Denied(denial)) = outcome
            && let Some(cause) = cause(denial)
        {
            // The cause has an event of its own, written before that of the call.
            self.audit.tell(note.event_of(cause));
        }
        match self.place.take() {
            Some(place) => place.fill(note).await,
            None => Ok(()),
        }
    }

    /// What the caller reads: of a call without an answer whether it took effect, and its id.
    fn told(&self, outcome: Outcome, written: Result<(), NotWritten>) -> Outcome {
        if let Err(NotWritten(why)) = written {
            return Err(self.unanswered(Refusal::Broken(why.to_string()), became(&outcome)));
        }
        let is_of_a_server = self.facts.tool.get().is_some();
        outcome.map_err(
            |refusal| match is_of_a_server && outcome::is_to_be_told(&refusal) {
                true => {
                    let became = outcome::of_refusal(&refusal);
                    self.unanswered(refusal, became)
                }
                false => refusal,
            },
        )
    }

    fn unanswered(&self, why: Refusal, outcome: CallOutcome) -> Refusal {
        Refusal::Unanswered(Box::new(UnansweredCall {
            why,
            outcome,
            call_id: self.trace().as_str().into(),
        }))
    }

    fn trace(&self) -> &TraceId {
        self.facts.task.get().unwrap_or(&self.request.trace.id)
    }

    fn note(&self, outcome: &Outcome, (ending, failure): CallEnding, lasted: Duration) -> CallNote {
        let facts = (!self.too_often).then_some(&*self.facts);
        let (place, chosen) = facts.and_then(CallFacts::went_to).unzip();
        let tool = place.or_else(|| facts?.tool.get().cloned());
        let asked = facts.and_then(|facts| facts.asked.get());
        let exchange = &self.request.exchange;
        CallNote {
            at_ms: unix_ms(),
            trace: self.trace().clone(),
            caller: self.request.caller.clone(),
            asked: asked.filter(|_| tool.is_none()).cloned(),
            kept: facts
                .and_then(|facts| facts.arguments.get())
                .and_then(|text| self.audit.kept(text)),
            tool,
            lasted,
            parts: self.facts.times.told(self.began, lasted, exchange),
            ending,
            became: became(outcome),
            goes_on: self.facts.goes_on.get().cloned(),
            failure,
            chosen,
            scope: facts.and_then(|facts| facts.scope.get().cloned()),
            why: outcome.as_ref().err().map(why),
            passed: self
                .request
                .exchange
                .forwarded()
                .map(ForwardedHeaders::handed),
        }
    }
}

impl Drop for UnderWay<'_> {
    /// The client went away or the future was dropped: what the call did at the server is not known, and the
    /// event says so.
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let cancelled = Err(Refusal::Cancelled);
            let lasted = moment().since(self.began);
            place.put(self.note(&cancelled, ending(&self.facts, &cancelled), lasted));
        }
    }
}

/// How a call ended, ready to be written. It waits for the disk, so it holds no part of the message that
/// the call came in.
struct CallNote {
    at_ms: u64,
    trace: TraceId,
    caller: Arc<Caller>,
    tool: Option<Arc<CatalogTool>>,
    /// What the caller named, where it is no tool.
    asked: Option<Box<str>>,
    kept: Option<KeptArguments>,
    lasted: Duration,
    /// Where that time went.
    parts: Option<ToldTimes>,
    ending: Ending,
    became: CallOutcome,
    /// The task that the call goes on as.
    goes_on: Option<Box<str>>,
    failure: Option<Failure>,
    /// Why one of several places took the call.
    chosen: Option<String>,
    /// What was decided about its scope.
    scope: Option<Value>,
    why: Option<Map<String, Value>>,
    /// The names of headers of the caller's request that the server was sent.
    passed: Option<Vec<String>>,
}

impl CallNote {
    fn event_of(&self, event_type: EventType) -> Event {
        let Self { caller, tool, .. } = self;
        let tool = tool.as_ref();
        let own = tool.map(|tool| tool.own_name.to_string());
        Event {
            timestamp: rfc3339_ms(self.at_ms),
            trace_id: self.trace.clone(),
            event_type,
            actor: match caller.operator {
                true => by_operator(),
                false => by_agent(&caller.agent.to_string()),
            },
            target: Target {
                server_id: tool.map(|tool| tool.server.to_string()),
                tool_name: own.or_else(|| self.asked.as_deref().map(String::from)),
                agent_id: None,
            },
            result: self.ending,
            details: self.details(),
        }
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = self.why.clone().unwrap_or_default();
        if let Some(parts) = &self.parts {
            parts.tell(&mut details);
        }
        let mut add = |name: &str, value: Value| drop(details.insert(name.into(), value));
        add("duration_ms", millis(self.lasted).into());
        if let Some(failure) = self.failure {
            add("failure", failure.to_string().into());
        }
        if self.became != outcome::implied(self.ending) {
            add(outcome::OUTCOME, self.became.as_str().into());
        }
        if let Some(chosen) = &self.chosen {
            add("place", chosen.as_str().into());
        }
        if let Some(scope) = &self.scope {
            add("scope", scope.clone());
        }
        if let Some(passed) = self.passed.as_ref().filter(|names| !names.is_empty()) {
            add("headers_passed", passed.join(",").into());
        }
        if let Some(task) = &self.goes_on {
            add(outcome::TASK, (**task).into());
        }
        if let Some(tool) = &self.tool {
            if tool.called != tool.own_name {
                add("shown_as", (*tool.called).into());
            }
            add("risk_level", tool.requirements.risk.level.as_str().into());
            let validators = tool.requirements.validators.chosen().iter();
            let names: Vec<&str> = validators.map(|v| v.name()).collect();
            if !names.is_empty() {
                add("validator_applied", names.join(",").into());
            }
            let unknown = tool.requirements.validators.unknown();
            if !unknown.is_empty() {
                add("validator_unknown", unknown.join(",").into());
            }
        }
        details
    }
}

impl Note for CallNote {
    fn event(self: Box<Self>) -> (Event, Option<KeptArguments>) {
        let event_type = match self.ending {
            Ending::Blocked | Ending::Denied => EventType::ToolBlocked,
            Ending::Success | Ending::Failure | Ending::Timeout | Ending::Cancelled => {
                EventType::ToolExecuted
            }
        };
        (self.event_of(event_type), self.kept)
    }
}

fn became(outcome: &Outcome) -> CallOutcome {
    match outcome {
        Ok(_) => CallOutcome::Done,
        Err(refusal) => outcome::of_refusal(refusal),
    }
}

/// The type of the extra event for a check that refused the call.
fn cause(denial: &Denial) -> Option<EventType> {
    match denial {
        Denial::Validator { .. } => Some(EventType::ValidationFailed),
        Denial::UnsafeCode { .. } => Some(EventType::CodeRejected),
        Denial::Permission { .. }
        | Denial::NotGranted { .. }
        | Denial::Unconfirmed { .. }
        | Denial::NoCredentials(_)
        | Denial::CredentialsExpired(_)
        | Denial::Registration { .. }
        | Denial::RateLimited { .. }
        | Denial::OverQuota { .. }
        | Denial::Disabled { .. }
        | Denial::NoSubscription { .. } => None,
    }
}

/// Why a call was refused, without its arguments or its answer.
fn why(refusal: &Refusal) -> Map<String, Value> {
    let mut why = Map::new();
    let mut add = |name: &str, value: Value| drop(why.insert(name.into(), value));
    if let Refusal::Owner(owner) = refusal {
        // Its words may repeat arguments.
        let by = format!("the node of the server {}", owner.cause.as_words());
        add("reason", by.into());
    }
    if refusal.is_answer() {
        let error = refusal.relayed_error().unwrap_or_default();
        let code = member(error, "code").and_then(|code| code.parse::<i64>().ok());
        add("error_code", code.into());
    } else if let Refusal::BadArguments { path, keyword, .. }
    | Refusal::BadResult { path, keyword, .. } = refusal
    {
        // The words of the refusal may repeat arguments or the answer.
        add("reason", "it does not fit the schema of the tool".into());
        add("at", held(path).into());
        add("keyword", keyword.as_str().into());
    } else if let Refusal::Denied(denial) = refusal
        && let Denial::NotGranted { rule, .. } = &**denial
    {
        // The caller reads something else: that the tool does not exist.
        add("reason", format!("denied: {rule}").into());
    } else {
        add("reason", held(&refusal.to_string()).into());
    }
    if let Refusal::Denied(denial) = refusal {
        if let Denial::Validator {
            validator,
            path,
            rule,
            ..
        } = &**denial
        {
            add("validator", validator.as_str().into());
            add("at", held(path).into());
            add("rule", rule.as_str().into());
        } else if let Denial::UnsafeCode {
            violations, path, ..
        } = &**denial
        {
            add("validator", Validator::CodeSafety.name().into());
            add("at", held(path).into());
            add("violations", violations.clone().into());
        }
    }
    why
}

/// True for a result with `isError`.
fn says_error(result: &[u8]) -> bool {
    may_mention(result, "\"isError\"")
        && serde_json::from_slice::<Called<'_>>(result).is_ok_and(|called| called.is_error)
}

fn millis(lasted: Duration) -> u64 {
    u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX)
}
