//! `mgp nodes join`: shows the ticket, then the three words, and waits for a person's answer at the other node.

use std::io::{BufRead, IsTerminal, Read};
use std::time::Duration;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{Admission, Admitting, Join, Stage};
use mgp_runtime::time::unix_ms;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use super::invite::left;
use crate::cli::args;
use crate::cli::client::{CliContext, KernelClient, ProgressLine, names, read};
use crate::cli::failure::Failure;
use crate::cli::print::{report, say};
use crate::cli::words::plain;

/// Between two questions how far it is.
const PACE: Duration = Duration::from_millis(300);
/// How long `--no-wait` waits until the inviter was asked: three addresses that do not answer, one after the other.
const REACHING: Duration = Duration::from_secs(10);
/// What every ticket begins with.
const BEGINNING: &str = "mgp1-";
/// Longest ticket, in bytes: 64 addresses of the longest kind.
const LONGEST: usize = 32 << 10;

/// A join without a ticket comes back to the one that waits.
pub(super) fn join(context: &CliContext, typed: args::Join) -> Result<(), Failure> {
    let params = match typed.ticket {
        Some(ticket) => Some(Join {
            ticket: ticket_of(ticket)?,
            name: typed.name,
        }),
        None => None,
    };
    let (answer, interrupted) = context.with_kernel(async |client| {
        let answer = begin(client, params.as_ref()).await?;
        match typed.no_wait {
            true => {
                let (answer, interrupted) = ask_there(client, answer).await?;
                tell(&read(&answer)?, None);
                Ok((answer, interrupted))
            }
            false => wait(client, answer).await,
        }
    })?;
    let admitting: Admitting = read(&answer)?;
    if typed.no_wait && admitting.stage == Stage::Reaching && !interrupted {
        return Err(not_reached(&admitting));
    }
    if interrupted {
        report(
            "the question stays open there: `mgp nodes join` comes back to it, and this node enters as soon \
             as somebody says yes",
        );
        return Err(Failure::Interrupted);
    }
    if context.json && !failed(admitting.stage) {
        return say(answer.get());
    }
    outcome(&admitting)
}

/// Shows the ticket, or asks for the join that is under way.
async fn begin(client: &mut KernelClient, join: Option<&Join>) -> Result<Box<RawValue>, Failure> {
    let answer = match join {
        Some(join) => {
            let asked = client.ask(Join::METHOD, join, "showing the ticket").await;
            asked.map_err(names::wrong)?
        }
        None => {
            let none = json!({});
            client
                .ask(Admission::METHOD, &none, "asking the kernel")
                .await?
        }
    };
    match read::<Option<Admitting>>(&answer)? {
        Some(_) => Ok(answer),
        None => Err(Failure::Usage(
            "this node does not ask to be let in anywhere: `mgp nodes join TICKET`, with a ticket that \
             `mgp nodes invite` printed at the other node"
                .into(),
        )),
    }
}

/// Follows a join until the inviter was asked, which knows whether the ticket is good; true when Ctrl-C ended that first.
async fn ask_there(
    client: &mut KernelClient,
    mut answer: Box<RawValue>,
) -> Result<(Box<RawValue>, bool), Failure> {
    let ends = Instant::now() + REACHING;
    while read::<Admitting>(&answer)?.stage == Stage::Reaching && Instant::now() < ends {
        tokio::select! {
            () = sleep(PACE) => {}
            _ = tokio::signal::ctrl_c() => return Ok((answer, true)),
        }
        answer = client
            .request(Admission::METHOD, &json!({}), &mut ())
            .await?;
    }
    Ok((answer, false))
}

/// The inviter was not asked yet.
fn not_reached(now: &Admitting) -> Failure {
    let inviter = plain(&now.inviter);
    let why = now.why.as_deref().map(|why| format!(" ({})", plain(why)));
    let why = why.unwrap_or_default();
    Failure::Other(format!(
        "{inviter} was not reached within {} s{why}: the kernel tries on until the ticket's time is over; \
         `mgp nodes join` shows what comes of it",
        REACHING.as_secs()
    ))
}

/// Follows a join to its end; true when Ctrl-C ended that first.
async fn wait(
    client: &mut KernelClient,
    mut answer: Box<RawValue>,
) -> Result<(Box<RawValue>, bool), Failure> {
    let mut last: Option<Admitting> = None;
    let mut progress: Option<ProgressLine> = None;
    loop {
        let now: Admitting = read(&answer)?;
        if now.stage.is_over() {
            return Ok((answer, false));
        }
        if last.as_ref() != Some(&now) {
            // The line before it has ended where it stood.
            drop(progress.take());
            tell(&now, last.as_ref());
            let mut line = ProgressLine::of(doing(&now));
            line.appear();
            progress = Some(line);
        }
        last = Some(now);
        tokio::select! {
            () = sleep(PACE) => {}
            _ = tokio::signal::ctrl_c() => return Ok((answer, true)),
        }
        answer = match client.request(Admission::METHOD, &json!({}), &mut ()).await {
            Err(Failure::Interrupted) => return Ok((answer, true)),
            answered => answered?,
        };
    }
}

