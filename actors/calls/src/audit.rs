//! Writes one audit event per call, however it ends: answered, refused, cancelled or dropped (MGP §6.4); and counts
//! it.

mod call_metrics;
mod call_times;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use mgp_engine::calls::outcome;
use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::routes::CallRoute;
use mgp_engine::policy::pins::Effect;
use mgp_engine::store::audit::commit::CommitError;
use mgp_engine::store::audit::redact::{RecordedArguments, truncate_to_buffer};
use mgp_engine::store::audit::successful_call::SuccessfulCall;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_json::{can_contain_string, member, unquote};
use mgp_mcpl::scopes::ScopedAction;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::tools::CallResult;
use mgp_protocol::mgp::audit::{
    Actor, Event, EventType, Failure, Outcome as Ending, Target, TraceId,
};
use mgp_protocol::refusal::{CallOutcome, Denial, PeerRejection, Refusal, UnansweredCall};
use mgp_screening::Validator;
use serde_json::{Map, Value, json};

pub use self::call_metrics::CallMetrics;
use self::call_times::CallTimeBreakdown;
pub(crate) use self::call_times::{CallPart, CallTimes};
use crate::Context;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_callers::{ForwardedHeaders, GuardReport};
use mgp_runtime::time::{monotonic_now, unix_ms};
use mgp_store::audit::{
    AuditEntry, AuditHandle, AuditWriteError, CallReservation, agent_actor, operator_actor,
};

/// The audit event of a call; filled in while the call is handled.
#[derive(Debug, Default)]
pub(crate) struct PendingCallRecord {
    facts: Mutex<CallFacts>,
    /// How long its parts took.
    pub(crate) times: CallTimes,
}

/// What is known of a call besides its state.
#[derive(Debug, Default)]
struct CallFacts {
    /// The tool that is called, whether the caller may see it or not.
    tool: Option<Arc<CatalogTool>>,
    /// The server of a request that is about no tool.
    server: Option<ServerId>,
    /// What the caller named.
    requested_name: Option<Box<str>>,
    arguments: Option<ByteString>,
    /// The trace of the task that it belongs to.
    task_trace: Option<TraceId>,
    /// The task that it continues as.
    continued_as: Option<Box<str>>,
    /// Its last route, where the tool has several replicas.
    destination: Option<CallDestination>,
    /// What was decided about its scope.
    scope: Option<Value>,
    /// The most that the tool may do, for a call through a finding tool that promises it.
    effect_limit: Option<Effect>,
    /// Whether its result has `isError`, once that is known.
    is_error_result: Option<bool>,
    /// The rejection of its server.
    rejection: Option<PeerRejection>,
}

/// The last route of a call to one of several replicas.
#[derive(Debug)]
struct CallDestination {
    tool: Arc<CatalogTool>,
    reason: String,
}

/// Signs of a scope's label that a record keeps.
const LABEL_CHARS_MAX: usize = 256;
/// Longest name of a task that a record keeps, in bytes: those of servers that name theirs briefly.
const TASK_MAX: usize = 512;

impl PendingCallRecord {
    /// Notes the name of the tool that is called, whether such a tool exists or not. What is noted first counts.
    pub(crate) fn set_request(&self, name: &str, request: &Request, arguments: Option<&str>) {
        let mut facts = self.lock();
        facts
            .requested_name
            .get_or_insert_with(|| truncate_to_buffer(name).into());
        if let Some((params, arguments)) = request.params.as_ref().zip(arguments) {
            facts
                .arguments
                .get_or_insert_with(|| params.slice_ref(arguments));
        }
    }

    /// The request is about no tool, and goes to this server.
    pub(crate) fn set_server(&self, server: &ServerId) {
        self.lock().server = Some(server.clone());
    }

    /// The call is in a scope, and what was decided about that (MCPL §7.6).
    pub(crate) fn set_scope(&self, action: &ScopedAction, approved: bool, why: &str) {
        let label: String = action.label.chars().take(LABEL_CHARS_MAX).collect();
        let decision = if approved { "approved" } else { "denied" };
        let scope =
            json!({"featureSet": action.set, "label": label, "decision": decision, "by": why});
        self.lock().scope.get_or_insert(scope);
    }

    /// The call is refused if its tool may do more than this.
    pub(crate) fn limit_effect(&self, limit: Effect) {
        self.lock().effect_limit = Some(limit);
    }

