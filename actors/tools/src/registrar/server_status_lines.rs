//! Status lines for the agent that registered a server: it cannot read logs, and corrects its code by these lines.

use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_transports::log::{Author, LogLine};

use mgp_servers::ServerHandle;

/// Reported lines of the server's last output: the end of a stack trace.
const LINES: usize = 20;
/// Characters of each of them.
const LINE_CHARS_MAX: usize = 400;
/// Lines of the log that are searched for the output.
const LOG_LINES_MAX: usize = 200;
/// Prefix of the log note about a stdout line that is no message; a `print` in a server causes it.
const NOISE_PREFIX: &str = "not a message on stdout";

/// Why a server does not accept calls, and its last output; empty for one that does.
#[must_use]
pub fn status_remarks(handle: &ServerHandle) -> Vec<String> {
    let now = handle.status();
    let reason = match now.state {
        LifecycleState::Connected => return Vec::new(),
        LifecycleState::Connecting if now.awaits_operator => return vec![now.reason],
        LifecycleState::Connecting => "it has not completed its handshake yet".to_owned(),
        LifecycleState::Registered
        | LifecycleState::Draining
        | LifecycleState::Disconnected
        | LifecycleState::Error
        | LifecycleState::Restarting => now.reason,
    };
    let mut lines: Vec<String> = Some(reason)
        .into_iter()
        .filter(|reason| !reason.is_empty())
        .collect();
    let output = last_output(&handle.log.tail(LOG_LINES_MAX));
    if !output.is_empty() {
        lines.push(format!("it wrote:\n{}", output.join("\n")));
    }
    lines
}

/// The output of the server's last instance.
fn last_output(log: &[LogLine]) -> Vec<String> {
    let mut output = Vec::new();
    for line in log.iter().rev() {
        let is_output = line.author == Author::Server || line.text.starts_with(NOISE_PREFIX);
        match is_output {
            true if output.len() < LINES => {
                output.push(line.text.chars().take(LINE_CHARS_MAX).collect())
            }
            true => break,
            // The kernel's note about the end. A note before the output belongs to an earlier instance.
            false if output.is_empty() => {}
            false => break,
        }
    }
    output.reverse();
    output
}

#[cfg(test)]
mod tests {
    use mgp_transports::log::ServerLog;

    use super::*;

    #[test]
    fn only_output_of_the_last_instance_is_reported() {
        let log = ServerLog::new();
        log.push(b"before");
        log.push_note("ended: exited with code 1");
        log.push_note("not a message on stdout (expected value): hello");
        log.push(b"Traceback");
        log.push(b"ValueError: broken");
        log.push_note("ended: exited with code 1");
        let output = last_output(&log.tail(LOG_LINES_MAX));
        assert_eq!(output.len(), 3, "{output:?}");
        assert!(output[0].ends_with("hello") && output[2] == "ValueError: broken");
        for _ in 0..100 {
            log.push("ü".repeat(1000).as_bytes());
        }
        let output = last_output(&log.tail(LOG_LINES_MAX));
        let longest = output.iter().map(|line| line.chars().count()).max();
        assert_eq!((output.len(), longest), (LINES, Some(LINE_CHARS_MAX)));
        assert!(last_output(&[]).is_empty());
    }
}
