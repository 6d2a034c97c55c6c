//! The variables a registered server is started with.

use std::collections::BTreeMap;

use super::RuleFinding;
use mgp_screening::is_reserved_variable;

/// Most variables, and bytes of a name, of a value, and of all together: a process can be started with
/// far more, a configuration needs far less.
const VARIABLES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 128;
const VALUE_BYTES_MAX: usize = 8 << 10;
const TOTAL_BYTES_MAX: usize = 64 << 10;

pub(super) fn check(env: &BTreeMap<String, String>) -> Result<(), RuleFinding> {
    if env.len() > VARIABLES_MAX {
        let reason = format!("{} variables, over the limit of {VARIABLES_MAX}", env.len());
        return Err(RuleFinding::new(
            "size",
            "/env",
            reason,
            "pass what it needs as arguments",
        ));
    }
    let all: usize = env
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if all > TOTAL_BYTES_MAX {
        let reason = format!("{all} bytes, over the limit of {TOTAL_BYTES_MAX}");
        return Err(RuleFinding::new(
            "size",
            "/env",
            reason,
            "let it read a file",
        ));
    }
    for (name, value) in env {
        check_name(name)?;
        check_value(name, value)?;
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), RuleFinding> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
        let reason = "the name of a variable is made of letters, digits and _".to_owned();
        return Err(RuleFinding::new(
            "variable",
            "/env",
            reason,
            "use a plain name",
        ));
    }
    if is_reserved_variable(name) {
        let reason = format!("{name} decides which code runs, or what it reaches");
        let hint = "leave this variable out; the operator can set it";
        return Err(RuleFinding::new(
            "environment",
            pointer_to(name),
            reason,
            hint,
        ));
    }
    Ok(())
}

/// Values are told to nobody, and so not to the one who gets the refusal either.
fn check_value(name: &str, value: &str) -> Result<(), RuleFinding> {
    let found =
        |rule, reason: &str, hint| Err(RuleFinding::new(rule, pointer_to(name), reason, hint));
    if value.len() > VALUE_BYTES_MAX {
        let reason = format!(
            "a value of {} bytes, over the limit of {VALUE_BYTES_MAX}",
            value.len()
        );
        return found("size", &reason, "let it read a file");
    }
    if value.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')) {
        return found(
            "control",
            "a value with a control character",
            "send plain text",
        );
    }
    let reference = value.contains("${")
        || ["file:", "keyring:", "secret:"]
            .iter()
            .any(|r| value.starts_with(r));
    if reference {
        let reason = "a value that asks for a secret of the kernel";
        return found(
            "secret",
            reason,
            "ask the operator to configure what needs secrets",
        );
    }
    Ok(())
}

fn pointer_to(name: &str) -> String {
    format!("/env/{name}")
}
