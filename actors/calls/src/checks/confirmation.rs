//! Confirmation of dangerous calls by a person (MGP §4.4, A-32): the caller's client is asked where it can
//! be, else the operator.

use std::time::Duration;

use mgp_engine::policy::approvals::{ApprovalQuestion, Asker};
use mgp_engine::policy::risk::{
    CallDigest, Caution, ConfirmationAnswer, ConfirmationChannel, ConfirmationReason,
    ConfirmationStep, Confirming, OpenChannels, Settled, needs_yes,
};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::mgp::approvals::Subject;
use mgp_protocol::refusal::{Denial, Refusal};
use mgp_protocol::splice::{member, quoted};

use crate::Context;
use mgp_callers::exchange::rounds::CallRounds;
use mgp_callers::request::Request;
use mgp_policy::approvals::legible;
use mgp_runtime::time::{moment, unix_ms};
use mgp_servers::link::{ClientQuestion, question};

/// The operator's settings for confirming dangerous calls.
#[derive(Clone, Copy, Debug)]
pub struct ConfirmationRules {
    /// Which calls are asked about.
    pub caution: Caution,
    /// How long a question stays open.
    pub patience: Duration,
    /// Ask the operator where the caller's client cannot be asked.
    pub operator_queue: bool,
}

/// A call that needs a person's yes.
pub(crate) struct ConfirmationRequest<'a> {
    request: &'a Request,
    tool: &'a CatalogTool,
    digest: CallDigest,
    /// The question, in one sentence.
    text: String,
    /// The call's arguments.
    arguments: String,
}

/// Resolves when no confirmation is needed or a person said yes. `name` is the tool's name as the caller
/// knows it.
///
/// # Errors
/// [`Denial::Unconfirmed`], and [`Refusal::Cancelled`] when the call is taken back meanwhile.
pub(crate) async fn confirmed(
    cx: &Context,
    request: &Request,
    name: &str,
    tool: &CatalogTool,
    arguments: &str,
) -> Result<(), Refusal> {
    let Some(asking) = asks(cx, request, tool) else {
        return Ok(());
    };
    let caller = &request.caller;
    let wanted = ConfirmationRequest {
        request,
        tool,
        digest: CallDigest::of(&caller.principal(), &tool.canonical, arguments),
        text: question_about(tool, asking),
        arguments: legible(arguments),
    };
    let why = match settle(cx, &wanted).await? {
        Settled::Yes(_) => return Ok(()),
        Settled::No(ConfirmationChannel::Queue) => "the operator said no".to_owned(),
        Settled::No(ConfirmationChannel::Callback | ConfirmationChannel::Elicitation) => {
            "the person who was asked did not say yes".to_owned()
        }
        Settled::TooLate => format!(
            "nobody answered within {} s (`timeout_secs` in [confirmation])",
            cx.policies.confirmation.patience.as_secs()
        ),
        Settled::Nobody => "it needs a person's yes, and nobody can be asked; the operator can grant it with `mgp grants add`"
            .to_owned(),
    };
    let tool = name.to_owned();
    Err(Refusal::Denied(Box::new(Denial::Unconfirmed { tool, why })))
}

/// Why a person must be asked; `None` for most calls.
fn asks(cx: &Context, request: &Request, tool: &CatalogTool) -> Option<ConfirmationReason> {
    let (requirements, caution) = (&tool.requirements, cx.policies.confirmation.caution);
    if !requirements.confirms {
        return None;
    }
    needs_yes(&requirements.risk, caution, false)?;
    let table = cx.policies.access.table();
    let principal = request.caller.identity();
    let decision = table.decide(&principal, &tool.server, Some(&tool.own_name), unix_ms());
    needs_yes(&requirements.risk, caution, decision.is_explicit_allow())
}

async fn settle(cx: &Context, wanted: &ConfirmationRequest<'_>) -> Result<Settled, Refusal> {
    let Request {
        caller, exchange, ..
    } = wanted.request;
    let can = exchange
        .rounds()
        .map_or(caller.capabilities, CallRounds::capabilities);
    let reach = OpenChannels {
        // A yes to a dangerous call is a person's; a callback is answered by the agent, with or without one.
        callback: false,
        elicitation: can.elicitation_form,
        queue: cx.policies.confirmation.operator_queue,
    };
    let patience = cx.policies.confirmation.patience;
    let (mut confirming, mut next) = Confirming::begin(wanted.digest, reach, moment(), patience);
    loop {
        next = match next {
            ConfirmationStep::Settled(settled) => return Ok(settled),
            ConfirmationStep::Ignored => confirming.tick(confirming.until()),
            ConfirmationStep::Ask(way) => {
                let left = confirming.until().since(moment());
                tokio::select! {
                    answer = ask(cx, way, wanted, left) => {
                        confirming.answer(way, wanted.digest, answer, moment())
                    }
                    () = tokio::time::sleep(left) => confirming.tick(confirming.until()),
                    () = exchange.cancelled() => return Err(Refusal::Cancelled),
                }
            }
        };
    }
}

async fn ask(
    cx: &Context,
    way: ConfirmationChannel,
    wanted: &ConfirmationRequest<'_>,
    left: Duration,
) -> ConfirmationAnswer {
    match way {
        ConfirmationChannel::Callback => ConfirmationAnswer::NoWay,
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
    let causes = wanted.tool.requirements.risk.causes.iter();
    let mut details: Vec<String> = causes.map(|cause| cause.why.clone()).collect();
    details.push(format!("arguments: {}", wanted.arguments));
    let agent = &wanted.request.caller.agent;
    let question = ApprovalQuestion {
        subject: Subject::Confirmation,
        asker: Asker::Agent(agent.clone()),
        server: Some(wanted.tool.server.clone()),
        text: format!("{agent} wants a call: {}", wanted.text),
        details,
        parts: Vec::new(),
        options: None,
        until_ms: Some(unix_ms().saturating_add(left)),
    };
    match cx.policies.approvals.yes_or_no(question).await {
        Ok(Some(true)) => ConfirmationAnswer::Accepted,
        Ok(Some(false)) => ConfirmationAnswer::Declined,
        // The deadline decides, not this.
        Ok(None) => std::future::pending().await,
        Err(_) => ConfirmationAnswer::NoWay,
    }
}

async fn elicit(wanted: &ConfirmationRequest<'_>) -> ConfirmationAnswer {
    let message = format!("{}\nArguments: {}", wanted.text, wanted.arguments);
    let params = format!(
        r#"{{"message":{},"requestedSchema":{{"type":"object","properties":{{}}}}}}"#,
        quoted(&message)
    );
    let Request {
        caller, exchange, ..
    } = wanted.request;
    match question::put_own(caller, exchange, ClientQuestion::Elicitation, &params).await {
        Ok(Ok(result)) => {
            let action = std::str::from_utf8(&result).ok();
            match action.and_then(|result| member(result, "action")) {
                Some(r#""accept""#) => ConfirmationAnswer::Accepted,
                Some(_) | None => ConfirmationAnswer::Declined,
            }
        }
        // The client answered with an error, or cannot be reached any more.
        Ok(Err(_)) | Err(_) => ConfirmationAnswer::NoWay,
    }
}

fn question_about(tool: &CatalogTool, asking: ConfirmationReason) -> String {
    let why = match asking {
        ConfirmationReason::EachTime => "it wants a yes before each call",
        ConfirmationReason::Dangerous => "it is dangerous",
        ConfirmationReason::Moderate => "it has effects",
    };
    format!("Call {}? {why}.", tool.canonical)
}
