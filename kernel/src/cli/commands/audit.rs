//! `mgp audit tail|find|verify|acknowledge`.

mod found;
mod lines;
mod parts;

use std::path::Path;
use std::time::Duration;

use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::record::RecordDigest;
use mgp_engine::store::audit::verify::LogFault;
use mgp_engine::timestamps::parse_rfc3339;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::audit::{Acknowledge, Acknowledged, Last, LastRecord, Replay, Replayed};
use mgp_protocol::mgp::kernel::{KernelStatus, Status};
use mgp_store::audit::{Examined, Folder, examine};
use serde_json::json;

use self::lines::AuditLines;
use crate::cli::args::{self, Audit};
use crate::cli::client::{CliContext, KernelClient, read};
use crate::cli::failure::Failure;
use crate::cli::print::say;
use crate::cli::words::plain;
use crate::config;

/// How often a followed log is looked at.
const POLL: Duration = Duration::from_millis(250);
/// How often a log is looked at that a running kernel writes or trims meanwhile, before what is found is
/// believed, and at which distance.
const TRIES: usize = 5;
const AGAIN: Duration = Duration::from_millis(200);

pub(super) fn run(context: &CliContext, typed: Audit) -> Result<(), Failure> {
    match typed {
        Audit::Tail(typed) => tail(context, &typed),
        Audit::Find(typed) => found::find(context, typed),
        Audit::Verify => verify(context),
        Audit::Acknowledge(typed) => acknowledge(context, typed),
    }
}

fn tail(context: &CliContext, tail: &args::TailAudit) -> Result<(), Failure> {
    context.with_kernel(async |client| {
        // Between two looks no request is under way that would hear it.
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        let end = replayed(client, u64::MAX).await?.next_seq;
        let mut since = end.saturating_sub(tail.lines);
        let mut lines = AuditLines::new(context.json, tail.parts);
        loop {
            let part = replayed(client, since).await?;
            for event in &part.events {
                lines.show(client, event).await?;
            }
            since = part.next_seq;
            if !part.has_more {
                if !tail.follow {
                    return Ok(());
                }
                tokio::select! {
                    () = tokio::time::sleep(POLL) => {}
                    _ = &mut interrupted => return Err(Failure::Interrupted),
                }
            }
        }
    })
}

async fn replayed(client: &mut KernelClient, since: u64) -> Result<Replayed, Failure> {
    let params = Replay {
        since_seq: Some(since),
        ..Replay::default()
    };
    let answer = client.request(Replay::METHOD, &params, &mut ()).await?;
    read(&answer)
}

/// The latest time in the last records of the kernel that runs, in milliseconds since 1970. Records written after the clock
/// was set back are dated earlier than those before.
pub(super) fn newest_record_ms(context: &CliContext) -> Result<Option<u64>, Failure> {
    /// Records that are looked at.
    const LAST: u64 = 500;
    #[derive(serde::Deserialize)]
    struct Dated {
        timestamp: String,
    }
    context.with_kernel(async |client| {
        let end = replayed(client, u64::MAX).await?.next_seq;
        let part = replayed(client, end.saturating_sub(LAST)).await?;
        let dates = part.events.iter().filter_map(|event| {
            let dated: Dated = serde_json::from_str(event.get()).ok()?;
            parse_rfc3339(&dated.timestamp)
        });
        Ok(dates.max())
    })
}

fn acknowledge(context: &CliContext, asked: args::Acknowledge) -> Result<(), Failure> {
    let reason = asked.reason;
    let done: Acknowledged = context.with_kernel(async |client| {
        let params = Acknowledge { reason };
        read(
            &client
                .request(Acknowledge::METHOD, &params, &mut ())
                .await?,
        )
    })?;
    if context.json {
        return say(json!(done).to_string());
    }
    match done.acknowledged.is_empty() {
        true => say("nothing is wrong with the log"),
        false => say(format_args!(
            "{}\nacknowledged, and written down",
            done.acknowledged
                .iter()
                .map(|line| plain(line))
                .collect::<Vec<_>>()
                .join("\n")
        )),
    }
}

