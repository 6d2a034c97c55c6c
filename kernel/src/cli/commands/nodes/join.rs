//! `mgp nodes join`: presents the ticket, shows the three words, and waits for the decision at the other node.

use std::io::{BufRead, IsTerminal, Read};
use std::time::Duration;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{Admission, Join, JoinStage, JoinStatus};
use mgp_runtime::time::unix_ms;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use super::invite::remaining_time;
use crate::cli::args;
use crate::cli::client::{CliContext, KernelClient, ProgressLine, name_resolution, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::{print_error, print_line};
use crate::cli::text_format::sanitize_line;

/// Interval of polling the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// How long `--no-wait` waits until the inviter was contacted: three unreachable addresses, one after the other.
const INVITER_TIMEOUT: Duration = Duration::from_secs(10);
/// The prefix of every ticket.
const TICKET_PREFIX: &str = "mgp1-";
/// Longest ticket, in bytes: 64 addresses of the longest kind.
const TICKET_BYTES_MAX: usize = 32 << 10;

/// Without a ticket it continues a waiting join.
pub(super) fn join(context: &CliContext, typed: args::Join) -> Result<(), Failure> {
    let params = match typed.ticket {
        Some(ticket) => Some(Join {
            ticket: read_ticket(ticket)?,
            name: typed.name,
        }),
        None => None,
    };
    let (answer, interrupted) = context.with_kernel(async |client| {
        let answer = begin_join(client, params.as_ref()).await?;
        if typed.no_wait {
            let (answer, interrupted) = poll_until_inviter_asked(client, answer).await?;
            print_stage(&parse_result(&answer)?, None);
            Ok((answer, interrupted))
        } else {
            poll_until_done(client, answer).await
        }
    })?;
    let admitting: JoinStatus = parse_result(&answer)?;
    if typed.no_wait && admitting.stage == JoinStage::Reaching && !interrupted {
        return Err(inviter_not_reached(&admitting));
    }
    if interrupted {
        print_error(
            "the question stays open there: `mgp nodes join` comes back to it, and this node enters as soon \
             as somebody says yes",
        );
        return Err(Failure::Interrupted);
    }
    if context.json && !is_failed(admitting.stage) {
        return print_line(answer.get());
    }
    report_outcome(&admitting)
}

/// Presents the ticket, or continues the join in progress.
async fn begin_join(
    client: &mut KernelClient,
    join: Option<&Join>,
) -> Result<Box<RawValue>, Failure> {
    let answer = match join {
        Some(join) => {
            let asked = client.call(Join::METHOD, join, "showing the ticket").await;
            asked.map_err(name_resolution::to_usage_failure)?
        }
        None => {
            let none = json!({});
            client
                .call(Admission::METHOD, &none, "asking the kernel")
                .await?
        }
    };
    match parse_result::<Option<JoinStatus>>(&answer)? {
        Some(_) => Ok(answer),
        None => Err(Failure::Usage(
            "this node does not ask to be let in anywhere: `mgp nodes join TICKET`, with a ticket that \
             `mgp nodes invite` printed at the other node"
                .into(),
        )),
    }
}

/// Follows a join until the inviter was contacted, which knows whether the ticket is valid; true if Ctrl-C ended that
/// first.
async fn poll_until_inviter_asked(
    client: &mut KernelClient,
    mut answer: Box<RawValue>,
) -> Result<(Box<RawValue>, bool), Failure> {
    let ends = Instant::now() + INVITER_TIMEOUT;
    while parse_result::<JoinStatus>(&answer)?.stage == JoinStage::Reaching && Instant::now() < ends
    {
        tokio::select! {
            () = sleep(POLL_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => return Ok((answer, true)),
        }
        answer = client
            .request(Admission::METHOD, &json!({}), &mut ())
            .await?;
    }
    Ok((answer, false))
}

/// The inviter was not contacted yet.
fn inviter_not_reached(now: &JoinStatus) -> Failure {
    let inviter = sanitize_line(&now.inviter);
    let why = now
        .why
        .as_deref()
        .map(|why| format!(" ({})", sanitize_line(why)));
    let why = why.unwrap_or_default();
    Failure::Other(format!(
        "{inviter} was not reached within {} s{why}: the kernel tries on until the ticket's time is over; \
         `mgp nodes join` shows what comes of it",
        INVITER_TIMEOUT.as_secs()
    ))
}

/// Follows a join to its end; true if Ctrl-C ended that first.
async fn poll_until_done(
    client: &mut KernelClient,
    mut answer: Box<RawValue>,
) -> Result<(Box<RawValue>, bool), Failure> {
    let mut last: Option<JoinStatus> = None;
    let mut progress: Option<ProgressLine> = None;
    loop {
        let now: JoinStatus = parse_result(&answer)?;
        if now.stage.is_final() {
            return Ok((answer, false));
        }
        if last.as_ref() != Some(&now) {
            // The previous line is complete.
            drop(progress.take());
            print_stage(&now, last.as_ref());
            let mut line = ProgressLine::new(stage_label(&now));
            line.show();
            progress = Some(line);
        }
        last = Some(now);
        tokio::select! {
            () = sleep(POLL_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => return Ok((answer, true)),
        }
        answer = match client.request(Admission::METHOD, &json!({}), &mut ()).await {
            Err(Failure::Interrupted) => return Ok((answer, true)),
            answered => answered?,
        };
    }
}

/// Prints the words once, as soon as they are known.
fn print_stage(now: &JoinStatus, before: Option<&JoinStatus>) {
    // Before the inviter has accepted the ticket there is nothing to compare them with.
    let asks = |now: &JoinStatus| now.stage == JoinStage::Waiting;
    let words = now.words.as_deref().filter(|_| asks(now));
    let printed_words = before.filter(|before| asks(before));
    let printed_words = printed_words.and_then(|before| before.words.as_deref());
    if let Some(words) = words.filter(|words| printed_words != Some(*words)) {
        let (words, inviter) = (sanitize_line(words), sanitize_line(&now.inviter));
        print_error(format_args!(
            "{words}\n\nif {inviter} shows the same three words, somebody there lets this node in with\n  \
             mgp approve {words}\n"
        ));
        if let Some(note) = &now.words_note {
            print_error(format_args!("NOTE: {}\n", sanitize_line(note)));
        }
    }
}

fn stage_label(now: &JoinStatus) -> String {
    let inviter = sanitize_line(&now.inviter);
    let left = remaining_time(&now.until, unix_ms());
    match now.stage {
        JoinStage::Reaching => {
            let why = now
                .why
                .as_deref()
                .map(|why| format!(" ({})", sanitize_line(why)));
            format!("looking for {inviter}{}", why.unwrap_or_default())
        }
        JoinStage::Waiting => format!("waiting for a yes at {inviter}, {left} left"),
        JoinStage::Entering => "let in; taking over what the cluster knows".to_owned(),
        JoinStage::Admitted | JoinStage::Refused | JoinStage::Expired | JoinStage::Failed => {
            String::new()
        }
    }
}

fn is_failed(stage: JoinStage) -> bool {
    match stage {
        JoinStage::Refused | JoinStage::Expired | JoinStage::Failed => true,
        JoinStage::Reaching | JoinStage::Waiting | JoinStage::Entering | JoinStage::Admitted => {
            false
        }
    }
}

/// The result, and what to do next.
fn report_outcome(now: &JoinStatus) -> Result<(), Failure> {
    let inviter = sanitize_line(&now.inviter);
    let why = now
        .why
        .as_deref()
        .map(|why| format!(": {}", sanitize_line(why)));
    let why = why.unwrap_or_default();
    match now.stage {
        JoinStage::Admitted => {
            let role = now.role.unwrap_or_default().as_str();
            print_line(sanitize_line(&format!(
                "this node is in, called {}, as {role}; `mgp cluster status` shows who is there",
                now.name
            )))
        }
        JoinStage::Refused => Err(Failure::Other(format!(
            "{inviter} turned this node away{why}; the ticket is used up"
        ))),
        JoinStage::Expired => Err(Failure::Other(format!(
            "nobody at {inviter} said yes in time{why}; ask for a new ticket: `mgp nodes invite` makes one"
        ))),
        JoinStage::Failed => Err(Failure::Other(format!("it came to nothing{why}"))),
        JoinStage::Reaching | JoinStage::Waiting | JoinStage::Entering => {
            print_line("the question is open there; `mgp nodes join` comes back to it")
        }
    }
}

/// The ticket as typed or from stdin. Invalid ones are rejected before anything is sent.
fn read_ticket(typed: String) -> Result<String, Failure> {
    let text = match typed.as_str() {
        "-" => read_ticket_from_stdin()?,
        _ => typed,
    };
    parse_ticket(&text)
}

fn read_ticket_from_stdin() -> Result<String, Failure> {
    let stdin = std::io::stdin();
    let mut text = String::new();
    if stdin.is_terminal() {
        print_error("the ticket, then Enter:");
        stdin.lock().read_line(&mut text)?;
    } else {
        let most = u64::try_from(TICKET_BYTES_MAX).unwrap_or(u64::MAX);
        stdin.lock().take(most + 1).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// Removes line breaks and spaces that copying may have added.
fn parse_ticket(text: &str) -> Result<String, Failure> {
    let ticket: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let wrong = |why: &str| Failure::Usage(format!("this is no ticket: {why}"));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match ticket.to_ascii_lowercase().strip_prefix(TICKET_PREFIX) {
        _ if ticket.is_empty() => Err(wrong(
            "it is empty; `mgp nodes invite` at the other node prints one",
        )),
        _ if ticket.len() > TICKET_BYTES_MAX => Err(wrong("it is too long")),
        None => Err(wrong(
            "one begins with mgp1-, and is printed by `mgp nodes invite` at the other node",
        )),
        Some("") => Err(wrong("only its beginning is there; copy all of it")),
        Some(rest) if !rest.chars().all(plain) => Err(wrong(
            "it has a character that no ticket has; copy it again, without quotes",
        )),
        Some(_) => Ok(ticket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_tickets_are_rejected_before_anything_is_sent() {
        assert_eq!(parse_ticket(" mgp1-abc\n def ").unwrap(), "mgp1-abcdef");
        assert_eq!(parse_ticket("MGP1-ABC").unwrap(), "MGP1-ABC");
        for (bad, words) in [
            ("", "empty"),
            ("  \n", "empty"),
            ("nas", "begins with mgp1-"),
            ("mgp1-", "copy all of it"),
            ("\"mgp1-abc\"", "begins with mgp1-"),
            ("mgp1-abc\"", "without quotes"),
        ] {
            let said = parse_ticket(bad).unwrap_err();
            assert_eq!(said.exit_code(), 2);
            assert!(said.to_string().contains(words), "{bad}: {said}");
            assert!(!said.to_string().contains("abc"), "no part of it is shown");
        }
    }

    #[test]
    fn every_result_says_what_to_do_next() {
        let at = |stage| {
            report_outcome(&JoinStatus {
                stage,
                inviter: "nas".into(),
                why: Some("nobody knows it".into()),
                ..JoinStatus::default()
            })
        };
        let said = |stage| at(stage).unwrap_err().to_string();
        assert!(said(JoinStage::Refused).contains("nas turned this node away: nobody knows it"));
        assert!(said(JoinStage::Expired).contains("mgp nodes invite"));
        assert!(said(JoinStage::Failed).contains("nobody knows it"));
        assert!(at(JoinStage::Admitted).is_ok() && at(JoinStage::Waiting).is_ok());
        let all = [JoinStage::Refused, JoinStage::Expired, JoinStage::Failed];
        assert!(
            all.into_iter()
                .all(|stage| stage.is_final() && is_failed(stage))
        );
    }
}