    /// The most that the tool may do.
    pub(crate) fn effect_limit(&self) -> Option<Effect> {
        self.lock().effect_limit
    }

    /// The call belongs to a task that has a trace of its own.
    pub(crate) fn set_task_trace(&self, task: TraceId) {
        self.lock().task_trace.get_or_insert(task);
    }

    /// The call continues as a task; `announced` is the answer that reports it.
    pub(crate) fn continues_as(&self, announced: &[u8]) {
        let announced = std::str::from_utf8(announced).unwrap_or_default();
        let task = member(announced, "task").unwrap_or(announced);
        let id = member(task, "taskId").and_then(unquote);
        if let Some(id) = id.filter(|id| id.len() <= TASK_MAX) {
            self.lock().continued_as.get_or_insert(id.into());
        }
    }

    /// Whether the server's result has `isError`.
    pub(crate) fn set_error_result(&self, is_error: bool) {
        self.lock().is_error_result = Some(is_error);
    }

    /// The server rejected the call by policy (MGP 0.6.1 §14.7).
    pub(crate) fn set_rejection(&self, rejection: Option<PeerRejection>) {
        self.lock().rejection = rejection;
    }

    /// The call is routed to this replica; the record names the last one.
    pub(crate) fn set_destination(&self, tool: &Arc<CatalogTool>, choice: &CallRoute) {
        self.lock().destination = Some(CallDestination {
            tool: tool.clone(),
            reason: choice.describe(),
        });
    }

    /// Notes the tool that is called, whether the caller may see it or not. What is noted first counts.
    pub(crate) fn set_tool(&self, tool: &Arc<CatalogTool>) {
        self.lock().tool.get_or_insert_with(|| tool.clone());
    }

    /// The tool that was called: the last replica, or the only one.
    pub(crate) fn called_tool(&self) -> Option<Arc<CatalogTool>> {
        self.lock().called_tool().cloned()
    }

    /// Whether the call is of a tool that a server has.
    fn has_tool(&self) -> bool {
        self.lock().tool.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, CallFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallFacts {
    fn called_tool(&self) -> Option<&Arc<CatalogTool>> {
        let last = self.destination.as_ref().map(|place| &place.tool);
        last.or(self.tool.as_ref())
    }
}

/// Reserves a slot in the audit log, makes the call, then writes its outcome. A call that cannot be logged is not
/// made.
pub(crate) async fn run_audited<'a, F>(
    cx: &Context,
    request: &'a Request,
    call: impl FnOnce(Arc<PendingCallRecord>) -> F,
) -> Outcome
where
    F: Future<Output = Outcome> + 'a,
{
    let facts = Arc::new(PendingCallRecord::default());
    let mut counted = CountedCall::begin(cx, request, &facts);
    if !cx.audit.is_enabled() {
        let outcome = call(facts).await;
        let outcome = outcome
            .map_err(|refusal| rate_limited_refusal(cx, request, &refusal).unwrap_or(refusal));
        counted.finish(&outcome);
        return outcome;
    }
    let params = request.params.as_ref().map_or(0, |params| params.len());
    let place = match cx.audit.reserve_call(params).map_err(audit_write_refusal) {
        Ok(place) => place,
        Err(refusal) => {
            let outcome = Err(refusal);
            counted.finish(&outcome);
            return outcome;
        }
    };
    let mut under_way = UnwrittenCall {
        request,
        audit: &cx.audit,
        facts: facts.clone(),
        reservation: Some(place),
        started_at: counted.started_at,
        is_rate_limited: false,
    };
    let mut outcome = call(facts).await;
    if let Err(refusal) = &outcome
        && let Some(limited) = rate_limited_refusal(cx, request, refusal)
    {
        under_way.is_rate_limited = true;
        outcome = Err(limited);
    }
    let (ending, lasted) = counted.finish(&outcome);
    let written = under_way.finish(&outcome, ending, lasted).await;
    under_way.to_caller_outcome(outcome, written)
}

/// A call that is counted when it ends, or when it is dropped.
struct CountedCall<'a> {
    metrics: &'a CallMetrics,
    request: &'a Request,
    facts: Arc<PendingCallRecord>,
    started_at: MonotonicTime,
    is_over: bool,
}

