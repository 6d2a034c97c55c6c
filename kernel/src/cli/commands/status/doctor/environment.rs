//! Compares the variables that the kernel passes to servers with those of this shell.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use mgp_platform::processes;

use super::CheckContext;
use super::finding::Finding;
use crate::kernel::user_environment::{RESTORED_VARIABLES, differences, select_stored, unread};

const AREA: &str = "environment";
/// A start in a terminal stores its variables again.
const RENEW: &str = "mgp down && mgp up --detach in the shell whose values are right";

pub(super) fn check(cx: &CheckContext<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(why) = unread(&cx.data_dir) {
        let message =
            format!("a kernel that a client starts has not the variables of a terminal: {why}");
        found.push(Finding::warning(AREA, message).with_command(RENEW));
    }
    let kernels = cx.status.as_ref();
    let Some(kernels) = kernels.and_then(|it| process_environment(it.pid)) else {
        return found;
    };
    if let Some((_, names)) = kernels.iter().find(|(name, _)| name == RESTORED_VARIABLES) {
        let message = format!(
            "the kernel was started without {}, and has them from an earlier start",
            names.to_string_lossy().replace(',', ", ")
        );
        found.push(Finding::good(AREA, message));
    }
    let differing = differences(&select_stored(std::env::vars_os()), &select_stored(kernels));
    if !differing.is_empty() {
        let message = format!(
            "the kernel and its servers have other values of {} than this shell, or none",
            differing.join(", ")
        );
        found.push(Finding::warning(AREA, message).with_command(RENEW));
    }
    found
}

/// The variables of a running process of this user.
pub(super) fn process_environment(pid: u32) -> Option<Vec<(OsString, OsString)>> {
    let environment = processes::read_environment(pid.cast_signed())?;
    let pairs = environment.split(|byte| *byte == 0).filter_map(|variable| {
        let at = variable.iter().position(|byte| *byte == b'=')?;
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_owned());
        Some((text(&variable[..at]), text(&variable[at + 1..])))
    });
    Some(pairs.collect())
}
