//! `mgp upgrade` and `mgp version`: lets another program take over from the running kernel, and looks for a newer one.

use std::env;
use std::path::absolute;
use std::time::Duration;

use mgp_protocol::jsonrpc::METHOD_NOT_FOUND;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::{KernelStatus, Status, Upgrade, Upgraded};
use serde::Deserialize;
use serde_json::json;

use crate::cli::args;
use crate::cli::client::{CliContext, background, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::print_line;
use crate::cli::text_format::first_line;
use crate::version::Version;

/// What the index of releases says of the newest one; other members are ignored.
#[derive(Deserialize)]
struct NewestRelease {
    version: String,
    /// Where it is described.
    #[serde(default)]
    url: Option<String>,
}

pub(in crate::cli::commands) fn upgrade(
    context: &CliContext,
    typed: &args::Upgrade,
) -> Result<(), Failure> {
    let program = match &typed.program {
        Some(program) => absolute(program)?,
        None => env::current_exe()?,
    };
    let program = program.to_str().map(ToOwned::to_owned);
    let program = program.ok_or_else(|| Failure::Usage("the program's path is no text".into()))?;
    let wait = Duration::from_secs(typed.wait);
    let params = Upgrade {
        program,
        wait_ms: Some(typed.wait * 1000),
    };
    let (before, next) = context.with_kernel(async |client| {
        let status = client.request(Status::METHOD, &json!({}), &mut ()).await?;
        let before: KernelStatus = parse_result(&status)?;
        let doing = "asking the program whether it can take over";
        let answer = match client.call(Upgrade::METHOD, &params, doing).await {
            Ok(answer) => answer,
            Err(Failure::ErrorResponse { code, .. }) if code == METHOD_NOT_FOUND => {
                return Err(Failure::Other(format!(
                    "the running kernel is version {}, which cannot hand over yet: `mgp down`, then `mgp up --detach`",
                    before.version
                )));
            }
            Err(failure) => return Err(failure),
        };
        // The kernel closes the connection when it accepts no more: whoever connects now reaches the next program.
        match client.listen_until_closed(&mut ()).await {
            Err(Failure::ConnectionClosed) | Ok(()) => {}
            Err(other) => return Err(other),
        }
        Ok((before, parse_result::<Upgraded>(&answer)?))
    })?;
    let Some(after) = background::wait_for_next_kernel(context, wait)? else {
        let (pid, folder) = (before.pid, before.data_dir);
        return Err(Failure::Other(format!(
            "the kernel ended before the program answered; why is in the log of the kernel (process {pid}): \
             {folder}/kernel.log, if `mgp up --detach` began it; `mgp up` shows it here"
        )));
    };
    if let Some(why) = after.failed_upgrade {
        return Err(Failure::Other(format!(
            "{why}; the kernel (process {}) goes on as version {}",
            after.pid, after.version
        )));
    }
    if context.json {
        return print_line(json!({
            "pid": after.pid, "version": after.version, "before": before.version,
        }));
    }
    let (pid, was) = (after.pid, before.version);
    print_line(format_args!(
        "the kernel (process {pid}) is version {} now; it was {was}",
        next.version
    ))
}

pub(in crate::cli::commands) fn show_version(
    context: &CliContext,
    typed: &args::ShowVersion,
) -> Result<(), Failure> {
    let own = env!("CARGO_PKG_VERSION");
    if !typed.check {
        return if context.json {
            print_line(json!({"version": own}))
        } else {
            print_line(format_args!("mgp {own}"))
        };
    }
    let url = &context.updates.url;
    if url.is_empty() {
        return Err(Failure::Other(
            "no address is configured, or it was refused: set `url` in [updates], with https, to the `latest.json` of the releases you install; `mgp doctor` shows what is wrong with a configuration".into(),
        ));
    }
    let newest: Option<NewestRelease> = context.download(url, url)?;
    let newest = newest.ok_or_else(|| Failure::Other(format!("{url}: there is no such file")))?;
    let shown = first_line(&newest.version, 40);
    let version = Version::parse(&newest.version)
        .ok_or_else(|| Failure::Other(format!("{url}: {shown} is no version")))?;
    let is_newer = Some(version) > Version::parse(own);
    let page = newest.url.as_deref().map(|page| first_line(page, 200));
    if context.json {
        print_line(json!({"version": own, "newest": shown, "newer": is_newer, "url": page}))
    } else if is_newer {
        let page = page.map(|page| format!(": {page}")).unwrap_or_default();
        print_line(format_args!("mgp {own}; {shown} is there{page}"))
    } else {
        print_line(format_args!("mgp {own} is the newest version"))
    }
}