/// How a call ended, and where a failure lies.
type CallEnding = (Ending, Option<Failure>);

impl<'a> CountedCall<'a> {
    fn begin(cx: &'a Context, request: &'a Request, facts: &Arc<PendingCallRecord>) -> Self {
        cx.metrics.record_start();
        Self {
            metrics: &cx.metrics,
            request,
            facts: facts.clone(),
            started_at: monotonic_now(),
            is_over: false,
        }
    }

    /// How it ended, and after how long.
    fn finish(&mut self, outcome: &Outcome) -> (CallEnding, Duration) {
        let ending = call_ending(&self.facts, outcome);
        self.is_over = true;
        let lasted = monotonic_now().duration_since(self.started_at);
        self.record_times(lasted);
        let refusal = outcome.as_ref().err();
        let tool = self.facts.called_tool();
        self.metrics
            .record_end(tool.as_deref(), ending.0, refusal, lasted);
        // A refusal is said in the span where that of any request is.
        if let Some(span) = &self.request.trace.span
            && refusal.is_none()
            && ending.1 == Some(Failure::Tool)
        {
            span.set_error("tool_error");
        }
        (ending, lasted)
    }

    /// Keeps how long its parts took, for the node it came from.
    fn record_times(&self, lasted: Duration) {
        let Request {
            caller,
            call: exchange,
            ..
        } = self.request;
        if caller.agent.is_remote() {
            let door = self.started_at.duration_since(exchange.started_at());
            let waited = exchange.queue_wait();
            let times = self.facts.times.to_timings(lasted, door, waited);
            exchange.remote_times().set_local(times);
        }
    }
}

impl Drop for CountedCall<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.finish(&Err(Refusal::Cancelled));
        }
    }
}

fn call_ending(facts: &PendingCallRecord, outcome: &Outcome) -> CallEnding {
    match outcome {
        Ok(result) => {
            let known = facts.lock().is_error_result;
            Ending::from_result(known.unwrap_or_else(|| is_error_result(result)))
        }
        // "Unknown tool" for a tool that exists: the caller must not learn that it does.
        Err(Refusal::UnknownTool(_)) if facts.has_tool() => (Ending::Denied, None),
        Err(refusal) => Ending::from_refusal(refusal),
    }
}

/// The refusal for an agent that was refused too often: it reveals neither why nor whether the tool exists.
fn rate_limited_refusal(cx: &Context, request: &Request, refusal: &Refusal) -> Option<Refusal> {
    let (ending, _) = Ending::from_refusal(refusal);
    if request.caller.operator || !matches!(ending, Ending::Denied | Ending::Blocked) {
        return None;
    }
    if let Refusal::Denied(denial) = refusal
        && let Denial::RateLimited { .. } | Denial::OverQuota { .. } = &**denial
    {
        return None;
    }
    cx.policies.rates.count_refusal(&request.caller.agent)
}

fn audit_write_refusal(AuditWriteError(why): AuditWriteError) -> Refusal {
    match why {
        CommitError::Full => Refusal::Overloaded {
            what: "the audit log".into(),
        },
        CommitError::Failed | CommitError::FailedDuringWrite => {
            Refusal::Internal(AuditWriteError(why).to_string())
        }
    }
}

/// A call whose event is not written yet.
struct UnwrittenCall<'a> {
    request: &'a Request,
    audit: &'a AuditHandle,
    facts: Arc<PendingCallRecord>,
    reservation: Option<CallReservation>,
    started_at: MonotonicTime,
    /// The caller was refused too often: its refusals are written as one counted event, not one each.
    is_rate_limited: bool,
}

