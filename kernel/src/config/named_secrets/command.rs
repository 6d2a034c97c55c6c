//! A command that provides secrets, such as a password manager's: it receives a name and prints a value.

use std::process::{Command, ExitStatus};
use std::time::Duration;

use mgp_engine::store::secrets::{VALUE_MAX, check_value};
use mgp_transports::log::sanitize;
use secrecy::SecretString;

use crate::config::NAME_IN_COMMAND;
use mgp_runtime::run_bounded;

/// Limit for the command, which may ask the user for a fingerprint.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest part of its stderr that is reported, in characters.
const STDERR_WIDTH_MAX: usize = 200;

/// Runs the command for one secret.
pub(super) fn run_command(words: &[String], name: &str) -> Result<SecretString, String> {
    let (program, arguments) = words.split_first().ok_or("no command is configured")?;
    let arguments = arguments
        .iter()
        .map(|word| word.replace(NAME_IN_COMMAND, name));
    let describe = |why: String| format!("`{program}`, asked for the secret {name}, {why}");
    // One byte more than a value and its line ending, to detect longer ones.
    let output = run_bounded(
        Command::new(program).args(arguments),
        COMMAND_TIMEOUT,
        VALUE_MAX + 3,
    );
    let output = output.map_err(|e| describe(format!("cannot be started: {e}")))?;
    let Some(status) = output.status else {
        return Err(describe(format!(
            "gave no answer within {} s",
            COMMAND_TIMEOUT.as_secs()
        )));
    };
    if !status.success() {
        return Err(describe(command_failure(status, &output.stderr)));
    }
    let text =
        String::from_utf8(output.stdout).map_err(|_| describe("printed no text".to_owned()))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    check_value(line).map_err(|why| describe(format!("printed no secret: {why}")))?;
    Ok(SecretString::from(line))
}

/// Describes the failure with stderr, which has no secrets: values go to stdout.
fn command_failure(status: ExitStatus, said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    match last {
        Some(line) => {
            let line: String = line.chars().take(STDERR_WIDTH_MAX).collect();
            format!("failed ({status}): {}", sanitize(line.as_bytes()))
        }
        None => format!("failed ({status})"),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn run(script: &str) -> Result<String, String> {
        let words = ["sh", "-c", script, "{name}"].map(str::to_owned);
        run_command(&words, "github").map(|secret| secret.expose_secret().to_owned())
    }

    #[test]
    fn the_output_without_its_line_ending_is_the_secret() {
        assert_eq!(run("echo s3cret-$0").as_deref(), Ok("s3cret-github"));
        assert_eq!(run("printf 'a b\\r\\n'").as_deref(), Ok("a b"));
        assert_eq!(run("printf 'a\\nb'").as_deref(), Ok("a\nb"));
    }

    #[test]
    fn failures_are_reported_without_the_output() {
        let error = run("echo s3cret; printf 'sign in\\033[1m first' >&2; exit 3").unwrap_err();
        assert!(
            error.contains("sign in") && error.contains("github"),
            "{error}"
        );
        assert!(
            !error.contains("s3cret") && !error.contains('\u{1b}'),
            "{error}"
        );
        assert!(run("true").unwrap_err().contains("printed no secret"));
        let none = run_command(&["/nowhere/op".into(), "{name}".into()], "x").unwrap_err();
        assert!(none.contains("cannot be started"), "{none}");
    }
}
