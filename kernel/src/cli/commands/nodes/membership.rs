//! `mgp nodes promote|demote|drain|forget`: changes of roles, and removal.

use std::time::Duration;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{
    Demote, Drain, Drained, Forget, ForgetResult, Promote, Role, RoleChanged,
};
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::{call, render_confirmations};
use crate::cli::args;
use crate::cli::client::{CliContext, KernelClient, ProgressLine, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::print_line;
use crate::cli::text_format::sanitize_line;

/// Interval of polling the calls in flight.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

pub(super) fn promote_node(context: &CliContext, typed: args::Promote) -> Result<(), Failure> {
    let params = Promote {
        node: typed.node,
        role: parse_role(&typed.role),
    };
    let answer = call(context, Promote::METHOD, &params, "promoting it")?;
    print_change(context, &answer)
}

pub(super) fn demote_node(context: &CliContext, typed: args::Demote) -> Result<(), Failure> {
    let params = Demote {
        node: typed.node,
        role: parse_role(&typed.role),
        with_older: typed.with_older,
    };
    let answer = call(context, Demote::METHOD, &params, "demoting it")?;
    print_change(context, &answer)
}

fn print_change(context: &CliContext, answer: &RawValue) -> Result<(), Failure> {
    context.print_answer(answer, |changed: RoleChanged| {
        let confirmations = render_confirmations(&changed.confirmed);
        let role = changed.role.as_str();
        print_line(sanitize_line(&format!(
            "{} is {role} now{confirmations}",
            changed.name
        )))
    })
}

fn parse_role(typed: &str) -> Option<Role> {
    match typed {
        "admin" => Some(Role::Admin),
        "member" => Some(Role::Member),
        "leaf" => Some(Role::Leaf),
        _ => None,
    }
}

pub(super) fn drain_node(context: &CliContext, typed: &args::Drain) -> Result<(), Failure> {
    let params = Drain { end: typed.end };
    let answer = context.with_kernel(async |client| {
        let answer = client.call(Drain::METHOD, &params, "draining this node");
        let answer = answer.await?;
        if typed.no_wait || typed.end {
            Ok(answer)
        } else {
            wait_until_drained(client, answer).await
        }
    })?;
    context.print_answer(&answer, |drained: Drained| {
        print_line(describe_drain(&drained))
    })
}

/// Waits until no call is in flight, or for Ctrl-C.
async fn wait_until_drained(
    client: &mut KernelClient,
    mut answer: Box<RawValue>,
) -> Result<Box<RawValue>, Failure> {
    let query = Drain { end: false };
    let mut line = ProgressLine::new("waiting for the calls under way".to_owned());
    line.show();
    while parse_result::<Drained>(&answer)?.calls > 0 {
        tokio::select! {
            () = sleep(POLL_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => return Ok(answer),
        }
        answer = client.request(Drain::METHOD, &query, &mut ()).await?;
    }
    Ok(answer)
}

fn describe_drain(drained: &Drained) -> String {
    match (drained.draining, drained.calls) {
        (false, _) => "this node takes calls of other nodes' agents again".to_owned(),
        (true, 0) => "this node is drained: no call of another node's agent is under way; \
                      `mgp nodes drain --end`, or a start of the kernel, takes calls again"
            .to_owned(),
        (true, calls) => format!(
            "this node takes no new calls of other nodes' agents; {calls} are under way: `mgp nodes drain` waits for them"
        ),
    }
}

pub(super) fn forget_nodes(context: &CliContext, typed: args::Forget) -> Result<(), Failure> {
    let params = Forget { node: typed.node };
    let answer = call(context, Forget::METHOD, &params, "asking the kernel")?;
    context.print_answer(&answer, |forgotten: ForgetResult| {
        print_line(sanitize_line(&match forgotten.nodes.as_slice() {
            [] => "no node that is listed has left or was cut off".to_owned(),
            nodes => format!("listed no more: {}", nodes.join(", ")),
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_reports_calls_in_flight() {
        let confirmations = |draining, calls| describe_drain(&Drained { draining, calls });
        assert!(confirmations(true, 3).contains("3 are under way"));
        assert!(confirmations(true, 0).starts_with("this node is drained"));
        assert!(confirmations(false, 0).contains("again"));
    }
}