impl UnwrittenCall<'_> {
    async fn finish(
        &mut self,
        outcome: &Outcome,
        ending: CallEnding,
        lasted: Duration,
    ) -> Result<(), AuditWriteError> {
        let note = self.to_record(outcome, ending, lasted);
        if let Err(Refusal::Denied(denial)) = outcome
            && let Some(cause) = denial_event(denial)
        {
            // The cause has an event of its own, written before that of the call.
            self.audit.record(note.to_event(cause));
        }
        let rejection = self.facts.lock().rejection.take();
        if let Some(rejection) = rejection.filter(|_| outcome.is_ok()) {
            self.audit.record(note.to_rejection_event(rejection));
        }
        match self.reservation.take() {
            Some(place) => place.record_and_wait(note).await,
            None => Ok(()),
        }
    }

    /// What the caller reads: of a call without an answer whether it took effect, and its id.
    fn to_caller_outcome(&self, outcome: Outcome, written: Result<(), AuditWriteError>) -> Outcome {
        if let Err(AuditWriteError(why)) = written {
            return Err(self.unanswered_refusal(
                Refusal::Internal(why.to_string()),
                self.call_outcome(outcome.as_ref()),
            ));
        }
        let is_of_a_server = self.facts.has_tool();
        outcome.map_err(|refusal| {
            if is_of_a_server && outcome::should_report_outcome(&refusal) {
                let became = self.call_outcome(Err(&refusal));
                self.unanswered_refusal(refusal, became)
            } else {
                refusal
            }
        })
    }

    fn unanswered_refusal(&self, why: Refusal, outcome: CallOutcome) -> Refusal {
        Refusal::Unanswered(Box::new(UnansweredCall {
            refusal: why,
            outcome,
            call_id: self.trace().as_str().into(),
        }))
    }

    /// Whether the call took effect: of one that a server was to answer the call's state knows.
    fn call_outcome(&self, outcome: Result<&Bytes, &Refusal>) -> CallOutcome {
        match outcome {
            Err(refusal) if self.facts.has_tool() => self.request.call.outcome_after(refusal),
            outcome => outcome::for_request(&outcome.map_err(Clone::clone)),
        }
    }

    fn trace(&self) -> TraceId {
        let task = self.facts.lock().task_trace.clone();
        task.unwrap_or_else(|| self.request.trace.id.clone())
    }

    fn to_record(
        &self,
        outcome: &Outcome,
        (ending, failure): CallEnding,
        lasted: Duration,
    ) -> CallRecord {
        let (trace, became) = (self.trace(), self.call_outcome(outcome.as_ref()));
        let exchange = &self.request.call;
        let known = self.facts.lock();
        // Of one of many refusals it is not told what was asked for.
        let facts = (!self.is_rate_limited).then_some(&*known);
        let tool = facts.and_then(CallFacts::called_tool).cloned();
        let arguments = facts.and_then(|facts| facts.arguments.as_ref());
        let requested = facts.and_then(|facts| facts.requested_name.as_ref());
        let place = facts.and_then(|facts| facts.destination.as_ref());
        CallRecord {
            at_ms: unix_ms(),
            trace,
            caller: self.request.caller.clone(),
            requested_name: requested.filter(|_| tool.is_none()).cloned(),
            server: facts.and_then(|facts| facts.server.clone()),
            stored_arguments: arguments.and_then(|text| self.audit.stored_arguments(text)),
            tool,
            duration: lasted,
            times: self
                .facts
                .times
                .breakdown(self.started_at, lasted, exchange),
            ending,
            outcome: became,
            continued_as: known.continued_as.clone(),
            failure,
            route_reason: place.map(|place| place.reason.clone()),
            scope: facts.and_then(|facts| facts.scope.clone()),
            refusal_details: outcome.as_ref().err().map(refusal_details),
            forwarded_headers: exchange
                .forwarded_headers()
                .map(ForwardedHeaders::sent_names),
            guarded: exchange.guard_report(),
        }
    }
}

impl Drop for UnwrittenCall<'_> {
    /// The client disconnected or the future was dropped: the call's effect at the server is unknown, and the event
    /// records that.
    fn drop(&mut self) {
        if let Some(place) = self.reservation.take() {
            let cancelled = Err(Refusal::Cancelled);
            let lasted = monotonic_now().duration_since(self.started_at);
            place.record(self.to_record(&cancelled, call_ending(&self.facts, &cancelled), lasted));
        }
    }
}

/// The outcome of a call, ready to be written. It waits for the disk, so it holds no part of the request message.
struct CallRecord {
    at_ms: u64,
    trace: TraceId,
    caller: Arc<Caller>,
    tool: Option<Arc<CatalogTool>>,
    /// The server, where there is no tool.
    server: Option<ServerId>,
    /// What the caller named, where it is no tool.
    requested_name: Option<Box<str>>,
    stored_arguments: Option<RecordedArguments>,
    duration: Duration,
    /// Where that time went.
    times: Option<CallTimeBreakdown>,
    ending: Ending,
    outcome: CallOutcome,
    /// The task that the call continues as.
    continued_as: Option<Box<str>>,
    failure: Option<Failure>,
    /// Why this replica took the call.
    route_reason: Option<String>,
    /// What was decided about its scope.
    scope: Option<Value>,
    refusal_details: Option<Map<String, Value>>,
    /// The names of headers of the caller's request that the server was sent.
    forwarded_headers: Option<Vec<String>>,
    /// What the guard of its results found.
    guarded: Option<GuardReport>,
}

