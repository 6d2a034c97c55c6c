//! The variables that the kernel passes on to servers, against those of this shell.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

use super::Patient;
use super::finding::DoctorFinding;
use crate::kernel::user_environment::{RESTORED, differences, select, unread};

const AREA: &str = "environment";
/// A start in a terminal stores its variables anew.
const RENEW: &str = "mgp down && mgp up --detach in the shell whose values are right";

pub(super) fn look(patient: &Patient<'_>) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    if let Some(why) = unread(&patient.data_dir) {
        let told =
            format!("a kernel that a client starts has not the variables of a terminal: {why}");
        found.push(DoctorFinding::warning(AREA, told).mended_by(RENEW));
    }
    let kernels = patient.status.as_ref();
    let Some(kernels) = kernels.and_then(|it| process_environment(it.pid)) else {
        return found;
    };
    if let Some((_, names)) = kernels.iter().find(|(name, _)| name == RESTORED) {
        let told = format!(
            "the kernel was started without {}, and has them from an earlier start",
            names.to_string_lossy().replace(',', ", ")
        );
        found.push(DoctorFinding::good(AREA, told));
    }
    let differing = differences(&select(std::env::vars_os()), &select(kernels));
    if !differing.is_empty() {
        let told = format!(
            "the kernel and its servers have other values of {} than this shell, or none",
            differing.join(", ")
        );
        found.push(DoctorFinding::warning(AREA, told).mended_by(RENEW));
    }
    found
}

/// The variables of a running process of this user.
pub(super) fn process_environment(pid: u32) -> Option<Vec<(OsString, OsString)>> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let pairs = environment.split(|byte| *byte == 0).filter_map(|variable| {
        let at = variable.iter().position(|byte| *byte == b'=')?;
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_owned());
        Some((text(&variable[..at]), text(&variable[at + 1..])))
    });
    Some(pairs.collect())
}
