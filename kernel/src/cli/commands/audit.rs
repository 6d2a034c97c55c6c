//! `mgp audit tail|find|verify|acknowledge`.

mod call_timing;
mod event_lines;
mod find;

use std::path::Path;
use std::time::Duration;

use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::record::RecordDigest;
use mgp_engine::store::audit::verify::LogFault;
use mgp_engine::timestamps::parse_rfc3339;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::audit::{Acknowledge, Acknowledged, Last, LastRecord, Replay, Replayed};
use mgp_protocol::mgp::kernel::{KernelStatus, Status};
use mgp_store::audit::{LogFolder, VerificationResult, verify_folder};
use serde_json::json;

use self::event_lines::EventPrinter;
use crate::cli::args::{self, Audit};
use crate::cli::client::{CliContext, KernelClient, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::print_line;
use crate::cli::text_format::sanitize_line;
use crate::config;

/// Interval of polling a followed log.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Attempts to examine a log that a running kernel writes or trims meanwhile, before a fault is reported, and their
/// interval.
const EXAMINE_ATTEMPTS: usize = 5;
const EXAMINE_RETRY_INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn run(context: &CliContext, typed: Audit) -> Result<(), Failure> {
    match typed {
        Audit::Tail(typed) => tail(context, &typed),
        Audit::Find(typed) => find::find(context, typed),
        Audit::Verify => verify(context),
        Audit::Acknowledge(typed) => acknowledge_faults(context, typed),
    }
}

fn tail(context: &CliContext, tail: &args::TailAudit) -> Result<(), Failure> {
    context.with_kernel(async |client| {
        // Between two polls no request is open that would notice Ctrl-C.
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        let end = replay_since(client, u64::MAX).await?.next_seq;
        let mut since = end.saturating_sub(tail.lines);
        let mut lines = EventPrinter::new(context.json, tail.parts);
        loop {
            let part = replay_since(client, since).await?;
            for event in &part.events {
                lines.show(client, event).await?;
            }
            since = part.next_seq;
            if !part.has_more {
                if !tail.follow {
                    return Ok(());
                }
                tokio::select! {
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                    _ = &mut interrupted => return Err(Failure::Interrupted),
                }
            }
        }
    })
}

async fn replay_since(client: &mut KernelClient, since: u64) -> Result<Replayed, Failure> {
    let params = Replay {
        since_seq: Some(since),
        ..Replay::default()
    };
    let answer = client.request(Replay::METHOD, &params, &mut ()).await?;
    parse_result(&answer)
}

/// The latest time in the last records of the running kernel, in milliseconds since 1970. After the clock was set back,
/// later records have earlier times.
pub(super) fn newest_record_ms(context: &CliContext) -> Result<Option<u64>, Failure> {
    /// Records that are examined.
    const LAST: u64 = 500;
    #[derive(serde::Deserialize)]
    struct Dated {
        timestamp: String,
    }
    context.with_kernel(async |client| {
        let end = replay_since(client, u64::MAX).await?.next_seq;
        let part = replay_since(client, end.saturating_sub(LAST)).await?;
        let dates = part.events.iter().filter_map(|event| {
            let dated: Dated = serde_json::from_str(event.get()).ok()?;
            parse_rfc3339(&dated.timestamp)
        });
        Ok(dates.max())
    })
}

fn acknowledge_faults(context: &CliContext, asked: args::Acknowledge) -> Result<(), Failure> {
    let reason = asked.reason;
    let done: Acknowledged = context.with_kernel(async |client| {
        let params = Acknowledge { reason };
        parse_result(
            &client
                .request(Acknowledge::METHOD, &params, &mut ())
                .await?,
        )
    })?;
    if context.json {
        return print_line(json!(done).to_string());
    }
    if done.acknowledged.is_empty() {
        print_line("nothing is wrong with the log")
    } else {
        print_line(format_args!(
            "{}\nacknowledged, and written down",
            done.acknowledged
                .iter()
                .map(|line| sanitize_line(line))
                .collect::<Vec<_>>()
                .join("\n")
        ))
    }
}

fn verify(context: &CliContext) -> Result<(), Failure> {
    let loaded = config::load(&context.look_up, &|name| std::env::var(name).ok(), None)
        .map_err(|e| Failure::Other(e.to_string()))?;
    // The log can be verified even if the kernel hangs.
    let status = context.status().ok().flatten();
    let data_dir = context.running_data_dir(&loaded.kernel, status.as_ref())?;
    let folder = LogFolder::new(&data_dir);
    let running = running_kernel_head(context, &data_dir)?;
    let found = examine_with_retries(&folder, running)?;
    if found.report.records == 0 && found.is_intact() && running.is_none() {
        return report_no_records(context, &folder, loaded.kernel.audit.enabled);
    }
    let report = &found.report;
    if context.json {
        print_line(
            json!({
                "whole": found.is_intact(),
                "records": report.records,
                "last": report.head.sequence,
                "faults": report.faults.iter().map(LogFault::to_json).collect::<Vec<_>>(),
                "acknowledged": report.acknowledged.iter().map(LogFault::to_json).collect::<Vec<_>>(),
                "damage": report.damage,
                "head": found.file_faults.first(),
                "beside": found.file_faults,
            })
            .to_string(),
        )?
    } else {
        print_line(render_examination(&found))?
    }
    if found.is_intact() {
        Ok(())
    } else {
        Err(Failure::AuditLogDamaged)
    }
}

/// The log is empty, and no witness says otherwise.
fn report_no_records(
    context: &CliContext,
    folder: &LogFolder,
    enabled: bool,
) -> Result<(), Failure> {
    let place = folder.folder().display();
    let why = match (enabled, folder.numbers()?.is_empty()) {
        (false, _) => "no audit log is kept: `enabled` in [audit] is false".to_owned(),
        (true, true) => format!("there is no log in {place}: no kernel has run there yet"),
        (true, false) => "0 records: nothing was written yet".to_owned(),
    };
    if context.json {
        print_line(
            json!({"whole": true, "records": 0, "last": 0, "faults": [], "head": null,
            "message": why})
            .to_string(),
        )
    } else {
        print_line(why)
    }
}

/// Describes faults of the log in a data folder.
pub(super) fn find_faults(context: &CliContext, data_dir: &Path) -> Result<Vec<String>, Failure> {
    let running = running_kernel_head(context, data_dir)?;
    Ok(examine_with_retries(&LogFolder::new(data_dir), running)?.describe_faults())
}

fn render_examination(found: &VerificationResult) -> String {
    let mut lines = found.describe_faults();
    let (report, is_whole) = (&found.report, lines.is_empty());
    let known = report.acknowledged.iter();
    lines.extend(known.map(|fault| format!("{fault} (acknowledged)")));
    let (records, last) = (report.records, report.head.sequence);
    lines.push(match (is_whole, report.acknowledged.is_empty()) {
        (true, true) => format!("{records} records, the last is {last}: whole"),
        (true, false) => format!(
            "{records} records are as they were written, the last is {last}; the rest is acknowledged"
        ),
        (false, _) => format!("{records} records are as they were written, the last is {last}"),
    });
    let lines = lines.iter().map(|line| sanitize_line(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// The last record of the kernel that runs on this folder; `None` if none does.
fn running_kernel_head(context: &CliContext, data_dir: &Path) -> Result<Option<Head>, Failure> {
    let asked = context.with_kernel(async |client| {
        let status: KernelStatus =
            parse_result(&client.request(Status::METHOD, &json!({}), &mut ()).await?)?;
        if !is_same_folder(Path::new(&status.data_dir), data_dir) {
            return Ok(None);
        }
        let last: LastRecord =
            parse_result(&client.request(Last::METHOD, &json!({}), &mut ()).await?)?;
        let hash = RecordDigest::parse(&last.hash);
        Ok(hash.map(|hash| Head {
            sequence: last.sequence,
            hash,
        }))
    });
    match asked {
        // The kernel at the usual socket may be another one, or have no log.
        Err(Failure::NotRunning(_) | Failure::ErrorResponse { .. }) => Ok(None),
        Err(_) if context.named_data_dir.is_some() => Ok(None),
        asked => asked,
    }
}

fn is_same_folder(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| real(other) == Some(one))
}

/// Retries if a running kernel may be the reason for a fault.
fn examine_with_retries(
    folder: &LogFolder,
    running: Option<Head>,
) -> Result<VerificationResult, Failure> {
    let mut tries = 0;
    loop {
        tries += 1;
        let found = verify_folder(folder, running);
        let whole = found.as_ref().is_ok_and(VerificationResult::is_intact);
        if whole || tries == EXAMINE_ATTEMPTS {
            return found.map_err(|e| Failure::Other(format!("the audit log: {e}")));
        }
        std::thread::sleep(EXAMINE_RETRY_INTERVAL);
    }
}