impl CallRecord {
    fn to_event(&self, event_type: EventType) -> Event {
        let tool = self.tool.as_ref();
        let own = tool.map(|tool| tool.own_name.to_string());
        Event {
            timestamp: render_rfc3339_ms(self.at_ms),
            trace_id: self.trace.clone(),
            event_type,
            actor: caller_actor(&self.caller),
            target: Target {
                server_id: tool
                    .map(|tool| &tool.server)
                    .or(self.server.as_ref())
                    .map(ServerId::to_string),
                tool_name: own.or_else(|| self.requested_name.as_deref().map(String::from)),
                agent_id: None,
            },
            result: self.ending,
            details: self.details(),
        }
    }

    /// The extra event of a rejection by the server (MGP 0.6.1 §14.7.5), which has its text as evidence.
    fn to_rejection_event(&self, rejection: PeerRejection) -> Event {
        let mut event = self.to_event(EventType::ToolRejected);
        let mut add = |name: &str, value: Value| drop(event.details.insert(name.into(), value));
        add("code", rejection.code.into());
        add("retryable", rejection.is_retryable.into());
        add("call_id", self.trace.as_str().into());
        add("rejection", rejection.body.into());
        event
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = self.refusal_details.clone().unwrap_or_default();
        if let Some(parts) = &self.times {
            parts.add_to_details(&mut details);
        }
        let mut add = |name: &str, value: Value| drop(details.insert(name.into(), value));
        add("duration_ms", millis(self.duration).into());
        if let Some(failure) = self.failure {
            add("failure", failure.to_string().into());
        }
        if self.outcome != outcome::for_result(self.ending) {
            add(outcome::OUTCOME, self.outcome.as_str().into());
        }
        if let Some(chosen) = &self.route_reason {
            add("place", chosen.as_str().into());
        }
        if let Some(scope) = &self.scope {
            add("scope", scope.clone());
        }
        if let Some(passed) = self
            .forwarded_headers
            .as_ref()
            .filter(|names| !names.is_empty())
        {
            add("headers_passed", passed.join(",").into());
        }
        if let Some(report) = &self.guarded {
            if !report.findings.is_empty() {
                add("guarded", report.findings.describe().into());
            }
            if let Some(approved) = report.approved {
                let decision = if approved { "approved" } else { "denied" };
                add("held_result", decision.into());
            }
            if report.intercepted {
                add("intercepted", true.into());
            }
        }
        if let Some(task) = &self.continued_as {
            add(outcome::TASK, (**task).into());
        }
        if let Some(tool) = &self.tool {
            if tool.exposed_name != tool.own_name {
                add("shown_as", (*tool.exposed_name).into());
            }
            add("risk_level", tool.requirements.risk.level.as_str().into());
            let validators = validator_names(tool);
            if !validators.is_empty() {
                add("validator_applied", validators.into());
            }
            let unknown = tool.requirements.validators.unknown_names();
            if !unknown.is_empty() {
                add("validator_unknown", unknown.join(",").into());
            }
        }
        details
    }
}

impl AuditEntry for CallRecord {
    fn into_event(self: Box<Self>) -> (Event, Option<RecordedArguments>) {
        let event_type = match self.ending {
            Ending::Blocked | Ending::Denied => EventType::ToolBlocked,
            Ending::Success | Ending::Failure | Ending::Timeout | Ending::Cancelled => {
                EventType::ToolExecuted
            }
        };
        (self.to_event(event_type), self.stored_arguments)
    }

