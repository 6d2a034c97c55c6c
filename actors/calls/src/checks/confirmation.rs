//! Confirmation of dangerous calls by a person (MGP §4.4, A-32): through the caller's client if possible, else by the
//! operator.

use std::time::Duration;

use mgp_engine::policy::approvals::{PendingEntry, Requester};
use mgp_engine::policy::risk::{
    AvailableChannels, CallDigest, ConfirmationAnswer, ConfirmationChannel, ConfirmationFlow,
    ConfirmationOutcome, ConfirmationPolicy, ConfirmationReason, ConfirmationStep,
    confirmation_reason,
};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_json::{member, quote};
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::refusal::{Denial, Refusal};

use crate::Context;
use mgp_callers::CallRounds;
use mgp_callers::request::Request;
use mgp_policy::escape_for_display;
use mgp_runtime::time::{monotonic_now, unix_ms};
use mgp_servers::link::{Callback, callback};

/// The operator's settings for confirming dangerous calls.
#[derive(Clone, Copy, Debug)]
pub struct ConfirmationRules {
    /// Which calls need confirmation.
    pub caution: ConfirmationPolicy,
    /// How long a confirmation stays pending.
    pub timeout: Duration,
    /// Ask the operator if the caller's client cannot be asked.
    pub operator_queue: bool,
}

/// A call that needs a person's approval.
pub(crate) struct ConfirmationRequest<'a> {
    request: &'a Request,
    tool: &'a CatalogTool,
    digest: CallDigest,
    /// The question, in one sentence.
    text: String,
    /// The call's arguments.
    arguments: String,
}

/// Resolves when no confirmation is needed or a person approved. `name` is the tool's name as the caller knows it.
///
/// # Errors
/// [`Denial::Unconfirmed`], and [`Refusal::Cancelled`] when the call is taken back meanwhile.
pub(crate) async fn confirm_call(
    cx: &Context,
    request: &Request,
    name: &str,
    tool: &CatalogTool,
    arguments: &str,
) -> Result<(), Refusal> {
    let Some(asking) = call_confirmation_reason(cx, request, tool) else {
        return Ok(());
    };
    let caller = &request.caller;
    let wanted = ConfirmationRequest {
        request,
        tool,
        digest: CallDigest::new(&caller.principal(), &tool.canonical_name, arguments),
        text: confirmation_text(tool, asking),
        arguments: escape_for_display(arguments),
    };
    let why = match run_confirmation(cx, &wanted).await? {
        ConfirmationOutcome::Confirmed(_) => return Ok(()),
        ConfirmationOutcome::Denied(ConfirmationChannel::Queue) => "the operator said no".to_owned(),
        ConfirmationOutcome::Denied(ConfirmationChannel::Callback | ConfirmationChannel::Elicitation) => {
            "the person who was asked did not say yes".to_owned()
        }
        ConfirmationOutcome::TimedOut => format!(
            "nobody answered within {} s (`timeout_secs` in [confirmation])",
            cx.policies.confirmation.timeout.as_secs()
        ),
        ConfirmationOutcome::NoChannel => "it needs a person's yes, and nobody can be asked; the operator can grant it with `mgp grants add`"
            .to_owned(),
    };
    let tool = name.to_owned();
    Err(Refusal::Denied(Box::new(Denial::Unconfirmed { tool, why })))
}

/// Why a person must confirm; `None` for most calls.
fn call_confirmation_reason(
    cx: &Context,
    request: &Request,
    tool: &CatalogTool,
) -> Option<ConfirmationReason> {
    let (requirements, caution) = (&tool.requirements, cx.policies.confirmation.caution);
    if !requirements.needs_confirmation {
        return None;
    }
    confirmation_reason(&requirements.risk, caution, false)?;
    let table = cx.policies.access.table();
    let principal = request.caller.identity();
    let decision = table.decide(&principal, &tool.server, Some(&tool.own_name), unix_ms());
    confirmation_reason(&requirements.risk, caution, decision.is_explicit_allow())
}