/// Says the words once, as soon as they are known.
fn tell(now: &Admitting, before: Option<&Admitting>) {
    // Before the inviter has taken the ticket there is nothing to compare them with.
    let asks = |now: &Admitting| now.stage == Stage::Waiting;
    let words = now.words.as_deref().filter(|_| asks(now));
    let told = before.filter(|before| asks(before));
    let told = told.and_then(|before| before.words.as_deref());
    if let Some(words) = words.filter(|words| told != Some(*words)) {
        let (words, inviter) = (plain(words), plain(&now.inviter));
        report(format_args!(
            "{words}\n\nif {inviter} shows the same three words, somebody there lets this node in with\n  \
             mgp approve {words}\n"
        ));
        if let Some(note) = &now.words_note {
            report(format_args!("NOTE: {}\n", plain(note)));
        }
    }
}

fn doing(now: &Admitting) -> String {
    let inviter = plain(&now.inviter);
    let left = left(&now.until, unix_ms());
    match now.stage {
        Stage::Reaching => {
            let why = now.why.as_deref().map(|why| format!(" ({})", plain(why)));
            format!("looking for {inviter}{}", why.unwrap_or_default())
        }
        Stage::Waiting => format!("waiting for a yes at {inviter}, {left} left"),
        Stage::Entering => "let in; taking over what the cluster knows".to_owned(),
        Stage::Admitted | Stage::Refused | Stage::Expired | Stage::Failed => String::new(),
    }
}

fn failed(stage: Stage) -> bool {
    match stage {
        Stage::Refused | Stage::Expired | Stage::Failed => true,
        Stage::Reaching | Stage::Waiting | Stage::Entering | Stage::Admitted => false,
    }
}

/// What came of it, and what to do next.
fn outcome(now: &Admitting) -> Result<(), Failure> {
    let inviter = plain(&now.inviter);
    let why = now.why.as_deref().map(|why| format!(": {}", plain(why)));
    let why = why.unwrap_or_default();
    match now.stage {
        Stage::Admitted => {
            let role = now.role.unwrap_or_default().as_str();
            say(plain(&format!(
                "this node is in, called {}, as {role}; `mgp cluster status` shows who is there",
                now.name
            )))
        }
        Stage::Refused => Err(Failure::Other(format!(
            "{inviter} turned this node away{why}; the ticket is used up"
        ))),
        Stage::Expired => Err(Failure::Other(format!(
            "nobody at {inviter} said yes in time{why}; ask for a new ticket: `mgp nodes invite` makes one"
        ))),
        Stage::Failed => Err(Failure::Other(format!("it came to nothing{why}"))),
        Stage::Reaching | Stage::Waiting | Stage::Entering => {
            say("the question is open there; `mgp nodes join` comes back to it")
        }
    }
}

/// The ticket that was typed, or comes from stdin. What is none is told before anything is sent.
fn ticket_of(typed: String) -> Result<String, Failure> {
    let text = match typed.as_str() {
        "-" => from_stdin()?,
        _ => typed,
    };
    judged(&text)
}

fn from_stdin() -> Result<String, Failure> {
    let stdin = std::io::stdin();
    let mut text = String::new();
    match stdin.is_terminal() {
        true => {
            report("the ticket, then Enter:");
            stdin.lock().read_line(&mut text)?;
        }
        false => {
            let most = u64::try_from(LONGEST).unwrap_or(u64::MAX);
            stdin.lock().take(most + 1).read_to_string(&mut text)?;
        }
    }
    Ok(text)
}

/// The ticket without what copying may have put in between.
fn judged(text: &str) -> Result<String, Failure> {
    let ticket: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let wrong = |why: &str| Failure::Usage(format!("this is no ticket: {why}"));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match ticket.to_ascii_lowercase().strip_prefix(BEGINNING) {
        _ if ticket.is_empty() => Err(wrong(
            "it is empty; `mgp nodes invite` at the other node prints one",
        )),
        _ if ticket.len() > LONGEST => Err(wrong("it is too long")),
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
    fn what_is_no_ticket_is_told_before_anything_is_sent() {
        assert_eq!(judged(" mgp1-abc\n def ").unwrap(), "mgp1-abcdef");
        assert_eq!(judged("MGP1-ABC").unwrap(), "MGP1-ABC");
        for (bad, words) in [
            ("", "empty"),
            ("  \n", "empty"),
            ("nas", "begins with mgp1-"),
            ("mgp1-", "copy all of it"),
            ("\"mgp1-abc\"", "begins with mgp1-"),
            ("mgp1-abc\"", "without quotes"),
        ] {
            let said = judged(bad).unwrap_err();
            assert_eq!(said.code(), 2);
            assert!(said.to_string().contains(words), "{bad}: {said}");
            assert!(!said.to_string().contains("abc"), "no part of it is shown");
        }
    }

    #[test]
    fn every_end_says_what_to_do_next() {
        let at = |stage| {
            outcome(&Admitting {
                stage,
                inviter: "nas".into(),
                why: Some("nobody knows it".into()),
                ..Admitting::default()
            })
        };
        let said = |stage| at(stage).unwrap_err().to_string();
        assert!(said(Stage::Refused).contains("nas turned this node away: nobody knows it"));
        assert!(said(Stage::Expired).contains("mgp nodes invite"));
        assert!(said(Stage::Failed).contains("nobody knows it"));
        assert!(at(Stage::Admitted).is_ok() && at(Stage::Waiting).is_ok());
        let all = [Stage::Refused, Stage::Expired, Stage::Failed];
        assert!(
            all.into_iter()
                .all(|stage| stage.is_over() && failed(stage))
        );
    }
}