    fn as_successful_call(&self) -> Option<SuccessfulCall<'_>> {
        let tool = self.tool.as_deref()?;
        let validators = &tool.requirements.validators;
        let has_more = self.ending != Ending::Success
            || self.failure.is_some()
            || self.outcome != outcome::for_result(self.ending)
            || self.refusal_details.is_some()
            || self.scope.is_some()
            || self.route_reason.is_some()
            || self.continued_as.is_some()
            || self.guarded.is_some()
            || self
                .forwarded_headers
                .as_ref()
                .is_some_and(|names| !names.is_empty())
            || self
                .stored_arguments
                .as_ref()
                .is_some_and(|stored| !stored.is_digest_only())
            || !validators.unknown_names().is_empty();
        if has_more {
            return None;
        }
        let parts_us = match &self.times {
            Some(times) => Some(times.local_parts()?),
            None => None,
        };
        Some(SuccessfulCall {
            at_ms: self.at_ms,
            trace: &self.trace,
            actor: caller_actor(&self.caller),
            server: tool.server.as_str(),
            tool: &tool.own_name,
            shown_as: (tool.exposed_name != tool.own_name).then_some(&*tool.exposed_name),
            risk_level: tool.requirements.risk.level.as_str(),
            validators: validator_names(tool),
            duration_ms: millis(self.duration),
            parts_us,
            arguments: self.stored_arguments.as_ref(),
        })
    }
}

/// The caller, as the actor of an event.
pub(crate) fn caller_actor(caller: &Caller) -> Actor {
    if caller.operator {
        operator_actor()
    } else {
        agent_actor(&caller.agent.to_string())
    }
}

/// The validators of a tool, separated by commas.
fn validator_names(tool: &CatalogTool) -> String {
    let active = tool.requirements.validators.active().iter();
    active
        .map(|validator| validator.name())
        .collect::<Vec<_>>()
        .join(",")
}

/// The type of the extra event for a check that refused the call.
fn denial_event(denial: &Denial) -> Option<EventType> {
    match denial {
        Denial::Validator { .. } => Some(EventType::ValidationFailed),
        Denial::UnsafeCode { .. } => Some(EventType::CodeRejected),
        Denial::Permission { .. }
        | Denial::NotGranted { .. }
        | Denial::Condition { .. }
        | Denial::Unconfirmed { .. }
        | Denial::NoCredentials(_)
        | Denial::CredentialsExpired(_)
        | Denial::Registration { .. }
        | Denial::RateLimited { .. }
        | Denial::OverQuota { .. }
        | Denial::Disabled { .. }
        | Denial::AskCycle(_)
        | Denial::AskDepth(_)
        | Denial::NoSubscription { .. } => None,
    }
}

/// Why a call was refused, without its arguments or its answer.
fn refusal_details(refusal: &Refusal) -> Map<String, Value> {
    let mut why = Map::new();
    let mut add = |name: &str, value: Value| drop(why.insert(name.into(), value));
    if let Refusal::Owner(owner) = refusal {
        // Its text may repeat arguments.
        let by = format!("the node of the server {}", owner.cause.description());
        add("reason", by.into());
    }
    if refusal.is_answer() {
        let error = refusal.relayed_error().unwrap_or_default();
        let code = member(error, "code").and_then(|code| code.parse::<i64>().ok());
        add("error_code", code.into());
    } else if let Refusal::BadArguments { path, keyword, .. }
    | Refusal::BadResult { path, keyword, .. } = refusal
    {
        // The refusal's text may repeat arguments or the answer.
        add("reason", "it does not fit the schema of the tool".into());
        add("at", truncate_to_buffer(path).into());
        add("keyword", keyword.as_str().into());
    } else if let Refusal::Denied(denial) = refusal
        && let Denial::NotGranted { rule, .. } | Denial::Condition { rule, .. } = &**denial
    {
        // The caller reads something else: that the tool does not exist.
        add("reason", format!("denied: {rule}").into());
    } else {
        add("reason", truncate_to_buffer(&refusal.to_string()).into());
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
            add("at", truncate_to_buffer(path).into());
            add("rule", rule.as_str().into());
        } else if let Denial::UnsafeCode {
            violations, path, ..
        } = &**denial
        {
            add("validator", Validator::CodeSafety.name().into());
            add("at", truncate_to_buffer(path).into());
            add("violations", violations.clone().into());
        }
    }
    why
}

/// True for a result with `isError`.
pub(crate) fn is_error_result(result: &[u8]) -> bool {
    can_contain_string(result, "\"isError\"")
        && serde_json::from_slice::<CallResult<'_>>(result).is_ok_and(|called| called.is_error)
}

fn millis(lasted: Duration) -> u64 {
    u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX)
}
