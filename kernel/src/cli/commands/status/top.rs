//! `mgp top`: live servers, calls, latency, memory and pending entries.

mod history;
mod metrics;
mod model;
mod number_format;
mod pending_entries;
mod plain_output;
mod rows;
mod sample;
mod screen;
mod summary;
mod terminal;
mod watch;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use self::model::Model;
use self::sample::Sample;
use crate::cli::args;
use crate::cli::client::{CliContext, ConnectOptions, KernelClient};
use crate::cli::failure::Failure;
use crate::cli::print::print_line;

const NO_TERMINAL: &str = "`mgp top` draws on a terminal, and this is none: `mgp top --once` prints one table, \
                           `mgp top --json` one line of JSON each interval";

pub(in crate::cli::commands) fn run_top(
    context: &CliContext,
    typed: &args::Top,
) -> Result<(), Failure> {
    let pace = typed.interval;
    if context.json || typed.once {
        return context.block_on(print_samples(context, pace, typed.once));
    }
    if !terminal::is_available() {
        return Err(Failure::Usage(NO_TERMINAL.into()));
    }
    context.block_on(watch::run_live(context, pace))
}

/// Prints each sample or one: the first after two samples, because one gives no rate.
async fn print_samples(context: &CliContext, pace: Duration, once: bool) -> Result<(), Failure> {
    let mut client = context.connect(ConnectOptions::default()).await?;
    let mut model = Model::default();
    let since = Instant::now();
    model.add_sample(Sample::take(&mut client, since.elapsed()).await?);
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        tokio::select! {
            () = sleep(pace) => {}
            _ = &mut interrupted => return Err(Failure::Interrupted),
        }
        take_sample(&mut client, &mut model, since).await?;
        if context.json {
            print_line(plain_output::to_json(&model))?
        } else {
            print_line(plain_output::render_text(&model).trim_end())?
        }
        if once {
            return Ok(());
        }
    }
}

async fn take_sample(
    client: &mut KernelClient,
    model: &mut Model,
    since: Instant,
) -> Result<(), Failure> {
    model.add_sample(Sample::take(client, since.elapsed()).await?);
    Ok(())
}