async fn run_confirmation(
    cx: &Context,
    wanted: &ConfirmationRequest<'_>,
) -> Result<ConfirmationOutcome, Refusal> {
    let Request {
        caller,
        call: exchange,
        ..
    } = wanted.request;
    let can = exchange
        .rounds()
        .map_or(caller.capabilities, CallRounds::capabilities);
    let reach = AvailableChannels {
        // A dangerous call needs a person's approval; a callback may be answered by the agent alone.
        callback: false,
        elicitation: can.elicitation_form,
        queue: cx.policies.confirmation.operator_queue,
    };
    let patience = cx.policies.confirmation.timeout;
    let (mut confirming, mut next) =
        ConfirmationFlow::start(wanted.digest, reach, monotonic_now(), patience);
    loop {
        next = match next {
            ConfirmationStep::Finished(settled) => return Ok(settled),
            ConfirmationStep::Ignored => confirming.handle_timeout(confirming.deadline()),
            ConfirmationStep::Ask(way) => {
                let left = confirming.deadline().duration_since(monotonic_now());
                tokio::select! {
                    answer = ask_channel(cx, way, wanted, left) => {
                        confirming.handle_answer(way, wanted.digest, answer, monotonic_now())
                    }
                    () = tokio::time::sleep(left) => confirming.handle_timeout(confirming.deadline()),
                    () = exchange.wait_until_cancelled() => return Err(Refusal::Cancelled),
                }
            }
        };
    }
}

async fn ask_channel(
    cx: &Context,
    way: ConfirmationChannel,
    wanted: &ConfirmationRequest<'_>,
    left: Duration,
) -> ConfirmationAnswer {
    match way {
        ConfirmationChannel::Callback => ConfirmationAnswer::Unavailable,
        ConfirmationChannel::Elicitation => elicit(wanted).await,
        ConfirmationChannel::Queue => ask_operator(cx, wanted, left).await,
    }
}

async fn ask_operator(
    cx: &Context,
    wanted: &ConfirmationRequest<'_>,
    left: Duration,
) -> ConfirmationAnswer {
    let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    let causes = wanted.tool.requirements.risk.reasons.iter();
    let mut details: Vec<String> = causes.map(|cause| cause.reason.clone()).collect();
    details.push(format!("arguments: {}", wanted.arguments));
    let agent = &wanted.request.caller.agent;
    let question = PendingEntry {
        subject: Subject::Confirmation,
        requester: Requester::Agent(agent.clone()),
        server: Some(wanted.tool.server.clone()),
        text: format!("{agent} wants a call: {}", wanted.text),
        details,
        parts: Vec::new(),
        options: None,
        expires_ms: Some(unix_ms().saturating_add(left)),
    };
    match cx.policies.approvals.wait_for_verdict(question).await {
        Ok(Some(true)) => ConfirmationAnswer::Accepted,
        Ok(Some(false)) => ConfirmationAnswer::Declined,
        // The deadline decides, not this.
        Ok(None) => std::future::pending().await,
        Err(_) => ConfirmationAnswer::Unavailable,
    }
}

async fn elicit(wanted: &ConfirmationRequest<'_>) -> ConfirmationAnswer {
    let message = format!("{}\nArguments: {}", wanted.text, wanted.arguments);
    let params = format!(
        r#"{{"message":{},"requestedSchema":{{"type":"object","properties":{{}}}}}}"#,
        quote(&message)
    );
    let Request {
        caller,
        call: exchange,
        ..
    } = wanted.request;
    match callback::ask_client_for_kernel(caller, exchange, Callback::Elicitation, &params).await {
        Ok(Ok(result)) => {
            let action = std::str::from_utf8(&result).ok();
            match action.and_then(|result| member(result, "action")) {
                Some(r#""accept""#) => ConfirmationAnswer::Accepted,
                Some(_) | None => ConfirmationAnswer::Declined,
            }
        }
        // The client answered with an error, or cannot be reached any more.
        Ok(Err(_)) | Err(_) => ConfirmationAnswer::Unavailable,
    }
}

fn confirmation_text(tool: &CatalogTool, asking: ConfirmationReason) -> String {
    let why = match asking {
        ConfirmationReason::EachTime => "it wants a yes before each call",
        ConfirmationReason::Dangerous => "it is dangerous",
        ConfirmationReason::Moderate => "it has effects",
    };
    format!("Call {}? {why}.", tool.canonical_name)
}
