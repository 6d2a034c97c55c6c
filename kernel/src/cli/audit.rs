//! `mgp audit tail|verify`.

use std::io::ErrorKind;
use std::time::Duration;

use mgp_actors::audit::{Folder, read_head};
use mgp_engine::audit::verify::{Fault, Report};
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::audit::{Replay, Replayed};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::client::{Client, Opening, read};
use super::command;
use super::context::Context;
use super::failure::Failure;
use super::output::say;
use super::words::plain;
use crate::config;

/// How often a followed log is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How often a log is looked at that a running kernel writes or trims meanwhile, before what is found is
/// believed, and at which distance.
const TRIES: usize = 5;
const AGAIN: Duration = Duration::from_millis(200);

pub(super) fn tail(context: &Context, tail: &command::Tail) -> Result<(), Failure> {
    context.with_kernel(Opening::default(), async |client| {
        let end = replayed(client, u64::MAX).await?.next_seq;
        let mut since = end.saturating_sub(tail.lines);
        loop {
            let part = replayed(client, since).await?;
            for event in &part.events {
                show(event, context.json)?;
            }
            since = part.next_seq;
            if !part.has_more {
                if !tail.follow {
                    return Ok(());
                }
                tokio::time::sleep(LOOK).await;
            }
        }
    })
}

async fn replayed(client: &mut Client, since: u64) -> Result<Replayed, Failure> {
    let params = Replay {
        since_seq: Some(since),
        ..Replay::default()
    };
    let answer = client.request(Replay::METHOD, &params, &mut ()).await?;
    read(&answer)
}

fn show(event: &RawValue, json: bool) -> Result<(), Failure> {
    match json {
        true => say(event.get()),
        false => say(plain(&told(
            &serde_json::from_str(event.get()).unwrap_or_default(),
        ))),
    }
}

/// One line: when, what, how it ended, who, to what, and why.
fn told(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let target = &event["target"];
    let names = ["server_id", "tool_name", "agent_id"].map(|name| text(&target[name]));
    let target: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let details = &event["details"];
    let why = ["reason", "failure"]
        .into_iter()
        .find_map(|name| details[name].as_str());
    let why = why.map(|why| format!("  {why}")).unwrap_or_default();
    format!(
        "{} {:>6} {} {}  {} {}  {}{why}",
        text(&event["timestamp"]),
        event["_mgp"]["seq"].as_u64().unwrap_or_default(),
        text(&event["event_type"]),
        text(&event["result"]),
        text(&event["actor"]["type"]),
        text(&event["actor"]["id"]),
        target.join(" "),
    )
}

pub(super) fn verify(context: &Context) -> Result<(), Failure> {
    let loaded = config::load(&context.look_up, &|name| std::env::var(name).ok())
        .map_err(|e| Failure::Other(e.to_string()))?;
    let folder = Folder::of(&context.data_dir(&loaded.kernel)?);
    let (report, lost_head) = examine(&folder)?;
    let whole = report.faults.is_empty() && lost_head.is_none();
    match context.json {
        true => say(json!({
            "whole": whole,
            "records": report.records,
            "last": report.head.sequence,
            "faults": report.faults.iter().map(Fault::to_json).collect::<Vec<_>>(),
            "head": lost_head,
        })
        .to_string())?,
        false => say(in_words(&report, lost_head.as_deref()))?,
    }
    match whole {
        true => Ok(()),
        false => Err(Failure::Damaged),
    }
}

fn in_words(report: &Report, lost_head: Option<&str>) -> String {
    let mut lines: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
    lines.extend(lost_head.map(str::to_owned));
    let last = report.head.sequence;
    lines.push(match lines.is_empty() {
        true => format!("{} records, the last is {last}: whole", report.records),
        false => format!(
            "{} records are as they were written, the last is {last}",
            report.records
        ),
    });
    lines.join("\n")
}

/// Looks again where a running kernel may be the reason for what is found.
fn examine(folder: &Folder) -> Result<(Report, Option<String>), Failure> {
    let mut tries = 0;
    loop {
        tries += 1;
        let found = once(folder);
        let whole = matches!(&found, Ok((report, None)) if report.faults.is_empty());
        if whole || tries == TRIES {
            return found.map_err(|e| Failure::Other(format!("the audit log: {e}")));
        }
        std::thread::sleep(AGAIN);
    }
}

fn once(folder: &Folder) -> std::io::Result<(Report, Option<String>)> {
    let (known, lost) = match read_head(&folder.head()) {
        Ok(None) if !folder.numbers()?.is_empty() => {
            (None, Some("the record of the log's end is gone".to_owned()))
        }
        Ok(known) => (known, None),
        Err(e) if e.kind() == ErrorKind::InvalidData => (None, Some(e.to_string())),
        Err(e) => return Err(e),
    };
    Ok((folder.verify(known, None)?, lost))
}