fn verify(context: &CliContext) -> Result<(), Failure> {
    let loaded = config::load(&context.look_up, &|name| std::env::var(name).ok(), None)
        .map_err(|e| Failure::Other(e.to_string()))?;
    // A kernel that hangs may still have its log verified.
    let status = context.status().ok().flatten();
    let data_dir = context.data_dir_in_use(&loaded.kernel, status.as_ref())?;
    let folder = Folder::of(&data_dir);
    let running = running(context, &data_dir)?;
    let found = examined(&folder, running)?;
    if found.report.records == 0 && found.is_whole() && running.is_none() {
        return nothing(context, &folder, loaded.kernel.audit.enabled);
    }
    let report = &found.report;
    match context.json {
        true => say(json!({
            "whole": found.is_whole(),
            "records": report.records,
            "last": report.head.sequence,
            "faults": report.faults.iter().map(LogFault::to_json).collect::<Vec<_>>(),
            "acknowledged": report.accepted.iter().map(LogFault::to_json).collect::<Vec<_>>(),
            "damage": report.damage,
            "head": found.beside.first(),
            "beside": found.beside,
        })
        .to_string())?,
        false => say(in_words(&found))?,
    }
    match found.is_whole() {
        true => Ok(()),
        false => Err(Failure::Damaged),
    }
}

/// There is no record, and nothing that says that there was one.
fn nothing(context: &CliContext, folder: &Folder, enabled: bool) -> Result<(), Failure> {
    let place = folder.folder().display();
    let why = match (enabled, folder.numbers()?.is_empty()) {
        (false, _) => "no audit log is kept: `enabled` in [audit] is false".to_owned(),
        (true, true) => format!("there is no log in {place}: no kernel has run there yet"),
        (true, false) => "0 records: nothing was written yet".to_owned(),
    };
    match context.json {
        true => say(
            json!({"whole": true, "records": 0, "last": 0, "faults": [], "head": null,
            "message": why})
            .to_string(),
        ),
        false => say(why),
    }
}

/// What is wrong with the log of a data folder, in words.
pub(super) fn faults(context: &CliContext, data_dir: &Path) -> Result<Vec<String>, Failure> {
    let running = running(context, data_dir)?;
    Ok(examined(&Folder::of(data_dir), running)?.told())
}

fn in_words(found: &Examined) -> String {
    let mut lines = found.told();
    let (report, is_whole) = (&found.report, lines.is_empty());
    let known = report.accepted.iter();
    lines.extend(known.map(|fault| format!("{fault} (acknowledged)")));
    let (records, last) = (report.records, report.head.sequence);
    lines.push(match (is_whole, report.accepted.is_empty()) {
        (true, true) => format!("{records} records, the last is {last}: whole"),
        (true, false) => format!(
            "{records} records are as they were written, the last is {last}; the rest is acknowledged"
        ),
        (false, _) => format!("{records} records are as they were written, the last is {last}"),
    });
    let lines = lines.iter().map(|line| plain(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// The last record of the kernel that runs on this folder; `None` when none does.
fn running(context: &CliContext, data_dir: &Path) -> Result<Option<Head>, Failure> {
    let asked = context.with_kernel(async |client| {
        let status: KernelStatus =
            read(&client.request(Status::METHOD, &json!({}), &mut ()).await?)?;
        if !is_same(Path::new(&status.data_dir), data_dir) {
            return Ok(None);
        }
        let last: LastRecord = read(&client.request(Last::METHOD, &json!({}), &mut ()).await?)?;
        let hash = RecordDigest::parse(&last.hash);
        Ok(hash.map(|hash| Head {
            sequence: last.sequence,
            hash,
        }))
    });
    match asked {
        // The kernel at the usual socket may be another one, or keep no log.
        Err(Failure::NotRunning(_) | Failure::Refused { .. }) => Ok(None),
        Err(_) if context.named_data_dir.is_some() => Ok(None),
        asked => asked,
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| real(other) == Some(one))
}

/// Looks again where a running kernel may be the reason for what is found.
fn examined(folder: &Folder, running: Option<Head>) -> Result<Examined, Failure> {
    let mut tries = 0;
    loop {
        tries += 1;
        let found = examine(folder, running);
        let whole = found.as_ref().is_ok_and(Examined::is_whole);
        if whole || tries == TRIES {
            return found.map_err(|e| Failure::Other(format!("the audit log: {e}")));
        }
        std::thread::sleep(AGAIN);
    }
}
