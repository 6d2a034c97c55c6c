//! `mgp doctor`: looks at everything a kernel needs, and says what to do.

mod clients;
mod configuration;
mod doors;
mod environment;
mod files;
mod finding;
mod network;
mod programs;
mod report;
mod running;
mod sandbox;

use std::path::PathBuf;

use mgp_discovery::config::LookUp;
use mgp_protocol::mgp::kernel::KernelStatus;
use serde_json::{Value, json};

pub(in crate::cli::commands) use self::programs::program;

use self::finding::{DoctorFinding, Soundness};
use crate::cli::args::Doctor;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{report, say, titled};
use crate::config::{self, LoadedConfig};

/// What is looked at.
struct Patient<'c> {
    context: &'c CliContext,
    /// Where the configuration is looked for.
    look_up: LookUp,
    /// The kernel that runs, where one does.
    status: Option<KernelStatus>,
    /// The files as they are written, with something in the place of every variable and secret.
    loaded: LoadedConfig,
    data_dir: PathBuf,
}

/// Looks, mends where that is asked for, and tells.
pub(in crate::cli::commands) fn doctor(
    context: &CliContext,
    typed: &Doctor,
) -> Result<(), Failure> {
    let patient = Patient::of(context)?;
    let mut findings = patient.findings();
    if typed.fix {
        findings.iter_mut().for_each(DoctorFinding::mend);
    }
    findings.sort_by_key(|finding| finding.condition);
    let broken = findings.iter().any(|it| it.condition == Soundness::Broken);
    let file = match &typed.report {
        Some(file) => Some(report::write(&patient, &findings, file)?),
        None => None,
    };
    match context.json {
        true => say(to_json(&findings, file.as_ref()))?,
        false => tell(&findings, file.as_ref())?,
    }
    match broken {
        true => Err(Failure::Unwell),
        false => Ok(()),
    }
}

impl<'c> Patient<'c> {
    fn of(context: &'c CliContext) -> Result<Self, Failure> {
        // A kernel that hangs is found below.
        let status = context.status().ok().flatten();
        let something = |name: &str| Some(std::env::var(name).unwrap_or_else(|_| SOME.to_owned()));
        let look_up = context.look_up_of(status.as_ref());
        let loaded =
            config::load(&look_up, &something, None).map_err(|e| Failure::Other(e.to_string()))?;
        let data_dir = context.data_dir_in_use(&loaded.kernel, status.as_ref())?;
        Ok(Self {
            context,
            look_up,
            status,
            loaded,
            data_dir,
        })
    }

    /// Each looks for itself: none keeps another from looking.
    fn findings(&self) -> Vec<DoctorFinding> {
        let looks: [fn(&Patient<'_>) -> Vec<DoctorFinding>; 11] = [
            running::kernel,
            configuration::look,
            programs::look,
            environment::look,
            doors::look,
            network::look,
            files::look,
            sandbox::look,
            running::servers,
            running::agents_and_nodes,
            clients::look,
        ];
        looks.iter().flat_map(|look| look(self)).collect()
    }
}

/// What stands for a variable that is not set, as long as only the shape of an entry matters.
const SOME: &str = "https://set";

fn tell(findings: &[DoctorFinding], file: Option<&PathBuf>) -> Result<(), Failure> {
    for finding in findings {
        let line = [finding.in_words()];
        say(titled(finding.condition.word(), 8, &line).trim_end())?;
    }
    let many = |condition| {
        findings
            .iter()
            .filter(|it| it.condition == condition)
            .count()
    };
    report(format_args!(
        "{} broken, {} to be looked at, {} good",
        many(Soundness::Broken),
        many(Soundness::Warning),
        many(Soundness::Good)
    ));
    if let Some(file) = file {
        say(format_args!("wrote {}", file.display()))?;
    }
    Ok(())
}

fn to_json(findings: &[DoctorFinding], file: Option<&PathBuf>) -> Value {
    let worst = findings.first().map(|finding| finding.condition.word());
    let findings: Vec<Value> = findings.iter().map(DoctorFinding::to_json).collect();
    json!({"worst": worst, "findings": findings, "report": file})
}
