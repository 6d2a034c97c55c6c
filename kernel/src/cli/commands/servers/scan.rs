//! `mgp servers scan`.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::servers::pins::{Scan, Scanned, ScannedDefinition};

use crate::cli::client::{CliContext, name_resolution, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::print_line;
use crate::cli::text_format::{first_line, sanitize_line};

/// Prints what the scan finds. Fails if something reaches the threshold, so that scripts need not read it.
pub(super) fn run(context: &CliContext, server: &str) -> Result<(), Failure> {
    let answer = context.with_kernel(async |client| {
        name_resolution::resolve_server(client, server).await?;
        let params = Scan {
            id: server.to_owned(),
        };
        client.call(Scan::METHOD, &params, "scanning it").await
    })?;
    let scanned: Scanned = parse_result(&answer)?;
    if context.json {
        print_line(serde_json::json!(scanned))?;
    } else {
        print_scanned(server, &scanned)?;
    }
    let is_over = |it: &ScannedDefinition| it.score >= scanned.threshold;
    match scanned.found.iter().any(is_over) {
        true => Err(Failure::ScanFound),
        false => Ok(()),
    }
}

fn print_scanned(server: &str, scanned: &Scanned) -> Result<(), Failure> {
    for found in &scanned.found {
        let state = match (found.score >= scanned.threshold, found.blocked) {
            (_, true) => "agents do not get it",
            (true, false) => "over the threshold, and in use",
            (false, false) => "in use",
        };
        print_line(format_args!(
            "{} {}: {} ({state})",
            sanitize_line(&found.kind),
            first_line(&found.name, 200),
            found.score
        ))?;
        for reason in &found.reasons {
            print_line(format_args!(
                "  {:>3}  {}, in {}: {}",
                reason.weight,
                sanitize_line(&reason.title),
                first_line(&reason.place, 120),
                first_line(&reason.text, 300)
            ))?;
        }
    }
    let clear = scanned.total.saturating_sub(scanned.found.len() as u64);
    print_line(format_args!(
        "{} of {}: nothing found in {clear}; {} is the threshold",
        scanned.total,
        sanitize_line(server),
        scanned.threshold
    ))
}
