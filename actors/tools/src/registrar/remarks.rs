//! Status lines for the agent that registered a server. An agent cannot read logs, and corrects its code by these
//! lines.

use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_transports::log::{Author, LogLine};

use mgp_servers::server::ServerHandle;

/// Reported lines of the server's last output: the end of a stack trace.
const LINES: usize = 20;
/// Characters of each of them.
const LINE_CHARS_MAX: usize = 400;
/// Lines of the log that are searched for them.
const LOG_LINES_MAX: usize = 200;
/// How the kernel notes a line of stdout that is no message; a `print` in a server causes it.
const NOISE_PREFIX: &str = "not a message on stdout";

/// Why a server does not take calls, and its last output; nothing for one that does.
#[must_use]
pub fn status_remarks(handle: &ServerHandle) -> Vec<String> {
    let now = handle.status();
    let why = match now.state {
        LifecycleState::Connected => return Vec::new(),
        LifecycleState::Connecting if now.awaits_operator => return vec![now.reason],
        LifecycleState::Connecting => "it has not answered what it speaks yet".to_owned(),
        LifecycleState::Registered
        | LifecycleState::Draining
        | LifecycleState::Disconnected
        | LifecycleState::Error
        | LifecycleState::Restarting => now.reason,
    };
    let mut all: Vec<String> = Some(why)
        .into_iter()
        .filter(|why| !why.is_empty())
        .collect();
    let wrote = last_output(&handle.log.tail(LOG_LINES_MAX));
    if !wrote.is_empty() {
        all.push(format!("it wrote:\n{}", wrote.join("\n")));
    }
    all
}

/// The output of the server's last instance.
fn last_output(log: &[LogLine]) -> Vec<String> {
    let mut words = Vec::new();
    for line in log.iter().rev() {
        let its = line.author == Author::Server || line.text.starts_with(NOISE_PREFIX);
        match its {
            true if words.len() < LINES => {
                words.push(line.text.chars().take(LINE_CHARS_MAX).collect())
            }
            true => break,
            // The kernel's note about its end. A note before the output belongs to an earlier instance.
            false if words.is_empty() => {}
            false => break,
        }
    }
    words.reverse();
    words
}

#[cfg(test)]
mod tests {
    use mgp_transports::log::ServerLog;

    use super::*;

    #[test]
    fn only_the_words_of_the_last_life_are_told() {
        let log = ServerLog::new();
        log.push(b"before");
        log.push_note("ended: exited with code 1");
        log.push_note("not a message on stdout (expected value): hello");
        log.push(b"Traceback");
        log.push(b"ValueError: broken");
        log.push_note("ended: exited with code 1");
        let told = last_output(&log.tail(LOG_LINES_MAX));
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].ends_with("hello") && told[2] == "ValueError: broken");
        for _ in 0..100 {
            log.push("ü".repeat(1000).as_bytes());
        }
        let told = last_output(&log.tail(LOG_LINES_MAX));
        let longest = told.iter().map(|line| line.chars().count()).max();
        assert_eq!((told.len(), longest), (LINES, Some(LINE_CHARS_MAX)));
        assert!(last_output(&[]).is_empty());
    }
}
