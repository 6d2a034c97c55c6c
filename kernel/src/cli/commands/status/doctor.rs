//! `mgp doctor`: checks everything a kernel needs, and suggests fixes.

mod clients;
mod configuration;
mod endpoints;
mod environment;
mod files;
mod finding;
mod network;
mod programs;
mod report;
mod running_kernel;
mod sandbox;

use std::path::PathBuf;

use mgp_discovery::ConfigLookup;
use mgp_protocol::mgp::kernel::KernelStatus;
use serde_json::{Value, json};

pub(in crate::cli::commands) use self::programs::find_program;

use self::finding::{Finding, FindingLevel};
use crate::cli::args::Doctor;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{print_error, print_line, render_titled};
use crate::config::{self, LoadedConfig};

/// The context of all checks.
struct CheckContext<'c> {
    context: &'c CliContext,
    /// How the configuration is looked up.
    look_up: ConfigLookup,
    /// The running kernel, if any.
    status: Option<KernelStatus>,
    /// The files as written, with placeholders for variables and secrets.
    loaded: LoadedConfig,
    data_dir: PathBuf,
}

/// Runs the checks, applies fixes if requested, and prints the findings.
pub(in crate::cli::commands) fn run_doctor(
    context: &CliContext,
    typed: &Doctor,
) -> Result<(), Failure> {
    let cx = CheckContext::new(context)?;
    let mut findings = cx.run_checks();
    if typed.fix {
        findings.iter_mut().for_each(Finding::fix);
    }
    findings.sort_by_key(|finding| finding.level);
    let broken = findings.iter().any(|it| it.level == FindingLevel::Broken);
    let file = match &typed.report {
        Some(file) => Some(report::write_report(&cx, &findings, file)?),
        None => None,
    };
    if context.json {
        print_line(to_json(&findings, file.as_ref()))?
    } else {
        print_findings(&findings, file.as_ref())?
    }
    if broken {
        Err(Failure::ChecksFailed)
    } else {
        Ok(())
    }
}

impl<'c> CheckContext<'c> {
    fn new(context: &'c CliContext) -> Result<Self, Failure> {
        // A kernel that hangs is reported below.
        let status = context.status().ok().flatten();
        let something =
            |name: &str| Some(std::env::var(name).unwrap_or_else(|_| PLACEHOLDER_VALUE.to_owned()));
        let look_up = context.lookup_for(status.as_ref());
        let loaded =
            config::load(&look_up, &something, None).map_err(|e| Failure::Other(e.to_string()))?;
        let data_dir = context.running_data_dir(&loaded.kernel, status.as_ref())?;
        Ok(Self {
            context,
            look_up,
            status,
            loaded,
            data_dir,
        })
    }

    /// The checks are independent of each other.
    fn run_checks(&self) -> Vec<Finding> {
        let looks: [fn(&CheckContext<'_>) -> Vec<Finding>; 12] = [
            running_kernel::check_kernel,
            configuration::check,
            programs::check,
            environment::check,
            endpoints::check,
            network::check,
            files::check,
            sandbox::check,
            sandbox::check_system,
            running_kernel::check_servers,
            running_kernel::check_agents_and_nodes,
            clients::check,
        ];
        looks.iter().flat_map(|look| look(self)).collect()
    }
}

/// The value of unset variables while only the shape of an entry matters.
const PLACEHOLDER_VALUE: &str = "https://set";

fn print_findings(findings: &[Finding], file: Option<&PathBuf>) -> Result<(), Failure> {
    for finding in findings {
        let line = [finding.render()];
        print_line(render_titled(finding.level.label(), 8, &line).trim_end())?;
    }
    let many = |condition| findings.iter().filter(|it| it.level == condition).count();
    print_error(format_args!(
        "{} broken, {} to be looked at, {} good",
        many(FindingLevel::Broken),
        many(FindingLevel::Warning),
        many(FindingLevel::Ok)
    ));
    if let Some(file) = file {
        print_line(format_args!("wrote {}", file.display()))?;
    }
    Ok(())
}

fn to_json(findings: &[Finding], file: Option<&PathBuf>) -> Value {
    let worst = findings.first().map(|finding| finding.level.label());
    let findings: Vec<Value> = findings.iter().map(Finding::to_json).collect();
    json!({"worst": worst, "findings": findings, "report": file})
}
